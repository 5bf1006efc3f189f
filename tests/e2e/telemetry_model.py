"""A naive model of the SQL functions for telemetry, written from docs/sql-telemetry.md alone.

It walks through lists of samples and calculates with fractions. Each function returns the rows of the table function
of the same name as dictionaries. Times are nanoseconds since 1970; `time`, `from_time`, … are left to the caller.
"""

from __future__ import annotations

import dataclasses
import decimal
import math
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import numpy

SECOND = 1_000_000_000
TEXTS = frozenset({"string"})
Row = dict[str, Any]
Value = bool | int | float | str


class Sample(NamedTuple):
    """A stored value of a channel, with time and row of its frame. `None` says that it is unknown from then on."""

    time: int
    row: int
    value: Value | None


@dataclasses.dataclass(frozen=True)
class Near:
    """A result of float arithmetic: its exact value, and the magnitude that errors of rounding are relative to."""

    exact: Fraction
    size: Fraction
    is_strict: bool = False
    """Whether every addition and product on the way is exact, so that only the last division rounds."""


@dataclasses.dataclass(frozen=True)
class Close:
    """A result of many float operations, and the magnitude that its error is relative to."""

    value: float
    scale: float


@dataclasses.dataclass(frozen=True)
class OneOf:
    """One of several values, as rounding decides."""

    values: frozenset[Any]


@dataclasses.dataclass(frozen=True)
class Equal:
    """A number whose sign is free if it is zero."""

    value: float


@dataclasses.dataclass
class Channel:
    """A channel with its samples in the order of time, then row."""

    name: str
    kind: str
    is_linear: bool
    stream: int
    place: int
    samples: list[Sample]
    gaps: frozenset[int] = frozenset()
    """Indices of samples after which frames are missing before the next sample."""
    is_exact: bool = False
    """Whether sums of its values, and their products with times, are exact in 53 bits."""

    @property
    def is_number(self) -> bool:
        """Returns whether functions that calculate read it."""
        return self.kind not in TEXTS

    def newest(self, at: int) -> int | None:
        """Returns the index of the newest sample at or before an instant."""
        found = None
        for index, sample in enumerate(self.samples):
            if sample.time <= at:
                found = index
        return found

    def within(self, start: int, end: int) -> list[Sample]:
        """Returns the samples from `start` up to `end`, exclusive."""
        return [s for s in self.samples if start <= s.time < end and s.value is not None]

    def pairs(self) -> Iterator[tuple[Sample, Sample]]:
        """Returns each two neighbouring samples without missing frames between them."""
        for index in range(len(self.samples) - 1):
            if index not in self.gaps:
                yield self.samples[index], self.samples[index + 1]


def is_finite(value: Value | None) -> bool:
    """Returns whether a number is known, and neither NaN nor infinite."""
    return value is not None and (not isinstance(value, float) or math.isfinite(value))


def is_nan(value: Value | None) -> bool:
    """Returns whether a value is NaN."""
    return isinstance(value, float) and math.isnan(value)


def number(value: Value | None) -> float | None:
    """Returns a value as `double precision`; NULL for text."""
    return None if value is None or isinstance(value, str) else float(value)


def by_name(channels: list[Channel]) -> list[Channel]:
    """Returns channels in the order of their names."""
    return sorted(channels, key=lambda channel: channel.name)


def typed(channel: Channel, value: Value | None) -> Any:
    """Returns a value of a channel as psycopg returns it."""
    return decimal.Decimal(int(value)) if channel.kind == "u64" and value is not None else value


# Values at an instant


def value_at(channel: Channel, at: int, tolerance: int | None = None) -> Value | None:
    """Returns the value at an instant."""
    index = channel.newest(at)
    if index is None:
        return None
    sample = channel.samples[index]
    if index in channel.gaps and sample.time < at:
        return None
    if tolerance is not None and at - sample.time > tolerance:
        return None
    return sample.value


