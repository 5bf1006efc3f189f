"""Random streams for the comparison of the SQL functions for telemetry with their model, and how they are sent."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import random
import socket
import struct
import subprocess
from typing import Any

import adbc_driver_flightsql.dbapi as flight_sql
import pyarrow
from mcap.writer import CompressionType, Writer
from strongback import BINARY, Server, eventually
from telemetry_model import Channel, Sample, Value, is_finite

SECOND = 1_000_000_000
MS = 1_000_000
BEGIN = 1_760_000_000 * SECOND
RESTART_IS_GAP = True
"""Whether nothing is known from the last frame before a restart of a source up to the first frame after it."""
RUN = "drive"
"""Name of the run that the MCAP file is imported into."""

INTEGERS = {f"{sign}{bits}": (sign == "i", bits) for sign in "iu" for bits in (8, 16, 32, 64)}
FLOATS = {"f32": pyarrow.float32(), "f64": pyarrow.float64()}
ARROW = {"bool": pyarrow.bool_(), "string": pyarrow.string(), **FLOATS} | {
    kind: getattr(pyarrow, f"{'' if is_signed else 'u'}int{bits}")() for kind, (is_signed, bits) in INTEGERS.items()
}


@dataclasses.dataclass
class Frame:
    """A frame; `sequence` is its number if the source counts its frames, anew in each session."""

    time: int
    values: dict[str, Value | None]
    """Values of the channels that it has; `None` says that a value is unknown."""
    sequence: int | None = None
    session: int = 0


@dataclasses.dataclass
class Stream:
    """A stream with its frames in the order in which they are stored."""

    table: str
    tags: dict[str, str]
    kinds: dict[str, str]
    exact: frozenset[str]
    """Channels of which sums are exact: multiples of 1/8 of moderate size."""
    frames: list[Frame] = dataclasses.field(default_factory=list)
    keys: set[tuple[Any, ...]] = dataclasses.field(default_factory=set)
    pending: list[Frame] = dataclasses.field(default_factory=list)
    """Frames that are generated and not sent."""

    @property
    def braces(self) -> str:
        """Returns the tags as in names of channels."""
        return "{" + ",".join(f"{key}={value}" for key, value in sorted(self.tags.items())) + "}" if self.tags else ""

    def name(self, column: str) -> str:
        """Returns the full name of a channel."""
        return f"{self.table}.{column}{self.braces}"

    @property
    def missing(self) -> int:
        """Returns the number of frames that are missing between the first and the newest."""
        sessions: dict[int, set[int]] = {}
        for frame in self.frames:
            if frame.sequence is not None:
                sessions.setdefault(frame.session, set()).add(frame.sequence)
        return sum(max(numbers) - min(numbers) + 1 - len(numbers) for numbers in sessions.values())

    def add(self, frame: Frame) -> bool:
        """Adds a frame to those to send, unless the store may take it for one that it has."""
        key = (
            frame.time,
            *sorted((name, str(float(v) + 0.0) if isinstance(v, float) else v) for name, v in frame.values.items()),
        )
        if key in self.keys:
            return False
        self.keys.add(key)
        self.pending.append(frame)
        return True

    def sent(self) -> None:
        """Counts the pending frames as stored."""
        self.frames += self.pending
        self.pending = []

    def channels(self, numbers: dict[str, tuple[int, int]]) -> list[Channel]:
        """Returns the channels for the model. `numbers` has the numbers of stream and channel in the store by name."""
        in_time = sorted(range(len(self.frames)), key=lambda row: (self.frames[row].time, row))
        missing_after = set()
        for place, (row, following) in enumerate(zip(in_time, in_time[1:], strict=False)):
            one, other = self.frames[row], self.frames[following]
            if one.sequence is None or other.sequence is None:
                continue
            if one.session != other.session:
                if RESTART_IS_GAP:
                    missing_after.add(place)
                continue
            assert one.sequence < other.sequence, "the order of the sequence is that of time"
            if other.sequence > one.sequence + 1:
                missing_after.add(place)
        channels = []
        for column, kind in self.kinds.items():
            places = [place for place, row in enumerate(in_time) if column in self.frames[row].values]
            if not places:
                continue
            ends = [*places[1:], len(in_time)]
            gaps = {
                n
                for n, (place, end) in enumerate(zip(places, ends, strict=True))
                if missing_after & set(range(place, end))
            }
            found = [
                Sample(self.frames[in_time[p]].time, in_time[p], self.frames[in_time[p]].values[column]) for p in places
            ]
            name = self.name(column)
            channels.append(
                Channel(name, kind, kind in FLOATS, *numbers[name], found, frozenset(gaps), column in self.exact)
            )
        return channels


# Values


def single(value: float) -> float:
    """Returns the nearest f32."""
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def rough_float(rng: random.Random) -> float:
    """Returns a float of any size, also none."""
    special = [math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, 1.7e308, -1.7e308, 1e-300, 1e300, 1.0, 1 / 3]
    if rng.random() < 0.25:
        return rng.choice(special)
    if rng.random() < 0.3:
        return float(rng.randrange(-3, 4))
    return rng.uniform(-1, 1) * 10.0 ** rng.randrange(-6, 7)


def value_of(rng: random.Random, kind: str, *, is_exact: bool) -> Value:
    """Returns a random value of a type."""
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "string":
        return rng.choice(["", "closed", "opening", "open", "ünï ☃", 'say "hi"', "a,b c=d"])
    if kind in FLOATS:
        if is_exact:
            return rng.randrange(-8_000, 8_001) / 8
        value = rough_float(rng)
        return single(value) if kind == "f32" else value
    is_signed, bits = INTEGERS[kind]
    least, greatest = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else (0, 2**bits - 1)
    if is_exact:
        return rng.randrange(max(least, -1_000), min(greatest, 1_000) + 1)
    choice = rng.random()
    if choice < 0.2:
        return rng.choice([least, greatest, 0, 1])
    if choice < 0.6:
        return rng.randrange(max(least, -2), min(greatest, 3))
    return rng.randrange(least, greatest + 1)


def times(rng: random.Random, *, count: int, start: int, unit: int, period: int) -> list[int]:
    """Returns times that mostly ascend: some are equal, some late, and there are empty spans."""
    now, found = start, []
    for _ in range(count):
        choice = rng.random()
        if choice < 0.15:
            found.append(now)
        elif choice < 0.25:
            found.append(max(start, now - rng.randrange(1, 20) * period // unit * unit))
        else:
            now += max(1, rng.randrange(1, 2 * period // unit + 1)) * unit
            if rng.random() < 0.03:
                now += rng.randrange(10, 60) * period // unit * unit
            found.append(now)
    return found


def fill(
    rng: random.Random,
    stream: Stream,
    *,
    count: int,
    start: int,
    unit: int,
    period: int,
    absent: float = 0.2,
    unknown: float = 0.0,
) -> None:
    """Generates frames of a stream, some of them without some of the channels, or with some unknown."""
    held: dict[str, Value] = {}
    for time in times(rng, count=count, start=start, unit=unit, period=period):
        if unknown and any(frame.time == time for frame in stream.pending):
            # What an unknown value does to others of its time is not defined.
            continue
        values: dict[str, Value | None] = {}
        for name, kind in stream.kinds.items():
            # Values stay the same for a while, so that spans and lines are worth it.
            if name not in held or rng.random() < 0.6:
                held[name] = value_of(rng, kind, is_exact=name in stream.exact)
            if rng.random() >= absent:
                values[name] = held[name]
            if rng.random() < unknown:
                values[name] = None
        if values:
            stream.add(Frame(time, values))


# Line protocol


def line_streams() -> list[Stream]:
    """Returns streams that are sent as line protocol: one without tags, three of a table with them."""
    kinds = {"f": "f64", "r": "f64", "i": "i64", "w": "i64", "u": "u64", "b": "bool", "s": "string"}
    exact = frozenset({"f", "i"})
    streams = [Stream("plain", {}, kinds, exact)]
    streams += [
        Stream("plant.tank", {"stand": n, "bay": "a"}, {"p": "f64", "n": "i64", "open": "bool"}, frozenset({"p", "n"}))
        for n in "12"
    ]
    streams.append(Stream("plant.tank", {"stand": "3"}, {"p": "f64", "mode": "string"}, frozenset({"p"})))
    return streams


RUNS = {"fire-1": BEGIN + SECOND, "fire-2": BEGIN + SECOND // 4, "abort": BEGIN - SECOND}
"""Runs with their T-0."""


def run_streams() -> list[Stream]:
    """Returns streams that belong to runs, and one that belongs to none."""
    kinds = {"p": "f64", "n": "i64", "s": "string"}
    streams = [Stream("shot", {"bay": "a", "run": name}, kinds, frozenset({"p", "n"})) for name in ("fire-1", "fire-2")]
    # Where a run has no channel of its own, that without a run counts.
    streams.append(Stream("shot", {"bay": "a"}, {"n": "i64", "s": "string", "q": "f64"}, frozenset({"n", "q"})))
    return [*streams, Stream("room", {}, {"t": "f64", "lit": "bool"}, frozenset({"t"}))]


def field(kind: str, value: Value) -> str:
    """Returns a value in line protocol."""
    if kind == "bool":
        return "true" if value else "false"
    if kind == "string":
        return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
    if kind in ("i64", "u64"):
        return f"{value}{kind[0]}"
    return repr(value)


def send_lines(server: Server, streams: list[Stream]) -> None:
    """Sends the pending frames of streams as line protocol; returns when they are durable."""
    lines = []
    for stream in streams:
        tags = "".join(f",{key}={value}" for key, value in stream.tags.items())
        for frame in stream.pending:
            fields = ",".join(f"{name}={field(stream.kinds[name], value)}" for name, value in frame.values.items())
            lines.append(f"{stream.table}{tags} {fields} {frame.time}")
        stream.sent()
    assert server.write("\n".join(lines)) == (204, None)


# Arrow Flight


def wide_stream() -> Stream:
    """Returns a stream with a channel of each type, which is sent as record batches."""
    return Stream(
        "wide",
        {"rig": "r1"},
        {f"x_{kind}": kind for kind in ARROW},
        frozenset({"x_i8", "x_u8", "x_i16", "x_u16", "x_i32"}),
    )


def send_batches(server: Server, stream: Stream) -> None:
    """Sends the pending frames of a stream as a record batch."""
    frames = stream.pending
    columns = {"time_ns": pyarrow.array([frame.time for frame in frames], pyarrow.int64())}
    fields = [pyarrow.field("time_ns", pyarrow.int64())]
    for tag, value in stream.tags.items():
        columns[tag] = pyarrow.array([value] * len(frames))
        fields.append(pyarrow.field(tag, pyarrow.string()))
    for name, kind in stream.kinds.items():
        columns[name] = pyarrow.array([frame.values.get(name) for frame in frames], ARROW[kind])
        fields.append(pyarrow.field(name, ARROW[kind], metadata={"strongback.role": "field"}))
    table = pyarrow.table(columns, schema=pyarrow.schema(fields))
    address = f"grpc://127.0.0.1:{server.flight_port}"
    with flight_sql.connect(address, autocommit=True) as connection, connection.cursor() as cursor:
        assert cursor.adbc_ingest(stream.table, table, mode="create_append") == len(frames)
    stream.sent()


# iNET-X

PACKETS = """
[[source]]
name = "fti"
kind = "inetx"
listen = "127.0.0.1:{port}"
ptp_scale = "utc"
clock = "source"

