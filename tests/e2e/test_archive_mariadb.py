"""Stored frames are copied into a real MariaDB, each exactly once, whatever is killed."""

from __future__ import annotations

import json
import pathlib
import subprocess
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest
from archives import START, follower, send_while_killing, told
from peers import Peer
from strongback import BINARY, Server, eventually

PASSWORD = "it's a \\secret"
UNDEFINED = (1054, 1146)


def connect(mariadb: Peer, database: str | None = "telemetry") -> pymysql.Connection[Any]:
    return pymysql.connect(
        host="127.0.0.1", port=mariadb.ports["mysql"], user="root", database=database, autocommit=True, charset="utf8mb4"
    )


def run(mariadb: Peer, *statements: str) -> None:
    with connect(mariadb) as connection, connection.cursor() as cursor:
        for sql in statements:
            cursor.execute(sql)


def rows(mariadb: Peer, sql: str) -> list[tuple[Any, ...]]:
    try:
        with connect(mariadb) as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())
    except (pymysql.err.ProgrammingError, pymysql.err.OperationalError) as error:
        if error.args[0] in UNDEFINED:
            return []
        raise


def has(mariadb: Peer, sql: str, expected: list[tuple[Any, ...]]) -> None:
    eventually(f"{sql} in the archive", lambda: rows(mariadb, sql) == expected or None)


def disconnect(mariadb: Peer) -> None:
    """Ends the connections of the archive."""
    for (connection,) in rows(mariadb, "select id from information_schema.processlist where user = 'archive'"):
        run(mariadb, f"kill {connection}")


@pytest.fixture(scope="module")
def process() -> Iterator[Peer]:
    with Peer("mariadb") as running:
        with connect(running, None) as connection, connection.cursor() as cursor:
            cursor.execute("create user archive identified by %s", (PASSWORD,))
        yield running


@pytest.fixture
def mariadb(process: Peer) -> Peer:
    with connect(process, None) as connection, connection.cursor() as cursor:
        cursor.execute("drop database if exists telemetry")
        cursor.execute("create database telemetry")
        cursor.execute("grant all on telemetry.* to archive")
    return process


def config(mariadb: Peer, folder: pathlib.Path) -> str:
    (folder / "password").write_text(PASSWORD + "\n")
    return f"""
[[archive]]
name = "copy"
target = "mariadb"
url = "mariadb://archive@127.0.0.1:{mariadb.ports["mysql"]}/telemetry"
password_file = "{folder}/password"
interval_ms = 0
"""


@pytest.fixture
def server(tmp_path: pathlib.Path, mariadb: Peer) -> Iterator[Server]:
    running = Server(folder=tmp_path, config=config(mariadb, tmp_path)).start()
    yield running
    running.stop()


def test_each_value_is_there_as_it_is_here(server: Server, mariadb: Peer) -> None:
    lines = [
        f'm,bay=north,site=a f=0.1,i=-9223372036854775808i,b=t,s="a\\"\u00e9\\\\N\t\U0001f680" {START}',
        f"m,bay=north,site=a f=-1e-310,i=9223372036854775807i,b=f {START + 1}",
        f'm,bay=south f=1.7976931348623157e308,u=18446744073709551615u,s="" {START - 5_000_000_001}',
        f"m f=5e-324 {START + 3}",
    ]
    assert server.write("\n".join(lines)) == (204, None)
    has(mariadb, "select count(*) from m", [(4,)])
    columns = "time_ns, receive_time_ns, source_time_ns, `sequence`, bay, site, f, i, b, s, u"
    here = server.sql(f"select {columns.replace('`', chr(34))} from m order by time_ns")
    assert rows(mariadb, f"select {columns} from m order by time_ns") == [tuple(row) for row in here]
    times = rows(mariadb, "select time, receive_time from m order by time_ns")
    here_times = server.sql("select time, receive_time from m order by time_ns")
    assert times == [tuple(t.replace(tzinfo=None) for t in row) for row in here_times]
    assert rows(mariadb, "select count(distinct strongback_row) from m where bay = 'north'") == [(2,)]
    # Texts that some databases take for one.
    assert server.write("\n".join(f"case,t={text} n=1i {START}" for text in ("a", "A", "\u00e4", "\u00c4"))) == (204, None)
    has(mariadb, "select count(*), count(distinct t) from `case`", [(4, 4)])
    assert rows(mariadb, "select count(*) from `case` where t = 'A'") == [(1,)]


