"""Clients in Python read what was written: psycopg 3 and 2, asyncpg, SQLAlchemy with reflection, pandas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import asyncpg
import drivers
import pandas
import psycopg
import psycopg2.extensions
import pytest
import sqlalchemy
from driver_checks import Answers
from driver_clients import ASKERS, Asker, Asyncpg, Psycopg, Psycopg2, SqlAlchemy, native, rows_of, with_marks
from driver_matrix import CLIENTS
from strongback import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the tables that drivers are asked about."""
    running = drivers.serve(tmp_path_factory.mktemp("python"))
    yield running
    assert running.stop() == 0, running.last_words()


@pytest.fixture(scope="module")
def askers(server: Server) -> Iterator[dict[str, Asker]]:
    """A connection of each client."""
    connected = {name: connect(server) for name, connect in ASKERS.items()}
    yield connected
    for asker in connected.values():
        asker.close()


def check(asker: Asker, feature: str) -> None:
    """Asserts that a feature that all drivers have in common works."""
    answers = {feature: {"value": asker.answer(feature)}}
    if feature == "arrays":
        answers["elements"] = {"value": asker.answer("elements")}
    Answers(answers).check(feature)


OWN = ("transactions", "reset", "metadata")
"""Features that each client has in its own way."""


@pytest.mark.parametrize("feature", CLIENTS["psycopg"].cells())
def test_psycopg(server: Server, askers: dict[str, Asker], feature: str) -> None:
    asker = askers["psycopg"]
    assert isinstance(asker, Psycopg)
    if feature not in OWN:
        check(asker, feature)
        if feature in ("values", "special", "arrays", "columns"):
            binary = Psycopg(server, binary=True)
            check(binary, feature)
            binary.close()
    elif feature == "transactions":
        psycopg_transactions(asker)
    elif feature == "reset":
        with psycopg.connect(**asker.address) as connection:
            connection.execute("set application_name = 'mine'")
            connection.rollback()
            connection.autocommit = True
            connection.execute("discard all")
            assert connection.execute("show application_name").fetchone() == ("",)
    else:
        for name in ("float8", "timestamptz", "numeric"):
            info = psycopg.types.TypeInfo.fetch(asker.connection, name)
            assert info is not None
            assert (info.name, info.array_oid > 0) == (name, True)
        assert asker.connection.info.parameter_status("TimeZone") == "UTC"


def psycopg_transactions(asker: Psycopg) -> None:
    """Asserts what transactions of psycopg do, after an error too."""
    with psycopg.connect(**asker.address) as connection:
        connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        connection.read_only = True
        connection.deferrable = True
        with connection.transaction():
            assert connection.execute("select count(*) from engine").fetchone() == (30,)
            assert connection.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("select 1 from nothing")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            connection.execute("select 1")
        connection.rollback()
        assert connection.execute("select 1").fetchone() == (1,)
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            connection.execute("insert into engine (p) values (1)")


@pytest.mark.parametrize("feature", CLIENTS["psycopg2"].cells())
def test_psycopg2(server: Server, askers: dict[str, Asker], feature: str) -> None:
    asker = askers["psycopg2"]
    assert isinstance(asker, Psycopg2)
    if feature not in OWN:
        check(asker, feature)
        return
    connection = psycopg2.connect(**asker.address)
    try:
        if feature == "transactions":
            connection.set_session(isolation_level="SERIALIZABLE", readonly=True, deferrable=True)
            with connection, connection.cursor() as cursor:
                cursor.execute("select count(*) from engine")
                assert cursor.fetchall() == [(30,)]
            with pytest.raises(psycopg2.errors.UndefinedTable), connection, connection.cursor() as cursor:
                cursor.execute("select 1 from nothing")
            assert connection.status == psycopg2.extensions.STATUS_READY
        elif feature == "reset":
            with connection.cursor() as cursor:
                cursor.execute("set application_name = 'mine'")
                connection.reset()
                cursor.execute("show application_name")
                assert cursor.fetchall() == [("",)]
        else:
            with connection.cursor() as cursor:
                cursor.execute("select p, big, time from engine limit 0")
                assert cursor.description is not None
                assert [(c.name, c.precision, c.scale) for c in cursor.description] == [
                    ("p", None, None),
                    ("big", 20, 0),
                    ("time", None, None),
                ]
    finally:
        connection.close()


