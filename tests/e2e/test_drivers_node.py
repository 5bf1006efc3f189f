"""The driver of Node reads what was written: node-postgres, with pg-cursor, pg-query-stream and pg-copy-streams."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import driver_programs
import drivers
import pytest
from driver_checks import Answers
from driver_matrix import CLIENTS
from strongback import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the tables that drivers are asked about."""
    running = drivers.serve(tmp_path_factory.mktemp("node"))
    yield running
    assert running.stop() == 0, running.last_words()


@pytest.fixture(scope="module")
def answers(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The answers of the driver."""
    version = driver_programs.content("node", "package.json", "package-lock.json")
    modules = driver_programs.installed(f"drivers-node-{version}", "node", "npm")
    # Modules are looked for beside the program.
    folder = tmp_path_factory.mktemp("program")
    for name in ("main.js", "package.json"):
        shutil.copy(drivers.PROGRAMS / "node" / name, folder)
    (folder / "node_modules").symlink_to(modules / "node_modules")
    return driver_programs.answers(server, ["node", folder / "main.js"])


@pytest.mark.parametrize("feature", CLIENTS["node"].cells())
def test_node(answers: dict[str, Any], feature: str) -> None:
    found = Answers(answers, type_names=lambda kind: None if kind.startswith("_") else kind.upper())
    match feature:
        case "transactions":
            assert found.value(feature) == ["COMMIT", "COMMIT", "42P01", "25P02", "ROLLBACK"]
        case "reset":
            before, pid, after, same = found.value(feature)
            assert (before, after, same) == ("mine", "", pid)
        case _:
            found.check(feature)
    if feature == "prepared":
        assert found.value(feature)["listed"] == 1