def on_line(before: Sample, after: Sample, at: int) -> Fraction:
    """Returns the point on the line between two samples with finite values."""
    first, second = Fraction(before.value), Fraction(after.value)
    return first + (second - first) * Fraction(at - before.time, after.time - before.time)


def linear_at(channel: Channel, at: int, tolerance: int | None = None) -> float | Near | None:
    """Returns the value of the method `linear`."""
    index = channel.newest(at)
    if index is None:
        return None
    before = channel.samples[index]
    if before.time == at:
        return number(before.value)
    if index + 1 == len(channel.samples) or index in channel.gaps:
        return None
    after = channel.samples[index + 1]
    if tolerance is not None and after.time - before.time > tolerance:
        return None
    if not is_finite(before.value) or not is_finite(after.value):
        return None
    size = max(abs(Fraction(before.value)), abs(Fraction(after.value)))
    return Near(on_line(before, after, at), size)


def limited(channel: Channel, tolerance: int | None, *, is_line: bool, lasts: bool = False) -> Channel:
    """Returns a channel of which values too old are unknown: held ones from then on, lines between samples altogether.

    `lasts` says whether the last sample is held beyond the newest frame.
    """
    if tolerance is None:
        return channel
    samples: list[Sample] = []
    gaps: set[int] = set()
    for index, sample in enumerate(channel.samples):
        samples.append(sample)
        is_last = index + 1 == len(channel.samples)
        is_over = lasts if is_last else channel.samples[index + 1].time - sample.time > tolerance
        if index in channel.gaps or is_over and is_line:
            gaps.add(len(samples) - 1)
        elif is_over:
            samples.append(Sample(sample.time + tolerance, sample.row, None))
    return dataclasses.replace(channel, samples=samples, gaps=frozenset(gaps))


# Over time


class Piece(NamedTuple):
    """A span of time with the values at its start and its end, and the magnitude that they are rounded from."""

    start: int
    end: int
    first: Fraction
    last: Fraction
    size: Fraction


def known_pieces(channel: Channel, start: int, end: int) -> list[Piece]:
    """Returns the pieces of a span in which the value of a channel is known."""
    pieces = []
    for before, after in channel.pairs():
        left, right = max(start, before.time), min(end, after.time)
        if left >= right or not is_finite(before.value):
            continue
        if not channel.is_linear:
            value = Fraction(before.value)
            pieces.append(Piece(left, right, value, value, abs(value)))
        elif is_finite(after.value):
            size = max(abs(Fraction(before.value)), abs(Fraction(after.value)))
            pieces.append(Piece(left, right, on_line(before, after, left), on_line(before, after, right), size))
    return pieces


def known_ns(channel: Channel, start: int, end: int) -> int:
    """Returns the time for which the value is known."""
    return sum(piece.end - piece.start for piece in known_pieces(channel, start, end))


def integral(channel: Channel, start: int, end: int) -> Near | None:
    """Returns the integral over time in seconds."""
    pieces = known_pieces(channel, start, end)
    if not pieces:
        return None
    total = sum((p.end - p.start) * (p.first + p.last) / 2 for p in pieces)
    size = sum((p.end - p.start) * p.size for p in pieces)
    return Near(Fraction(total, SECOND), Fraction(size, SECOND), channel.is_exact and not channel.is_linear)


def time_mean(channel: Channel, start: int, end: int) -> Near | None:
    """Returns the integral divided by the time for which the value is known."""
    whole = integral(channel, start, end)
    if whole is None:
        return None
    known = Fraction(known_ns(channel, start, end), SECOND)
    return Near(whole.exact / known, whole.size / known, whole.is_strict)


def mean(channel: Channel, samples: list[Sample]) -> Near | None:
    """Returns the arithmetic mean of finite samples."""
    values = [Fraction(sample.value) for sample in samples if is_finite(sample.value)]
    if not values:
        return None
    size = sum(abs(value) for value in values)
    return Near(sum(values) / len(values), size / len(values), channel.is_exact)


