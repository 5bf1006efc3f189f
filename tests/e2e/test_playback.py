"""Playback as its directors and viewers see it: sessions over REST, their frames over /api/live."""

from __future__ import annotations

import contextlib
import http.client
import json
import pathlib
import random
import subprocess
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from typing import Any

import live_binary
import pytest
import test_inetx
import test_mcap
import websockets.sync.client
from strongback import BINARY, TIMEOUT_S, Server, eventually, free_ports
from websockets.typing import Subprotocol

BASE = 1_780_000_000_000_000_000
MS = 1_000_000
S = 1_000 * MS
ALL = ("fast.*", "slow.*", "state.*")


def number(value: Any) -> Any:
    """Numbers of 64 bits are texts."""
    return int(value) if isinstance(value, str) and value.lstrip("-").isdigit() else value


def ask(server: Server, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Status and JSON of a request."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server.url + path, data=data, method=method)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


class Session:
    """A playback and the token of its director."""

    def __init__(self, server: Server, **wanted: Any) -> None:
        self.server = server
        status, state = ask(server, "POST", "/api/playbacks", wanted)
        assert status == 201, state
        self.id: str = state["id"]
        self.director: str = state["director"]
        self.began = state

    def do(self, word: str, **more: Any) -> Any:
        """The state after a command."""
        status, state = ask(
            self.server, "POST", f"/api/playbacks/{self.id}", {"director": self.director, "do": word, **more}
        )
        assert status == 200, state
        return state

    def state(self) -> Any:
        """What it is doing."""
        return ask(self.server, "GET", f"/api/playbacks/{self.id}")[1]

    def until_ended(self) -> None:
        """Waits until all has been played."""
        eventually("the end", lambda: self.state()["ended"])


class Viewer:
    """One WebSocket that watches a playback, and what it was told."""

    def __init__(self, session: Session, *protocols: str) -> None:
        url = f"ws://127.0.0.1:{session.server.http_port}/api/live?playback={session.id}"
        offered = [Subprotocol(p) for p in protocols] or None
        self.stack = contextlib.ExitStack()
        self.live = self.stack.enter_context(websockets.sync.client.connect(url, subprotocols=offered))
        self.seen: list[dict[str, Any]] = []
        self.names: dict[int, str] = {}

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def next(self, *kinds: str) -> dict[str, Any]:
        """The next message of some kinds; all are kept in `seen`."""
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            data = self.live.recv(timeout=TIMEOUT_S)
            message = json.loads(data) if isinstance(data, str) else live_binary.read(data)
            assert message is not None
            self.seen.append(message)
            if message["type"] in kinds:
                return message
        raise AssertionError(f"none of {kinds}; last seen {self.seen[-3:]}")

    def subscribe(self, *patterns: str, **more: Any) -> dict[str, Any]:
        """Subscribes; the snapshot."""
        self.live.send(json.dumps({"type": "subscribe", "id": 1, "channels": list(patterns), **more}))
        for channel in self.next("subscribed")["channels"]:
            self.names[channel["id"]] = channel["name"]
        return self.next("snapshot")

    def until(self, reached: Any) -> None:
        """Reads on until a heartbeat's state is as wanted."""
        while not reached(self.next("heartbeat")["playback"]):
            pass

    def until_ended(self, **counts: int) -> None:
        """Reads on until all was played, and so many values of each table's first channel were told, and no more."""
        self.until(lambda state: state["ended"])

        def told() -> dict[str, int]:
            cells = {name: cell[0] for name, cell in self.cells().items()}
            return {table: max((n for name, n in cells.items() if name.startswith(f"{table}.")), default=0) for table in counts}

        while any(told()[table] < count for table, count in counts.items()):
            self.next("update")
        assert told() == counts

    def cells(self) -> dict[str, list[Any]]:
        """What updates say of each channel, put together: count, first, last, min, max, sum."""
        found: dict[str, list[Any]] = {}
        for update in self.updates():
            for stream in update["streams"]:
                for channel, count, *values in stream["channels"]:
                    first, last, least, greatest, mean = map(number, values)
                    total = found.setdefault(self.names[channel], [0, first, last, least, greatest, 0.0])
                    total[0] += count
                    total[2] = last
                    if least is not None:
                        total[3], total[4] = min(total[3], least), max(total[4], greatest)
                        total[5] += mean * count
        return found

    def updates(self) -> list[dict[str, Any]]:
        """The updates so far."""
        return [message for message in self.seen if message["type"] == "update"]


def record(server: Server, *, seconds: int = 10) -> None:
    """Streams of 100 Hz, 10 Hz and one now and then, with rows that come late and a spike of one sample."""
    lines = []
    for n in range(seconds * 100):
        lines.append(f"fast,bay=1 v={n}.0,spike={900.5 if n == 333 else 1.5} {BASE + n * 10 * MS}")
    for n in range(seconds * 10):
        lines.append(f"slow v={n}i {BASE + n * 100 * MS}")
    # Every third comes after what is later.
    lines.sort(key=lambda line: int(line.rsplit(" ", 1)[1]) + (300 * MS if zlib.crc32(line.encode()) % 3 == 0 else 0))
    lines.append(f'state mode="HOLD" {BASE + 2 * S}')
    lines.append(f'state mode="GO" {BASE + 7 * S}')
    for start in range(0, len(lines), 100):
        assert server.write("\n".join(lines[start : start + 100])) == (204, None)


@pytest.fixture
def recorded(server: Server) -> Server:
    """A server with ten seconds of telemetry."""
    record(server)
    return server


@pytest.mark.parametrize("protocols", [(), (live_binary.PROTOCOL,)], ids=["json", "binary"])
def test_a_playback_says_what_live_said(server: Server, protocols: tuple[str, ...]) -> None:
    url = f"ws://127.0.0.1:{server.http_port}/api/live"
    session = None
    with websockets.sync.client.connect(url) as connection:
        live = object.__new__(Viewer)
        live.live, live.seen, live.names = connection, [], {}
        live.live.send(json.dumps({"type": "subscribe", "id": 1, "channels": ALL}))
        live.next("subscribed")
        record(server)
        while sum(cell[0] for cell in live.cells().values()) < 2 * 1000 + 100 + 2:
            message = live.next("channels", "update")
            if message["type"] == "channels":
                live.names.update({channel["id"]: channel["name"] for channel in message["channels"]})
    session = Session(server, **{"from": str(BASE), "to": str(BASE + 10 * S)}, speed=50, paused=True)
    with Viewer(session, *protocols) as viewer:
        hello = viewer.next("hello")
        assert (hello["playback"]["id"], hello["time"]) == (session.id, str(BASE))
        snapshot = viewer.subscribe(*ALL, max_rate_hz=20)
        assert (snapshot["round"], [s["channels"] for s in snapshot["streams"]]) == (0, [[], [], []])
        session.do("play")
        viewer.until_ended(fast=1000, slow=100, state=2)
        told, before = viewer.cells(), live.cells()
        assert set(told) == set(before) and len(told) == 4
        for name, (count, _, _, least, greatest, total) in before.items():
            assert told[name][0] == count, name
            assert told[name][3:5] == [least, greatest], name
            assert told[name][5] == pytest.approx(total), name
        assert told["fast.spike{bay=1}"][4] == 900.5
        assert told["fast.v{bay=1}"][1:3] == [0.0, 999.0], "in the order of time, not of coming"
        assert told["state.mode"][1:3] == ["HOLD", "GO"]
        times = [int(update["time"]) for update in viewer.updates()]
        assert times == sorted(times) and times[-1] <= BASE + 10 * S, "times are those of the record"
        rows = [s for update in viewer.updates() for s in update["streams"]]
        assert all(s["recorded"] and not s["gap"] and int(s["committed"]) >= int(s["to_row"]) for s in rows)


def test_steps_go_frame_by_frame_over_all_streams(recorded: Server) -> None:
    session = Session(recorded, **{"from": str(BASE + 1_990 * MS), "to": str(BASE + 3 * S)}, paused=True)
    refused = ask(recorded, "POST", f"/api/playbacks/{session.id}", {"director": session.director, "do": "step", "frames": 1})
    assert refused[0] == 400 and "no viewer" in refused[1]["error"]
    with Viewer(session) as viewer:
        snapshot = viewer.subscribe(*ALL)
        # As of the moment before: the newest of each, whichever came last.
        values = {viewer.names[cell[0]]: cell[1] for s in snapshot["streams"] for cell in s["channels"]}
        assert values == {"fast.v{bay=1}": 198.0, "fast.spike{bay=1}": 1.5, "slow.v": "19"}
        order = []
        for _ in range(6):
            state = session.do("step", frames=1)
            assert state["paused"] and not state["ended"]
            [stream] = viewer.next("update")["streams"]
            assert stream["time"] == [state["at"], state["at"]] and len(viewer.updates()[-1]["streams"]) == 1
            order.append((int(state["at"]) - BASE, viewer.names[stream["channels"][0][0]]))
        assert [time for time, _ in order] == [1_990 * MS, 2_000 * MS, 2_000 * MS, 2_000 * MS, 2_010 * MS, 2_020 * MS]
        assert {name for _, name in order[1:4]} == {"fast.v{bay=1}", "slow.v", "state.mode"}
        state = session.do("step", ms=500)
        assert int(state["at"]) == BASE + 2_520 * MS
        while viewer.cells()["fast.v{bay=1}"][0] < 54:
            viewer.next("update")
        assert viewer.cells()["fast.v{bay=1}"][0] == 54
        assert session.do("step", frames=10_000)["ended"]


def test_seeking_and_looping_begin_a_new_picture(recorded: Server) -> None:
    session = Session(recorded, **{"from": str(BASE), "to": str(BASE + 10 * S)}, paused=True)
    with Viewer(session) as viewer:
        viewer.subscribe(*ALL)
        state = session.do("seek", at=str(BASE + 7 * S))
        assert (state["at"], state["round"]) == (str(BASE + 7 * S), 1)
        jump = viewer.next("round", "update")
        assert (jump["type"], jump["round"], jump["at"]) == ("round", 1, state["at"])
        snapshot = viewer.next("snapshot")
        values = {viewer.names[c[0]]: (c[1], c[2]) for s in snapshot["streams"] for c in s["channels"]}
        # What stands at the time itself is in it.
        assert values["state.mode"] == ("GO", str(BASE + 7 * S)) and values["slow.v"][0] == "70"
        assert snapshot["round"] == 1
        session.do("interval", **{"from": str(BASE), "to": str(BASE + S)})
        session.do("loop", loop=True)
        session.do("speed", speed=10)
        session.do("play")
        rounds = 0
        start = len(viewer.seen)
        while rounds < 4:
            rounds += viewer.next("round", "update")["type"] == "round"
        # Between two jumps the whole interval, each frame once.
        counts: list[int] = []
        for message in viewer.seen[start:]:
            if message["type"] == "round":
                counts.append(0)
            elif message["type"] == "update":
                for stream in message["streams"]:
                    for cell in stream["channels"]:
                        if counts and viewer.names[cell[0]] == "fast.v{bay=1}":
                            counts[-1] += cell[1]
        assert len(counts) >= 4
        # A machine that is too busy may not take the end of one in time, and is told.
        assert counts[:-1] == [100] * (len(counts) - 1) or any(update["dropped"] for update in viewer.updates())


def test_one_directs_and_others_watch(recorded: Server) -> None:
    session = Session(recorded, **{"from": str(BASE), "to": str(BASE + 10 * S)}, name="review", paused=True)
    with Viewer(session) as one, Viewer(session, live_binary.PROTOCOL) as other:
        for viewer in (one, other):
            viewer.subscribe("fast.v", max_rate_hz=10)
        eventually("two viewers", lambda: session.state()["viewers"] == 2)
        wrong = ask(recorded, "POST", f"/api/playbacks/{session.id}", {"director": "x", "do": "play"})
        assert (wrong[0], wrong[1]["code"]) == (403, "not_director")
        assert session.state()["paused"]
        taken = ask(recorded, "POST", f"/api/playbacks/{session.id}", {"do": "take"})[1]
        old, session.director = session.director, taken["director"]
        assert ask(recorded, "POST", f"/api/playbacks/{session.id}", {"director": old, "do": "play"})[0] == 403
        session.do("speed", speed=100)
        session.do("play")
        for viewer in (one, other):
            viewer.until_ended(fast=1000)
        assert [p["name"] for p in ask(recorded, "GET", "/api/playbacks")[1]["playbacks"]] == ["review"]
        assert ask(recorded, "DELETE", f"/api/playbacks/{session.id}?director={old}")[0] == 403
        assert ask(recorded, "DELETE", f"/api/playbacks/{session.id}", {"director": session.director})[0] == 200
        assert "director ended it" in one.next("error")["message"]
        with pytest.raises(websockets.exceptions.ConnectionClosed):
            one.next("never")
    assert ask(recorded, "GET", f"/api/playbacks/{session.id}")[0] == 404
    with pytest.raises(websockets.exceptions.InvalidStatus) as missing:
        Viewer(session)
    assert missing.value.response.status_code == 404


def test_who_comes_back_has_the_rest(recorded: Server) -> None:
    session = Session(recorded, **{"from": str(BASE), "to": str(BASE + 10 * S)}, speed=2)
    with Viewer(session) as viewer:
        viewer.subscribe("fast.v")
        viewer.next("update")
    # The connection broke; the playback goes on.
    eventually("nobody watches", lambda: session.state()["viewers"] == 0)
    eventually("it goes on", lambda: int(session.state()["at"]) > BASE + 2 * S)
    with Viewer(session) as viewer:
        viewer.subscribe("fast.v", history_s=3600, history_points=20_000)
        [history] = [message for message in viewer.seen if message["type"] == "history"]
        before = sum(bucket[1] for bucket in history["series"][0]["buckets"])
        session.do("speed", speed=100)
        assert before >= 200
        viewer.until_ended(fast=1000 - before)


@contextlib.contextmanager
def lines(server: Server, *, query: str, accept: str) -> Iterator[http.client.HTTPResponse]:
    """The answer of /api/live without a WebSocket."""
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=TIMEOUT_S)
    connection.request("GET", f"/api/live?{query}", headers={"Accept": accept})
    answer = connection.getresponse()
    try:
        yield answer
    finally:
        answer.close()
        connection.close()


