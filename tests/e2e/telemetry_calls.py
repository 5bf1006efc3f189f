"""Random calls of the SQL functions for telemetry, and the rows that they must return."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import itertools
import math
import pathlib
import random
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any

import telemetry_data as data
import telemetry_model as model
from strongback import Server, eventually, free_ports
from telemetry_compare import COLUMNS, is_right
from telemetry_model import Channel, Row

SECOND, MS = data.SECOND, data.MS


@dataclasses.dataclass
class World:
    """A server, what was sent to it, and its channels as the model sees them."""

    server: Server
    streams: list[data.Stream]
    packet_port: int
    channels: list[Channel] = dataclasses.field(default_factory=list)

    def look(self) -> None:
        """Takes the numbers of streams from the store, and the samples from what was sent."""
        listed = self.server.sql("select name, stream, id, interpolation from strongback.channels")
        numbers = {name: (stream, number) for name, stream, number, _ in listed}
        self.channels = [channel for stream in self.streams for channel in stream.channels(numbers)]
        interpolations = {name: interpolation for name, *_, interpolation in listed}
        for channel in self.channels:
            assert interpolations[channel.name] == ("linear" if channel.is_linear else "hold"), channel.name

    def check(self) -> None:
        """Checks with plain SQL that the store has what was sent."""
        for stream in self.streams:
            names = ", ".join(f'"{name}"' for name in stream.kinds)
            used = {key for other in self.streams if other.table == stream.table for key in other.tags}
            values = {key: f"= '{stream.tags[key]}'" if key in stream.tags else "is null" for key in used}
            tags = " and ".join(["true", *(f"{key} {value}" for key, value in values.items())])
            with self.server.connect() as connection, connection.cursor(binary=True) as cursor:
                stored = cursor.execute(
                    f'select time_ns, {names} from "{stream.table}" where {tags} order by time'
                ).fetchall()
            sent = sorted(stream.frames, key=lambda frame: frame.time)
            assert len(stored) == len(sent), f"{stream.table}: {len(stored)} frames instead of {len(sent)}"
            for row, frame in zip(stored, sent, strict=True):
                want = [frame.time] + [frame.values.get(name) for name in stream.kinds]
                want = [
                    decimal.Decimal(v) if k == "u64" and v is not None else v
                    for k, v in zip(["", *stream.kinds.values()], want, strict=True)
                ]
                assert all(is_right(got, of) for got, of in zip(row, want, strict=True)), (
                    f"{stream.table}: {row} instead of {want}"
                )
            gaps = "select coalesce(sum(open), 0)::bigint from strongback.gaps where stream_name = %s"

            def is_known(of: data.Stream = stream, gaps: str = gaps) -> bool:
                return self.server.sql(gaps, of.table + of.braces) == [(of.missing,)]

            # Rows of losses are written once a second.
            eventually(f"{stream.missing} missing frames of {stream.table}", is_known)

    def matching(self, pattern: str) -> list[Channel]:
        """Returns the channels that match a pattern."""
        return [channel for channel in self.channels if model.matches(pattern, channel.name)]

    def frames_of(self, channels: list[Channel]) -> list[int]:
        """Returns the times of all frames of the streams of some channels."""
        names = {channel.name for channel in channels}
        of = [stream for stream in self.streams if names & {stream.name(column) for column in stream.kinds}]
        return [frame.time for stream in of for frame in stream.frames]


def send(world: World, rng: random.Random, *, start: int) -> None:
    """Sends the next frames of all live streams."""
    by_table: dict[str, list[data.Stream]] = collections.defaultdict(list)
    for stream in world.streams:
        by_table[stream.table].append(stream)
    for table, streams in by_table.items():
        if table == "fti.bay":
            data.numbered(rng, streams[0], count=60, start=start, unit=MS, period=20 * MS, absent=0)
            data.send_packets(world.server, streams[0], world.packet_port)
        elif table == "wide":
            data.fill(rng, streams[0], count=50, start=start, unit=MS, period=30 * MS)
            data.send_batches(world.server, streams[0])
        elif table in ("plain", "plant.tank", "shot", "room"):
            for stream in streams:
                unit = rng.choice([1, 1_000, MS])
                data.fill(rng, stream, count=60, start=start, unit=unit, period=rng.choice([5, 20, 40]) * MS)
            data.send_lines(world.server, streams)


def imported_world(folder: pathlib.Path, rng: random.Random) -> World:
    """Returns a world whose store has what was imported, with a server that does not run yet."""
    [port] = free_ports(count=1)
    server = Server(folder=folder, config=data.packet_config(port))
    messages = data.message_streams()
    for stream in messages:
        data.numbered(rng, stream, count=80, start=data.BEGIN, unit=MS, period=20 * MS, absent=0.3)
    data.import_messages(server, messages, folder)
    logged = data.logged_stream()
    data.fill(rng, logged, count=100, start=data.BEGIN, unit=MS, period=20 * MS, unknown=0.1)
    data.append_rows(server, logged, folder)
    live = [*data.line_streams(), *data.run_streams(), data.wide_stream(), data.packet_stream()]
    return World(server, [*live, *messages, logged], port)


def start_runs(server: Server) -> None:
    """Starts the runs and sets their T-0."""
    for name, t0 in data.RUNS.items():
        for step in ("start", f"t0?at={t0}"):
            request = urllib.request.Request(f"{server.url}/api/runs/{name}/{step}", method="POST")
            urllib.request.urlopen(request, timeout=60).close()


@dataclasses.dataclass
class Call:
    """A call of a function, with the rows that it must return."""

    function: str
    arguments: list[str]
    parameters: list[Any]
    expected: list[Row]
    limit: int | None = None
    chosen: list[str] | None = None
    """Columns to select instead of all."""

    @property
    def sql(self) -> str:
        """Returns the statement."""
        columns = ", ".join('"' + name + '"' for name in self.chosen) if self.chosen else "*"
        limit = f" limit {self.limit}" if self.limit is not None else ""
        return f"select {columns} from {self.function}({', '.join(self.arguments)}){limit}"

    def vary(self, rng: random.Random) -> None:
        """Selects some of the columns or of the rows instead of all."""
        if rng.random() < 0.1 and self.function != "histogram":
            self.limit = rng.randrange(4)
            self.expected = self.expected[: self.limit]
        names = COLUMNS.get(self.function) or list(self.expected[0] if self.expected else [])
        if names and self.function != "histogram" and rng.random() < 0.2:
            self.chosen = rng.sample(names, rng.randrange(1, len(names) + 1))
            self.expected = [{name: row[name] for name in self.chosen if name in row} for row in self.expected]


class Arguments:
    """Arguments of a call in random forms: constants, parameters, expressions."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.sql: list[str] = []
        self.parameters: list[Any] = []

    def add(self, sql: str, *parameters: Any) -> None:
        """Adds an argument."""
        self.sql.append(sql)
        self.parameters += parameters

    def text(self, text: str, *, is_constant: bool = False) -> None:
        """Adds a text, as a parameter unless it must be written in the statement."""
        if is_constant or self.rng.random() < 0.7:
            self.add("'" + text.replace("'", "''").replace("%", "%%") + "'")
        else:
            self.add("%s", text)

    def number(self, number: float) -> None:
        """Adds a number."""
        if self.rng.random() < 0.7:
            self.add(repr(number))
        else:
            self.add("%s", number)

    def time(self, ns: int) -> None:
        """Adds a time."""
        form = self.rng.randrange(8)
        instant = datetime.datetime.fromtimestamp(ns // SECOND, datetime.UTC) + datetime.timedelta(
            microseconds=ns % SECOND // 1_000
        )
        written = f"{instant:%Y-%m-%d %H:%M:%S}.{ns % SECOND:09d}"
        is_micros = ns % 1_000 == 0
        if form == 0:
            self.add(f"'{written}'")
        elif form == 1:
            self.add("%s", written)
        elif form == 2 and is_micros:
            self.add(f"timestamptz '{written[:-3]}'")
        elif form == 3 and is_micros:
            self.add("%s", instant)
        elif form == 4:
            self.add("%s", ns)
        elif form == 5 and is_micros:
            self.add(f"timestamptz '{written[:-3]}' - interval '1 hour' + interval '60 minutes'")
        elif form == 6 and is_micros and ns % SECOND == 0:
            self.add(f"'{instant:%Y-%m-%d %H:%M:%S}'")
        else:
            self.add(str(ns))

    def span(self, ns: int) -> None:
        """Adds a length of time."""
        form = self.rng.choice([0, 1, 3, 4, 5, 6])
        micros, rest = divmod(ns, 1_000)
        if rest or form == 0:
            self.add(str(ns))
        elif form == 1:
            self.add("%s", ns)
        elif form == 3:
            self.add(f"interval '{micros} microseconds'")
        elif form == 4 and ns % MS == 0:
            self.add(f"'{ns // MS} ms'")
        elif form == 5:
            self.add("%s", f"{micros} us")
        else:
            self.add(f"'{micros / 1_000_000:.6f} s'")