# Functions


def samples(channels: list[Channel], start: int, end: int) -> list[Row]:
    """Returns the rows of `samples`."""
    found = [(s.time, c.stream, s.row, c.place, c, s) for c in channels for s in c.within(start, end)]
    return [
        {"channel": c.name, "time_ns": s.time, "value": s.value, "number": number(s.value)}
        for *_, c, s in sorted(found, key=lambda of: of[:4])
    ]


CALCULATES = frozenset({"linear", "min", "max", "mean", "time_mean", "integral", "rate"})
METHODS = ["previous", "linear", "first", "last", "min", "max", "count", "mean", "time_mean", "integral", "rate"]
TOLERANT = frozenset({"previous", "linear", "rate", "time_mean", "integral"})


def rate(channel: Channel, at: int, step: int, tolerance: int | None) -> Near | None:
    """Returns the change per second over one step."""
    before, after = value_at(channel, at, tolerance), value_at(channel, at + step, tolerance)
    if before is None or after is None or not is_finite(before) or not is_finite(after):
        return None
    seconds = Fraction(step, SECOND)
    first, second = Fraction(before), Fraction(after)
    return Near((second - first) / seconds, (abs(first) + abs(second)) / seconds)


def extreme(channel: Channel, inside: list[Sample], choose: Callable[..., Any]) -> Any:
    """Returns the smallest or largest sample."""
    values = [sample.value for sample in inside if not is_nan(sample.value)]
    if not values:
        return None
    chosen = choose(values)
    return Equal(chosen) if isinstance(chosen, float) else typed(channel, chosen)


def cell(channel: Channel, at: int, end: int, step: int, method: str, tolerance: int | None) -> Any:
    """Returns one value of `resample`; `end` is that of the step."""
    inside = channel.within(at, end)
    match method:
        case "previous":
            return typed(channel, value_at(channel, at, tolerance))
        case "linear":
            return linear_at(channel, at, tolerance)
        case "first":
            return typed(channel, inside[0].value) if inside else None
        case "last":
            return typed(channel, inside[-1].value) if inside else None
        case "min":
            return extreme(channel, inside, min)
        case "max":
            return extreme(channel, inside, max)
        case "count":
            return len(inside)
        case "mean":
            return mean(channel, inside)
        case "time_mean":
            return time_mean(limited(channel, tolerance, is_line=channel.is_linear), at, end)
        case "integral":
            return integral(limited(channel, tolerance, is_line=channel.is_linear), at, end)
        case "rate":
            return rate(channel, at, step, tolerance)
    raise ValueError(method)


def resample(
    channels: list[Channel], start: int, end: int, step: int, method: str, tolerance: int | None = None
) -> list[Row]:
    """Returns the rows of `resample`."""
    read = [channel for channel in by_name(channels) if channel.is_number or method not in CALCULATES]
    return [
        {"time_ns": at, **{c.name: cell(c, at, min(at + step, end), step, method, tolerance) for c in read}}
        for at in range(start, end, step)
    ]


class Run(NamedTuple):
    """A run with its T-0."""

    name: str
    t0: int


def tags_of(name: str) -> dict[str, str]:
    """Returns the tags of a channel's name; values are plain words."""
    braces = re.search(r"\{(.*)\}$", name)
    return dict(tag.split("=", 1) for tag in braces[1].split(",")) if braces else {}


def without_run(name: str) -> str:
    """Returns a channel's name without the tag `run`."""
    tags = ",".join(f"{key}={value}" for key, value in tags_of(name).items() if key != "run")
    return name.split("{")[0] + (f"{{{tags}}}" if tags else "")


