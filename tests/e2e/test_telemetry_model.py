"""The model of the SQL functions for telemetry itself, on small cases that are calculated by hand."""

from __future__ import annotations

import math

import numpy
import pytest
import telemetry_model as model
from telemetry_model import Channel, Equal, Near, Run, Sample

NAN, INF = math.nan, math.inf
S = model.SECOND


def channel(*values: tuple[int, object], kind: str = "i64", gaps: tuple[int, ...] = (), name: str = "t.x") -> Channel:
    """Returns a channel whose samples have these times and values, in rows of their order."""
    samples = [Sample(time, row, value) for row, (time, value) in enumerate(values)]  # type: ignore[arg-type]
    return Channel(name, kind, kind in ("f32", "f64"), 0, 0, samples, frozenset(gaps))


def exact(value: object) -> object:
    """Returns the exact value of a result of arithmetic."""
    if isinstance(value, Near):
        return float(value.exact)
    return value.value if isinstance(value, Equal) else value


def column(rows: list[model.Row], name: str = "t.x") -> list[object]:
    """Returns the values of a column."""
    return [exact(row[name]) for row in rows]


# Frames are missing after the sample at 20.
HELD = channel((10, 1), (20, 2), (20, 3), (30, 4), gaps=(2,))
LINE = channel((10, 1.0), (20, 2.0), (20, 4.0), (30, 6.0), (40, NAN), (50, 8.0), kind="f64")


@pytest.mark.parametrize(
    ("at", "tolerance", "value"),
    [
        (9, None, None),
        (10, None, 1),
        (19, None, 1),
        (19, 9, 1),
        (19, 8, None),
        (20, None, 3),
        (21, None, None),
        (29, None, None),
        (30, 0, 4),
        (1_000, None, 4),
        (1_000, 970, 4),
        (1_000, 969, None),
    ],
)
def test_a_value_at_an_instant(at: int, tolerance: int | None, value: int | None) -> None:
    assert model.value_at(HELD, at, tolerance) == value


def test_a_point_on_a_line() -> None:
    points = {at: exact(model.linear_at(LINE, at)) for at in (9, 10, 15, 20, 25, 30, 31, 45, 50, 51)}
    assert points.pop(31) is None
    assert points == {9: None, 10: 1.0, 15: 1.5, 20: 4.0, 25: 5.0, 30: 6.0, 45: None, 50: 8.0, 51: None}
    assert math.isnan(model.linear_at(LINE, 40))  # type: ignore[arg-type]
    assert exact(model.linear_at(LINE, 15, 10)) == 1.5
    assert model.linear_at(LINE, 15, 9) is None
    assert model.linear_at(channel((0, 1.0), (10, 2.0), kind="f64", gaps=(0,)), 5) is None


def test_methods_on_a_grid() -> None:
    def values(method: str, of: Channel = HELD) -> list[object]:
        return column(model.resample([of], 5, 35, 10, method))

    assert [row["time_ns"] for row in model.resample([HELD], 5, 35, 10, "count")] == [5, 15, 25]
    assert values("count") == [1, 2, 1]
    assert values("first") == [1, 2, 4]
    assert values("last") == [1, 3, 4]
    assert values("min") == [1, 2, 4]
    assert values("max") == [1, 3, 4]
    assert values("mean") == [1.0, 2.5, 4.0]
    assert values("previous") == [None, 1, None]
    # Known from 10 to 20, where frames are missing, and not after the newest frame.
    assert values("integral") == [5 / S, 5 / S, None]
    assert values("time_mean") == [1.0, 1.0, None]
    assert values("rate") == [None, None, None]
    assert column(model.resample([channel((0, 2), (10, 7))], 5, 15, 5, "rate")) == [5 / 5e-9, 0.0]
    assert values("integral", LINE) == [6.25 / S, (8.75 + 22.5) / S, 27.5 / S]


def test_the_last_step_ends_where_the_span_ends() -> None:
    of = channel((0, 1), (9, 2), (10, 3))
    assert column(model.resample([of], 0, 10, 7, "count")) == [1, 1]
    # But a rate looks one whole step ahead.
    assert column(model.resample([channel((0, 1), (14, 3))], 0, 10, 7, "rate")) == [0.0, 2 / 7e-9]


