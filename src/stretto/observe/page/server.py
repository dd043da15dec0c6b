"""The server of the live page: read-only, for this machine alone, behind a random token.

    with PageServer([Path("runs/first")]) as server:
        print(server.url)
        server.wait()

It knows four addresses and no file names: the page, its events, the newest state as JSON, and its numbers for
Prometheus (`/metrics`). A request needs the
token of the link and a `Host` of this machine, so that neither other users nor scripts of other sites can read the
page. Connections are limited in number and in time, so that slow or many viewers delay no one else. The run itself is
in another process and only ever writes its record.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from stretto.errors import RunError
from stretto.observe.listeners.prometheus import CONTENT_TYPE

from .feed import Feed
from .tail import RecordTail

VIEWERS = 256
_PATIENCE = 10.0  # seconds for a request, and for a viewer to take what it is sent
_LONGEST = 2048  # characters of an address
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class PageServer:
    """Serves the live page of some runs until it is closed.

    Parameters
    ----------
    folders : sequence of Path
        Run records.
    port : int, default 0
        Port on 127.0.0.1; 0 for any that is free.
    interval : float, default 0.5
        Seconds between two readings of the records.

    Attributes
    ----------
    url : str
        The link, with its token.
    """

    def __init__(self, folders: Sequence[Path], *, port: int = 0, interval: float = 0.5) -> None:
        self.feed = Feed([RecordTail(folder) for folder in folders])
        self.token = secrets.token_urlsafe(24)
        self._interval = interval
        self._ended = threading.Event()
        try:
            self._server = _Server(("127.0.0.1", port), self)
        except OSError as error:
            raise RunError(
                f"port {port} of this machine cannot be used ({error.strerror}); name another one, or 0 for any"
            ) from error
        self.feed.poll()
        self._threads = [
            threading.Thread(target=target, name=f"stretto page: {name}", daemon=True)
            for name, target in (("requests", self._server.serve_forever), ("records", self._follow))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/?token={self.token}"

    @property
    def viewers(self) -> int:
        """Connections that are open."""
        return self._server.open

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the server is closed, or so long; whether it is closed."""
        return self._ended.wait(seconds)

    def close(self) -> None:
        """End the server and its connections."""
        if self._ended.is_set():
            return
        self._ended.set()
        with self.feed.changed:
            self.feed.changed.notify_all()
        self._server.shutdown()
        self._server.server_close()

    def _follow(self) -> None:
        while not self._ended.wait(self._interval):
            self.feed.poll()

    def __enter__(self) -> PageServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = VIEWERS

    def __init__(self, address: tuple[str, int], owner: PageServer) -> None:
        self.owner, self.open = owner, 0
        self._counting = threading.Lock()
        super().__init__(address, _Request)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._counting:
            full = self.open >= VIEWERS
            self.open += not full
        if full:
            self._refuse(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._leave()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._leave()

    def _leave(self) -> None:
        with self._counting:
            self.open -= 1

    def _refuse(self, request: socket.socket) -> None:
        try:
            request.settimeout(0.1)
            request.sendall(b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
        except OSError:
            pass
        self.shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report nothing: viewers go away at any time."""


class _Request(BaseHTTPRequestHandler):
    server: _Server
    timeout = _PATIENCE
    server_version, sys_version = "stretto", ""

    def do_GET(self) -> None:
        if len(self.path) > _LONGEST:
            self._answer(HTTPStatus.REQUEST_URI_TOO_LONG)
            return
        at = urlsplit(self.path)
        pages: dict[str, Callable[[], None]] = {
            "/": self._page,
            "/events": self._events,
            "/state": self._state,
            "/metrics": self._metrics,
        }
        if not self._allowed(at.query):
            self._answer(HTTPStatus.FORBIDDEN, b"The link has a token; use the whole link.\n")
        elif at.path not in pages:
            self._answer(HTTPStatus.NOT_FOUND)
        else:
            pages[at.path]()

    def _allowed(self, query: str) -> bool:
        """Whether the request has the token and was meant for this machine, not for a name that points to it."""
        host = self.headers.get("Host", "").rpartition(":")[0]
        try:
            given = parse_qs(query, max_num_fields=8).get("token", [""])[0]
        except ValueError:
            return False
        known = self.server.owner.token.encode()
        return host in ("127.0.0.1", "localhost") and hmac.compare_digest(given.encode("utf-8", "replace"), known)

    def _page(self) -> None:
        self._answer(HTTPStatus.OK, self.server.owner.feed.page(), "text/html; charset=utf-8")

    def _state(self) -> None:
        _, message = self.server.owner.feed.news(0)
        self._answer(HTTPStatus.OK, message or b"[]", "application/json")

    def _metrics(self) -> None:
        self._answer(HTTPStatus.OK, self.server.owner.feed.metrics(), CONTENT_TYPE)

    def _events(self) -> None:
        owner, seen = self.server.owner, 0
        self.send_response(HTTPStatus.OK)
        self._headers("text/event-stream")
        self.end_headers()
        while not owner.ended:
            seen, message = owner.feed.news(seen)
            self.wfile.write(b"data: " + message + b"\n\n" if message else b": nothing new\n\n")
            with owner.feed.changed:
                if not owner.ended and owner.feed.news(seen)[1] is None:
                    owner.feed.changed.wait(_PATIENCE)

    def _answer(self, status: HTTPStatus, content: bytes = b"", kind: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self._headers(kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _headers(self, kind: str) -> None:
        self.send_header("Content-Type", kind)
        for name, value in _HEADERS.items():
            self.send_header(name, value)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Requests are not logged: links hold the token."""
