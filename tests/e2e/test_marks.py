"""Marks through the real binary: made on the command line, kept over kill -9, applied by SQL, Flight and exports."""

from __future__ import annotations

import csv
import io
import json
import pathlib
import subprocess
from typing import Any

import adbc_driver_flightsql.dbapi as flight_sql
import psycopg
import pyarrow.parquet
import pytest
from strongback import BINARY, Server

BEGIN_NS = 1_760_000_000_000_000_000
STEP_NS = 1_000_000
ROWS = 5_000


def strongback(*arguments: str, code: int = 0) -> str:
    """Runs the program; what it says."""
    ran = subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == code, f"exit code {ran.returncode}: {ran.stdout}{ran.stderr}"
    return ran.stdout + ran.stderr


def fill(server: Server) -> None:
    """Writes `tank.p` and `tank.n` of two bays."""
    lines = [f"tank,bay=b{i % 2} p={i / 8},n={i}i {BEGIN_NS + i * STEP_NS}" for i in range(ROWS)]
    assert server.write("\n".join(lines)) == (204, None)


def at(row: int) -> str:
    """The time of a row."""
    return str(BEGIN_NS + row * STEP_NS)


def mark(quality: str, *, server: Server, rows: range, code: int = 0) -> str:
    """Marks rows of `tank.p` of bay b1."""
    span = ("--from", at(rows.start), "--to", at(rows.stop))
    place = ("--server", f"127.0.0.1:{server.http_port}")
    return strongback("mark", quality, "tank.p{bay=b1}", *span, "--reason", "loose cable", "--by", "ada", *place, code=code)


def wanted(*bad: range) -> tuple[int, float]:
    """Number and sum of the values of `p` outside of rows."""
    values = [i / 8 for i in range(ROWS) if i % 2 == 0 or not any(i in rows for rows in bad)]
    return len(values), sum(values)


def test_bad_values_are_left_out_everywhere_and_come_back(server: Server) -> None:
    fill(server)
    before = server.sql("select count(p), sum(p) from tank")
    assert before == [wanted()]
    assert "tank.p{bay=b1}" in mark("bad", server=server, rows=range(1_000, 3_000))
    # Acknowledged is on the disk.
    server.kill()
    server.start()
    bad = range(1_000, 3_000)
    assert server.sql("select count(p), sum(p) from tank") == [wanted(bad)]
    assert server.sql("select count(*), count(n) from tank") == [(ROWS, ROWS)], "frames and other channels stay"
    rows = server.sql("select (time_ns - %s) / %s, p from tank where bay = 'b1' order by time", BEGIN_NS, STEP_NS)
    assert rows == [(i, None if i in bad else i / 8) for i in range(1, ROWS, 2)]
    [row] = server.sql("select number from state_at(%s, 'tank.p{bay=b1}')", int(at(2_500)))
    assert row == (999 / 8,)
    span = (int(at(900)), int(at(3_100)))
    [row] = server.sql("select count(*) from samples('tank.p{bay=b1}', %s, %s)", *span)
    assert row == (100,)
    [row] = server.sql("select count, min, max from summary('tank.p{bay=b1}', %s, %s)", *span)
    # Summaries read the line to the next value at both edges.
    assert row == (100, 900 / 8, 3_100 / 8)
    # A later mark takes a part of it back, and another one is only uncertain.
    mark("good", server=server, rows=range(2_000, 2_100))
    mark("uncertain", server=server, rows=range(2_900, 3_050))
    bad_rows = (range(1_000, 2_000), range(2_100, 2_900))
    assert server.sql("select count(p), sum(p) from tank") == [wanted(*bad_rows)]
    listed = strongback("mark", "list", "tank.*", "--server", f"127.0.0.1:{server.http_port}")
    assert [line.split()[1] for line in listed.splitlines()[1:]] == ["bad", "good", "bad", "uncertain"]
    assert server.stop() == 0
    server.start()
    assert server.sql("select count(p), sum(p) from tank") == [wanted(*bad_rows)]
    [ids] = server.sql("select array_agg(id order by id), max(by), max(reason) from strongback.marks")
    assert ids == ([1, 2, 3], "ada", "loose cable")


