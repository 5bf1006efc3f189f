"""`strongback doctor` says why data is missing, to people and to programs."""

from __future__ import annotations

import json
import socket
import subprocess

from strongback import BINARY, Server, eventually


def doctor(server: Server, *arguments: str) -> tuple[int, str]:
    """Exit code and standard output of a question."""
    command = [BINARY, "doctor", "--url", server.url, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout


def test_a_rejected_line_and_a_name_that_is_none(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.ilp_port)) as wire:
        wire.sendall(b"tank p=1.5\ntank q=oops\n")
        peer = "{}:{}".format(*wire.getsockname())
        eventually("the line to be rejected", lambda: server.get("/api/sources/ilp")["rejected"])
        code, text = doctor(server, "tank.q")
    assert code == 1
    assert text.startswith("tank.q, now: 2 findings in 0 streams\n")
    assert "1. not configured" in text and "tank.p" in text and "2. rejected" in text and peer in text
    assert all(len(line) <= 100 for line in text.splitlines()), text
    code, text = doctor(server, "tank.q", "--json")
    report = json.loads(text)
    assert (code, [f["cause"] for f in report["findings"]]) == (1, ["not_configured", "rejected"])
    assert doctor(server, "tank.p", "--at", "soon")[0] == 2
    server.stop()
    assert doctor(server)[0] == 2
