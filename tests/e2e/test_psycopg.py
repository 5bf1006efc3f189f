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
