#!/usr/bin/env python3
"""Reads a sealed segment, or one of blobs, by docs/format/store.md alone and prints it as JSON.

A second implementation of the format: it shares no code with the first and uses the standard library only.
Floats are printed as their bit patterns; cells that are no value as the number of their state; columns of the
codec pco, which is another library's format, as null.
"""

import json
import struct
import sys

CRC_TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    CRC_TABLE.append(byte)

TYPES = [None, "bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64", "string", "blob"]
FORMATS = {"i8": "b", "i16": "h", "i32": "i", "i64": "q", "u8": "B", "u16": "H", "u32": "I", "u64": "Q"}
SIZES = {"bool": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "u8": 1, "u16": 2, "u32": 4, "u64": 8, "f32": 4, "f64": 8}
CODECS = ["none", "plain", "constant", "integer", "quantised", "pco", "dictionary", "same-time", "time-difference", "tiles"]
MASK = (1 << 64) - 1


def crc32c(data: bytes) -> int:
    """Castagnoli CRC of `data`."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def check(data: bytes, expected: int, what: str) -> None:
    """Refuses bytes that are not those that were written."""
    if crc32c(data) != expected:
        raise ValueError(f"{what}: checksum")


def signed64(n: int) -> int:
    """The i64 that is `n` modulo 2⁶⁴."""
    n &= MASK
    return n - (1 << 64) if n >> 63 else n


class Reader:
    """Bytes read from front to back."""

    def __init__(self, data: bytes):
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise ValueError("truncated")
        self.at += count
        return self.data[self.at - count : self.at]

    def u8(self) -> int:
        return self.take(1)[0]

    def unpack(self, form: str):
        values = struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))
        return values[0] if len(values) == 1 else values

    def varint(self) -> int:
        value, shift = 0, 0
        while True:
            byte = self.u8()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def zigzag(self) -> int:
        n = self.varint()
        return n >> 1 if n & 1 == 0 else -(n + 1 >> 1)

    def text(self) -> str:
        return self.take(self.varint()).decode()

    def left(self) -> int:
        return len(self.data) - self.at


def sections(data: bytes, last=None) -> dict:
    """Sections by number."""
    reader, found = Reader(data), {}
    while reader.left() > 0:
        number = reader.u8()
        found[number] = reader.take(reader.varint())
        if number == last:
            break
    return found


def unpack_bits(reader: Reader, count: int, width: int) -> list:
    """`count` residuals of `width` bits."""
    tail = 0 if count % 1024 >= 960 else count % 1024
    whole = (count - tail + 1023) // 1024
    values = [0] * (whole * 1024 + tail)
    if width == 0:
        return values[:count]
    word = next(t for t in (8, 16, 32, 64) if width <= t)
    lanes = 1024 // word
    order = (0, 4, 2, 6, 1, 5, 3, 7)
    for chunk in range(whole):
        data = reader.take(128 * width)
        words = struct.unpack(f"<{lanes * width}{ {8: 'B', 16: 'H', 32: 'I', 64: 'Q'}[word] }".replace(" ", ""), data)
        for lane in range(lanes):
            stream = 0
            for row in range(width):
                stream |= words[row * lanes + lane] << (row * word)
            for row in range(word):
                index = order[row // 8] * 16 + row % 8 * 128 + lane
                values[chunk * 1024 + index] = stream >> (row * width) & ((1 << width) - 1)
    bits = int.from_bytes(reader.take((tail * width + 7) // 8), "little")
    for index in range(tail):
        values[whole * 1024 + index] = bits >> (index * width) & ((1 << width) - 1)
    return values[:count]


def packed(reader: Reader, mode: int, count: int) -> list:
    """An integer stream of the modes 0 to 2."""
    order, width = mode & 7, reader.u8()
    if order > 2:
        raise ValueError(f"mode {mode}")
    value = reader.zigzag() if order > 0 else 0
    step = reader.zigzag() if order > 1 else 0
    least = reader.zigzag()
    divisor = reader.varint() if mode & 8 else 1
    residuals = unpack_bits(reader, count - order, width)
    if mode & 16:
        at = 0
        for _ in range(reader.varint()):
            at += reader.varint()
            residuals[at] |= reader.varint() << width
            at += 1
    values = []
    if order > 0:
        values.append(signed64(value))
    if order > 1:
        value += step
        values.append(signed64(value))
    for residual in residuals:
        difference = least + residual * divisor
        if order == 2:
            step += difference
            value += step
        elif order == 1:
            value += difference
        else:
            value = difference
        values.append(signed64(value))
    return values


def integers(reader: Reader, count: int) -> list:
    """An integer stream of `count` values, as i64."""
    if count == 0:
        return []
    mode = reader.u8()
    if mode == 3:
        runs = reader.varint()
        lengths = packed(reader, reader.u8(), runs)
        heads = packed(reader, reader.u8(), runs)
        return [head for length, head in zip(lengths, heads) for _ in range(length + 1)]
    if mode == 4:
        first, slope = reader.zigzag(), reader.zigzag()
        distances = packed(reader, reader.u8(), count)
        return [signed64(first + (i * slope >> 16) + d) for i, d in enumerate(distances)]
    return packed(reader, mode, count)


def bits_of(kind: str, value: float) -> int:
    """Bit pattern of a float, rounded to its type."""
    if kind == "f32":
        return struct.unpack("<I", struct.pack("<f", value))[0]
    return struct.unpack("<Q", struct.pack("<d", value))[0]


def quantised(kind: str, parameters: bytes, reader: Reader, count: int) -> list:
    """Bit patterns of a quantised column."""
    fields = Reader(parameters)
    form = fields.u8()
    if form & 3 == 2:
        n, lsb, offset = float(fields.varint()), None, None
    else:
        n, lsb = None, fields.unpack("d" if form & 3 == 0 else "f")
        offset = [lambda: 0.0, lambda: fields.unpack("f"), lambda: fields.unpack("d")][form >> 2 & 3]()
    values = [bits_of(kind, float(k) / n if n else offset + float(k) * lsb) for k in integers(reader, count)]
    if form & 16:
        width = 32 if kind == "f32" else 64
        mask = (1 << width) - 1

        def mapped(pattern: int) -> int:
            sign = mask if pattern >> (width - 1) else 0
            return pattern ^ sign >> 1

        values = [mapped(mapped(v) + c & mask) for v, c in zip(values, integers(reader, count))]
    return values


def text_values(reader: Reader, count: int) -> list:
    """Texts that stand one after the other."""
    return [reader.take(length).decode() for length in integers(reader, count)]


def said(kind: str, value: int):
    """How a value is printed."""
    if kind in ("f32", "f64"):
        return f"{value:#x}"
    if kind == "bool":
        return str(value != 0).lower()
    size = SIZES[kind] * 8
    value &= (1 << size) - 1
    return str(value - (1 << size) if kind[0] == "i" and value >> (size - 1) else value)


def column_values(kind: str, codec: str, parameters: bytes, reader: Reader, count: int):
    """Printed values of a column; none for pco."""
    if codec == "none":
        return []
    if codec == "pco":
        return None
    if kind == "string":
        if codec == "plain":
            return text_values(reader, count)
        entries = text_values(reader, reader.varint())
        return [entries[i] for i in integers(reader, count)]
    if codec == "quantised":
        return [said(kind, v) for v in quantised(kind, parameters, reader, count)]
    if codec == "constant":
        return [said(kind, int.from_bytes(reader.take(SIZES[kind]), "little"))] * count
    if codec == "plain":
        return [said(kind, int.from_bytes(reader.take(SIZES[kind]), "little")) for _ in range(count)]
    return [said(kind, v) for v in integers(reader, count)]


def read_type(reader: Reader) -> str:
    """A channel type: `f32`, `f32[512]`, `f64[]`, `blob`."""
    code = reader.u8()
    if code > 64:
        return f"{TYPES[code - 64]}[]"
    return f"{TYPES[code - 32]}[{reader.unpack('H') + 1}]" if code > 32 else TYPES[code]


def array_values(kind: str, codec: str, table: Reader, count: int, tiles: bytes):
    """Printed values of a column of arrays; none if a tile is of pco."""
    if codec == "none":
        return []
    element, length = kind[:-1].split("[")
    lengths = [int(length)] * count if length else integers(table, count)
    each, at, by_row = table.varint(), table.varint(), table.u8()
    values = [[None] * n for n in lengths]
    for first in range(0, max(lengths), each):
        code = table.u8()
        parameters = table.varint() if code & 0x80 else 0
        length = parameters + table.varint()
        tile = tiles[at : at + length]
        check(tile, table.unpack("I"), "tile")
        at += length
        elements = range(first, first + each)
        if by_row:
            places = [(row, e) for row, n in enumerate(lengths) for e in elements if e < n]
        else:
            places = [(row, e) for e in elements for row, n in enumerate(lengths) if e < n]
        found = column_values(element, CODECS[code & 0x3F], tile[:parameters], Reader(tile[parameters:]), len(places))
        if found is None:
            return None
        for (row, e), value in zip(places, found):
            values[row][e] = value
    if table.left():
        raise ValueError("bytes behind a table of tiles")
    return values


def reference(data: bytes) -> str:
    """A reference to a blob: segment, offset, length, checksum."""
    place, length, crc = struct.unpack("<QII", data)
    return f"{place >> 16}:{(place & 0xFFFF) * 4096}:{length}:{crc:08x}"


def block_header(data: bytes) -> dict:
    """Fields of a block's header."""
    check(data[:92], struct.unpack("<I", data[92:96])[0], "block header")
    fields = struct.unpack("<4sIHHI16sIIIIQqqqqI", data[:92])
    if fields[0] != b"SBBK" or fields[2]:
        raise ValueError("no block of this version")
    return {
        "length_bytes": fields[1],
        "flags": fields[4],
        "origin": str(int.from_bytes(fields[5], "little")),
        "epoch": fields[6],
        "stream": fields[7],
        "layout_version": fields[8],
        "rows": fields[9],
        "first_row": str(fields[10]),
        "time": [str(fields[11]), str(fields[12])],
        "stored": [str(fields[13]), str(fields[14])],
        "body_crc": fields[15],
    }


