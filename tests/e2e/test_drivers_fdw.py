"""A real PostgreSQL reads the server's tables as foreign tables: postgres_fdw imports, pushes down, joins."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import drivers
import psycopg
import pytest
from driver_checks import Answers
from driver_clients import OIDS, native, rows_of, with_marks
from driver_matrix import CLIENTS
from private_postgres import PrivatePostgres
from strongback import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the tables that drivers are asked about."""
    running = drivers.serve(tmp_path_factory.mktemp("fdw"))
    yield running
    assert running.stop() == 0, running.last_words()


@pytest.fixture(scope="module")
def postgres(server: Server) -> Iterator[psycopg.Connection[Any]]:
    """A session of a PostgreSQL that has the server's schema `public` as its own schema `far`."""
    with PrivatePostgres() as private, private.connect() as connection:
        options = f"host '127.0.0.1', port '{server.pg_port}', dbname 'strongback', fetch_size '{drivers.PART}'"
        for sql in (
            "create extension postgres_fdw",
            f"create server strongback foreign data wrapper postgres_fdw options ({options})",
            "create user mapping for current_user server strongback options (user 'anyone')",
            "create schema far",
            "import foreign schema public from server strongback into far",
            "create foreign table far.wrong (p float8) server strongback "
            "options (schema_name 'public', table_name 'nothing')",
            "create foreign table far.unknown (p float8 options (column_name 'nothing')) server strongback "
            "options (schema_name 'public', table_name 'engine')",
            "set search_path to far, public",
            "set timezone to 'America/New_York'",
        ):
            connection.execute(sql)
        yield connection


def plan_of(connection: psycopg.Connection[Any], sql: str) -> str:
    """Returns how PostgreSQL runs a statement, with what it sends."""
    return "\n".join(line for (line,) in connection.execute(f"explain (verbose, costs off) {sql}"))


def state_of(connection: psycopg.Connection[Any], sql: str) -> str:
    """Returns the SQLSTATE with which a statement fails."""
    try:
        connection.execute(sql)
    except psycopg.Error as error:
        return str(error.sqlstate)
    return "no error"


