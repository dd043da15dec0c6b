"""The live page's server: who may read it, what it knows, and what slow, many or hostile viewers cannot do."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import stretto as st
from page_records import events, record
from stretto.errors import PlanError, RunError
from stretto.observe.events import EpochDone
from stretto.observe.page import server as module
from stretto.observe.page.feed import Feed
from stretto.observe.page.process import start
from stretto.observe.page.server import PageServer
from stretto.observe.page.tail import RecordTail
from stretto.observe.record import RunRecord


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PageServer]:
    with PageServer([record(tmp_path / "one")], interval=0.01) as made:
        yield made


def get(server: PageServer, path: str, host: str | None = None) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request("GET", path, headers={"Host": host or f"127.0.0.1:{server.port}"})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, content


def test_the_link_opens_the_page(server: PageServer) -> None:
    link = urlsplit(server.url)
    assert link.hostname == "127.0.0.1"
    status, headers, content = get(server, f"/?{link.query}")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert b"<title>one</title>" in content
    assert b'"live":true' in content
    assert "connect-src 'self'" in content.decode()
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    status, _, content = get(server, f"/state?{link.query}")
    heads = [part for _, part in json.loads(content) if "status" in part]
    assert (status, heads[0]["status"], heads[0]["name"]) == (200, "done", "one")


def test_who_may_not_read_it(server: PageServer) -> None:
    token = server.token
    for query in ("", "?token=", f"?token={token[:-1]}", f"?token={token}x", "?token=%00%ff", f"?TOKEN={token}"):
        for path in ("/", "/events", "/state", "/../../etc/passwd", "/run.json"):
            assert get(server, path + query)[0] == 403, (path, query)
    for host in ("evil.example", f"evil.example:{server.port}", "127.0.0.1.evil.example:80", ""):
        assert get(server, f"/?token={token}", host=host or "-")[0] == 403, host
    assert get(server, f"/?token={token}", host=f"localhost:{server.port}")[0] == 200


def test_what_it_does_not_know(server: PageServer) -> None:
    token = server.token
    for path in ("/run.json", "/../run.json", "/..%2f..%2fetc%2fpasswd", "//etc/passwd", "/events/", "/%00"):
        assert get(server, f"{path}?token={token}")[0] == 404, path
    assert get(server, f"/?token={token}&x=" + "y" * 3000)[0] == 414
    assert get(server, f"/?token={token}" + "&x=1" * 100)[0] == 403
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request("POST", f"/?token={token}", body=b"x")
    assert connection.getresponse().status == 501
    connection.close()


def read_events(connection: socket.socket, lines: list[bytes], enough: int) -> None:
    with connection.makefile("rb") as file:
        for line in file:
            if line.startswith(b"data: "):
                lines.append(line[6:])
                if len(lines) == enough:
                    return


def stream(server: PageServer) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    query = f"GET /events?token={server.token} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n"
    connection.sendall(query.encode())
    return connection


def test_viewers_are_sent_what_changed(tmp_path: Path) -> None:
    kept = RunRecord(tmp_path / "live")
    for event in events(3, status=None):
        kept(event)
    with PageServer([tmp_path / "live"], interval=0.01) as server, stream(server) as connection:
        lines: list[bytes] = []
        read_events(connection, lines, 1)
        assert {key for _, part in json.loads(lines[0]) for key in part} >= {"status", "series", "lanes", "plan"}
        kept(EpochDone(2000.0, 4, 9, 0.5, 100, 0.125, {}))
        read_events(connection, lines, 2)
        news = json.loads(lines[1])
        assert all(number == 0 for number, _ in news)
        assert not any("plan" in part for _, part in news)  # it did not change
        (series,) = (part["series"] for _, part in news if "series" in part)
        assert series["objective"][-1] == 0.125
    kept.close()


def test_a_slow_viewer_and_one_who_says_nothing_hold_up_nobody(server: PageServer) -> None:
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
    slow = [stream(server) for _ in range(20)]  # they never read
    assert get(server, f"/?token={server.token}")[0] == 200
    for connection in (*idle, *slow):
        connection.close()


def test_a_silent_viewer_is_dropped(server: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module._Request, "timeout", 0.05)
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as idle:
        assert idle.recv(1) == b""


def test_two_hundred_viewers_and_then_no_more(server: PageServer) -> None:
    watching = [stream(server) for _ in range(200)]
    for connection in watching:
        assert connection.recv(12).startswith(b"HTTP/1.0 200")
    assert get(server, f"/?token={server.token}")[0] == 200
    more = [stream(server) for _ in range(module.VIEWERS + 20 - 200)]
    answers = []
    for connection in more:
        try:
            answers.append(connection.recv(12))
        except ConnectionResetError:
            answers.append(b"")
    assert any(not answer.startswith(b"HTTP/1.0 200") for answer in answers)
    for connection in (*watching, *more):
        connection.close()


def test_an_end_ends_the_connections(server: PageServer) -> None:
    with stream(server) as connection:
        lines: list[bytes] = []
        reader = threading.Thread(target=read_events, args=(connection, lines, 1_000_000), daemon=True)
        reader.start()
        server.close()
        reader.join(20)
        assert not reader.is_alive()
    assert server.ended


def test_a_feed_sends_each_part_once(tmp_path: Path) -> None:
    feed = Feed([RecordTail(record(tmp_path / "a")), RecordTail(record(tmp_path / "b"))])
    assert feed.poll()
    seen, message = feed.news(0)
    assert message is not None
    assert {number for number, _ in json.loads(message)} == {0, 1}
    assert feed.news(seen) == (seen, None)
    assert not feed.poll()
    (tmp_path / "b" / "plan.txt").write_text("another plan")
    assert feed.poll()
    assert json.loads(feed.news(seen)[1] or b"")[0][0] == 1


def test_a_port_in_use_is_refused(server: PageServer, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=f"port {server.port} of this machine cannot be used"):
        PageServer([tmp_path / "one"], port=server.port)


def test_the_page_of_another_process(tmp_path: Path) -> None:
    folder = record(tmp_path / "one")
    with start([folder]) as page:
        link = urlsplit(page.url)
        connection = http.client.HTTPConnection("127.0.0.1", link.port or 0, timeout=20)
        connection.request("GET", f"/?{link.query}")
        assert connection.getresponse().status == 200
        connection.close()
        assert page.url in page._repr_html_()
    (tmp_path / "nothing").mkdir()
    with pytest.raises(RunError, match="holds no run record"):
        start([tmp_path / "nothing"])


def test_a_session_with_a_page_has_a_record() -> None:
    with pytest.raises(PlanError, match="give its folder as record="):
        st.Session(dashboard=True).listen()


def test_a_session_prints_its_link(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from stretto.observe.page import process

    before = len(process._RUNNING)
    bus = st.Session(record=tmp_path / "run", dashboard=True).listen()
    assert capsys.readouterr().err.startswith("live page: http://127.0.0.1:")
    bus.close()
    for running in process._RUNNING[before:]:
        process.Dashboard(running, "").close()
    assert len(process._RUNNING) == before