PATTERNS = ["plain.*", "plant.tank.*", "plant.tank.*{stand=1}", "plant.*.p", "plant.*{bay=a}", "wide.*", "wide.x_?32"]
PATTERNS += [
    "fti.bay.*",
    "robot.*.f",
    "robot.arm.*",
    "robot.*.*{run=dr*}",
    "*.f",
    "logged.*",
    "logged.?",
    "plant.tank.?{stand=?}",
]


class Calls:
    """Makes random calls over a world."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.world = world
        self.rng = rng
        self.methods = itertools.cycle(rng.sample(model.METHODS, len(model.METHODS)))
        times = [sample.time for channel in world.channels for sample in channel.samples]
        self.first, self.last = min(times), max(times)

    def channels(self, *, numbers: bool = False) -> tuple[str, list[Channel]]:
        """Returns a pattern and the channels that it matches."""
        while True:
            if self.rng.random() < 0.5:
                pattern = self.rng.choice(PATTERNS)
            else:
                pattern = self.rng.choice(self.world.channels).name
            found = self.world.matching(pattern)
            if any(channel.is_number for channel in found) or found and not numbers:
                return pattern, found

    def instant(self, channels: list[Channel]) -> int:
        """Returns an instant: that of a sample, near one, or on a round time; also before and after all data."""
        choice = self.rng.random()
        samples = self.rng.choice(channels).samples
        if choice < 0.5:
            return self.rng.choice(samples).time
        if choice < 0.6:
            return self.rng.choice(samples).time + self.rng.choice([-1, 1])
        if choice < 0.65:
            return self.rng.choice([self.first - SECOND, self.last + SECOND, self.first, self.last, self.last + 1])
        unit = self.rng.choice([1, 1_000, MS, 100 * MS, SECOND])
        return self.rng.randrange(samples[0].time - 100 * MS, samples[-1].time + 100 * MS) // unit * unit

    def range(self, channels: list[Channel]) -> tuple[int, int]:
        """Returns a span that has to do with some channels."""
        while True:
            start = self.instant(channels)
            end = start + self.rng.choice([1, MS, 20 * MS, 300 * MS])
            if self.rng.random() < 0.7:
                end = self.instant(channels)
            if start < end:
                return start, end

    def step(self, start: int, end: int, *, rows: int = 60) -> int:
        """Returns a step that makes at most some rows of a span."""
        least = (end - start) // rows + 1
        choice = self.rng.random()
        if choice < 0.2:
            return least + self.rng.randrange(3)
        if choice < 0.3:
            return end - start + self.rng.randrange(-1, 2) if end - start > 1 else 1
        unit = self.rng.choice([1_000, MS, 10 * MS])
        return (least // unit + self.rng.randrange(1, 20)) * unit

    def tolerance(self, channels: list[Channel], instants: Sequence[int], *, is_between: bool = False) -> int:
        """Returns a tolerance: often exactly the age of a sample, or the time between two around an instant."""
        channel, at = self.rng.choice(channels), self.rng.choice(instants)
        index = channel.newest(at)
        if index is None or self.rng.random() < 0.2:
            return self.rng.choice([0, 1, MS, 30 * MS, SECOND])
        near = self.rng.choice([0, 0, 0, -1, 1])
        if is_between and index + 1 < len(channel.samples):
            return max(0, channel.samples[index + 1].time - channel.samples[index].time + near)
        return max(0, at - channel.samples[index].time + near)

    def lasting(self, arguments: Arguments, channels: list[Channel]) -> int | None:
        """Adds a tolerance of values over time, or none: often exactly the time between two samples."""
        if self.rng.random() < 0.5:
            return None
        instants = [sample.time for channel in channels for sample in channel.samples]
        tolerance = max(1, self.tolerance(channels, instants, is_between=True))
        arguments.span(tolerance)
        return tolerance

    def samples(self) -> Call:
        pattern, channels = self.channels()
        start, end = self.range(channels)
        arguments = Arguments(self.rng)
        arguments.text(pattern)
        arguments.time(start)
        arguments.time(end)
        return Call("samples", arguments.sql, arguments.parameters, model.samples(channels, start, end))

    def resample(self) -> Call:
        method = next(self.methods)
        pattern, channels = self.channels(numbers=method in model.CALCULATES)
        start, end = self.range(channels)
        step = self.step(start, end)
        arguments = Arguments(self.rng)
        arguments.text(pattern, is_constant=True)
        arguments.time(start)
        arguments.time(end)
        arguments.span(step)
        arguments.text(method, is_constant=True)
        tolerance = None
        if method in model.TOLERANT and self.rng.random() < 0.5:
            tolerance = self.tolerance(channels, range(start, end, step), is_between=method != "previous")
            tolerance = max(tolerance, int(method in ("time_mean", "integral")))
            arguments.span(tolerance)
        expected = model.resample(channels, start, end, step, method, tolerance)
        return Call("resample", arguments.sql, arguments.parameters, expected)

    def resample_runs(self) -> Call:
        method = self.rng.choice(model.METHODS)
        pattern, named = self.rng.choice(
            [
                ("shot.p", "fire-1"),
                ("shot.*", "fire-*"),
                ("*.?", "*re-*"),
                ("shot.n{run=fire-1}", "fire-*"),
                ("shot.*{bay=a}", "fire-2"),
                ("room.*", "abort"),
                ("room.*", "fire-1"),
                ("*.t", "*re-*"),
                ("shot.q", "fire-*"),
                ("shot.?", "*"),
            ]
        )
        channels = self.world.matching(pattern)
        # A pattern leaves out runs without T-0, such as the one that was imported.
        runs = [model.Run(name, t0) for name, t0 in data.RUNS.items() if model.matches(named, name)]
        start = self.rng.choice([-2 * SECOND, -SECOND, -1, 0, 100 * MS])
        end = start + self.rng.choice([1, 10 * MS, SECOND, 3 * SECOND])
        step = self.step(start, end, rows=20)
        arguments = Arguments(self.rng)
        arguments.text(pattern, is_constant=True)
        arguments.text(named, is_constant=True)
        arguments.span(start)
        arguments.span(end)
        arguments.span(step)
        arguments.text(method, is_constant=True)
        tolerance = None
        if method in model.TOLERANT and self.rng.random() < 0.5:
            tolerance = max(1, self.tolerance(channels, [runs[0].t0 + at for at in range(start, end, step)]))
            arguments.span(tolerance)
        expected = model.resample_runs(channels, runs, start, end, step, method, tolerance)
        return Call("resample_runs", arguments.sql, arguments.parameters, expected)

    def asof(self) -> Call:
        pattern, channels = self.channels()
        while True:
            other, others = self.channels()
            if {channel.name for channel in others} - {channel.name for channel in channels}:
                break
        start, end = self.range(self.rng.choice([channels, others]))
        arguments = Arguments(self.rng)
        arguments.text(pattern, is_constant=True)
        arguments.text(other, is_constant=True)
        arguments.time(start)
        arguments.time(end)
        tolerance = None
        if self.rng.random() < 0.5:
            instants = [s.time for channel in channels for s in channel.within(start, end)]
            tolerance = self.tolerance(others, instants or [start])
            arguments.span(tolerance)
        return Call("asof", arguments.sql, arguments.parameters, model.asof(channels, others, start, end, tolerance))

    def summary(self) -> Call:
        pattern, channels = self.channels(numbers=True)
        start, end = self.range(channels)
        arguments = Arguments(self.rng)
        arguments.text(pattern)
        arguments.time(start)
        arguments.time(end)
        step = tolerance = None
        if self.rng.random() < 0.6:
            step = self.step(start, end, rows=12)
            arguments.span(step)
            tolerance = self.lasting(arguments, channels)
        expected = model.summary(channels, start, end, step, tolerance)
        return Call("summary", arguments.sql, arguments.parameters, expected)

    def states(self) -> Call:
        pattern, channels = self.channels()
        start, end = self.range(channels)
        arguments = Arguments(self.rng)
        arguments.text(pattern)
        arguments.time(start)
        arguments.time(end)
        tolerance = self.lasting(arguments, channels)
        return Call("states", arguments.sql, arguments.parameters, model.states(channels, start, end, tolerance))

    def level(self, channels: list[Channel]) -> float:
        """Returns a level: often that of a sample."""
        values = [float(s.value) for c in channels if c.is_number for s in c.samples if model.is_finite(s.value)]
        if values and self.rng.random() < 0.4:
            return self.rng.choice(values)
        return self.rng.choice([0.0, 1.0, 0.5, -3.125, 250.0, self.rng.uniform(-100, 100)])

    def crossings(self) -> Call:
        pattern, channels = self.channels(numbers=True)
        start, end = self.range(channels)
        level = self.level(channels)
        arguments = Arguments(self.rng)
        arguments.text(pattern)
        arguments.number(level)
        arguments.time(start)
        arguments.time(end)
        tolerance = self.lasting(arguments, channels)
        expected = model.crossings(channels, level, start, end, tolerance)
        return Call("crossings", arguments.sql, arguments.parameters, expected)

    def histogram(self) -> Call:
        pattern, channels = self.channels(numbers=True)
        start, end = self.range(channels)
        bins = self.rng.choice([1, 2, 4, 7, 16, 30])
        arguments = Arguments(self.rng)
        arguments.text(pattern)
        arguments.time(start)
        arguments.time(end)
        arguments.number(bins)
        bounds: tuple[float, float] | tuple[()] = ()
        if self.rng.random() < 0.5:
            low = self.level(channels)
            bounds = (low, max(low + self.rng.choice([0.125, 8.0, 1000.0]), math.nextafter(low, math.inf)))
            arguments.number(bounds[0])
            arguments.number(bounds[1])
        return Call(
            "histogram", arguments.sql, arguments.parameters, model.histogram(channels, start, end, bins, *bounds)
        )

    def named(self) -> list[Channel]:
        """Returns the channels that are the only one that their name matches."""
        return [channel for channel in self.world.channels if len(self.world.matching(channel.name)) == 1]

    def one(self) -> Channel:
        """Returns a channel of numbers of moderate size, as sums of squares of others overflow."""
        return self.rng.choice([channel for channel in self.named() if channel.is_exact])

    def correlation(self) -> Call:
        channel, other = self.one(), self.one()
        start, end = self.range([channel, other])
        step = self.step(start, end)
        lag_max = self.rng.choice([0, step - 1, step, 3 * step, 5 * step + 1])
        arguments = Arguments(self.rng)
        arguments.text(channel.name)
        arguments.text(other.name)
        arguments.time(start)
        arguments.time(end)
        arguments.span(step)
        arguments.span(lag_max)
        tolerance = self.lasting(arguments, [channel, other])
        expected = model.correlation(channel, other, start, end, step, lag_max, tolerance)
        return Call("correlation", arguments.sql, arguments.parameters, expected)

    def spectrum(self) -> Call:
        channel = self.one()
        start, end = self.range([channel])
        if self.rng.random() < 0.8:
            # Within the samples, so that segments are complete.
            start = channel.samples[self.rng.randrange(len(channel.samples) // 2)].time + self.rng.choice([0, 1, MS])
            end = max(channel.samples[-1 - self.rng.randrange(len(channel.samples) // 2)].time, start + MS)
        step = self.step(start, end, rows=200)
        segment = self.rng.choice([2, 4, 8, 16, 17, 32, 50])
        arguments = Arguments(self.rng)
        arguments.text(channel.name)
        arguments.time(start)
        arguments.time(end)
        arguments.span(step)
        arguments.number(segment)
        tolerance = self.lasting(arguments, [channel])
        expected = model.spectrum([channel], start, end, step, segment, tolerance)
        return Call("spectrum", arguments.sql, arguments.parameters, expected)

    def comparison(self) -> tuple[str, str, Callable[[Any], bool]]:
        """Returns a comparison of a channel: its name, the SQL, and what it means."""
        channel = self.rng.choice(self.named())
        name = f'"{channel.name}"'
        if channel.kind == "bool":
            return channel.name, name, bool
        if channel.kind == "string":
            text = self.rng.choice(["open", "closed", ""])
            return channel.name, f"{name} = '{text}'", lambda value: value == text
        level = float(self.rng.choice([0, 1, 2, 100, -50]))
        if self.rng.random() < 0.5:
            # NaN is larger than every number.
            return channel.name, f"{name} > {level}", lambda value: model.is_nan(value) or value > level
        return channel.name, f"{name} <= {level}", lambda value: not model.is_nan(value) and value <= level

    def intervals(self) -> Call:
        parts = [self.comparison() for _ in range(self.rng.choice([1, 1, 2, 3]))]
        joined = self.rng.choice(["and", "or"])
        sql = f" {joined} ".join(part[1] for part in parts)
        names = {part[0] for part in parts}
        together = all if joined == "and" else any
        channels = [channel for channel in self.world.channels if channel.name in names]
        start, end = self.range(channels)
        arguments = Arguments(self.rng)
        arguments.text(sql)
        arguments.time(start)
        arguments.time(end)
        tolerance = self.lasting(arguments, channels)
        expected = model.intervals(
            lambda values: together(means(values[name]) for name, _, means in parts),
            names,
            channels,
            self.world.frames_of(channels),
            start,
            end,
            tolerance,
        )
        return Call("intervals", arguments.sql, arguments.parameters, expected)