@pytest.mark.parametrize("feature", CLIENTS["asyncpg"].cells())
def test_asyncpg(server: Server, askers: dict[str, Asker], feature: str) -> None:
    asker = askers["asyncpg"]
    assert isinstance(asker, Asyncpg)
    if feature not in OWN:
        check(asker, feature)
    elif feature == "transactions":
        asker.run(asyncpg_transactions(asker.connection))
    elif feature == "reset":
        asker.run(asyncpg_reset(asker.address))
    else:
        asker.run(asyncpg_types(asker.connection))


async def asyncpg_types(connection: asyncpg.Connection) -> None:
    """Asserts that asyncpg finds a type by its name in the catalog, to read it in another way."""
    codec = {"encoder": str, "decoder": float, "schema": "pg_catalog", "format": "text"}
    await connection.set_type_codec("numeric", **codec)
    assert await connection.fetchval("select big from engine where count = 0") == float(2**63)
    await connection.reset_type_codec("numeric", schema="pg_catalog")
    await connection.reload_schema_state()
    assert await connection.fetchval("select big from engine where count = 0") == 2**63
    version = connection.get_server_version()
    assert version.major == 16
    assert connection.get_settings().TimeZone == "UTC"


async def asyncpg_transactions(connection: asyncpg.Connection) -> None:
    """Asserts what transactions of asyncpg do, after an error too."""
    async with connection.transaction(isolation="serializable", readonly=True, deferrable=True):
        assert await connection.fetchval("select count(*) from engine") == 30
        with pytest.raises(asyncpg.UndefinedTableError):
            async with connection.transaction():
                await connection.fetch("select 1 from nothing")
        assert await connection.fetchval("select 1") == 1
    assert not connection.is_in_transaction()
    transaction = connection.transaction()
    await transaction.start()
    with pytest.raises(asyncpg.UndefinedTableError):
        await connection.fetch("select 1 from nothing")
    with pytest.raises(asyncpg.InFailedSQLTransactionError):
        await connection.fetch("select 1")
    await transaction.rollback()
    assert await connection.fetchval("select 1") == 1


async def asyncpg_reset(address: dict[str, Any]) -> None:
    """Asserts that a pool resets what it gets back."""
    async with asyncpg.create_pool(**address, min_size=1, max_size=1) as pool:
        async with pool.acquire() as connection:
            pid = connection.get_server_pid()
            await connection.execute("set application_name = 'mine'")
        async with pool.acquire() as connection:
            assert connection.get_server_pid() == pid
            assert await connection.fetchval("show application_name") == ""


@pytest.mark.parametrize("feature", CLIENTS["sqlalchemy"].cells())
def test_sqlalchemy(server: Server, askers: dict[str, Asker], feature: str) -> None:
    asker = askers["sqlalchemy"]
    assert isinstance(asker, SqlAlchemy)
    if feature not in OWN:
        check(asker, feature)
    elif feature == "metadata":
        for driver in ("psycopg", "psycopg2", "asyncpg"):
            reflected(asker.engine.url.set(drivername=f"postgresql+{driver}"))
    elif feature == "transactions":
        engine = sqlalchemy.create_engine(asker.engine.url)
        with engine.begin() as connection:
            assert connection.execute(sqlalchemy.text("select count(*) from engine")).scalar() == 30
            with pytest.raises(sqlalchemy.exc.ProgrammingError), connection.begin_nested():
                connection.exec_driver_sql("select 1 from nothing")
            assert connection.exec_driver_sql("select 1").scalar() == 1
        options = {"isolation_level": "SERIALIZABLE", "postgresql_readonly": True, "postgresql_deferrable": True}
        with engine.connect().execution_options(**options) as connection:
            assert connection.exec_driver_sql("select 1").scalar() == 1
            assert connection.get_isolation_level() is not None
        engine.dispose()
    else:
        engine = sqlalchemy.create_engine(asker.engine.url, pool_size=1, max_overflow=0, pool_pre_ping=True)
        sqlalchemy.event.listen(engine, "reset", lambda raw, *_: raw.execute("rollback"))
        for _ in range(3):
            with engine.connect() as connection:
                assert connection.exec_driver_sql("select 1").scalar() == 1
        engine.dispose()


