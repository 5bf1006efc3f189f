"""Statements that mean here what they mean in a real PostgreSQL, over the same rows."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from private_postgres import PrivatePostgres
from strongback import Server

START_NS = 1_763_600_000_000_000_000
DAY_NS = 86_400_000_000_000

# Rows of `t`, a day and a second apart: n, tag k, and m and s, which are not in all of them.
DAYS = [
    (1, "b", 1, "x"),
    (2, "a", 1, "x"),
    (3, "b", 1, None),
    (4, "a", None, None),
    (5, None, None, None),
    (6, None, None, None),
]

ALIKE: list[tuple[str, tuple[Any, ...]]] = [
    ("select n from (select n from t1 order by n desc offset 2) c order by n", ()),
    ("with c as (select n from t1 order by n desc offset 2) select n from c order by n", ()),
    ("select sum(n),count(*) from (select n from t1 order by time desc offset 2) c", ()),
    ("select sum(n) from (select n from t1 order by time desc, n desc offset 2) c", ()),
    ("select sum(n) from (select n from t1 order by time desc, n desc limit null offset 2) c", ()),
    ("select sum(n) from (select n from t1 order by time desc, n desc limit all offset 2) c", ()),
    ("select sum(n) from (select n from t1 order by time desc, n desc limit %s offset 2) c", (None,)),
    ("select sum(n) from (select n from t1 order by time desc, n desc limit %s offset %s) c", (None,3)),
    ("select distinct on (k) k, n from (select k, n from t1 order by n desc offset 2) c order by k, n", ()),
    ("select n from (select n from t1 order by n desc offset 2) c union all select 100 order by 1", ()),
    ("with a as (with b as (select n from t1 order by n desc offset 1) select n from b order by n offset 1) select sum(n) from a", ()),
    ("select n from (select n from t1 order by n desc) c limit 2", ()),
    ("select string_agg(n::text, ',') from (select n from t1 order by n desc) c", ()),
    ("select array_agg(n) from (select n from t1 order by n desc) c", ()),
    ("select n, row_number() over () from (select n from t1 order by n desc) c order by n", ()),
    ("select count(*) from t1 where n in (select n from t1 order by n desc offset 2)", ()),
    ("select count(*) from t1 where k in ('a','b') and k not in ('c',null)", ()),
    ("select count(*) from t1 where k = any(%s) and k <> all(%s)", (['a','b'],['c',None])),
    ("select k in ('a','b') and k not in ('c',null) from t1 where n = 1", ()),
    ("select count(*) from t1 where not (k not in ('a','b') or k in ('c',null))", ()),
    ("select count(*) from t1 where n in (1,2) and n not in (3,null)", ()),
    ("select -interval '1 day 2 h'", ()),
    ("select -interval '2 h 30 min'", ()),
    ("select -interval '02:30'", ()),
    ("select timestamptz '2024-01-01' + -interval '1 day 2 h'", ()),
    ("select - interval '-1 day 2 h'", ()),
    ("select count(*) from t where time > timestamptz '2025-11-24' + -interval '1 day 2 h'", ()),
    ("select count(*) from t where not (k,n) in (('a',2),('b',1))", ()),
    ("select count(*) from t where (k,m) = ('a',null)", ()),
    ("select count(*) from t a join t b on (a.k,a.m) = (b.k,b.m)", ()),
    ("select (1,null) = (1,null)", ()),
    ("select (null,null) is null, (1,null) is null, (1,null) is not null, (1,2) is not null", ()),
    ("select count(*) from t where (m,n) is null", ()),
    ("select count(*) from t where (m,k) is not null", ()),
    ("select n from t where (k,n) < ('b','3') order by n", ()),
    ("select n from t where (k,n) <= ('b',3) order by n", ()),
    ("select n from t where (m,n) >= (1,2) order by n", ()),
    ("select n from t where (m,n) <> (1,2) order by n", ()),
    ("select n from t where (time,n) > (timestamptz '2025-11-22', 3) order by n", ()),
    ("select n from t where (k,n) not in (('a',2),('b',1)) order by n", ()),
    ("select n from t where (m,n) in ((1,2),(null,4)) order by n", ()),
    ("select n from t where (m,n,k) = (1,3,'b') order by n", ()),
    ("select count(*) from t where not (s ~ '.*')", ()),
    ("select count(*) from t where (s ~ '.*') is null", ()),
    ("select count(*) from t where (s !~ '.*') is null", ()),
    ("select count(*) from t where s !~ '.*'", ()),
    ("select count(*) from t where (k ~* '.*') is null", ()),
    ("select count(*) from t where (k ~ %s) is null", ('.*',)),
    ("select count(*) from t where not (m < any(array[1,null]))", ()),
    ("select count(*) from t where (m < any(array[1,null])) is null", ()),
    ("select count(*) from t where m < any(array[5,null])", ()),
    ("select count(*) from t where not (m < any(%s))", ([1,None],)),
    ("select count(*) from t where not (m < any(%s::bigint[]))", ([1,None],)),
    ("select count(*) from t where (m > all(array[0,null])) is null", ()),
    ("select count(m # m), count(m) from t", ()),
    ("select extract(day from max(time)-min(time)), extract(hour from max(time)-min(time)) from t", ()),
    ("select (max(time)-min(time))::text from t", ()),
    ("select max(time)-min(time) from t", ()),
    ("select (timestamptz '2024-01-03 00:53:21' - timestamptz '2024-01-01')::text, (timestamptz '2024-01-01' - timestamptz '2024-01-03 00:53:21')::text", ()),
    ("select extract(epoch from max(time)-min(time)), extract(minute from max(time)-min(time)), extract(second from max(time)-min(time)) from t", ()),
    ("select max(time)-min(time) > %s from t", (datetime.timedelta(days=1),)),
    ("select max(time)-min(time) > interval '1 day 1 h' from t", ()),
    ("select interval '1:30.5', interval '  3  days  ', interval 'P1Y2M3DT4H5M6.5S', interval '-1-2'", ()),
    ("select '-1 day +2:03:04'::interval::text", ()),
    ("select count(*) from t where not (s like '%')", ()),
    ("select count(*) from t where (s like '%') is null", ()),
    ("select n from (select n, k from t1 order by n desc offset 2) c order by n", ()),
    ("select n from (select n + 1 as n from t1 order by k, n desc offset 2) c order by n", ()),
    ("select * from (select n from t1 order by n desc offset 1) a join (select n as m from t1 order by n offset 4) b on a.n = b.m order by 1", ()),
    ("select n from t1 order by n desc offset 4", ()),
    ("select n from (select n from t1 order by n desc limit 3) c order by n", ()),
    ("select n from t1 where n not in (select n from t1 order by n offset 1)", ()),
    ("select count(*) from t1 where k = any(%s)", (['a',None],)),
    ("select count(*) from t1 where k <> all(%s)", (['a','b'],)),
    ("select count(*) from t1 where not (k <> all(%s))", (['a','b'],)),
    ("select count(*) from t where 1 < any(array[m,null]) or 5 <= any(array[n, m])", ()),
    ("select count(*) from t where n <> any(array[1,null]), 1", ()),
    ("select count(*) from t where n > any('{1,2}')", ()),
    ("select count(*) from t where n > any('{1,2}'::bigint[])", ()),
    ("select max(time)-min(time) < interval '40 days', max(time)-min(time) = interval '5 days 5 seconds' from t", ()),
    ("select (k,n) = (k,n) from t order by n", ()),
    ("select count(*) from t where row(k,n) = row('a',2)", ()),
    ("select (1,2,3) < (1,2,4), (1,null) < (2,1), (1,null) < (1,2), (2,null) > (1,null)", ()),
    ("select count(*) from t where (n, n+1) in ((1,2),(3,4),(5,5))", ()),
    ("select - (n || ' hours')::interval from t where n = 2", ()),
    ("select n from (select n + 1 as n from t1 order by k limit 2) c order by n", ()),
    ("select n from (select n + 1 as n from t1 order by k, n limit 3 offset 2) c order by n", ()),
    ("select n from (select n + 1 as n from t1 order by k, n offset 3) c where n > 2 order by n", ()),
    ("with c as (select n from t1 order by n desc) select string_agg(n::text, ',') from c", ()),
    ("select k, array_agg(n) from (select k, n from t1 order by n desc) c group by k order by k", ()),
    ("select n from (select n from (select n from t1 order by k, n desc) a where n > 1) c limit 3", ()),
    ("select n from (select n from t1 order by time desc) c limit 2", ()),
    ("select n from (select n, time from t1 order by time desc) c where n < 6 limit 2", ()),
    ("select interval '+1 day'", ()),
    ("select interval '3 04:05:06'", ()),
    ("select interval '1-2'", ()),
    ("select interval 'P1D'", ()),
    ("select interval 'PT1H'", ()),
    ("select interval '1 h ago'", ()),
    ("select interval '@ 1 minute'", ()),
]


def time_ns(n: int, *, step_ns: int) -> int:
    """Returns the time of a row."""
    return START_NS + n * step_ns


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[psycopg.Connection[Any], psycopg.Connection[Any]]]:
    """Sessions of a server and of a PostgreSQL with the same rows."""
    server = Server(folder=tmp_path_factory.mktemp("beside")).start()
    days, seconds = [], []
    for n, k, m, s in DAYS:
        fields = ",".join([f"n={n}i"] + ([f"m={m}i"] if m else []) + ([f's="{s}"'] if s else []))
        days.append((time_ns(n, step_ns=DAY_NS + 1_000_000_000), f"t{f',k={k}' if k else ''} {fields}"))
        seconds.append((time_ns(n, step_ns=1_000_000_000), f"t1,k={'abc'[n % 3]} n={n}i"))
    assert server.write("\n".join(f"{line} {time}" for time, line in days + seconds)) == (204, None)
    with PrivatePostgres() as private, private.connect() as postgres, server.connect() as ours:
        for session in (postgres, ours):
            session.execute("set timezone to 'UTC'")
        postgres.execute("create table t (time timestamptz, n bigint, k text, m bigint, s text)")
        postgres.execute("create table t1 (time timestamptz, n bigint, k text)")
        at = "timestamptz 'epoch' + %s * interval '1 microsecond'"
        for (time, _), row in zip(days, DAYS, strict=True):
            postgres.execute(f"insert into t select {at}, %s, %s, %s, %s", (time // 1_000, *row))
        for (time, _), (n, *_) in zip(seconds, DAYS, strict=True):
            postgres.execute(f"insert into t1 select {at}, %s, %s", (time // 1_000, n, "abc"[n % 3]))
        yield ours, postgres
    assert server.stop() == 0


def outcome(session: psycopg.Connection[Any], sql: str, parameters: tuple[Any, ...]) -> Any:
    """Returns the rows of a statement, or the SQLSTATE with which it fails."""
    try:
        return session.execute(sql, parameters or None).fetchall()
    except psycopg.Error as error:
        return error.sqlstate


@pytest.mark.parametrize(("sql", "parameters"), ALIKE)
def test_it_means_the_same(both: Any, sql: str, parameters: tuple[Any, ...]) -> None:
    ours, postgres = both
    assert outcome(ours, sql, parameters) == outcome(postgres, sql, parameters)