def test_scripts_read_it_as_lines_and_events(recorded: Server) -> None:
    session = Session(recorded, **{"from": str(BASE), "to": str(BASE + 10 * S)}, speed=1000, paused=True)
    query = f"playback={session.id}&channels=slow.v"
    with (
        lines(recorded, query=query, accept="application/x-ndjson") as plain,
        lines(recorded, query=query, accept="text/event-stream") as events,
    ):
        eventually("two viewers", lambda: session.state()["viewers"] == 2)
        count, kinds = 0, []
        while "snapshot" not in kinds:
            kinds.append(json.loads(plain.readline())["type"])
        session.do("play")
        while count < 100:
            message = json.loads(plain.readline())
            if message["type"] == "update":
                count += sum(cell[1] for s in message["streams"] for cell in s["channels"])
        assert count == 100
        seen = ""
        while '"type":"update"' not in seen:
            seen = events.readline().decode()
            assert not seen.startswith("id:"), "there is nothing to resume at"
    with lines(recorded, query="playback=none&channels=slow.v", accept="*/*") as missing:
        assert missing.status == 404 and "no playback" in json.loads(missing.read())["error"]


def test_what_cannot_be_is_said(recorded: Server) -> None:
    whole = {"from": str(BASE), "to": str(BASE + 10 * S)}
    for wanted, word in (
        ({}, "from and to"),
        ({"from": str(BASE)}, "from and to"),
        ({"from": str(BASE), "to": str(BASE)}, "ends after it begins"),
        ({"from": str(BASE + S), "to": str(BASE)}, "ends after it begins"),
        ({"from": "yesterday", "to": "now"}, "from"),
        (whole | {"speed": 0}, "speed"),
        (whole | {"speed": 1000.1}, "speed"),
        (whole | {"speed": -1}, "speed"),
        (whole | {"speed": "fast"}, "invalid body"),
        (whole | {"at": str(BASE - 1)}, "outside"),
        (whole | {"sped": 2}, "sped"),
        (whole | {"name": "x" * 1000}, "name"),
        ([], "invalid body"),
    ):
        status, answer = ask(recorded, "POST", "/api/playbacks", wanted)
        assert status == 400 and word in answer["error"], (wanted, answer)
    assert ask(recorded, "POST", "/api/playbacks", {"run": "nothing"})[0] == 404
    session = Session(recorded, **whole, paused=True)
    for command, word in (
        ({"do": "dance"}, "dance"),
        ({}, "do"),
        ({"do": "seek"}, "needs at"),
        ({"do": "seek", "at": str(BASE - 1)}, "outside"),
        ({"do": "speed"}, "needs speed"),
        ({"do": "speed", "speed": 0.09}, "0.1"),
        ({"do": "loop"}, "needs loop"),
        ({"do": "step"}, "frames"),
        ({"do": "step", "frames": 0}, "frames"),
        ({"do": "step", "frames": 1, "ms": 1}, "frames"),
        ({"do": "step", "ms": -5}, "frames"),
        ({"do": "interval"}, "from or to"),
        ({"do": "interval", "to": str(BASE - 1)}, "ends after it begins"),
    ):
        status, answer = ask(recorded, "POST", f"/api/playbacks/{session.id}", {"director": session.director} | command)
        assert status == 400 and word in answer["error"], (command, answer)
    assert ask(recorded, "POST", "/api/playbacks/none", {"do": "take"})[0] == 404
    # Nothing of it did anything.
    state = session.state()
    assert (state["at"], state["speed"], state["round"], state["paused"]) == (str(BASE), 1.0, 0, True)
    # One client may have all that there may be: the memory that they hold is within its share.
    others = []
    while (answer := ask(recorded, "POST", "/api/playbacks", whole))[0] == 201:
        others.append(answer[1])
        assert len(others) < 32
    assert answer[0] == 503 and "playbacks" in answer[1]["error"], answer
    assert len(ask(recorded, "GET", "/api/playbacks")[1]["playbacks"]) == 32
    assert len({other["id"] for other in others}) == len(others)
    first = others[0]
    assert ask(recorded, "DELETE", f"/api/playbacks/{first['id']}?director={first['director']}")[0] == 200
    Session(recorded, **whole)


