"""Compares the answers of a driver, feature by feature, with those that it must give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import drivers
from drivers import canonical_rows


FLIGHT_TYPES = {
    "bool": "bool",
    "int2": "int16",
    "int4": "int32",
    "int8": "int64",
    "float4": "float32",
    "float8": "float64",
    "text": "utf8",
    "timestamptz": "timestamp[us, tz=+00:00]",
    "numeric": "decimal(20, 0)",
}
"""Arrow's types, as Go writes them, of PostgreSQL's types."""


class Answers:
    """The answers of one driver. `type_names` are its own names of PostgreSQL's types."""

    def __init__(self, answers: dict[str, Any], *, type_names: Callable[[str], str | None] = lambda kind: kind) -> None:
        self.answers = answers
        self.type_names = type_names

    def value(self, feature: str) -> Any:
        """Returns the answer about a feature. An error fails the test."""
        answer = self.answers[feature]
        assert "error" not in answer, f"{feature}: {answer['error']}"
        return answer["value"]

    def same_rows(self, answer: dict[str, Any], types: list[str], expected: list[Any]) -> None:
        """Asserts that an answer has the rows expected, of these types."""
        assert canonical_rows(types, answer["rows"]) == expected
        if names := [self.type_names(kind) for kind in types]:
            found = answer["types"]
            assert [f for f, n in zip(found, names, strict=True) if n is not None] == [
                n for n in names if n is not None
            ]

    def check(self, feature: str) -> None:
        """Asserts that a feature works."""
        getattr(self, f"_{feature}")(self.value(feature))

    def _connect(self, value: Any) -> None:
        assert value["rows"] == [["strongback", "public"]]

    def _columns(self, value: Any) -> None:
        assert [answer["rows"] for answer in value] == [expected for _, _, expected in drivers.COLUMNS]

    def _values(self, value: Any) -> None:
        self.same_rows(value, drivers.VALUE_TYPES, drivers.expected_values())

    def _special(self, value: Any) -> None:
        self.same_rows(value, drivers.SPECIAL_TYPES, drivers.expected_special())

    def _arrays(self, value: Any) -> None:
        self.same_rows(value, drivers.ARRAY_TYPES, drivers.expected_arrays())
        assert self.value("elements")["rows"] == drivers.EXPECTED_ELEMENTS

    def _parameters(self, value: Any) -> None:
        for answer, (sql, _, expected) in zip(value, drivers.PARAMETERS, strict=True):
            assert _numbers(answer["rows"]) == expected, sql

    def _any(self, value: Any) -> None:
        for answer, (sql, _, expected) in zip(value, drivers.ANY, strict=True):
            assert _numbers(answer["rows"]) == expected, sql

    def _given(self, value: Any) -> None:
        for mode, answers in value.items():
            for answer, (sql, _, types, expected) in zip(answers, drivers.GIVEN, strict=True):
                assert answer["types"] == types, f"{mode}: {sql}"
                assert canonical_rows(types, answer["rows"]) == canonical_rows(types, expected), f"{mode}: {sql}"

    def _limit(self, value: Any) -> None:
        assert _numbers(value["rows"]) == drivers.LIMIT[2]

    def _modes(self, value: Any) -> None:
        asked = [drivers.LIMIT, *drivers.PARAMETERS, *drivers.ANY]
        assert value
        for mode, answers in value.items():
            for answer, (sql, _, expected) in zip(answers, asked, strict=True):
                assert _numbers(answer["rows"]) == expected, f"{mode}: {sql}"

    def _prepared(self, value: Any) -> None:
        assert _numbers(value["rows"]) == drivers.EXPECTED_PREPARED

    def _grows(self, value: Any) -> None:
        # A time and six more columns of each table, and then one field, or two.
        assert value == [8] * 8 + [9] * 4

    def _parts(self, value: Any) -> None:
        assert value
        for found in value:
            assert found == drivers.EXPECTED_SUM

    def _copy(self, value: Any) -> None:
        assert value == [drivers.COPIED, 2]

    def _errors(self, value: Any) -> None:
        asked = [*drivers.ERRORS, (drivers.REFUSED[0], drivers.REFUSED[2])]
        found = dict(zip((sql for sql, _ in asked), value, strict=True))
        assert found == dict(asked)

    def _cancel(self, value: Any) -> None:
        assert value[0] in ("57014", "canceled")
        assert _numbers(value[1]) == [[1]]


def _numbers(rows: list[list[Any]]) -> list[list[Any]]:
    """Returns rows with the integers that a driver gives as texts as integers."""
    return [[int(v) if isinstance(v, str) and v.lstrip("-").isdigit() else v for v in row] for row in rows]
