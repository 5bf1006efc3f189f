"""iNET-X packets built by AcraNetwork, an independent encoder, over UDP: to SQL, to the live socket, to the books."""

from __future__ import annotations

import json
import pathlib
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import AcraNetwork.iNetX
import pytest
import websockets.sync.client
from strongback import Server, eventually, free_ports

STREAM = 0xDD
PTP_SECONDS = 1_760_000_000
LAYOUT = """
[[source]]
name = "fti"
kind = "inetx"
listen = "127.0.0.1:{port}"
ptp_scale = "utc"
clock = "receive"

[[source.stream]]
id = 0xDD
table = "fti.bay"
tags = {{ bay = "1" }}
period_ms = 20

[[source.stream.channel]]
name = "p_tank"
offset = 0
type = "u16"
polynomial = [-10.0, 0.5]
unit = "bar"
description = "tank pressure"

[[source.stream.channel]]
name = "raw"
offset = 2
type = "i32"

[[source.stream.channel]]
name = "valve_open"
offset = 6
bit = 3
bits = 1
type = "bool"
"""


class Sender:
    """Sends packets of one stream to one port."""

    def __init__(self, *, port: int) -> None:
        self.address = ("127.0.0.1", port)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def send(self, *, sequence: int, raw: int = 0, code: int = 100, stream: int = STREAM) -> None:
        """One packet: `code` is the pressure before its polynomial."""
        packet = AcraNetwork.iNetX.iNetX()
        packet.streamid = stream
        packet.sequence = sequence
        packet.ptptimeseconds = PTP_SECONDS
        packet.ptptimenanoseconds = sequence % 50 * 20_000_000
        packet.pif = 0
        packet.payload = struct.pack(">HiBx", code, raw, 0x10 if raw % 2 else 0)
        self.socket.sendto(packet.pack(), self.address)

    def send_raw(self, content: bytes) -> None:
        """Any bytes."""
        self.socket.sendto(content, self.address)


@pytest.fixture
def pad(tmp_path: pathlib.Path) -> Iterator[tuple[Server, Sender]]:
    """A server with one iNET-X source, and a sender to it."""
    [port] = free_ports(count=1)
    server = Server(folder=tmp_path, config=LAYOUT.format(port=port)).start()
    yield server, Sender(port=port)
    assert server.stop() == 0


def source(server: Server) -> dict[str, object]:
    """The books of the source, once it is listed."""
    return eventually(
        "the source", lambda: next((s for s in server.get("/api/sources")["sources"] if s["name"] == "fti"), None)
    )


def rejected(books: dict[str, object]) -> int:
    reasons = books["rejected_by"]
    assert isinstance(reasons, dict)
    return sum(int(n) for n in reasons.values())


def received(server: Server, count: int) -> bool:
    return int(str(source(server)["received"])) >= count


def test_values_arrive_in_engineering_units(pad: tuple[Server, Sender]) -> None:
    server, sender = pad
    sender.send(sequence=0, code=100, raw=-2_147_483_648)
    sender.send(sequence=1, code=65_535, raw=2_147_483_647)
    eventually("both packets", lambda: server.rows_of("fti.bay") == 2)
    rows = server.sql(
        'select sequence, source_time_ns, time_ns = receive_time_ns, p_tank, raw, valve_open, bay from "fti.bay" order by sequence'
    )
    at = PTP_SECONDS * 1_000_000_000
    assert rows == [
        (0, at, True, 40.0, -2_147_483_648, False, "1"),
        (1, at + 20_000_000, True, 32_757.5, 2_147_483_647, True, "1"),
    ]
    [channel] = server.get("/api/channels?pattern=fti.bay.p_tank")["channels"]
    assert (channel["unit"], channel["description"]) == ("bar", "tank pressure")
    assert channel["name"] == "fti.bay.p_tank{bay=1}"


def test_wrap_gap_duplicate_and_late_are_told_apart(pad: tuple[Server, Sender]) -> None:
    server, sender = pad
    sequences = [2**32 - 3, 2**32 - 2, 2**32 - 1, 0, 1, 2, 6, 7, 7, 5, 8]
    for at, sequence in enumerate(sequences, start=1):
        sender.send(sequence=sequence, raw=sequence % 1000)
        eventually("the packet", lambda at=at: received(server, at))
    eventually("the late packet's books", lambda: int(source(server)["filled"]) == 1)
    books = {key: int(source(server)[key]) for key in ("received", "stored", "duplicate", "lost", "filled", "late")}
    assert books == {"received": 11, "stored": 10, "duplicate": 1, "lost": 3, "filled": 1, "late": 1}
    gaps = [gap for gap in server.get("/api/gaps")["gaps"] if int(gap["count"]) > 0]
    assert sum(int(gap["open"]) for gap in gaps) == 2
    assert server.sql("select count(*) > 0 from strongback.gaps") == [(True,)]


def test_bad_datagrams_are_counted_and_disturb_nothing(pad: tuple[Server, Sender]) -> None:
    server, sender = pad
    sender.send(sequence=0)
    good = struct.pack(">7I", 0x11000000, STREAM, 1, 36, PTP_SECONDS, 0, 0) + bytes(8)
    for bad in (b"", b"\x11", good[:20], good + b"!", b"\x21" + good[1:], bytes(range(256)) * 4, good[:-4]):
        sender.send_raw(bad)
    sender.send(sequence=1, stream=0xDEAD)
    sender.send(sequence=1)
    eventually("both good packets", lambda: server.rows_of("fti.bay") == 2)
    eventually("the bad ones counted", lambda: rejected(source(server)) >= 6)
    eventually("the unknown stream", lambda: "dead" in json.dumps(source(server)["unknown_streams"]).lower())


def test_a_live_subscriber_sees_the_value_with_its_unit(pad: tuple[Server, Sender]) -> None:
    server, sender = pad
    with websockets.sync.client.connect(f"ws://127.0.0.1:{server.http_port}/api/live") as live:
        assert json.loads(live.recv(timeout=10))["type"] == "hello"
        live.send(json.dumps({"type": "subscribe", "id": 1, "channels": ["fti.bay.p_tank*"], "max_rate_hz": 50}))
        units = {c["id"]: c["unit"] for c in next_message(live, "subscribed")["channels"]}
        before = time.time_ns()
        sender.send(sequence=0, code=8_642)
        [stream] = next_message(live, "update")["streams"]
        [window] = stream["channels"]
        assert (window[1], window[3], units[window[0]]) == (1, 4_311.0, "bar")
        assert before <= int(stream["receive_time"]) <= time.time_ns()


def next_message(live: websockets.sync.client.ClientConnection, kind: str) -> dict[str, Any]:
    """The next message of a kind; heartbeats and others are passed over."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        message = json.loads(live.recv(timeout=20))
        if message.get("type") == kind:
            return message
    raise AssertionError(f"no {kind}")
