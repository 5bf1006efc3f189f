"""Live SQL with real clients: a plain HTTP client that reads events, a WebSocket, pyarrow and ADBC over Flight SQL."""

from __future__ import annotations

import http.client
import json
import random
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import adbc_driver_flightsql.dbapi as flight_sql
import psycopg
import pyarrow
import pyarrow.flight
import pytest
import websockets.sync.client
from strongback import TIMEOUT_S, Server

BEGIN_NS = 1_795_132_800_000_000_000
MS = 1_000_000
ROWS_SQL = "select n, bay, p from tank where p >= 0 or p < -2"


class Events:
    """A stream of server-sent events."""

    def __init__(self, server: Server, sql: str, *, last_id: str | None = None, **options: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=TIMEOUT_S)
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
        query = urllib.parse.urlencode({"sql": sql, **options})
        self.connection.request("GET", f"/api/sql/live?{query}", headers=headers)
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200, self.answer.read()
        assert self.answer.headers["content-type"] == "text/event-stream"

    def __iter__(self) -> Iterator[tuple[str, str | None, Any]]:
        """Name, id and data of each event but for heartbeats, until the connection is lost."""
        fields: dict[str, str] = {}
        while True:
            try:
                line = self.answer.readline().decode()
            except (OSError, http.client.HTTPException, AttributeError):
                return
            if not line:
                return
            if line != "\n":
                name, _, value = line.rstrip("\n").partition(": ")
                fields[name.rstrip(":")] = value
                continue
            if fields.get("event", "heartbeat") != "heartbeat":
                yield fields["event"], fields.get("id"), json.loads(fields["data"])
            fields = {}

    def close(self) -> None:
        """Leaves."""
        self.answer.close()
        self.connection.close()


class Writer(threading.Thread):
    """Writes lines with their own `n`, some late, until stopped; knows which were acknowledged."""

    def __init__(self, server: Server, *, first: int, seed: int) -> None:
        super().__init__()
        self.server, self.n, self.random = server, first, random.Random(seed)
        self.ended = threading.Event()
        self.acknowledged = first

    def lines(self, *, count: int) -> str:
        """The next lines."""
        lines = []
        for _ in range(count):
            late = self.random.choice([0] * 20 + [3_000])
            time_ns = BEGIN_NS + (self.n * 5 - late) * MS
            lines.append(f"tank,bay=b{self.n % 3} p={self.random.randint(-8, 8) / 2},n={self.n}i {time_ns}")
            self.n += 1
        return "\n".join(lines)

    def run(self) -> None:
        while not self.ended.is_set():
            try:
                status, _ = self.server.write(self.lines(count=self.random.randint(1, 40)))
            except OSError:
                return
            if status == 204:
                self.acknowledged = self.n

    def stop(self) -> None:
        self.ended.set()
        self.join()


