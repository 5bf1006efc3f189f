"""Stored frames are copied into a real QuestDB, each exactly once, whatever is killed."""

from __future__ import annotations

import json
import math
import pathlib
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from archives import START, follower, send_while_killing, told
from peers import Peer
from strongback import BINARY, Server, eventually


@pytest.fixture(scope="module")
def questdb() -> Iterator[Peer]:
    # By default each column takes 16 MB of the disk at once.
    with Peer("questdb", configuration="cairo.writer.data.append.page.size=64k\n") as peer:
        yield peer


@pytest.fixture
def server(tmp_path: pathlib.Path, questdb: Peer) -> Iterator[Server]:
    config = f"""
[[archive]]
name = "copy"
target = "questdb"
url = "http://127.0.0.1:{questdb.ports["http"]}"
interval_ms = 0
"""
    running = Server(folder=tmp_path, config=config).start()
    yield running
    running.stop()
    # The next test begins without tables.
    for (name,) in ask(questdb, "select table_name from tables()"):
        ask(questdb, f'drop table "{name}"')


def ask(questdb: Peer, sql: str) -> list[list[Any]]:
    url = f"http://127.0.0.1:{questdb.ports['http']}/exec?" + urllib.parse.urlencode({"query": sql})
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer).get("dataset", [])
    except (urllib.error.URLError, OSError) as error:
        return [[str(error)]]


def has(questdb: Peer, sql: str, expected: list[list[Any]]) -> None:
    seen: list[Any] = []

    def is_there() -> bool:
        seen[:] = ask(questdb, sql)
        return seen == expected

    try:
        eventually(f"{sql} in QuestDB", is_there)
    except AssertionError:
        assert seen == expected


def test_each_value_is_there_as_it_is_here(server: Server, questdb: Peer) -> None:
    lines = [
        f'm\\ x,bay=no\\ rth,site=a f=0.1,i=-9223372036854775807i,b=t,s="a\\"\\\\\u00e9" {START}',
        f"m\\ x,bay=no\\ rth,site=a f=-0.0,i=9223372036854775807i,b=f {START + 1}",
        f'm\\ x,bay=south f=1e300,u=7u,s="" {START + 2}',
        f"m\\ x f=5e-324 {START + 3}",
    ]
    assert server.write("\n".join(lines)) == (204, None)
    has(questdb, 'select count() from "m x"', [[4]])
    ours = server.sql('select time_ns, receive_time_ns, bay, site, f, i, b::int, s, u::bigint from "m x" order by time_ns')
    sql = "select cast(time as long), cast(receive_time as long), bay, site, f, i, b, s, u from 'm x' order by time"
    theirs = [tuple(row) for row in ask(questdb, sql)]
    assert theirs == ours
    assert math.copysign(1, theirs[1][4]) == -1
    assert ask(questdb, "select count_distinct(strongback_row) from 'm x' where bay = 'no rth'") == [[2]]
    assert ask(questdb, "select cast(source_time as long) from 'm x' limit 1") == [[START]]


def test_frames_of_one_instant_stay_apart(server: Server, questdb: Peer) -> None:
    for value in range(5):
        assert server.write(f"t,s=1 n={value}i {START}\nt,s=2 n={value}i {START}") == (204, None)
    has(questdb, "select s, count(), sum(n) from t order by s", [["1", 5, 10], ["2", 5, 10]])


def test_a_table_grows_with_its_streams(server: Server, questdb: Peer) -> None:
    assert server.write(f"g,x=1 a=1i {START}") == (204, None)
    has(questdb, "select x, a from g", [["1", 1]])
    lines = f"g,y=2 a=2i,b=2.5 {START}\ng x=7.5,a=1.5 {START}\nG,z=3 a=\"t\",b.c=1,b-c=2 {START}"
    assert server.write(lines) == (204, None)
    has(questdb, "select count() from g", [[4]])
    rows = ask(questdb, "select x, y, z, a, b, x_f64, a_f64, a_string, b_c, b_c_f64 from g")
    assert sorted(rows, key=str) == [
        ["1", None, None, 1, None, None, None, None, None, None],
        [None, "2", None, 2, 2.5, None, None, None, None, None],
        [None, None, "3", None, None, None, None, "t", 1.0, 2.0],
        [None, None, None, None, None, 7.5, 1.5, None, None, None],
    ]


def test_a_wide_table_is_made_and_widened(server: Server, questdb: Peer) -> None:
    fields = ",".join(f"channel_with_a_long_name_{n}={n}i" for n in range(700))
    assert server.write(f"w {fields} {START}") == (204, None)
    has(questdb, "select channel_with_a_long_name_699 from w", [[699]])
    assert len(ask(questdb, "select \"column\" from table_columns('w')")) == 706


