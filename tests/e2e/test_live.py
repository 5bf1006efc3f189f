"""Live values as clients see them: over the WebSocket in JSON and in binary, as events and as lines of JSON."""

from __future__ import annotations

import contextlib
import http.client
import json
import pathlib
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import live_binary
import pytest
import websockets.sync.client
from strongback import TIMEOUT_S, Server, eventually
from websockets.typing import Subprotocol

VECTORS = pathlib.Path(__file__).parents[2] / "crates/server/tests/data/live.json"
BASE = 1_780_000_000_000_000_000


def connect(server: Server, *protocols: str) -> websockets.sync.client.ClientConnection:
    """A WebSocket client that offers these subprotocols."""
    offered = [Subprotocol(p) for p in protocols] or None
    return websockets.sync.client.connect(f"ws://127.0.0.1:{server.http_port}/api/live", subprotocols=offered)


def next_message(live: websockets.sync.client.ClientConnection, kind: str, *, form: type) -> dict[str, Any]:
    """The next message of a kind, which must come as text or as bytes; others are passed over."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        data = live.recv(timeout=20)
        message = json.loads(data) if isinstance(data, str) else live_binary.read(data)
        if message is not None and message["type"] == kind:
            assert isinstance(data, form), f"{kind} as {type(data)}"
            return message
    raise AssertionError(f"no {kind}")


@pytest.mark.parametrize("vector", json.loads(VECTORS.read_text()), ids=lambda v: v["name"])
def test_the_reader_of_binary_messages_knows_the_vectors(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    message = vector.get("full", vector["message"])
    assert live_binary.read(data) == message
    for end in range(len(data)):
        try:
            # What a later version adds at its end may be missing.
            assert live_binary.read(data[:end]) == message
        except live_binary.Damaged:
            pass


def test_binary_says_what_json_says(server: Server) -> None:
    truths = ("false", "true", "true", "false", "true")
    for i, go in enumerate(truths):
        line = f'all f={i}.125,i={i}i,u={2**63 + i}u,go={go},mode="S{i}" {BASE + i}'
        assert server.write(line) == (204, None)
    with connect(server) as plain, connect(server, "else.where", live_binary.PROTOCOL) as binary:
        assert (plain.subprotocol, binary.subprotocol) == (None, live_binary.PROTOCOL)
        for live in (plain, binary):
            ask = {"type": "subscribe", "id": 5, "channels": ["all.*"], "history_s": 1e9, "history_points": 3}
            live.send(json.dumps(ask))
            assert len(next_message(live, "subscribed", form=str)["channels"]) == 5
        told = [next_message(plain, "history", form=str), next_message(binary, "history", form=bytes)]
        # The grid of a history ends at the moment it was asked for, so buckets may differ by where they begin.
        for history in told:
            for series in history["series"]:
                series["buckets"] = [bucket[1:] for bucket in series["buckets"]]
        assert told[0] == told[1] and told[0]["rows"] and len(told[0]["series"]) == 5
        one = f'all f=0.1,i={-(2**63)}i,u={2**64 - 1}u,go=true,mode="µ" {BASE + 9}'
        assert server.write(one) == (204, None)
        told = [next_message(plain, "update", form=str), next_message(binary, "update", form=bytes)]
        for update in told:
            assert abs(int(update.pop("time")) - time.time_ns()) < 60 * 10**9
            # Whether the commit was over already when it was written.
            assert update["streams"][0].pop("committed") in ("5", "6")
        assert told[0] == told[1]
        [stream] = told[0]["streams"]
        assert (stream["from_row"], stream["to_row"], len(stream["channels"])) == ("5", "6", 5)
        assert {str(cell[3]) for cell in stream["channels"]} == {"0.1", str(-(2**63)), str(2**64 - 1), "True", "µ"}
        for live, form in ((plain, str), (binary, bytes)):
            assert next_message(live, "heartbeat", form=form)["store"] == "recording"


class Events:
    """A connection to /api/live without a WebSocket, as long as it is open."""

    def __init__(self, server: Server, *, query: str, headers: dict[str, str] | None = None) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=TIMEOUT_S)
        self.connection.request("GET", f"/api/live?{query}", headers=headers or {})
        self.answer = self.connection.getresponse()
        self.id = ""
        self.heartbeats = 0

    def close(self) -> None:
        """Leaves."""
        self.answer.close()
        self.connection.close()

    def next(self, kind: str) -> dict[str, Any]:
        """The next event with a message of a kind; an id counts for this and later ones."""
        data: list[str] = []
        while True:
            line = self.answer.readline().decode()
            assert line.endswith("\n"), f"the answer ended before {kind}: {line!r}"
            field, _, value = line.rstrip("\n").partition(": ")
            if field == "data":
                data.append(value)
            elif field == "id":
                self.id = value
            elif line.startswith(":"):
                assert json.loads(value)["type"] == "heartbeat"
                self.heartbeats += 1
            elif line == "\n" and data:
                message = json.loads("\n".join(data))
                data = []
                if message["type"] == kind:
                    return message
            else:
                assert line == "\n", f"no line of an event: {line!r}"

    def until_heartbeat(self) -> None:
        """Reads on to behind the next heartbeat and what comes with it."""
        line = ""
        while not line.startswith(": "):
            line = self.answer.readline().decode()
            if line.startswith("id: "):
                self.id = line.rstrip("\n").removeprefix("id: ")


@contextlib.contextmanager
def events(server: Server, *, query: str, last: str = "") -> Iterator[Events]:
    """Server-sent events, from where an id stands."""
    headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
    live = Events(server, query=query, headers=headers)
    try:
        assert (live.answer.status, live.answer.headers["content-type"]) == (200, "text/event-stream")
        yield live
    finally:
        live.close()


def ramp(server: Server, start: int, end: int, *, table: str = "ramp") -> None:
    """Rows whose value is their number."""
    for n in range(start, end):
        assert server.write(f"{table} n={n}i {BASE + n}") == (204, None)


def rows(update: dict[str, Any]) -> list[tuple[int, int, int]]:
    """First row, row after the last and number of values of each window."""
    return [(int(s["from_row"]), int(s["to_row"]), s["channels"][0][1]) for s in update["streams"]]


def test_curl_shows_live_values(server: Server) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("no curl")
    ramp(server, 0, 1)
    address = f"{server.url}/api/live?channels=ramp.*&max_rate_hz=50"
    kinds = (["-H", "Accept: text/event-stream"], ["-H", "Accept: application/x-ndjson"], [])
    for value, more in enumerate(kinds, start=1):
        command = [curl, "-sN", "--max-time", "60", *more, address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as shown:
            assert shown.stdout is not None
            seen: list[str] = []
            for line in shown.stdout:
                message = line.removeprefix("data: ").strip()
                if message.startswith("{"):
                    seen.append(json.loads(message)["type"])
                if '"type":"subscribed"' in line:
                    ramp(server, value, value + 1)
                if '"type":"update"' in line:
                    assert json.loads(message)["streams"][0]["channels"][0][3] == str(value)
                    assert line.startswith("data: ") == ("text/event-stream" in str(more))
                    break
            shown.kill()
        assert seen[0] == "hello" and {"subscribed", "update"} <= set(seen), seen


def test_lines_are_the_messages_of_the_websocket(server: Server) -> None:
    ramp(server, 0, 3)
    live = Events(server, query="channels=ramp.*,none.such&format=jsonl&history_s=1e9&history_points=10")
    assert live.answer.headers["content-type"] == "application/x-ndjson"
    wanted = {"hello", "subscribed", "history", "heartbeat", "update", "event"}
    seen: dict[str, Any] = {}
    while not wanted <= set(seen):
        message = json.loads(live.answer.readline())
        first = message["type"] not in seen
        seen[message["type"]] = message
        if message["type"] == "history" and first:
            ramp(server, 3, 4)
            event = json.dumps({"text": "hold released"}).encode()
            urllib.request.urlopen(urllib.request.Request(f"{server.url}/api/events", data=event), timeout=TIMEOUT_S)
    live.close()
    assert seen["subscribed"]["unmatched"] == ["none.such"]
    assert sum(bucket[1] for bucket in seen["history"]["series"][0]["buckets"]) == 3
    assert rows(seen["update"]) == [(3, 4, 1)]
    assert seen["heartbeat"]["store"] == "recording" and seen["event"]["text"] == "hold released"


def test_events_go_on_where_the_last_id_stood(server: Server) -> None:
    ramp(server, 0, 2)
    query = "channels=ramp*.n"
    with events(server, query=query) as live:
        live.next("subscribed")
        # A position comes before any update does.
        live.until_heartbeat()
        before_all = live.id
        assert before_all
        ramp(server, 2, 3)
        assert rows(live.next("update")) == [(2, 3, 1)]
        after_first = live.id
        assert after_first != before_all
    # While nobody looks: more of the stream, and a stream that was not there.
    ramp(server, 3, 8)
    ramp(server, 0, 2, table="ramp_two")
    with events(server, query=query, last=after_first) as live:
        found: dict[int, list[tuple[int, int, int]]] = {}
        while sum(len(windows) for windows in found.values()) < 2:
            for window in (update := live.next("update"))["streams"]:
                found.setdefault(window["stream"], []).extend(rows({**update, "streams": [window]}))
        assert sorted(found.values()) == [[(0, 2, 2)], [(3, 8, 5)]]
        last = live.id
    # The process dies; what it had made durable stands, in a new epoch.
    server.kill()
    server.start()
    ramp(server, 8, 9)
    with events(server, query=query, last=last) as live:
        assert live.next("hello")["epoch"] == 2
        update = live.next("update")
        assert (update["epoch"], rows(update)) == (2, [(8, 9, 1)])
    # Without any update in between, and twice from the same place.
    for _ in range(2):
        with events(server, query=query, last=before_all) as live:
            assert (2, 9, 7) in rows(live.next("update"))


def test_a_client_of_events_that_never_reads_is_told_what_it_missed(server: Server) -> None:
    wide = ",".join(f"channel_number_{c}={c}.125" for c in range(400))
    assert server.write(f"wide {wide} {BASE}") == (204, None)
    with socket.socket() as sleeper:
        sleeper.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sleeper.connect(("127.0.0.1", server.http_port))
        sleeper.sendall(b"GET /api/live?channels=wide.*&format=sse HTTP/1.1\r\nHost: localhost\r\n\r\n")
        sleeper.settimeout(TIMEOUT_S)
        seen = b""
        while b'"type":"subscribed"' not in seen:
            seen += sleeper.recv(1 << 16)
        sent, start = 0, time.monotonic()
        # Some megabytes, over more than a second: beyond what sockets hold.
        while sent < 150 or time.monotonic() < start + 1.5:
            sent += 1
            assert server.write(f"wide {wide} {BASE + sent}") == (204, None)
        with sleeper.makefile("rb") as body:
            told, next_row, conflated = 0, 1, 0
            while told < sent:
                line = body.readline()
                if not line.startswith(b'data: {"type":"update"'):
                    continue
                update = json.loads(line.removeprefix(b"data: "))
                conflated += update["conflated"]
                [(first, end, count)] = rows(update)
                assert (first, count) == (next_row, end - first)
                told, next_row = told + count, end
    assert conflated > 0


def test_what_is_no_subscription_is_refused_in_words(server: Server) -> None:
    def refused(query: str, **headers: str) -> tuple[int, str]:
        request = urllib.request.Request(f"{server.url}/api/live?{query}", headers=headers)
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(request, timeout=TIMEOUT_S)
        return error.value.code, json.load(error.value)["error"]

    for query, words in (
        ("", "WebSocket"),
        ("channels=a&format=xml", "sse, jsonl"),
        ("channels=", "empty channel pattern"),
        ("channels=a&max_rate_hz=0", "max_rate_hz"),
        ("channels=a&max_rate_hz=soon", "max_rate_hz"),
        ("channels=a&history_s=-1", "history_s"),
        ("channels=" + ",".join(["a"] * 10_001), "at most 10000"),
    ):
        code, error = refused(query)
        assert code == 400 and words in error, (query[:40], error)
    code, error = refused("channels=a&format=sse", **{"Last-Event-ID": "yesterday"})
    assert code == 400 and "Last-Event-ID" in error


def test_places_are_shared_by_all_kinds_of_clients(tmp_path: pathlib.Path) -> None:
    server = Server(folder=tmp_path, config="[live]\nmax_clients_per_address = 2\n").start()
    try:
        with connect(server) as live, events(server, query="channels=a.*") as listener:
            next_message(live, "hello", form=str)
            listener.next("hello")
            for query in ("channels=a", "channels=a&format=sse"):
                with pytest.raises(urllib.error.HTTPError) as refused:
                    urllib.request.urlopen(f"{server.url}/api/live?{query}", timeout=TIMEOUT_S)
                assert refused.value.code == 429
                assert json.load(refused.value)["code"] == "too_many_clients"
            assert server.get("/api/health")["live"]["clients"] == 2
        eventually("places that are free", lambda: server.get("/api/health")["live"]["clients"] == 0)
    finally:
        assert server.stop() == 0
