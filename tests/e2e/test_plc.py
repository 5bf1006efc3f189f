"""The simulated PLC to pyads, and through it to Beckhoff's own client library: `strongback simulate pad --plc`."""

from __future__ import annotations

import datetime
import fcntl
import itertools
import json
import pathlib
import queue
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

import pyads
import pytest
from strongback import BINARY, TIMEOUT_S, eventually

NET_ID = "5.12.20.1.1.1"
# The library knows no other port.
PORT = 48898
VALVE = ["CLOSED", "OPENING", "OPEN", "CLOSING"]


def free_host() -> str:
    """A loopback address on which nobody has TwinCAT's port."""
    for last in range(2, 250):
        host = f"127.0.0.{last}"
        with socket.socket() as probe:
            # As the server does: a port that was just given up may be taken again.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, PORT))
            except OSError:
                continue
            return host
    raise AssertionError(f"port {PORT} is taken everywhere")


class Plc:
    """A running PLC and its report."""

    def __init__(self, *arguments: str) -> None:
        # Two test runs on one machine look for an address one after the other.
        with (pathlib.Path(tempfile.gettempdir()) / "strongback-ads-port").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.host = free_host()
            command = [BINARY, "simulate", "pad", "--plc", f"{self.host}:{PORT}", "--json", *arguments]
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            eventually("the PLC listens", self.listens)

    def listens(self) -> bool:
        assert self.process.poll() is None, self.process.stderr and self.process.stderr.read()
        with socket.socket() as probe:
            return probe.connect_ex((self.host, PORT)) == 0

    def stop(self) -> dict[str, Any]:
        self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=TIMEOUT_S)
        assert self.process.returncode == 0, err
        report: dict[str, Any] = json.loads(out.splitlines()[-1])["plc"]
        return report


@pytest.fixture
def plc() -> Iterator[Plc]:
    running = Plc()
    yield running
    if running.process.poll() is None:
        running.stop()


@pytest.fixture
def client(plc: Plc) -> Iterator[pyads.Connection]:
    with pyads.Connection(NET_ID, pyads.PORT_TC3PLC1, plc.host) as connection:
        connection.set_timeout(int(TIMEOUT_S * 1000))
        yield connection


def test_symbols_are_listed_with_types_units_and_places(client: pyads.Connection) -> None:
    symbols = {symbol.name: symbol for symbol in client.get_all_symbols()}
    assert len(symbols) == 2_072
    assert client.read_device_info()[0] == "Plc30 App"
    assert client.read_state() == (pyads.ADSSTATE_RUN, 0)
    assert symbols["MAIN.lox.t_01"].comment == "Line temperature [°C]"
    types = {name: symbols[f"HMI.{name}"].symbol_type for name in ("enable", "mode", "target", "rate", "limit", "note")}
    assert list(types.values()) == ["BOOL", "INT", "DINT", "REAL", "LREAL", "STRING(80)"]
    fast = [s for s in symbols.values() if s.name.startswith("FAST.")]
    assert [s.index_offset for s in fast] == [fast[0].index_offset + 4 * n for n in range(1_050)]
    info = client.get_symbol("MAIN.tanks[2].line.flow")
    assert (info.symbol_type, info.comment) == ("REAL", "Flow [kg/s]")


def test_values_are_read_by_name_by_handle_and_by_sum(client: pyads.Connection) -> None:
    client.write_control(pyads.ADSSTATE_STOP, 0, 0, pyads.PLCTYPE_INT)
    names = ["MAIN.task.cycle", "FAST.cycle", "FAST.cycle_end", "MAIN.gse.phase", "MAIN.gse.t_clock", "MAIN.lox.p_01"]
    names += ["MAIN.lox.fill_valve", "MAIN.lox.v01_open", "MAIN.gse.cycles", "MAIN.task.uptime", "MAIN.gse.load"]
    together = client.read_list_by_name(names)
    assert together["FAST.cycle"] == together["FAST.cycle_end"] == together["MAIN.task.uptime"] >= 100
    assert together["MAIN.gse.phase"] in {"REPLENISH", "PRESSURISATION", "HOLD", "TERMINAL"}
    assert -140.0 < together["MAIN.gse.t_clock"] < 0.0
    # An enumeration is read as what it stands on; the type of all others the client asks for.
    kinds = {"MAIN.lox.fill_valve": pyads.PLCTYPE_INT}
    for name in names:
        assert client.read_by_name(name, kinds.get(name)) == together[name], name
    handle = client.get_handle("MAIN.gse.load[2]")
    assert client.read_by_name("", pyads.PLCTYPE_REAL, handle=handle) == together["MAIN.gse.load"][1]
    client.release_handle(handle)
    line = (("pressure", pyads.PLCTYPE_REAL, 1), ("flow", pyads.PLCTYPE_REAL, 1), ("open", pyads.PLCTYPE_BOOL, 1))
    line += (("padding", pyads.PLCTYPE_BYTE, 3),)
    whole = client.read_structure_by_name("MAIN.lox.tank.line", line)
    assert whole["flow"] == client.read_by_name("MAIN.lox.tank.line.flow", pyads.PLCTYPE_REAL)
    assert VALVE[together["MAIN.lox.fill_valve"]] == "CLOSED"
    for name, code in (("MAIN.nothing", 0x710), ("MAIN.gse.load[99]", 0x710)):
        with pytest.raises(pyads.ADSError) as error:
            client.read_by_name(name, pyads.PLCTYPE_REAL)
        assert error.value.err_code == code


