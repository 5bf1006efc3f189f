"""Which client of SQL has which feature. docs/clients.md shows the same table, and a test compares the two.

A feature that a client has is tested. One in `absent` is not offered by the client itself, one in `not_yet` fails
because of the server.
"""

from __future__ import annotations

import dataclasses

import pytest

FEATURES = {
    "connect": "connect",
    "columns": "tables and columns in the catalog",
    "values": "every type of column",
    "special": "NULL, NaN, infinities, before 1970",
    "arrays": "arrays",
    "parameters": "parameters of every type",
    "given": "types that the client gives for parameters",
    "any": "`= any($1)`",
    "limit": "`limit $1`",
    "modes": "other ways to run statements",
    "prepared": "a statement prepared once",
    "grows": "prepared again when a table gains columns",
    "parts": "50,000 rows in parts",
    "copy": "`COPY TO STDOUT`",
    "errors": "SQLSTATE of errors",
    "cancel": "cancelling a statement",
    "transactions": "transactions",
    "reset": "reset of a pooled connection",
    "metadata": "metadata, reflection",
}


@dataclasses.dataclass(kw_only=True)
class Client:
    """A client, with the features that it does not have or that fail."""

    title: str
    version: str
    absent: tuple[str, ...] = ()
    not_yet: dict[str, str] = dataclasses.field(default_factory=dict)

    def cell(self, feature: str) -> str:
        """Returns what the documentation says about a feature."""
        if feature in self.absent:
            return "not in this client"
        return "not yet" if feature in self.not_yet else "works"

    def cells(self) -> list[object]:
        """Returns the features to test, as parameters of a test."""
        marks = {f: [pytest.mark.xfail(strict=True, reason=reason)] for f, reason in self.not_yet.items()}
        return [pytest.param(f, marks=marks.get(f, []), id=f) for f in FEATURES if f not in self.absent]



COMMANDS = "\\\\dd, \\\\ddp, \\\\dL, \\\\dO and \\\\dX ask for columns and functions of the catalogs that do not exist"

CLIENTS = {
    "psql": Client(
        title="psql",
        version="15.18",
        absent=("grows", "given", "any", "modes", "reset"),
        not_yet={"metadata": COMMANDS},
    ),
    "psycopg": Client(
        title="psycopg 3",
        version="3.3.9",
        absent=("grows",),
    ),
    "psycopg2": Client(
        title="psycopg 2",
        version="2.9.13",
        absent=("grows", "given", "modes", "prepared"),
    ),
    "asyncpg": Client(
        title="asyncpg",
        version="0.32.0",
        absent=("given", "modes"),
    ),
    "sqlalchemy": Client(
        title="SQLAlchemy",
        version="2.1.9",
        absent=("given", "prepared", "grows", "copy", "cancel"),
    ),
    "pandas": Client(
        title="pandas",
        version="3.1.1",
        absent=(
            "grows",
            "columns",
            "given",
            "modes",
            "prepared",
            "copy",
            "cancel",
            "transactions",
            "reset",
            "metadata",
        ),
    ),
    "fdw": Client(
        title="postgres_fdw",
        version="15.18",
        absent=("grows", "given", "modes", "copy", "reset"),
    ),
    "pgjdbc": Client(
        title="pgjdbc",
        version="42.7.14",
    ),
    "pgx": Client(
        title="pgx",
        version="5.13.0",
        absent=("given",),
    ),
    "pq": Client(
        title="lib/pq",
        version="1.12.3",
        absent=("grows", "given", "copy", "metadata"),
    ),
    "node": Client(
        title="node-postgres",
        version="8.23.1",
        absent=("grows", "given", "metadata"),
    ),
    "adbc": Client(
        title="ADBC",
        version="1.11.0",
        absent=("grows", "given", "modes", "copy", "transactions", "reset"),
    ),
    "flight": Client(
        title="Flight SQL JDBC",
        version="18.3.0",
        absent=("grows", "given", "modes", "copy", "transactions", "reset"),
    ),
}