def test_a_run_is_played_from_its_start_to_its_end(recorded: Server) -> None:
    for word in ("start", "t0", "stop"):
        assert ask(recorded, "POST", f"/api/runs/attempt%201/{word}", {})[0] == 200
    [run] = ask(recorded, "GET", "/api/runs")[1]["runs"]
    session = Session(recorded, run="attempt 1", paused=True)
    began = session.began
    assert (began["from"], began["to"]) == (run["clock"]["started"], run["clock"]["stopped"])
    assert began["name"] == "attempt 1"


LIMIT = """
[[limit]]
name = "spike"
channels = ["fast.spike"]
warning = { high = 100 }
"""


def test_no_alarm_comes_of_what_is_played(tmp_path: pathlib.Path) -> None:
    server = Server(folder=tmp_path, config=LIMIT).start()
    record(server)
    eventually("the alarm", lambda: [a for a in server.get("/api/alarms")["alarms"] if a["state"] == "cleared"])
    before = server.sql("select step, time_ns from strongback.alarms order by time_ns, step")
    frames = server.sql("select count(*) from fast")
    session = Session(server, **{"from": str(BASE), "to": str(BASE + 10 * S)}, speed=100, paused=True)
    with Viewer(session) as viewer:
        viewer.subscribe(*ALL)
        session.do("play")
        viewer.until_ended(fast=1000)
        assert viewer.cells()["fast.spike{bay=1}"][4] == 900.5, "it was played"
        assert not [message for message in viewer.seen if message["type"] in ("alarm", "gap", "event")]
    # What limits hear of is told within moments: a frame that comes now, and its alarm, are behind all that was played.
    assert server.write("fast,bay=1 spike=950.5") == (204, None)
    eventually("the next alarm", lambda: len(server.sql("select 1 from strongback.alarms")) > len(before))
    after = server.sql("select step, time_ns from strongback.alarms order by time_ns, step")
    assert after[: len(before)] == before
    assert server.sql("select count(*) from fast")[0][0] == frames[0][0] + 1, "and nothing was recorded"
    assert server.stop() == 0


