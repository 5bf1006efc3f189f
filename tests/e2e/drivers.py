"""What every database driver is asked, and the answers it must give: one table `client × feature` for all languages.

A client in another language is a program in tests/drivers. It reads QUESTIONS as JSON, with the address of the server,
and prints its answers by feature as JSON. Clients in Python answer the same questions in their test files.
"""

from __future__ import annotations

import datetime
import decimal
import json
import pathlib
import struct
import subprocess
from typing import Any

import strongback
from strongback import Server

PROGRAMS = pathlib.Path(__file__).resolve().parents[1] / "drivers"
UTC = datetime.UTC
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=UTC)
BEGIN_US = 1_760_000_000_000_000
ROWS = 50_000
PART = 1_000


def at(us: int) -> datetime.datetime:
    """Returns the time that is `us` microseconds after 1970."""
    return EPOCH + datetime.timedelta(microseconds=us)


def rfc3339(us: int) -> str:
    """Returns the same as text, in UTC."""
    return at(us).isoformat().replace("+00:00", "Z")


F32_MAX = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]
F32_MIN = struct.unpack("<f", b"\x01\x00\x00\x00")[0]
F64_MAX = 1.7976931348623157e308
TEXT = "käse ☃ 𝄞 'single' \"double\" back\\slash {a,b}\ttab\nline, NULL"

# Columns of the table `kinds`: name, type in the store's definition, type in PostgreSQL.
KINDS = [
    ("flag", "bool", "bool"),
    ("a8", "int8", "int2"),
    ("a16", "int16", "int2"),
    ("a32", "int32", "int4"),
    ("a64", "int64", "int8"),
    ("b8", "uint8", "int2"),
    ("b16", "uint16", "int4"),
    ("b32", "uint32", "int8"),
    ("b64", "uint64", "numeric"),
    ("single", "float", "float4"),
    ("double", "double", "float8"),
    ("note", "string", "text"),
]
KIND_ROWS: list[list[Any]] = [
    [True, 5, -300, 70_000, -5_000_000_000, 200, 40_000, 3_000_000_000, 10**19, 0.5, 0.1, "plain"],
    [False, -(2**7), -(2**15), -(2**31), -(2**63), 0, 0, 0, 0, -F32_MAX, -F64_MAX, "low"],
    [
        True,
        2**7 - 1,
        2**15 - 1,
        2**31 - 1,
        2**63 - 1,
        2**8 - 1,
        2**16 - 1,
        2**32 - 1,
        2**64 - 1,
        F32_MAX,
        F64_MAX,
        TEXT,
    ],
    [False, 0, 0, 0, 0, 1, 1, 1, 1, F32_MIN, 5e-324, "0"],
]

# Rows of the table `special`: time, float4, float8, text. Others than the first are before 1970.
SPECIAL_ROWS: list[tuple[int, Any, Any, Any]] = [
    (BEGIN_US, None, None, "no numbers"),
    (BEGIN_US + 1, 1.0, None, None),
    (0, float("nan"), float("nan"), "NaN"),
    (-1, float("inf"), float("inf"), "Infinity"),
    (-86_400_000_000 - 500_000, float("-inf"), float("-inf"), ""),
    (-2_208_988_800_000_000, -0.0, -0.0, "NULL"),
]
SPECIAL_ROWS.sort(key=lambda row: row[0])

# Columns of the table `lab`: name, type in the store's definition, type in PostgreSQL.
ARRAYS = [
    ("flags", "bool[]", "_bool"),
    ("codes", "int16[]", "_int2"),
    ("widths", "uint16[]", "_int4"),
    ("counts", "int64[]", "_int8"),
    ("large", "uint64[]", "_numeric"),
    ("spectrum", "float[3]", "_float4"),
    ("wave", "double[]", "_float8"),
    ("number", "int32", "int4"),
]
ARRAY_ROWS: list[list[Any]] = [
    [[True, False], [-1, 2], [65_535], [-(2**63), 2**63 - 1], [2**64 - 1, 7], [0.5, -1.0, 2.0], [0.1, float("nan")], 1],
    [[], [], [], [], [], [0.0, 0.0, F32_MAX], [], 2],
    [None, None, None, None, None, None, None, 3],
    [[True], [1], [2], [3], [4], [1.5, 2.5, 3.5], [float("-inf"), -0.0, F64_MAX], 4],
]

ENGINE_ROWS = [(BEGIN_US + i * 1_000, f"{i % 3}", i / 8, i, 2**63 + i, i % 2 == 0, f"note {i}") for i in range(30)]
ENGINE_COLUMNS = [
    ("time", "timestamptz"),
    ("stand", "text"),
    ("p", "float8"),
    ("count", "int8"),
    ("big", "numeric"),
    ("open", "bool"),
    ("note", "text"),
]


