"""Registers the files of a Strongback lake as Iceberg tables, each file once.

The log of the lake says which files there are (docs/format/lake.md). A table keeps the number of the last commit that it
has in its property `strongback.commit`, which changes in the same transaction as its files, so a run that is interrupted
or comes twice adds nothing twice. Files are not read but for their footers, and stay where they are.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException, NamespaceAlreadyExistsError, TableAlreadyExistsError,
)
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform
from pyiceberg.types import (
    BooleanType, DecimalType, DoubleType, FloatType, IcebergType, ListType, LongType, NestedField, StringType,
    TimestamptzType,
)

FORMAT = 1
COMMIT = "strongback.commit"
ORIGIN = "strongback.origin"
LAKE = "strongback.lake"
# Columns that every table has from its first commit on, before all others.
FIXED = 9
# Commits without files for a table after which its position is moved nevertheless.
BEHIND_MAX = 1_000
# Attempts to commit beside other writers of a table, such as compaction.
ATTEMPTS = 5

TYPES: dict[str, IcebergType] = {
    "boolean": BooleanType(),
    "long": LongType(),
    "decimal(20,0)": DecimalType(20, 0),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "timestamptz": TimestamptzType(),
}


class LakeError(Exception):
    """What is wrong with a lake or a table, in words."""


def read_log(io: FileIO, url: str, start: int) -> Iterator[dict[str, Any]]:
    """Commits from a number on."""
    number = start
    while True:
        path = f"{url}/_strongback/commits/{number:08}.json"
        found = io.new_input(path)
        if not found.exists():
            return
        with found.open() as stream:
            try:
                commit = json.loads(stream.read())
            except ValueError as error:
                raise LakeError(f"{path}: {error}") from error
        if not isinstance(commit, dict) or commit.get("format") != FORMAT or commit.get("commit") != number:
            raise LakeError(f"{path} is no commit of format {FORMAT} and number {number}")
        yield commit
        number += 1


def type_of(column: dict[str, Any]) -> IcebergType:
    """Type of a column of the log."""
    try:
        kind = TYPES[column["type"]]
    except KeyError as error:
        raise LakeError(f"column {column.get('name')!r} has a type that is not known: {column.get('type')!r}") from error
    if "element_id" in column:
        return ListType(element_id=column["element_id"], element=kind, element_required=False)
    return kind


def create(catalog: Catalog, name: tuple[str, ...], columns: list[dict[str, Any]], commit: dict[str, Any], url: str) -> Table:
    """An empty table with the fixed columns; the others are added with the files that have them."""
    fixed = columns[:FIXED]
    if [column["id"] for column in fixed] != list(range(1, FIXED + 1)) or fixed[0]["name"] != "time":
        raise LakeError(f"{'.'.join(name)}: the first columns of the lake are not those of every table")
    fields = [
        NestedField(column["id"], column["name"], type_of(column), required=column.get("required", False))
        for column in fixed
    ]
    by_day = PartitionSpec(PartitionField(source_id=1, field_id=1000, transform=DayTransform(), name="time_day"))
    properties = {
        "format-version": "2",
        ORIGIN: commit["origin"],
        COMMIT: str(commit["commit"] - 1),
        LAKE: url,
    }
    return catalog.create_table(name, Schema(*fields), partition_spec=by_day, properties=properties)


def register_table(table: Table, columns: list[dict[str, Any]], files: list[str], commit: int) -> None:
    """Adds columns and files in one transaction, with the number of the last commit that they are of."""
    # After a conflict the position is to be read again. PyIceberg would add the same files to what another run added; this
    # changes the property of the table in memory alone.
    table.metadata.properties["commit.retry.num-retries"] = "0"
    known = {field.field_id for field in table.schema().fields}
    with table.transaction() as transaction:
        missing = [column for column in columns if column["id"] not in known]
        if missing:
            with transaction.update_schema() as update:
                for column in missing:
                    update.add_column(column["name"], type_of(column))
        schema = transaction.table_metadata.schema()
        for column in columns:
            field = next((field for field in schema.fields if field.field_id == column["id"]), None)
            if field is None or field.name != column["name"] or field.field_type != type_of(column):
                raise LakeError(
                    f"{'.'.join(table.name())}: column {column['id']} is {field}, and {column['name']!r} in the lake; "
                    "somebody else changed the columns of the table"
                )
        transaction.set_properties({COMMIT: str(commit)})
        if files:
            transaction.add_files(files, snapshot_properties={COMMIT: str(commit)})


def register(catalog: Catalog, url: str, namespace: str, io: FileIO) -> dict[str, tuple[int, int]]:
    """Registers what is new in a lake. Returns for each table the number of files added, and the last commit."""
    space = tuple(namespace.split("."))
    try:
        catalog.create_namespace(space)
    except NamespaceAlreadyExistsError:
        pass
    tables: dict[str, Table] = {}
    for name in catalog.list_tables(space):
        table = catalog.load_table(name)
        if table.properties.get(LAKE) == url:
            tables[table.name()[-1]] = table
    start = min((int(table.properties[COMMIT]) + 1 for table in tables.values()), default=0)
    columns: dict[str, list[dict[str, Any]]] = {}
    new: dict[str, list[tuple[int, str]]] = {}
    last, origin, first = start - 1, None, {}
    for commit in read_log(io, url, start):
        last = commit["commit"]
        if origin not in (None, commit["origin"]):
            raise LakeError(f"commit {last} is of another store than those before")
        origin = commit["origin"]
        for name, added in commit.get("columns", {}).items():
            columns.setdefault(name, []).extend(added)
            first.setdefault(name, commit)
        for file in commit.get("files", []):
            new.setdefault(file["table"], []).append((last, f"{url}/{file['path']}"))
    if origin is None:
        if not tables:
            raise LakeError(f"{url} has no commit of a lake")
        return {}
    for name in new:
        if name not in tables and name not in first:
            raise LakeError(
                f"table {name!r} is not in {namespace}, where files of it were registered before; "
                "register the lake in another namespace"
            )
    for name, commit in first.items():
        # All tables are there before any gets files, so the smallest position is never beyond a table's first file.
        if name not in tables:
            whole = (*space, name)
            try:
                tables[name] = create(catalog, whole, columns[name], commit, url)
            except TableAlreadyExistsError:
                # Perhaps another run made it a moment ago.
                tables[name] = catalog.load_table(whole)
                if tables[name].properties.get(LAKE) != url:
                    raise LakeError(f"table {'.'.join(whole)} is there, and is not of the lake {url}") from None
    done = {}
    for name, table in tables.items():
        if table.properties[ORIGIN] != origin:
            raise LakeError(f"table {name!r} has the files of the store {table.properties[ORIGIN]}, and the lake of {origin}")
        for attempt in range(ATTEMPTS):
            position = int(table.properties[COMMIT])
            files = [file for commit, file in new.get(name, []) if commit > position]
            if not files and last - position < BEHIND_MAX:
                break
            try:
                register_table(table, columns.get(name, []), files, last)
                done[name] = (len(files), last)
                break
            except CommitFailedException:
                if attempt + 1 == ATTEMPTS:
                    raise
                table = table.refresh()
    return done


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="strongback-lake",
        description="Registers the files of a Strongback lake as Iceberg tables, each file once.",
        epilog="Example: strongback-lake register s3://telemetry/pad --catalog-property type=rest "
        "--catalog-property uri=http://localhost:8181",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("register", help="adds what is new in the lake to its tables")
    one.add_argument("url", help="lake, as in the configuration: s3://bucket/prefix or file:///folder")
    one.add_argument("--catalog", default="default", help="catalog of .pyiceberg.yaml [default: %(default)s]")
    one.add_argument(
        "--catalog-property", action="append", default=[], metavar="KEY=VALUE",
        help="property of the catalog, or of the storage, such as s3.endpoint; can be repeated",
    )
    one.add_argument("--namespace", default="strongback", help="namespace of the tables [default: %(default)s]")
    options = parser.parse_args(arguments)
    properties = {}
    for text in options.catalog_property:
        key, equals, value = text.partition("=")
        if not equals:
            parser.error(f"--catalog-property {text}: it must be KEY=VALUE")
        properties[key] = value
    url = options.url.rstrip("/")
    try:
        catalog = load_catalog(options.catalog, **properties)
        io = load_file_io({**catalog.properties, **properties}, url)
        done = register(catalog, url, options.namespace, io)
    except (LakeError, OSError, ValueError) as error:
        print(f"strongback-lake: {error}", file=sys.stderr)
        return 1
    for name, (files, commit) in sorted(done.items()):
        print(f"{options.namespace}.{name}: {files} files, up to commit {commit}")
    if not done:
        print("nothing is new")
    return 0


if __name__ == "__main__":
    sys.exit(main())
