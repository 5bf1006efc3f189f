"""psycopg reads by named cursors, as rows of copy data, and after an error within a nested transaction."""

from __future__ import annotations

import datetime

import psycopg
import pytest
from strongback import Server

ROWS = 2_500
BEGIN_NS = 1_760_000_000_000_000_000
BEGIN = datetime.datetime.fromtimestamp(BEGIN_NS // 1_000_000_000, datetime.timezone.utc)


def connect(server: Server) -> psycopg.Connection[tuple]:
    """A connection to the server, with rows in its table `engine`."""
    lines = (f"engine,stand=1 p={i / 8},count={i}i {BEGIN_NS + i * 1_000_000}" for i in range(ROWS))
    assert server.write("\n".join(lines))[0] == 204
    return psycopg.connect(host="127.0.0.1", port=server.pg_port, dbname="strongback", user="anyone")


@pytest.mark.parametrize("binary", [False, True])
def test_a_named_cursor_reads_in_parts(server: Server, binary: bool) -> None:
    with connect(server) as connection, connection.cursor("Big one", binary=binary) as cursor:
        cursor.itersize = 400
        cursor.execute("select count, p, time from engine where count >= %s order by time", (2,))
        assert cursor.fetchone() == (2, 0.25, BEGIN + datetime.timedelta(milliseconds=2))
        cursor.scroll(10)
        assert [row[0] for row in cursor] == list(range(13, ROWS))


def test_a_cursor_is_used_again_and_closed(server: Server) -> None:
    with connect(server) as connection:
        cursor = connection.cursor("again")
        for limit in (3, 5):
            cursor.execute("select count from engine order by time limit %s", (limit,))
            assert len(cursor.fetchall()) == limit
        cursor.close()
        assert connection.execute("select count(*) from engine").fetchone() == (ROWS,)


@pytest.mark.parametrize("form", ["binary", "text"])
def test_copied_rows_are_the_stored_ones(server: Server, form: str) -> None:
    with connect(server) as connection, connection.cursor() as cursor:
        query = "select count, p, time, stand from engine order by time"
        with cursor.copy(f"copy ({query}) to stdout (format {form})") as copy:
            copy.set_types(["int8", "float8", "timestamptz", "text"])
            rows = list(copy.rows())
        assert rows == [(i, i / 8, BEGIN + datetime.timedelta(milliseconds=i), "1") for i in range(ROWS)]


def test_an_inner_transaction_fails_alone(server: Server) -> None:
    with connect(server) as connection, connection.transaction():
        with pytest.raises(psycopg.errors.UndefinedColumn), connection.transaction():
            connection.execute("select nothing from engine")
        assert connection.execute("select max(count) from engine").fetchone() == (ROWS - 1,)


CONDITION = '"engine.p{stand=1}" >= 0'
OPEN = f"select max(to_time) from intervals('{CONDITION}', now() - interval '100 years', now())"
"""The span that goes on, up to `now()`."""


@pytest.mark.parametrize("kind", ["protocol", "statement"])
def test_now_in_a_call_is_that_of_each_run(server: Server, kind: str) -> None:
    with connect(server) as connection:
        connection.autocommit = True
        if kind == "statement":
            connection.execute(f"prepare spans as {OPEN}")
        sql = OPEN if kind == "protocol" else "execute spans"
        for _ in range(4):
            (before,) = connection.execute("select now()").fetchone()
            (end,) = connection.execute(sql, prepare=kind == "protocol").fetchone()
            assert end >= before


def test_rows_without_an_order_come_as_they_are_stored(server: Server) -> None:
    rows = 80_000
    for stand in (1, 2):
        lines = (f"rig,stand={stand} n={i}i {BEGIN_NS + i * 1_000}" for i in range(rows))
        assert server.write("\n".join(lines))[0] == 204
    with connect(server) as connection:
        for _ in range(3):
            found = connection.execute("select stand, n * 2 from rig where n * 2 >= 10").fetchall()
            assert found == [(str(stand), n * 2) for stand in (1, 2) for n in range(5, rows)]
            sql = "select channel, count / 2 from summary('rig.*', '2025-01-01', '2026-01-01')"
            assert connection.execute(sql).fetchall() == [(f"rig.n{{stand={n}}}", rows // 2) for n in (1, 2)]
            assert connection.execute("select n + 1 from rig where n >= 7 limit 2").fetchall() == [(8,), (9,)]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("select p from engine where time > '2026-13-01'", "2026-13-01"),
        ("select p from engine where p = 'abc'", "abc"),
        ("select sum(time) from engine", "sum"),
        ("select summary('engine.p')", "summary is a table function"),
        ("select * from sumary('engine.p', 0, 1)", "sumary"),
        ("select mode(p) from engine", "mode"),
        ("set strongback.mark = 'ignore'", "strongback.mark"),
    ],
)
def test_errors_speak_of_the_statement(server: Server, sql: str, message: str) -> None:
    with connect(server) as connection, pytest.raises(psycopg.Error) as error:
        connection.execute(sql)
    text = str(error.value)
    assert message in text
    for inner in ("Optimizer rule", "DataFusion", "bug report", "type_coercion", "during planning", "cbrt", "md5"):
        assert inner not in text


ANSWERS = {
    "select p.n, q.n from pair p right join pair q on p.a = q.a where (p.n = 1 or q.n = 3) and q.n >= 0": [
        (1, 0),
        (1, 1),
        (3, 3),
    ],
    "select (case when n = 5 then n else f end) + v from pair where n = 1": [(4.25,)],
    "select -(case when n = 5 then n else f end) from pair where n = 1": [(-2.25,)],
    "select y * 2 from (select n y from pair where n = 1 union all select f from pair where n = 1) u": [(2,), (4.5,)],
    "select min(case when n = 1 then 1 else 0.5 end) * 3 from pair": [(1.5,)],
    "select n from pair where v not in (1, 2) or v not in (5, 6)": [(0,), (1,), (3,)],
    "select n from pair where not (v in (1, 2, 3, 4) and v in (5, 6, 7, 8))": [(0,), (1,), (3,)],
    "select n from pair where v in (1, 2) and v not in (3, null)": [],
    "select distinct on (k) n from ties order by k, time desc, n": [(0,)],
    "select distinct on (k) n from ties order by k, time, n desc": [(4,)],
    "select last_value(n order by time, n) from ties": [(4,)],
    "select n from pair where n = any('{0.5,1.5}'::float8[])": [],
    "select ~n, ~(n + 1) from pair where n > 1": [(-4, -5), (-3, -4)],
    "select count((v = 1) is false), count(*) filter (where (v = 1) is false) from pair": [(4, 3)],
}
"""Statements with the answers of PostgreSQL, their rows sorted."""


@pytest.mark.parametrize("sql", ANSWERS)
def test_answers_are_those_of_postgresql(pairs: Server, sql: str) -> None:
    with connect(pairs) as connection:
        assert sorted(connection.execute(sql).fetchall()) == ANSWERS[sql]


@pytest.fixture
def pairs(server: Server) -> Server:
    rows = ["a=1,f=2.25,n=1i,v=2i", "a=1,f=9.75,n=0i,v=9i", "a=2,f=9.75,n=3i,v=9i"]
    lines = [f"pair {row} {BEGIN_NS + at}" for at, row in enumerate(rows)]
    lines += [f"pair a=3,f=1,n=2i {BEGIN_NS + 3}"]
    lines += [f"ties,k=a n={n}i {BEGIN_NS}" for n in range(5)]
    assert server.write("\n".join(lines))[0] == 204
    return server


def test_a_float_array_is_not_rounded(server: Server) -> None:
    with connect(server) as connection:
        sql = "select count from engine where count = any(%s) order by count"
        assert connection.execute(sql, ([7.0, 7.5, 8.25],)).fetchall() == [(7,)]
        assert connection.execute("select count(*) from engine where count <> all(%s)", ([7.5],)).fetchone() == (ROWS,)
        assert connection.execute(sql, ([1e300],)).fetchall() == []


def test_many_equal_members_cost_no_time_for_each_pair(server: Server) -> None:
    """With a step for each pair, this takes minutes."""
    rows = 150_000
    lines = (f"rig,k={i % 4} v={i % 9}i {BEGIN_NS + i * 1_000}" for i in range(rows))
    assert server.write("\n".join(lines))[0] == 204
    with connect(server) as connection:
        connection.execute("set statement_timeout = '60s'")
        sql = "select count(*) from rig x where k in (select k from rig where v > 5)"
        assert connection.execute(sql).fetchone() == (rows,)
        sql = "select count(*) from rig x where not exists (select 1 from rig y where y.k = x.k and y.v > 5)"
        assert connection.execute(sql).fetchone() == (0,)
