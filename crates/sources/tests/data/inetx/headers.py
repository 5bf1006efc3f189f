"""Header fields of the captures beside this file, as AcraNetwork (PyPI, MIT) reads them, as JSON.

For each capture: the number of packets, the SHA-256 over all of its lines, and its first lines. A line is
`control stream sequence length seconds nanoseconds pif payload_bytes payload_crc32`, in decimal.

Usage: python3 headers.py > headers.json
"""

import hashlib
import json
import pathlib
import zlib

import AcraNetwork.iNetX as inetx
import AcraNetwork.Pcap as pcap
import AcraNetwork.SimpleEthernet as ethernet

LINES_KEPT = 60


def lines_of(*, path: pathlib.Path) -> list[str]:
    """One line for each packet of a capture."""
    lines = []
    for record in pcap.Pcap(str(path)):
        frame, ip, udp, packet = ethernet.Ethernet(), ethernet.IP(), ethernet.UDP(), inetx.iNetX()
        frame.unpack(record.packet)
        ip.unpack(frame.payload)
        udp.unpack(ip.payload)
        packet.unpack(udp.payload)
        fields = (
            packet.inetxcontrol,
            packet.streamid,
            packet.sequence,
            packet.packetlen,
            packet.ptptimeseconds,
            packet.ptptimenanoseconds,
            packet.pif,
            len(packet.payload),
            zlib.crc32(packet.payload),
        )
        lines.append(" ".join(str(field) for field in fields))
    return lines


def main() -> None:
    """Prints the JSON."""
    captures = {}
    for path in sorted(pathlib.Path(__file__).parent.glob("*.pcap")):
        lines = lines_of(path=path)
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        captures[path.name] = {"packets": len(lines), "sha256": digest, "lines": lines[:LINES_KEPT]}
    print(json.dumps(captures, indent=1))


if __name__ == "__main__":
    main()
