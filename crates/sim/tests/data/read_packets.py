"""Reads the pad's packets with AcraNetwork (PyPI) and its layouts with tomllib: an independent second opinion.

    STRONGBACK_WRITE_PACKETS=/tmp/pad cargo test -p strongback-sim another_parser
    python crates/sim/tests/data/read_packets.py /tmp/pad > crates/sim/tests/data/packets.json

The folder holds `pad.toml` (the pad's configuration) and `packets.hex` (one packet a line).
"""

import json
import pathlib
import sys
import tomllib

import numpy
from AcraNetwork.iNetX import iNetX

folder = pathlib.Path(sys.argv[1])
layouts = {s["id"]: s for s in tomllib.loads((folder / "pad.toml").read_text())["source"][0]["stream"]}
read = []
for line in (folder / "packets.hex").read_text().split():
    packet = iNetX()
    packet.unpack(bytes.fromhex(line))
    layout = layouts[packet.streamid]
    samples = layout["channel"][0].get("samples", 1)
    frame_bytes = len(packet.payload) // samples
    frames = []
    for sample in range(samples):
        payload = packet.payload[sample * frame_bytes :][:frame_bytes]
        values = []
        for channel in layout["channel"]:
            size = {"bool": 1, "u8": 1, "u16": 2, "u32": 4}[channel["type"]]
            field = payload[channel["offset"] : channel["offset"] + size]
            code = int.from_bytes(field, channel.get("endian", "big"))
            if "bits" in channel:
                code = (code >> (8 * size - channel["bit"] - channel["bits"])) & ((1 << channel["bits"]) - 1)
            if "polynomial" in channel:
                values.append(float(numpy.float32(sum(c * code**i for i, c in enumerate(channel["polynomial"])))))
            else:
                values.append(code)
        frames.append(values)
    read.append(
        {
            "packet": line,
            "stream_id": packet.streamid,
            "sequence": packet.sequence,
            "seconds": packet.ptptimeseconds,
            "nanoseconds": packet.ptptimenanoseconds,
            "frames": frames,
        }
    )
json.dump({"reader": "AcraNetwork 1.3.15", "packets": read}, sys.stdout, separators=(",", ":"))
print()