def statistic_value(reader: Reader, kind: str) -> str:
    """First, last, minimum or maximum."""
    if kind in ("f32", "f64"):
        return said(kind, int.from_bytes(reader.take(SIZES[kind]), "little"))
    return said(kind, reader.zigzag() if kind[0] == "i" else reader.varint())


def statistics(reader: Reader, kind: str, header: dict) -> dict:
    """Statistics of one channel."""
    flags, rows = reader.u8(), header["rows"]
    low, high = int(header["time"][0]), int(header["time"][1])
    names = ["absent", "unchanged", "unknowns", "nans", "infinities"]
    found = {name: reader.varint() if flags & 1 << i else 0 for i, name in enumerate(names)}
    found |= {"first": None, "last": None, "min": None, "max": None, "sum": None, "integral": None}
    if kind in ("string", "blob") or "[" in kind or found["absent"] + found["unchanged"] + found["unknowns"] == rows:
        return found
    ranged = ["min", "max"] if flags & 64 else []
    values = {name: statistic_value(reader, kind) for name in ["first", "last"] + ranged}
    times = {"first": low + reader.varint(), "last": high - reader.varint()}
    times |= {name: low + reader.varint() for name in ranged}
    found |= {name: [value, str(times[name])] for name, value in values.items()}
    if kind in ("f32", "f64"):
        found["sum"] = f"{reader.unpack('Q'):#x}"
    else:
        found["sum"] = str(reader.zigzag())
    if flags & 32:
        integral = f"{reader.unpack('Q'):#x}"
        found["integral"] = [integral, str(high - low - reader.varint())]
    return found


