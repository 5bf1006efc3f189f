"""The demo ends by itself, says what it did, and its numbers agree with each other."""

from __future__ import annotations

import json
import pathlib
import subprocess

from strongback import BINARY, free_ports

KEYS = {
    "frames_in",
    "points_in",
    "points_stored",
    "points_duplicate",
    "points_rejected",
    "missing_found",
    "missing_made",
    "bytes_per_point",
    "latency_ms",
    "rss_mb_max",
    "cpu_s",
}


def test_demo_ends_with_a_summary(tmp_path: pathlib.Path) -> None:
    http, ilp, pg = free_ports(count=3)
    command = [BINARY, "demo", "--duration", "8s", "--headless", "--json", "--data", str(tmp_path / "store")]
    command += ["--http", f"127.0.0.1:{http}", "--ilp", f"127.0.0.1:{ilp}", "--pg", f"127.0.0.1:{pg}", "--flight", "off"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr[-3000:]
    summary = json.loads(ran.stdout.splitlines()[-1])
    assert KEYS <= summary.keys(), KEYS - summary.keys()
    assert {"p50", "p99", "max"} <= summary["latency_ms"].keys()
    number = {key: int(summary[key]) for key in KEYS - {"bytes_per_point", "latency_ms", "rss_mb_max", "cpu_s"}}
    assert number["points_in"] > 50_000
    assert number["points_stored"] + number["points_duplicate"] + number["points_rejected"] == number["points_in"]
    assert number["missing_found"] == number["missing_made"]
