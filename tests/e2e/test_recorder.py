"""`strongback store`: the embedded recorder on the command line, with real definitions and a real vehicle's data."""

from __future__ import annotations

import csv
import json
import os
import pathlib
import signal
import subprocess

import pandas
import pytest
from strongback import BINARY, eventually

ROOT = pathlib.Path(__file__).parents[2]
VEHICLE = ROOT / "tests" / "data" / "vehicle"
EXAMPLES = ROOT / "examples"


def store(*arguments: str | pathlib.Path, code: int = 0, stdin: bytes = b"") -> str:
    """Runs `strongback store …`, which must end with `code`; what it says on both outputs."""
    command = [BINARY, "store", *map(str, arguments)]
    ran = subprocess.run(command, input=stdin, capture_output=True, timeout=120)
    said = ran.stdout.decode() + ran.stderr.decode()
    assert ran.returncode == code, f"exit code {ran.returncode}: {said}"
    return said


def rows(path: pathlib.Path, *arguments: str) -> list[list[str]]:
    """What `store read` writes as CSV with nanoseconds."""
    return list(csv.reader(store("read", path, "--time", "ns", *arguments).splitlines()))


SIZES = {"vehicle.rdl": 52_428_800, "car_snapshots.rdl": 204_800, "car_snapshots.toml": 204_800}