def add(base: list, values: list) -> list:
    """Differences to another column; nulls stay."""
    return [None if v is None else signed64(b + v) for b, v in zip(base, values)]


def read_block(header: dict, body: bytes) -> dict:
    """An ordinary block."""
    # A parted block begins with the length and checksum of its front, and ends with the tiles of arrays.
    found, rows = sections(body, last=6 if body[0] == 5 else 2), header["rows"]
    directory, data = Reader(found[1]), Reader(found[2])
    channels = directory.varint()
    checksums = []
    if 5 in found:
        front, crc = struct.unpack("<II", found[5])
        check(body[10 : front - 96], crc, "front")
        places = struct.unpack(f"<5I{channels}I", found[7])
        for name, section, (at, length) in (("statistics", 0x81, places[:2]), ("tiles", 6, places[3:5])):
            if body[at - 96 : at - 96 + length] != found.get(section, b"") and (at, section) != (0, 0x81):
                raise ValueError(f"{name} elsewhere than the front says")
        check(found.get(0x81, b""), places[2], "statistics")
        checksums = places[5:]
    columns = []
    for _ in range(channels + 4):
        kind, code = read_type(directory), directory.u8()
        lengths = [directory.varint() if code & flag else 0 for flag in (0x80, 0x40)]
        parameters_len, states_len, values_len = *lengths, directory.varint()
        codec = CODECS[code & 0x3F]
        states, parameters, values = [data.take(n) for n in (states_len, parameters_len, values_len)]
        if checksums and len(columns) >= 4:
            check(states + parameters + values, checksums[len(columns) - 4], "column")
        states = integers(Reader(states), rows) if states_len else [0] * rows
        columns.append((kind, codec, states, parameters, Reader(values), states_len))
    if data.left():
        raise ValueError("the directory does not add up")
    system = []
    for kind, codec, states, _, values, states_len in columns[:4]:
        if codec in ("none", "same-time") and not states_len:
            system.append((codec, None))
            continue
        present = iter(integers(values, states.count(0)))
        system.append((codec, [next(present) if s == 0 else None for s in states]))
    (receive_codec, receive), (source_codec, source), (_, sequence), (_, session) = system
    if receive_codec == "time-difference":
        receive = add(source, receive)
    elif source_codec == "same-time":
        source = receive
    elif source_codec == "time-difference":
        source = add(receive, source)
    out = []
    for kind, codec, states, parameters, values, _ in columns[4:]:
        if kind == "blob":
            present = array_values("u8[16]", codec, values, states.count(0), found.get(6, b""))
            present = present and [reference(bytes(map(int, value))) for value in present]
        elif "[" in kind:
            present = array_values(kind, codec, values, states.count(0), found.get(6, b""))
        else:
            present = column_values(kind, codec, parameters, values, states.count(0))
        cells = None
        if present is not None:
            present = iter(present)
            cells = [next(present) if s == 0 else s for s in states]
        out.append({"type": kind, "codec": codec, "cells": cells})
    result = dict(header)
    del result["length_bytes"], result["body_crc"]
    reader = Reader(found[0x81]) if 0x81 in found else None
    result["statistics"] = [statistics(reader, c["type"], header) for c in out] if reader else None
    return result | frames(receive, source, sequence, session, out)


