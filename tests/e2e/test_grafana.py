"""The dashboards in examples/grafana: each of their queries, with the macros as Grafana writes them, on a real server."""

from __future__ import annotations

import datetime
import json
import pathlib
import re
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from strongback import Server

DASHBOARDS = pathlib.Path(__file__).resolve().parents[2] / "examples" / "grafana" / "dashboards"
CHANNEL = "engine.p{stand=1}"


def queries() -> list[Any]:
    """Every query of every dashboard: its dashboard, title and text, and the format in which Grafana reads it."""
    found = []
    for path in sorted(DASHBOARDS.glob("*.json")):
        board = json.loads(path.read_text())
        for panel in board["panels"]:
            for target in panel["targets"]:
                found.append((path.stem, panel["title"], target["rawSql"], target["format"]))
        for annotation in board["annotations"]["list"]:
            found.append((path.stem, f"annotation {annotation['name']}", annotation["rawQuery"], "annotation"))
        for variable in board["templating"]["list"]:
            found.append((path.stem, f"variable {variable['name']}", variable["query"], "variable"))
    return [pytest.param(sql, form, id=f"{board}: {title}") for board, title, sql, form in found]


def expanded(sql: str, *, begin: datetime.datetime, end: datetime.datetime) -> str:
    """Returns a query with its macros and variables as Grafana's PostgreSQL data source writes them."""
    first, last = (f"'{t:%Y-%m-%dT%H:%M:%S}.{t.microsecond // 1000:03}Z'" for t in (begin, end))
    sql = re.sub(r"\$__timeFilter\(([^)]*)\)", rf"\1 BETWEEN {first} AND {last}", sql)
    sql = sql.replace("$__timeFrom()", first).replace("$__timeTo()", last)
    sql = sql.replace("$__interval_ms", "1000").replace("$__interval", "1s").replace("$channel", CHANNEL)
    assert "$" not in sql, sql
    return sql


@pytest.fixture(scope="module")
def begin_s() -> int:
    """The time of the first frame."""
    return int(time.time()) - 30


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, begin_s: int) -> Iterator[Server]:
    """A server with the pressure of an engine: 300 frames in 30 s."""
    server = Server(folder=tmp_path_factory.mktemp("grafana")).start()
    lines = [f"engine,stand=1 p={i % 50}.5,valve={i % 2}i {begin_s * 10**9 + i * 10**8}" for i in range(300)]
    server.write("\n".join(lines))
    yield server
    server.stop()


@pytest.mark.parametrize(("sql", "form"), queries())
def test_dashboards_ask_what_the_server_answers(server: Server, begin_s: int, sql: str, form: str) -> None:
    begin = datetime.datetime.fromtimestamp(begin_s - 5, datetime.UTC)
    text = expanded(sql, begin=begin, end=begin + datetime.timedelta(seconds=60))
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(text)
        assert cursor.description is not None
        columns = {column.name: column.type_code for column in cursor.description}
        rows = cursor.fetchall()
    timestamptz = psycopg.adapters.types["timestamptz"].oid
    if form == "time_series":
        # Grafana wants a time, and numbers or one text that names the series.
        assert columns["time"] == timestamptz
        numbers = [name for name, oid in columns.items() if oid == psycopg.adapters.types["float8"].oid]
        assert numbers and set(columns) <= {"time", "metric", *numbers}, columns
    elif form == "annotation":
        assert columns["time"] == timestamptz and "text" in columns
    elif form == "variable":
        assert [CHANNEL] in [list(row) for row in rows]
    if f"'{CHANNEL}'" in text and "strongback.gaps" not in text:
        assert rows and any(value is not None for row in rows for value in row)


def test_a_spike_stays_in_the_extremes(server: Server, begin_s: int) -> None:
    board = json.loads((DASHBOARDS / "channel.json").read_text())
    begin = datetime.datetime.fromtimestamp(begin_s, datetime.UTC)
    sql = board["panels"][0]["targets"][0]["rawSql"]
    sql = expanded(sql, begin=begin, end=begin + datetime.timedelta(seconds=30))
    rows = server.sql(sql)
    assert len(rows) == 30
    assert max(row[2] for row in rows) == 49.5 and min(row[1] for row in rows) == 0.5
