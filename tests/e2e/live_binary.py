"""Reads live messages in binary as docs/format/live.md has them: what the same message is in JSON."""

from __future__ import annotations

import math
import struct
from typing import Any

PROTOCOL = "strongback.live.1"

_WINDOW_HEAD, _SERIES_HEAD, _SOURCE_HEAD = 64, 16, 20
_ONE, _RANGE, _MEAN, _WIDE = 1, 2, 4, 8
_FORMATS = {1: "B", 2: "b", 3: "h", 4: "i", 5: "q", 6: "B", 7: "H", 8: "I", 9: "Q", 10: "f", 11: "d"}
_BOOL, _F32, _TEXT = 1, 10, 12


class Damaged(ValueError):
    """Bytes that are no live message."""


def read(message: bytes) -> dict[str, Any] | None:
    """The message, or None for a kind to pass over."""
    rest = _Rest(message)
    kind = rest.one("B")
    if kind == 1:
        return _update(rest)
    if kind == 2:
        return _history(rest)
    if kind == 3:
        return _heartbeat(rest)
    if kind == 4:
        return _playback(rest)
    return None


class _Rest:
    """Bytes not yet read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise Damaged("cut short")
        self.at += size
        return self.data[self.at - size : self.at]

    def many(self, layout: str) -> tuple[Any, ...]:
        return struct.unpack("<" + layout, self.take(struct.calcsize("<" + layout)))

    def one(self, layout: str) -> Any:
        return self.many(layout)[0]

    def part(self, least: int) -> _Rest:
        length = self.one("I")
        if length < least:
            raise Damaged(f"a part of {length} bytes, at least {least}")
        return _Rest(self.take(length - 4))

    def text(self) -> str:
        return self.take(self.one("I")).decode()


def _update(rest: _Rest) -> dict[str, Any]:
    epoch, identifier, time, conflated, dropped, count = rest.many("xxxIqqIII")
    streams = [_window(rest.part(_WINDOW_HEAD)) for _ in range(count)]
    return {
        "type": "update", "id": identifier, "epoch": epoch, "time": str(time), "streams": streams,
        "conflated": conflated, "dropped": dropped,
    }  # fmt: skip


def _window(rest: _Rest) -> dict[str, Any]:
    stream, flags, count, start, end, committed, first, last, received = rest.many("IIIQQQqqq")
    channels = _cells(rest, count, "I")
    notes = _notes(rest) if flags & 8 and len(channels) == count else {}
    return {
        "stream": stream,
        "from_row": str(start) if flags & 4 else None,
        "to_row": str(end) if flags & 4 else None,
        "committed": str(committed),
        "recorded": bool(flags & 1),
        "time": [str(first), str(last)],
        "receive_time": str(received),
        "gap": bool(flags & 2),
        "channels": channels,
        **notes,
    }


def _history(rest: _Rest) -> dict[str, Any]:
    streams, identifier, count = rest.many("xxxIqI")
    rows = {str(stream): str(row) for stream, row in (rest.many("IQ") for _ in range(streams))}
    series = []
    for _ in range(count):
        part = rest.part(_SERIES_HEAD)
        channel, gaps, buckets = part.many("III")
        spans = [[str(t) for t in part.many("qq")] for _ in range(gaps)]
        cells = _cells(part, buckets, "q")
        notes = _notes(part) if len(cells) == buckets and part.at < len(part.data) else {}
        series.append({"channel": channel, "buckets": cells, "gaps": spans, **notes})
    return {"type": "history", "id": identifier, "series": series, "rows": rows}


def _heartbeat(rest: _Rest) -> dict[str, Any]:
    flags, epoch, time, last_data, commit_ms, points_per_s, dropped, count = rest.many("BxxIqqddQI")
    store = rest.text()
    sources = []
    for _ in range(count):
        part = rest.part(_SOURCE_HEAD)
        rate_hz, lost = part.many("dQ")
        sources.append({"name": part.text(), "status": part.text(), "rate_hz": rate_hz, "lost": str(lost)})
    lost_notices = {"dropped": rest.one("I")} if flags & 4 else {}
    return {
        "type": "heartbeat", "time": str(time), "epoch": epoch, "store": store,
        "commit_ms": commit_ms if flags & 1 else None, "points_per_s": points_per_s, "ingest_dropped": dropped,
        "last_data": str(last_data) if flags & 2 else None, "sources": sources, **lost_notices,
    }  # fmt: skip


def _playback(rest: _Rest) -> dict[str, Any]:
    flags, epoch, at, start, end, speed, number, wall_ns, viewers = rest.many("BxxIqqqdQqI")
    store, identifier, name = rest.text(), rest.text(), rest.text()
    state = {
        "id": identifier, "name": name, "from": str(start), "to": str(end), "at": str(at), "speed": speed,
        "paused": bool(flags & 1), "loop": bool(flags & 2), "ended": bool(flags & 4), "behind": bool(flags & 8),
        "viewers": viewers, "round": number, "wall_ns": str(wall_ns),
    }  # fmt: skip
    lost = {"dropped": rest.one("I")} if flags & 16 else {}
    return {"type": "heartbeat", "time": str(at), "epoch": epoch, "store": store, "playback": state, **lost}


def _cells(rest: _Rest, count: int, key: str) -> list[list[Any]]:
    """Cells, each behind its key, up to one of a type or shape that is not known."""
    cells: list[list[Any]] = []
    for _ in range(count):
        of = rest.one(key)
        code, shape = rest.many("BB")
        if code not in _FORMATS and code != _TEXT or shape & ~(_ONE | _RANGE | _MEAN | _WIDE):
            break
        known = [of if key == "I" else str(of)]
        if shape & _ONE:
            value = _value(rest, code)
            bound = value if shape & _RANGE else None
            cells.append([*known, 1, value, value, bound, bound, float(value) if shape & _MEAN else None])
            continue
        number = rest.one("Q" if shape & _WIDE else "I")
        first, last = _value(rest, code), _value(rest, code)
        least, greatest = (_value(rest, code), _value(rest, code)) if shape & _RANGE else (None, None)
        mean = rest.one("d") if shape & _MEAN else None
        cells.append([*known, number, first, last, least, greatest, mean])
    return cells


def _notes(rest: _Rest) -> dict[str, Any]:
    """What is said of cells beside their values, up to a type that is not known."""
    changed = [rest.one("I") for _ in range(rest.one("I"))]
    finite = []
    for _ in range(rest.one("I")):
        place, code = rest.many("IB")
        if code not in _FORMATS:
            break
        finite.append([place, _value(rest, code), _value(rest, code)])
    return {**({"changed": changed} if changed else {}), **({"finite": finite} if finite else {})}


def _value(rest: _Rest, code: int) -> Any:
    """A value as JSON has it."""
    if code == _TEXT:
        return rest.text()
    value = rest.one(_FORMATS[code])
    if code == _BOOL:
        return value == 1
    if _FORMATS[code] in "qQ":
        return str(value)
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        if code == _F32:
            return _shortest(value)
    return value


def _shortest(value: float) -> float:
    """The number with the fewest digits that is this binary32."""
    for digits in range(6, 9):
        near = float(f"{value:.{digits}g}")
        if struct.pack("<f", near) == struct.pack("<f", value):
            return near
    return float(f"{value:.9g}")