def plain(server: Server, sql: str) -> list[Any]:
    """Rows of the statement over PostgreSQL, as JSON values of `/api/sql`."""
    body = json.dumps({"sql": sql, "limit": 100_000}).encode()
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=TIMEOUT_S)
    connection.request("POST", "/api/sql", body, {"Content-Type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    assert not answer["truncated"]
    rows: list[Any] = answer["rows"]
    return rows


def test_rows_come_once_although_server_and_client_are_killed(server: Server) -> None:
    server.write("tank,bay=b0 p=1,n=-1i 1795132800000000000")
    rows: list[Any] = []
    last_id: str | None = None
    chance = random.Random(5)
    first = 0
    for epoch in range(3):
        writer = Writer(server, first=first, seed=epoch)
        writer.start()
        taken = 0
        while taken < 25:
            events = Events(server, ROWS_SQL, last_id=last_id, interval_ms=10)
            for name, event_id, data in events:
                if name == "columns":
                    assert data["class"] == "rows"
                    assert data.get("resumed") is (True if last_id else None)
                    continue
                assert name == "rows", data
                rows += data["rows"]
                last_id = event_id
                taken += 1
                if chance.random() < 0.2 or taken >= 25:
                    break
            events.close()
        if epoch < 2:
            server.kill()
        writer.stop()
        # Lines whose answer was lost may be stored; their numbers are not used again.
        first = writer.n
        if epoch < 2:
            server.start()
    wanted = sorted(plain(server, ROWS_SQL))
    if len(rows) < len(wanted):
        for name, _, data in Events(server, ROWS_SQL, last_id=last_id):
            rows += data["rows"] if name == "rows" else []
            if len(rows) >= len(wanted):
                break
    assert sorted(rows) == wanted


def test_windows_close_and_are_corrected(server: Server) -> None:
    sql = "select date_bin('1 second', time) as w, bay, count(*) as c, max(p) as m from tank group by w, bay order by w, bay"
    server.write(f"tank,bay=b0 p=1,n=-1i {BEGIN_NS}")
    writer = Writer(server, first=0, seed=1)
    writer.start()
    windows: dict[str, list[Any]] = {}
    corrections = 0
    marked = False
    for name, _, data in Events(server, sql, interval_ms=20, lateness_ms=100):
        if name == "columns":
            assert (data["class"], data["lateness_ms"]) == ("windows", 100)
            continue
        assert name == "window" and data["part"] == 0 and data["last"], data
        windows = {w: rows for w, rows in windows.items() if not (data["from"] or "") <= w < data["to"]}
        for row in data["rows"]:
            windows.setdefault(row[0], []).append(row)
        corrections += data["correction"]
        if corrections >= 5 and not marked:
            writer.stop()
            marked = True
            end_ns = BEGIN_NS + (writer.n * 5 + 60_000) * MS
            assert server.write(f"tank,bay=b0 p=1,n=-2i {end_ns}") == (204, None)
            wanted = plain(server, sql)[:-1]
        if marked and [row for w in sorted(windows) for row in windows[w]] == wanted:
            break


def test_a_websocket_follows_several_statements(server: Server) -> None:
    server.write(f"tank,bay=b0 p=1,n=0i {BEGIN_NS}")
    url = f"ws://127.0.0.1:{server.http_port}/api/sql/live"
    with websockets.sync.client.connect(url) as socket:
        statements = {1: "select n from tank", 2: "select count(*) from tank", 3: "select 1"}
        for number, sql in statements.items():
            socket.send(json.dumps({"type": "subscribe", "id": number, "sql": sql, "interval_ms": 10}))
        seen: dict[int, list[Any]] = {1: [], 2: [], 3: []}
        written = False
        while len(seen[1]) < 2 or seen[2] != [["2"]] or not seen[3]:
            message = json.loads(socket.recv(timeout=TIMEOUT_S))
            match message["type"]:
                case "rows":
                    seen[message["id"]] += message["rows"]
                case "result":
                    seen[message["id"]] = message["rows"]
                case "error":
                    assert message["sqlstate"] == "0A000"
                    seen[message["id"]] = [message["error"]]
            if not written and seen[1] and seen[2]:
                server.write(f"tank,bay=b0 p=1,n=1i {BEGIN_NS + MS}")
                written = True
        assert seen == {1: [["0"], ["1"]], 2: [["2"]], 3: seen[3]}
        assert "reads no table" in seen[3][0]


def read(reader: pyarrow.flight.FlightStreamReader) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    """Metadata and rows of each step."""
    rows: list[Any] = []
    for chunk in reader:
        metadata = json.loads(chunk.app_metadata.to_pybytes())
        rows += chunk.data.to_pylist()
        if metadata["last"]:
            assert chunk.data.num_rows == 0
            yield metadata, rows
            rows = []


def ticket(client: pyarrow.flight.FlightClient, sql: str) -> pyarrow.flight.FlightInfo:
    """The FlightInfo of a statement, whose command is encoded by hand, as pyarrow knows Flight but not Flight SQL."""

    def field(number: int, value: bytes) -> bytes:
        size, length = b"", len(value)
        while length > 127:
            size, length = size + bytes([length & 127 | 128]), length >> 7
        return bytes([number << 3 | 2]) + size + bytes([length]) + value

    url = b"type.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery"
    command = field(1, url) + field(2, field(1, sql.encode()))
    return client.get_flight_info(pyarrow.flight.FlightDescriptor.for_command(command))


def test_record_batches_without_an_end(server: Server) -> None:
    server.write("\n".join(f"tank,bay=b{n % 2} p={n / 2},n={n}i {BEGIN_NS + n * MS}" for n in range(20_000)))
    client = pyarrow.flight.FlightClient(f"grpc://127.0.0.1:{server.flight_port}")
    info = ticket(client, "SUBSCRIBE EVERY '20 ms' SELECT n, bay FROM tank")
    assert info.schema.names == ["n", "bay"]
    reader = client.do_get(info.endpoints[0].ticket)
    steps = read(reader)
    metadata, rows = next(steps)
    assert (metadata["class"], metadata["step"], metadata["snapshot"]) == ("rows", 1, True)
    assert sorted(row["n"] for row in rows) == list(range(20_000))
    server.write(f"tank,bay=b7 p=1,n=20000i {BEGIN_NS}")
    metadata, rows = next(steps)
    assert (metadata["step"], rows) == (2, [{"n": 20_000, "bay": "b7"}])
    reader.cancel()
    windows = ticket(client, "subscribe lateness '0 ms' select date_bin('1 s', time) w, count(*) c from tank group by w")
    reader = client.do_get(windows.endpoints[0].ticket)
    steps = read(reader)
    metadata, rows = next(steps)
    assert metadata["class"] == "windows" and metadata["to"] == "2026-11-20T00:00:19Z", metadata
    assert [row["c"] for row in sorted(rows, key=lambda row: row["w"])] == [1001] + [1000] * 18
    server.write(f"tank,bay=b0 p=1,n=1i {BEGIN_NS + 5}")
    metadata, rows = next(steps)
    assert (metadata["correction"], [row["c"] for row in rows]) == (True, [1002])
    reader.cancel()
    for sql, reason in [
        ("subscribe select 1", "reads no table"),
        ("subscribe every 'soon' select n from tank", "EVERY '100 ms'"),
        ("subscribe every '1 ms' select n from tank", "the interval is 1 ms"),
    ]:
        with pytest.raises(pyarrow.ArrowException, match=reason):
            next(read(client.do_get(ticket(client, sql).endpoints[0].ticket)))


def test_adbc_reads_changes_as_they_come(server: Server) -> None:
    server.write(f"tank,bay=b0 p=1,n=0i {BEGIN_NS}")
    with flight_sql.connect(f"grpc://127.0.0.1:{server.flight_port}", autocommit=True) as connection:
        with connection.cursor() as cursor:
            cursor.execute("SUBSCRIBE EVERY '10 ms' SELECT n FROM tank")
            reader = cursor.fetch_record_batch()
            seen: list[int] = []
            while len(seen) < 3:
                batch = reader.read_next_batch()
                seen += batch.column("n").to_pylist()
                if batch.num_rows:
                    server.write(f"tank,bay=b0 p=1,n={len(seen)}i {BEGIN_NS + len(seen) * MS}")
            assert seen == [0, 1, 2]


def test_postgresql_refuses_with_a_hint(server: Server) -> None:
    with server.connect() as client, pytest.raises(psycopg.errors.FeatureNotSupported, match="has an end") as refused:
        client.execute("subscribe select 1")
    assert "/api/sql/live" in (refused.value.diag.message_hint or "")


def test_a_client_that_reads_nothing_gets_everything_later(server: Server) -> None:
    server.write(f"tank,bay=b0 p=1,n=0i {BEGIN_NS}")
    sql = "select n, time, time_ns, receive_time, bay from tank"
    events = iter(Events(server, sql, interval_ms=10))
    assert next(events)[0] == "columns"
    assert next(events)[2]["rows"][0][0] == "0"
    for first in range(1, 60_001, 10_000):
        lines = (f"tank,bay=b0 p=1,n={n}i {BEGIN_NS + n * MS}" for n in range(first, first + 10_000))
        assert server.write("\n".join(lines)) == (204, None)
    rows: list[str] = []
    steps = set()
    while len(rows) < 60_000:
        name, _, data = next(events)
        assert name == "rows", data
        rows += [row[0] for row in data["rows"]]
        steps.add(data["step"])
    assert rows == [str(n) for n in range(1, 60_001)]
    assert len(steps) < 60


def test_a_mark_changes_a_result(server: Server) -> None:
    server.write("\n".join(f"engine p={n} {BEGIN_NS + n * MS}" for n in range(10)))
    events = Events(server, "select count(p), max(p) from engine", interval_ms=10)
    results = (data["rows"][0] for name, _, data in events if name == "result")
    assert next(results) == ["10", 9]
    # The streams of marks and events exist from the first mark on.
    for left in range(9, 5, -1):
        mark = {"channels": ["engine.p"], "at": str(BEGIN_NS + left * MS), "quality": "bad", "by": "ada", "reason": "-"}
        request = urllib.request.Request(
            f"{server.url}/api/marks", data=json.dumps(mark).encode(), headers={"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            assert answer.status == 201
        assert next(results) == [str(left), left - 1]
    events.close()


def test_now_in_a_call_moves_on(server: Server) -> None:
    server.write(f"engine p=1 {BEGIN_NS}")
    sql = "select max(to_time_ns) from intervals('\"engine.p\" > 0', now() - interval '100 years', now())"
    events = Events(server, sql, interval_ms=10)
    results = (int(data["rows"][0][0]) for name, _, data in events if name == "result")
    first, second, third = (next(results) for _ in range(3))
    assert first < second < third
    events.close()