def resample_runs(
    channels: list[Channel],
    runs: list[Run],
    start: int,
    end: int,
    step: int,
    method: str,
    tolerance: int | None = None,
) -> list[Row]:
    """Returns the rows of `resample_runs`; `start` and `end` count from T-0."""
    named = (None, *(run.name for run in runs))
    used = [c for c in channels if tags_of(c.name).get("run") in named and (c.is_number or method not in CALCULATES)]
    names = sorted({without_run(channel.name) for channel in used})
    rows = []
    for run in sorted(runs, key=lambda run: run.t0):
        # A channel of the run itself comes before one of no run.
        own = {without_run(c.name): c for tag in (None, run.name) for c in used if tags_of(c.name).get("run") == tag}
        for row in resample(list(own.values()), run.t0 + start, run.t0 + end, step, method, tolerance):
            cells = {name: row[own[name].name] if name in own else None for name in names}
            rows.append({"run": run.name, "run_time_ns": row["time_ns"] - run.t0, "time_ns": row["time_ns"], **cells})
    return rows


def asof(
    channels: list[Channel], others: list[Channel], start: int, end: int, tolerance: int | None = None
) -> list[Row]:
    """Returns the rows of `asof`."""
    frames = sorted({(s.time, c.stream, s.row) for c in channels for s in c.within(start, end)})
    rows = []
    for time, stream, row in frames:
        cells: Row = {"time_ns": time}
        for channel in by_name(channels):
            own = [s.value for s in channel.samples if channel.stream == stream and s.row == row]
            cells[channel.name] = typed(channel, own[0]) if own else None
        for other in by_name(others):
            if other.name not in cells:
                cells[other.name] = typed(other, value_at(other, time, tolerance))
        rows.append(cells)
    return rows


def point(channel: Channel, before: Sample, after: Sample, at: int) -> tuple[int, Any, Fraction]:
    """Returns the point on the line between two samples, with its time and magnitude."""
    size = max(abs(Fraction(before.value)), abs(Fraction(after.value)))
    # It is rounded to the type of the channel.
    return at, on_line(before, after, at), size * 2**29 if channel.kind == "f32" else size


def brought(channel: Channel, start: int) -> list[tuple[int, Any, Fraction]]:
    """Returns the value that a channel brings to the start of a piece, with its time and magnitude."""
    index = channel.newest(start)
    if index is None or index + 1 == len(channel.samples) or index in channel.gaps:
        return []
    before, after = channel.samples[index], channel.samples[index + 1]
    if before.time == start or before.value is None:
        return []
    if channel.is_linear and is_finite(before.value) and is_finite(after.value):
        return [point(channel, before, after, start)]
    return [(start, before.value, Fraction(0))]


def reached(channel: Channel, end: int) -> list[tuple[int, Any, Fraction]]:
    """Returns the value that a channel reaches at the end of a piece, with its time and magnitude."""
    return [
        point(channel, before, after, end)
        for before, after in channel.pairs()
        if channel.is_linear and before.time < end < after.time and is_finite(before.value) and is_finite(after.value)
    ]


ULP = Fraction(1, 2**52)


def extreme_of(candidates: list[tuple[int, Any, Fraction]], choose: Callable[..., Any]) -> tuple[Any, Any]:
    """Returns the smallest or largest of values in the order of time, and when it was first reached."""
    values = [of for of in candidates if not is_nan(of[1])]
    if not values:
        return None, None
    best = choose(value for _, value, _ in values)
    first, value, size = next(of for of in values if of[1] == best)
    chosen = Near(value, size) if isinstance(value, Fraction) else Equal(float(value))
    if not is_finite(best):
        return chosen, first
    least = Fraction(1, 2**1070)
    near = [
        (time, value, of)
        for time, value, of in values
        if is_finite(value) and abs(Fraction(value) - Fraction(best)) <= 4 * ULP * max(of, size) + least
    ]
    # Only points on a line are rounded.
    times = {time for time, _, _ in near} if any(of[2] for of in near) else {first}
    return chosen, first if len(times) == 1 else OneOf(frozenset(times))