@pytest.fixture(params=["fixed", "folder"])
def vehicle(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> pathlib.Path:
    """A store of RealDB's benchmark definition with 11 s of a truck, of the size it says or in a folder."""
    path = tmp_path / "vehicle"
    folder = ["--folder"] if request.param == "folder" else []
    store("create", path, "--definition", EXAMPLES / "vehicle.rdl", *folder)
    assert path.is_dir() if folder else path.stat().st_size == SIZES["vehicle.rdl"]
    names = {
        "engine_rpm": "RPM.value",
        "fuel_rate_lph": "FuelRate.value",
        "accel_pedal_pct": "AccelPedalPosition.value",
        "battery_volts": "BatteryVolts.value",
        "inst_fuel_economy_kmpl": "FuelEcon.value",
        "vehicle_speed_kmh.00": "Speed.value",
    }
    maps = [word for pair in names.items() for word in ("--map", "=".join(pair))]
    said = store("append", path, VEHICLE / "decoded.csv", *maps)
    assert "1943 rows, 1687 frames stored" in said, said
    return path


def test_a_vehicle_is_recorded_and_read_back(vehicle: pathlib.Path) -> None:
    decoded = list(csv.DictReader((VEHICLE / "decoded.csv").open()))
    for channel, name in (("RPM.value", "engine_rpm"), ("Speed.value", "vehicle_speed_kmh.00")):
        header, *found = rows(vehicle, "--channels", channel)
        assert header == ["time_ns", channel]
        expected = [(row["unix_time_s"], float(row["value"])) for row in decoded if row["channel"] == name]
        assert len(found) == len(expected)
        for (time_ns, value), (time_s, wanted) in zip(found, expected):
            seconds, micros = time_s.split(".")
            assert int(time_ns) == int(seconds) * 10**9 + int(micros) * 1000
            assert float(value) == pytest.approx(wanted, rel=1e-6)
    whole = rows(vehicle)
    assert whole[0][:2] == ["time_ns", "stream"] and len(whole) == 1688
    assert [int(row[0]) for row in whole[1:]] == sorted(int(row[0]) for row in whole[1:])
    assert rows(vehicle, "--last", "3")[1:] == whole[-3:]
    assert rows(vehicle, "--first", "3")[1:] == whole[1:4]
    assert rows(vehicle, "--last", "3", "--newest-first")[1:] == whole[:-4:-1]
    at = whole[500][0]
    assert rows(vehicle, "--from", at)[1:] == [row for row in whole[1:] if int(row[0]) >= int(at)]
    assert rows(vehicle, "--to", at)[1:] == [row for row in whole[1:] if int(row[0]) < int(at)]


def test_what_is_read_can_be_appended_again(vehicle: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for form in ("csv", "jsonl"):
        text = store("read", vehicle, "--format", form)
        again = tmp_path / form
        store("create", again, "--definition", EXAMPLES / "vehicle.rdl")
        report = json.loads(store("append", again, "-", "--format", form, "--json", stdin=text.encode()))
        assert report["stored"] == 1687 and report["complaints"] == []
        assert store("read", again, "--format", form) == text


def test_stats_and_export(vehicle: pathlib.Path, tmp_path: pathlib.Path) -> None:
    decoded = pandas.read_csv(VEHICLE / "decoded.csv")
    rpm = decoded[decoded.channel == "engine_rpm"].value
    found = json.loads(store("stats", vehicle, "--json", "--channels", "RPM.*"))
    [channel] = found["channels"]
    assert (channel["channel"], channel["type"], channel["values"]) == ("RPM.value", "f32", str(len(rpm)))
    assert (channel["min"], channel["max"]) == (rpm.min(), rpm.max())
    assert channel["mean"] == pytest.approx(rpm.mean())
    assert "RPM.value" in store("stats", vehicle)
    out = tmp_path / "rpm.parquet"
    store("export", vehicle, "--channels", "RPM.*", "--format", "parquet", "--output", out)
    assert len(pandas.read_parquet(out)) == len(rpm)


def test_a_log_of_a_bus(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "truck"
    empty = tmp_path / "empty.rdl"
    empty.write_text("SET maxStreams = 10\n")
    store("create", path, "--definition", empty)
    dbc = VEHICLE / "CSS-Electronics-SAE-J1939-DEMO.dbc"
    report = json.loads(store("append", path, VEHICLE / "candump.log", "--dbc", dbc, "--json"))
    assert report["streams"] == {"CCVS1{bus=can0,source=0}": 112, "EEC1{bus=can0,source=0}": 1117}
    assert (report["rows"], report["ignored_rows"]) == (4000, 4000 - 112 - 1117)
    header, first, *_ = rows(path, "--channels", "EEC1.*")
    assert header == ["time_ns", "EEC1.EngineSpeed{bus=can0,source=0} [rpm]"]
    assert first == ["1635188455029900000", "649.0"]
    assert "needs --dbc" in store("append", path, VEHICLE / "candump.log", code=1)


def test_both_languages_make_the_same_store(tmp_path: pathlib.Path) -> None:
    catalogs = []
    for name in ("car_snapshots.rdl", "car_snapshots.toml"):
        path = tmp_path / name
        store("create", path, "--definition", EXAMPLES / name)
        assert path.stat().st_size == SIZES[name]
        row = b"time_ns,stream,rpm,speed,passengers,driving\n1,CarSnapshots,900,5,2,true\n"
        store("append", path, "-", "--format", "csv", stdin=row)
        catalogs.append([line.split("  ")[0] for line in store("stats", path).splitlines()[:-1]])
        assert rows(path, "--channels", "CarSnapshots.*")[1] == ["1", "900.0", "5.0", "2", "true"]
    assert catalogs[0] == catalogs[1]


def test_codecs_keep_what_leaves_its_band(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "car"
    store("create", path, "--definition", EXAMPLES / "car_snapshots.rdl")
    elements = ("rpm", "speed", "passengers", "driving")
    lines = [",".join(["time_s", *(f"CarSnapshots.{element}" for element in elements)])]
    speed, offered = "0", []
    for row in csv.DictReader((VEHICLE / "decoded.csv").open()):
        if row["channel"] == "vehicle_speed_kmh.00":
            speed = row["value"]
        if row["channel"] == "engine_rpm":
            offered.append((row["unix_time_s"], float(row["value"])))
            lines.append(f"{row['unix_time_s']},{row['value']},{speed},2,true")
    report = json.loads(store("append", path, "-", "--format", "csv", "--json", stdin="\n".join(lines).encode()))
    assert report["stored"] + report["reduced"] == len(offered) == 1117
    assert 0 < report["stored"] < 300, report
    text = store("read", path, "--channels", "*.rpm", "--intervals", "--time", "ns")
    pieces = list(csv.DictReader(text.splitlines()))
    at = 0
    for time_s, value in offered:
        seconds, micros = time_s.split(".")
        time_ns = int(seconds) * 10**9 + int(micros) * 1000
        while int(pieces[at]["end_ns"]) <= time_ns:
            at += 1
        assert int(pieces[at]["start_ns"]) <= time_ns
        assert abs(float(pieces[at]["value"]) - value) <= 50


def test_a_fixed_size_stays_and_keeps_the_newest(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "car"
    store("create", path, "--definition", EXAMPLES / "car_snapshots.rdl")
    rows_in = 300_000
    # Of what a multiplication leaves nothing is to be saved: 4 bytes a value and a time, ten times the size.
    lines = (b"%d,%d.%d\n" % (i * 1000 + i * i % 997, i * 7919 % 100_003, i % 10) for i in range(rows_in))
    table = b"time_us,Test.value\n" + b"".join(lines)
    report = json.loads(store("append", path, "-", "--format", "csv", "--json", stdin=table))
    assert report["stored"] == rows_in
    assert path.stat().st_size == SIZES["car_snapshots.rdl"]
    store("verify", path)
    times = [int(row[0]) for row in rows(path, "--channels", "Test.*")[1:]]
    newest = [(i * 1000 + i * i % 997) * 1000 for i in range(rows_in - len(times), rows_in)]
    assert len(times) > 1000 and times == newest, "the newest, without a gap"


def test_what_is_wrong_is_told_with_its_place(tmp_path: pathlib.Path) -> None:
    definition = tmp_path / "bad.rdl"
    definition.write_text("SET maxStreams = 1\nCREATE STREAM A WITH ID 1 {\n  v flaot\n}\n")
    path = tmp_path / "store"
    said = store("create", path, "--definition", definition, code=2)
    assert f"{definition}:3:5: found \"flaot\"" in said and "did you mean float?" in said, said
    assert not path.exists()
    definition.write_text("CREATE STREAM A WITH ID 1 { v float, n uint8 NULL }\n")
    store("create", path, "--definition", definition)
    assert "already exists" in store("create", path, "--definition", definition, code=1)
    table = tmp_path / "rows.csv"
    table.write_text("time_ms,A.v,A.n\n1,1.5,1\n2,two,2\n3,3.5,999\nfour,4.5,4\n5,,5\n6,6.5,\n")
    said = store("append", path, table, code=3)
    assert "6 rows, 3 frames stored with 4 values" in said, said
    for complaint in (
        f"{table}:3:3: v: \"two\" is not a valid f32",
        f"{table}:4:7: n: \"999\" is not a valid u8",
        f"{table}:5:1: \"four\" is not a time",
        f"{table}:6:4: v of stream A has no value, and is not NULL in its definition",
    ):
        assert complaint in said, said
    assert [row[1:] for row in rows(path)[1:]] == [["1.5", "1"], ["3.5", ""], ["6.5", ""]]
    assert "no channel matches B.*" in store("read", path, "--channels", "B.*", code=1)
    assert "there is no store" in store("read", tmp_path / "nothing", code=1)
    table.write_text("when,A.v\n1,1.5\n")
    assert "--time-column" in store("append", path, table, code=1)
    store("append", path, table, "--time-column", "when", "--time-unit", "s")
    assert rows(path, "--last", "1")[1][0] == "1000000000"


def test_ctrl_c_keeps_what_was_read(vehicle: pathlib.Path) -> None:
    command = [BINARY, "store", "append", str(vehicle), "-", "--format", "csv", "--json", "--time-unit", "us"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    lines = [b"time,RPM.value\n"] + [b"%d,%d\n" % (i, i) for i in range(1, 50_001)]
    process.stdin.write(b"".join(lines))
    process.stdin.flush()
    # A second store process cannot open it: the first one has taken it, and reads.
    reading = [BINARY, "store", "stats", str(vehicle)]
    eventually("the store is in use", lambda: subprocess.run(reading, capture_output=True).returncode == 1)
    process.send_signal(signal.SIGINT)
    out = process.stdout.read() if process.stdout else b""
    assert process.wait(timeout=60) == 130
    process.stdin.close()
    report = json.loads(out)
    assert report["stopped"] is True
    found = rows(vehicle, "--channels", "RPM.*", "--to", "1000000000")
    assert len(found) - 1 == report["stored"] == report["lines"] - 1


def test_inspect_draws_and_verify_and_repair_mend(vehicle: pathlib.Path) -> None:
    superblock = vehicle / "superblock" if vehicle.is_dir() else vehicle
    # Behind the two first pages of a fixed size, in a folder a file of its own; the second copy of it.
    at = 4096 if vehicle.is_dir() else 3 * 4096
    drawn = store("inspect", vehicle)
    picture = drawn[drawn.index("space, ") :].splitlines()
    assert all(len(line) <= 80 for line in picture) and "\x1b" not in drawn, drawn
    assert "1117" in drawn and "no damage found" in drawn
    found = json.loads(store("inspect", vehicle, "--json"))
    assert found["damage"] == [] and found["log"]["clean"] is True
    assert "1117" in [stream["rows"] for stream in found["streams"]]
    assert "nothing to repair" in store("repair", vehicle)
    # One copy of the superblock is spoilt.
    before = store("read", vehicle)
    with superblock.open("r+b") as file:
        file.seek(at + 24)
        file.write(b"\xa5" * 8)
    said = store("repair", vehicle, code=1)
    assert "found    superblock, offset 4096" in said and "--yes" in said, said
    assert "superblock" in store("verify", vehicle, code=3)
    said = store("repair", vehicle, "--yes")
    assert "mended   superblock, offset 4096" in said, said
    store("verify", vehicle)
    assert store("read", vehicle) == before


def test_a_killed_append_is_mended_by_repair(vehicle: pathlib.Path) -> None:
    command = [BINARY, "store", "append", str(vehicle), "-", "--format", "csv", "--time-unit", "us"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert process.stdin is not None
    process.stdin.write(b"time,RPM.value\n" + b"".join(b"%d,%d\n" % (i, i) for i in range(1, 50_001)))
    process.stdin.flush()
    used = lambda: json.loads(store("inspect", vehicle, "--json"))["log"]
    eventually("a commit", lambda: int(used()["used_bytes"]) > 100_000)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdin.close()
    said = store("repair", vehicle, "--yes")
    assert "mended   log: not ended cleanly" in said and "frames taken back from the log" in said, said
    found = rows(vehicle, "--channels", "RPM.*", "--to", "1000000000")
    times = [int(row[0]) for row in found[1:]]
    assert times and times == [1000 * i for i in range(1, len(times) + 1)], "no gap, nothing twice"


def test_help_has_examples() -> None:
    for command in ("create", "append", "read"):
        assert "strongback store " + command in store(command, "--help")


def test_blobs_go_in_and_come_out(tmp_path: pathlib.Path) -> None:
    path, image = tmp_path / "rig", tmp_path / "shot.raw"
    store("create", path, "--folder")
    contents = [os.urandom(size) for size in (3_000_000, 0, 131_008)]
    for second, content in enumerate(contents):
        image.write_bytes(content)
        said = store("blob", path, "CAM", "image", "--put", image, "--at", f"2026-11-20T17:00:0{second}Z")
        assert f"CAM.image row {second}: blob({len(content)} bytes, " in said, said
    header, *frames = rows(path)
    assert header[-1] == "CAM.image"
    names = [frame[-1] for frame in frames]
    assert [name.split(",")[0] for name in names] == ["blob(3000000 bytes", "blob(0 bytes", "blob(131008 bytes"]
    lines = [json.loads(line) for line in store("read", path, "--format", "jsonl").splitlines()[1:]]
    assert [line["values"]["CAM.image"] for line in lines] == names
    assert names[0] in store("export", path, "--format", "jsonl")
    out = tmp_path / "out.raw"
    for row, content in enumerate(contents):
        store("blob", path, "CAM", "image", "--row", str(row), "--output", out)
        assert out.read_bytes() == content
    store("blob", path, "CAM", "image", "--at", "2026-11-20T17:00:00.5Z", "--output", out)
    assert out.read_bytes() == contents[0]
    store("blob", path, "CAM", "image", "--output", out)
    assert out.read_bytes() == contents[2]
    for wrong, words in (
        (("CAM", "image", "--row", "3"), "no row 3"),
        (("CAM", "picture"), "no channel picture"),
        (("OTHER", "image"), "no stream of this name"),
        (("CAM", "image", "--at", "2026-11-20T16:00:00Z"), "no blob at this time or before"),
    ):
        assert words in store("blob", path, *wrong, code=1)
    assert "no damage found" in store("verify", path)
    assert "blobs    3, 3.0 MiB of them" in store("inspect", path)
    # A bit of the first one.
    [segment] = [file for file in path.glob("segment-*.sbs") if file.read_bytes()[8] == 1]
    damaged = bytearray(segment.read_bytes())
    damaged[4096 + 64 + 200_000] ^= 1
    segment.write_bytes(damaged)
    assert "checksum" in store("blob", path, "CAM", "image", "--row", "0", "--output", out, code=3)
    assert contents[0].startswith(out.read_bytes()) and out.stat().st_size >= 131_008
    assert "checksum" in store("verify", path, code=3)
    store("blob", path, "CAM", "image", "--row", "2", "--output", out)
    assert out.read_bytes() == contents[2]
