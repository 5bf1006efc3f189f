"""Calls of the SQL functions for telemetry that make no sense fail with an error that says why."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator

import psycopg
import pytest
from strongback import Server

BEGIN = 1_760_000_000_000_000_000
TIMES = f"{BEGIN}, {BEGIN + 1_000_000_000}"
STATES = ("21", "22", "42", "54")
"""Classes of SQLSTATE that say that the caller must change something."""

WRONG = {
    "a method that does not exist": (f"resample('t.*', {TIMES}, '10 ms', 'lineal')", ["lineal", "linear"]),
    "an empty method": (f"resample('t.*', {TIMES}, '10 ms', '')", ["method"]),
    "a method that is no text": (f"resample('t.*', {TIMES}, '10 ms', 1)", ["method"]),
    "a step of months": (f"resample('t.*', {TIMES}, '1 month', 'mean')", ["month"]),
    "a step of years": (f"resample('t.*', {TIMES}, interval '1 year', 'mean')", ["month|year"]),
    "a step of months in a summary": (f"summary('t.*', {TIMES}, '2 months')", ["month"]),
    "a tolerance of months": (f"resample('t.*', {TIMES}, '10 ms', 'previous', '1 month')", ["month"]),
    "a tolerance of months in asof": (f"asof('t.f', 't.i', {TIMES}, interval '1 month')", ["month"]),
    "a step of 0": (f"resample('t.*', {TIMES}, 0, 'mean')", ["step"]),
    "a step of no time": (f"resample('t.*', {TIMES}, '0 s', 'mean')", ["step"]),
    "a negative step": (f"resample('t.*', {TIMES}, -1, 'mean')", ["step"]),
    "a negative step as text": (f"resample('t.*', {TIMES}, '-10 ms', 'mean')", ["step"]),
    "a step of 0 in a summary": (f"summary('t.*', {TIMES}, 0)", ["step"]),
    "a negative step in a summary": (f"summary('t.*', {TIMES}, '-1 s')", ["step"]),
    "a step of 0 in a spectrum": (f"spectrum('t.f', {TIMES}, 0)", ["step"]),
    "a step of 0 in a correlation": (f"correlation('t.f', 't.i', {TIMES}, 0, '1 s')", ["step"]),
    "a step that is no length": (f"resample('t.*', {TIMES}, 'often', 'mean')", ["step"]),
    "a negative tolerance": (f"resample('t.*', {TIMES}, '10 ms', 'previous', -1)", ["tolerance"]),
    "a negative tolerance in asof": (f"asof('t.f', 't.i', {TIMES}, '-1 ms')", ["tolerance"]),
    "a negative displacement": (f"correlation('t.f', 't.i', {TIMES}, '10 ms', '-1 s')", ["lag"]),
    "too many displacements": (f"correlation('t.f', 't.i', {TIMES}, 1, '100 days')", [""]),
    "too many rows": ("resample('t.*', '2000-01-01', '2026-01-01', 1, 'mean')", ["row|100"]),
    "too many rows of a summary": ("summary('t.*', '2000-01-01', '2026-01-01', 1)", [""]),
    "too many values of a spectrum": ("spectrum('t.f', '2000-01-01', '2026-01-01', 1)", [""]),
    "too many instants of a correlation": ("correlation('t.f', 't.i', '2000-01-01', '2026-01-01', 1, 0)", [""]),
    "from after to": ("samples('t.*', 1, 0)", ["from", "to"]),
    "from after to, resample": ("resample('t.*', '2026-11-21', '2026-11-20', '1 s', 'mean')", ["from", "to"]),
    "from after to, asof": ("asof('t.f', 't.i', 1, 0)", ["from", "to"]),
    "from after to, summary": ("summary('t.*', 1, 0)", ["from", "to"]),
    "from after to, states": ("states('t.*', 1, 0)", ["from", "to"]),
    "from after to, intervals": ("""intervals('"t.f" > 1', 1, 0)""", ["from", "to"]),
    "from after to, crossings": ("crossings('t.*', 1, 1, 0)", ["from", "to"]),
    "from after to, histogram": ("histogram('t.*', 1, 0, 10)", ["from", "to"]),
    "from after to, correlation": ("correlation('t.f', 't.i', 1, 0, 1, 1)", ["from", "to"]),
    "from after to, spectrum": ("spectrum('t.f', 1, 0, 1)", ["from", "to"]),
    "from after to, runs": ("resample_runs('t.*', 'started', '1 s', '0 s', '10 ms', 'mean')", ["from", "to"]),
    "no channel": (f"samples('nothing.*', {TIMES})", ["nothing"]),
    "no channel, resample": (f"resample('nothing.*', {TIMES}, '10 ms', 'mean')", ["nothing"]),
    "no channel, asof": (f"asof('nothing.*', 't.f', {TIMES})", ["nothing"]),
    "no other": (f"asof('t.f', 'nothing.*', {TIMES})", ["nothing"]),
    "no channel, summary": (f"summary('nothing.*', {TIMES})", ["nothing"]),
    "no channel, states": (f"states('nothing.*', {TIMES})", ["nothing"]),
    "no channel, intervals": (f"""intervals('"nothing.x" > 1', {TIMES})""", ["nothing"]),
    "no channel, crossings": (f"crossings('nothing.*', 1, {TIMES})", ["nothing"]),
    "no channel, histogram": (f"histogram('nothing.*', {TIMES}, 10)", ["nothing"]),
    "no channel, correlation": (f"correlation('nothing.*', 't.f', {TIMES}, 1000000, 0)", ["nothing"]),
    "no other, correlation": (f"correlation('t.f', 'nothing.*', {TIMES}, 1000000, 0)", ["nothing"]),
    "no channel, spectrum": (f"spectrum('nothing.*', {TIMES}, 1000000)", ["nothing"]),
    "several channels": (f"correlation('t.*', 't.f', {TIMES}, 1000000, 0)", ["one|exactly|channels"]),
    "several others": (f"correlation('t.f', 't.*', {TIMES}, 1000000, 0)", ["one|exactly|channels"]),
    "only texts, mean": (f"resample('t.s', {TIMES}, '10 ms', 'mean')", ["t.s|text|number"]),
    "only texts, summary": (f"summary('t.s', {TIMES})", ["t.s|text|number"]),
    "only texts, crossings": (f"crossings('t.s', 1, {TIMES})", ["t.s|text|number"]),
    "only texts, histogram": (f"histogram('t.s', {TIMES}, 10)", ["t.s|text|number"]),
    "only texts, correlation": (f"correlation('t.s', 't.f', {TIMES}, 1000000, 0)", ["t.s|text|number"]),
    "only texts, spectrum": (f"spectrum('t.s', {TIMES}, 1000000)", ["t.s|text|number"]),
    "a tolerance with min": (f"resample('t.*', {TIMES}, '10 ms', 'min', '1 s')", ["tolerance"]),
    "a tolerance with max": (f"resample('t.*', {TIMES}, '10 ms', 'max', '1 s')", ["tolerance"]),
    "a tolerance with first": (f"resample('t.*', {TIMES}, '10 ms', 'first', '1 s')", ["tolerance"]),
    "a tolerance with last": (f"resample('t.*', {TIMES}, '10 ms', 'last', '1 s')", ["tolerance"]),
    "a tolerance with count": (f"resample('t.*', {TIMES}, '10 ms', 'count', '1 s')", ["tolerance"]),
    "a tolerance with mean": (f"resample('t.*', {TIMES}, '10 ms', 'mean', '1 s')", ["tolerance"]),
    "a tolerance of 0 with time_mean": (f"resample('t.*', {TIMES}, '10 ms', 'time_mean', 0)", ["tolerance", "0"]),
    "a tolerance of 0 with integral": (f"resample('t.*', {TIMES}, '10 ms', 'integral', 0)", ["tolerance", "0"]),
    "a tolerance of 0, states": (f"states('t.*', {TIMES}, 0)", ["tolerance", "0"]),
    "a tolerance of 0, intervals": (f"""intervals('"t.f" > 1', {TIMES}, 0)""", ["tolerance", "0"]),
    "a tolerance of 0, crossings": (f"crossings('t.f', 1, {TIMES}, 0)", ["tolerance", "0"]),
    "a tolerance of 0, summary": (f"summary('t.f', {TIMES}, '1 s', 0)", ["tolerance", "0"]),
    "a negative tolerance, spectrum": (f"spectrum('t.f', {TIMES}, 1000000, 8, -1)", ["tolerance", "0"]),
    "a subquery of two columns": (f"states('t.*', (select 1, 2), {BEGIN})", ["only one column"]),
    "a subquery of two rows": (f"states('t.*', (select * from generate_series(1, 2)), {BEGIN})", ["more than one row"]),
    "a subquery of another table": (
        f"generate_series(1, 2) g(x), states('t.*', (select g.x), {BEGIN})",
        ["g.x|g"],
    ),
    "too many channels": (f"samples('many.*', {TIMES})", ["1,?000|1001"]),
    "too many channels, resample": (f"resample('many.*', {TIMES}, '10 ms', 'mean')", ["1,?000|1001"]),
    "too many channels, summary": (f"summary('many.*', {TIMES})", ["1,?000|1001"]),
    "too many channels, asof": (f"asof('many.*', 't.f', {TIMES})", ["1,?000|1001"]),
    "too many others": (f"asof('t.f', 'many.*', {TIMES})", ["1,?000|1001"]),
    "too many channels, states": (f"states('many.*', {TIMES})", ["1,?000|1001"]),
    "too many channels, histogram": (f"histogram('many.*', {TIMES}, 10)", ["1,?000|1001"]),
    "no bins": (f"histogram('t.f', {TIMES}, 0)", ["bin"]),
    "fewer than no bins": (f"histogram('t.f', {TIMES}, -1)", ["bin"]),
    "too many bins": (f"histogram('t.f', {TIMES}, 100001)", ["100,?000"]),
    "low above high": (f"histogram('t.f', {TIMES}, 10, 5, 1)", ["low", "high"]),
    "low without high": (f"histogram('t.f', {TIMES}, 10, 5)", [""]),
    "low that equals high": (f"histogram('t.f', {TIMES}, 10, 5, 5)", ["low", "high"]),
    "low that is NaN": (f"histogram('t.f', {TIMES}, 10, 'NaN'::double precision, 5)", ["low|NaN|finite"]),
    "high that is infinite": (
        f"histogram('t.f', {TIMES}, 10, 0, 'Infinity'::double precision)",
        ["high|finite|infinit"],
    ),
    "a level that is NaN": (f"crossings('t.f', 'NaN'::double precision, {TIMES})", ["level|NaN"]),
    "a level that is text": (f"crossings('t.f', 'high', {TIMES})", ["level"]),
    "a segment of 0": (f"spectrum('t.f', {TIMES}, 1000000, 0)", ["segment"]),
    "a negative segment": (f"spectrum('t.f', {TIMES}, 1000000, -8)", ["segment"]),
    "a segment that is too long": (f"spectrum('t.f', {TIMES}, 1000000, 1048577)", ["segment|1,?048,?576"]),
    "a time that is none": ("samples('t.*', 'yesterday-ish', 1)", ["yesterday-ish"]),
    "a time that is a float": ("samples('t.*', 1.5, 2)", ["from"]),
    "a time that is a truth value": ("samples('t.*', true, 2)", ["from"]),
    "a time that is an interval": ("samples('t.*', interval '1 s', 2)", ["from"]),
    "a pattern that is a number": (f"samples(1, {TIMES})", ["pattern|channels"]),
    "a pattern with an open brace": (f"samples('t.*{{a=1', {TIMES})", [r"\{"]),
    "a step that is a float": (f"resample('t.*', {TIMES}, 1.5, 'mean')", ["step"]),
    "a step that is a time": (f"resample('t.*', {TIMES}, timestamptz '2026-11-20', 'mean')", ["step"]),
    "too few arguments": ("samples('t.*', 0)", ["samples"]),
    "too many arguments": ("samples('t.*', 0, 1, 2)", ["samples"]),
    "no arguments": ("resample()", ["resample"]),
    "too many arguments of resample": (f"resample('t.*', {TIMES}, '10 ms', 'previous', '1 s', 3)", ["resample"]),
    "too few arguments of resample": (f"resample('t.*', {TIMES}, '10 ms')", ["resample"]),
    "a condition that is no truth value": (f"""intervals('"t.f" + 1', {TIMES})""", ["true or false"]),
    "a condition without a channel": (f"intervals('1 = 1', {TIMES})", ["channel"]),
    "a condition that cannot be read": (f"""intervals('"t.f" >', {TIMES})""", [""]),
    "an empty condition": (f"intervals('', {TIMES})", [""]),
    "a condition with a query": (f"""intervals('"t.f" > (select 1)', {TIMES})""", [""]),
    "a condition with a channel of several streams": (f"""intervals('"u.x" > 1', {TIMES})""", ["u.x"]),
    "a run that does not exist": ("resample_runs('t.*', 'nobody', '0 s', '1 s', '10 ms', 'mean')", ["nobody"]),
    "a pattern of runs that matches none": (
        "resample_runs('t.*', 'nobody*', '0 s', '1 s', '10 ms', 'mean')",
        ["nobody"],
    ),
    "a run without T-0": ("resample_runs('t.*', 'planned', '0 s', '1 s', '10 ms', 'mean')", ["planned", "T-0"]),
    "months from T-0": ("resample_runs('t.*', 'started', '-1 month', '1 s', '10 ms', 'mean')", ["month"]),
    "a time where an interval is due": (
        "resample_runs('t.*', 'started', '2026-11-20', '1 s', '10 ms', 'mean')",
        ["from"],
    ),
}

NULLS = {
    "samples": ["'t.*'", str(BEGIN), str(BEGIN + 1_000)],
    "resample": ["'t.f'", str(BEGIN), str(BEGIN + 1_000), "100", "'linear'", "1000"],
    "resample_runs": ["'t.f'", "'started'", "'-1 s'", "'1 s'", "'10 ms'", "'linear'", "1000"],
    "asof": ["'t.f'", "'t.i'", str(BEGIN), str(BEGIN + 1_000), "1000"],
    "summary": ["'t.f'", str(BEGIN), str(BEGIN + 1_000), "1000"],
    "states": ["'t.i'", str(BEGIN), str(BEGIN + 1_000)],
    "intervals": ["'\"t.f\" > 1'", str(BEGIN), str(BEGIN + 1_000)],
    "crossings": ["'t.f'", "1", str(BEGIN), str(BEGIN + 1_000)],
    "histogram": ["'t.f'", str(BEGIN), str(BEGIN + 1_000), "10", "0", "1"],
    "correlation": ["'t.f'", "'t.i'", str(BEGIN), str(BEGIN + 1_000), "100", "0"],
    "spectrum": ["'t.f'", str(BEGIN), str(BEGIN + 1_000), "100", "4"],
}
# Number of arguments that cannot be left out, where some can.
REQUIRED = {"resample": 5, "resample_runs": 6, "asof": 4, "summary": 3, "histogram": 4, "spectrum": 4}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a few samples of each kind, a table with too many channels, and two runs."""
    running = Server(folder=tmp_path_factory.mktemp("errors")).start()
    lines = [f't f={n / 8},i={n}i,b=true,s="x" {BEGIN + n * 10_000_000}' for n in range(50)]
    lines.append("many " + ",".join(f"c{n}=1" for n in range(1_001)) + f" {BEGIN}")
    lines += [f"u,a={n} x=1 {BEGIN}" for n in range(2)]
    assert running.write("\n".join(lines)) == (204, None)
    for path in ("planned/start", "started/start", f"started/t0?at={BEGIN}"):
        urllib.request.urlopen(
            urllib.request.Request(f"{running.url}/api/runs/{path}", method="POST"), timeout=60
        ).close()
    yield running
    assert running.stop() == 0


