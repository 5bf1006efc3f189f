"""A statement that is sent again gets the rows that it would get if it were new, whatever was stored in between."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import pathlib
import random
import urllib.error
import urllib.request
from typing import Any

import psycopg
import pytest
from strongback import Server

SECOND = 1_000_000_000
BEGIN = 1_763_600_000
SEEDS = range(3)

STATEMENTS = [
    "select count(*) from t",
    "select count(*), min(x), max(x), sum(n), avg(n) from t",
    "select k, count(x), max(x) from t group by k order by k",
    "select date_trunc('minute', time) as m, count(*), max(n) from t group by 1 order by 1 desc limit 3",
    "select date_trunc('minute', time) as m, count(*), min(n) from t group by m order by m limit 2",
    "select date_bin('7 seconds', time) as m, sum(n) from t where x > 3 group by m order by m desc limit 4",
    "select m, c from (select date_trunc('minute', time) as m, count(*) as c from t group by 1) q order by m desc limit 2",
    "select date_trunc('minute', time), count(*) from t group by 1 having count(*) > 9 order by 1 desc limit 2",
    "select date_trunc('minute', time), k, count(*) from t group by 1, 2 order by 1 desc, 2 limit 3",
    "select time_ns, k, x, n from t order by time_ns, k nulls last, n limit 7",
    "select time_ns, n from t order by time desc, n desc limit 3",
    "select n from t order by n desc limit 5",
    "select n from t where n % 7 = 0 order by n limit 5",
    "select distinct on (k) k, time_ns, n from t order by k, time desc, n desc",
    "select distinct on (k) k, time_ns from t order by k, time",
    "select k, last_value(n order by time, n) from t group by k order by k",
    "select count(*) from t where time < '2025-11-20 00:55:00+00'",
    "select k, count(*) from t where time >= '2025-11-20 01:10:00+00' group by k order by k",
    "select count(*) from t where k = 'c'",
    "select abs(n) % 5 as r, count(*) from t group by 1 order by 1",
    "select t.k, count(*) from t join t as u on t.time_ns = u.time_ns and t.k = u.k group by 1 order by 1",
    "select count(*) from t union all select max(n) from t where k = 'b' order by 1",
    "select * from t order by time_ns, k nulls last, n limit 1",
    "select distinct x from t order by x nulls first limit 4",
]


def mark(server: Server, *, channel: str, start: int, end: int) -> None:
    """Marks values of a channel bad, if it exists."""
    body = {"channels": [channel], "from": start, "to": end, "quality": "bad", "by": "ada", "reason": "test"}
    request = urllib.request.Request(f"{server.url}/api/marks", data=json.dumps(body).encode(), method="POST")
    with contextlib.suppress(urllib.error.HTTPError):
        urllib.request.urlopen(request, timeout=60).close()


def rows(connection: psycopg.Connection, sql: str) -> Any:
    """Returns the rows of a statement, or its error."""
    try:
        return connection.execute(sql).fetchall()
    except psycopg.Error as error:
        return error.sqlstate


@pytest.mark.parametrize("seed", SEEDS)
def test_a_statement_sent_again_sees_the_store_as_it_is(tmp_path: pathlib.Path, seed: int) -> None:
    rng = random.Random(seed)
    server = Server(folder=tmp_path).start()
    number = 0

    def line(tags: str, second: float, *, more: str = "") -> str:
        nonlocal number
        number += 1
        return f"t{tags} x={rng.choice([1, 2.5, 7, -1])},n={number}i{more} {int((BEGIN + second) * SECOND)}"

    def in_order() -> list[str]:
        at = 10 * number
        return [line(rng.choice([",k=a", ",k=b"]), at + 10 * n) for n in range(rng.choice([1, 3, 40, 300]))]

    def late() -> list[str]:
        return [line(rng.choice([",k=a", ",k=b"]), rng.randrange(-600, 3_000)) for _ in range(rng.choice([1, 5]))]

    changes = {
        "rows in order": in_order,
        "late rows": late,
        "another stream": lambda: [line(",k=c", rng.randrange(6_000))],
        "a stream without the tag": lambda: [line("", rng.randrange(6_000))],
        "a wider channel": lambda: [line(",k=a", 60 * number, more=",y=1.5")],
        "many rows": lambda: [line(",k=b", 7 * number + n / 100) for n in range(3_000)],
        "far away": lambda: [line(",k=a", 10_000_000)],
    }
    assert server.write("\n".join(in_order())) == (204, None)
    try:
        for turn in range(14):
            name = rng.choice(list(changes))
            if turn % 5 == 4:
                assert server.stop() == 0
                server.start()
            elif turn % 5 == 2:
                start = BEGIN + rng.randrange(-100, 10 * number)
                end = (start + rng.choice([5, 500])) * SECOND
                mark(server, channel=rng.choice(["t.x{k=a}", "t.n{k=b}"]), start=start * SECOND, end=end)
            else:
                assert server.write("\n".join(changes[name]())) == (204, None)
            with server.connect() as connection:
                for marks in ("apply", "ignore"):
                    connection.execute(f"set strongback.marks = '{marks}'")
                    for sql in rng.sample(STATEMENTS, len(STATEMENTS)):
                        # A comment makes it another statement.
                        new = rows(connection, f"{sql} -- {seed} {turn} {marks}")
                        assert [rows(connection, sql), rows(connection, sql)] == [new, new], f"{name}: {sql}"
    finally:
        assert server.stop() == 0


def test_a_statement_runs_in_many_sessions_at_once(tmp_path: pathlib.Path) -> None:
    server = Server(folder=tmp_path).start()
    lines = [f"t,k={'ab'[n % 2]} x={n % 17},n={n}i {BEGIN * SECOND + n * SECOND}" for n in range(20_000)]
    assert server.write("\n".join(lines)) == (204, None)
    wanted = {}
    with server.connect() as connection:
        for sql in STATEMENTS:
            wanted[sql] = rows(connection, f"{sql} -- once")
    wrong: list[str] = []

    def ask(seed: int) -> None:
        rng = random.Random(seed)
        with server.connect() as connection:
            for _ in range(3):
                for sql in rng.sample(STATEMENTS, len(STATEMENTS)):
                    if rows(connection, sql) != wanted[sql]:
                        wrong.append(sql)
                    if rng.random() < 0.1:
                        # What is cancelled or not read to its end leaves nothing behind for the next run.
                        with connection.transaction(), connection.cursor(name="c") as cursor:
                            cursor.execute("select n from t order by n desc")
                            cursor.fetchmany(3)

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        list(threads.map(ask, range(4)))
    assert server.stop() == 0
    assert wrong == []
