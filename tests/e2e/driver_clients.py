"""Clients in Python: the same questions as those of the programs, asked by psycopg 3 and 2, asyncpg and SQLAlchemy."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import re
import threading
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import drivers
import psycopg
import psycopg2
import psycopg2.extensions
import psycopg2.extras
import sqlalchemy
from strongback import Server

OIDS = {
    16: "bool",
    20: "int8",
    21: "int2",
    23: "int4",
    25: "text",
    700: "float4",
    701: "float8",
    1184: "timestamptz",
    1700: "numeric",
    1000: "_bool",
    1005: "_int2",
    1007: "_int4",
    1016: "_int8",
    1021: "_float4",
    1022: "_float8",
    1231: "_numeric",
    1009: "_text",
}
"""PostgreSQL's names of types by their numbers."""


def native(argument: dict[str, Any]) -> Any:
    """Returns an argument as a program in Python would have it."""
    value = argument["value"]
    match argument["kind"]:
        case "time":
            return drivers.at(value)
        case "times":
            return [drivers.at(us) for us in value]
        case "decimal":
            return decimal.Decimal(value)
        case "date":
            return datetime.date.fromisoformat(value)
        case "interval":
            return datetime.timedelta(microseconds=value)
    return value


def plain(value: Any) -> Any:
    """Returns a value in the form of the programs' answers."""
    if isinstance(value, datetime.datetime):
        return (value - drivers.EPOCH) // datetime.timedelta(microseconds=1)
    if isinstance(value, decimal.Decimal):
        return str(value)
    return [plain(v) for v in value] if isinstance(value, list) else value


def rows_of(rows: Any) -> list[list[Any]]:
    """Returns rows in the form of the programs' answers."""
    return [[plain(value) for value in row] for row in rows]


class Sum:
    """Adds up the rows of a long result as they arrive."""

    def __init__(self) -> None:
        self.value: dict[str, Any] = {"rows": 0, "total": 0, "first": None, "last": None, "sum": 0.0}

    def add(self, row: Any) -> None:
        """Adds a row `n, p`."""
        n, p = row
        if self.value["first"] is None:
            self.value["first"] = n
        self.value["rows"] += 1
        self.value["total"] += n
        self.value["last"] = n
        self.value["sum"] += p


