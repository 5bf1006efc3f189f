"""Runs the drivers in other languages: the programs of tests/drivers, with what scripts/setup-test.sh installed."""

from __future__ import annotations

import hashlib
import json
import pathlib
import shutil
import subprocess
from typing import Any

import drivers
import pytest
import strongback
from strongback import Server

TIMEOUT_S = 120


def content(folder: str, *patterns: str) -> str:
    """Returns the part of a name by which the setup tells versions apart: a hash of files of tests/drivers."""
    digest = hashlib.sha256()
    for pattern in patterns:
        for path in sorted((drivers.PROGRAMS / folder).glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def answers(server: Server, command: list[str | pathlib.Path]) -> dict[str, Any]:
    """Returns what a program answers to the questions."""
    asked = json.dumps(drivers.questions(server))
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, f"{command[0]}: {done.stderr[-3000:]}"
    return json.loads(done.stdout)


def installed(name: str, *commands: str) -> pathlib.Path:
    """Returns what the setup put into the cache folder, or skips the test if a command that it needs is missing."""
    place = strongback.CACHE / name
    missing = [command for command in commands if shutil.which(command) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed")
    assert place.exists(), f"{place} is missing; run scripts/setup-test.sh"
    return place
