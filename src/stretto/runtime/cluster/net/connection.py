"""One outgoing connection to another host: a ZeroMQ PUSH socket, its monitor, and reconnecting."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, cast

import zmq

from stretto.runtime.cluster.hosts.calls import Address

from .curve_keys import KeyPair
from .envelope import MAX_PART, Buffer

_REOPEN_SECONDS = 3.0  # seconds without a connection after which the socket is replaced
_ZERO_COPY = 64 << 10  # bytes from which sending without a copy is faster
_EVENT = struct.Struct("=Hi")
# Plain integers: pyzmq's flags are enumeration members, and combining two of them takes longer than sending.
_LAST, _MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)
_EVENTS, _WAITING, _FREE = int(zmq.EVENTS), int(zmq.POLLIN), int(zmq.POLLOUT)
_CONNECTED, _LOST, _REFUSED = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED,
    zmq.EVENT_DISCONNECTED,
    zmq.EVENT_HANDSHAKE_FAILED_AUTH,
)
Context = zmq.Context[zmq.Socket[bytes]]


class Connection:
    """A PUSH socket to one address. Not thread-safe.

    Parameters
    ----------
    queued : int
        Messages that the socket buffers. `give` refuses further ones.
    """

    def __init__(self, context: Context, address: Address, keys: KeyPair | None, queued: int, now: float) -> None:
        self._context, self._address, self._keys, self._queued = context, address, keys, queued
        self.connections = 0
        self._tried = now
        self._open()

    def _open(self) -> None:
        self.connected = False
        self.blocked = False  # whether the socket refused a message at the last attempt
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
        """Send one message without waiting. False: the socket's buffer is full and nothing was sent."""
        socket = self.socket
        self.blocked = not int(socket.get(_EVENTS)) & _FREE  # asking is far cheaper than an exception
        if self.blocked:
            return False
        last = len(parts) - 1
        try:
            for i, part in enumerate(parts):
                flags = _MORE if i < last else _LAST
                socket.send(cast(Any, part), flags, copy=length(part) < _ZERO_COPY)  # send accepts any buffer
        except zmq.Again:
            self.blocked = True
            return False
        return True

    def news(self) -> bool:
        """Read the monitor's events; True if a lost connection was re-established."""
        again = False
        while int(self.monitor.get(_EVENTS)) & _WAITING:
            # an in-process socket: a message that is announced is complete
            event, _ = self.monitor.recv_multipart(_LAST)
            what = _EVENT.unpack_from(event)[0]
            self.connected = what == _CONNECTED
            if what == _REFUSED:
                self._tried -= _REOPEN_SECONDS
            elif what == _CONNECTED:
                self.connections += 1
                again |= self.connections > 1
        return again

    def persist(self, now: float) -> None:
        """Replace the socket when it has been unconnected for too long: ZeroMQ does not retry after a rejection."""
        if self.connected:
            self._tried = now
        elif now - self._tried > _REOPEN_SECONDS:
            self._tried = now
            self.reopen()

    def reopen(self) -> None:
        """Close the connection and open another; messages that the socket buffered are lost."""
        self.news()  # counts a connection that was made meanwhile: its senders have to resend
        self.close()
        self._open()

    def close(self) -> None:
        self.socket.disable_monitor()
        self.monitor.close(0)
        self.socket.close(0)


def length(part: Buffer) -> int:
    """Size of a message part in bytes."""
    return len(part) if isinstance(part, bytes) else part.nbytes
