"""Alarms and derived channels through a network that jitters, loses, doubles and reorders: what is told live is what the
record gives."""

from __future__ import annotations

import json
import pathlib
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from derived_results import Result, late, path, replayed, stored
from strongback import BINARY, Server, eventually, free_ports

# Raw counts of the simulated pad's instrumentation, every value near a bound; the pad's lines come as they are.
CONFIG = """
[[source]]
name = "fti"
kind = "inetx"
listen = "127.0.0.1:{fti}"
ptp_scale = "utc"
clock = "source"

[[source.stream]]
id = 0x0DD
table = "fti.bay"
period_ms = 20
[[source.stream.channel]]
name = "t_turbopump"
offset = 0
type = "u16"
[[source.stream.channel]]
name = "vib_x_rms"
offset = 24
type = "u16"

[[source.stream]]
id = 0x0DE
table = "fti.vibration"
period_ms = 20
[[source.stream.channel]]
name = "acc_z"
offset = 0
type = "u16"
samples = 20
period_us = 1000

[[source.stream]]
id = 0x0DF
table = "fti.discretes"
period_ms = 20
[[source.stream.channel]]
name = "frame_count"
offset = 2
type = "u32"

[[limit]]
name = "vibration"
channels = ["fti.vibration.x20.acc_z"]
watch = {{ low = 32700, high = 32836 }}
warning = {{ low = 32600, high = 32936 }}
critical = {{ high = 33500 }}
hysteresis = 10

[[limit]]
name = "vibration stays"
channels = ["fti.vibration.x20.acc_z"]
warning = {{ high = 32770 }}
persist_ms = 2
stale_ms = 60

[[limit]]
name = "rate"
channels = ["fti.vibration.x20.acc_z", "fti.bay.vib_x_rms", "avionics.*.p_lox_tank"]
rate_hz = {{ low = 49.5 }}
rate_window_ms = 400

[[limit]]
name = "silence"
channels = ["fti.discretes.frame_count", "avionics.*.p_chamber"]
stale_ms = 150

[[limit]]
name = "tank in countdown"
channels = ["avionics.*.p_lox_tank", "plc.fast.p_lox_tank"]
watch = {{ low = 2.6, high = 3.0 }}
persist_ms = 5
while = {{ channel = "fti.discretes.frame_count", is = [{states}] }}

[[derived]]
name = "calc.vibration"
trigger = "fti.bay"
expression = '''moving_max("fti.vibration.x20.acc_z", '100ms') - moving_min("fti.vibration.x20.acc_z", '100ms')'''

[[derived]]
name = "calc2.slope"
trigger = "fti.bay"
expression = '''rate(moving_average("fti.bay.vib_x_rms", '200ms')) + asof("plc.fast.p_lox_tank", '50ms')'''

[[derived]]
name = "calc3.high"
trigger = "calc"
expression = '''hysteresis("calc.vibration", 100, 8000) AND "calc2.slope" > -1e9'''

[[limit]]
name = "derived"
channels = ["calc.vibration{{version=1}}"]
watch = {{ high = 500 }}
critical = {{ high = 12000 }}
stale_ms = 500
"""

STEPS = """select time_ns, receive_time_ns, channel, "limit", step, level, before, why, value, text, bound
           from strongback.alarms where by is null order by receive_time_ns, channel, "limit" """
KEYS = ("time", "receive_time", "channel", "limit", "step", "level", "before", "why", "value", "text", "bound")


@pytest.fixture
def simulate() -> Iterator[Any]:
    running: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        command = [BINARY, "simulate", *words, "--json"]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()


