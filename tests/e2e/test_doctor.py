"""`strongback doctor` says why data is missing, to people and to programs."""

from __future__ import annotations

import contextlib
import json
import pathlib
import random
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from typing import Any

from strongback import BINARY, TIMEOUT_S, Server, eventually, free_ports

# Of what comes only now and then: neither slow nor silent.
SELDOM = '[[channel]]\npattern = "*"\nexpected_period_ms = 3600000.0\n'


def doctor(server: Server, *arguments: str) -> tuple[int, str]:
    """Exit code and standard output of a question."""
    command = [BINARY, "doctor", "--server", server.url, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout


def findings(server: Server, channel: str) -> list[dict[str, Any]]:
    """What it finds now; of everything, if no channel is named."""
    found: list[dict[str, Any]] = server.get(f"/api/doctor?channel={channel}")["findings"]
    return found


def named(server: Server, channel: str, *causes: str) -> dict[str, dict[str, Any]]:
    """Asks until exactly these causes are named, the first one first; the command line then says the same."""

    def are_right(found: list[dict[str, Any]]) -> bool:
        names = [finding["cause"] for finding in found]
        return sorted(names) == sorted(causes) and names[:1] == list(causes[:1])

    try:
        [last] = eventually(f"{causes}", lambda: [f for f in [findings(server, channel)] if are_right(f)])
    except AssertionError as late:
        raise AssertionError(f"{late}: {json.dumps(findings(server, channel), indent=1)}") from None
    code, text = doctor(server, *([channel] if channel else []), "--json")
    assert are_right(json.loads(text)["findings"]), text
    assert code == (3 if any(f["wrong"] for f in last) else 0)
    return {finding["cause"]: finding for finding in last}


@contextlib.contextmanager
def running(server: Server) -> Iterator[Server]:
    """Starts a server; it must end well."""
    server.start()
    try:
        yield server
    finally:
        code = server.stop()
    assert code == 0, f"exit code {code}: {server.last_words()}"


def test_a_rejected_line_and_a_name_that_is_none(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.ilp_port)) as wire:
        wire.sendall(b"tank p=1.5\ntank q=oops\n")
        peer = "{}:{}".format(*wire.getsockname())
        eventually("the line to be rejected", lambda: server.get("/api/sources/ilp")["rejected"])
        code, text = doctor(server, "tank.q")
    assert code == 3
    assert text.startswith("tank.q, now: 2 findings in 0 streams\n")
    assert "1. not configured" in text and "tank.p" in text and "2. rejected" in text and peer in text
    assert all(len(line) <= 100 for line in text.splitlines()), text
    code, text = doctor(server, "tank.q", "--json")
    report = json.loads(text)
    assert (code, [f["cause"] for f in report["findings"]]) == (3, ["not_configured", "rejected"])
    assert doctor(server, "tank.p", "--at", "soon")[0] == 2
    server.stop()
    assert doctor(server)[0] == 1


def test_what_a_reduction_left_out_is_told_and_nothing_is_wrong(tmp_path: pathlib.Path) -> None:
    definition = tmp_path / "tank.rdl"
    definition.write_text(
        "CREATE STREAM tank WITH ID 1 { p double WITH CODEC DeadbandAlgorithm PARAMS (deadband=5), n double }\n"
        "CREATE STREAM valve WITH ID 2 { v double WITH CODEC DeadbandAlgorithm PARAMS (deadband=5) }\n"
    )
    server = Server(folder=tmp_path, config=SELDOM)
    create = [BINARY, "store", "create", str(tmp_path / "store"), "--definition", str(definition), "--folder"]
    subprocess.run(create, check=True, timeout=TIMEOUT_S, capture_output=True)
    with running(server):
        for n in range(5):
            assert server.write(f"tank p={10 + n / 10},n={n}\nvalve v={10 + n / 10}") == (204, None)
        # Of a channel: it is in none of the rows after the first. (Since the store was made, no server ran.)
        reduced = named(server, "tank.p", "server_not_running", "reduced")["reduced"]
        assert (reduced["wrong"], reduced["stream"]) == (False, "tank")
        assert reduced["text"] == "tank.p: left out of the newest frame, within its reduction deadband(5)"
        named(server, "tank.n", "server_not_running")
        # Of a stream: where nothing else is in it, there is no row.
        reduced = named(server, "", "server_not_running", "reduced")["reduced"]
        assert (reduced["wrong"], reduced["count"], reduced["stream"]) == (False, "4", "valve")
        assert reduced["text"].startswith("4 frames with nothing outside the bounds"), reduced


