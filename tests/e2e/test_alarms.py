"""Limits and alarms: what is told live is what the same limits say of the record, and who knows of it survives."""

from __future__ import annotations

import json
import pathlib
import random
import socket
import time
import urllib.error
import urllib.request
from typing import Any

import pytest
from strongback import Server, eventually

LIMITS = """
[[limit]]
name = "pressure"
channels = ["tank.p"]
watch = { high = 5 }
critical = { low = -9, high = 9 }
persist_ms = 20
hysteresis = 0.5
stale_ms = 400

[[limit]]
name = "valve"
channels = ["tank.valve{n=*}"]
warning = { is = ["FAULT"] }
while = { channel = "plc.mode", is = ["RUN"] }

[[limit]]
name = "spike"
channels = ["tank.p"]
warning = { high = 50 }
"""

STEPS = """select time_ns, receive_time_ns, channel, "limit", step, level, before, why, value, text, bound
           from strongback.alarms where by is null order by receive_time_ns, channel, "limit" """


@pytest.fixture
def limited(tmp_path: pathlib.Path) -> Any:
    server = Server(folder=tmp_path, config=LIMITS).start()
    yield server
    server.stop()


def post(server: Server, path: str, **body: Any) -> tuple[int, Any]:
    request = urllib.request.Request(server.url + path, data=json.dumps(body).encode(), method="POST")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


def alarms(server: Server) -> dict[str, tuple[str, str]]:
    """State and level of each alarm, by its limit."""
    return {alarm["limit"]: (alarm["state"], alarm["level"]) for alarm in server.get("/api/alarms")["alarms"]}


def test_an_alarm_is_raised_known_cleared_and_survives_a_kill(limited: Server) -> None:
    server = limited
    assert server.write("plc mode=\"RUN\"\ntank,n=1 valve=\"OPEN\"\n")[0] == 204
    assert server.write('tank,n=1 valve="FAULT"\n')[0] == 204
    eventually("an alarm", lambda: alarms(server) == {"valve": ("raised", "warning")})
    of = {"limit": "valve", "channel": "tank.valve{n=1}"}
    assert post(server, "/api/alarms/acknowledge", **of, by="Ada", note="looking") == (200, {"durable": True})
    assert post(server, "/api/alarms/acknowledge", **of, by="Bob")[0] == 409
    assert post(server, "/api/alarms/acknowledge", limit="x", channel="y", by="Bob")[0] == 404
    assert post(server, "/api/alarms/acknowledge", **of, by="")[0] == 400
    assert post(server, "/api/alarms/shelve", **of, by="Ada")[0] == 400
    server.kill()
    server.start()
    assert alarms(server) == {"valve": ("acknowledged", "warning")}
    assert server.get("/api/alarms")["alarms"][0]["acknowledged"]["note"] == "looking"
    # It goes on where it was: nothing is told twice.
    assert server.write('plc mode="RUN"\n')[0] == 204
    assert server.write('tank,n=1 valve="FAULT"\n')[0] == 204
    assert server.write('tank,n=1 valve="OPEN"\n')[0] == 204
    eventually("no alarm", lambda: alarms(server) == {})
    told = server.sql('select step, coalesce(by, \'\') from strongback.alarms order by receive_time_ns')
    assert told == [("raised", ""), ("acknowledged", "Ada"), ("cleared", "")]


def test_a_spike_of_one_sample_is_an_alarm_and_stays_until_someone_knows(limited: Server) -> None:
    server = limited
    now = time.time_ns()
    lines = [f"tank p={51.5 if n == 500 else 1.0} {now + n * 1_000_000 - 10**9}" for n in range(1_000)]
    assert server.write("\n".join(lines))[0] == 204
    eventually("the spike", lambda: alarms(server).get("spike") == ("cleared", "normal"))
    (spike,) = [alarm for alarm in server.get("/api/alarms")["alarms"] if alarm["limit"] == "spike"]
    assert (spike["worst"], spike["raised"]) == ("warning", str(now - 500_000_000))
    assert post(server, "/api/alarms/acknowledge", limit="spike", channel="tank.p", by="Ada")[0] == 200
    assert "spike" not in alarms(server)


def test_live_and_the_record_say_the_same(limited: Server) -> None:
    server = limited
    rng = random.Random(7)
    value, mode = 0.0, "RUN"
    with socket.create_connection(("127.0.0.1", server.ilp_port)) as wire:
        for n in range(1_500):
            value = max(-12.0, min(12.0, value + rng.uniform(-2, 2)))
            # Some with the source's time, some of them late, some without.
            late = rng.choice([0, 0, 0, rng.randrange(40_000_000)])
            stamp = f" {time.time_ns() - late}" if rng.random() < 0.8 else ""
            wire.sendall(f"tank p={value}{stamp}\n".encode())
            if rng.random() < 0.05:
                mode = rng.choice(["RUN", "HOLD"])
                server.write(f'plc mode="{mode}"\n')
            if rng.random() < 0.1:
                wire.sendall(f'tank,n={rng.randrange(3)} valve="{rng.choice(["OPEN", "FAULT"])}"\n'.encode())
            if rng.random() < 0.01:
                time.sleep(0.5)  # long enough to be stale
            elif rng.random() < 0.3:
                time.sleep(0.002)
    eventually("all frames", lambda: server.rows_of("tank") >= 1_500)
    # Both see the silence after the last frame.
    eventually("the last silence", lambda: alarms(server).get("pressure", ("", ""))[1] == "warning")
    live = server.sql(STEPS)
    past = server.get("/api/limits/past?limit=100000")
    assert not past["truncated"]
    keys = ("time", "receive_time", "channel", "limit", "step", "level", "before", "why", "value", "text", "bound")
    told = [tuple(change[key] for key in keys) for change in past["changes"]]
    told = [(int(row[0]), int(row[1]), *row[2:]) for row in told]
    assert told == live
    assert {row[3] for row in told} == {"pressure", "valve"}
    assert {row[4] for row in told} >= {"raised", "cleared", "worse", "better"}
    assert {row[7] for row in told} >= {"high", "low", "stale", "state"}


def test_an_alarm_that_comes_and_goes_while_a_clock_stands_still_is_told_each_time(limited: Server) -> None:
    server, now = limited, time.time_ns()
    lines = [f"tank p={51 if n % 2 == 0 else 1},n={n}i {now}" for n in range(10)]
    assert server.write("\n".join(lines))[0] == 204
    told = "select step, number from strongback.alarms where \"limit\" = 'spike' order by number"
    # There is no such table before the first step of an alarm.
    eventually("ten steps", lambda: server.rows_of("strongback.alarms") and len(server.sql(told)) == 10)
    assert [step for step, _ in server.sql(told)] == ["raised", "cleared"] * 5
    numbers = [number for _, number in server.sql("select step, number from strongback.alarms order by number")]
    assert len(set(numbers)) == len(numbers)
    past = server.get("/api/limits/past?limit=1000")["changes"]
    assert [change["step"] for change in past if change["limit"] == "spike"] == ["raised", "cleared"] * 5
    # Over a kill as well no number comes twice.
    server.kill()
    server.start()
    assert server.write(f"tank p=51,n=10i {now}\n")[0] == 204
    eventually("one more", lambda: len(server.sql(told)) == 11)
    assert len({number for _, number in server.sql(told)}) == 11