class Asker:
    """A client that answers the questions. Features that are answered alike are answered here."""

    def __init__(self, server: Server) -> None:
        self.questions = drivers.questions(server)
        self.address = {"host": "127.0.0.1", "port": server.pg_port, "user": "anyone", "dbname": "strongback"}

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """Returns types and rows of a question."""
        raise NotImplementedError

    def each(self, questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Returns the answers to several questions."""
        return [self.ask(question) for question in questions]

    def state(self, question: dict[str, Any]) -> str:
        """Returns the SQLSTATE with which a statement fails."""
        try:
            self.ask(question)
        except (psycopg.Error, asyncpg.PostgresError) as error:
            return str(error.sqlstate)
        except psycopg2.Error as error:
            return str(error.pgcode)
        except sqlalchemy.exc.DBAPIError as error:
            return str(error.orig.sqlstate)  # type: ignore[union-attr]
        return "no error"

    def answer(self, feature: str) -> Any:
        """Returns the answer about a feature."""
        match feature:
            case "connect" | "values" | "special" | "limit" | "elements":
                return self.ask(self.questions[feature])
            case "arrays":
                return self.ask(self.questions["arrays"])
            case "columns" | "parameters" | "any":
                return self.each(self.questions[feature])
            case "errors":
                refused = self.questions["refused"]
                asked = [{"sql": sql, "arguments": []} for sql in self.questions["errors"]]
                return [self.state(question) for question in [*asked, refused]]
        return getattr(self, feature)()

    def close(self) -> None:
        """Disconnects."""


def with_marks(sql: str) -> str:
    """Returns a statement with `%s` in the place of `$1`."""
    return re.sub(r"\$\d+", "%s", sql.replace("%", "%%"))


class Psycopg(Asker):
    """psycopg 3: `%s` parameters, each bound by the server."""

    def __init__(self, server: Server, *, binary: bool = False) -> None:
        super().__init__(server)
        self.binary = binary
        self.connection = psycopg.connect(**self.address, autocommit=True)

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        with self.connection.cursor(binary=self.binary) as cursor:
            cursor.execute(with_marks(question["sql"]), [native(a) for a in question["arguments"]])
            types = [OIDS.get(column.type_code, str(column.type_code)) for column in cursor.description or []]
            return {"types": types, "rows": rows_of(cursor.fetchall())}

    def modes(self) -> dict[str, Any]:
        """Asks the same in binary, with cursors that bind at the client, with `$1`, and in a pipeline."""
        asked = [self.questions["limit"], *self.questions["parameters"], *self.questions["any"]]
        answers: dict[str, Any] = {"binary": Psycopg.each(self._binary(), asked)}
        for name, factory in (("client", psycopg.ClientCursor), ("raw", psycopg.RawCursor)):
            found = []
            for question in asked:
                with factory(self.connection) as cursor:
                    sql = question["sql"] if name == "raw" else with_marks(question["sql"])
                    cursor.execute(sql, [native(a) for a in question["arguments"]])
                    found.append({"rows": rows_of(cursor.fetchall())})
            answers[name] = found
        with self.connection.pipeline():
            cursors = [
                self.connection.execute(with_marks(q["sql"]), [native(a) for a in q["arguments"]]) for q in asked
            ]
            answers["pipeline"] = [{"rows": rows_of(cursor.fetchall())} for cursor in cursors]
        return answers

    def given(self) -> dict[str, Any]:
        """Asks in text and in binary."""
        asked = self.questions["given"]
        return {"text": self.each(asked), "binary": self._binary().each(asked)}

    def _binary(self) -> Psycopg:
        other = object.__new__(Psycopg)
        other.__dict__.update(self.__dict__, binary=True)
        return other

    def prepared(self) -> dict[str, Any]:
        """Prepares the statement at once, and by itself after some runs."""
        sql = with_marks(self.questions["prepared"]["sql"])
        rows = []
        for at, value in enumerate(self.questions["prepared"]["values"]):
            cursor = self.connection.execute(sql, (value,), prepare=True if at % 2 else None)
            rows += rows_of(cursor.fetchall())
        return {"rows": rows}

    def parts(self) -> list[dict[str, Any]]:
        """Reads by a named cursor, and by a stream with and without several rows at a time."""
        sql, size = self.questions["parts"]["sql"], self.questions["parts"]["rows"]
        fetched, streamed, chunked = Sum(), Sum(), Sum()
        with self.connection.transaction(), self.connection.cursor("parts") as cursor:
            cursor.itersize = size
            cursor.execute(sql)
            for row in cursor:
                fetched.add(row)
        with self.connection.cursor() as plain_cursor:
            for row in plain_cursor.stream(sql):
                streamed.add(row)
            for row in plain_cursor.stream(sql, size=size if psycopg.capabilities.has_stream_chunked() else 1):
                chunked.add(row)
        return [fetched.value, streamed.value, chunked.value]

    def copy(self) -> list[Any]:
        """Copies as text."""
        with self.connection.cursor() as cursor:
            with cursor.copy(self.questions["copy"]) as copy:
                text = b"".join(bytes(data) for data in copy).decode()
            return [text, cursor.rowcount]

    def cancel(self) -> list[Any]:
        """Cancels after the first row."""
        state = "no error"
        try:
            with self.connection.cursor() as cursor:
                for _ in cursor.stream(self.questions["endless"]):
                    self.connection.cancel_safe()
        except psycopg.Error as error:
            state = str(error.sqlstate)
        return [state, rows_of(self.connection.execute("select 1").fetchall())]

    def close(self) -> None:
        self.connection.close()


class Psycopg2(Asker):
    """psycopg 2: parameters are written into the statement by the client."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.connection = psycopg2.connect(**self.address)
        self.connection.autocommit = True

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        with self.connection.cursor() as cursor:
            cursor.execute(with_marks(question["sql"]), [native(a) for a in question["arguments"]])
            types = [OIDS.get(column.type_code, str(column.type_code)) for column in cursor.description or []]
            return {"types": types, "rows": rows_of(cursor.fetchall())}

    def parts(self) -> list[dict[str, Any]]:
        """Reads by a named cursor."""
        fetched = Sum()
        self.connection.autocommit = False
        with self.connection, self.connection.cursor("parts") as cursor:
            cursor.itersize = self.questions["parts"]["rows"]
            cursor.execute(self.questions["parts"]["sql"])
            for row in cursor:
                fetched.add(row)
        self.connection.autocommit = True
        return [fetched.value]

    def copy(self) -> list[Any]:
        """Copies as text."""
        import io

        out = io.StringIO()
        with self.connection.cursor() as cursor:
            cursor.copy_expert(self.questions["copy"], out)
            return [out.getvalue(), cursor.rowcount]

    def cancel(self) -> list[Any]:
        """Cancels from another thread, again until the statement has begun and ends."""
        ended = threading.Event()

        def cancel() -> None:
            while not ended.is_set():
                self.connection.cancel()

        canceller = threading.Thread(target=cancel)
        canceller.start()
        state = self.state({"sql": self.questions["endless_count"], "arguments": []})
        ended.set()
        canceller.join()
        # A request that was on its way meets the next statement.
        one: dict[str, Any] = {"sql": "select 1", "arguments": []}
        while (found := self.state(one)) == "57014":
            pass
        assert found == "no error"
        return [state, self.ask(one)["rows"]]

    def close(self) -> None:
        self.connection.close()


class Asyncpg(Asker):
    """asyncpg: binary, each statement prepared and kept."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        address = {**self.address, "database": self.address.pop("dbname")}
        del address["dbname"]
        self.address = address
        self.loop = asyncio.new_event_loop()
        self.connection = self.run(asyncpg.connect(**address))

    def run(self, awaitable: Awaitable[Any]) -> Any:
        """Runs until something is done."""
        return self.loop.run_until_complete(awaitable)

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        async def asked() -> dict[str, Any]:
            statement = await self.connection.prepare(question["sql"])
            arguments = [native(a) for a in question["arguments"]]
            rows = await statement.fetch(*arguments)
            names = [a.type.name for a in statement.get_attributes()]
            return {"types": [re.sub(r"^(.*)\[\]$", r"_\1", n) for n in names], "rows": rows_of(rows)}

        return self.run(asked())

    def prepared(self) -> dict[str, Any]:
        """Prepares it once."""

        async def rows() -> list[Any]:
            statement = await self.connection.prepare(self.questions["prepared"]["sql"])
            return [await statement.fetchrow(value) for value in self.questions["prepared"]["values"]]

        return {"rows": rows_of(self.run(rows()))}

    def parts(self) -> list[dict[str, Any]]:
        """Reads by a cursor that is iterated over, and by one that is fetched from."""
        sql, size = self.questions["parts"]["sql"], self.questions["parts"]["rows"]
        iterated, fetched = Sum(), Sum()

        async def read() -> None:
            async with self.connection.transaction():
                async for row in self.connection.cursor(sql, prefetch=size):
                    iterated.add(row)
                cursor = await self.connection.cursor(sql)
                while rows := await cursor.fetch(size):
                    for row in rows:
                        fetched.add(row)

        self.run(read())
        return [iterated.value, fetched.value]

    def grows(self) -> list[int]:
        """Reads the same while the table gains a column. Returns the number of columns each time."""
        found = []
        for run in range(12):
            if run in (0, 8):
                lines = f"grows_asyncpg {'ab'[run // 8]}={run} {run + 1}"
                urllib.request.urlopen(self.questions["write_url"], data=lines.encode()).close()
            found.append(len(self.run(self.connection.fetchrow("select * from grows_asyncpg where time_ns > $1", 0))))
        return found

    def copy(self) -> list[Any]:
        """Copies as text."""
        parts: list[bytes] = []

        async def take(data: bytes) -> None:
            parts.append(bytes(data))

        query = re.fullmatch(r"copy \((.*)\) to stdout", self.questions["copy"])
        assert query is not None
        tag = self.run(self.connection.copy_from_query(query[1], output=take))
        return [b"".join(parts).decode(), int(tag.split()[1])]

    def cancel(self) -> list[Any]:
        """Gives up after a time, which cancels at the server."""
        try:
            self.run(self.connection.fetch(self.questions["endless_count"], timeout=0.5))
            state = "no error"
        except TimeoutError:
            state = "canceled"
        return [state, rows_of(self.run(self.connection.fetch("select 1")))]

    def close(self) -> None:
        self.run(self.connection.close())
        self.loop.close()


class SqlAlchemy(Asker):
    """SQLAlchemy over psycopg, with `:p1` parameters."""

    def __init__(self, server: Server, *, driver: str = "psycopg") -> None:
        super().__init__(server)
        url = f"postgresql+{driver}://anyone@127.0.0.1:{server.pg_port}/strongback"
        self.engine = sqlalchemy.create_engine(url)

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        text = sqlalchemy.text(re.sub(r"\$(\d+)", r":p\1", question["sql"]))
        values = {f"p{at + 1}": native(a) for at, a in enumerate(question["arguments"])}
        with self.engine.connect() as connection:
            result = connection.execute(text, values)
            types = [OIDS.get(c[1], str(c[1])) for c in result.cursor.description]  # type: ignore[union-attr]
            return {"types": types, "rows": rows_of(result.all())}

    def modes(self) -> dict[str, Any]:
        """Asks the same over psycopg 2."""
        other = self.engine
        self.engine = sqlalchemy.create_engine(self.engine.url.set(drivername="postgresql+psycopg2"))
        try:
            asked = [self.questions["limit"], *self.questions["parameters"], *self.questions["any"]]
            return {"psycopg2": self.each(asked)}
        finally:
            self.engine.dispose()
            self.engine = other

    def parts(self) -> list[dict[str, Any]]:
        """Reads by `yield_per`, over a cursor at the server."""
        fetched = Sum()
        with self.engine.connect().execution_options(yield_per=self.questions["parts"]["rows"]) as connection:
            for row in connection.execute(sqlalchemy.text(self.questions["parts"]["sql"])):
                fetched.add(row)
        return [fetched.value]

    def close(self) -> None:
        self.engine.dispose()


ASKERS: dict[str, Callable[[Server], Asker]] = {
    "psycopg": Psycopg,
    "psycopg2": Psycopg2,
    "asyncpg": Asyncpg,
    "sqlalchemy": SqlAlchemy,
}