def refused(server: Server, call: str, *parameters: object) -> psycopg.Error:
    """Returns the error of a call."""
    with server.connect() as connection:
        try:
            rows = connection.execute(f"select * from {call}", parameters or None).fetchall()
        except psycopg.Error as error:
            assert connection.execute("select 1").fetchall() == [(1,)], "the session continues"
            return error
    raise AssertionError(f"{call}: {len(rows)} rows instead of an error: {rows[:2]}")


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said(server: Server, name: str) -> None:
    call, says = WRONG[name]
    error = refused(server, call)
    assert error.sqlstate is not None and error.sqlstate.startswith(STATES), f"{call}: {error.sqlstate} {error}"
    for word in says:
        assert re.search(word, str(error)), f"{call}: {error}"


@pytest.mark.parametrize("function", NULLS)
def test_null_is_no_argument(server: Server, function: str) -> None:
    with server.connect() as connection:
        connection.execute(f"select * from {function}({', '.join(NULLS[function])})").fetchall()
    for place in range(REQUIRED.get(function, len(NULLS[function]))):
        for null in ("null", "null::text"):
            arguments = list(NULLS[function])
            arguments[place] = null
            error = refused(server, f"{function}({', '.join(arguments)})")
            assert error.sqlstate is not None and error.sqlstate.startswith(STATES), (
                f"{function} {place}: {error.sqlstate} {error}"
            )
            assert re_null(str(error)), f"{function}, argument {place + 1}: {error}"