def summary(
    channels: list[Channel], start: int, end: int, step: int | None = None, tolerance: int | None = None
) -> list[Row]:
    """Returns the rows of `summary`."""
    rows = []
    for channel in [limited(c, tolerance, is_line=c.is_linear) for c in by_name(channels) if c.is_number]:
        for at in [start] if step is None else range(start, end, step):
            until = end if step is None else min(at + step, end)
            inside = channel.within(at, until)
            own = [(s.time, s.value, Fraction(0)) for s in inside]
            candidates = brought(channel, at) + own + reached(channel, until)
            low, low_time = extreme_of(candidates, min)
            high, high_time = extreme_of(candidates, max)
            rows.append(
                {
                    "channel": channel.name,
                    "time_ns": at,
                    "count": len(inside),
                    "min": low,
                    "max": high,
                    "min_time_ns": low_time,
                    "max_time_ns": high_time,
                    "mean": mean(channel, inside),
                    "time_mean": time_mean(channel, at, until),
                    "integral": integral(channel, at, until),
                    "known_ns": known_ns(channel, at, until),
                    "first": number(inside[0].value) if inside else None,
                    "last": number(inside[-1].value) if inside else None,
                }
            )
    return rows


EVER = 2**63
"""Later than every time."""


class Span(NamedTuple):
    """A span of time with a value."""

    start: int
    end: int
    value: Any
    is_lost: bool = False
    """Whether it ends with its last sample because frames are missing after it."""


def is_same(one: Value | None, other: Value | None) -> bool:
    """Returns whether two values are equal; NaN equals NaN."""
    return one == other or is_nan(one) and is_nan(other)


def counting(channel: Channel) -> Iterator[tuple[int, Sample]]:
    """Returns the samples that count from their time on, with their indices: the last ones of each time.

    What says that a value is unknown ends the value before it in any case.
    """
    for index, sample in enumerate(channel.samples):
        later = channel.samples[index + 1 :]
        if sample.value is None or not any(s.time == sample.time and s.value is not None for s in later):
            yield index, sample


def spans_of(channel: Channel) -> list[Span]:
    """Returns the spans in which a channel kept its value, from its first sample on.

    A sample that stands alone before missing frames has a span without length.
    """
    spans: list[Span] = []
    is_ended = True
    for index, sample in counting(channel):
        following = channel.samples[index + 1].time if index + 1 < len(channel.samples) else EVER
        if sample.value is None or following == sample.time:
            is_ended = True
            continue
        is_lost = index in channel.gaps
        end = sample.time if is_lost else following
        if not is_ended and spans[-1].end == sample.time and is_same(spans[-1].value, sample.value):
            spans[-1] = Span(spans[-1].start, end, spans[-1].value, is_lost)
        else:
            spans.append(Span(sample.time, end, sample.value, is_lost))
        is_ended = False
    return spans


def is_within(span: Span, start: int, end: int) -> bool:
    """Returns whether a span has a part, or the last instant before missing frames, from `start` up to `end`."""
    return span.start < end and (span.end > start or span.is_lost and span.end == start)


def states(channels: list[Channel], start: int, end: int, tolerance: int | None = None) -> list[Row]:
    """Returns the rows of `states`."""
    rows = []
    for channel in by_name(channels):
        is_newest = not any(sample.time >= end for sample in channel.samples)
        for span in spans_of(limited(channel, tolerance, is_line=False, lasts=True)):
            if is_within(span, start, end):
                left, right = max(span.start, start), min(span.end, end)
                # 0 equals -0, and either may stand for both.
                value = Equal(0.0) if isinstance(span.value, float) and span.value == 0 else span.value
                rows.append(
                    {
                        "channel": channel.name,
                        "from_time_ns": left,
                        "to_time_ns": right,
                        "duration_ns": right - left,
                        "value": value,
                        "number": value if isinstance(value, Equal) else number(value),
                        "open": span.end >= end and is_newest,
                    }
                )
    return rows


Condition = Callable[[dict[str, Value]], bool]


