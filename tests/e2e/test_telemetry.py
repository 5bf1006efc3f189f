"""The SQL functions for telemetry return what a naive model returns, over random data in memory and in blocks."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import random

import pytest
import telemetry_data as data
import telemetry_model as model
from strongback import Server
from telemetry_calls import Call, Calls, World, imported_world, send, start_runs
from telemetry_compare import difference
from telemetry_model import Near, Row

SECOND, MS = data.SECOND, data.MS
FIRST_SEED = int(os.environ.get("STRONGBACK_TELEMETRY_SEED", "1"))
SEEDS = int(os.environ.get("STRONGBACK_TELEMETRY_SEEDS", "2"))
CALLS = int(os.environ.get("STRONGBACK_TELEMETRY_CALLS", "8"))
"""Calls of each function, in each of the three states of the data."""


def run(world: World, call: Call) -> tuple[list[str], list[Row]]:
    """Runs a call; the names of its columns and its rows."""
    with world.server.connect() as connection, connection.cursor(binary=True) as cursor:
        cursor.execute(call.sql, call.parameters or None)
        names = [column.name for column in cursor.description or []]
        return names, [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def wrong_rows(call: Call, names: list[str], got: list[Row]) -> str:
    """Returns the first difference between the rows of a call and those of the model, or nothing."""
    return difference(call.function, names, got, call.expected, call.chosen)


def compare(world: World, rng: random.Random, *, seed: int, state: str, functions: list[str], calls: int) -> None:
    """Compares random calls of functions with the model."""
    world.check()
    world.look()
    make = Calls(world, rng)
    for function in functions:
        for _ in range(calls * TIMES.get(function, 1)):
            call = getattr(make, function)()
            call.vary(rng)
            names, got = run(world, call)
            if wrong := wrong_rows(call, names, got):
                raise AssertionError(f"seed {seed}, {state}: {call.sql} {call.parameters}\n{wrong}")


FUNCTIONS = ["samples", "resample", "resample_runs", "asof", "summary", "states", "intervals", "crossings", "histogram"]
FUNCTIONS += ["correlation", "spectrum"]
TIMES = {"resample": 4, "summary": 2}
"""How many times as often functions of several methods or columns are called."""


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_functions_return_what_a_model_returns(tmp_path: pathlib.Path, seed: int) -> None:
    rng = random.Random(seed)
    world = imported_world(tmp_path, rng)
    world.server.start()
    try:
        start_runs(world.server)
        send(world, rng, start=data.BEGIN)
        compare(world, rng, seed=seed, state="in memory", functions=FUNCTIONS, calls=CALLS)
        assert world.server.stop() == 0
        world.server.start()
        send(world, rng, start=data.BEGIN + SECOND)
        compare(world, rng, seed=seed, state="in blocks and in memory", functions=FUNCTIONS, calls=CALLS)
        assert world.server.stop() == 0
        world.server.start()
        compare(world, rng, seed=seed, state="in blocks", functions=FUNCTIONS, calls=CALLS)
    finally:
        assert world.server.stop() == 0


TICK = 2**20
"""Distance of samples for which points on lines, and all sums, are exact."""


def test_sums_of_eighths_are_exact(server: Server) -> None:
    rng = random.Random(FIRST_SEED)
    stream = data.Stream("ruler", {}, {"line": "f64", "steps": "i64"}, frozenset({"line", "steps"}))
    start = data.BEGIN // TICK * TICK
    for n in range(300):
        stream.add(
            data.Frame(start + n * TICK, {"line": rng.randrange(-4_000, 4_001) / 8, "steps": rng.randrange(-9, 10)})
        )
    world = World(server, [stream], 0)
    data.send_lines(server, [stream])
    for _ in range(2):
        world.look()
        for channel in world.channels:
            for _ in range(CALLS):
                unit = 2 ** rng.randrange(13, 23)
                begin = start + rng.randrange(-2 * TICK, 280 * TICK) // unit * unit
                end = begin + rng.randrange(1, 100) * unit
                step = rng.randrange(1, 12) * unit
                method = rng.choice(["linear", "mean", "time_mean", "integral"])
                for call in (
                    Call(
                        "resample",
                        [f"'{channel.name}'", f"{begin}", f"{end}", f"{step}", f"'{method}'"],
                        [],
                        model.resample([channel], begin, end, step, method),
                    ),
                    Call(
                        "summary",
                        [f"'{channel.name}'", f"{begin}", f"{end}", f"{step}"],
                        [],
                        model.summary([channel], begin, end, step),
                    ),
                ):
                    call.expected = [
                        {
                            k: dataclasses.replace(v, is_strict=True) if isinstance(v, Near) else v
                            for k, v in row.items()
                        }
                        for row in call.expected
                    ]
                    names, got = run(world, call)
                    assert not (wrong := wrong_rows(call, names, got)), f"{call.sql}: {wrong}"
        assert server.stop() == 0
        server.start()


def test_long_streams(server: Server) -> None:
    """Blocks with thousands of rows, whose statistics answer where steps do not divide them."""
    rng = random.Random(FIRST_SEED)
    kinds = {"f": "f64", "n": "i64", "state": "i64", "s": "string"}
    stream = data.Stream("long", {}, kinds, frozenset({"f", "n"}))
    world = World(server, [stream], 0)
    for part in range(2):
        at = data.BEGIN + part * 3 * SECOND
        for n in range(1_200):
            at += rng.choice([0, 1, 2, 2, 2]) * MS
            late = rng.randrange(1, 500) * MS if rng.random() < 0.02 else 0
            values: dict[str, model.Value] = {"f": rng.randrange(-8_000, 8_001) / 8, "n": rng.randrange(1_000)}
            values |= {"state": n // 100 % 3, "s": "on"} if rng.random() < 0.3 else {}
            stream.add(data.Frame(at - late, values))
        data.send_lines(server, [stream])
        for _ in range(2):
            world.look()
            make = Calls(world, rng)
            for channel in world.channels:
                arguments = [f"'{channel.name}'", f"{make.instant([channel])}", f"{make.last + SECOND}"]
                start, end = int(arguments[1]), int(arguments[2])
                step = (end - start) // rng.randrange(2, 12)
                calls = [Call("states", arguments, [], model.states([channel], start, end))]
                calls.append(Call("samples", arguments, [], model.samples([channel], start, end)))
                if channel.is_number:
                    calls.append(Call("summary", arguments, [], model.summary([channel], start, end)))
                    calls.append(
                        Call("summary", [*arguments, f"{step}"], [], model.summary([channel], start, end, step))
                    )
                    calls.append(Call("histogram", [*arguments, "16"], [], model.histogram([channel], start, end, 16)))
                    calls.append(
                        Call(
                            "crossings",
                            [arguments[0], "1", *arguments[1:]],
                            [],
                            model.crossings([channel], 1, start, end),
                        )
                    )
                for method in model.METHODS:
                    if channel.is_number or method not in model.CALCULATES:
                        expected = model.resample([channel], start, end, step, method)
                        calls.append(Call("resample", [*arguments, f"{step}", f"'{method}'"], [], expected))
                for call in calls:
                    names, got = run(world, call)
                    assert not (wrong := wrong_rows(call, names, got)), f"{call.sql}: {wrong}"
            assert server.stop() == 0
            server.start()


LOOK_BACK = {
    """delta("t.x") > 0""": [(1, 2), (3, 4), (6, 9)],
    """rate("t.x") >= 3""": [(3, 4), (6, 7)],
    """hysteresis("t.x", 2, 4)""": [(3, 5), (6, 9)],
    """moving_max("t.x", '1500ms') >= 5""": [(3, 5), (6, 9)],
    """moving_average("t.x", '1500ms') < 3""": [(0, 3), (5, 6)],
    """asof("u.y", '1500ms') > 0 and "t.x" > 0""": [(2, 4)],
    """"t.x" > 2 and asof("u.y", '10s') = 1""": [(3, 5), (6, 9)],
}
"""Conditions, and the spans in seconds in which they hold."""


@pytest.mark.parametrize("condition", LOOK_BACK)
def test_conditions_look_back(server: Server, condition: str) -> None:
    samples = enumerate([1, 3, 2, 5, 4, 1, 8, 9])
    lines = [f"t x={value} {data.BEGIN + at * SECOND}" for at, value in samples]
    lines.append(f"u y=1 {data.BEGIN + 2 * SECOND}")
    assert server.write("\n".join(lines)) == (204, None)
    for start in (-5, 0):
        rows = server.sql(
            "select from_time_ns, to_time_ns, open from intervals(%s, %s, %s)",
            condition,
            data.BEGIN + start * SECOND,
            data.BEGIN + 9 * SECOND,
        )
        spans = [((begin - data.BEGIN) / SECOND, (end - data.BEGIN) / SECOND) for begin, end, _ in rows]
        assert spans == LOOK_BACK[condition]
        assert [is_open for *_, is_open in rows] == [end == 9 for _, end in spans]
