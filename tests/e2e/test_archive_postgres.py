"""Stored frames are copied into a real PostgreSQL, each exactly once, whatever is killed."""

from __future__ import annotations

import json
import pathlib
import subprocess
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from archives import START, follower, send_while_killing, told
from private_postgres import USER, PrivatePostgres
from strongback import BINARY, Server, eventually


@pytest.fixture
def postgres() -> Iterator[PrivatePostgres]:
    with PrivatePostgres() as private:
        yield private


def config(postgres: PrivatePostgres, *, name: str = "copy", schema: str = "public", more: str = "") -> str:
    return f"""
[[archive]]
name = "{name}"
target = "postgres"
url = "host={postgres.folder} user={USER} dbname=postgres"
interval_ms = 0
schema = "{schema}"
{more}
"""


@pytest.fixture
def server(tmp_path: pathlib.Path, postgres: PrivatePostgres) -> Iterator[Server]:
    running = Server(folder=tmp_path, config=config(postgres)).start()
    yield running
    running.stop()


def rows(postgres: PrivatePostgres, sql: str) -> list[tuple[Any, ...]]:
    with postgres.connect() as connection:
        try:
            return connection.execute(sql).fetchall()
        except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
            return []


def has(postgres: PrivatePostgres, sql: str, expected: list[tuple[Any, ...]]) -> None:
    eventually(f"{sql} in the archive", lambda: rows(postgres, sql) == expected or None)


def test_each_value_is_there_as_it_is_here(server: Server, postgres: PrivatePostgres) -> None:
    lines = [
        f'm,bay=north,site=a f=0.1,i=-9223372036854775808i,b=t,s="a\\"\u00e9" {START}',
        f"m,bay=north,site=a f=-0.0,i=9223372036854775807i,b=f {START + 1}",
        f'm,bay=south f=1e300,u=18446744073709551615u,s="" {START - 5_000_000_001}',
        f"m f=5e-324 {START + 3}",
    ]
    assert server.write("\n".join(lines)) == (204, None)
    has(postgres, "select count(*) from m", [(4,)])
    columns = 'time, time_ns, receive_time, receive_time_ns, source_time, source_time_ns, "sequence", bay, site, f, i, b, s, u'
    sql = f"select {columns} from m order by time_ns"
    assert rows(postgres, sql) == server.sql(sql)
    assert rows(postgres, "select count(distinct strongback_row) from m where bay = 'north'") == [(2,)]
    tags = "select a.attname from pg_attribute a where attrelid = 'm'::regclass and col_description(attrelid, attnum) like '%tag'"
    assert rows(postgres, f"{tags} order by 1") == [("bay",), ("site",)]


def test_a_table_grows_with_its_streams(server: Server, postgres: PrivatePostgres) -> None:
    assert server.write(f"g,x=1 a=1i {START}") == (204, None)
    has(postgres, "select x, a from g", [("1", 1)])
    # A new channel and a new tag, then a channel that has the name of a tag, and another type of a name.
    assert server.write(f"g,y=2 a=2i,b=2.5 {START}\ng x=7.5,a=1.5 {START}\ng,z=3 a=true {START}") == (204, None)
    has(postgres, "select count(*) from g", [(4,)])
    assert rows(postgres, "select x, y, z, a, b, x_f64, a_f64, a_bool from g order by a, a_f64, a_bool") == [
        ("1", None, None, 1, None, None, None, None),
        (None, "2", None, 2, 2.5, None, None, None),
        (None, None, None, None, None, 7.5, 1.5, None),
        (None, None, "3", None, None, None, None, True),
    ]