def reflected(url: sqlalchemy.URL) -> None:
    """Asserts that SQLAlchemy finds tables and columns with their types, and can query with what it found."""
    if url.drivername.endswith("asyncpg"):
        pytest.importorskip("greenlet")
        import asyncio

        from sqlalchemy.ext.asyncio import create_async_engine

        async def run() -> None:
            engine = create_async_engine(url)
            async with engine.connect() as connection:
                await connection.run_sync(lambda sync: same_reflection(sync))
            await engine.dispose()

        asyncio.run(run())
        return
    engine = sqlalchemy.create_engine(url)
    with engine.connect() as connection:
        same_reflection(connection)
    engine.dispose()


def own(tables: Iterable[str]) -> list[str]:
    """Returns the tables that drivers are asked about, without those that a test adds."""
    return sorted(name for name in tables if not name.startswith("grows"))


def same_reflection(connection: sqlalchemy.Connection) -> None:
    """Asserts what is reflected through a connection."""
    inspector = sqlalchemy.inspect(connection)
    assert inspector.default_schema_name == "public"
    assert {"public", "strongback"} <= set(inspector.get_schema_names())
    assert own(inspector.get_table_names()) == ["engine", "kinds", "lab", "many", "special"]
    assert inspector.get_view_names() == []
    assert inspector.has_table("engine")
    assert not inspector.has_table("nothing")
    kinds = {column["name"]: column for column in inspector.get_columns("kinds")}
    types = {name: str(kinds[name]["type"]) for name, _, _ in drivers.KINDS}
    assert types == {
        "flag": "BOOLEAN",
        "a8": "SMALLINT",
        "a16": "SMALLINT",
        "a32": "INTEGER",
        "a64": "BIGINT",
        "b8": "SMALLINT",
        "b16": "INTEGER",
        "b32": "BIGINT",
        "b64": "NUMERIC(20, 0)",
        "single": "REAL",
        "double": "DOUBLE PRECISION",
        "note": "TEXT",
    }
    dialect = connection.dialect
    arrays = {column["name"]: column["type"].compile(dialect=dialect) for column in inspector.get_columns("lab")}
    assert arrays["wave"] == "DOUBLE PRECISION[]"
    assert arrays["large"] == "NUMERIC(20, 0)[]"
    assert inspector.get_pk_constraint("engine")["constrained_columns"] == []
    assert inspector.get_foreign_keys("engine") == []
    assert inspector.get_indexes("engine") == []
    assert inspector.get_unique_constraints("engine") == []
    assert inspector.get_check_constraints("engine") == []
    assert inspector.get_table_comment("engine") == {"text": None}
    assert inspector.get_enums() == []
    assert inspector.get_sequence_names() == []
    metadata = sqlalchemy.MetaData()
    metadata.reflect(connection)
    assert own(metadata.tables) == ["engine", "kinds", "lab", "many", "special"]
    engine = sqlalchemy.Table("engine", sqlalchemy.MetaData(), autoload_with=connection)
    assert isinstance(engine.c.time.type, sqlalchemy.DateTime)
    assert engine.c.time.type.timezone
    query = (
        sqlalchemy.select(engine.c["count"], engine.c.p)
        .where(engine.c.stand.in_(["1", "2"]), engine.c.p >= 3.0, engine.c.time < drivers.at(drivers.BEGIN_US + 28_000))
        .order_by(engine.c["count"])
        .limit(2)
    )
    assert rows_of(connection.execute(query)) == [[25, 3.125], [26, 3.25]]
    grouped = (
        sqlalchemy.select(engine.c.stand, sqlalchemy.func.max(engine.c.p))
        .group_by(engine.c.stand)
        .order_by(engine.c.stand)
    )
    assert rows_of(connection.execute(grouped)) == [["0", 27 / 8], ["1", 28 / 8], ["2", 29 / 8]]


