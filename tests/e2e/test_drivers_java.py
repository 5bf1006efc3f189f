"""Drivers of Java read what was written: pgjdbc, and the JDBC driver for Flight SQL."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import driver_programs
import drivers
import pytest
from driver_checks import Answers
from driver_matrix import CLIENTS
from strongback import Server

# What java.nio needs to be open to for Arrow's buffers.
OPEN = "--add-opens=java.base/java.nio=ALL-UNNAMED"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the tables that drivers are asked about."""
    running = drivers.serve(tmp_path_factory.mktemp("java"))
    yield running
    assert running.stop() == 0, running.last_words()


@pytest.fixture(scope="module")
def answers(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The answers of each driver."""
    version = driver_programs.content("java", "jars.txt")
    jars = driver_programs.installed(f"drivers-java-{version}", "javac", "mvn")
    classes = tmp_path_factory.mktemp("classes")
    path = f"{jars}/*"
    source = drivers.PROGRAMS / "java" / "Drivers.java"
    subprocess.run(["javac", "-cp", path, "-d", classes, source], check=True, capture_output=True, timeout=120)
    # Times must not depend on the zone of the client.
    command = ["java", OPEN, "-Duser.timezone=America/New_York", "-cp", f"{classes}:{path}", "Drivers"]
    return {name: driver_programs.answers(server, [*command, name]) for name in ("pgjdbc", "flight")}


@pytest.mark.parametrize("feature", CLIENTS["pgjdbc"].cells())
def test_pgjdbc(answers: dict[str, Any], feature: str) -> None:
    found = Answers(answers["pgjdbc"])
    match feature:
        case "transactions":
            ok = "no error"
            assert found.value(feature) == [ok, ok, ok, "42P01", "25P02", ok, "42P01", ok]
        case "reset":
            assert found.value(feature) == ["mine", True, "no error", ""]
        case "metadata":
            pgjdbc_metadata(found.value(feature))
        case _:
            found.check(feature)


def pgjdbc_metadata(value: dict[str, Any]) -> None:
    """Asserts what DatabaseMetaData and ResultSetMetaData tell."""
    tables = ["engine", "kinds", "lab", "many", "special"]
    assert value["product"] == "PostgreSQL"
    assert value["tables"] == [["public", name, "TABLE"] for name in tables]
    assert value["any_tables"] == [["engine"]]
    columns = {row[0]: row[1:] for row in value["columns"]}
    assert [columns[name][0] for name, _, _ in drivers.KINDS] == [kind for _, _, kind in drivers.KINDS]
    assert columns["b64"][2:4] == [20, 0]
    assert columns["time"][0] == "timestamptz"
    arrays = dict(value["array_columns"])
    assert [arrays[name] for name, _, _ in drivers.ARRAYS] == [kind for _, _, kind in drivers.ARRAYS]
    assert {"bool", "int8", "float8", "text", "timestamptz", "numeric"} <= {name for (name,) in value["types"]}
    assert {"public", "strongback"} <= {name for (name,) in value["schemas"]}
    assert value["catalogs"] == [["strongback"]]
    assert ["TABLE"] in value["table_types"]
    for none in (
        "primary_keys",
        "imported_keys",
        "exported_keys",
        "indexes",
        "identifiers",
        "procedures",
        "user_types",
    ):
        assert value[none] == [], none
    assert {("samples",), ("resample",), ("latest",), ("state_at",)} <= {tuple(row) for row in value["functions"]}
    assert value["name_length"] == 63
    assert value["keywords"] is True
    assert value["result"] == [
        ["time", "java.sql.Timestamp", "", 35, False],
        ["p", "java.lang.Double", "", 17, False],
        ["big", "java.math.BigDecimal", "", 20, False],
    ]


@pytest.mark.parametrize("feature", CLIENTS["flight"].cells())
def test_flight_sql(answers: dict[str, Any], feature: str) -> None:
    found = Answers(answers["flight"], type_names=lambda _: None)
    if feature != "metadata":
        found.check(feature)
        return
    value = found.value(feature)
    assert value["product"] == "Strongback"
    tables = [row for row in value["tables"] if not row[0].startswith("grows")]
    assert tables == [[name, "TABLE"] for name in ("engine", "kinds", "lab", "many", "special")]
    columns = {row[0]: row[1:] for row in value["columns"]}
    assert {name for name, _, _ in drivers.KINDS} <= set(columns)
    assert ["public"] in value["schemas"]
    assert value["catalogs"] == [["strongback"]]
    assert ["TABLE"] in value["table_types"]
    assert value["primary_keys"] == value["imported_keys"] == []
    assert value["read_only"] is True