@pytest.mark.parametrize("function", REQUIRED)
def test_null_leaves_an_argument_out(server: Server, function: str) -> None:
    required, optional = NULLS[function][: REQUIRED[function]], NULLS[function][REQUIRED[function] :]
    with server.connect() as connection:
        call = f"select * from {function}({', '.join(required)})"
        rows = connection.execute(call).fetchall()
        nulls = ", ".join(["null"] * len(optional))
        assert connection.execute(f"{call[:-1]}, {nulls})").fetchall() == rows
    if function == "histogram":
        for pair in ("null, 1", "0, null"):
            assert "both" in str(refused(server, f"histogram({', '.join(required)}, {pair})"))
        assert "both" in str(refused(server, f"histogram({', '.join(required)}, 0)"))
        for bounds in ("0, %s", "%s, 1"):
            call = f"histogram({', '.join(required)}, {bounds})"
            with server.connect() as connection:
                assert connection.execute(f"select * from {call}", [0.5]).fetchall()
            assert "both" in str(refused(server, call, None))


def re_null(text: str) -> bool:
    """Returns whether an error says that NULL is the matter, or that the argument is no constant."""
    return "null" in text.lower() or "parameters" in text


def test_a_parameter_that_is_null(server: Server) -> None:
    error = refused(server, f"samples('t.*', %s, {BEGIN})", None)
    assert error.sqlstate is not None and error.sqlstate.startswith(STATES)
    error = refused(server, f"summary(%s, {TIMES})", None)
    assert error.sqlstate is not None and error.sqlstate.startswith(STATES)


