"""Fixtures of the end-to-end tests."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator

import pytest
import strongback

# So that their assertions show what differs.
pytest.register_assert_rewrite("driver_checks")


@pytest.fixture(scope="session", autouse=True)
def binary() -> str:
    """The binary under test, from the environment variable STRONGBACK."""
    if not os.access(strongback.BINARY, os.X_OK):
        pytest.exit(f"STRONGBACK={strongback.BINARY!r} is no program; run `make test`", returncode=1)
    return strongback.BINARY


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Iterator[strongback.Server]:
    """A fresh server on an empty folder. It must end with code 0 unless the test ended it."""
    running = strongback.Server(folder=tmp_path).start()
    yield running
    assert running.process is not None
    ended_before = running.process.poll() is not None
    code = running.stop()
    assert ended_before or code == 0, f"exit code {code}: {running.last_words()}"