def frames(receive, source, sequence, session, columns) -> dict:
    """The frames of a block or part, as printed."""

    def texts(values):
        return values and [None if v is None else str(v) for v in values]

    return {
        "receive_time": texts(receive),
        "source_time": texts(source),
        "sequence": texts(sequence),
        "session": session,
        "columns": columns,
    }


def read_mixed(header: dict, body: bytes) -> list:
    """The parts of a mixed block, each as if it were a block."""
    found, time_min = sections(body, last=4), int(header["time"][0])
    directory, rows_data = Reader(found[3]), Reader(found[4])
    parts = []
    for _ in range(directory.varint()):
        part = dict(header)
        del part["length_bytes"], part["body_crc"]
        part |= {"stream": directory.varint(), "layout_version": directory.varint()}
        kinds = [read_type(directory) for _ in range(directory.varint())]
        part |= {"first_row": str(directory.varint()), "rows": directory.varint()}
        flags = directory.u8()
        low = time_min + directory.varint()
        part |= {"flags": flags & 15 | 16, "time": [str(low), str(low + directory.varint())], "statistics": None}
        reader = Reader(rows_data.take(directory.varint()))
        receive, source, sequence, session = [], [], [], []
        columns = [{"type": kind, "codec": "row", "cells": []} for kind in kinds]
        now, number, era = time_min, 0, 0
        for _ in range(part["rows"]):
            row = reader.u8()
            now = signed64(now + reader.zigzag())
            receive.append(now)
            source.append(None if not row & 1 else now if row & 2 else signed64(now + reader.zigzag()))
            if row & 4:
                number = signed64(number + (1 if row & 8 else reader.zigzag()))
            sequence.append(number if row & 4 else None)
            era = reader.varint() if row & 32 else era
            session.append(era)
            states = int.from_bytes(reader.take((len(kinds) + 3) // 4), "little") if row & 16 else 0
            for index, column in enumerate(columns):
                state, kind = states >> (2 * index) & 3, column["type"]
                if state:
                    column["cells"].append(state)
                elif kind == "string":
                    column["cells"].append(reader.text())
                elif kind == "blob":
                    column["cells"].append(reference(reader.take(reader.varint())))
                elif "[" in kind:
                    array, element = Reader(reader.take(reader.varint())), kind.split("[")[0]
                    size = SIZES[element]
                    count = array.left() // size
                    cells = [said(element, int.from_bytes(array.take(size), "little")) for _ in range(count)]
                    column["cells"].append(cells)
                else:
                    column["cells"].append(said(kind, int.from_bytes(reader.take(SIZES[kind]), "little")))
        kept = [values if flags & flag else None for values, flag in ((source, 16), (sequence, 32), (session, 64))]
        parts.append(part | frames(receive, *kept, columns))
    return parts


def read_streams(reader: Reader) -> list:
    """Stream definitions of the footer."""
    streams = []
    for _ in range(reader.varint()):
        stream = {"id": reader.varint(), "table": reader.text()}
        stream["tags"] = {reader.text(): reader.text() for _ in range(reader.varint())}
        stream |= {"source": reader.text(), "clock": ["receive", "source"][reader.u8()]}
        period, modulus = reader.varint(), reader.varint()
        stream |= {"expected_period_ns": str(period - 1) if period else None, "sequence_modulus": str(modulus) if modulus else None}
        stream |= {"layout_version": reader.varint(), "channels": []}
        for _ in range(reader.varint()):
            channel = {"id": reader.varint(), "type": read_type(reader)}
            byte = reader.u8()
            channel |= {"interpolation": ["hold", "linear"][byte & 15]}
            reduction = ["none", "step", "deadband", "swinging_door"][byte >> 4]
            if reduction != "none":
                channel |= {"reduction": reduction}
            if byte >> 4 >= 2:
                channel |= {"bound": reader.unpack("d")}
            channel |= {"name": reader.text(), "source_name": reader.text(), "unit": reader.text(), "description": reader.text()}
            channel["source_name"] = channel["source_name"] or channel["name"]
            stream["channels"].append(channel)
        streams.append(stream)
    return streams


def read_index(reader: Reader) -> list:
    """(offset, length) of every block that the footer names, once each."""
    for _ in range(reader.varint()):
        reader.take(16)
    places, end, first = [], 0, True
    for _ in range(reader.varint()):
        flags = reader.u8()
        if not flags & 32:
            offset = end + reader.varint() * 8
            length = reader.varint() * 8
            end = offset + length
            places.append((offset, length))
        for _ in range(10 + (1 if flags & 16 else 0)):
            reader.varint()
    return places


def read_blobs(data: bytes) -> dict:
    """A whole segment of blobs: those that are finished."""
    check(data[:4092], struct.unpack("<I", data[4092:4096])[0], "header")
    magic, version, incompatible, _, _, ident, generation, _, _, name = struct.unpack("<4sIQQ16sQQQqH", data[:74])
    if magic != b"SBSG" or version != 1 or incompatible != 1:
        raise ValueError("no segment of this version")
    blobs, at, whole = [], 4096, b""
    while at < len(data):
        fields = struct.unpack("<4sIQQIIIIqIII", data[at : at + 60])
        chunk, length, segment, of, start, index, epoch, flags, stored, size, crc, body_crc = fields
        check(data[at : at + 60], struct.unpack("<I", data[at + 60 : at + 64])[0], "header of a chunk")
        if chunk != b"SBBC" or (segment, of, start + index * 131072) != (ident, generation, at):
            raise ValueError("no chunk of this segment")
        body = data[at + 64 : at + 64 + length]
        check(body, body_crc, "chunk")
        whole = body if index == 0 else whole + body
        if flags & 1:
            check(whole, crc, "blob")
            if len(whole) != size:
                raise ValueError("a blob of another length")
            text = f"{ident}:{start}:{size}:{crc:08x}"
            blobs.append({"reference": text, "epoch": epoch, "stored": str(stored), "sum": str(sum(whole))})
        elif length != 131008:
            raise ValueError("a chunk that is not full")
        at += (64 + length + 4095) // 4096 * 4096
    return {"id": ident, "generation": generation, "group": data[74 : 74 + name].decode(), "blobs": blobs}


def read_segment(data: bytes) -> dict:
    """The whole segment."""
    if struct.unpack("<Q", data[8:16])[0] & 1:
        return read_blobs(data)
    for page, what in ((data[:4096], "header"), (data[-4096:], "trailer")):
        check(page[:4092], struct.unpack("<I", page[4092:])[0], what)
    magic, version, incompatible, _, origin, ident, generation, size, created, name = struct.unpack("<4sIQQ16sQQQqH", data[:74])
    if magic != b"SBSG" or version != 1 or incompatible:
        raise ValueError("no segment of this version")
    _, _, footer_offset, footer_bytes, _, _ = struct.unpack("<4sIQQQQ", data[-4096:][:40])
    footer = data[footer_offset : footer_offset + footer_bytes]
    check(footer[32:], struct.unpack("<I", footer[24:28])[0], "footer")
    found = sections(footer[32:])
    blocks, places, at = [], [], 4096
    while at < footer_offset:
        length, count = struct.unpack("<II", data[at + 4 : at + 12])
        check(data[at + 40 : at + length], struct.unpack("<I", data[at + 32 : at + 36])[0], "group")
        inside = at + 40
        for _ in range(count):
            header = block_header(data[inside:])
            end = inside + header["length_bytes"]
            check(data[inside + 96 : end], header["body_crc"], "block")
            body = data[inside + 96 : end]
            places.append((inside, end - inside))
            blocks.extend(read_mixed(header, body) if header["flags"] & 16 else [read_block(header, body)])
            inside = end
        at += (length + 4095) // 4096 * 4096
    if read_index(Reader(found[1])) != places:
        raise ValueError("the index does not name the blocks")
    return {
        "origin": str(int.from_bytes(origin, "little")),
        "id": ident,
        "generation": generation,
        "size_bytes": size,
        "created": str(created),
        "group": data[74 : 74 + name].decode(),
        "streams": read_streams(Reader(found[2])),
        "blocks": blocks,
    }


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as file:
        json.dump(read_segment(file.read()), sys.stdout)