def test_a_source_below_its_rate_is_slow(tmp_path: pathlib.Path) -> None:
    config = '[[channel]]\npattern = "tank.*"\nexpected_period_ms = 1.0\n'
    with running(Server(folder=tmp_path, config=config)) as server:

        def slow() -> list[dict[str, Any]]:
            # However fast this asks, it is no thousand lines a second.
            assert server.write("tank p=1.5") == (204, None)
            return [f for f in findings(server, "tank.p") if f["cause"] == "slow"]

        [finding] = eventually("it is slow", slow)
        assert (finding["wrong"], finding["source"], finding["stream"]) == (True, "ilp", "tank")
        assert finding["text"].endswith("frames/s instead of 1000 frames/s"), finding
        assert int(finding["from"]) <= int(finding["to"])
        assert server.get("/api/sources/ilp")["streams"][0]["status"] == "slow"


@contextlib.contextmanager
def plc(port: int, *arguments: str) -> Iterator[None]:
    """A simulated PLC that is gone at the end."""
    command = [BINARY, "simulate", "pad", "--plc", f"127.0.0.1:{port}", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
        assert process.poll() is None, "it ended by itself"
    finally:
        process.kill()
        process.wait()


def test_a_plc_that_is_away_and_one_without_a_symbol(tmp_path: pathlib.Path) -> None:
    [port] = free_ports(count=1)
    config = f"""
[[source]]
name = "pad"
kind = "ads"
host = "127.0.0.1:{port}"
[[source.group]]
table = "ground"
symbols = ["MAIN.gse.t_clock", "MAIN.gse.wind_gust"]
strip = "MAIN.gse."
rate_hz = 20.0
"""
    with running(Server(folder=tmp_path, config=config)) as server:
        with plc(port):
            named(server, "ground.wind_gust")
        away = named(server, "ground.wind_gust", "disconnected", "silent")["disconnected"]
        assert (away["wrong"], away["source"]) == (True, "pad")
        assert away["text"].startswith(f"the PLC pad at 127.0.0.1:{port} does not answer: "), away
        assert "silent" not in away["text"], away
        # It comes back with a program that does not have the symbol.
        with plc(port, "--plc-program-change-after", "1ms"):
            found = named(server, "ground.wind_gust", "symbol_missing", "lost", "channel_absent")
            missing = found["symbol_missing"]
            assert (missing["source"], missing["stream"]) == ("pad", "ground")
            assert missing["text"].startswith("MAIN.gse.wind_gust: "), missing
            # Of the symbol that is there only the time without a PLC is missing.
            named(server, "ground.t_clock", "lost")


def test_a_full_disk_is_told_while_it_is_full_and_what_it_cost_after(tmp_path: pathlib.Path) -> None:
    server = Server(folder=tmp_path, config=SELDOM + "[store]\nlog_mib = 4\n", file_bytes_max=1 << 30)
    with running(server):
        # Once its log and checkpoints are there, no file may become as large as the smallest segment.
        server.limit_files(512 << 10)
        sent = 0
        values = random.Random(1)

        def refused() -> str | None:
            nonlocal sent
            status, answer = server.write("".join(f"tank p={values.random()}\n" for _ in range(2_000)))
            sent += 2_000
            return None if status == 204 else answer["message"]

        assert "disk full" in eventually("the disk is full", refused)
        found = named(server, "tank.p", "not_recording")["not_recording"]
        assert found["text"] == "nothing is recorded now: disk full; screens go on"
        named(server, "", "not_recording")
        # The first one may have been taken before the disk was full, and is stored after all: this one is not.
        assert "disk full" in (refused() or "")
        server.limit_files()
        eventually("there is room again", lambda: refused() is None)
        lost = named(server, "tank.p", "not_recorded")["not_recorded"]
        assert "refused while the store took nothing" in lost["text"], lost
        assert server.rows_of("tank") + int(lost["count"]) == sent


def test_what_the_kernel_drops_is_told_to_the_packet(tmp_path: pathlib.Path) -> None:
    [port] = free_ports(count=1)
    config = f"""
[[source]]
name = "fti"
kind = "inetx"
listen = "127.0.0.1:{port}"
receive_buffer_bytes = 65536
[[source.stream]]
id = 221
table = "fti.bay"
[[source.stream.channel]]
name = "t"
offset = 0
type = "u32"
"""
    with running(Server(folder=tmp_path, config=config)) as server:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire:
            wire.connect(("127.0.0.1", port))

            sent = 0

            def send() -> None:
                nonlocal sent
                wire.send(struct.pack(">7I", 0x1000_0000, 221, sent, 28, 1_780_000_000, sent, sent))
                sent += 1

            def kernel() -> list[dict[str, Any]]:
                # The kernel tells with the next packet that it takes how many it dropped.
                send()
                return [f for f in findings(server, "fti.bay.t") if f["cause"] == "kernel"]

            send()
            eventually("the first packet", lambda: server.rows_of("fti.bay") == 1)
            named(server, "fti.bay.t")
            assert server.process is not None
            # While nobody reads, the buffer takes what it can.
            server.process.send_signal(signal.SIGSTOP)
            for _ in range(5_000):
                send()
            server.process.send_signal(signal.SIGCONT)
            eventually("the kernel dropped some", kernel)
            dropped = eventually("the last packet", lambda: sent - server.rows_of("fti.bay"))
            eventually(
                f"{dropped} packets are lost, dropped by the kernel",
                lambda: [f["count"] for f in findings(server, "fti.bay.t")] == [str(dropped)] * 2,
            )
            found = named(server, "fti.bay.t", "lost", "kernel")
            assert sent == server.rows_of("fti.bay") + dropped
            assert found["kernel"]["text"].startswith(f"the kernel dropped {dropped} datagrams since the server started")


def test_bits_that_rot_are_told_with_what_they_cost(tmp_path: pathlib.Path) -> None:
    server = Server(folder=tmp_path, config=SELDOM + "[store]\nlog_mib = 4\n").start()
    note = random.Random(1)
    # Twice as much as the log holds: the older half is in the segment alone.
    for _ in range(20):
        lines = "".join(f'tank p=1.5,note="{note.randbytes(1_000).hex()}"\n' for _ in range(200))
        assert server.write(lines) == (204, None)
    server.kill()
    [segment] = [f for f in (tmp_path / "store").glob("segment-*") if any(f.read_bytes())]
    content = bytearray(segment.read_bytes())
    # Nearly all that is written is the notes.
    content[len(bytes(content).rstrip(b"\0")) // 4] ^= 0x10
    segment.write_bytes(content)
    with running(server):
        assert server.write("tank p=1.5") == (204, None)
        found = named(server, "tank.p", "server_not_running", "damaged")["damaged"]
        assert found["stream"] == "tank" and int(found["count"]) > 0
        assert found["text"].startswith(f"{found['count']} frames stood in a damaged place of the disk"), found
        assert server.rows_of("tank") + int(found["count"]) == 4_001
        assert segment.name in server.last_words()


def silences(server: Server, stream: str) -> list[dict[str, Any]]:
    """Gaps of a stream."""
    gaps: list[dict[str, Any]] = server.get(f"/api/gaps?stream={stream}")["gaps"]
    return gaps


def kill_while_silent(server: Server, stream: str) -> tuple[int, int, int]:
    """Sends one frame and kills the server in the silence after it. Times: the frame, the least and the most that the
    server can have known."""
    assert server.write(f"{stream} p=1.5") == (204, None)
    [(last,)] = server.sql(f"select max(receive_time_ns) from {stream}")

    def is_silent() -> bool:
        streams = server.get("/api/sources/ilp")["streams"]
        return [s["status"] for s in streams if s["name"] == stream] == ["silent"]

    eventually("the silence", is_silent)
    # Something else is durable then: until there at least a server was at work.
    known = time.time_ns()
    assert server.write("mark v=1") == (204, None)
    server.kill()
    return last, known, time.time_ns()


def test_a_silence_that_a_kill_cuts_off_is_told_after_the_restart(tmp_path: pathlib.Path) -> None:
    period_ns = 100_000_000
    server = Server(folder=tmp_path, config='[[channel]]\npattern = "*.p"\nexpected_period_ms = 100.0\n').start()
    last, known, killed = kill_while_silent(server, "tank")
    server.start()
    [gap] = eventually("the gap", lambda: silences(server, "tank"))
    count, end = int(gap["count"]), int(gap["to_time"])
    assert (gap["cause"], gap["open"], int(gap["from_time"])) == ("silence", gap["count"], last)
    assert known <= end <= killed and abs(count - ((end - last) / period_ns - 1)) <= 0.5, (gap, known, killed)
    assert server.get("/api/sources/ilp")["streams"][0]["lost"] == gap["count"]
    [found] = server.get(f"/api/doctor?channel=tank.p&at={last + 5 * period_ns}")["findings"]
    assert (found["cause"], found["count"]) == ("silent", gap["count"])

    # It did not come since, and is not counted again; what was cut off now is.
    last, known, killed = kill_while_silent(server, "tonk")
    server.start()
    [other] = eventually("the gap of the other", lambda: silences(server, "tonk"))
    assert int(other["from_time"]) == last and known <= int(other["to_time"]) <= killed, other
    assert silences(server, "tank") == [gap]
    # Nor after a good end, which counts by itself.
    assert server.stop() == 0
    server.start()
    starts = "select text from strongback.events where text like 'server started%'"
    eventually("the start", lambda: len(server.sql(starts)) == 3)
    assert silences(server, "tank") == [gap]
    # It came since the start before: from a start on it is waited for, and counted from there.
    assert [each for each in silences(server, "tonk") if int(each["from_time"]) <= killed] == [other]
    assert server.stop() == 0