def metric(server: Server, name: str) -> int:
    with urllib.request.urlopen(server.url + "/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"strongback_limit_{name}_total "))


def past(server: Server) -> list[tuple[Any, ...]]:
    """What the limits say of the record."""
    answer = server.get("/api/limits/past?limit=100000")
    assert not answer["truncated"]
    rows = [tuple(change[key] for key in KEYS) for change in answer["changes"]]
    return sorted(((int(row[0]), int(row[1]), *row[2:]) for row in rows), key=lambda row: (row[1], row[2], row[3]))


def backfilled(server: Server, name: str) -> list[Result]:
    """Results of a version that a backfill wrote."""
    body = json.dumps({"late": False}).encode()
    request = urllib.request.Request(server.url + path(name, "/backfill"), data=body, method="POST")
    with urllib.request.urlopen(request, timeout=60) as answer:
        version = json.load(answer)["version"]

    def is_done() -> bool:
        (one,) = [of for of in server.get(path(name))["backfills"] if of["version"] == version]
        return one["state"] == "done"

    eventually("a backfill", is_done)
    return stored(server, name, version)


def test_alarms_and_derived_values_are_the_same_from_the_record(tmp_path: pathlib.Path, simulate: Any) -> None:
    fti, relay_fti, relay_lines = free_ports(count=3)
    states = ", ".join(str(n) for n in range(800) if n % 100 < 25)
    server = Server(folder=tmp_path, config=CONFIG.format(fti=fti, states=states)).start()
    network = ["--jitter", "3ms", "--loss", "0.01", "--burst", "3", "--duplicate", "0.01", "--reorder", "0.01"]
    relays = [
        simulate("faults", "--inetx", f"127.0.0.1:{relay_fti}=127.0.0.1:{fti}", *network, "--garble", "0.002",
                 "--silence", "600ms/4s", "--clock-jump", "300ms/5s"),
        simulate("faults", "--lines", f"127.0.0.1:{relay_lines}=127.0.0.1:{server.ilp_port}", *network,
                 "--silence", "300ms/6s", "--reconnect-every", "5s"),
    ]  # fmt: skip
    for relay in relays:
        assert relay.stdout is not None and relay.stdout.readline()
    pad = simulate("pad", "--fti", f"127.0.0.1:{relay_fti}", "--ilp", f"127.0.0.1:{relay_lines}", "--t0", "7s",
                   "--duration", "16s", "--loss", "0")  # fmt: skip
    # A server that was held up finds frames whose turn is over: judged when they come, and named.
    assert server.process is not None
    eventually("frames", lambda: metric(server, "judged") > 1_000)
    while pad.poll() is None:
        if metric(server, "late") == 0:
            server.process.send_signal(signal.SIGSTOP)
            time.sleep(0.1)
            server.process.send_signal(signal.SIGCONT)
        time.sleep(0.2)
    assert pad.returncode == 0
    for relay in relays:
        relay.send_signal(signal.SIGTERM)
    reports = [json.loads(relay.communicate(timeout=60)[0].splitlines()[-1])["relays"][0]["all"] for relay in relays]
    for kind in ("lost", "duplicates", "reordered"):
        assert all(report[kind] > 0 for report in reports), reports

    # The record ends with its last frame; live goes on to see the silence after it.
    silent = """select count(*) from strongback.alarms
                where why = 'stale' and receive_time_ns > (select max(receive_time_ns) from "{}")"""
    for table in ("fti.discretes", "avionics.sensor_values"):
        eventually(f"the last silence of {table}", lambda table=table: server.sql(silent.format(table))[0][0] > 0)
    tables = ["fti.bay", "fti.vibration.x20", "fti.discretes", "avionics.sensor_values", "plc.fast", "calc"]

    end = max(server.sql(f'select max(receive_time_ns) from "{table}"')[0][0] for table in tables)
    told = [row for row in server.sql(STEPS) if row[1] <= end]
    again = [row for row in past(server) if row[1] <= end]
    different = sorted(set(told) ^ set(again), key=lambda row: row[1])
    assert not different, (len(told), len(again), different[:10])
    assert len(told) == len(again)
    # Every kind of limit had its say.
    assert {row[3] for row in told} == {"vibration", "vibration stays", "rate", "silence", "tank in countdown", "derived"}
    assert {row[7] for row in told} >= {"high", "low", "stale", "slow", None}
    assert {row[4] for row in told} >= {"raised", "worse", "better", "cleared"}
    assert len(told) > 200
    # What was judged after its turn is named, row by row.
    named = server.sql("select count(*), count(judged_ns) from strongback.late where derived is null")[0]
    assert named == (metric(server, "late"), metric(server, "late"))
    assert named[0] > 0
    assert metric(server, "unjudged") == 0
    # Derived values: live, in replay and backfilled, and the frames beyond the watermark named.
    too_late = 0
    for name in ("calc.vibration", "calc2.slope", "calc3.high"):
        eventually(f"{name} has all", lambda name=name: replayed(server, name) == stored(server, name))
        told = stored(server, name)
        assert len(told) > 300, name
        assert backfilled(server, name) == told, name
        too_late += late(server, name)
    assert too_late > 0
    assert server.stop() == 0
