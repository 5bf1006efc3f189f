"""The commands of README.md and of `--help`, word for word, beside `strongback serve --data ./telemetry`."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator

import pytest
from strongback import BINARY, eventually

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Where a server listens when nobody says where.
PORTS = (8080, 9009, 5433, 5434)
# What needs a PLC, a file that is not in the repository, a screen, or another program; `serve` is what they run beside.
ELSEWHERE = ("make ", "strongback serve", "strongback demo", "strongback simulate", "strongback sources", "python3 ", "git ")


def is_free(port: int) -> bool:
    """Whether nobody listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.fixture
def shell(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A folder with what the repository has, where the server of README.md runs."""
    if not all(is_free(port) for port in PORTS):
        pytest.skip("somebody listens where the server would")
    for name in ("examples", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "strongback").symlink_to(BINARY)
    server = subprocess.Popen([BINARY, "serve", "--data", "./telemetry"], cwd=tmp_path, stderr=subprocess.PIPE)
    try:
        eventually("the server", lambda: not any(is_free(port) for port in PORTS))
        yield tmp_path
    finally:
        server.send_signal(signal.SIGTERM)
        _, said = server.communicate(timeout=60)
    assert server.returncode == 0, said.decode()


def run(command: str, *, folder: pathlib.Path) -> None:
    """Runs a line as a reader would; a doctor may find something."""
    environment = os.environ | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    ran = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    allowed = (0, 3) if "doctor" in command else (0,)
    assert ran.returncode in allowed, f"{command}\nexit code {ran.returncode}\n{ran.stdout}{ran.stderr}"


def is_here(command: str) -> bool:
    """Whether a line can be run here as it stands."""
    words = command.split()
    has_program = bool(words) and (words[0] == "strongback" or shutil.which(words[0]) is not None)
    is_whole = re.search(r"\b(FILE|NAME|ADDR|DIR|CHANNEL|TIME)\b", command) is None and len(words) > 2
    return has_program and is_whole and not command.startswith(ELSEWHERE) and words[0] in ("strongback", "curl", "psql")


def commands_of(document: str) -> list[str]:
    """The lines of its shell blocks and the commands within its sentences, in the order of a reader."""
    found = []
    for block, inline in re.findall(r"```sh\n(.*?)```|`(strongback [^`]+)`", document, flags=re.DOTALL):
        found += [line.strip() for line in (block or inline).splitlines()]
    return [re.sub(r"\s+#.*$", "", line) for line in found]


def test_the_commands_of_the_readme_work_as_they_stand(shell: pathlib.Path) -> None:
    commands = [command for command in commands_of((ROOT / "README.md").read_text()) if is_here(command)]
    assert len(commands) > 15, commands
    for command in commands:
        if command == "psql -h 127.0.0.1 -p 5433 -d strongback":
            command += " -c 'select time, stand, p_lox from engine order by time desc limit 5'"
        if "api/live" in command:
            command = f"timeout 5 {command} | head -c 1"
        run(command, folder=shell)
    assert "41.7" in (shell / "engine.csv").read_text()


def test_the_examples_of_help_work_as_they_stand(shell: pathlib.Path) -> None:
    tried = 0
    for words in ("--help", "run --help", "derived --help"):
        shown = subprocess.run([BINARY, *words.split()], capture_output=True, text=True, check=True).stdout
        for line in re.findall(r"^  ((?:strongback|curl|psql) .*)$", shown, flags=re.MULTILINE):
            command = re.split(r"\s{3,}", line)[0]
            if is_here(command):
                run(command, folder=shell)
                tried += 1
    assert tried >= 9, tried