def test_texts_have_no_mean() -> None:
    text = channel((0, "a"), (10, "b"), kind="string", name="t.s")
    assert set(model.resample([HELD, text], 0, 10, 10, "mean")[0]) == {"time_ns", "t.x"}
    assert model.resample([HELD, text], 0, 20, 10, "last")[1]["t.s"] == "b"
    assert model.resample([text], 0, 10, 10, "count") == [{"time_ns": 0, "t.s": 1}]


def test_numbers_that_are_not_finite() -> None:
    of = channel((0, NAN), (1, INF), (2, 3.0), (3, -INF), (4, 5.0), kind="f64")
    [row] = model.summary([of], 0, 10)
    assert (row["count"], exact(row["min"]), exact(row["max"]), exact(row["mean"])) == (5, -INF, INF, 4.0)
    assert math.isnan(row["first"]) and row["last"] == 5.0
    assert (row["known_ns"], row["integral"], row["time_mean"]) == (0, None, None)
    [row] = model.summary([channel((0, NAN), kind="f64")], 0, 10)
    assert (row["count"], row["min"], row["max"], row["mean"]) == (1, None, None, None)


def test_a_summary_has_what_was_brought() -> None:
    [row] = model.summary([channel((0, 9), (12, 1), (14, 5), (30, 5))], 10, 20)
    assert (exact(row["min"]), exact(row["max"]), row["min_time_ns"], row["max_time_ns"]) == (1.0, 9.0, 12, 10)
    assert (row["count"], exact(row["mean"]), row["known_ns"]) == (2, 3.0, 10)
    assert exact(row["integral"]) == (2 * 9 + 2 * 1 + 6 * 5) / S
    assert exact(row["time_mean"]) == 5.0
    line = channel((0, 0.0), (20, 20.0), kind="f64")
    rows = model.summary([line], 5, 25, 10)
    assert [(exact(row["min"]), exact(row["max"])) for row in rows] == [(5.0, 15.0), (15.0, 20.0)]
    assert [(row["min_time_ns"], row["max_time_ns"]) for row in rows] == [(5, 15), (15, 20)]
    assert [(row["count"], row["known_ns"]) for row in rows] == [(0, 10), (1, 5)]


def test_states_join_what_is_equal() -> None:
    of = channel((0, 1), (10, 1), (20, 2), (20, 1), (30, 2), (40, 2), gaps=(4,))
    rows = model.states([of], 5, 50)
    assert [(row["from_time_ns"], row["to_time_ns"], row["value"], row["open"]) for row in rows] == [
        (5, 30, 1, False),
        (30, 30, 2, False),
        (40, 50, 2, True),
    ]
    assert not model.states([of], 5, 35)[-1]["open"]
    assert model.states([of], 45, 60)[0]["from_time_ns"] == 45
    assert model.states([channel((0, 1), (10, 1))], 0, 10)[0]["open"] is False
    line = model.states([LINE], 15, 35)
    assert [(row["from_time_ns"], row["to_time_ns"], row["value"]) for row in line] == [
        (15, 20, 1.0),
        (20, 30, 4.0),
        (30, 35, 6.0),
    ]


def test_values_of_frames_and_of_others() -> None:
    one = channel((10, 1), (20, 2), (20, 3), name="t.one")
    other = channel((5, "a"), (20, "b"), kind="string", name="t.other")
    assert model.asof([one], [other], 0, 30, 4) == [
        {"time_ns": 10, "t.one": 1, "t.other": None},
        {"time_ns": 20, "t.one": 2, "t.other": "b"},
        {"time_ns": 20, "t.one": 3, "t.other": "b"},
    ]
    assert model.asof([one], [other], 0, 20, 5)[0]["t.other"] == "a"


def test_crossings() -> None:
    def found(of: Channel, level: float, start: int = 0, end: int = 100) -> list[tuple[object, ...]]:
        return [
            (row["time_ns"], row["rising"], row["before"], row["after"])
            for row in model.crossings([of], level, start, end)
        ]

    held = channel((0, 1), (10, 5), (20, 1), (30, 5), gaps=(2,))
    assert found(held, 5) == [(10, True, 1.0, 5.0), (20, False, 5.0, 1.0)]
    assert found(held, 5, 10, 20) == [(10, True, 1.0, 5.0)]
    line = channel((0, 0.0), (10, 4.0), (20, 1.0), kind="f64")
    assert found(line, 3) == [(model.OneOf(frozenset({7, 8})), True, 0.0, 4.0), (13, False, 4.0, 1.0)]
    assert found(line, 4) == [(10, True, 0.0, 4.0), (10, False, 4.0, 1.0)]
    assert found(channel((0, 0.0), (10, NAN), (20, 4.0), kind="f64"), 1) == [(20, True, 0.0, 4.0)]


