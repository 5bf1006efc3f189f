"""Alarms over HTTP: real receivers, good, slow, dead and hostile ones, and judging that none of them disturbs."""

from __future__ import annotations

import http.server
import json
import pathlib
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import websockets.sync.client
from receiver import TLS, Receiver, ok, status
from strongback import Server, eventually, free_ports

LIMITS = """
[[limit]]
name = "pressure"
channels = ["tank.p"]
watch = { high = 5 }
critical = { high = 9 }

[[limit]]
name = "level"
channels = ["tank.level{n=*}"]
warning = { low = 1 }
"""


def hook(url: str, *, name: str = "ops", **keys: Any) -> str:
    """A `[[webhook]]` that loses no time."""
    keys = {"retry_ms": 20, "timeout_ms": 10_000} | keys
    lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items() if not isinstance(value, dict)]
    tables = [
        f"{key} = {{ {', '.join(f'{k} = {json.dumps(v)}' for k, v in value.items())} }}"
        for key, value in keys.items()
        if isinstance(value, dict)
    ]
    return "\n".join(["[[webhook]]", f"name = {json.dumps(name)}", f"url = {json.dumps(url)}", *lines, *tables, ""])


@pytest.fixture
def servers(tmp_path: pathlib.Path) -> Iterator[Any]:
    started = []

    def start(*hooks: str) -> Server:
        server = Server(folder=tmp_path, config=LIMITS + "\n".join(hooks)).start()
        started.append(server)
        return server

    yield start
    for server in started:
        server.stop()


