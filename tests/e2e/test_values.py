"""What was written is read back to the bit, by psql and psycopg, extremes included."""

from __future__ import annotations

import decimal
import math
import pathlib
import struct
import subprocess

import psycopg
from strongback import Server

AT_NS = 1_760_000_000_123_456_789

EXTREMES: dict[str, tuple[str, object]] = {
    # column: line protocol, value in Python
    "i_min": ("-9223372036854775808i", -(2**63)),
    "i_max": ("9223372036854775807i", 2**63 - 1),
    "i_beyond_f64": ("9007199254740993i", 2**53 + 1),
    "u_max": ("18446744073709551615u", decimal.Decimal(2**64 - 1)),
    "u_zero": ("0u", decimal.Decimal(0)),
    "f_max": ("1.7976931348623157e308", 1.7976931348623157e308),
    "f_least": ("5e-324", 5e-324),
    "f_minus_zero": ("-0.0", -0.0),
    "f_third": ("0.3333333333333333", 1 / 3),
    "f_large_integer": ("9007199254740993", 9007199254740992.0),
    "yes": ("true", True),
    "no": ("F", False),
    "text": ('"say \\"hi\\", back\\\\slash, ünï ☃"', 'say "hi", back\\slash, ünï ☃'),
    "two_lines": ('"first\nsecond"', "first\nsecond"),
    "empty": ('""', ""),
}


def write_extremes(server: Server) -> None:
    """One row with every extreme, and one with none of them: nulls."""
    fields = ",".join(f"{name}={text}" for name, (text, _) in EXTREMES.items())
    assert server.write(f"extremes,kind=all {fields} {AT_NS}\nextremes,kind=none other=1i {AT_NS + 1}") == (204, None)


def same(one: object, other: object) -> bool:
    """Equal, floats to the bit."""
    if isinstance(one, float) and isinstance(other, float):
        return struct.pack("<d", one) == struct.pack("<d", other)
    return type(one) is type(other) and one == other


def psql(server: Server, *arguments: str) -> str:
    """Standard output of psql."""
    command = ["psql", "-X", "-h", "127.0.0.1", "-p", str(server.pg_port), "-U", "anyone", "-d", "strongback"]
    ran = subprocess.run([*command, "-v", "ON_ERROR_STOP=1", *arguments], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_psycopg_reads_extremes(server: Server) -> None:
    write_extremes(server)
    names = ", ".join(f'"{name}"' for name in EXTREMES)
    for binary in (False, True):
        with server.connect() as connection, connection.cursor(binary=binary) as cursor:
            row = cursor.execute(f"select {names} from extremes where kind = 'all'").fetchone()
            assert row is not None
            for (name, (_, want)), got in zip(EXTREMES.items(), row, strict=True):
                assert same(got, want), f"{name}, binary {binary}: {got!r} instead of {want!r}"
            nulls = cursor.execute(f"select {names} from extremes where kind = 'none'").fetchone()
            assert nulls == (None,) * len(EXTREMES)


def test_the_store_keeps_them_over_a_restart(server: Server) -> None:
    write_extremes(server)
    assert server.stop() == 0
    server.start()
    names = ", ".join(f'"{name}"' for name in EXTREMES)
    [row] = server.sql(f"select {names} from extremes where kind = 'all'")
    assert all(same(got, want) for (_, want), got in zip(EXTREMES.values(), row, strict=True)), row


def test_psql_reads_extremes(server: Server) -> None:
    write_extremes(server)
    for name, (_, want) in EXTREMES.items():
        got = psql(server, "-At", "-c", f"select \"{name}\" from extremes where kind = 'all'").removesuffix("\n")
        if isinstance(want, bool):
            assert got == ("t" if want else "f"), name
        elif isinstance(want, float):
            assert same(float(got), want), f"{name}: {got}"
        else:
            assert got == str(want), name


def test_psql_describes(server: Server) -> None:
    write_extremes(server)
    assert "extremes" in psql(server, "-c", r"\dt")
    assert "extremes" in psql(server, "-c", r"\d")
    described = psql(server, "-At", "-c", r"\d extremes")
    types = dict(line.split("|")[:2] for line in described.splitlines() if "|" in line)
    assert types["time"] == "timestamp with time zone"
    assert types["time_ns"] == "bigint"
    assert types["i_min"] == "bigint"
    assert types["u_max"].startswith("numeric")
    assert types["f_max"] == "double precision"
    assert types["yes"] == "boolean"
    assert types["text"] in ("text", "character varying")


def test_a_time_read_finds_its_row(server: Server) -> None:
    write_extremes(server)
    with server.connect() as connection:
        [(at, at_ns)] = connection.execute("select time, time_ns from extremes where kind = 'all'").fetchall()
        assert at_ns == AT_NS
        assert connection.execute("select count(*) from extremes where time = %s", (at,)).fetchone() == (2,)
        assert connection.execute("select kind from extremes where time_ns = %s", (at_ns,)).fetchone() == ("all",)


def test_reading_only(server: Server, tmp_path: pathlib.Path) -> None:
    write_extremes(server)
    forbidden = [
        "create table t (a int)",
        "drop table extremes",
        "delete from extremes",
        "insert into extremes (time) values (now())",
        f"copy extremes to '{tmp_path}/stolen.csv'",
        f"copy (select 1) to '{tmp_path}/stolen.csv'",
        f"create external table t stored as csv location '{tmp_path}/'",
    ]
    with server.connect() as connection:
        for statement in forbidden:
            try:
                connection.execute(statement)
            except psycopg.Error as refused:
                assert refused.sqlstate, statement
            else:
                raise AssertionError(f"done: {statement}")
    assert not (tmp_path / "stolen.csv").exists()
    assert server.rows_of("extremes") == 2


def test_errors_have_their_codes(server: Server) -> None:
    write_extremes(server)
    with server.connect() as connection:
        for statement, state in [
            ("select nothing from extremes", "42703"),
            ("select * from nowhere", "42P01"),
            ("selct 1", "42601"),
        ]:
            try:
                connection.execute(statement)
            except psycopg.Error as error:
                assert error.sqlstate == state, f"{statement}: {error.sqlstate} {error}"
            else:
                raise AssertionError(f"done: {statement}")


def test_a_second_type_gets_a_second_column(server: Server) -> None:
    assert server.write(f"conflict v=1i {AT_NS}\nconflict v=2.5 {AT_NS + 1}\nconflict v=\"three\" {AT_NS + 2}") == (204, None)
    with server.connect() as connection:
        cursor = connection.execute("select * from conflict order by time_ns")
        names = [column.name for column in cursor.description or []]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    assert rows[0]["v"] == 1
    assert rows[1].get("v_f64", rows[1]["v"]) == 2.5
    assert rows[2]["v_string"] == "three"


def test_nan_and_infinities_are_kept(server: Server) -> None:
    assert server.write(f"n v=NaN {AT_NS}\nn v=inf {AT_NS + 1}\nn v=-inf {AT_NS + 2}\nn v=1 {AT_NS + 3}") == (204, None)
    values = [value for (value,) in server.sql("select v from n order by time_ns")]
    assert math.isnan(values[0]) and values[1:] == [math.inf, -math.inf, 1.0]
    [state] = server.get("/api/history?channels=n.v&from=0&to=now&points=10")["series"]
    assert state["channel"]["name"] == "n.v"