def intervals(
    condition: Condition,
    names: set[str],
    channels: list[Channel],
    frames: list[int],
    start: int,
    end: int,
    tolerance: int | None = None,
) -> list[Row]:
    """Returns the rows of `intervals`. `frames` are the times of all frames of the streams of its channels."""
    read = [limited(channel, tolerance, is_line=False, lasts=True) for channel in channels if channel.name in names]
    cuts = [sample.time for channel in read for sample in channel.samples]
    instants = sorted({start} | {time for time in [*frames, *cuts] if start <= time < end})
    spans: list[Span] = []
    for at, following in zip(instants, [*instants[1:], end], strict=True):
        values = {channel.name: value_at(channel, at) for channel in read}
        if None in values.values() or not condition(values):
            continue
        # In a gap that begins with the sample at this instant, nothing is known from it on.
        until = at if any(channel.newest(at) in channel.gaps for channel in read) else following
        if spans and spans[-1].end == at:
            spans[-1] = Span(spans[-1].start, until, None)
        else:
            spans.append(Span(at, until, None))
    stored = [sample for channel in channels if channel.name in names for sample in channel.samples]
    is_newest = not any(sample.time >= end for sample in stored)
    return [
        {
            "from_time_ns": span.start,
            "to_time_ns": span.end,
            "duration_ns": span.end - span.start,
            "open": span.end == end and is_newest,
        }
        for span in spans
    ]


def crossing_time(channel: Channel, before: Sample, after: Sample, level: float, is_neighbour: bool) -> list[int]:
    """Returns the instant at which a channel crosses a level between two samples, or the two that are equally near."""
    if not channel.is_linear or not is_neighbour or not is_finite(before.value) or not is_finite(after.value):
        return [after.time]
    share = (Fraction(level) - Fraction(before.value)) / (Fraction(after.value) - Fraction(before.value))
    time = before.time + share * (after.time - before.time)
    is_half = abs(time - math.floor(time) - Fraction(1, 2)) < Fraction(1, 1000)
    return [math.floor(time), math.ceil(time)] if is_half else [round(time)]


def crossings(
    channels: list[Channel], level: float, start: int, end: int, tolerance: int | None = None
) -> list[Row]:
    """Returns the rows of `crossings`."""
    rows = []
    for channel in [limited(c, tolerance, is_line=True) for c in by_name(channels) if c.is_number]:
        before: Sample | None = None
        is_neighbour = True
        every = enumerate(channel.samples) if channel.is_linear else counting(channel)
        for index, sample in every:
            if sample.value is None:
                before = None
            elif is_nan(sample.value):
                is_neighbour = False
            else:
                if before is not None and (float(before.value) >= level) != (float(sample.value) >= level):
                    times = crossing_time(channel, before, sample, level, is_neighbour)
                    if start <= times[0] < end:
                        rows.append(
                            {
                                "channel": channel.name,
                                "time_ns": times[0] if len(times) == 1 else OneOf(frozenset(times)),
                                "rising": float(sample.value) >= level,
                                "before": number(before.value),
                                "after": number(sample.value),
                            }
                        )
                before, is_neighbour = sample, True
            if index in channel.gaps:
                before = None
    return rows


def histogram(
    channels: list[Channel], start: int, end: int, bins: int, low: float | None = None, high: float | None = None
) -> list[Row]:
    """Returns the rows of `histogram`. Bounds of bins are fractions, or None beyond the outer ones."""
    rows: list[Row] = []

    def add(channel: Channel, bin: int, low: Any, high: Any, count: int) -> None:
        rows.append({"channel": channel.name, "bin": bin, "low": low, "high": high, "count": count})

    for channel in [c for c in by_name(channels) if c.is_number]:
        values = [float(s.value) for s in channel.within(start, end) if not is_nan(s.value)]
        finite = [Fraction(value) for value in values if is_finite(value)]
        if low is not None and high is not None:
            least, greatest = Fraction(low), Fraction(high)
            add(channel, 0, None, least, sum(value < least for value in values))
        elif finite:
            least, greatest = min(finite), max(finite)
        else:
            for bin in range(1, bins + 1):
                add(channel, bin, None, None, 0)
            continue
        width = (greatest - least) / bins
        for bin in range(1, bins + 1):
            left, right = least + width * (bin - 1), least + width * bin
            is_last = low is None and bin == bins
            add(channel, bin, left, right, sum(left <= v < right or is_last and v == right for v in finite))
        if low is not None and high is not None:
            add(channel, bins + 1, greatest, None, sum(value >= greatest for value in values))
    return rows


