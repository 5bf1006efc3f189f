"""Results of derived channels: as stored live or by a backfill, and as the record gives them anew."""

from __future__ import annotations

import struct
import urllib.parse
from typing import Any

from strongback import Server

# Time, trigger's row and value, whose bits are compared.
Result = tuple[int, int, Any]


def path(name: str, more: str = "") -> str:
    """The address of a derived channel."""
    return f"/api/derived/{urllib.parse.quote(name, safe='')}{more}"


def bits(value: Any) -> Any:
    """A value that is equal only where all bits are."""
    return struct.pack("<d", value) if type(value) in (int, float) else value


def stored(server: Server, name: str, version: str = "1") -> list[Result]:
    """Results that are stored."""
    table, channel = name.rsplit(".", 1)
    if not server.rows_of(table):
        return []
    rows = server.sql(
        f'select time_ns, "{channel}_row", "{channel}" from "{table}" '
        f"where version = '{version}' and \"{channel}_row\" is not null order by time_ns, \"{channel}_row\""
    )
    return [(time_ns, int(row), bits(value)) for time_ns, row, value in rows]


def replayed(server: Server, name: str, late: str = "false") -> list[Result]:
    """Results that the record gives."""
    answer = server.get(path(name, f"/past?limit=100000&late={late}"))
    assert not answer["truncated"] and answer["late_known_from"] is None
    return sorted((int(result["time"]), int(result["row"]), bits(result["value"])) for result in answer["results"])


def late(server: Server, name: str) -> int:
    """Frames named as too late for a derived channel."""
    if not server.rows_of("strongback.late"):
        return 0
    like = f"{name} version %"
    return server.sql("select count(*) from strongback.late where derived like %s", like)[0][0]