def test_patterns_of_columns_are_written_in_the_statement(server: Server) -> None:
    for call in (
        f"resample(%s, {TIMES}, '10 ms', 'mean')",
        f"asof(%s, 't.i', {TIMES})",
        f"asof('t.i', %s, {TIMES})",
        "resample_runs(%s, 'started', '0 s', '1 s', '10 ms', 'mean')",
    ):
        error = refused(server, call, "t.f")
        assert error.sqlstate is not None and error.sqlstate.startswith(STATES), f"{call}: {error.sqlstate} {error}"
        assert "parameters" in str(error), f"{call}: {error}"


def test_arguments_are_no_columns(server: Server) -> None:
    for call in (
        f"t, samples('t.*', t.time_ns, {BEGIN})",
        f"t cross join lateral summary('t.f', {BEGIN}, t.time_ns)",
    ):
        error = refused(server, call)
        assert error.sqlstate is not None and error.sqlstate.startswith((*STATES, "0A")), (
            f"{call}: {error.sqlstate} {error}"
        )


@pytest.mark.parametrize("function", NULLS)
def test_an_empty_span_has_no_rows(server: Server, function: str) -> None:
    arguments = list(NULLS[function])
    start, end = (2, 3) if function in ("resample_runs", "asof", "crossings", "correlation") else (1, 2)
    arguments[end] = arguments[start]
    with server.connect() as connection:
        rows = connection.execute(f"select * from {function}({', '.join(arguments)})").fetchall()
    # Histograms and correlations have their rows for nothing, too.
    assert rows == [] or function in ("histogram", "correlation")
