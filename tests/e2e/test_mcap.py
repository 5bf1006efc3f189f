"""MCAP files are imported with the values that Foxglove's readers find in them, and that its writers put there."""

from __future__ import annotations

import json
import math
import pathlib
import subprocess
from collections import Counter
from collections.abc import Iterator
from typing import Any

import crcmod.predefined
from mcap.reader import make_reader
from mcap.writer import CompressionType, Writer
from mcap_ros1.decoder import DecoderFactory
from mcap_ros2.writer import Writer as Ros2Writer
from strongback import BINARY, Server

RECORDED = pathlib.Path(__file__).parents[1] / "data" / "mcap" / "compressed.mcap"
SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND


def imported(*, server: Server, file: pathlib.Path, code: int = 0, run: str = "drive") -> dict[str, Any]:
    """Imports a file into the store of a server that is not running; the report."""
    command = [BINARY, "import", str(file), "--run", run, "--data", str(server.folder / "store"), "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.returncode == code, f"exit code {ran.returncode}: {ran.stdout}{ran.stderr}"
    return json.loads(ran.stdout) if ran.stdout else {"error": ran.stderr}


def flat(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Names and values of a ROS 1 message, as its channels are called."""
    if hasattr(value, "secs"):
        yield path, value.secs * SECOND + value.nsecs
    elif hasattr(value, "__slots__"):
        for name in value.__slots__:
            yield from flat(getattr(value, name), f"{path}.{name}" if path else name)
    elif isinstance(value, (list, tuple)):
        for index, element in enumerate(value):
            yield from flat(element, f"{path}[{index}]")
    else:
        yield path, value


def rows(*, server: Server, table: str) -> list[dict[str, Any]]:
    """Rows of a table; only what has a value."""
    with server.connect() as connection:
        cursor = connection.execute(f'select * from "{table}"')
        assert cursor.description is not None
        names = [column.name for column in cursor.description]
        return [{n: v for n, v in zip(names, row) if v is not None} for row in cursor.fetchall()]


OWN = {"time", "time_ns", "receive_time", "source_time", "sequence", "session", "run"}


def frames(*, server: Server, table: str) -> Counter[frozenset[tuple[str, Any]]]:
    """Frames of a table with their times and channels."""
    return Counter(
        frozenset((name, value) for name, value in row.items() if name not in OWN)
        for row in rows(server=server, table=table)
    )


def test_a_recording_of_a_vehicle_equals_what_another_reader_finds(tmp_path: pathlib.Path) -> None:
    expected: dict[str, Counter[frozenset[tuple[str, Any]]]] = {}
    with RECORDED.open("rb") as stream:
        for _, channel, message, ros in make_reader(stream, decoder_factories=[DecoderFactory()]).iter_decoded_messages():
            cells = dict(flat(ros, ""))
            cells["receive_time_ns"] = message.log_time
            # Neither /tf nor this file's /diagnostics were sent at another time than they were recorded.
            stamp = cells.get("header.stamp")
            cells["source_time_ns"] = stamp or message.publish_time
            expected.setdefault(channel.topic, Counter())[frozenset(cells.items())] += 1
    assert {topic: sum(found.values()) for topic, found in expected.items()} == {"/diagnostics": 52, "/tf": 774}
    server = Server(folder=tmp_path)
    report = imported(server=server, file=RECORDED)
    assert (report["messages"], report["stored"], report["rejected"]) == (826, 826, {})
    # This file numbers all its messages in one row: that says nothing of a topic.
    assert report["numbering"] == "by file"
    again = imported(server=server, file=RECORDED, code=1)
    assert "is in the run" in again["error"] and "not imported twice" in again["error"]
    server.start()
    try:
        for topic, found in expected.items():
            assert frames(server=server, table=topic.removeprefix("/")) == found
        assert server.get("/api/gaps?from=0&to=now&limit=10")["gaps"] == []
        [run] = server.get("/api/runs")["runs"]
        assert (run["name"], run["protected"], run["streams"]) == ("drive", True, 2)
    finally:
        assert server.stop() == 0


LINE = "=" * 80
ODOMETRY = f"""\
std_msgs/Header header
string<=20 child
float64[4] covariance
float32[] ranges
string[] names
uint8 KIND_A=1
builtin_interfaces/Duration took
Pose[] poses
uint8[] data
bool ok
{LINE}
MSG: std_msgs/Header
builtin_interfaces/Time stamp
string frame_id
{LINE}
MSG: test_msgs/Pose
geometry_msgs/Point position
{LINE}
MSG: geometry_msgs/Point
float64 x
float64 y
float64 z
{LINE}
MSG: builtin_interfaces/Time
int32 sec
uint32 nanosec
{LINE}
MSG: builtin_interfaces/Duration
int32 sec
uint32 nanosec
"""


def test_ros2_messages_keep_every_field(tmp_path: pathlib.Path) -> None:
    image = bytes(index * 7 % 256 for index in range(100_000))
    path = tmp_path / "ros2.mcap"
    with path.open("wb") as stream:
        writer = Ros2Writer(stream)
        schema = writer.register_msgdef("test_msgs/msg/Odometry", ODOMETRY)
        for number in range(100):
            # Numbers 40 to 44 were never recorded.
            if 40 <= number < 45:
                continue
            at = {"sec": 1_700_000_000 + number, "nanosec": 5}
            pose = {"position": {"x": number, "y": 0.5, "z": -number}}
            message = {
                "header": {"stamp": at, "frame_id": f"frame {number}"},
                "child": "ä" * (number % 5),
                "covariance": [number, 1, 2, math.inf],
                "ranges": [0.25] * (number % 4),
                "names": ["a", "b"],
                "took": {"sec": -1, "nanosec": 250_000_000},
                "poses": [pose] * (number % 3),
                "data": image[number:],
                "ok": number % 2 == 0,
            }
            log_time = START + number * SECOND + 7
            writer.write_message("/robot/odom", schema, message, log_time, log_time - 3, number)
        writer.finish()
    server = Server(folder=tmp_path)
    report = imported(server=server, file=path)
    assert (report["stored"], report["numbering"], report["topics"][0]["lost"]) == (95, "by channel", 5)
    assert report["topics"][0]["stream"] == "robot.odom{run=drive}"
    server.start()
    try:
        found = {row["sequence"]: row for row in rows(server=server, table="robot.odom")}
        assert sorted(found) == [n for n in range(100) if not 40 <= n < 45]
        crc32c = crcmod.predefined.mkPredefinedCrcFun("crc-32c")
        for number, row in found.items():
            assert row["receive_time_ns"] == row["time_ns"] == START + number * SECOND + 7
            assert row["source_time_ns"] == row["header.stamp"] == START + number * SECOND + 5
            assert (row["header.frame_id"], row["child"]) == (f"frame {number}", "ä" * (number % 5))
            assert row["covariance"] == [number, 1, 2, math.inf]
            assert row["ranges"] == [0.25] * (number % 4)
            assert (row["names[0]"], row["names[1]"], row["took"]) == ("a", "b", -750_000_000)
            poses = [name for name in row if name.startswith("poses")]
            assert len(poses) == 3 * (number % 3)
            assert all(row[name] == {"x": number, "y": 0.5, "z": -number}[name[-1]] for name in poses)
            assert row["data"] == f"blob({100_000 - number} bytes, {crc32c(image[number:]):08x})"
            assert row["ok"] is (number % 2 == 0)
        [gap] = server.get("/api/gaps?from=0&to=now&limit=10")["gaps"]
        assert (gap["from_sequence"], gap["to_sequence"], gap["count"]) == ("40", "44", "5")
    finally:
        assert server.stop() == 0


def json_file(*, path: pathlib.Path, compression: CompressionType, messages: int = 200) -> None:
    """A file with a topic in JSON, one that cannot be read, and an attachment."""
    with path.open("wb") as stream:
        writer = Writer(stream, compression=compression, chunk_size=2_000)
        writer.start()
        described = {"type": "object", "properties": {"n": {"type": "integer"}, "p": {"type": "number"}}}
        schema = writer.register_schema("tank", "jsonschema", json.dumps(described).encode())
        tank = writer.register_channel("/pad/tank", "json", schema)
        other = writer.register_channel("/radar", "protobuf", writer.register_schema("Radar", "protobuf", b"\x0a"))
        for number in range(messages):
            value = {"n": 2**53 + number, "p": number / 8, "in": {"on": number % 2 == 0, "list": [1, number]}}
            time = START + number * 10_000_000
            writer.add_message(tank, time, json.dumps(value).encode(), time)
            if number % 10 == 0:
                writer.add_message(other, time, b"\x08\x01", time)
        writer.add_attachment(START, START, "notes.txt", "text/plain", b"wind from the west")
        writer.finish()


def test_json_is_taken_and_what_cannot_be_read_is_named(tmp_path: pathlib.Path) -> None:
    for compression in CompressionType:
        path = tmp_path / f"{compression.name}.mcap"
        json_file(path=path, compression=compression)
        folder = tmp_path / compression.name
        folder.mkdir()
        server = Server(folder=folder)
        report = imported(server=server, file=path, code=3)
        assert (report["messages"], report["stored"], report["attachments"]) == (220, 200, 1)
        assert report["undecoded"] == {"no decoder for encoding protobuf of topic /radar": 20}
        server.start()
        try:
            found = rows(server=server, table="pad.tank")
            expected = [(2**53 + n, n / 8, n % 2 == 0, [1, n], START + n * 10_000_000) for n in range(200)]
            names = ("n", "p", "in.on", "in.list", "time_ns")
            assert sorted(tuple(row[name] for name in names) for row in found) == expected
        finally:
            assert server.stop() == 0


def test_a_file_that_ends_early_gives_what_is_before_the_end(tmp_path: pathlib.Path) -> None:
    whole = tmp_path / "whole.mcap"
    json_file(path=whole, compression=CompressionType.ZSTD)
    content = whole.read_bytes()
    path = tmp_path / "cut.mcap"
    path.write_bytes(content[: len(content) // 2])
    server = Server(folder=tmp_path)
    report = imported(server=server, file=path, code=3)
    assert report["cut"]["offset"] == len(content) // 2
    assert report["rejected"] == {"cut": 1}
    stored = report["stored"]
    assert 50 < stored < 200
    server.start()
    try:
        found = sorted(row["n"] - 2**53 for row in rows(server=server, table="pad.tank"))
        assert found == list(range(stored))
    finally:
        assert server.stop() == 0


def test_a_chunk_that_was_never_closed_is_told_in_words(tmp_path: pathlib.Path) -> None:
    # A header, and a chunk whose lengths the writer did not know yet.
    header = b"\x01" + (22).to_bytes(8, "little") + b"\0\0\0\0" + (14).to_bytes(4, "little") + b"mcap-rs-0.23.3"
    chunk = b"\x06" + b"\xff" * 8 + b"\0" * 16 + b"\xff" * 12 + b"\x04\0\0\0zstd" + b"\xff" * 8
    path = tmp_path / "open.mcap"
    path.write_bytes(b"\x89MCAP0\r\n" + header + chunk)
    command = [BINARY, "import", str(path), "--run", "drive", "--data", str(tmp_path / "store")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 3, ran.stderr
    size = path.stat().st_size
    assert f"stopped at byte {size}, after 0 messages: the file ends in the chunk that begins at byte 39" in ran.stdout
    other = tmp_path / "other.mcap"
    other.write_bytes(b"no such file")
    command[2] = str(other)
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 1
    assert "neither a capture (pcap, pcapng) nor an MCAP file" in ran.stderr
