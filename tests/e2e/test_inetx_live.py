"""AcraNetwork, an independent encoder, sends packets at the rate of real flight test instrumentation; none is lost."""

from __future__ import annotations

import pathlib
import socket
import struct
import time

import AcraNetwork.iNetX
import pytest
from strongback import Server, eventually, free_ports

RATE_HZ = 20_000
PACKETS = 100_000
STREAMS = 4
CHANNELS = 10
FIRST_ID = 0xDD
# A sender that is so much behind has not sent at the rate.
LATE = 0.02


def layout(*, port: int) -> str:
    """Streams of ten unsigned words; the buffer takes what comes while this machine does something else."""
    source = f'[[source]]\nname = "fti"\nkind = "inetx"\nlisten = "127.0.0.1:{port}"\nptp_scale = "utc"\n'
    source += f"receive_buffer_bytes = {32 << 20}\n"
    for stream in range(STREAMS):
        source += f'[[source.stream]]\nid = {FIRST_ID + stream}\ntable = "s{stream}"\n'
        for channel in range(CHANNELS):
            source += f'[[source.stream.channel]]\nname = "c{channel}"\noffset = {2 * channel}\ntype = "u16"\n'
    return source


def send(*, port: int) -> float:
    """Sends all packets on time, the streams in turn; the rate that was reached in packets a second."""
    packet = AcraNetwork.iNetX.iNetX()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire:
        wire.connect(("127.0.0.1", port))
        start, sent = time.monotonic(), 0
        while sent < PACKETS:
            elapsed = time.monotonic() - start
            if elapsed > 3 * PACKETS / RATE_HZ:
                break
            due = min(int(elapsed * RATE_HZ) + 1, PACKETS)
            while sent < due:
                stream, number = sent % STREAMS, sent // STREAMS
                now = time.time_ns()
                packet.streamid = FIRST_ID + stream
                packet.sequence = number
                packet.ptptimeseconds, packet.ptptimenanoseconds = divmod(now, 1_000_000_000)
                packet.payload = struct.pack(">10H", *((number + c) & 0xFFFF for c in range(CHANNELS)))
                wire.send(packet.pack())
                sent += 1
            time.sleep(0.0005)
        return sent / (time.monotonic() - start)


def test_twenty_thousand_packets_a_second_are_stored_without_a_loss(tmp_path: pathlib.Path) -> None:
    [port] = free_ports(count=1)
    server = Server(folder=tmp_path, config=layout(port=port)).start()
    try:
        rate_hz = send(port=port)
        if rate_hz < RATE_HZ * (1 - LATE):
            pytest.skip(f"this machine is too busy: {rate_hz:.0f} packets/s were sent, {RATE_HZ} are to be")

        def books() -> dict[str, int]:
            [source] = [s for s in server.get("/api/sources")["sources"] if s["name"] == "fti"]
            names = ("received", "stored", "duplicate", "rejected", "lost", "late", "kernel_drops")
            return {name: int(source[name]) for name in names}

        def arrived() -> bool:
            now = books()
            return now["received"] + max(now["lost"], now["kernel_drops"]) >= PACKETS

        eventually("all packets", arrived)
        none = dict.fromkeys(("duplicate", "rejected", "lost", "late", "kernel_drops"), 0)
        assert books() == {"received": PACKETS, "stored": PACKETS, **none}
        assert server.get("/api/gaps")["gaps"] == []
        each = PACKETS // STREAMS
        for stream in range(STREAMS):
            # All of them, each once, with its own values.
            wrong = "sum(case when c0 = sequence % 65536 and c9 = (sequence + 9) % 65536 then 0 else 1 end)"
            span = "min(sequence), max(sequence)"
            [row] = server.sql(f"select count(*), count(distinct sequence), {span}, {wrong} from s{stream}")
            assert tuple(map(int, row)) == (each, each, 0, each - 1, 0)
        findings = server.get("/api/doctor?channel=s?.*")["findings"]
        assert [f for f in findings if f["wrong"]] == [], findings
    finally:
        code = server.stop()
    assert code == 0, f"exit code {code}: {server.last_words()}"
