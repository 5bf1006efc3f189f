"""Exports hold what was written, in each format, and the pandas example runs as it stands."""

from __future__ import annotations

import csv
import io
import json
import pathlib
import subprocess
import sys
import time
import urllib.parse
import urllib.request

import pandas
import pyarrow.parquet
from strongback import BINARY, Server

ROOT = pathlib.Path(__file__).parents[2]
ROWS = 300


def write_ramp(server: Server) -> int:
    """A ramp of the last seconds; the time of its first row in ns."""
    begin = time.time_ns() // 1_000_000 * 1_000_000 - ROWS * 10_000_000
    lines = [f"ramp,bay=1 p={i / 4},n={i}i {begin + i * 10_000_000}" for i in range(ROWS)]
    assert server.write("\n".join(lines)) == (204, None)
    return begin


def export(server: Server, form: str) -> bytes:
    """An export of the ramp."""
    query = urllib.parse.urlencode({"from": "now-1m", "to": "now", "channels": "ramp.*", "format": form})
    with urllib.request.urlopen(f"{server.url}/api/export?{query}", timeout=60) as answer:
        return answer.read()


def test_csv(server: Server) -> None:
    begin = write_ramp(server)
    text = export(server, "csv").decode()
    rows = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert len(rows) >= ROWS + 1
    table = list(csv.reader(io.StringIO("\n".join(rows))))
    assert any(str(begin) in cell for row in table[1:3] for cell in row), text[:600]


def test_jsonl(server: Server) -> None:
    begin = write_ramp(server)
    rows = [json.loads(line) for line in export(server, "jsonl").splitlines()]
    assert len(rows) >= ROWS
    assert str(begin) in json.dumps(rows[:3])


def test_parquet(server: Server) -> None:
    write_ramp(server)
    table = pyarrow.parquet.read_table(io.BytesIO(export(server, "parquet")))
    assert table.num_rows >= ROWS


def test_pandas_example(server: Server) -> None:
    write_ramp(server)
    example = [sys.executable, str(ROOT / "examples" / "pandas_export.py"), server.url, "ramp.*"]
    ran = subprocess.run(example, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert "count" in ran.stdout


def test_export_command(server: Server, tmp_path: pathlib.Path) -> None:
    write_ramp(server)
    assert server.stop() == 0
    command = [BINARY, "export", "--data", str(server.folder / "store")]
    command += ["--from", "now-10m", "--to", "now", "--channels", "ramp.*", "--format", "parquet"]
    out = tmp_path / "ramp.parquet"
    with out.open("wb") as file:
        ran = subprocess.run(command, stdout=file, stderr=subprocess.PIPE, timeout=120)
    assert ran.returncode == 0, ran.stderr.decode()
    assert len(pandas.read_parquet(out)) >= ROWS
