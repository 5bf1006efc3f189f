"""psql reads what was written: its commands that describe, completion of names, variables, copies, Ctrl-C."""

from __future__ import annotations

import itertools
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator

import drivers
import pytest
from driver_matrix import CLIENTS
from strongback import TIMEOUT_S, Server, eventually

TABLES = ["engine", "kinds", "lab", "many", "special"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the tables that drivers are asked about."""
    if shutil.which("psql") is None:
        pytest.skip("psql is not installed")
    running = drivers.serve(tmp_path_factory.mktemp("psql"))
    yield running
    assert running.stop() == 0, running.last_words()


class Psql:
    """psql with a server."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.command = ["psql", "-X", "-h", "127.0.0.1", "-p", str(server.pg_port), "-U", "anyone", "-d", "strongback"]
        self.environment = {**os.environ, "PGCONNECT_TIMEOUT": "10", "PSQLRC": "/dev/null", "TERM": "dumb"}

    def run(self, *commands: str, options: tuple[str, ...] = ("-At", "-F", "|")) -> tuple[str, str]:
        """Returns what commands print, and their errors."""
        arguments = [argument for command in commands for argument in ("-c", command)]
        done = subprocess.run(
            [*self.command, *options, *arguments],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env=self.environment,
        )
        return done.stdout, done.stderr

    def ask(self, *commands: str, options: tuple[str, ...] = ("-At", "-F", "|")) -> str:
        """Returns what commands print. An error fails the test."""
        out, errors = self.run(*commands, options=options)
        assert errors == "", f"{commands}: {errors}"
        return out

    def ticks(self) -> int:
        """Returns the time that the server has computed, in hundredths of a second."""
        assert self.server.process is not None
        fields = pathlib.Path(f"/proc/{self.server.process.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    def rows(self, *commands: str) -> list[list[str]]:
        """Returns the rows that commands print, without titles."""
        return [line.split("|") for line in self.ask(*commands).splitlines()]

    def script(self, text: str) -> tuple[str, str]:
        """Returns what a script prints, and its errors with their codes."""
        command = [*self.command, "-At", "-F", "|", "-v", "VERBOSITY=verbose", "-f", "-"]
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=TIMEOUT_S, env=self.environment
        )
        return done.stdout, done.stderr


@pytest.fixture
def psql(server: Server) -> Psql:
    """psql with the server."""
    return Psql(server)


def array_of(text: str) -> list[str]:
    """Returns the elements of a plain array as psql shows it."""
    return text.strip("{}").split(",") if text != "{}" else []


@pytest.mark.parametrize("feature", CLIENTS["psql"].cells())
def test_psql(psql: Psql, feature: str) -> None:
    match feature:
        case "connect":
            assert psql.rows(drivers.CONNECT) == [["strongback", "public"]]
            assert "strongback" in psql.ask("\\conninfo")
        case "columns":
            for sql, arguments, expected in drivers.COLUMNS:
                assert psql.rows(inlined(sql, arguments)) == expected
        case "values":
            psql_values(psql)
        case "special":
            found = psql.rows(drivers.SPECIAL)
            assert [row[3] for row in found] == [note or "" for *_, note in drivers.SPECIAL_ROWS]
            assert [row[1] for row in found] == ["-0", "-Infinity", "Infinity", "NaN", "", "1"]
            assert [row[0] for row in found][:3] == [
                "1900-01-01 00:00:00+00",
                "1969-12-30 23:59:59.5+00",
                "1969-12-31 23:59:59.999999+00",
            ]
        case "arrays":
            found = psql.rows("select flags, codes, large, spectrum, wave from lab order by time")
            assert found[0] == ["{t,f}", "{-1,2}", "{18446744073709551615,7}", "{0.5,-1,2}", "{0.1,NaN}"]
            assert found[2] == ["", "", "", "", ""]
            assert psql.rows("select array_agg(stand order by count) from engine where count < 4") == [["{0,1,2,0}"]]
        case "parameters":
            for sql, arguments, expected in drivers.PARAMETERS:
                found = psql.rows(inlined(sql, arguments))
                assert [
                    [float(v) if isinstance(e, float) else type(e)(v) for v, e in zip(row, want, strict=True)]
                    for row, want in zip(found, expected, strict=True)
                ] == expected, sql
            assert psql.script("\\set name 1\nselect count(*) from engine where stand = :'name';\n") == ("10\n", "")
        case "limit":
            assert psql.rows(inlined(*drivers.LIMIT[:2])) == [["4"], ["5"], ["6"]]
        case "prepared":
            prepare = f"prepare again (bigint) as {drivers.PREPARED};\n"
            execute = "".join(f"execute again ({value});\n" for value in drivers.PREPARED_VALUES)
            out, errors = psql.script(prepare + execute + "deallocate again;\n")
            assert errors == ""
            lines = [line for line in out.splitlines() if "|" in line]
            assert [[int(n), float(p)] for n, p in (line.split("|") for line in lines)] == drivers.EXPECTED_PREPARED
        case "parts":
            out = psql.ask(drivers.PARTS, options=("-At", "-F", "|", "-v", f"FETCH_COUNT={drivers.PART}"))
            assert [int(line.split("|")[0]) for line in out.splitlines()] == list(range(drivers.ROWS))
        case "copy":
            assert psql.ask(drivers.COPY) == drivers.COPIED
            query = drivers.COPY.removeprefix("copy ").removesuffix(" to stdout")
            assert psql.ask(f"\\copy {query} to stdout") == drivers.COPIED
            out = psql.ask("\\copy (select count, note from engine order by count limit 1) to stdout csv header")
            assert out == "count,note\n0,note 0\n"
        case "errors":
            for sql, state in drivers.ERRORS:
                assert f"ERROR:  {state}: " in psql.script(sql + ";\n")[1], sql
        case "cancel":
            psql_cancel(psql)
        case "transactions":
            text = "begin;\nselect p from nothing;\nselect 1;\nrollback;\nselect 2;\n"
            out, errors = psql.script(text)
            assert out.splitlines() == ["BEGIN", "ROLLBACK", "2"]
            assert re.findall(r"ERROR:  (\w{5}):", errors) == ["42P01", "25P02"]
            text = "\\set ON_ERROR_ROLLBACK on\nbegin;\nselect p from nothing;\nselect 1;\ncommit;\n"
            assert psql.script(text)[0].splitlines() == ["BEGIN", "1", "COMMIT"]
        case "metadata":
            psql_describes(psql)
        case _:
            raise AssertionError(feature)


def inlined(sql: str, arguments: list[dict[str, object]]) -> str:
    """Returns a statement with constants in the place of its parameters, as a person would write them."""

    def constant(argument: dict[str, object]) -> str:
        value = argument["value"]
        match argument["kind"]:
            case "time":
                assert isinstance(value, int)
                return f"'{drivers.rfc3339(value)}'"
            case "texts":
                assert isinstance(value, list)
                return "'{" + ",".join(map(str, value)) + "}'"
            case "text":
                return "'" + str(value).replace("'", "''") + "'"
            case "null":
                return "null"
        return str(value)

    for at, argument in reversed(list(enumerate(arguments, start=1))):
        sql = sql.replace(f"${at}", constant(argument))
    return sql


def psql_values(psql: Psql) -> None:
    """Asserts the texts of values of each type."""
    columns = [name for name, _, _ in drivers.KINDS if name != "note"]
    found = psql.rows(f"select time, {', '.join(columns)} from kinds order by time")
    assert [row[0] for row in found] == [
        f"2025-10-09 08:53:20{fraction}+00" for fraction in ("", ".000001", ".000002", ".000003")
    ]
    assert found[0][1:] == "t|5|-300|70000|-5000000000|200|40000|3000000000|10000000000000000000|0.5|0.1".split("|")
    assert found[1][1:6] == ["f", "-128", "-32768", "-2147483648", "-9223372036854775808"]
    assert found[1][10:] == ["-3.4028235e+38", "-1.7976931348623157e+308"]
    assert found[2][6:10] == ["255", "65535", "4294967295", "18446744073709551615"]
    assert found[3][10:] == ["1e-45", "5e-324"]
    assert psql.ask("select note from kinds where a8 = 127") == drivers.TEXT + "\n"
    out, errors = psql.script("select p, p / 3 from engine where count = 8 \\gx\n")
    assert (out.splitlines(), errors) == (["p|1", "?column?|0.3333333333333333"], "")


def psql_cancel(psql: Psql) -> None:
    """Asserts that Ctrl-C cancels the statement, and that psql tells of it."""
    before = psql.ticks()
    process = subprocess.Popen(
        [*psql.command, "-At", "-v", "VERBOSITY=verbose", "-c", drivers.ENDLESS_COUNT],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=psql.environment,
    )
    # To connect takes the server a few of them.
    eventually("a running statement", lambda: psql.ticks() - before > 50)
    process.send_signal(signal.SIGINT)
    assert "ERROR:  57014: " in process.communicate(timeout=TIMEOUT_S)[1]


def psql_describes(psql: Psql) -> None:
    """Asserts what the commands that describe show."""
    assert [row[1] for row in psql.rows("\\dt")] == TABLES
    assert [row[1] for row in psql.rows("\\d")] == TABLES
    assert [row[1] for row in psql.rows("\\dt+ en*")] == ["engine"]
    assert "gaps" in [row[1] for row in psql.rows("\\dtv strongback.*")]
    described = {row[0]: row[1] for row in psql.rows("\\d engine")}
    assert {name: described[name] for name, _ in drivers.ENGINE_COLUMNS} == {
        "time": "timestamp with time zone",
        "stand": "text",
        "p": "double precision",
        "count": "bigint",
        "big": "numeric(20,0)",
        "open": "boolean",
        "note": "text",
    }
    assert [row[0] for row in psql.rows("\\d+ engine")][0] == "time"
    arrays = {row[0]: row[1] for row in psql.rows("\\d lab")}
    assert [arrays[name] for name in ("flags", "counts", "large", "spectrum", "wave")] == [
        "boolean[]",
        "bigint[]",
        "numeric(20,0)[]",
        "real[]",
        "double precision[]",
    ]
    assert {"public", "strongback"} <= {row[0] for row in psql.rows("\\dn")}
    assert {"public", "strongback"} <= {row[0] for row in psql.rows("\\dn+")}
    assert "strongback" in [row[0] for row in psql.rows("\\l")]
    assert "strongback" in [row[0] for row in psql.rows("\\l+")]
    assert [row[1] for row in psql.rows("\\dp") if len(row) > 1] == TABLES
    span = '"from" timestamp with time zone, "to" timestamp with time zone'
    assert ["public", "samples", "SETOF record", f"channels text, {span}", "func"] in psql.rows("\\df samp*")
    assert {"resample", "asof", "latest", "state_at"} <= {row[1] for row in psql.rows("\\df public.*")}
    # Lists that are empty, or that hold what PostgreSQL itself has.
    for command in (
        "\\du",
        "\\du+",
        "\\df",
        "\\df+",
        "\\dT",
        "\\dT+",
        "\\di",
        "\\di+",
        "\\dv",
        "\\dv+",
        "\\dm",
        "\\ds",
        "\\dE",
        "\\db",
        "\\dx",
        "\\dC",
        "\\dd",
        "\\dD",
        "\\ddp",
        "\\des",
        "\\deu",
        "\\dew",
        "\\dF",
        "\\dg",
        "\\dL",
        "\\do",
        "\\dO",
        "\\dRp",
        "\\dRs",
        "\\dX",
        "\\dy",
        "\\da",
        "\\dA",
        "\\dc",
        "\\dP",
        "\\drds",
        "\\sf version",
        "\\z",
        "\\encoding",
        "\\dconfig",
    ):
        errors = psql.run(command)[1]
        # What psql itself does not know, or does not find.
        errors = re.sub(r"(invalid command .*|Did not find any .*|.*does not support.*|Try \\\?.*)\n?", "", errors)
        assert errors.strip() == "" or 'function "version" does not exist' in errors, f"{command}: {errors}"


class Terminal:
    """psql in a terminal, where it completes names."""

    def __init__(self, psql: Psql) -> None:
        self.child, self.descriptor = pty.fork()
        if self.child == 0:
            os.execvpe(psql.command[0], psql.command, {**psql.environment, "INPUTRC": "/dev/null", "TERM": "xterm"})
        self.seen = ""

    def type(self, keys: str) -> None:
        """Types keys."""
        os.write(self.descriptor, keys.encode())

    def until(self, text: str) -> None:
        """Waits for a text."""
        deadline = time.monotonic() + TIMEOUT_S
        while text not in self.seen:
            assert time.monotonic() < deadline, f"{text!r} is not in {self.seen!r}"
            if select.select([self.descriptor], [], [], 1)[0]:
                self.seen += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\x07", "", os.read(self.descriptor, 65536).decode())

    def close(self) -> None:
        """Ends psql."""
        self.type("\x15\\q\n")
        os.waitpid(self.child, 0)
        os.close(self.descriptor)


def test_names_are_completed(psql: Psql) -> None:
    terminal = Terminal(psql)
    terminal.until("=>")
    for keys, completed in (
        ("select count(*) from eng\t", "engine "),
        ("\\d speci\t", "special "),
        ("select * from strongback.ga\t", "strongback.gaps"),
        ("\\dn strong\t", "strongback "),
    ):
        terminal.seen = ""
        terminal.type(keys)
        terminal.until(completed)
        terminal.type("\x15")
    terminal.seen = ""
    terminal.type("select p from engine where st\t")
    terminal.until("stand ")
    terminal.close()


def test_settings_are_completed(psql: Psql) -> None:
    # What psql asks after `show statement_t` and TAB.
    sql = "select name from pg_catalog.pg_settings where name like '{}%' order by name"
    assert "statement_timeout" in psql.rows(sql.format("statement_t"))[0]
    assert "search_path" in psql.rows(sql.format("search_p"))[0]


def test_the_information_schema_has_types_of_postgresql(psql: Psql) -> None:
    sql = (
        "select column_name, data_type, udt_name, is_nullable from information_schema.columns "
        "where table_schema = 'public' and table_name = '{}' order by ordinal_position"
    )
    kinds = {name: (kind, udt) for name, kind, udt, _ in psql.rows(sql.format("kinds"))}
    assert kinds["time"] == ("timestamp with time zone", "timestamptz")
    assert [kinds[name][1] for name, _, _ in drivers.KINDS] == [kind for _, _, kind in drivers.KINDS]
    assert [kinds[name][0] for name in ("flag", "a16", "a32", "a64", "b64", "single", "double", "note")] == [
        "boolean",
        "smallint",
        "integer",
        "bigint",
        "numeric",
        "real",
        "double precision",
        "text",
    ]
    arrays = {name: (kind, udt) for name, kind, udt, _ in psql.rows(sql.format("lab"))}
    assert [arrays[name] for name, _, _ in drivers.ARRAYS if name != "number"] == [
        ("ARRAY", kind) for name, _, kind in drivers.ARRAYS if name != "number"
    ]


def test_scripts_of_psql_use_results(psql: Psql) -> None:
    text = """select max(count) as newest, min(p) as least from engine \\gset
\\echo :newest :least
select count(*) from engine where count = :newest \\g
select 'select ' || n from generate_series(1, 2) s(n) \\gexec
select stand, open, count(*) from engine group by 1, 2 order by 1 \\crosstabview
select p, note from engine \\gdesc
\\bind_nothing
"""
    out, errors = psql.script(text)
    assert "29 0" in out.splitlines()
    assert ["1", "1", "2"] == list(itertools.islice((line for line in out.splitlines() if line.isdigit()), 3))
    assert "p|double precision" in out.splitlines()
    assert "note|text" in out.splitlines()
    assert "bind_nothing" in errors and errors.count("\n") <= 2


def test_a_file_is_written(psql: Psql, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "rows.csv"
    psql.ask(f"\\copy (select count, p from engine order by count) to '{path}' with (format csv)")
    psql.ask("\\copy engine (count, p) to /dev/null with (format csv)")
    assert path.read_text().splitlines()[:2] == ["0,0", "1,0.125"]
    assert psql.ask("select count, p from engine order by 1 limit 2", options=("--csv",)) == "count,p\n0,0\n1,0.125\n"
