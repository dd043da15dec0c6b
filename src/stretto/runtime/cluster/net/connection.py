"""One connection to another host: a PUSH socket, and what its monitor says about it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, cast

import zmq

from stretto.runtime.cluster.hosts.calls import Address

from .curve_keys import KeyPair
from .envelope import MAX_PART, Buffer

_GIVEN_UP = 3.0  # seconds without a connection after which a new socket is made
_ZERO_COPY = 64 << 10  # bytes from which not copying pays
_EVENT = struct.Struct("=Hi")
# Plain numbers: pyzmq's flags are members of an enumeration, and joining two of them takes longer than sending.
_LAST, _MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)
_EVENTS, _WAITING, _FREE = int(zmq.EVENTS), int(zmq.POLLIN), int(zmq.POLLOUT)
_CONNECTED, _LOST, _REFUSED = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED,
    zmq.EVENT_DISCONNECTED,
    zmq.EVENT_HANDSHAKE_FAILED_AUTH,
)
Context = zmq.Context[zmq.Socket[bytes]]


class Line:
    """queued: messages the socket holds; more it refuses. Not safe for several threads."""

    def __init__(self, context: Context, address: Address, keys: KeyPair | None, queued: int, now: float) -> None:
        self._context, self._address, self._keys, self._queued = context, address, keys, queued
        self.connections = 0
        self._tried = now
        self._open()

    def _open(self) -> None:
        self.connected = False
        self.blocked = False  # the socket took no more when it was last asked
        socket = self._context.socket(zmq.PUSH)
        socket.linger = 0
        socket.sndhwm = self._queued
        socket.rcvhwm = 1
        socket.immediate = True
        socket.reconnect_ivl, socket.reconnect_ivl_max = 50, 500
        socket.maxmsgsize = MAX_PART
        socket.handshake_ivl = 5000
        if self._keys is not None:
            socket.curve_serverkey = self._address.public.encode()
            socket.curve_publickey = self._keys.public.encode()
            socket.curve_secretkey = self._keys.secret.encode()
        self.monitor = socket.get_monitor_socket(_CONNECTED | _LOST | _REFUSED)
        socket.connect(self._address.endpoint)
        self.socket = socket

    def give(self, parts: Sequence[Buffer]) -> bool:
        """Give the socket one message; False: it does not take it, and nothing of it was sent."""
        socket = self.socket
        self.blocked = not int(socket.get(_EVENTS)) & _FREE  # far cheaper to ask than to be refused
        if self.blocked:
            return False
        last = len(parts) - 1
        try:
            for i, part in enumerate(parts):
                flags = _MORE if i < last else _LAST
                socket.send(cast(Any, part), flags, copy=length(part) < _ZERO_COPY)  # any buffer will do
        except zmq.Again:
            self.blocked = True
            return False
        return True

    def news(self) -> bool:
        """Take what the monitor says; True if the connection was lost and is there again."""
        again = False
        while int(self.monitor.get(_EVENTS)) & _WAITING:
            event, _ = self.monitor.recv_multipart(_LAST)  # inside the process: what is there can be taken
            what = _EVENT.unpack_from(event)[0]
            self.connected = what == _CONNECTED
            if what == _REFUSED:
                self._tried -= _GIVEN_UP
            elif what == _CONNECTED:
                self.connections += 1
                again |= self.connections > 1
        return again

    def persist(self, now: float) -> None:
        """ZeroMQ connects again by itself, unless it was turned away: then it gives up, and we do not."""
        if self.connected:
            self._tried = now
        elif now - self._tried > _GIVEN_UP:
            self._tried = now
            self.reopen()

    def reopen(self) -> None:
        """Cut the connection and make another; what the socket held is lost."""
        self.news()  # whether there was one: who sent over it has to send again
        self.close()
        self._open()

    def close(self) -> None:
        self.socket.disable_monitor()
        self.monitor.close(0)
        self.socket.close(0)


def length(part: Buffer) -> int:
    """Bytes of a part."""
    return len(part) if isinstance(part, bytes) else part.nbytes