def test_a_condition() -> None:
    x, y = channel((0, 1), (10, 5), (30, 1), name="t.x"), channel((5, 1), (20, 0), (25, 1), name="u.y", gaps=(0,))
    both = model.intervals(
        lambda v: v["t.x"] > 2 and v["u.y"] == 1, {"t.x", "u.y"}, [x, y], [0, 5, 10, 20, 25, 30], 0, 40
    )
    assert both == [{"from_time_ns": 25, "to_time_ns": 30, "duration_ns": 5, "open": False}]
    one = model.intervals(lambda v: v["t.x"] > 2, {"t.x"}, [x], [0, 10, 30], 15, 20)
    assert one == [{"from_time_ns": 15, "to_time_ns": 20, "duration_ns": 5, "open": False}]
    last = model.intervals(lambda v: v["t.x"] == 1, {"t.x"}, [x], [0, 10, 30], 15, 50)
    assert last == [{"from_time_ns": 30, "to_time_ns": 50, "duration_ns": 20, "open": True}]


def test_bins() -> None:
    of = channel((0, 0.0), (1, 1.0), (2, 2.0), (3, 4.0), (4, NAN), (5, INF), kind="f64")
    assert [(row["bin"], row["low"], row["high"], row["count"]) for row in model.histogram([of], 0, 10, 2)] == [
        (1, 0, 2, 2),
        (2, 2, 4, 2),
    ]
    assert [row["count"] for row in model.histogram([of], 0, 10, 2, 1.0, 3.0)] == [1, 1, 1, 2]


def test_a_channel_that_follows() -> None:
    ones = channel(*((t, v) for t, v in enumerate([0, 1, 4, 2, 7, 3, 3, 9])))
    others = channel(*((t + 2, v) for t, v in enumerate([0, 1, 4, 2, 7, 3])), name="t.y")
    rows = model.correlation(ones, others, 0, 8, 1, 2)
    assert [row["lag_ns"] for row in rows] == [-2, -1, 0, 1, 2]
    assert [row["pairs"] for row in rows] == [4, 5, 6, 6, 6]
    assert rows[4]["correlation"].value == pytest.approx(1.0)
    assert model.correlation(channel((0, 5)), ones, 0, 8, 1, 0)[0]["correlation"] is None


def test_a_sine_in_a_spectrum() -> None:
    # 4 cycles in 64 values a second: its variance of one half is around 4 Hz.
    wave = [(t * S // 64, math.sin(2 * math.pi * 4 * t / 64)) for t in range(257)]
    rows = model.spectrum([channel(*wave, kind="f64")], 0, 4 * S, S // 64, 64)
    assert (len(rows), rows[0]["segments"]) == (33, 7)
    assert max(rows, key=lambda row: row["density"].value)["frequency"].value == 4.0
    assert sum(row["density"].value for row in rows) * 1.0 == pytest.approx(0.5)
    assert model.spectrum([channel(*wave, kind="f64")], 0, 4 * S, S // 64, 512) == []
    assert numpy.isfinite([row["density"].value for row in rows]).all()


def test_runs() -> None:
    first = channel((90, 1), (110, 2), name="t.x{bay=a,run=one}")
    second = channel((1_000, 3), name="t.x{bay=a,run=two}")
    common = channel((95, 4), name="t.y")
    rows = model.resample_runs([first, second, common], [Run("two", 1_000), Run("one", 100)], -5, 10, 10, "previous")
    assert rows == [
        {"run": "one", "run_time_ns": -5, "time_ns": 95, "t.x{bay=a}": 1, "t.y": 4},
        {"run": "one", "run_time_ns": 5, "time_ns": 105, "t.x{bay=a}": 1, "t.y": 4},
        {"run": "two", "run_time_ns": -5, "time_ns": 995, "t.x{bay=a}": None, "t.y": 4},
        {"run": "two", "run_time_ns": 5, "time_ns": 1_005, "t.x{bay=a}": 3, "t.y": 4},
    ]


def test_patterns() -> None:
    assert model.matches("t.*", "t.x{a=1}") and model.matches("*.x", "t.u.x")
    assert model.matches("t.x{b=?}", "t.x{a=1,b=2}") and not model.matches("t.x{b=3}", "t.x{a=1,b=2}")
    assert not model.matches("t.x{a=1}", "t.x") and not model.matches("t.?", "t.xy")