def test_count_and_sum_are_equal_whatever_is_killed(server: Server, questdb: Peer) -> None:
    # Many frames have the time of another one.
    sent = send_while_killing(server, questdb, seed=2, frames_per_instant=3)
    expected = [[str(s), n, n * (n - 1) // 2] for s, n in enumerate(sent)]
    has(questdb, "select s, count(), sum(n) from k group by s order by s", expected)
    eventually("an archive that is up to date", lambda: follower(server)["behind_frames"] == 0)
    assert server.stop() == 0
    # Not even the position is there: all comes again, and nothing is doubled.
    for file in (server.folder / "store/followers").glob("copy.*position*"):
        file.unlink()
    server.start()
    eventually("all frames again", lambda: follower(server)["delivered_frames"] >= sum(sent))
    assert server.write(f"k,s=0 n={sent[0]}i {START}") == (204, None)
    has(questdb, "select max(n), count() from k where s = '0'", [[sent[0], sent[0] + 1]])
    has(questdb, "select s, count() from k where s <> '0' group by s order by s", [row[:2] for row in expected[1:]])


def test_tables_that_somebody_changes(server: Server, questdb: Peer) -> None:
    assert server.write(f"c n=1i,o=1i {START}\nd n=1i {START}") == (204, None)
    has(questdb, "select count() from c", [[1]])
    # A column that is dropped is made again.
    ask(questdb, "alter table c drop column o")
    assert server.write(f"c n=2i,o=2i {START + 1}") == (204, None)
    has(questdb, "select n, o from c order by n", [[1, None], [2, 2]])
    # A column of another type: values go beside it.
    ask(questdb, "alter table c drop column o")
    ask(questdb, "alter table c add column o symbol")
    assert server.write(f"c n=3i,o=3i {START + 2}") == (204, None)
    has(questdb, "select n, o, o_i64 from c order by n", [[1, None, None], [2, None, None], [3, None, 3]])
    # A table that is dropped is made again, with its deduplication.
    ask(questdb, "drop table c")
    assert server.write(f"c n=4i {START + 3}") == (204, None)
    has(questdb, "select n from c", [[4]])
    assert ask(questdb, "select dedup from tables() where table_name = 'c'") == [[True]]
    # One without deduplication would have frames twice. Its stream waits, and the others go on.
    ask(questdb, "alter table c dedup disable")
    server.kill()
    server.start()
    assert server.write(f"c n=5i {START + 4}\nd n=2i {START + 4}") == (204, None)
    has(questdb, "select count() from d", [[2]])
    told(server, "delivers nothing of c", "DEDUP UPSERT KEYS")
    eventually("suspended_streams", lambda: follower(server)["suspended_streams"] == 1)
    ask(questdb, "alter table c dedup enable upsert keys(time, strongback_stream, strongback_row)")
    # Frames from before the table was dropped may be there again after the kill.
    has(questdb, "select n, count() from c where n >= 4 group by n order by n", [[4, 1], [5, 1]])


def test_a_backfill_brings_what_was_lost(server: Server, questdb: Peer) -> None:
    lines = [f"b,s={n % 2} n={n}i {START + n * 1_000_000_000}" for n in range(10)]
    assert server.write("\n".join(lines)) == (204, None)
    has(questdb, "select count() from b", [[10]])
    ask(questdb, "truncate table b")
    has(questdb, "select count() from b", [[0]])
    address = ["--server", f"127.0.0.1:{server.http_port}"]
    backfill = [BINARY, "archive", "backfill", "copy", *address, "--from"]
    done = subprocess.run([*backfill, "2026-09-21T14:13:26Z"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("copy  following"), done.stdout
    has(questdb, "select n from b order by n", [[6], [7], [8], [9]])
    subprocess.run([*backfill, "start"], capture_output=True, check=True)
    has(questdb, "select count(), sum(n) from b", [[10, 45]])
    wrong = subprocess.run([*backfill, "soon"], capture_output=True, text=True)
    assert wrong.returncode != 0
    assert "soon" in wrong.stderr


def test_values_that_it_cannot_hold_are_counted(server: Server, questdb: Peer) -> None:
    lines = [
        f"v a=-9223372036854775808i,u=18446744073709551615u {START}",
        f"v a=1i,u=1u {START + 1}",
        f"v a=2i {-5}",
    ]
    assert server.write("\n".join(lines)) == (204, None)
    has(questdb, "select a, u from v order by time", [[None, None], [1, 1]])
    eventually("a rejected frame", lambda: follower(server)["rejected_frames"] == 1)
    told(server, "leaves out row 2 of v", "before 1970")
    eventually("altered_values", lambda: follower(server)["altered_values"] == 2)


def test_what_is_no_questdb_is_told(tmp_path: pathlib.Path, server: Server) -> None:
    other = f"""
[[archive]]
name = "wrong"
target = "questdb"
url = "http://127.0.0.1:{server.http_port}"
"""
    folder = tmp_path / "second"
    folder.mkdir()
    second = Server(folder=folder, config=other).start()
    try:
        assert second.write(f"m a=1i {START}") == (204, None)
        told(second, "no QuestDB of version 9.1 or newer")
        assert follower(second, "wrong")["state"] == "retrying"
    finally:
        second.stop()
