"""Comparison of the rows of the SQL functions for telemetry with those of their model."""

from __future__ import annotations

import collections
import datetime
import math
import struct
from fractions import Fraction
from typing import Any

import telemetry_data as data
import telemetry_model as model
from telemetry_model import Near, Row

ULPS = 8
"""How far results of float arithmetic may be from the exact value, in units of 2⁻⁵³ of the magnitude of their terms."""

OVERFLOW = Fraction(2) ** 980
"""Magnitude of terms beyond which sums over nanoseconds may be infinite."""

NAMED = ["channel", "time", "time_ns"]
SPANS = ["from_time", "from_time_ns", "to_time", "to_time_ns", "duration", "duration_ns"]
EXTREMES = ["count", "min", "min_time_ns", "max", "max_time_ns"]
COLUMNS = {
    "samples": [*NAMED, "value", "number"],
    "summary": [*NAMED, *EXTREMES, "mean", "time_mean", "integral", "known_ns", "first", "last"],
    "states": ["channel", *SPANS, "value", "number", "open"],
    "intervals": [*SPANS, "open"],
    "crossings": [*NAMED, "rising", "before", "after"],
    "histogram": ["channel", "bin", "low", "high", "count"],
    "correlation": ["lag", "lag_ns", "correlation", "pairs"],
    "spectrum": ["channel", "frequency", "density", "segments"],
}


def same_bits(got: Any, want: float) -> bool:
    """Returns whether a float is the same, with its sign; NaN equals NaN."""
    if not isinstance(got, float):
        return False
    return math.isnan(got) and math.isnan(want) or struct.pack("<d", got) == struct.pack("<d", want)


def is_near(got: Any, want: Near) -> bool:
    """Returns whether a float is as near to the exact value as its rounding allows."""
    if want.size > OVERFLOW:
        return got is None or isinstance(got, float)
    if not isinstance(got, float):
        return False
    if not math.isfinite(got):
        return False
    if want.is_strict:
        return got == float(want.exact)
    return abs(Fraction(got) - want.exact) <= ULPS * Fraction(1, 2**53) * want.size + Fraction(1, 2**1070)


def is_right(got: Any, want: Any) -> bool:
    """Returns whether a value is what the model says."""
    if isinstance(want, Near):
        return is_near(got, want)
    if isinstance(want, model.Close):
        return isinstance(got, float) and math.isclose(got, want.value, rel_tol=1e-9, abs_tol=1e-9 * want.scale)
    if isinstance(want, model.OneOf):
        return got in want.values
    if isinstance(want, model.Equal):
        return isinstance(got, float) and got == want.value
    if isinstance(want, float):
        return same_bits(got, want)
    return type(got) is type(want) and got == want


def is_written(got: Any, want: Any) -> bool:
    """Returns whether a text is that of a value: of a float the shortest one, of an f32 as an f32."""
    if isinstance(want, bool):
        return got == ("true" if want else "false")
    if isinstance(want, model.Equal):
        return got in ("0", "-0")
    if isinstance(want, float):
        try:
            value = float(got)
        except (TypeError, ValueError):
            return False
        return same_bits(value, want) or same_bits(data.single(value), want)
    return got == str(want)


def micros(ns: int) -> datetime.datetime:
    """Returns a time with microseconds."""
    return datetime.datetime.fromtimestamp(0, datetime.UTC) + datetime.timedelta(microseconds=ns // 1_000)


def wrong_cells(got: Row, want: Row) -> list[str]:
    """Returns the columns of a row that are not what the model says."""
    wrong = [name for name, value in want.items() if name != "value" and not is_right(got[name], value)]
    if "value" in want and not is_written(got["value"], want["value"]):
        wrong.append("value")
    for name in ("time", "from_time", "to_time"):
        if name in got and f"{name}_ns" in got and got[name] != micros(got[f"{name}_ns"]):
            wrong.append(name)
    for name in ("duration", "lag"):
        if (
            name in got
            and f"{name}_ns" in got
            and got[name] != datetime.timedelta(microseconds=int(got[f"{name}_ns"] / 1_000))
        ):
            wrong.append(name)
    return wrong


def wrong_histogram(got: list[Row], want: list[Row]) -> str:
    """Returns what is wrong about a histogram: bounds are rounded, and counts are those between the rounded bounds."""
    for ours, theirs in zip(want, got, strict=True):
        bounds = [(theirs[side], ours[side]) for side in ("low", "high")]
        for written, exact in bounds:
            size = max(
                (
                    abs(row[side])
                    for row in want
                    if row["channel"] == ours["channel"]
                    for side in ("low", "high")
                    if row[side] is not None
                ),
                default=0,
            )
            if exact is None and written is not None or exact is not None and not is_near(written, Near(exact, size)):
                return f"bounds: {theirs} instead of {ours}"
        is_exact = all(exact is None or Fraction(written) == exact for written, exact in bounds)
        if (
            [theirs["channel"], theirs["bin"]] != [ours["channel"], ours["bin"]]
            or is_exact
            and theirs["count"] != ours["count"]
        ):
            return f"{theirs} instead of {ours}"
    totals = [collections.Counter[str]() for _ in range(2)]
    for total, rows in zip(totals, (want, got), strict=True):
        for row in rows:
            total[row["channel"]] += row["count"]
    return "" if totals[0] == totals[1] else f"totals: {totals[1]} instead of {totals[0]}"


def difference(
    function: str, names: list[str], got: list[Row], want: list[Row], chosen: list[str] | None = None
) -> str:
    """Returns the first difference between the rows of a call and those of the model, or nothing."""
    if function in COLUMNS and names != (chosen or COLUMNS[function]):
        return f"columns {names}"
    if want and not chosen and function not in COLUMNS:
        columns = list(want[0])
        columns.insert(columns.index("time_ns"), "time")
        if names != columns:
            return f"columns {names} instead of {columns}"
    if function == "histogram" and len(got) == len(want):
        return wrong_histogram(got, want)
    for place, (theirs, ours) in enumerate(zip(got, want, strict=False)):
        if wrong := wrong_cells(theirs, ours):
            shown = {name: (theirs[name], ours.get(name)) for name in wrong}
            where = {name: value for name, value in ours.items() if name in ("channel", "time_ns", "from_time_ns")}
            return f"row {place} of {len(got)} ({len(want)}), {where}: {shown}"
    if len(got) != len(want):
        least = min(len(got), len(want))
        return f"{len(got)} rows instead of {len(want)}; then {got[least:][:1] or want[least:][:1]}"
    return ""