def test_what_is_written_is_read_and_counted(plc: Plc, client: pyads.Connection) -> None:
    client.write_by_name("HMI.note", "chill", pyads.PLCTYPE_STRING)
    client.write_list_by_name({"HMI.rate": 2.5, "HMI.target": -7, "HMI.limits": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]})
    client.write_by_name("MAIN.lox.sp_01", 5.5, pyads.PLCTYPE_REAL)
    assert client.read_by_name("HMI.note", pyads.PLCTYPE_STRING) == "chill"
    assert client.read_list_by_name(["HMI.rate", "HMI.target"]) == {"HMI.rate": 2.5, "HMI.target": -7}
    assert client.read_by_name("HMI.limits", pyads.PLCTYPE_REAL * 8)[7] == 8.0
    assert client.read_by_name("MAIN.lox.sp_01", pyads.PLCTYPE_REAL) == 5.5
    client.close()
    report = plc.stop()
    requests = report["requests"]
    assert (requests["write"], requests["sum_write"], requests["write_control"]) == (2, 1, 0)
    assert requests["release_handle"] > 0
    assert (report["errors"], report["malformed"]) == (0, 0)


def test_notifications_come_every_cycle_and_on_change(client: pyads.Connection) -> None:
    fast: queue.Queue[tuple[int, int]] = queue.Queue()
    targets: queue.Queue[int] = queue.Queue()

    @client.notification(pyads.PLCTYPE_UDINT, timestamp_as_filetime=True)
    def on_cycle(_handle: int, _name: str, time: int, value: int) -> None:
        fast.put((time, value))

    @client.notification(pyads.PLCTYPE_DINT)
    def on_target(_handle: int, _name: str, _time: datetime.datetime, value: int) -> None:
        targets.put(value)

    every = pyads.NotificationAttrib(4, pyads.ADSTRANS_SERVERCYCLE, max_delay=20, cycle_time=1)
    changed = pyads.NotificationAttrib(4, pyads.ADSTRANS_SERVERONCHA, max_delay=0, cycle_time=1)
    cyclic = client.add_device_notification("FAST.cycle", every, on_cycle)
    target = client.add_device_notification("HMI.target", changed, on_target)
    samples = [fast.get(timeout=TIMEOUT_S) for _ in range(300)]
    for (time, cycle), (next_time, next_cycle) in itertools.pairwise(samples):
        assert (next_time - time, next_cycle - cycle) == (10_000, 1)
    # The library may have missed the first sample, which came before it knew of the notification: so do all clients.
    for value in (3, 4, 4, 9):
        client.write_by_name("HMI.target", value, pyads.PLCTYPE_DINT)
    seen = [targets.get(timeout=TIMEOUT_S)]
    while seen[-1] != 9:
        seen.append(targets.get(timeout=TIMEOUT_S))
    # Values written within one cycle are one change.
    assert seen == sorted(set(seen)) and set(seen) <= {0, 3, 4, 9}
    client.del_device_notification(*cyclic)
    client.del_device_notification(*target)


def test_reports_come_while_it_runs() -> None:
    plc = Plc("--plc-report-every", "50ms", "--plc-program-change-after", "10ms")
    assert plc.process.stdout is not None
    with pyads.Connection(NET_ID, pyads.PORT_TC3PLC1, plc.host) as client:
        client.read_state()
        for line in plc.process.stdout:
            report = json.loads(line)["plc"]
            if report["requests"]["read_state"] == 1 and report["symbol_version"] == 2:
                break
    last = plc.stop()
    assert last["cycles"] >= report["cycles"] > 0
    assert last["requests"]["write"] == 0
