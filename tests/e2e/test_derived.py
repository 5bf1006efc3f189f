"""Derived channels: the same results live, in replay and backfilled; none lost, none double, whatever starts or ends."""

from __future__ import annotations

import json
import pathlib
import random
import socket
import threading
import time
import urllib.error
import urllib.request
from typing import Any

import pytest
from derived_results import bits, late, path, replayed, stored
from strongback import Server, eventually

DERIVED = """
[[derived]]
name = "calc.flow"
trigger = "tank"
expression = '''"tank.p" * 2 + asof("pump.rpm", '400ms')'''
unit = "l/s"

[[derived]]
name = "trend.slope"
trigger = "tank"
expression = '''rate(moving_average("tank.p", '200ms')) + integral("pump.rpm")'''

[[derived]]
name = "state.high"
trigger = "calc"
expression = 'hysteresis("calc.flow", -5, 20) AND "trend.slope" > -1e9'
"""


def call(server: Server, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Status and JSON of a request."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server.url + path, data=data, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


def jittered(server: Server, *, frames: int, seed: int) -> int:
    """Sends frames of two streams over two connections with jitter, loss and late ones; how many triggers came."""
    rng = random.Random(seed)
    with (
        socket.create_connection(("127.0.0.1", server.ilp_port)) as one,
        socket.create_connection(("127.0.0.1", server.ilp_port)) as other,
    ):
        triggers = 0
        for n in range(frames):
            now = time.time_ns()
            # Up to 5 ms in any order; some far too late.
            stamp = now - rng.randrange(5_000_000) - (rng.randrange(10**9) if rng.random() < 0.03 else 0)
            if rng.random() < 0.6:
                one.sendall(f"tank p={rng.uniform(-9, 9)} {stamp}\n".encode())
                triggers += 1
            else:
                other.sendall(f"pump rpm={rng.uniform(0, 30)} {stamp}\n".encode())
            if rng.random() < 0.2:
                time.sleep(rng.random() * 0.01)
    return triggers


@pytest.fixture
def derived(tmp_path: pathlib.Path) -> Any:
    server = Server(folder=tmp_path, config=DERIVED).start()
    yield server
    server.stop()


def settled(server: Server, name: str) -> None:
    """Waits until results no longer come: nothing is sent any more."""
    seen: list[Any] = []

    def calm() -> bool:
        seen.append([of["results"] + of["late"] for of in server.get(path(name))["evaluations"]])
        return len(seen) > 40 and seen[-1] == seen[-40]

    eventually("calm", calm)


def test_live_replay_and_backfill_give_the_same_bits(derived: Server) -> None:
    server = derived
    jittered(server, frames=2_000, seed=3)
    for name in ("calc.flow", "trend.slope", "state.high"):
        settled(server, name)
    names = {"calc.flow": "tank", "trend.slope": "tank", "state.high": "calc"}
    for name, trigger in names.items():
        live = stored(server, name)
        assert len(live) > 900, name
        # Each trigger once: those that have no result came too late, and are named.
        triggers = {of[1] for of in replayed(server, name, late="true")}
        assert len({of[1] for of in live}) == len(live)
        assert {of[1] for of in live} <= triggers
        missing = len(triggers) - len(live)
        assert missing <= late(server, name)
        if trigger == "tank":
            assert 0 < missing and server.rows_of("tank") == len(triggers)
        assert replayed(server, name) == live, name
    # Backfills write versions of their own.
    versions = {}
    for name in names:
        for with_late in (False, True):
            status, answer = call(server, "POST", path(name, "/backfill"), {"late": with_late})
            assert status == 200, answer
            versions[name, with_late] = answer["version"]

            def done(name: str = name, version: str = answer["version"]) -> bool:
                (one,) = [of for of in server.get(path(name))["backfills"] if of["version"] == version]
                return one["state"] == "done"

            eventually("a backfill", done)
    for name in names:
        assert stored(server, name, versions[name, False]) == stored(server, name), name
        assert stored(server, name, versions[name, True]) == replayed(server, name, late="true"), name
    assert versions["calc.flow", False] == "1.1" and versions["calc.flow", True] == "1.2"


def test_streams_that_appear_under_load_lose_and_double_nothing(tmp_path: pathlib.Path) -> None:
    config = '[[derived]]\nname = "twice.x"\ntrigger = "w"\nexpression = \'"w.x" * 2 + coalesce("base.b", 0)\'\n'
    server = Server(folder=tmp_path, config=config).start()
    streams, frames = 12, 400
    server.write("base b=1\n")

    def send(part: int) -> None:
        with socket.create_connection(("127.0.0.1", server.ilp_port)) as wire:
            for n in range(frames):
                # Each begins a little later than the one before it.
                lines = [f"w,n={of} x={n}\n" for of in range(part, streams, 3) if n >= of * 8]
                wire.sendall("".join(lines).encode())
                if n % 16 == 0:
                    time.sleep(0.003)

    threads = [threading.Thread(target=send, args=(part,)) for part in range(3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    sent = sum(frames - of * 8 for of in range(streams))
    eventually("all frames", lambda: server.rows_of("w") == sent)

    def all_taken() -> bool:
        of = server.get(path("twice.x"))["evaluations"]
        return len(of) == streams and sum(one["results"] for one in of) + late(server, "twice.x") >= sent

    eventually("all results", all_taken)
    rows = server.sql("select n, x_row, x from twice where version = '1'")
    assert len({(n, row) for n, row, _ in rows}) == len(rows)
    # Each stream comes in order, so none is late.
    assert (len(rows), late(server, "twice.x")) == (sent, 0)
    for of in range(streams):
        assert sorted(x for n, _, x in rows if n == str(of)) == [2 * n + 1 for n in range(of * 8, frames)]
    assert server.stop() == 0


def test_a_kill_leaves_neither_gap_nor_double(derived: Server) -> None:
    server = derived
    sent = jittered(server, frames=400, seed=5)
    eventually("some results", lambda: len(stored(server, "trend.slope")) > 50)
    for seed in (6, 7):
        server.kill()
        server.start()
        sent += jittered(server, frames=300, seed=seed)
    assert server.stop() == 0
    server.start()
    # What came while it was not looked at is caught up with.
    triggers = server.rows_of("tank")
    assert triggers > sent - 400

    def complete() -> bool:
        have = {of[1] for of in stored(server, "trend.slope")}
        return triggers - len(have) <= late(server, "trend.slope") and all(
            of["state"] == "live" for of in server.get(path("trend.slope"))["evaluations"]
        )

    eventually("all results", complete)
    live = stored(server, "trend.slope")
    assert len({of[1] for of in live}) == len(live)
    # The integral goes on over kills: the record from the first frame on gives the same.
    assert replayed(server, "trend.slope") == live
    assert replayed(server, "calc.flow") == stored(server, "calc.flow")


def test_expressions_come_change_and_go_at_run_time(server: Server) -> None:
    server.write("t a=1,b=2\nt a=2,b=0\n")
    new = {"trigger": "t", "expression": '"t.a" / "t.b"', "unit": "1"}
    assert call(server, "PUT", path("d.q"), new)[0] == 200
    assert call(server, "PUT", path("e.q"), {"trigger": "d", "expression": 'delta("d.q")', "wait": True})[0] == 200
    for n in range(1, 6):
        server.write(f"t a={n},b={n % 2}\n")
    eventually("results", lambda: len(stored(server, "d.q")) == 5)
    # Divided by zero: no value, counted and told; it goes on.
    assert [value for *_, value in stored(server, "d.q")] == [bits(float(n)) if n % 2 else None for n in range(1, 6)]
    one = server.get(path("d.q"))
    assert (one["state"], one["version"], one["evaluations"][0]["zero_divisors"]) == ("failing", 1, 2)
    assert "division by zero" in one["trouble"]
    assert server.get("/api/health")["derived"]["failing"][0]["name"] == "d.q"
    told = lambda: [e for e in server.get("/api/events")["events"] if "d.q" in e["text"] and "zero" in e["text"]]
    eventually("an event", told)
    # The same again is no new version; another expression is, and what needs it has a new one, too.
    assert call(server, "PUT", path("d.q"), {**new, "unit": "%"})[1]["version"] == 1
    assert call(server, "PUT", path("d.q"), {**new, "expression": '"t.a" * 10'})[1]["version"] == 2
    assert server.get(path("e.q"))["version"] == 2
    eventually("both", lambda: all(of["version"] == 2 for of in server.get("/api/derived")["derived"]))

    def sent() -> bool:
        server.write("t a=7,b=1\n")
        return len(stored(server, "e.q", "2")) >= 3

    eventually("results of the second version", sent)
    assert {value for *_, value in stored(server, "d.q", "2")} == {bits(70.0)}
    assert stored(server, "e.q", "2")[-1][2] == bits(0.0)
    assert len(stored(server, "d.q")) == 5
    assert call(server, "DELETE", path("d.q")) == (409, {"code": "conflict", "error": '"e.q" needs it'})
    assert call(server, "DELETE", path("e.q"))[0] == 200
    assert call(server, "DELETE", path("e.q"))[0] == 404
    assert call(server, "DELETE", path("d.q"))[0] == 200
    assert server.get("/api/derived")["derived"] == []
    # Back again: its versions go on.
    assert call(server, "PUT", path("d.q"), new)[1]["version"] == 3
    assert server.stop() == 0
    server.start()
    assert [of["version"] for of in server.get("/api/derived")["derived"]] == [3]


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ('"t.aa" + 1', 'column 1: there is no channel "t.aa" (yet); near it: t.a'),
        ('"bad.x" + 1', "it refers to itself"),
        ('"loop.a" + 1', "these refer to each other in a circle: loop.a, bad.x"),
        ('"t.a" +', "found: EOF"),
        ('t.a + 1', "channels stand in double quotes"),
        ("1 + 1", "needs a channel"),
        ('"t.a" + true', "Cannot coerce"),
        ('nosuch("t.a")', "nosuch"),
        ('now() > to_timestamp("t.a")', "not the same each time"),
        ('sum("t.a")', "moving_average"),
        ('"t.many"', "is ambiguous, it may be t.many{n=1}, t.many{n=2}"),
        ("(" * 300 + '"t.a"' + ")" * 300, "at most 512"),
        ('"t.a"' + " + 1" * 2000, "at most 4096"),
        ("(select 1)", "no queries"),
    ],
)
def test_bad_expressions_are_refused_with_their_reason(server: Server, expression: str, says: str) -> None:
    server.write("t a=1\nt,n=1 many=1\nt,n=2 many=1\n")
    assert call(server, "PUT", path("loop.a"), {"trigger": "t", "expression": '"bad.x"', "wait": True})[0] == 200
    status, answer = call(server, "PUT", path("bad.x"), {"trigger": "t", "expression": expression})
    assert status == 400, answer
    assert says in answer["error"], answer
    assert [of["name"] for of in server.get("/api/derived")["derived"]] == ["loop.a"]


def test_what_is_no_definition_is_refused(derived: Server) -> None:
    server = derived
    good = {"trigger": "t", "expression": '"t.a"', "wait": True}
    for name, body, says in [
        ("x", good, "table.channel"),
        ("strongback.x.y", good, "store's own"),
        ("a.b{version=1}", good, "version"),
        ("a.b", {**good, "align_ms": 10**6}, "align_ms"),
        ("a.b", {**good, "trigger": ""}, "trigger"),
        ("a.b", {**good, "wait": False}, "no stream matches its trigger"),
        ("a.b", {**good, "nonsense": 1}, "nonsense"),
        ("a.b", [], "struct"),
    ]:
        status, answer = call(server, "PUT", path(name), body)
        assert status == 400 and says in answer["error"], answer
    assert call(server, "PUT", path("calc.flow"), good)[0] == 409
    assert call(server, "DELETE", path("calc.flow"))[0] == 409
    assert call(server, "GET", path("none.x"))[0] == 404
    assert call(server, "POST", path("none.x", "/backfill"), {})[0] == 404
    assert call(server, "POST", path("calc.flow", "/backfill"), {"from": "5", "to": "4"})[0] == 400
    assert call(server, "POST", path("calc.flow", "/backfill"), {})[0] == 400
    assert [of["state"] for of in server.get("/api/derived")["derived"]] == ["waiting"] * 3