@pytest.mark.filterwarnings("ignore:pandas only supports SQLAlchemy")
@pytest.mark.parametrize("feature", CLIENTS["pandas"].cells())
def test_pandas(server: Server, askers: dict[str, Asker], feature: str) -> None:
    through = (askers["sqlalchemy"].engine, askers["psycopg"].connection)  # type: ignore[attr-defined]
    for connection in through:
        pandas_feature(connection, feature, is_sqlalchemy=connection is through[0])


def pandas_feature(connection: Any, feature: str, *, is_sqlalchemy: bool) -> None:
    """Asserts that a feature works in pandas through a connection."""

    def read(sql: str, arguments: list[dict[str, Any]] | None = None, **more: Any) -> pandas.DataFrame:
        values = [native(a) for a in arguments or []]
        if is_sqlalchemy:
            import re

            text = sqlalchemy.text(re.sub(r"\$(\d+)", r":p\1", sql))
            return pandas.read_sql(text, connection, params={f"p{i + 1}": v for i, v in enumerate(values)}, **more)
        return pandas.read_sql(with_marks(sql) if values else sql, connection, params=values or None, **more)

    match feature:
        case "connect":
            assert read(drivers.CONNECT).to_numpy().tolist() == [["strongback", "public"]]
        case "values":
            frame = read(drivers.VALUES)
            assert str(frame.dtypes["time"]).startswith("datetime64[") and "UTC" in str(frame.dtypes["time"])
            assert str(frame.dtypes["flag"]) == "bool"
            assert str(frame.dtypes["a64"]) == "int64"
            assert str(frame.dtypes["double"]) == "float64"
            assert frame["a64"].tolist() == [row[4] for row in drivers.KIND_ROWS]
            assert frame["note"].tolist() == [row[-1] for row in drivers.KIND_ROWS]
        case "special":
            frame = read(drivers.SPECIAL)
            assert [t.value // 1_000 for t in frame["time"].astype("datetime64[ns, UTC]")] == [
                row[0] for row in drivers.SPECIAL_ROWS
            ]
            infinities = frame["double"].tolist()
            assert infinities[1:3] == [float("-inf"), float("inf")]
            assert frame["double"].isna().tolist() == [False, False, False, True, True, True]
        case "arrays":
            frame = read(drivers.ARRAYS_SQL)
            assert frame["wave"][0][0] == 0.1
            assert frame["wave"][1] == []
            assert frame["counts"][0] == [-(2**63), 2**63 - 1]
        case "parameters" | "any":
            asked = drivers.PARAMETERS if feature == "parameters" else drivers.ANY
            for sql, arguments, expected in asked:
                assert read(sql, arguments).to_numpy().tolist() == expected, sql
        case "limit":
            assert read(*drivers.LIMIT[:2]).to_numpy().tolist() == drivers.LIMIT[2]
        case "parts":
            frames = list(read(drivers.PARTS, chunksize=drivers.PART))
            assert [len(frame) for frame in frames] == [drivers.PART] * (drivers.ROWS // drivers.PART)
            assert sum(int(frame["n"].sum()) for frame in frames) == drivers.EXPECTED_SUM["total"]
        case "errors":
            for sql, state in drivers.ERRORS:
                with pytest.raises(Exception) as caught:
                    read(sql)
                raised = caught.value.__cause__ or caught.value
                assert getattr(getattr(raised, "orig", raised), "sqlstate", None) == state, sql
        case _:
            raise AssertionError(feature)