def correlation(
    channel: Channel, other: Channel, start: int, end: int, step: int, lag_max: int, tolerance: int | None = None
) -> list[Row]:
    """Returns the rows of `correlation`."""
    grid = range(start, end, step)

    def resampled(of: Channel) -> dict[int, float]:
        values = {at: number(value_at(of, at, tolerance)) for at in grid}
        return {at: value for at, value in values.items() if value is not None and math.isfinite(value)}

    ones, others = resampled(channel), resampled(other)
    rows = []
    for displacement in range(-(lag_max // step), lag_max // step + 1):
        lag = displacement * step
        pairs = [(ones[at], others[at + lag]) for at in grid if at in ones and at + lag in others]
        x, y = numpy.array([p[0] for p in pairs]), numpy.array([p[1] for p in pairs])
        is_constant = len(set(x)) < 2 or len(set(y)) < 2
        r = None if is_constant else Close(float(numpy.corrcoef(x, y)[0, 1]), 1.0)
        rows.append({"lag_ns": lag, "correlation": r, "pairs": len(pairs)})
    return rows


def spectrum(
    channels: list[Channel], start: int, end: int, step: int, segment: int = 1024, tolerance: int | None = None
) -> list[Row]:
    """Returns the rows of `spectrum`, as `scipy.signal.welch` computes them by default."""
    rows = []
    window = 0.5 - 0.5 * numpy.cos(2 * numpy.pi * numpy.arange(segment) / segment)
    rate_hz = SECOND / step
    for channel in [c for c in by_name(channels) if c.is_number]:
        grid = [linear_at(channel, at, tolerance) for at in range(start, end, step)]
        values = [float(v.exact) if isinstance(v, Near) else v for v in grid]
        densities = []
        for begin in range(0, len(values) - segment + 1, segment - segment // 2):
            part = values[begin : begin + segment]
            if any(value is None or not math.isfinite(value) for value in part):
                continue
            x = numpy.array(part)
            density = abs(numpy.fft.rfft((x - x.mean()) * window)) ** 2 / (rate_hz * (window**2).sum())
            density[1 : -1 if segment % 2 == 0 else None] *= 2
            densities.append(density)
        if densities:
            average = numpy.mean(densities, axis=0)
            # Also where a constant part cancels out.
            scale = max(value**2 for value in values if value is not None and math.isfinite(value)) * segment / rate_hz
            for index, density in enumerate(average):
                rows.append(
                    {
                        "channel": channel.name,
                        "frequency": Close(index * rate_hz / segment, 0.0),
                        "density": Close(float(density), scale),
                        "segments": len(densities),
                    }
                )
    return rows


# Patterns


def matches(pattern: str, name: str) -> bool:
    """Returns whether a pattern of plain words, `*` and `?` matches a channel's name."""

    def glob(of: str, text: str) -> bool:
        parts = re.split(r"([*?])", of)
        return re.fullmatch("".join({"*": ".*", "?": "."}.get(p, re.escape(p)) for p in parts), text) is not None

    tags = tags_of(name)
    wanted = tags_of(pattern)
    is_named = glob(pattern.split("{")[0], name.split("{")[0])
    return is_named and all(key in tags and glob(value, tags[key]) for key, value in wanted.items())
