"""Stored frames become Parquet files in a folder and on S3, each frame exactly once, whatever is killed."""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow.fs
import pytest
from archives import START, follower, send_while_killing, told
from peers import Peer
from pyiceberg.catalog import load_catalog
from strongback import BINARY, Server, eventually

ROOT = pathlib.Path(__file__).parents[2]
DAY = 86_400_000_000_000


def config(url: str, more: str = "interval_ms = 0") -> str:
    return f"""
[[archive]]
name = "copy"
target = "lake"
url = "{url}"
{more}
"""


def on_s3(s3: Peer, folder: pathlib.Path) -> str:
    return (
        f'interval_ms = 0\npassword_file = "{folder}/secret"\n'
        'properties = { aws_access_key_id = "strongback", '
        f'aws_region = "us-east-1", aws_allow_http = "true", aws_endpoint = "http://127.0.0.1:{s3.ports["http"]}" }}\n'
    )


class Lake:
    """The files of a lake, as a reader of its log finds them."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    def commits(self) -> list[dict[str, Any]]:
        files = sorted(self.folder.glob("_strongback/commits/*.json"))
        commits = [json.loads(file.read_text()) for file in files]
        assert [commit["commit"] for commit in commits] == list(range(len(commits)))
        return commits

    def files(self, table: str) -> list[str]:
        found = []
        for commit in self.commits():
            for file in commit.get("files", []):
                content = (self.folder / file["path"]).read_bytes()
                assert hashlib.sha256(content).hexdigest() == file["sha256"]
                if file["table"] == table:
                    found.append(str(self.folder / file["path"]))
        return found

    def ask(self, query: str, table: str, *, files: list[str] | None = None) -> list[tuple[Any, ...]]:
        """Rows of a query over `lake`, the files of a table."""
        found = self.files(table) if files is None else files
        if not found:
            return []
        duckdb.sql("set timezone = 'UTC'")
        relation = duckdb.read_parquet(found, union_by_name=True)  # noqa: F841
        return duckdb.sql(query.replace("lake", "relation")).fetchall()

    def has(self, query: str, table: str, expected: list[tuple[Any, ...]]) -> None:
        eventually(f"{query} in the lake", lambda: self.ask(query, table) == expected or None)


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Iterator[Server]:
    running = Server(folder=tmp_path, config=config(f"file://{tmp_path}/lake")).start()
    yield running
    running.stop()


@pytest.fixture
def lake(server: Server) -> Lake:
    return Lake(server.folder / "lake")


def test_each_value_is_there_as_it_is_here(server: Server, lake: Lake) -> None:
    lines = [
        f'm\\ x,bay=no\\ rth,site=a f=0.1,i=-9223372036854775808i,b=t,s="a\\"\\\\\u00e9\n" {START}',
        f"m\\ x,bay=no\\ rth,site=a f=-0.0,i=9223372036854775807i,b=f {START + 1_001}",
        f'm\\ x,bay=south f=1e300,u=18446744073709551615u,s="" {START - DAY}',
        f"m\\ x f=5e-324 {START + DAY}",
    ]
    assert server.write("\n".join(lines)) == (204, None)
    lake.has("select count(*) from lake", "m x", [(4,)])
    columns = "time, time_ns, receive_time_ns, bay, site, f, i, b, s, u"
    ours = server.sql(f'select {columns} from "m x" order by time_ns')
    assert lake.ask(f"select {columns} from lake order by time_ns", "m x") == ours
    days = [file["day"] for commit in lake.commits() for file in commit["files"]]
    assert len(set(days)) == len(days) == 3


def test_a_table_grows_with_its_streams(server: Server, lake: Lake) -> None:
    assert server.write(f"g,x=1 a=1i {START}") == (204, None)
    lake.has("select a from lake", "g", [(1,)])
    lines = f"g,y=2 a=2i,b=2.5 {START}\ng A=7.5,a=1.5 {START}\ng,z=3 a=\"t\",b.c=t {START}"
    assert server.write(lines) == (204, None)
    lake.has("select count(*) from lake", "g", [(4,)])
    # DuckDB takes `a` and `A` for one, so the log says which column has what.
    names = {
        column["column"]: f'"{column["name"]}"'
        for commit in lake.commits()
        for column in commit.get("columns", {}).get("g", [])
    }
    query = f"select x, y, z, {', '.join(names[name] for name in ('a', 'a_f64', 'a_string', 'A'))}, b, b_c from lake"
    assert sorted(lake.ask(query, "g"), key=str) == sorted([
        ("1", None, None, 1, None, None, None, None, None),
        (None, "2", None, 2, None, None, None, 2.5, None),
        (None, None, None, None, 1.5, None, 7.5, None, None),
        (None, None, "3", None, None, "t", None, None, True),
    ], key=str)


def test_count_and_sum_are_equal_whatever_is_killed(server: Server, lake: Lake) -> None:
    sent = send_while_killing_server(server, seed=1)
    query = "select s, count(*), sum(n)::bigint, count(distinct strongback_row) from lake group by s order by s"
    expected = [(str(stream), n, n * (n - 1) // 2, n) for stream, n in enumerate(sent)]
    lake.has(query, "k", expected)
    # A reader of all files finds the same, as soon as nothing is being written.
    everything = [str(path) for path in lake.folder.glob("k/*/*.parquet")]
    assert lake.ask(query, "k", files=everything) == expected
    assert not list(lake.folder.glob("_strongback/writing/*"))


def send_while_killing_server(server: Server, *, seed: int) -> list[int]:
    """Like `send_while_killing`, without a target that could be killed."""
    sent = [0, 0, 0]
    for at in range(60):
        stream = (at * 7 + seed) % 3
        values = range(sent[stream], sent[stream] + 1 + at * 5)
        assert server.write("\n".join(f"k,s={stream} n={n}i {START + n}" for n in values)) == (204, None)
        sent[stream] = values.stop
        if at % 6 == 5:
            server.kill()
            server.start()
    return sent


def words(lake: Lake) -> list[str]:
    """Arguments of the tool."""
    given = ["register", f"file://{lake.folder}"]
    for key, value in catalog_of(lake).items():
        given += ["--catalog-property", f"{key}={value}"]
    return given


def register(lake: Lake, *, namespace: str = "strongback") -> subprocess.CompletedProcess[str]:
    """Registers the files in a catalog beside the lake."""
    command = [sys.executable, ROOT / "clients/lake/strongback_lake.py", *words(lake), "--namespace", namespace]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def catalog_of(lake: Lake) -> dict[str, str]:
    beside = lake.folder.parent
    return {"type": "sql", "uri": f"sqlite:///{beside}/catalog.db", "warehouse": f"file://{beside}/warehouse"}


def in_iceberg(lake: Lake, table: str) -> duckdb.DuckDBPyRelation:
    found = load_catalog("default", **catalog_of(lake)).load_table(f"strongback.{table}").scan().to_arrow()
    return duckdb.from_arrow(found)


def test_iceberg_tables_have_each_file_once(server: Server, lake: Lake) -> None:
    empty = register(Lake(lake.folder / "nothing"))
    assert (empty.returncode, empty.stdout) == (1, ""), empty
    assert "has no commit of a lake" in empty.stderr
    last = 0
    for part in range(4):
        lines = [f"m,s={n % 3} n={n}i {START + n * DAY // 1_000}" for n in range(part * 500, part * 500 + 500)]
        if part > 1:
            # Columns and tables that come later.
            lines += [f"m,s=9 n={part}.5 {START + part}", f"late{part},t=1 x={part} {START}"]
        assert server.write("\n".join(lines)) == (204, None)
        eventually("an archive that is up to date", lambda: follower(server)["behind_frames"] == 0)
        lake.has("select count(n) from lake", "m", [(part * 500 + 500,)])
        # A run that is killed anywhere, and two at once, do no harm.
        killed = subprocess.Popen(
            [sys.executable, "-c", f"import strongback_lake as s, sys; sys.exit(s.main({words(lake)!r}))"],
            cwd=ROOT / "clients/lake", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        with concurrent.futures.ThreadPoolExecutor() as both:
            first, second = both.map(lambda _: register(lake), range(2))
        killed.kill()
        killed.wait()
        again = register(lake)
        assert again.returncode == 0, (first, second, again)
        last = part
    assert register(lake).stdout == "nothing is new\n"
    m = in_iceberg(lake, "m")  # noqa: F841
    ours = server.sql("select s, count(*), sum(n)::bigint, count(n_f64), min(time_ns) from m group by s order by s")
    theirs = duckdb.sql("select s, count(*), sum(n)::bigint, count(n_f64), min(time_ns) from m group by s order by s")
    assert theirs.fetchall() == ours
    assert [row[0] for row in in_iceberg(lake, f"late{last}").project("x").fetchall()] == [float(last)]
    # A table that is somebody else's is left alone.
    other = register(lake, namespace="other")
    assert other.returncode == 0
    catalog = load_catalog("default", **catalog_of(lake))
    catalog.drop_table("other.m")
    assert server.write(f"m,s=1 n=1i {START + 7}") == (204, None)
    eventually("an archive that is up to date", lambda: follower(server)["behind_frames"] == 0)
    refused = register(lake, namespace="other")
    assert refused.returncode == 1 and "is not in other" in refused.stderr, refused


def test_frames_gather_and_are_written_at_once_when_asked(tmp_path: pathlib.Path) -> None:
    server = Server(folder=tmp_path, config=config(f"file://{tmp_path}/lake", more="")).start()
    lake = Lake(tmp_path / "lake")
    for value in range(3):
        assert server.write(f"w n={value}i") == (204, None)
    eventually("frames that gather", lambda: follower(server)["behind_frames"] == 3)
    assert (follower(server)["state"], follower(server)["gather_s"]) == ("following", 3600)
    assert not lake.commits()
    words = [BINARY, "archive", "resume", "copy", "--server", f"127.0.0.1:{server.http_port}"]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    lake.has("select count(*), sum(n) from lake", "w", [(3, 3)])
    assert len(lake.commits()) == 1
    assert server.stop() == 0


def test_a_lake_of_another_store_is_left_alone(server: Server, lake: Lake, tmp_path: pathlib.Path) -> None:
    assert server.write(f"m n=1i {START}") == (204, None)
    lake.has("select n from lake", "m", [(1,)])
    (tmp_path / "other").mkdir()
    other = Server(folder=tmp_path / "other", config=config(f"file://{lake.folder}")).start()
    assert other.write(f"m n=2i {START}") == (204, None)
    told(other, "another store")
    assert other.stop() == 0
    assert lake.ask("select n from lake", "m") == [(1,)]


def test_a_lake_on_s3_has_each_frame_once_whatever_is_killed(tmp_path: pathlib.Path) -> None:
    with Peer("s3") as s3:
        (tmp_path / "secret").write_text("secret\n")
        (tmp_path / "secret").chmod(0o600)
        server = Server(folder=tmp_path, config=config("s3://lake/some/pad", on_s3(s3, tmp_path))).start()
        sent = send_while_killing(server, s3, seed=2)
        objects = pyarrow.fs.S3FileSystem(
            access_key="strongback", secret_key="secret", endpoint_override=f"http://127.0.0.1:{s3.ports['http']}",
            region="us-east-1",
        )
        copy = tmp_path / "copy"

        def has_all() -> bool:
            pyarrow.fs.copy_files("lake/some/pad", str(copy), source_filesystem=objects)
            query = "select s, count(*), sum(n)::bigint, count(distinct strongback_row) from lake group by s order by s"
            expected = [(str(stream), n, n * (n - 1) // 2, n) for stream, n in enumerate(sent)]
            return Lake(copy).ask(query, "k") == expected

        eventually("all frames on S3", lambda: follower(server)["behind_frames"] == 0)
        assert has_all()
        assert server.stop() == 0
        # A wrong key is told, and nothing is lost.
        (tmp_path / "secret").write_text("wrong\n")
        server.start()
        assert server.write(f"k,s=0 n={sent[0]}i {START + sent[0]}") == (204, None)
        sent[0] += 1
        told(server, "delivers nothing")
        assert server.stop() == 0
        (tmp_path / "secret").write_text("secret\n")
        server.start()
        eventually("the last frame on S3", has_all)
        assert server.stop() == 0