def test_a_session_sees_all_values_and_their_qualities_on_request(server: Server) -> None:
    fill(server)
    mark("bad", server=server, rows=range(1_000, 3_000))
    mark("uncertain", server=server, rows=range(2_990, 3_010))
    joined = """
        select coalesce(m.quality, 'good') as quality, count(*), min(s.number), max(s.number)
        from samples('tank.p{bay=b1}', %s, %s) s
        left join marks('tank.p{bay=b1}', %s, %s) m
            on m.channel = s.channel and s.time_ns >= m.from_time_ns and s.time_ns < m.to_time_ns
        group by 1 order by 1
    """
    span = (int(at(980)), int(at(3_020)))
    with server.connect() as connection:
        assert connection.execute("show strongback.marks").fetchone() == ("apply",)
        connection.execute("set strongback.marks = 'ignore'")
        assert connection.execute("select count(p), sum(p) from tank").fetchall() == [wanted()]
        assert connection.execute("select sum(p) from tank where p > 100").fetchone() == (
            sum(i / 8 for i in range(ROWS) if i / 8 > 100),
        )
        assert connection.execute(joined, span + span).fetchall() == [
            ("bad", 995, 1_001 / 8, 2_989 / 8),
            ("good", 15, 981 / 8, 3_019 / 8),
            ("uncertain", 10, 2_991 / 8, 3_009 / 8),
        ]
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="strongback.marks"):
            connection.execute("set strongback.marks = 'off'")
        connection.execute("reset strongback.marks")
        assert connection.execute("select count(p), sum(p) from tank").fetchall() == [wanted(range(1_000, 2_990))]
    with psycopg.connect(
        host="127.0.0.1", port=server.pg_port, user="test", dbname="strongback", options="-c strongback.marks=ignore"
    ) as connection:
        assert connection.execute("select count(p) from tank").fetchone() == (ROWS,)
    for headers, count in (({}, wanted(range(1_000, 2_990))[0]), ({"strongback-marks": "ignore"}, ROWS)):
        options = {f"adbc.flight.sql.rpc.call_header.{name}": value for name, value in headers.items()}
        address = f"grpc://127.0.0.1:{server.flight_port}"
        with flight_sql.connect(address, db_kwargs=options, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("select count(p) from tank")
            assert cursor.fetchone() == (count,), headers


def export(*arguments: str, server: Server, output: pathlib.Path) -> pathlib.Path:
    """Exports bay b1 into a file."""
    channels = ("--channels", "tank.*{bay=b1}")
    strongback("export", *channels, *arguments, "--server", f"127.0.0.1:{server.http_port}", "--output", str(output))
    return output


def test_exports_leave_bad_values_out_or_say_their_quality(server: Server, tmp_path: pathlib.Path) -> None:
    fill(server)
    mark("bad", server=server, rows=range(1_000, 3_000))
    mark("uncertain", server=server, rows=range(4_000, 4_100))
    name, quality = "tank.p{bay=b1}", "tank.p{bay=b1}_quality"

    def expected(row: int) -> str:
        return "bad" if 1_000 <= row < 3_000 else "uncertain" if 4_000 <= row < 4_100 else ""

    def rows(*arguments: str) -> list[dict[str, str]]:
        text = export("--format", "csv", *arguments, server=server, output=tmp_path / "out.csv").read_text()
        return list(csv.DictReader(io.StringIO(text)))

    odd = range(1, ROWS, 2)
    assert [row[name] for row in rows()] == ["" if expected(i) == "bad" else str(i / 8) for i in odd]
    assert quality not in rows()[0]
    shown = rows("--marks", "show")
    assert [(row[name], row[quality]) for row in shown] == [(str(i / 8), expected(i)) for i in odd]
    assert [row[name] for row in rows("--marks", "ignore")] == [str(i / 8) for i in odd]

    def of_json(line: str) -> tuple[Any, str]:
        frame = json.loads(line)
        return frame["values"].get(name), frame.get("quality", {}).get(name, "")

    output = tmp_path / "out.jsonl"
    lines = export("--format", "jsonl", "--marks", "show", server=server, output=output).read_text().splitlines()
    assert [of_json(line) for line in lines[1:]] == [(i / 8, expected(i)) for i in odd]
    output = tmp_path / "out.parquet"
    table = pyarrow.parquet.read_table(export("--format", "parquet", "--marks", "show", server=server, output=output))
    assert table[name].to_pylist() == [i / 8 for i in odd]
    assert [value or "" for value in table[quality].to_pylist()] == [expected(i) for i in odd]
    table = pyarrow.parquet.read_table(export("--format", "parquet", server=server, output=output))
    assert table[name].null_count == 1_000
    assert quality not in table.column_names


def test_marks_are_made_and_exported_without_a_server(tmp_path: pathlib.Path) -> None:
    server = Server(folder=tmp_path).start()
    fill(server)
    assert server.stop() == 0
    data = ("--data", str(tmp_path / "store"))
    said = strongback("mark", "bad", "tank.p*{bay=b1}", "--at", at(7), "--reason", "spike", "--by", "ada", *data)
    assert "bad at 2025-10-09T08:53:20.007000000Z by ada: spike" in said, said
    refused = strongback("mark", "bad", "tank.q", "--at", at(7), "--reason", "spike", "--by", "ada", *data, code=1)
    assert "no channel matches tank.q; the nearest: tank.n{bay=b0}" in refused, refused
    assert "spike" in strongback("mark", "list", *data)
    text = strongback("export", "--channels", "tank.p{bay=b1}", "--to", at(10), *data)
    assert [line.rsplit(",", 1)[1] for line in text.splitlines()[1:]] == ["0.125", "0.375", "0.625", "", "1.125"]
    server.start()
    try:
        assert server.sql("select count(p) from tank") == [(ROWS - 1,)]
    finally:
        assert server.stop() == 0
