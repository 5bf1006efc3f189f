"""Arrow Flight SQL with real clients: the ADBC driver (in Go) and the Flight client of pyarrow (in C++)."""

from __future__ import annotations

import datetime
import pathlib
from collections.abc import Iterator
from typing import Any

import adbc_driver_flightsql
import adbc_driver_flightsql.dbapi as flight_sql
import adbc_driver_manager
import pyarrow
import pyarrow.flight
import pytest
from strongback import Server, eventually

TOKEN = "a token of enough characters".replace(" ", "-")
BEGIN_NS = 1_760_000_000_000_000_000
ROWS = 20_000
UTC = datetime.UTC


def connect(server: Server, **options: str) -> flight_sql.Connection:
    """A connection of the ADBC driver."""
    return flight_sql.connect(f"grpc://127.0.0.1:{server.flight_port}", db_kwargs=options, autocommit=True)


@pytest.fixture
def cursor(server: Server) -> Iterator[flight_sql.Cursor]:
    """A cursor beside a table `tank` with 20,000 rows of two bays."""
    lines = [f"tank,bay=b{i % 2} p={i / 8},n={i}i {BEGIN_NS + i * 1_000_000}" for i in range(ROWS)]
    assert server.write("\n".join(lines)) == (204, None)
    with connect(server) as connection, connection.cursor() as cursor:
        yield cursor


