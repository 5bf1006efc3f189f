"""Statements that mean here what they mean in PostgreSQL. What they return was taken from PostgreSQL 15."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from strongback import Server

UTC = datetime.UTC
V = "(values (1),(2),(3)) v(x)"


def at(*parts: int) -> datetime.datetime:
    """Returns an instant."""
    return datetime.datetime(*parts, tzinfo=UTC)  # type: ignore[misc,arg-type]


def seconds(count: float) -> datetime.timedelta:
    """Returns a duration."""
    return datetime.timedelta(seconds=count)


HOURS = [at(2024, 1, 1, 0), at(2024, 1, 1, 6), at(2024, 1, 1, 12)]

MEANT: list[tuple[str, list[tuple[Any, ...]]]] = [
    # In an expression of ORDER BY, a name is a column of the table.
    (f"select -x as x from {V} order by x + 0", [(-1,), (-2,), (-3,)]),
    (f"select -x as x from {V} order by x", [(-3,), (-2,), (-1,)]),
    ("select -n as n from t order by n * 2", [(-1,), (-2,), (-3,)]),
    ("select -n as n from t as u order by abs(n), n", [(-1,), (-2,), (-3,)]),
    ("select n, -n as m from t order by m + 0", [(3, -3), (2, -2), (1, -1)]),
    # Columns that differ in a cast alone.
    ("select round(x), round(x::numeric) from (values (2.5::float8)) v(x)", [(2.0, 3)]),
    ("select abs(n), abs(n::float8), abs(n) from t where n = 2", [(2, 2.0, 2)]),
    ("select x as \"X\", x from (values (1)) v(x) order by x + 1", [(1, 1)]),
    # Times.
    ("select date_trunc('hour', timestamptz '2024-01-01 10:30+00', 'Asia/Kolkata')", [(at(2024, 1, 1, 10, 30),)]),
    ("select date_trunc('day', timestamptz '2024-07-01 10:30+00', 'Europe/Berlin')", [(at(2024, 6, 30, 22),)]),
    ("select date_trunc('decade', timestamptz '2029-04-01 10:30+00')", [(at(2020, 1, 1),)]),
    ("select date_trunc('century', timestamptz '2000-04-01 10:30+00')", [(at(1901, 1, 1),)]),
    ("select date_trunc('millennium', timestamptz '2000-04-01 10:30+00')", [(at(1001, 1, 1),)]),
    ("select date_trunc('milliseconds', timestamptz '2024-01-01 00:00:00.123456+00')", [(at(2024, 1, 1, 0, 0, 0, 123000),)]),
    ("select date_trunc('hours', timestamptz '2024-01-01 00:59+00')", [(at(2024, 1, 1),)]),
    ("select 'epoch'::timestamptz, timestamptz 'epoch' + interval '1 s'", [(at(1970, 1, 1), at(1970, 1, 1, 0, 0, 1))]),
    ("select timestamptz(0) '2024-01-01 00:00:00.6+00'", [(at(2024, 1, 1, 0, 0, 1),)]),
    ("select '2024-01-01 00:00:00.1254+00'::timestamptz(3)", [(at(2024, 1, 1, 0, 0, 0, 125000),)]),
    ("select '1969-12-31 23:59:59.4'::timestamp(0)", [(datetime.datetime(1969, 12, 31, 23, 59, 59),)]),
    ("select to_date('05.01.2024', 'DD.MM.YYYY')", [(datetime.date(2024, 1, 5),)]),
    ("select to_timestamp('2024-01-05 10:11:12', 'YYYY-MM-DD HH24:MI:SS')", [(at(2024, 1, 5, 10, 11, 12),)]),
    ("select clock_timestamp() >= now()", [(True,)]),
    # Series of times.
    (
        "select * from generate_series(timestamptz '2024-01-01 00:00+00', timestamptz '2024-01-01 12:00+00', interval '6 h')",
        [(hour,) for hour in HOURS],
    ),
    (
        "select g from generate_series(timestamptz '2024-01-01 12:00+00', '2024-01-01 00:00+00', '-6 hours') as s(g)",
        [(hour,) for hour in reversed(HOURS)],
    ),
    (
        "select g::date from generate_series(timestamp '2024-01-31', '2024-04-30', '1 month') as s(g)",
        [(datetime.date(2024, month, day),) for month, day in ((1, 31), (2, 29), (3, 29), (4, 29))],
    ),
    ("select count(*) from generate_series(timestamptz '2024-01-01', timestamptz '2024-01-02', interval '1 s')", [(86_401,)]),
    ("select n + 1 from generate_series(1, 2) n order by n", [(2,), (3,)]),
    ("select \"N\".\"N\", generate_series from generate_series(1, 1) as \"N\", generate_series(3, 3)", [(1, 3)]),
    ("select count(*) from generate_series(timestamptz '2024-01-02', timestamptz '2024-01-01', interval '1 s')", [(0,)]),
    (
        "select g, count(n) from generate_series(timestamptz '2025-11-20 00:53:20+00', '2025-11-20 00:53:23+00', '1 s') s(g)"
        " left join t on t.time >= g and t.time < g + interval '1 s' group by g order by g",
        [(at(2025, 11, 20, 0, 53, 20 + n), 1 if n < 3 else 0) for n in range(4)],
    ),
    # Arrays.
    ("select array_remove(array[1,2,3,2], 2)", [([1, 3],)]),
    ("select (array[1,2,3])[1], (array[1,2,3])[0], (array[1,2,3])[-1], (array[1,2,3])[4]", [(1, None, None, None)]),
    (f"select (array[7,8,9])[x - 1] from {V}", [(None,), (7,), (8,)]),
    # Bytes and texts.
    (r"select '\x4142'::bytea, '\x'::bytea, 'a\\b\101'::bytea, 'ab'::bytea", [(b"AB", b"", b"a\\bA", b"ab")]),
    ("select 'abc' ^@ 'ab', 'abc' ^@ 'b'", [(True, False)]),
    # Intervals: a number without a unit is seconds.
    (
        "select '5'::interval, '1.5'::interval, '1 day 5'::interval, '-3'::interval, '2 min'::interval",
        [(seconds(5), seconds(1.5), seconds(86_405), seconds(-3), seconds(120))],
    ),
    ("select date_bin('10', timestamptz '2024-01-01 00:00:17+00', 'epoch')", [(at(2024, 1, 1, 0, 0, 10),)]),
    (
        "select to_char(timestamptz '2024-01-02 03:04:05.678+00' - timestamptz '2024-01-01 00:00+00', 'DD HH24:MI:SS.MS')",
        [("01 03:04:05.678",)],
    ),
    ("select to_timestamp(1763600000.25), to_timestamp(-0.5)", [
        (at(2025, 11, 20, 0, 53, 20, 250000), at(1969, 12, 31, 23, 59, 59, 500000)),
    ]),
    # Comparisons with the rows of a subquery over the same table.
    ("select n from t where n >= all (select n from t)", [(3,)]),
    ("select n from t where n > any (select n from t where n > 1) order by n", [(3,)]),
    ("select n from t where n < all (select n from t where n > 2) order by n", [(1,), (2,)]),
    ("select n from t where n < any (select n from t where n < 3) order by n", [(1,)]),
    ("select n from t where n = any (select n from t where n < 3) order by n", [(1,), (2,)]),
    ("select n from t where n <> all (select n from t where n < 3)", [(3,)]),
    # Limits of what is in order already, and of windows over all rows.
    ("select n, row_number() over (order by time) from s order by time_ns limit 2", [(0, 1), (1, 2)]),
    ("select n, row_number() over (order by time_ns) from s order by time limit 2 offset 3", [(3, 4), (4, 5)]),
    ("select n from (select * from s order by time limit 8) q order by time_ns limit 2", [(0,), (1,)]),
    ("select count(*) from (select n from (select * from s order by time) q order by time_ns limit 3) r", [(3,)]),
    ("select n, count(*) over () from s order by time limit 2", [(0, 10), (1, 10)]),
    ("select max(n) over () as m, avg(n) over () - n from s order by time_ns limit 2", [(9, 4.5), (9, 3.5)]),
    ("select n, count(*) over (partition by 1) from s order by time desc limit 2", [(9, 10), (8, 10)]),
    (
        "select date_bin('2 s', time, timestamptz '2025-11-20 00:53:20+00') as m, count(*), sum(count(*)) over ()"
        " from s group by 1 order by 1 limit 2",
        [(at(2025, 11, 20, 0, 53, 20), 2, 10), (at(2025, 11, 20, 0, 53, 22), 2, 10)],
    ),
    ("select a.n, b.n from s a join s b on a.n = b.n order by b.time limit 3", [(0, 0), (1, 1), (2, 2)]),
    ("select a.n from s a join s b on a.time = b.time order by b.time, a.n offset 8", [(8,), (9,)]),
    ("select b.n from t a right join s b on a.n = b.n order by b.time desc limit 2", [(9,), (8,)]),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with three rows in a table, and ten of two streams in another."""
    running = Server(folder=tmp_path_factory.mktemp("meaning")).start()
    lines = [f"t n={n}i {1_763_600_000 + n - 1}000000000" for n in (1, 2, 3)]
    lines += [f"s,k={'ab'[n % 2]} n={n}i {1_763_600_000 + n}000000000" for n in range(10)]
    assert running.write("\n".join(lines)) == (204, None)
    yield running
    assert running.stop() == 0