class Fdw:
    """Answers the questions by foreign tables."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def ask(self, sql: str, arguments: list[dict[str, Any]] | None = None) -> dict[str, Any]:
        """Returns types and rows of a statement. Its parameters are sent on as such."""
        with self.connection.transaction():
            self.connection.execute("set local plan_cache_mode to force_generic_plan")
            cursor = self.connection.execute(with_marks(sql), [native(a) for a in arguments or []], prepare=True)
            types = [OIDS.get(column.type_code, str(column.type_code)) for column in cursor.description or []]
            return {"types": types, "rows": rows_of(cursor.fetchall())}

    def answer(self, feature: str) -> Any:
        """Returns the answer about a feature that all clients have in common."""
        match feature:
            case "values":
                return self.ask(drivers.VALUES)
            case "special":
                return self.ask(drivers.SPECIAL)
            case "arrays":
                return self.ask(drivers.ARRAYS_SQL)
            case "elements":
                return self.ask(drivers.ELEMENTS)
            case "any":
                return [self.ask(sql, arguments) for sql, arguments, _ in drivers.ANY]
            case "limit":
                return self.ask(*drivers.LIMIT[:2])
            case "prepared":
                rows = []
                for value in drivers.PREPARED_VALUES:
                    rows += self.ask(drivers.PREPARED, [{"kind": "int", "value": value}])["rows"]
                return {"rows": rows}
        raise AssertionError(feature)


@pytest.mark.parametrize("feature", CLIENTS["fdw"].cells())
def test_fdw(postgres: psycopg.Connection[Any], feature: str) -> None:
    fdw = Fdw(postgres)
    match feature:
        case "connect":
            assert postgres.execute("select count(*) from engine").fetchone() == (len(drivers.ENGINE_ROWS),)
        case "columns":
            columns = postgres.execute(
                "select a.attname, format_type(a.atttypid, a.atttypmod) from pg_attribute a "
                "where a.attrelid = 'far.engine'::regclass and a.attname = any(%s) order by a.attnum",
                ([name for name, _ in drivers.ENGINE_COLUMNS],),
            )
            assert columns.fetchall() == [
                ("time", "timestamp with time zone"),
                ("stand", "text"),
                ("p", "double precision"),
                ("count", "bigint"),
                ("big", "numeric(20,0)"),
                ("open", "boolean"),
                ("note", "text"),
            ]
        case "parameters":
            for sql, arguments, expected in drivers.PARAMETERS:
                if "state_at" not in sql:
                    assert fdw.ask(sql, arguments)["rows"] == expected, sql
        case "parts":
            assert "Foreign Scan" in plan_of(postgres, drivers.PARTS)
            with postgres.transaction(), postgres.cursor("parts") as cursor:
                cursor.execute(drivers.PARTS)
                rows = cursor.fetchall()
            assert rows == [(n, n / 8) for n in range(drivers.ROWS)]
        case "errors":
            assert state_of(postgres, "select p from wrong") == "42P01"
            assert state_of(postgres, "select p from unknown") == "42703"
            assert state_of(postgres, "update engine set p = 1") == "25006"
            assert state_of(postgres, "delete from engine") == "25006"
            assert state_of(postgres, "insert into engine (p) values (1)") == "25006"
            assert state_of(postgres, "select 1 / (count - count) from engine") == "22012"
        case "cancel":
            fdw_cancel(postgres)
        case "transactions":
            with postgres.transaction():
                assert postgres.execute("select max(n) from many").fetchone() == (drivers.ROWS - 1,)
                with pytest.raises(psycopg.errors.UndefinedTable), postgres.transaction():
                    postgres.execute("select p from wrong")
                assert postgres.execute("select min(n) from many").fetchone() == (0,)
            assert postgres.execute("select count(*) from kinds").fetchone() == (len(drivers.KIND_ROWS),)
        case "metadata":
            found = postgres.execute("select foreign_table_name from information_schema.foreign_tables order by 1")
            assert [name for (name,) in found] == ["engine", "kinds", "lab", "many", "special", "unknown", "wrong"]
            postgres.execute(
                "import foreign schema strongback limit to (sources, gaps) from server strongback into public"
            )
            postgres.execute("analyze engine")
            assert postgres.execute("select reltuples from pg_class where oid = 'engine'::regclass").fetchone() == (30,)
        case _:
            answers = {feature: {"value": fdw.answer(feature)}}
            if feature == "arrays":
                answers["elements"] = {"value": fdw.answer("elements")}
            Answers(answers).check(feature)


def fdw_cancel(postgres: psycopg.Connection[Any]) -> None:
    """Asserts that a cancelled statement is cancelled at the server, and that its connection is used again."""
    ended = threading.Event()

    def cancel() -> None:
        while not ended.is_set():
            postgres.cancel_safe()

    canceller = threading.Thread(target=cancel)
    sql = "select count(*) from many a, many b, many c where a.p + b.p + c.p < 0"
    assert "Relations: Aggregate on" in plan_of(postgres, sql)
    canceller.start()
    state = state_of(postgres, sql)
    ended.set()
    canceller.join()
    assert state == "57014"
    # A request that was on its way meets the next statement.
    while (found := state_of(postgres, "select count(*) from many")) == "57014":
        pass
    assert found == "no error"


# Each with a part of what is sent for it, and its rows.
PUSHED_DOWN = [
    (
        "select count from engine where stand = '1' and p > 2 and time >= '2025-10-09 08:53:20.020Z' "
        "and note like 'note 2%' order by count",
        ["stand = '1'", "p > 2::double precision", "\"time\" >= '2025-10-09 04:53:20.02-04'", "note ~~ 'note 2%'"],
        [(22,), (25,), (28,)],
    ),
    (
        "select stand, count(*), max(p) from engine group by stand order by stand",
        ["count(*), max(p)", "GROUP BY 1", "ORDER BY"],
        [("0", 10, 27 / 8), ("1", 10, 28 / 8), ("2", 10, 29 / 8)],
    ),
    (
        "select e.count, m.n from engine e join many m on m.time = e.time where e.stand = '2' and m.n < 6 "
        "order by e.count",
        ["INNER JOIN public.many"],
        [(2, 2), (5, 5)],
    ),
    (
        "select count from engine where count in (3, 4, 99) and open is not null "
        "and big > 9223372036854775811 order by count",
        ["count = ANY ('{3,4,99}'::bigint[])", "open IS NOT NULL", "9223372036854775811::numeric"],
        [(4,)],
    ),
]


@pytest.mark.parametrize("sql, parts, rows", PUSHED_DOWN)
def test_conditions_are_pushed_down(
    postgres: psycopg.Connection[Any], sql: str, parts: list[str], rows: list[Any]
) -> None:
    remote = plan_of(postgres, sql).partition("Remote SQL:")[2]
    assert [part for part in parts if part not in remote] == [], remote
    assert postgres.execute(sql).fetchall() == rows


def test_far_and_own_rows_are_joined(postgres: psycopg.Connection[Any]) -> None:
    postgres.execute("create temporary table names (stand text, name text)")
    postgres.execute("insert into names values ('0', 'north'), ('2', 'south')")
    found = postgres.execute(
        "select name, count(*), max(p) from names join engine using (stand) where p >= 1 group by name order by name"
    )
    assert found.fetchall() == [("north", 7, 27 / 8), ("south", 8, 29 / 8)]