def _toml(number: int, name: str, columns: list[tuple[str, str, str]]) -> str:
    elements = ",\n  ".join(f'{{ name = "{n}", type = "{kind}", optional = true }}' for n, kind, _ in columns)
    return f'[[stream]]\nname = "{name}"\nid = {number}\nelement = [\n  {elements},\n]\n'


def _json(value: Any) -> Any:
    """Returns a value as `store append` reads it in JSON lines."""
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    return [_json(v) for v in value] if isinstance(value, list) else value


def _append(store: pathlib.Path, folder: pathlib.Path, table: str, rows: list[dict[str, Any]]) -> None:
    lines = folder / f"{table}.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [strongback.BINARY, "store", "append", str(store), str(lines), "--stream", table]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def serve(folder: pathlib.Path) -> Server:
    """Starts a server with tables of every type: of those that the recorder writes, and of those of line protocol."""
    server = Server(folder=folder)
    store = folder / "store"
    definition = folder / "kinds.toml"
    special = [("single", "float", "float4"), ("double", "double", "float8"), ("note", "string", "text")]
    definition.write_text("\n".join((_toml(1, "kinds", KINDS), _toml(2, "special", special), _toml(3, "lab", ARRAYS))))
    command = [strongback.BINARY, "store", "create", str(store), "--folder", "--definition", str(definition)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    for table, columns, rows in (("kinds", KINDS, KIND_ROWS), ("lab", ARRAYS, ARRAY_ROWS)):
        cells = [
            {"time": rfc3339(BEGIN_US + i), **{n: _json(v) for (n, _, _), v in zip(columns, row, strict=True)}}
            for i, row in enumerate(rows)
        ]
        _append(store, folder, table, cells)
    cells = [{"time": rfc3339(us), "single": _json(f), "double": _json(d), "note": t} for us, f, d, t in SPECIAL_ROWS]
    _append(store, folder, "special", cells)
    server.start()
    lines = [
        f'engine,stand={stand} p={p},count={count}i,big={big}u,open={str(is_open).lower()},note="{note}" {us * 1_000}'
        for us, stand, p, count, big, is_open, note in ENGINE_ROWS
    ]
    assert server.write("\n".join(lines)) == (204, None)
    lines = [f"many,stand={i % 2} n={i}i,p={i / 8} {BEGIN_US * 1_000 + i * 1_000_000}" for i in range(ROWS)]
    assert server.write("\n".join(lines)) == (204, None)
    return server


def _argument(kind: str, value: Any) -> dict[str, Any]:
    return {"kind": kind, "value": value}


T = BEGIN_US
# Each with the rows it must return.
PARAMETERS: list[tuple[str, list[dict[str, Any]], list[list[Any]]]] = [
    (
        "select count from engine where stand = $1 and count < 10 order by count",
        [_argument("text", "1")],
        [[1], [4], [7]],
    ),
    ("select count from engine where count >= $1 order by count", [_argument("int", 28)], [[28], [29]]),
    ("select count from engine where count >= $1 order by count", [_argument("int4", 28)], [[28], [29]]),
    ("select count from engine where p >= $1 order by count", [_argument("float", 3.5)], [[28], [29]]),
    ("select count from engine where open = $1 and count < 5 order by count", [_argument("bool", False)], [[1], [3]]),
    ("select count from engine where time >= $1 order by count", [_argument("time", T + 28_000)], [[28], [29]]),
    ("select count from engine where big >= $1 order by count", [_argument("decimal", str(2**63 + 28))], [[28], [29]]),
    (
        "select count from engine where time >= $1 and time < $2 and stand = $3 order by count",
        [_argument("time", T + 10_000), _argument("time", T + 15_000), _argument("text", "2")],
        [[11], [14]],
    ),
    (
        "select count from engine where note like $1 order by count",
        [_argument("text", "note 2_")],
        [[n] for n in range(20, 30)],
    ),
    ("select count(*) from engine where stand = $1", [_argument("null", None)], [[0]]),
    ("select a16 from kinds where single = $1", [_argument("float", 0.5)], [[-300]]),
    ("select a16 from kinds where b8 = $1", [_argument("int", 200)], [[-300]]),
    ("select a16 from kinds where note = $1", [_argument("text", TEXT)], [[2**15 - 1]]),
    (
        "select channel, number from state_at($1, $2) order by channel",
        [_argument("time", T + 4_000), _argument("text", "engine.count*")],
        [["engine.count{stand=0}", 3.0], ["engine.count{stand=1}", 4.0], ["engine.count{stand=2}", 2.0]],
    ),
]
ANY: list[tuple[str, list[dict[str, Any]], list[list[Any]]]] = [
    ("select count(*) from engine where stand = any($1)", [_argument("texts", ["0", "2"])], [[20]]),
    ("select count from engine where count = any($1) order by count", [_argument("ints", [3, 5, 99])], [[3], [5]]),
    ("select count from engine where p = any($1) order by count", [_argument("floats", [0.125, 2.0])], [[1], [16]]),
    ("select count from engine where time = any($1) order by count", [_argument("times", [T, T + 7_000])], [[0], [7]]),
    (
        "select count(*) from engine where stand = any($1) and p > $2 and time >= $3",
        [_argument("texts", ["1"]), _argument("float", 1.0), _argument("time", T)],
        [[7]],
    ),
]
# Parameters of which a client gives the types. They have no others from their places.
GIVEN: list[tuple[str, list[dict[str, Any]], list[str], list[list[Any]]]] = [
    (
        "select count + $1, $2 * 2, coalesce($3, 1), $4, $5 > $6 from engine where count = 3",
        [*[_argument("float", 1.5)] * 3, _argument("time", T + 1), _argument("int", 2), _argument("int", 10)],
        ["float8", "float8", "float8", "timestamptz", "bool"],
        [[4.5, 3.0, 1.5, T + 1, False]],
    ),
    (
        "select count(*) from engine where time >= $1 + $2",
        [_argument("time", T), _argument("interval", 10_000)],
        ["int8"],
        [[20]],
    ),
    ("select count(*) from engine where time >= $1", [_argument("date", "2025-10-09")], ["int8"], [[30]]),
    (
        "select count(*) from engine where time > now() - $1 * interval '1 day'",
        [_argument("float", 50_000.5)],
        ["int8"],
        [[30]],
    ),
]
LIMIT = (
    "select count from engine order by count limit $1 offset $2",
    [_argument("int", 3), _argument("int", 4)],
    [[4], [5], [6]],
)
PREPARED = "select n, p from many where n = $1"
PREPARED_VALUES = [0, 7, ROWS - 1, *range(100, 112)]
PARTS = "select n, p from many order by n"
COPY = "copy (select time, stand, p, count, big, open, note from engine order by count limit 2) to stdout"
COPIED = (
    "2025-10-09 08:53:20+00\t0\t0\t0\t9223372036854775808\tt\tnote 0\n"
    "2025-10-09 08:53:20.001+00\t1\t0.125\t1\t9223372036854775809\tf\tnote 1\n"
)
# With the SQLSTATE of each.
ERRORS = [
    ("select p from nothing", "42P01"),
    ("select nothing from engine", "42703"),
    ("select p fro engine where", "42601"),
    ("insert into engine (p) values (1)", "25006"),
    ("create table new (p int)", "25006"),
    ("select nothing(p) from engine", "42883"),
    ("select 1 / (count - count) from engine", "22012"),
    ("select 'a'::int", "22P02"),
]
# A write with a parameter, which is refused like one without.
REFUSED = ("insert into engine (p) values ($1)", [_argument("float", 1.5)], "25006")
ENDLESS = "select s.n from generate_series(1, 1000000000000) s(n)"
ENDLESS_COUNT = "select count(*) from generate_series(1, 1000000000000) s(n)"
COLUMNS = [
    (
        "select table_schema::text, table_name::text from information_schema.tables "
        "where table_schema = $1 and table_name not like 'grows%' order by 1, 2",
        [_argument("text", "public")],
        [["public", name] for name in ("engine", "kinds", "lab", "many", "special")],
    ),
    (
        "select column_name::text from information_schema.columns where table_name = $1 and column_name = any($2) "
        "order by ordinal_position",
        [_argument("text", "engine"), _argument("texts", [name for name, _ in ENGINE_COLUMNS])],
        [[name] for name, _ in ENGINE_COLUMNS],
    ),
    (
        "select a.attname::text, format_type(a.atttypid, a.atttypmod) from pg_catalog.pg_attribute a "
        "join pg_catalog.pg_class c on c.oid = a.attrelid join pg_catalog.pg_namespace n on n.oid = c.relnamespace "
        "where n.nspname = 'public' and c.relname = $1 and a.attnum > 0 and not a.attisdropped "
        "and a.attname = any($2) order by a.attname",
        [_argument("text", "engine"), _argument("texts", ["p", "time", "big", "stand"])],
        [["big", "numeric(20,0)"], ["p", "double precision"], ["stand", "text"], ["time", "timestamp with time zone"]],
    ),
]
CONNECT = "select current_database()::text, current_schema()::text"


def _question(sql: str, arguments: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"sql": sql, "arguments": arguments or []}


VALUES = f"select time, {', '.join(name for name, _, _ in KINDS)} from kinds order by time"
VALUE_TYPES = ["timestamptz", *(kind for _, _, kind in KINDS)]
SPECIAL = "select time, single, double, note from special order by time"
SPECIAL_TYPES = ["timestamptz", "float4", "float8", "text"]
ARRAYS_SQL = f"select {', '.join(name for name, _, _ in ARRAYS)} from lab order by time"
ARRAY_TYPES = [kind for _, _, kind in ARRAYS]
# Arrays that a statement makes, of texts among others.
ELEMENTS = "select array_agg(stand order by count), array_agg(p order by count) from engine where count < 4"


def questions(server: Server) -> dict[str, Any]:
    """Returns all questions, as the programs read them."""
    return {
        "host": "127.0.0.1",
        "port": server.pg_port,
        "write_url": f"{server.url}/api/v2/write?precision=ns",
        "flight_port": server.flight_port,
        "connect": _question(CONNECT),
        "columns": [_question(sql, arguments) for sql, arguments, _ in COLUMNS],
        "values": _question(VALUES),
        "special": _question(SPECIAL),
        "arrays": _question(ARRAYS_SQL),
        "elements": _question(ELEMENTS),
        "parameters": [_question(sql, arguments) for sql, arguments, _ in PARAMETERS],
        "any": [_question(sql, arguments) for sql, arguments, _ in ANY],
        "given": [_question(sql, arguments) for sql, arguments, *_ in GIVEN],
        "limit": _question(*LIMIT[:2]),
        "prepared": {"sql": PREPARED, "values": PREPARED_VALUES},
        "parts": {"sql": PARTS, "rows": PART},
        "copy": COPY,
        "errors": [sql for sql, _ in ERRORS],
        "refused": _question(*REFUSED[:2]),
        "endless": ENDLESS,
        "endless_count": ENDLESS_COUNT,
    }


def canonical(kind: str, value: Any) -> Any:
    """Returns a value of a PostgreSQL type in one form, whatever a driver made of it: floats by their bits."""
    if value is None:
        return None
    if kind.startswith("_"):
        assert isinstance(value, list), f"{value!r} is no array"
        return [canonical(kind[1:], element) for element in value]
    match kind:
        case "bool":
            assert isinstance(value, bool), f"{value!r} is no bool"
            return value
        case "int2" | "int4" | "int8":
            assert not isinstance(value, (bool, float)), f"{value!r} is no integer"
            return int(value)
        case "numeric":
            return decimal.Decimal(str(value))
        case "float4":
            return struct.pack("<f", _number(value)).hex()
        case "float8":
            return struct.pack("<d", _number(value)).hex()
        case "timestamptz":
            if isinstance(value, datetime.datetime):
                return (value - EPOCH) // datetime.timedelta(microseconds=1)
            return int(value)
    assert isinstance(value, str), f"{value!r} is no text"
    return value


def _number(value: Any) -> float:
    number = float(value)
    return float("nan") if number != number else number


def canonical_rows(types: list[str], rows: list[Any]) -> list[list[Any]]:
    """Returns rows in one form."""
    return [[canonical(kind, value) for kind, value in zip(types, row, strict=True)] for row in rows]


def expected_values() -> list[list[Any]]:
    """Returns the rows of `VALUES`."""
    return canonical_rows(VALUE_TYPES, [[BEGIN_US + i, *row] for i, row in enumerate(KIND_ROWS)])


def expected_special() -> list[list[Any]]:
    """Returns the rows of `SPECIAL`."""
    return canonical_rows(SPECIAL_TYPES, [list(row) for row in SPECIAL_ROWS])


def expected_arrays() -> list[list[Any]]:
    """Returns the rows of `ARRAYS_SQL`."""
    return canonical_rows(ARRAY_TYPES, ARRAY_ROWS)


EXPECTED_ELEMENTS = [[["0", "1", "2", "0"], [0.0, 0.125, 0.25, 0.375]]]
EXPECTED_SUM = {
    "rows": ROWS,
    "total": ROWS * (ROWS - 1) // 2,
    "first": 0,
    "last": ROWS - 1,
    "sum": ROWS * (ROWS - 1) / 16,
}
EXPECTED_PREPARED = [[n, n / 8] for n in PREPARED_VALUES]