def test_a_table_grows_with_its_streams(server: Server, mariadb: Peer) -> None:
    assert server.write(f"g,x=1 a=1i {START}") == (204, None)
    has(mariadb, "select x, a from g", [("1", 1)])
    # A new channel and a new tag, then a channel that has the name of a tag, and another type of a name.
    assert server.write(f"g,y=2 a=2i,b=2.5 {START}\ng x=7.5,a=1.5 {START}\ng,z=3 a=true {START}") == (204, None)
    has(mariadb, "select count(*) from g", [(4,)])
    assert rows(mariadb, "select x, y, z, a, b, x_f64, a_f64, a_bool from g order by a is null, a, a_f64 is null") == [
        ("1", None, None, 1, None, None, None, None),
        (None, "2", None, 2, 2.5, None, None, None),
        (None, None, None, None, None, 7.5, 1.5, None),
        (None, None, "3", None, None, None, None, 1),
    ]
    # Names that are one there.
    assert server.write(f"g P=1i,p=2i {START}\ng `=3i,\U0001f680=4i {START}") == (204, None)
    has(mariadb, "select P, p_i64 from g where P is not null", [(1, 2)])
    has(mariadb, "select ```` from g where ```` is not null", [(3,)])
    letters = "s\u017fSi\u0131\u0130Ik\u212aK\u00e9\u00c9e"
    assert server.write("h " + ",".join(f"{letter}={n}i" for n, letter in enumerate(letters)) + f" {START}") == (204, None)
    has(mariadb, "select count(*) from h", [(1,)])
    (row,) = rows(mariadb, "select * from h")
    assert set(range(len(letters))) <= set(row), "each has a column of its own"


