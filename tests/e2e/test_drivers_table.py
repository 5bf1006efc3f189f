"""docs/clients.md says of each client and feature what the tests of the drivers say, and names the versions tested."""

from __future__ import annotations

import json
import pathlib
import re

import drivers
from driver_matrix import CLIENTS, FEATURES

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENT = (ROOT / "docs" / "clients.md").read_text()


def table_rows() -> dict[str, dict[str, str]]:
    """Returns the cells of the document's tables of features, by feature and client."""
    found: dict[str, dict[str, str]] = {}
    clients: list[str] = []
    for line in DOCUMENT.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if cells and cells[0] == "feature":
            clients = cells[1:]
        elif not cells:
            clients = []
        elif clients and not set(cells[0]) <= {"-", ":"}:
            found.setdefault(cells[0], {}).update(zip(clients, cells[1:], strict=True))
    return found


def test_each_cell_is_what_its_test_says() -> None:
    expected = {
        title: {client.title: client.cell(feature) for client in CLIENTS.values()}
        for feature, title in FEATURES.items()
    }
    assert table_rows() == expected


def test_the_versions_are_those_that_are_tested() -> None:
    for client in CLIENTS.values():
        assert f"| {client.title} | {client.version} |" in DOCUMENT, client.title
    modules = (drivers.PROGRAMS / "go" / "go.mod").read_text()
    jars = (drivers.PROGRAMS / "java" / "jars.txt").read_text()
    packages = json.loads((drivers.PROGRAMS / "node" / "package.json").read_text())["dependencies"]
    python = (ROOT / "tests" / "requirements.txt").read_text()
    for name, pinned in {
        "pgx": re.search(r"pgx/v5 v(\S+)", modules),
        "pq": re.search(r"lib/pq v(\S+)", modules),
        "adbc": re.search(r"arrow-adbc/go/adbc v(\S+)", modules),
        "pgjdbc": re.search(r"org.postgresql:postgresql:(\S+)", jars),
        "flight": re.search(r"flight-sql-jdbc-driver:(\S+)", jars),
        "node": re.search(r"(.*)", packages["pg"]),
        "psycopg": re.search(r"psycopg==(\S+)", python),
        "psycopg2": re.search(r"psycopg2-binary==(\S+)", python),
        "asyncpg": re.search(r"asyncpg==(\S+)", python),
        "sqlalchemy": re.search(r"SQLAlchemy==(\S+)", python),
        "pandas": re.search(r"pandas==(\S+)", python),
    }.items():
        assert pinned is not None and pinned[1] == CLIENTS[name].version, name
