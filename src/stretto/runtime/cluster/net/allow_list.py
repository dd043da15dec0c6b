"""Admit connections only from the public keys of this job's hosts (ZeroMQ's authentication protocol, ZAP).

CURVE alone encrypts for any client, whatever its key. Before ZeroMQ accepts a connection it asks this handler, which
accepts only public keys on the list. The key becomes the connection's User-Id, which ZeroMQ attaches to every message:
the wire identifies the sender by it, never by what the message claims.

    gate = Gate(context)                 before the first socket with a ZAP domain is bound
    gate.allow({"…public key…": 1})
    gate.refused                         number of rejected connections
    gate.close()

A host may connect before this one has received its key, and ZeroMQ does not retry a rejected connection. So a few
requests with unknown keys are held for a second, in case the next list names them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from math import ceil

import zmq
from zmq.utils import z85

DOMAIN = b"stretto"
_WHERE = "inproc://zeromq.zap.01"  # fixed by the protocol
_BELL = "inproc://stretto.gate"
_VERSION = b"1.0"
_FIELDS = 9  # caller, empty, version, request, domain, address, identity, mechanism, key
_WAIT = 1.0  # seconds that a request with an unknown key is held
_WAITING = 64  # held requests at most


class AllowList:
    """Answers authentication requests on its own thread until it is closed. One thread at a time calls `allow` or
    `close`.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self.refused = 0
        self._allowed: frozenset[str] = frozenset()
        self._waiting: list[tuple[float, str, list[bytes]]] = []  # deadline, key, request
        self._requests = context.socket(zmq.ROUTER)
        self._requests.linger = 0
        self._requests.bind(_WHERE)
        self._rung = context.socket(zmq.PAIR)
        self._rung.bind(_BELL)
        self._bell = context.socket(zmq.PAIR)
        self._bell.connect(_BELL)
        self._thread = threading.Thread(target=self._run, name="stretto-gate", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Requests that are held: neither accepted nor rejected yet."""
        return len(self._waiting)

    def allow(self, hosts: Mapping[str, int]) -> None:
        """Accept exactly these public keys from now on: {key: host number}.

        Open connections stay open; the wire drops messages of keys it does not know.
        """
        self._allowed = frozenset(hosts)
        self._bell.send(b"list")

    def close(self) -> None:
        """Stop the thread and close the sockets."""
        self._bell.send(b"end")
        self._thread.join()
        for socket in (self._requests, self._rung, self._bell):
            socket.close(0)

    def _run(self) -> None:
        while True:
            left = -1 if not self._waiting else max(0, ceil((self._waiting[0][0] - time.monotonic()) * 1000))
            ready = {found for found, _ in zmq.zmq_poll([(self._requests, zmq.POLLIN), (self._rung, zmq.POLLIN)], left)}
            if self._rung in ready and self._rung.recv() == b"end":
                return
            now = time.monotonic()
            if self._requests in ready:
                request = self._requests.recv_multipart()
                until = now + _WAIT if len(self._waiting) < _WAITING else now
                self._waiting.append((until, _key(request), request))
            waiting, self._waiting = self._waiting, []
            for until, key, request in waiting:
                if key in self._allowed:
                    self._answer(request, b"200", key)
                elif until <= now or not key:
                    self.refused += 1
                    self._answer(request, b"400", "")
                else:
                    self._waiting.append((until, key, request))

    def _answer(self, request: list[bytes], code: bytes, key: str) -> None:
        if len(request) > 3:  # a shorter request names no caller to answer
            text = b"OK" if key else b"not a host of this job"
            self._requests.send_multipart([request[0], b"", _VERSION, request[3], code, text, key.encode(), b""])


def _key(request: list[bytes]) -> str:
    """The public key in a request; "" if the request is malformed or not of this domain."""
    if len(request) != _FIELDS or request[2] != _VERSION or request[4] != DOMAIN or request[7] != b"CURVE":
        return ""
    return z85.encode(request[8]).decode() if len(request[8]) == 32 else ""
