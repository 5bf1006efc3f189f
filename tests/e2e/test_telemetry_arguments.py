"""Arguments of the SQL functions for telemetry that are expressions of parameters, or queries."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from strongback import Server

MS, SECOND = 1_000_000, 1_000_000_000
BEGIN = 1_763_600_000 * SECOND
FIRST = datetime.datetime.fromtimestamp(BEGIN // SECOND, datetime.UTC)


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with ten samples of a channel, one every 100 ms, and a table of marks in time."""
    running = Server(folder=tmp_path_factory.mktemp("arguments")).start()
    lines = [f"t x={n}i {BEGIN + n * 100 * MS}" for n in range(10)]
    lines += [f'log event="{name}" {BEGIN + at * MS}' for name, at in (("lit", 250), ("cut", 650))]
    assert running.write("\n".join(lines)) == (204, None)
    yield running
    assert running.stop() == 0


def rows(connection: psycopg.Connection, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """Returns the rows of a query."""
    return connection.execute(sql, parameters or None).fetchall()


def test_intervals_that_a_client_gives(server: Server) -> None:
    hour, late = datetime.timedelta(hours=1), FIRST + datetime.timedelta(milliseconds=450)
    with server.connect() as connection:
        for sql, parameters, found in (
            ("select count(*) from t where time > %s - %s", (late, hour), 10),
            ("select count(*) from t where time between %s - %s and %s", (late, hour, late), 5),
            ("select count(*) from t where time > now() - %s", (hour,), 0),
            ("select count(*) from t where time + %s > %s", (hour, late + hour), 5),
            ("select count(*) from generate_series(%s::timestamptz, %s::timestamptz, interval '150 ms')", (FIRST, late), 4),
            ("select count(*) from t where time >= %s::timestamptz - %s::interval", (late, "0.1"), 6),
        ):
            for _ in range(7):
                assert rows(connection, sql, *parameters) == [(found,)], sql
        connection.execute("prepare later(interval) as select count(*) from t where time < now() - $1")
        assert rows(connection, "execute later('1 hour')") == [(10,)]


def test_now_is_one_time_in_a_call(server: Server) -> None:
    with server.connect() as connection:
        for _ in range(20):
            call = "select count(*) from resample('t.x', now() - interval '1 minute', now(), '1 s', 'linear')"
            assert rows(connection, call) == [(60,)]


def test_arguments_that_are_left_out_and_lists_of_channels(server: Server) -> None:
    span = "'2025-11-20 00:53:20', '2025-11-20 00:53:21'"
    with server.connect() as connection:
        whole = rows(connection, f"select count, known_ns from summary('t.x', {span})")
        assert rows(connection, f"select count, known_ns from summary('t.x', {span}, null)") == whole
        assert rows(connection, f"select count, known_ns from summary('t.x', {span}, null, null)") == whole
        both = rows(connection, f"select count(*) from samples('t.x, log.event', {span})")
        assert both == [(12,)]
        with pytest.raises(psycopg.Error, match="no channel matches t.y"):
            rows(connection, f"select count(*) from samples('t.x,t.y', {span})")


def test_parameters_inside_expressions(server: Server) -> None:
    values = "select number::int from samples('t.x', "
    with server.connect() as connection:
        for n in range(8):
            # From the sixth time on psycopg runs what it has prepared.
            late = FIRST + datetime.timedelta(milliseconds=100 * n)
            found = rows(connection, values + "%s - interval '100 ms', %s + interval '50 ms')", late, late)
            assert found == [(of,) for of in (n - 1, n) if of >= 0], n
            length = datetime.timedelta(milliseconds=n * 100)
            found = rows(connection, values + f"{BEGIN}, timestamptz '2025-11-20 00:53:20+00' + %s)", length)
            assert found == [(of,) for of in range(n)], n
            found = rows(connection, values + f"{BEGIN}, '2025-11-20 00:53:20+00'::timestamptz + %s * interval '0.1 s')", n)
            assert found == [(of,) for of in range(n)], n
        found = rows(connection, values + "%s::timestamptz - %s::interval, %s)", "2025-11-20 00:53:20.2+00", "50 ms", late)
        assert found == [(n,) for n in range(2, 7)]


def test_a_query_is_an_argument(server: Server) -> None:
    lit = "(select time from log where event = 'lit')"
    with server.connect() as connection:
        for n in range(8):
            assert server.write(f"t x={10 + n}i {BEGIN + (10 + n) * 100 * MS}") == (204, None)
            found = rows(connection, "select number::int from state_at((select max(time) from t), 't.x')")
            assert found == [(10 + n,)], "it is asked anew for each run"
        assert rows(connection, f"select number::int from samples('t.x', {lit}, {lit} + interval '200 ms')") == [(3,), (4,)]
        between = "select number::int from samples('t.x', {}, (select time from log where event = %s))"
        assert rows(connection, between.format(lit), "cut") == [(3,), (4,), (5,), (6,)]
        named = f"with e as (select * from log), c as ({between.format('(select min(time) from e)')}) select * from c"
        assert rows(connection, named, "cut") == [(3,), (4,), (5,), (6,)]
        inner = "(select to_time from states('t.x', (select min(time) from log), now()) order by 1 limit 1)"
        assert rows(connection, f"select number::int from samples('t.x', {inner}, {inner} + interval '1 ms')") == [(3,)]
        assert rows(connection, "select * from state_at((select time from log where event = 'none'), 't.x')") == []
        columns = rows(connection, f"select * from resample('t.x', {lit}, {lit} + interval '1 s', '500 ms', 'previous')")
        assert [row[2] for row in columns] == [2, 7]


@pytest.mark.parametrize(
    ("argument", "sqlstate", "says"),
    [
        ("(select time from log)", "21000", "more than one row"),
        ("(select time, event from log limit 1)", "42601", "only one column"),
        ("(select nothing from log limit 1)", "42703", "nothing"),
        ("(select event from log where event = 'lit')", "22", "lit"),
        ("(select null::timestamptz)", "22004", "NULL"),
        ("(select 1 / (x - x) from t limit 1)", "22012", "zero"),
        ("t.time", "22023", "constant"),
    ],
)
def test_queries_that_are_no_argument(server: Server, argument: str, sqlstate: str, says: str) -> None:
    with server.connect() as connection:
        with pytest.raises(psycopg.Error, match=says) as error:
            rows(connection, f"select * from samples('t.x', {argument}, now())")
        assert (error.value.sqlstate or "").startswith(sqlstate), error.value
        assert rows(connection, "select 1") == [(1,)]


def test_queries_inside_each_other_have_a_limit(server: Server) -> None:
    argument = "now()"
    for _ in range(6):
        argument = f"(select max(to_time) from states('t.x', {BEGIN}, {argument}))"
    with server.connect() as connection, pytest.raises(psycopg.Error, match="inside each other") as error:
        rows(connection, f"select * from samples('t.x', {BEGIN}, {argument})")
    assert error.value.sqlstate == "54000"
