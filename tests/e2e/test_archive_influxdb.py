"""Stored frames are copied into a real InfluxDB, each exactly once, whatever is killed."""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from archives import START, follower, send_while_killing, told
from peers import Peer
from strongback import BINARY, Server, eventually


def ask(influxdb: Peer, query: str, database: str = "telemetry") -> list[tuple[Any, ...]]:
    """Rows of the first series, without the time that an aggregate has."""
    parameters = urllib.parse.urlencode({"db": database, "q": query, "epoch": "ns"})
    request = urllib.request.Request(f"http://127.0.0.1:{influxdb.ports['http']}/query?{parameters}", method="POST")
    with urllib.request.urlopen(request, timeout=30) as answer:
        result = json.load(answer)["results"][0]
    assert "error" not in result, result
    return [tuple(row) for series in result.get("series", []) for row in series["values"]]


def has(influxdb: Peer, query: str, expected: list[tuple[Any, ...]]) -> None:
    eventually(f"{query} in InfluxDB", lambda: ask(influxdb, query) == expected or None)


@pytest.fixture(scope="module")
def process() -> Iterator[Peer]:
    with Peer("influxdb") as running:
        yield running


@pytest.fixture
def influxdb(process: Peer) -> Peer:
    ask(process, 'drop database "telemetry"')
    ask(process, 'create database "telemetry"')
    return process


def config(influxdb: Peer, more: str = "") -> str:
    return f"""
[[archive]]
name = "copy"
target = "influxdb"
url = "http://127.0.0.1:{influxdb.ports["http"]}"
database = "telemetry"
interval_ms = 0
{more}
"""


@pytest.fixture
def server(tmp_path: pathlib.Path, influxdb: Peer) -> Iterator[Server]:
    running = Server(folder=tmp_path, config=config(influxdb)).start()
    yield running
    running.stop()


def test_each_value_is_there_as_it_is_here(server: Server, influxdb: Peer) -> None:
    lines = [
        f'm\\ x,bay=no\\ rth,site=a\\,b f=0.1,i=-9223372036854775808i,b=t,s="a\\"\\\\\u00e9\n" {START}',
        f"m\\ x,bay=no\\ rth,site=a\\,b f=-0.0,i=9223372036854775807i,b=f {START + 1}",
        f'm\\ x,bay=south f=1e300,u=7u,s="" {START + 2}',
        f"m\\ x f=5e-324 {START + 3}",
    ]
    assert server.write("\n".join(lines)) == (204, None)
    has(influxdb, 'select count(f) from "m x"', [(0, 4)])
    ours = server.sql('select time_ns, receive_time_ns, bay, site, f, i, b, s, u::bigint from "m x" order by time_ns')
    theirs = ask(influxdb, 'select receive_time_ns, bay, site, f, i, b, s, u from "m x"')
    assert theirs == ours
    # A value that does not exist there is told.
    assert server.write(f"m\\ x u=18446744073709551615u {START + 4}") == (204, None)
    has(influxdb, 'select count(strongback_row) from "m x"', [(0, 5)])
    eventually("altered_values", lambda: follower(server)["altered_values"] == 1)


def test_frames_of_one_instant_stay_apart(server: Server, influxdb: Peer) -> None:
    for value in range(5):
        assert server.write(f"t,s=1 n={value}i {START}\nt,s=2 n={value}i {START}") == (204, None)
        # Late frames, at a time that was there before.
        assert server.write(f"t,s=1 n={value + 10}i {START - 1}") == (204, None)
    has(influxdb, "select count(n), sum(n) from t group by s", [(0, 10, 70), (0, 5, 10)])
    has(influxdb, "show tag values from t with key = strongback_repeat", [("strongback_repeat", str(n)) for n in range(1, 5)])


def test_a_measurement_grows_with_its_streams(server: Server, influxdb: Peer) -> None:
    assert server.write(f"g,x=1 a=1i {START}") == (204, None)
    has(influxdb, "select a from g", [(START, 1)])
    lines = f"g,y=2 a=2i,b=2.5 {START}\ng x=7.5,a=1.5 {START}\ng,z=3 a=\"t\",time=9i,_b=1 {START}"
    assert server.write(lines) == (204, None)
    has(influxdb, "select count(strongback_row) from g", [(0, 4)])
    rows = ask(influxdb, "select x, y, z, a, b, x_f64, a_f64, a_string, time_field from g")
    assert sorted(rows, key=str) == sorted([
        (START, "1", None, None, 1, None, None, None, None, None),
        (START, None, "2", None, 2, 2.5, None, None, None, None),
        (START, None, None, None, None, None, 7.5, 1.5, None, None),
        (START, None, None, "3", None, None, None, None, "t", 9),
    ], key=str)


def test_count_and_sum_are_equal_whatever_is_killed(server: Server, influxdb: Peer) -> None:
    # Many frames have the time of another one.
    sent = send_while_killing(server, influxdb, seed=4, rounds=2, frames_per_instant=3)
    expected = [(0, n, n * (n - 1) // 2) for n in sent]
    has(influxdb, "select count(n), sum(n) from k group by s", expected)
    eventually("an archive that is up to date", lambda: follower(server)["behind_frames"] == 0)
    assert server.stop() == 0
    # Not even the position is there: all comes again, and nothing is doubled.
    shutil.rmtree(server.folder / "store/followers")
    server.start()
    eventually("all frames again", lambda: follower(server)["delivered_frames"] == sum(sent))
    assert ask(influxdb, "select count(n), sum(n) from k group by s") == expected


def test_what_it_refuses_is_told(server: Server, influxdb: Peer) -> None:
    # What is older than its retention holds nothing else up.
    ask(influxdb, 'alter retention policy "autogen" on "telemetry" duration 8760h')
    assert server.write(f"c n=0i {START}\nc n=1i 1500000000000000000\nc n=2i {START + 2}\nd n=1i {START}") == (204, None)
    has(influxdb, "select count(n) from d", [(0, 1)])
    has(influxdb, "select count(n), sum(n) from c", [(0, 2, 2)])
    told(server, "leaves out row 1 of c", "retention policy")
    # Somebody gave a field another type.
    request = urllib.request.Request(
        f"http://127.0.0.1:{influxdb.ports['http']}/write?db=telemetry", data=b"e n=1.5", method="POST"
    )
    urllib.request.urlopen(request, timeout=30).close()
    assert server.write(f"e n=7i {START}") == (204, None)
    has(influxdb, "select n_i64 from e where n_i64 = 7", [(START, 7)])
    # No database, for a while.
    ask(influxdb, 'drop database "telemetry"')
    assert server.write(f"d n=2i {START + 1}") == (204, None)
    eventually("an error", lambda: "database not found" in (follower(server)["last_error"] or [""])[0])
    ask(influxdb, 'create database "telemetry"')
    has(influxdb, "select sum(n) from d", [(0, 2)])
    # What it lost is brought again.
    command = [BINARY, "archive", "backfill", "copy", "--from", "start", "--server", f"127.0.0.1:{server.http_port}"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    has(influxdb, "select sum(n) from d", [(0, 3)])