def post(server: Server, path: str, **body: Any) -> int:
    request = urllib.request.Request(server.url + path, data=json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.status


def metric(server: Server, name: str, webhook: str = "ops") -> int:
    with urllib.request.urlopen(server.url + "/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    start = f'strongback_webhook_{name}{{webhook="{webhook}"}} '
    return next(int(line.removeprefix(start)) for line in lines if line.startswith(start))


def replay(server: Server, channel: str) -> tuple[float, float, float]:
    """Plays the record to a viewer: first, greatest and last value of a channel in three frames."""
    (first, last) = server.sql("select min(time_ns), max(time_ns) from tank")[0]
    ask = json.dumps({"from": str(first), "to": str(last + 1), "paused": True}).encode()
    request = urllib.request.Request(server.url + "/api/playbacks", data=ask, method="POST")
    with urllib.request.urlopen(request, timeout=60) as answer:
        session = json.load(answer)
    with websockets.sync.client.connect(
        f"ws://127.0.0.1:{server.http_port}/api/live?playback={session['id']}"
    ) as viewer:
        viewer.send(json.dumps({"type": "subscribe", "id": 1, "channels": [channel]}))
        deadline = time.monotonic() + 60
        while json.loads(viewer.recv(timeout=60))["type"] != "snapshot":
            assert time.monotonic() < deadline
        body = json.dumps({"director": session["director"], "do": "play"}).encode()
        request = urllib.request.Request(f"{server.url}/api/playbacks/{session['id']}", data=body, method="POST")
        with urllib.request.urlopen(request, timeout=60):
            pass
        played: list[Any] = []
        while sum(window[1] for window in played) < 3:
            assert time.monotonic() < deadline
            message = json.loads(viewer.recv(timeout=60))
            if message["type"] == "update":
                played.extend(window for stream in message["streams"] for window in stream["channels"])
    return played[0][2], max(window[5] for window in played), played[-1][3]


def test_each_step_arrives_in_order_with_who_and_why(servers: Any, tmp_path: pathlib.Path) -> None:
    receiver = Receiver()
    (tmp_path / "token").write_text("let-me-in\n")
    room = {"X-Room": "3"}
    server = servers(hook(receiver.url, headers=room, token_file=str(tmp_path / "token")))
    of = {"limit": "pressure", "channel": "tank.p"}
    for value in (6.0, 9.5, 7.0):
        assert server.write(f"tank p={value}\n")[0] == 204
    eventually("three steps", lambda: receiver.steps() == ["raised", "worse", "better"])
    assert post(server, "/api/alarms/shelve", **of, by="Ada", minutes=5) == 200
    eventually("shelved", lambda: receiver.steps()[3:] == ["shelved"])
    for value in (1.0, 9.75):  # nobody wants to hear of it
        assert server.write(f"tank p={value}\n")[0] == 204
    eventually("critical", lambda: server.get("/api/alarms")["alarms"][0]["level"] == "critical")
    assert post(server, "/api/alarms/unshelve", **of, by="Ada") == 200
    assert post(server, "/api/alarms/acknowledge", **of, by="Ada", note="looking") == 200
    assert server.write("tank p=1\n")[0] == 204
    wanted = ["raised", "worse", "better", "shelved", "unshelved", "acknowledged", "cleared"]
    eventually("all", lambda: receiver.steps() == wanted)
    raised, worse, *_, acknowledged, cleared = receiver.taken
    assert (raised["limit"], raised["channel"], raised["before"], raised["level"]) == (*of.values(), "normal", "watch")
    assert (worse["why"], worse["value"], worse["bound"], worse["text"]) == ("high", 9.5, 9, "9.5")
    assert worse["summary"] == "critical (was watch): tank.p is 9.5, above 9"
    assert (worse["webhook"], worse["dropped"]) == ("ops", 0)
    assert (acknowledged["by"], acknowledged["note"]) == ("Ada", "looking")
    assert acknowledged["alarm"]["state"] == "acknowledged"
    assert cleared["alarm"] is None
    assert [body["number"] for body in receiver.taken] == list(range(1, 8))
    assert len({body["id"] for body in receiver.taken}) == 7
    for body, headers in zip(receiver.taken, receiver.headers, strict=True):
        assert (headers["x-room"], headers["authorization"]) == ("3", "Bearer let-me-in")
        assert (headers["idempotency-key"], headers["content-type"]) == (body["id"], "application/json")
    # The same is in the record, and in the log in one line each.
    told = server.sql("select time_ns, step from strongback.alarms order by receive_time_ns, time_ns")
    assert {(int(body["time"]), body["step"]) for body in receiver.taken} <= set(told)
    log = server.log.read_text()
    for line in (worse["summary"], "acknowledged by Ada: tank.p: looking", "cleared (was critical): tank.p is 1"):
        assert line in log
    assert "let-me-in" not in log
    assert (metric(server, "sent_total"), metric(server, "waiting"), metric(server, "failing")) == (7, 0, 0)


def test_steps_and_levels_are_chosen(servers: Any) -> None:
    steps, levels, all_of_it = Receiver(), Receiver(), Receiver()
    server = servers(
        hook(steps.url, name="steps", steps=["raised"]),
        hook(levels.url, name="levels", level="critical"),
        hook(all_of_it.url, name="all"),
    )
    for value in (6, 1, 9.5, 1):
        assert server.write(f"tank p={value}\n")[0] == 204
    eventually("all", lambda: all_of_it.steps() == ["raised", "cleared"] * 2)
    eventually("raised", lambda: steps.steps() == ["raised"] * 2)
    # What was critical is followed to its end.
    eventually("critical", lambda: [b["before"] for b in levels.taken] == ["normal", "critical"])


def test_what_failed_is_tried_again_with_the_same_id_and_before_all_others(servers: Any) -> None:
    codes = [500, 503, 429, 408, 500]

    def answer(handler: http.server.BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        if codes:
            status(handler, codes.pop(0), b"not \x1b[31m now")
        else:
            ok(handler, body)

    receiver = Receiver(answer=answer)
    server = servers(hook(receiver.url))
    for value in (6, 1, 6, 1):
        assert server.write(f"tank p={value}\n")[0] == 204
    eventually("all", lambda: receiver.steps() == ["raised", "cleared"] * 2)
    assert len({body["id"] for body in receiver.tried[:6]}) == 1
    assert [body["number"] for body in receiver.taken] == [1, 2, 3, 4]
    assert (metric(server, "failed_total"), metric(server, "failing")) == (5, 0)
    events = "select text from strongback.events where source = 'webhook' order by time_ns"
    eventually("both events", lambda: len(server.sql(events)) == 2)
    (trouble,), (well,) = server.sql(events)
    assert "does not take alarms: HTTP 500" in trouble and "\x1b" not in trouble
    assert well == 'webhook "ops" takes alarms again'


def test_a_refusal_and_a_redirect_are_final(servers: Any) -> None:
    elsewhere = Receiver()

    def answer(handler: http.server.BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        if body["step"] == "raised":
            status(handler, 307 if body["number"] == 1 else 410, b"gone", Location=elsewhere.url)
        else:
            ok(handler, body)

    receiver = Receiver(answer=answer)
    server = servers(hook(receiver.url))
    for value in (6, 1, 6, 1):
        assert server.write(f"tank p={value}\n")[0] == 204
    eventually("the others", lambda: receiver.steps() == ["cleared", "cleared"])
    assert [body["number"] for body in receiver.tried] == [1, 2, 3, 4]
    assert elsewhere.paths == []
    assert metric(server, "refused_total") == 2
    log = server.log.read_text()
    assert "redirects are not followed" in log and 'HTTP 410 Gone: "gone"' in log


def test_slow_dead_and_hostile_receivers_disturb_nobody(servers: Any) -> None:
    let_go = threading.Event()

    def never(handler: http.server.BaseHTTPRequestHandler, _body: dict[str, Any]) -> None:
        let_go.wait(120)

    def drips(handler: http.server.BaseHTTPRequestHandler, _body: dict[str, Any]) -> None:
        while not let_go.wait(0.05):
            handler.wfile.write(b"HTTP/1.1 100 Continue\r\nX: y\r\n\r\n")

    def endless_head(handler: http.server.BaseHTTPRequestHandler, _body: dict[str, Any]) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        while not let_go.is_set():
            handler.wfile.write(b"X-Y: " + b"z" * 60_000 + b"\r\n")

    def endless_body(handler: http.server.BaseHTTPRequestHandler, _body: dict[str, Any]) -> None:
        handler.wfile.write(b"HTTP/1.1 500 No\r\nContent-Length: 99999999999\r\n\r\n")
        while not let_go.is_set():
            handler.wfile.write(b"z" * 60_000)

    def huge_but_good(handler: http.server.BaseHTTPRequestHandler, _body: dict[str, Any]) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not let_go.is_set():
            handler.wfile.write(b"z" * 60_000)

    def rubbish(handler: http.server.BaseHTTPRequestHandler, _body: dict[str, Any]) -> None:
        handler.wfile.write(b"\x00\xff" * 1000)

    bad = {"never": never, "drips": drips, "head": endless_head, "body": endless_body, "rubbish": rubbish}
    receivers = {name: Receiver(answer=answer) for name, answer in bad.items()}
    huge, good = Receiver(answer=huge_but_good), Receiver()
    (dead,) = free_ports(count=1)
    hooks = [hook(receiver.url, name=name, timeout_ms=300, queue=5) for name, receiver in receivers.items()]
    hooks.append(hook(f"http://127.0.0.1:{dead}/", name="dead", queue=5))
    server = servers(*hooks, hook(huge.url, name="huge"), hook(good.url))
    for number in range(10):
        assert server.write(f"tank,n={number} level=0\n")[0] == 204
    eventually("the good one has all", lambda: good.steps() == ["raised"] * 10)
    eventually("a huge answer is an answer", lambda: huge.steps() == ["raised"] * 10)
    for name in [*bad, "dead"]:
        eventually(f"{name} failed twice", lambda name=name: metric(server, "failed_total", name) >= 2)
        # Five wait beside the one that is tried.
        eventually(f"{name} dropped", lambda name=name: metric(server, "dropped_total", name) == 4)
        assert metric(server, "sent_total", name) == 0
        assert metric(server, "waiting", name) == 6
    assert len(server.get("/api/alarms")["alarms"]) == 10
    # A stop does not wait for them, and says what was not sent.
    assert server.stop() == 0
    let_go.set()
    log = server.log.read_text()
    assert 'webhook "dead": steps not sent before the stop: 6' in log
    assert 'webhook "dead": not sent: warning: tank.level{n=9} is 0, below 1' in log
    assert log.count('webhook "dead": no room, not sent: warning: tank.level{n=') == 4


def test_a_receiver_that_comes_back_sees_what_was_dropped(servers: Any) -> None:
    (port,) = free_ports(count=1)
    server = servers(hook(f"http://127.0.0.1:{port}/alarms", queue=2))
    assert server.write("tank,n=0 level=0\n")[0] == 204
    eventually("a failure", lambda: metric(server, "failed_total") >= 1)
    for number in range(1, 5):
        assert server.write(f"tank,n={number} level=0\n")[0] == 204
        eventually("it waits", lambda number=number: metric(server, "dropped_total") == max(0, number - 2))
        eventually("it is judged", lambda number=number: len(server.get("/api/alarms")["alarms"]) == number + 1)
    receiver = Receiver(port=port)
    eventually("the rest", lambda: len(receiver.taken) == 3)
    assert [(body["number"], body["dropped"]) for body in receiver.taken] == [(1, 2), (4, 2), (5, 2)]
    assert metric(server, "failing") == 0


def test_https_is_checked_against_the_given_authority(servers: Any) -> None:
    good, wrong_name, wrong_authority = (Receiver(tls=True) for _ in range(3))
    by_address = wrong_name.url.replace("localhost", "127.0.0.1")
    server = servers(
        hook(good.url, name="good", ca_file=str(TLS / "ca.pem")),
        hook(by_address, name="name", ca_file=str(TLS / "ca.pem")),
        hook(wrong_authority.url, name="authority", ca_file=str(TLS / "other-ca.pem")),
    )
    assert server.write("tank p=6\n")[0] == 204
    eventually("raised", lambda: good.steps() == ["raised"])
    for name in ("name", "authority"):
        eventually(f"{name} failed", lambda name=name: metric(server, "failed_total", name) >= 2)
    assert wrong_name.tried == [] and wrong_authority.tried == []
    log = server.log.read_text()
    assert "NotValidForName" in log or "not valid for name" in log
    assert "UnknownIssuer" in log


def test_the_past_calls_nobody_and_a_restart_tells_nothing_twice(servers: Any) -> None:
    receiver = Receiver()
    server = servers(hook(receiver.url))
    for value in (6, 1, 9.5):
        assert server.write(f"tank p={value}\n")[0] == 204
    eventually("three", lambda: receiver.steps() == ["raised", "cleared", "raised"])
    past = server.get("/api/limits/past")["changes"]
    assert [change["step"] for change in past] == ["raised", "cleared", "raised"]
    assert replay(server, "tank.p") == (6.0, 9.5, 9.5)
    assert server.stop() == 0
    server.start()
    assert len(server.get("/api/limits/past")["changes"]) == 3
    assert server.write("tank p=9.25\n")[0] == 204  # still critical: no news
    assert server.write("tank p=1\n")[0] == 204
    eventually("cleared", lambda: receiver.steps()[3:] == ["cleared"])
    assert len(receiver.tried) == 4
    assert len({body["id"] for body in receiver.taken}) == 4


def test_what_waits_at_a_stop_is_sent_if_the_receiver_takes_it(servers: Any) -> None:
    def answer(handler: http.server.BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        time.sleep(0.01)  # slower than the steps come
        ok(handler, body)

    receiver = Receiver(answer=answer)
    server = servers(hook(receiver.url))
    lines = "".join(f"tank,n={number} level=0\n" for number in range(50))
    assert server.write(lines)[0] == 204
    assert server.stop() == 0
    log = server.log.read_text()
    left = int(log.split("steps not sent before the stop: ")[1].split()[0]) if "steps not sent" in log else 0
    left += log.count("one step was being sent")
    assert [body["number"] for body in receiver.tried][: 50 - left] == list(range(1, 51 - left))
    assert len(receiver.tried) >= 50 - left


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ('url = "ops.example"', "webhook.url: it must begin with http:// or https://"),
        ('url = "https://ops.example"\nca_file = "/nowhere/ca.pem"', "ca_file: /nowhere/ca.pem"),
        ('url = "https://ops.example"\ntoken_file = "/nowhere/token"', "token_file: /nowhere/token"),
    ],
)
def test_a_webhook_that_cannot_work_is_refused_at_the_start(tmp_path: pathlib.Path, keys: str, says: str) -> None:
    server = Server(folder=tmp_path, config=f"{LIMITS}[[webhook]]\n{keys}\n")
    with pytest.raises(AssertionError, match="the server ended"):
        server.start()
    assert says in server.last_words()