def test_count_and_sum_are_equal_whatever_is_killed(server: Server, mariadb: Peer) -> None:
    sent = send_while_killing(server, mariadb, seed=1, rounds=3)
    expected = [(str(s), n, n * (n - 1) // 2, n) for s, n in enumerate(sent)]
    has(mariadb, "select s, count(*), sum(n), count(distinct strongback_row) from k group by s order by s", expected)
    positions = "select name, next_row from strongback_positions where name like 'k{%' order by name"
    assert rows(mariadb, positions) == [(f"k{{s={s}}}", n) for s, n in enumerate(sent)]
    eventually("an archive that is up to date", lambda: follower(server)["behind_frames"] == 0)
    assert server.stop() == 0
    server.start()
    assert server.write(f"k,s=0 n={sent[0]}i {START + sent[0]}") == (204, None)
    has(mariadb, "select max(n), count(*) from k where s = '0'", [(sent[0], sent[0] + 1)])
    assert follower(server)["delivered_frames"] == 1, "what was there is not sent again"


def test_a_row_that_is_rejected_is_named_and_the_others_are_there(server: Server, mariadb: Peer) -> None:
    assert server.write(f"c n=0i {START}\nd n=0i {START}") == (204, None)
    has(mariadb, "select count(*) from c", [(1,)])
    run(mariadb, "alter table c add constraint no_sevens check (n % 7 <> 0 or n = 0)", "alter table d add unique (n)")
    lines = [f"{table} n={n}i {START + n}" for n in range(1, 50) for table in "cd"]
    assert server.write("\n".join([*lines, f"d n=3i {START + 60}"])) == (204, None)
    has(mariadb, "select count(*) from c", [(43,)])
    has(mariadb, "select count(*) from d", [(50,)])
    eventually("the rejected frames", lambda: follower(server)["rejected_frames"] == 8)
    named = [json.loads(line) for line in (server.folder / "store/followers/copy.rejected.jsonl").read_text().splitlines()]
    of_c = [(row["stream"], row["row"]) for row in named if row["stream"] == "c"]
    assert of_c == [("c", str(7 * n)) for n in range(1, 8)]
    told(server, "leaves out row 7 of c", "no_sevens")
    told(server, "leaves out row 50 of d", "Duplicate entry '3'")


def test_changes_behind_its_back(server: Server, mariadb: Peer) -> None:
    assert server.write(f"e n=1i,m=1i {START}\nf n=1i {START}") == (204, None)
    has(mariadb, "select count(*) from e", [(1,)])
    run(mariadb, "alter table e drop column m")
    assert server.write(f"e n=2i,m=2i {START + 1}") == (204, None)
    has(mariadb, "select n, m from e order by n", [(1, None), (2, 2)])
    run(mariadb, "drop table e")
    assert server.write(f"e n=3i,m=3i {START + 2}") == (204, None)
    has(mariadb, "select n, m from e order by n", [(3, 3)])
    # A column that would cut values is widened again.
    run(mariadb, "alter table e modify n smallint")
    assert server.write(f"e n=70000i,m=4i {START + 3}") == (204, None)
    has(mariadb, "select n from e where m = 4", [(70_000,)])
    run(mariadb, "alter table e drop column n, add column n date")
    assert server.write(f"e n=5i,m=5i {START + 4}") == (204, None)
    has(mariadb, "select n_i64 from e where m = 5", [(5,)])
    # What cannot be written holds nothing else up, and is made good.
    for change, undo in [
        (["alter table e engine = MyISAM"], ["alter table e engine = InnoDB"]),
        (["rename table e to e_away", "create view e as select 1 as n"], ["drop view e", "rename table e_away to e"]),
    ]:
        number = rows(mariadb, "select coalesce(max(n), 0) + 1 from f")[0][0]
        before = rows(mariadb, "select count(*) from e")[0][0]
        run(mariadb, *change)
        disconnect(mariadb)
        assert server.write(f"e n=6i,m=6i {START + 100 + number}\nf n={number}i {START + number}") == (204, None)
        has(mariadb, "select max(n) from f", [(number,)])
        eventually("a stream that fails", lambda: follower(server)["suspended_streams"] == 1)
        run(mariadb, *undo)
        has(mariadb, "select count(*) from e", [(before + 1,)])
    told(server, "delivers e again")


def test_a_server_that_takes_nothing_is_told(server: Server, mariadb: Peer) -> None:
    assert server.write(f"t n=1i {START}") == (204, None)
    has(mariadb, "select count(*) from t", [(1,)])
    for fault, mend, words in [
        ("set global read_only = 1", "set global read_only = 0", "--read-only"),
        ("set global local_infile = 0", "set global local_infile = 1", "set local_infile = ON there"),
        ("revoke all on telemetry.* from archive", "grant all on telemetry.* to archive", "denied"),
        ("alter user archive identified by 'other'", f"alter user archive identified by {PASSWORD!r}", "Access denied"),
    ]:
        number = rows(mariadb, "select count(*) + 1 from t")[0][0]
        run(mariadb, fault)
        disconnect(mariadb)
        assert server.write(f"t n={number}i {START + number}") == (204, None)
        eventually(f"an error with {words!r}", lambda: words in (follower(server)["last_error"] or [""])[0])
        of_archive = [one["text"] for one in server.get("/api/doctor")["findings"] if one["cause"] == "archive"]
        assert len(of_archive) == 1 and words in of_archive[0] and "1 frame wait" in of_archive[0], of_archive
        run(mariadb, mend)
        has(mariadb, "select count(*), max(n) from t", [(number, number)])


def test_a_copy_restored_from_a_backup_is_filled_up(server: Server, mariadb: Peer) -> None:
    assert server.write("\n".join(f"r n={n}i {START + n}" for n in range(100))) == (204, None)
    has(mariadb, "select count(*) from r", [(100,)])
    # As of row 40, with the positions of then. The follower notices at its next delivery.
    with connect(mariadb) as connection, connection.cursor() as cursor:
        connection.begin()
        cursor.execute("delete from r where strongback_row >= 40")
        cursor.execute("update strongback_positions set next_row = 40 where name = 'r'")
        connection.commit()
    assert server.write(f"r n=100i {START + 100}") == (204, None)
    has(mariadb, "select count(*), sum(n), count(distinct n) from r", [(101, 5050, 101)])
    told(server, "another follower named")


def test_more_columns_than_a_table_can_have(server: Server, mariadb: Peer) -> None:
    """More columns than a row can have hold only their stream up."""
    fields = ",".join(f"c{n}={n}.5" for n in range(700))
    assert server.write(f"w {fields} {START}") == (204, None)
    has(mariadb, "select c0, c699 from w", [(0.5, 699.5)])
    fields = ",".join(f"c{n}={n}.5" for n in range(1_200))
    assert server.write(f"w {fields} {START + 1}\nv n=1i {START}") == (204, None)
    has(mariadb, "select n from v", [(1,)])
    eventually("a stream that fails", lambda: follower(server)["suspended_streams"] == 1)
    error = follower(server)["last_error"][0]
    assert "Too many columns" in error or "Row size too large" in error


def test_archives_are_added_and_removed_while_the_server_runs(tmp_path: pathlib.Path, mariadb: Peer) -> None:
    def archive(*arguments: str, code: int = 0) -> str:
        command = [BINARY, "archive", *arguments, "--server", f"127.0.0.1:{server.http_port}"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    secret = tmp_path / "secret"
    secret.write_text(PASSWORD + "\n")
    configured = "[[archive]]\nname = \"fixed\"\ntarget = \"questdb\"\nurl = \"http://127.0.0.1:1\"\n"
    server = Server(folder=tmp_path, config=configured).start()
    assert server.write(f"a n=1i {START}\nb n=1i {START}") == (204, None)
    url = f"mariadb://archive@127.0.0.1:{mariadb.ports['mysql']}/telemetry"
    new = ("add", "copy", "--target", "mariadb", "--url", url)
    assert "expected one of `postgres`" in archive("add", "copy", "--target", "oracle", "--url", url, code=1)
    assert "no such key" in archive(*new, "--set", "topic_prefix=x", code=1)
    assert "name" in archive("add", "../copy", "--target", "mariadb", "--url", url, code=1)
    assert "of the configuration" in archive("remove", "fixed", code=1)
    assert "remove it first" in archive("add", "fixed", "--target", "mariadb", "--url", url, code=1)
    assert not (tmp_path / "store/archives.json").exists()
    archive(*new, "--password-file", str(secret), "--channels", "a.*", "--set", "interval_ms=0")
    has(mariadb, "select n from a", [(1,)])
    assert (tmp_path / "store/followers/copy.password").stat().st_mode & 0o777 == 0o600
    assert "secret" not in (tmp_path / "store/archives.json").read_text()
    # It is there after a restart, and continues.
    assert server.stop() == 0
    server.start()
    assert server.write(f"a n=2i {START + 1}") == (204, None)
    has(mariadb, "select count(*), sum(n) from a", [(2, 3)])
    assert rows(mariadb, "select * from b") == []
    assert [(one["name"], one["configured"]) for one in server.get("/api/followers")["followers"]] == [("fixed", True), ("copy", False)]
    assert "removed" in archive("remove", "copy")
    assert server.write(f"a n=3i {START + 2}") == (204, None)
    assert "no archive" in archive("remove", "copy", code=1)
    assert "copy" not in archive("list")
    assert [path.name for path in (tmp_path / "store/followers").iterdir() if path.name.startswith("copy")] == []
    assert server.stop() == 0
    server.start()
    assert len(server.get("/api/followers")["followers"]) == 1
    # Added again, it goes on where this database says.
    archive(*new, "--password-file", str(secret), "--channels", "a.*", "--set", "interval_ms=0")
    has(mariadb, "select count(*), sum(n) from a", [(3, 6)])
    assert server.stop() == 0