def test_count_and_sum_are_equal_whatever_is_killed(server: Server, postgres: PrivatePostgres) -> None:
    sent = send_while_killing(server, postgres, seed=1, rounds=3)
    expected = [(str(s), n, n * (n - 1) // 2, n) for s, n in enumerate(sent)]
    has(postgres, "select s, count(*), sum(n), count(distinct strongback_row) from k group by s order by s", expected)
    assert server.sql("select s, count(*), sum(n)::bigint from k group by s order by s") == [e[:3] for e in expected]
    positions = "select name, next_row from strongback_positions where name like 'k{%' order by name"
    assert rows(postgres, positions) == [(f"k{{s={s}}}", n) for s, n in enumerate(sent)]
    eventually("an archive that is up to date", lambda: follower(server)["behind_frames"] == 0)
    assert server.stop() == 0
    server.start()
    assert server.write(f"k,s=0 n={sent[0]}i {START + sent[0]}") == (204, None)
    has(postgres, "select max(n), count(*) from k where s = '0'", [(sent[0], sent[0] + 1)])
    assert follower(server)["delivered_frames"] == 1, "what was there is not sent again"


def test_a_row_that_is_rejected_is_named_and_the_others_are_there(server: Server, postgres: PrivatePostgres) -> None:
    assert server.write(f"c n=0i {START}\nd n=0i {START}") == (204, None)
    has(postgres, "select count(*) from c", [(1,)])
    with postgres.connect() as connection:
        connection.execute("alter table c add constraint no_sevens check (n % 7 <> 0 or n = 0)")
    lines = [f"{table} n={n}i {START + n}" for n in range(1, 50) for table in "cd"]
    assert server.write("\n".join(lines)) == (204, None)
    has(postgres, "select count(*) from c", [(43,)])
    has(postgres, "select count(*) from d", [(50,)])
    eventually("the rejected frames", lambda: follower(server)["rejected_frames"] == 7)
    named = (server.folder / "store/followers/copy.rejected.jsonl").read_text().splitlines()
    assert [(row["stream"], row["row"]) for row in map(json.loads, named)] == [("c", str(7 * n)) for n in range(1, 8)]
    assert "no_sevens" in json.loads(named[0])["reason"]
    told(server, "leaves out row 7 of c", "no_sevens")


def test_changes_behind_its_back(server: Server, postgres: PrivatePostgres) -> None:
    assert server.write(f"e n=1i,m=1i {START}\nf n=1i {START}") == (204, None)
    has(postgres, "select count(*) from e", [(1,)])
    with postgres.connect() as connection:
        connection.execute("alter table e drop column m")
    assert server.write(f"e n=2i,m=2i {START + 1}") == (204, None)
    has(postgres, "select n, m from e order by n", [(1, None), (2, 2)])
    with postgres.connect() as connection:
        connection.execute("drop table e")
    assert server.write(f"e n=3i,m=3i {START + 2}") == (204, None)
    has(postgres, "select n, m from e order by n", [(3, 3)])
    with postgres.connect() as connection:
        connection.execute("alter table e alter column n type json using null")
    assert server.write(f"e n=4i,m=4i {START + 3}") == (204, None)
    has(postgres, "select n_i64 from e where m = 4", [(4,)])
    # What cannot be written holds nothing else up, and is made good.
    with postgres.connect() as connection:
        connection.execute("alter table e rename to e_away; create view e as select 1 as n")
    assert server.write(f"e n=5i,m=5i {START + 4}\nf n=2i {START + 4}") == (204, None)
    has(postgres, "select count(*) from f", [(2,)])
    eventually("a stream that fails", lambda: follower(server)["suspended_streams"] == 1)
    with postgres.connect() as connection:
        connection.execute("drop view e; alter table e_away rename to e")
    has(postgres, "select n_i64 from e where m = 5", [(5,)])
    told(server, "delivers e again")
    # Read-only for a while.
    with postgres.connect() as connection:
        connection.execute("alter database postgres set default_transaction_read_only = on")
        connection.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'strongback'")
    assert server.write(f"f n=3i {START + 5}") == (204, None)
    eventually("an error", lambda: "25006" in (follower(server)["last_error"] or [""])[0])
    with postgres.connect() as connection:
        connection.execute("set transaction_read_only = off; alter database postgres reset default_transaction_read_only")
    has(postgres, "select count(*) from f", [(3,)])


def test_a_copy_restored_from_a_backup_is_filled_up(server: Server, postgres: PrivatePostgres) -> None:
    assert server.write("\n".join(f"r n={n}i {START + n}" for n in range(100))) == (204, None)
    has(postgres, "select count(*) from r", [(100,)])
    with postgres.connect() as connection:
        # As of row 40, with the positions of then.
        connection.execute("begin; delete from r where strongback_row >= 40; update strongback_positions set next_row = 40 where name = 'r'; commit")
        connection.execute("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'strongback'")
    assert server.write(f"r n=100i {START + 100}") == (204, None)
    has(postgres, "select count(*), sum(n), count(distinct n) from r", [(101, 5050, 101)])


def test_pause_outlives_a_restart(server: Server, postgres: PrivatePostgres) -> None:
    def archive(*arguments: str) -> str:
        command = [BINARY, "archive", *arguments, "--server", f"127.0.0.1:{server.http_port}"]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout

    assert server.write(f"p n=1i {START}") == (204, None)
    has(postgres, "select count(*) from p", [(1,)])
    assert "copy  " in archive("pause", "copy")
    eventually("a pause", lambda: follower(server)["state"] == "paused")
    assert server.write(f"p n=2i {START + 1}") == (204, None)
    assert server.stop() == 0
    server.start()
    eventually("a pause", lambda: follower(server)["state"] == "paused")
    assert "paused" in archive("list")
    assert rows(postgres, "select count(*) from p") == [(1,)]
    archive("resume", "copy")
    has(postgres, "select count(*) from p", [(2,)])
    unknown = subprocess.run(
        [BINARY, "archive", "pause", "nobody", "--server", f"127.0.0.1:{server.http_port}"],
        check=False, capture_output=True, text=True, timeout=60,
    )
    assert unknown.returncode == 1
    assert "nobody" in unknown.stderr


def test_an_archive_that_cannot_be_reached_is_told(tmp_path: pathlib.Path, postgres: PrivatePostgres) -> None:
    postgres.kill()
    server = Server(folder=tmp_path, config=config(postgres, more='from = "now"')).start()
    assert server.write("\n".join(f"a n={n}i {START + n}" for n in range(10))) == (204, None)
    eventually("attempts", lambda: follower(server)["failed_attempts"] > 1)
    eventually("a lag", lambda: follower(server)["state"] == "retrying")
    told(server, "delivers nothing")
    state, failed = server.sql("select state, failed_attempts from strongback.followers")[0]
    assert (state, failed > 1) == ("retrying", True)
    postgres.start()
    has(postgres, "select count(*) from a", [(10,)])
    assert server.sql("select delivered_frames, behind_frames, last_error is null from strongback.followers") == [(10, 0, False)]
    assert server.stop() == 0
