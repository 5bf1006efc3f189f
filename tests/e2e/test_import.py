"""Captures are imported with the header fields that AcraNetwork, an independent decoder, reads from them."""

from __future__ import annotations

import pathlib
import struct
import subprocess
from collections import Counter
from collections.abc import Iterator

import AcraNetwork.iNetX
import pytest
from strongback import BINARY, Server

CAPTURES = pathlib.Path(__file__).parents[1] / "data" / "inetx"
WRAP = 2**32


def datagrams(*, capture: pathlib.Path) -> Iterator[bytes]:
    """UDP payloads of a classic little-endian Ethernet capture."""
    content = capture.read_bytes()
    assert content[:4] == b"\xd4\xc3\xb2\xa1", "not a classic capture"
    at = 24
    while at < len(content):
        (size,) = struct.unpack_from("<I", content, at + 8)
        frame = content[at + 16 : at + 16 + size]
        at += 16 + size
        ip = frame[14:]
        udp = ip[(ip[0] & 15) * 4 :]
        yield udp[8 : struct.unpack_from(">H", udp, 4)[0]]


def headers(*, capture: pathlib.Path) -> dict[int, list[tuple[int, int]]]:
    """Per stream id: sequence and PTP time in ns of each packet, as AcraNetwork reads them."""
    found: dict[int, list[tuple[int, int]]] = {}
    for payload in datagrams(capture=capture):
        packet = AcraNetwork.iNetX.iNetX()
        packet.unpack(payload)
        time_ns = packet.ptptimeseconds * 1_000_000_000 + packet.ptptimenanoseconds
        found.setdefault(packet.streamid, []).append((packet.sequence, time_ns))
    return found


def imported(*, server: Server, capture: pathlib.Path, ids: list[int]) -> None:
    """Imports a capture into the store of a stopped server, then starts it; stamps of clocks never set are kept raw."""
    config = '[[source]]\nname = "fti"\nkind = "inetx"\nlisten = "127.0.0.1:0"\nptp_scale = "utc"\nclock = "receive"\n'
    for stream_id in ids:
        config += f"""
[[source.stream]]
id = {stream_id}
table = "s{stream_id:x}"
[[source.stream.channel]]
name = "word"
offset = 0
type = "u16"
"""
    path = server.folder / "import.toml"
    path.write_text(config)
    command = [BINARY, "import", str(capture), "--config", str(path), "--run", "replayed"]
    ran = subprocess.run(
        [*command, "--data", str(server.folder / "store")], capture_output=True, text=True, timeout=120
    )
    assert ran.returncode in (0, 3), ran.stderr
    server.start()


@pytest.mark.parametrize("name", sorted(path.name for path in CAPTURES.glob("*.pcap")))
def test_headers_equal_what_acranetwork_reads(tmp_path: pathlib.Path, name: str) -> None:
    capture = CAPTURES / name
    expected = headers(capture=capture)
    server = Server(folder=tmp_path)
    imported(server=server, capture=capture, ids=list(expected))
    try:
        for stream_id, packets in expected.items():
            rows = server.sql(f'select sequence, source_time_ns from "s{stream_id:x}"')
            stored = Counter((sequence % WRAP, time_ns) for sequence, time_ns in rows)
            assert stored == Counter(set(packets)), f"stream {stream_id:#x}: each packet once"
    finally:
        assert server.stop() == 0


def test_the_gap_of_the_sample_is_located(tmp_path: pathlib.Path) -> None:
    capture = CAPTURES / "acranet_sample.pcap"
    expected = headers(capture=capture)
    assert sum(map(len, expected.values())) == 5541
    server = Server(folder=tmp_path)
    imported(server=server, capture=capture, ids=list(expected))
    try:
        gaps = server.get("/api/gaps?from=0&to=now&limit=100")["gaps"]
        still_open = [gap for gap in gaps if int(gap["open"]) > 0]
        assert [int(gap["open"]) for gap in still_open] == [10], gaps
        [gap] = still_open
        sequences = {sequence for sequence, _ in expected[0xDD]}
        missing = sorted(set(range(5000)) - sequences)
        assert "dd" in str(gap["stream"]) or "dd" in str(gap)
        assert (int(gap["from_sequence"]), int(gap["to_sequence"])) in (
            (missing[0], missing[-1]),
            (missing[0], missing[-1] + 1),
        )
    finally:
        assert server.stop() == 0