def test_rows_arrive_as_columns(cursor: flight_sql.Cursor) -> None:
    cursor.execute("select time, time_ns, bay, p, n from tank order by time")
    table = cursor.fetch_arrow_table()
    assert table.num_rows == ROWS
    assert [str(field.type) for field in table.schema] == [
        "timestamp[us, tz=+00:00]",
        "int64",
        "string",
        "double",
        "int64",
    ]
    last = table.slice(ROWS - 1).to_pylist()[0]
    assert last["time_ns"] == BEGIN_NS + (ROWS - 1) * 1_000_000
    assert last["time"] == datetime.datetime.fromtimestamp(last["time_ns"] / 1e9, tz=UTC)
    assert (last["bay"], last["p"], last["n"]) == ("b1", (ROWS - 1) / 8, ROWS - 1)
    frame = table.to_pandas()
    assert frame["p"].sum() == sum(i / 8 for i in range(ROWS))
    cursor.execute("select count(*), max(p) from tank where bay = 'b0'")
    assert cursor.fetchone() == (ROWS // 2, (ROWS - 2) / 8)
    assert [column[0] for column in cursor.description] == ["count", "max"]


def test_parameters_have_the_types_that_their_places_require(cursor: flight_sql.Cursor) -> None:
    begin = datetime.datetime.fromtimestamp(BEGIN_NS / 1e9, tz=UTC)
    cursor.execute(
        "select n from tank where bay = $1 and p >= $2 and time < $3 order by n",
        ("b1", 1, begin + datetime.timedelta(milliseconds=14)),
    )
    assert [n for (n,) in cursor.fetchall()] == [9, 11, 13]
    cursor.execute("select channel, number from state_at($1, $2)", ("2025-10-09 08:53:20.002", "tank.n*"))
    assert sorted(cursor.fetchall()) == [("tank.n{bay=b0}", 2.0), ("tank.n{bay=b1}", 1.0)]
    # Each row of values is a run of the statement.
    cursor.execute("select n from tank where n = $1", pyarrow.record_batch({"n": pyarrow.array([3, 5, 7])}))
    assert cursor.fetchall() == [(3,), (5,), (7,)]
    announced = cursor.adbc_prepare("select n from tank where n = $1 and bay = $2")
    assert announced is not None and announced.types == [pyarrow.int64(), pyarrow.string()]


def test_the_catalog_is_that_of_sql(cursor: flight_sql.Cursor) -> None:
    connection = cursor.connection
    assert connection.adbc_get_info()["vendor_name"] == "Strongback"
    assert connection.adbc_get_table_types() == ["SYSTEM TABLE", "TABLE"]
    schema = connection.adbc_get_table_schema("tank", db_schema_filter="public")
    assert schema.field("p").type == pyarrow.float64()
    assert schema.field("bay").type == pyarrow.string()
    catalogs: list[Any] = connection.adbc_get_objects(depth="all").read_all().to_pylist()
    assert [catalog["catalog_name"] for catalog in catalogs] == ["strongback"]
    schemas = {schema["db_schema_name"]: schema for schema in catalogs[0]["catalog_db_schemas"]}
    tables = {table["table_name"]: table for table in schemas["public"]["db_schema_tables"]}
    assert {"time", "bay", "p", "n"} <= {column["column_name"] for column in tables["tank"]["table_columns"]}
    assert "gaps" in {table["table_name"] for table in schemas["strongback"]["db_schema_tables"]}


def test_errors_say_what_is_wrong(cursor: flight_sql.Cursor) -> None:
    for sql, error, says in (
        ("select q from tank", adbc_driver_manager.ProgrammingError, 'column "q" does not exist'),
        ("select p from tang", adbc_driver_manager.ProgrammingError, "Did you mean tank?"),
        ("delete from tank", adbc_driver_manager.Error, "read-only"),
        ("select 1 / (n - n) from tank", adbc_driver_manager.ProgrammingError, "SQLSTATE 22012"),
    ):
        with pytest.raises(error, match=says.replace("?", r"\?")):
            cursor.execute(sql)
            cursor.fetchall()
    # The connection is as good as before.
    cursor.execute("select count(*) from tank")
    assert cursor.fetchone() == (ROWS,)


ENDLESS = "select n, repeat('x', 1000) from generate_series(1, 1000000000000) s(n)"


def is_idle(server: Server) -> bool:
    """Whether the server hardly works any more."""
    assert server.process is not None

    def ticks() -> int:
        fields = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before = ticks()
    eventually("a request", lambda: server.get("/api/health")["status"] == "pass")
    for _ in range(50):
        server.get("/api/health")
    return ticks() - before < 20


def test_a_cancelled_or_dropped_statement_ends(server: Server, cursor: flight_sql.Cursor) -> None:
    cursor.execute(ENDLESS)
    reader = cursor.fetch_record_batch()
    assert reader.read_next_batch().num_rows > 0
    cursor.adbc_cancel()
    with pytest.raises((adbc_driver_manager.Error, OSError), match=r"(?i)cancel"):
        while True:
            reader.read_next_batch()
    cursor.execute("select 1")
    assert cursor.fetchone() == (1,)
    with connect(server) as other, other.cursor() as dropped:
        dropped.execute(ENDLESS)
        assert dropped.fetch_record_batch().read_next_batch().num_rows > 0
    eventually("an idle server", lambda: is_idle(server))


def test_a_reader_that_stops_does_not_hold_up_ingest(server: Server, cursor: flight_sql.Cursor) -> None:
    readers = []
    for _ in range(4):
        cursor_of_reader = cursor.connection.cursor()
        cursor_of_reader.execute(ENDLESS)
        reader = cursor_of_reader.fetch_record_batch()
        reader.read_next_batch()
        readers.append((cursor_of_reader, reader))
    for i in range(50):
        assert server.write(f"other v={i}i {BEGIN_NS + i}") == (204, None)
    assert server.sql("select count(*) from other") == [(50,)]
    for cursor_of_reader, reader in readers:
        reader.close()
        cursor_of_reader.close()


def test_the_token_is_needed(tmp_path: pathlib.Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    server = Server(folder=tmp_path, config=f'auth_token_file = "{token}"\n')
    server.start(headers={"Authorization": f"Bearer {TOKEN}"})
    try:
        header = adbc_driver_flightsql.DatabaseOptions.AUTHORIZATION_HEADER.value
        for options in ({}, {header: "Bearer not-the-token"}, {"username": "me", "password": "not-the-token"}):
            with pytest.raises(adbc_driver_manager.Error, match=r"(?i)unauthenticated|token"):
                with connect(server, **options) as connection, connection.cursor() as cursor:
                    cursor.execute("select 1")
        for options in ({header: f"Bearer {TOKEN}"}, {"username": "me", "password": TOKEN}):
            with connect(server, **options) as connection, connection.cursor() as cursor:
                cursor.execute("select 1")
                assert cursor.fetchone() == (1,)
        client = pyarrow.flight.FlightClient(f"grpc://127.0.0.1:{server.flight_port}")
        key, value = client.authenticate_basic_token("me", TOKEN)
        assert (key, value) == (b"authorization", f"Bearer {TOKEN}".encode())
        client.close()
    finally:
        assert server.stop() == 0


def batch(rows: int, **more: pyarrow.Array) -> pyarrow.Table:
    """Rows with a time, a tag and fields, from which those of `more` are replaced or to which they are added."""
    columns = {
        "time": pyarrow.array([BEGIN_NS + i * 1_000_000 for i in range(rows)], pyarrow.timestamp("ns", tz="UTC")),
        "rig": pyarrow.array([f"r{i % 3}" for i in range(rows)]).dictionary_encode(),
        "p": pyarrow.array([i / 8 for i in range(rows)]),
        "n": pyarrow.array([None if i % 5 == 0 else i for i in range(rows)], pyarrow.int32()),
        "open": pyarrow.array([i % 2 == 0 for i in range(rows)]),
    }
    return pyarrow.table({**columns, **more})


def source(server: Server) -> dict[str, Any] | None:
    """The source of bulk writes as it was counted last, once it is listed."""
    return next((s for s in server.get("/api/sources")["sources"] if s["name"] == "flight"), None)


def test_bulk_rows_are_stored_once_and_durable(server: Server) -> None:
    rows = 10_000
    with connect(server) as connection, connection.cursor() as cursor:
        assert cursor.adbc_ingest("rig.bulk", batch(rows), mode="create_append") == rows
        # The answer came after the commit, so nothing of it is lost when the server dies.
        server.kill()
    server.start()
    found = server.sql('select count(*), count(n), sum(p), count(distinct rig) from "rig.bulk"')
    assert found == [(rows, rows - rows // 5, sum(i / 8 for i in range(rows)), 3)]
    assert server.sql('select time_ns, n, open from "rig.bulk" where rig = \'r1\' order by time limit 2') == [
        (BEGIN_NS + 1_000_000, 1, False),
        (BEGIN_NS + 4_000_000, 4, True),
    ]
    with connect(server) as connection, connection.cursor() as cursor:
        # Sent again, they are the same rows.
        assert cursor.adbc_ingest("rig.bulk", batch(rows), mode="append") == rows
        # What was read can be written.
        cursor.execute("select time_ns, rig, p from \"rig.bulk\" where rig = 'r2'")
        assert cursor.adbc_ingest("copy", cursor.fetch_arrow_table(), mode="create") == rows // 3
    assert server.sql('select count(*) from "rig.bulk"') == [(rows,)]
    assert server.sql("select sum(p) from copy where rig = 'r2'") == server.sql(
        "select sum(p) from \"rig.bulk\" where rig = 'r2'"
    )
    eventually(
        "counts", lambda: (own := source(server)) and (int(own["stored"]), int(own["duplicate"])) == (rows // 3, rows)
    )


def test_texts_are_fields_if_they_say_so(server: Server) -> None:
    texts = [None if i % 7 == 0 else "abc" * (i % 4) for i in range(60)]
    plain = pyarrow.array(texts)
    for name, column in (("plain", plain), ("coded", plain.dictionary_encode())):
        field = pyarrow.field("note", column.type, metadata={"strongback.role": "field"})
        with connect(server) as connection, connection.cursor() as cursor:
            assert cursor.adbc_ingest(name, batch(60).append_column(field, column), mode="create") == 60
        assert server.sql(f"select note from {name} order by time") == [(text,) for text in texts]


def test_bulk_rows_that_do_not_fit_are_refused(server: Server) -> None:
    times = [BEGIN_NS + i for i in range(4)]
    with connect(server) as connection, connection.cursor() as cursor:
        cursor.adbc_ingest("bulk", batch(4), mode="create")
        for table, more, says in (
            ("bulk", {"p": pyarrow.array(["a"] * 4)}, "field|tag|does not fit"),
            ("bulk", {"p": pyarrow.array([True] * 4)}, 'column "p": Boolean does not fit the column, which is f64'),
            ("bulk", {"time": pyarrow.array([*times[:2], None, 1], pyarrow.timestamp("ns"))}, "row 3: a row without a time"),
            ("bulk", {"time": pyarrow.array([2**62] * 4, pyarrow.timestamp("s"))}, "out of range"),
            ("bulk", {"time": pyarrow.array([0.5] * 4)}, "not a timestamp"),
            ("bulk", {"rig": pyarrow.array(["", "a", "b", "c"])}, 'row 1: tag "rig" is empty'),
            ("bulk", {"when": pyarrow.array([1] * 4, pyarrow.date32())}, "not a type of fields"),
            ("bulk", {"sequence": pyarrow.array([1] * 4)}, "the server sets this column itself"),
            ("strongback.gaps", {}, "strongback"),
        ):
            with pytest.raises(adbc_driver_manager.Error, match=says):
                cursor.adbc_ingest(table, batch(4, **more), mode="create_append")
        with pytest.raises(adbc_driver_manager.Error, match="no column of times"):
            cursor.adbc_ingest("bulk", batch(4).drop_columns(["time"]), mode="append")
        with pytest.raises(adbc_driver_manager.Error, match="already exists"):
            cursor.adbc_ingest("bulk", batch(4), mode="create")
        with pytest.raises(adbc_driver_manager.Error, match="does not exist"):
            cursor.adbc_ingest("none", batch(4), mode="append")
        with pytest.raises(adbc_driver_manager.Error, match="not replaced"):
            cursor.adbc_ingest("bulk", batch(4), mode="replace")
    assert server.sql("select count(*) from bulk") == [(4,)]
    eventually(
        "counts", lambda: {"bad_column", "bad_timestamp"} <= set((source(server) or {}).get("rejected_by", {}))
    )