@pytest.mark.parametrize(("sql", "rows"), MEANT)
@pytest.mark.parametrize("binary", [False, True])
def test_it_means_what_it_means_there(server: Server, sql: str, rows: list[tuple[Any, ...]], binary: bool) -> None:
    with server.connect() as connection, connection.cursor(binary=binary) as cursor:
        assert cursor.execute(sql).fetchall() == rows


WRONG = [
    (r"select '\x4'::bytea", "22P02"),
    (r"select 'a\9'::bytea", "22P02"),
    ("select 'infinity'::timestamptz", "0A000"),
    ("select * from generate_series(timestamptz '2024-01-01', timestamptz '2024-01-02', interval '0 s')", "22023"),
    ("select * from generate_series(timestamptz '2024-01-01', timestamptz '2024-01-02', 'now and then')", "22"),
    ("select to_date('2024', 'YYYY Q')", "0A000"),
    ("select to_char(time - time, 'Day') from t", "0A000"),
    ("explain (bogus) select 1", "42601"),
    ("explain (analyze, format json) select 1", "0A000"),
]


@pytest.mark.parametrize(("sql", "state"), WRONG)
def test_what_is_wrong_is_an_error(server: Server, sql: str, state: str) -> None:
    with server.connect() as connection:
        with pytest.raises(psycopg.Error) as error:
            connection.execute(sql).fetchall()
        assert (error.value.sqlstate or "").startswith(state), error.value
        assert connection.execute("select 1").fetchone() == (1,)
