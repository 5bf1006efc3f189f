"""Blocks of parser-aligned packets as AcraNetwork (PyPI, MIT) reads and packs them, as JSON.

Of `valid_paligned.pcap` beside this file, and of packets packed here. A block is
`[error, error_code, message_count, bus_id, elapsed_ns, message in hexadecimal]`.

Usage: python3 blocks.py > blocks.json
"""

import json
import pathlib
import random

import AcraNetwork.iNetX as inetx
import AcraNetwork.ParserAligned as aligned
import AcraNetwork.Pcap as pcap
import AcraNetwork.SimpleEthernet as ethernet

Lines = list[list[object]]


def lines_of(*, payload: bytes) -> Lines:
    """One list for each block of a payload."""
    packet = aligned.ParserAlignedPacket()
    packet.unpack(payload)
    return [
        [bool(b.error), b.errorcode, b.messagecount, b.busid, b.elapsedtime, bytes(b.payload).hex()] for b in packet
    ]


def captured() -> list[Lines]:
    """The blocks of each packet of the capture."""
    packets = []
    for record in pcap.Pcap(str(pathlib.Path(__file__).parent / "valid_paligned.pcap")):
        frame, ip, udp, packet = ethernet.Ethernet(), ethernet.IP(), ethernet.UDP(), inetx.iNetX()
        frame.unpack(record.packet)
        ip.unpack(frame.payload)
        udp.unpack(ip.payload)
        packet.unpack(udp.payload)
        packets.append(lines_of(payload=packet.payload))
    return packets


def packed(*, count: int) -> list[dict[str, object]]:
    """Packets made here: their bytes, and what AcraNetwork reads of them again."""
    source = random.Random(7)
    packets: list[dict[str, object]] = []
    for sequence in range(count):
        payload = aligned.ParserAlignedPacket()
        elapsed = 0
        for _ in range(source.randrange(1, 12)):
            block = aligned.ParserAlignedBlock()
            block.error = source.random() < 0.2
            block.errorcode = source.randrange(64) if block.error else 0
            block.messagecount = source.randrange(256)
            block.busid = source.choice([0, 1, 2, 31, 255])
            elapsed += source.randrange(100_000_000)
            block.elapsedtime = elapsed
            block.payload = source.randbytes(4 * source.choice([0, 1, 2, 5, 20]))
            payload.parserblocks.append(block)
        packet = inetx.iNetX()
        packet.streamid, packet.sequence, packet.pif = 0xA00, sequence, 0
        packet.setPacketTime(1_700_000_000 + sequence, 500)
        packet.payload = payload.pack()
        packets.append({"packet": packet.pack().hex(), "blocks": lines_of(payload=packet.payload)})
    return packets


if __name__ == "__main__":
    print(json.dumps({"captured": captured(), "packed": packed(count=40)}))
