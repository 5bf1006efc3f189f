"""The clock of a run through the real binary: set on the command line, kept over kill -9, read over REST and SQL."""

from __future__ import annotations

import pathlib
import subprocess
from typing import Any

from strongback import BINARY, Server, eventually

SECOND = 1_000_000_000


def run(*arguments: str, server: Server, code: int = 0) -> str:
    """Runs `strongback run …` against a server; what it says."""
    command = [BINARY, "run", *arguments, "--server", f"127.0.0.1:{server.http_port}"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.returncode == code, f"exit code {ran.returncode}: {ran.stdout}{ran.stderr}"
    return ran.stdout + ran.stderr


def clock(*, server: Server, name: str, at: int | None = None) -> dict[str, Any]:
    """The clock of a run, now or at an instant."""
    runs = server.get("/api/runs" + (f"?at={at}" if at is not None else ""))["runs"]
    [card] = [card for card in runs if card["name"] == name]
    return card["clock"]


def test_a_countdown_is_held_and_goes_on_after_kill_9(server: Server) -> None:
    assert "begins" in run("start", "attempt 2", "--channels", "engine.*", "--channels", "plc.*{acu=1}", server=server)
    assert "no T-0 yet" in run("hold", "attempt 2", server=server, code=1)
    run("t0", "attempt 2", "--at", "now+10m", server=server)
    t0 = int(clock(server=server, name="attempt 2")["t0"])
    assert clock(server=server, name="attempt 2", at=t0 - 42 * SECOND)["t"] == str(-42 * SECOND)
    said = run("hold", "attempt 2", server=server)
    assert "hold at T-00:0" in said, said
    held = clock(server=server, name="attempt 2")
    [[begin, end]] = held["holds"]
    assert (held["state"], end) == ("held", None)
    standing = int(begin) - t0
    assert held["t"] == str(standing)
    # Acknowledged is on the disk: nothing more is waited for.
    server.kill()
    server.start()
    assert clock(server=server, name="attempt 2")["t"] == str(standing), "the clock stood all the while"
    assert server.get("/api/view")["run"]["held_t"] == str(standing)
    run("resume", "attempt 2", server=server)
    server.kill()
    server.start()
    after = clock(server=server, name="attempt 2")
    [[begin, end]] = after["holds"]
    moved = t0 + int(end) - int(begin)
    assert (after["state"], after["t0_now"]) == ("counting", str(moved))
    assert clock(server=server, name="attempt 2", at=moved + 5 * SECOND)["t"] == str(5 * SECOND)
    assert server.get("/api/view")["run"]["t0"] == str(moved)
    assert after["channels"] == ["engine.*", "plc.*{acu=1}"]
    run("stop", "attempt 2", server=server)
    assert "already stopped" in run("resume", "attempt 2", server=server, code=1)
    assert server.sql("select t0_now_ns, t0_now is null from strongback.runs") == [(moved, False)]
    [row] = server.sql("select name, state, t0_ns, t_ns, started_ns < stopped_ns, channels from strongback.runs")
    stopped = clock(server=server, name="attempt 2")
    assert row == ("attempt 2", "stopped", t0, int(stopped["t"]), True, "engine.*,plc.*{acu=1}")
    assert int(stopped["t"]) == int(stopped["stopped"]) - moved
    listed = run("list", server=server)
    assert "stopped" in listed and "attempt 2" in listed
    told = eventually(
        "the steps as events",
        lambda: [e["text"] for e in server.get("/api/events")["events"] if e["source"] == "run" and "ends" in e["text"]],
    )
    assert len(told) == 1


def test_a_clock_is_set_without_a_server(tmp_path: pathlib.Path) -> None:
    server = Server(folder=tmp_path).start()
    assert server.stop() == 0
    for arguments in (["start", "night"], ["t0", "night", "--at", "2030-01-01T00:00:00Z"]):
        command = [BINARY, "run", *arguments, "--data", str(tmp_path / "store")]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    server.start()
    try:
        view = server.get("/api/view")
        assert (view["run"]["name"], view["run"]["t0"]) == ("night", str(1_893_456_000 * SECOND))
    finally:
        assert server.stop() == 0
