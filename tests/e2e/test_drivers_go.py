"""Drivers of Go read what was written: pgx, lib/pq, and ADBC for Flight SQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import driver_programs
import drivers
import pytest
from driver_checks import FLIGHT_TYPES, Answers
from driver_matrix import CLIENTS
from strongback import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the tables that drivers are asked about."""
    running = drivers.serve(tmp_path_factory.mktemp("go"))
    yield running
    assert running.stop() == 0, running.last_words()


@pytest.fixture(scope="module")
def answers(server: Server) -> dict[str, dict[str, Any]]:
    """The answers of each driver."""
    version = driver_programs.content("go", "go.mod", "go.sum", "*.go")
    program = driver_programs.installed(f"drivers-go-{version}", "go")
    return {name: driver_programs.answers(server, [program, name]) for name in ("pgx", "pq", "adbc")}


@pytest.mark.parametrize("feature", CLIENTS["pgx"].cells())
def test_pgx(answers: dict[str, Any], feature: str) -> None:
    found = Answers(answers["pgx"])
    match feature:
        case "transactions":
            assert found.value(feature) == ["TI", "TI", "TI", "42P01", "E", "25P02", "T", "I"]
        case "reset":
            before, pid, after, same = found.value(feature)
            assert (before, after, same) == ("mine", "", pid)
        case "metadata":
            assert found.value(feature) == ["_float8 1022", "text[] 1009", "_timestamptz 1185"]
        case _:
            found.check(feature)
    if feature == "prepared":
        assert found.value(feature)["parameters"] == [20]
        assert found.value(feature)["batched"] == len(drivers.PREPARED_VALUES)


@pytest.mark.parametrize("feature", CLIENTS["pq"].cells())
def test_pq(answers: dict[str, Any], feature: str) -> None:
    found = Answers(answers["pq"], type_names=str.upper)
    match feature:
        case "transactions":
            assert found.value(feature) == ["committed", "committed", "42P01", "25P02", "rolled back"]
        case "reset":
            assert found.value(feature) == ["mine", ""]
        case _:
            found.check(feature)


@pytest.mark.parametrize("feature", CLIENTS["adbc"].cells())
def test_adbc(answers: dict[str, Any], feature: str) -> None:
    found = Answers(answers["adbc"], type_names=FLIGHT_TYPES.get)
    if feature != "metadata":
        found.check(feature)
        return
    value = found.value(feature)
    columns = dict(value["columns"])
    assert columns["time"] == "timestamp[us, tz=+00:00]"
    assert columns["p"] == "float64"
    assert columns["big"] == "decimal(20, 0)"
    assert '"table_name":"engine"' in value["objects"][0]
    assert '"column_name":"stand"' in value["objects"][0]