[[source.stream]]
id = 0xDD
table = "fti.bay"
tags = {{ bay = "1" }}
"""
LAYOUT = {
    "count": ("u16", ">H"),
    "raw": ("i32", ">i"),
    "volt": ("f32", ">f"),
    "fine": ("f64", ">d"),
    "big": ("i64", ">q"),
}


def packet_config(port: int) -> str:
    """Returns the configuration of the source of packets."""
    config, offset = PACKETS.format(port=port), 0
    for name, (kind, form) in LAYOUT.items():
        config += f'\n[[source.stream.channel]]\nname = "{name}"\noffset = {offset}\ntype = "{kind}"\n'
        offset += struct.calcsize(form)
    return config


def packet_stream() -> Stream:
    """Returns the stream of packets, whose frames are numbered."""
    kinds = {name: kind for name, (kind, _) in LAYOUT.items()}
    return Stream("fti.bay", {"bay": "1"}, kinds, frozenset({"raw", "fine"}))


def numbered(
    rng: random.Random, stream: Stream, *, count: int, start: int, unit: int, period: int, absent: float
) -> None:
    """Generates numbered frames, of which some are lost, alone or in a row, and some come late."""
    session = max((f.session for f in stream.frames), default=0)
    sequence = max((f.sequence or 0 for f in stream.frames if f.session == session), default=99) + 1
    if stream.frames and rng.random() < 0.4:
        # The source started again: no frame is known to be missing.
        session, sequence = session + 1, rng.randrange(2)
    elif stream.frames and rng.random() < 0.5:
        sequence += rng.randrange(1, 4)
    time = max([start, *(f.time + unit for f in stream.frames)])
    frames: list[Frame] = []
    held: dict[str, Value] = {}
    while len(frames) < count:
        for name, kind in stream.kinds.items():
            if name not in held or rng.random() < 0.6:
                held[name] = value_of(rng, kind, is_exact=name in stream.exact)
                while "run" in stream.tags and not is_finite(held[name]):
                    # JSON, which files of messages have, knows finite numbers only.
                    held[name] = value_of(rng, kind, is_exact=False)
        values = {name: value for name, value in held.items() if rng.random() >= absent}
        if rng.random() < 0.12 and frames:
            sequence += rng.randrange(1, 4)
            time = max(time, frames[-1].time + unit)
        if values:
            frames.append(Frame(time, values, sequence, session))
            sequence += 1
            time += rng.randrange(0 if rng.random() < 0.1 else 1, 2 * period // unit + 1) * unit
    # Late ones fill what was taken for a gap, or a part of it.
    for _ in range(count // 10):
        place = rng.randrange(1, len(frames) - 1)
        frame = frames.pop(place)
        later = min(len(frames), place + rng.randrange(1, 6))
        is_alone = all(abs(f.time - frame.time) > 0 for f in frames)
        frames.insert(later if is_alone else place, frame)
    stream.pending += frames


def send_packets(server: Server, stream: Stream, port: int) -> None:
    """Sends the pending frames of the stream of packets, and some of them twice."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        for place, frame in enumerate(stream.pending):
            payload = b"".join(struct.pack(form, frame.values[name]) for name, (_, form) in LAYOUT.items())
            payload += bytes(-len(payload) % 4)
            seconds, ns = divmod(frame.time, SECOND)
            header = struct.pack(">7I", 0x11000000, 0xDD, frame.sequence, 28 + len(payload), seconds, ns, 0)
            for _ in range(2 if place % 10 == 3 else 1):
                udp.sendto(header + payload, ("127.0.0.1", port))
            stored = len(stream.frames) + place + 1
            if place % 50 == 49 or place + 1 == len(stream.pending):
                eventually("the packets", lambda stored=stored: server.rows_of(stream.table) == stored)
    stream.sent()