def test_gaps_of_the_record_are_told(tmp_path: pathlib.Path) -> None:
    [port] = free_ports(count=1)
    server = Server(folder=tmp_path, config=test_inetx.LAYOUT.format(port=port)).start()
    sender = test_inetx.Sender(port=port)
    began = time.time_ns()
    sequences = [0, 1, 2, 6, 7]
    for count, sequence in enumerate(sequences, start=1):
        sender.send(sequence=sequence, raw=sequence)
        eventually("the packet", lambda count=count: test_inetx.received(server, count))
    eventually("the gap", lambda: [gap for gap in server.get("/api/gaps")["gaps"] if int(gap["open"]) == 3])
    session = Session(server, **{"from": str(began - S), "to": str(time.time_ns())}, paused=True)
    with Viewer(session) as viewer:
        viewer.subscribe("fti.bay.raw")
        gaps = []
        for _ in sequences:
            session.do("step", frames=1)
            [stream] = viewer.next("update")["streams"]
            gaps.append((stream["channels"][0][3], stream["gap"]))
        assert gaps == [(0, False), (1, False), (2, False), (6, True), (7, False)]
    assert server.stop() == 0


def test_what_rotted_is_told_and_passed_over(tmp_path: pathlib.Path) -> None:
    server = Server(folder=tmp_path, config="[store]\nlog_mib = 4\n").start()
    note = random.Random(1)
    for second in range(20):
        lines = [f'tank note="{note.randbytes(1_000).hex()}" {BASE + second * S + n * 5 * MS}' for n in range(200)]
        lines += [f"pump v={n}.0 {BASE + second * S + n * 5 * MS}" for n in range(200)]
        assert server.write("\n".join(lines)) == (204, None)
    assert server.stop() == 0
    [segment] = [f for f in (tmp_path / "store").glob("segment-*") if any(f.read_bytes())]
    content = bytearray(segment.read_bytes())
    # Nearly all that is written is the notes.
    content[len(bytes(content).rstrip(b"\0")) // 4] ^= 0x10
    segment.write_bytes(content)
    server.start()
    session = Session(server, **{"from": str(BASE), "to": str(BASE + 20 * S)}, speed=1000, paused=True)
    with Viewer(session) as viewer:
        viewer.subscribe("tank.*", "pump.*")
        for _ in range(2):
            session.do("play")
            viewer.until_ended(pump=4_000)
            session.do("pause")
            counts = {name: cell[0] for name, cell in viewer.cells().items()}
            assert 0 < counts["tank.note"] < 4_000
            # Again, from the beginning: it is told once.
            viewer.seen = [message for message in viewer.seen if message["type"] == "event"]
            session.do("seek", at=str(BASE))
            viewer.next("snapshot")
        events = [message for message in viewer.seen if message["type"] == "event"]
        assert len(events) == 1 and segment.name in events[0]["text"] and "tank" in events[0]["text"], events
        assert events[0]["level"] == "warning"
    assert server.stop() == 0


def test_the_command_line_directs(recorded: Server) -> None:
    def run(*arguments: str) -> tuple[int, str]:
        server = ("--server", f"127.0.0.1:{recorded.http_port}")
        done = subprocess.run([BINARY, "playback", *arguments, *server], capture_output=True, text=True, timeout=TIMEOUT_S)
        return done.returncode, done.stdout + done.stderr

    span = ("--from", str(BASE), "--to", str(BASE + 10 * S))
    code, said = run("start", *span, "--speed", "2.5", "--paused", "--name", "review")
    assert code == 0 and "paused" in said and "2.5x" in said, said
    identifier = said.split()[0]
    director = said.split()[-1]
    assert run("list") == (0, said.splitlines()[0] + "\n")
    code, said = run("control", identifier, "--director", director, "seek", str(BASE + 3 * S))
    state = ask(recorded, "GET", f"/api/playbacks/{identifier}")[1]
    assert code == 0 and state["at"] == str(BASE + 3 * S), said
    code, said = run("control", identifier, "--director", "x", "play")
    assert code == 1 and "take" in said, said
    code, said = run("control", identifier, "take")
    assert code == 0
    director = said.split()[-1]
    assert run("control", identifier, "--director", director, "loop", "true")[0] == 0
    assert run("start", "--from", "7", "--to", "7")[0] == 1
    assert run("start")[0] == 2
    assert run("end", identifier, "--director", director) == (0, f"{identifier}: ended\n")
    assert run("list") == (0, "")


def test_imported_runs_are_played_each_alone(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "drive.mcap"
    test_mcap.json_file(path=path, compression=test_mcap.CompressionType.ZSTD)
    server = Server(folder=tmp_path)
    for run in ("drive", "again"):
        assert test_mcap.imported(server=server, file=path, code=3, run=run)["stored"] == 200
    server.start()
    session = Session(server, run="drive", speed=10, paused=True)
    start, end = test_mcap.START, test_mcap.START + 199 * 10 * MS
    assert (session.began["from"], session.began["to"], session.began["name"]) == (str(start), str(end + 1), "drive")
    with Viewer(session) as viewer:
        assert viewer.subscribe("pad.tank.*{run=drive}")["streams"][0]["channels"] == []
        assert all("run=drive" in name for name in viewer.names.values())
        session.do("play")
        viewer.until_ended(**{"pad": 200})
        assert viewer.cells()["pad.tank.p{run=drive}"][:3] == [200, 0.0, 199 / 8]
        session.do("seek", at=str(start + 100 * 10 * MS + 1))
        [stream] = viewer.next("snapshot")["streams"]
        state = {viewer.names[channel]: (value, time) for channel, value, time, _ in stream["channels"]}
        then = str(start + 100 * 10 * MS)
        assert state["pad.tank.p{run=drive}"] == (12.5, then)
        assert state["pad.tank.in.list{run=drive}"][0].endswith("[2]"), "of arrays their length is said"
    assert server.stop() == 0