# MCAP


def message_streams() -> list[Stream]:
    """Returns streams of an MCAP file: numbered frames, some without some of the channels."""
    kinds = {"f": "f64", "r": "f64", "b": "bool", "s": "string"}
    return [Stream(f"robot.{name}", {"run": RUN}, kinds, frozenset({"f"})) for name in ("odom", "arm")]


def import_messages(server: Server, streams: list[Stream], folder: pathlib.Path) -> None:
    """Imports the pending frames of streams from a file, into the store of a server that is not running."""
    file = folder / "robot.mcap"
    with file.open("wb") as out:
        writer = Writer(out, compression=CompressionType.NONE)
        writer.start("", "")
        pending = []
        for place, stream in enumerate(streams):
            channel = writer.register_channel("/" + stream.table.replace(".", "/"), "json", 0)
            pending += [(index, place, channel, frame) for index, frame in enumerate(stream.pending)]
        for *_, channel, frame in sorted(pending, key=lambda of: of[:2]):
            data = json.dumps(frame.values).encode()
            writer.add_message(channel, frame.time, data, frame.time, frame.sequence or 0)
        writer.finish()
    command = [BINARY, "import", str(file), "--run", RUN, "--data", str(server.folder / "store"), "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    report = json.loads(ran.stdout)
    assert report["numbering"] == "by channel", report
    assert report["stored"] == sum(len(stream.pending) for stream in streams), report
    for stream in streams:
        stream.sent()


# Rows of a file


def logged_stream() -> Stream:
    """Returns a stream that is read from a file, with values that are known to be unknown."""
    return Stream("logged", {}, {"f": "f64", "n": "i32", "b": "bool"}, frozenset({"f", "n"}))


def append_rows(server: Server, stream: Stream, folder: pathlib.Path) -> None:
    """Appends the pending frames of a stream from a file, to the store of a server that is not running."""
    cells = {None: "unknown", True: "true", False: "false"}
    lines = [",".join(["time_ns", *(f"{stream.table}.{name}" for name in stream.kinds)])]
    for frame in stream.pending:
        values = [frame.values[name] if name in frame.values else "" for name in stream.kinds]
        texts = [cells[v] if v is None or isinstance(v, bool) else str(v) for v in values]
        lines.append(",".join([str(frame.time), *texts]))
    file = folder / "rows.csv"
    file.write_text("\n".join(lines) + "\n")
    types = [
        argument for name, kind in stream.kinds.items() for argument in ("--type", f"{stream.table}.{name}={kind}")
    ]
    command = [BINARY, "store", "append", str(server.folder / "store"), str(file), *types]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    stream.sent()
