"""Stored frames are copied into a real Elasticsearch, each exactly once, whatever is killed."""

from __future__ import annotations

import json
import pathlib
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from archives import START, follower, send_while_killing, told
from peers import Peer
from strongback import Server, eventually


@pytest.fixture(scope="module")
def elasticsearch() -> Iterator[Peer]:
    with Peer("elasticsearch") as peer:
        yield peer


@pytest.fixture
def server(tmp_path: pathlib.Path, elasticsearch: Peer) -> Iterator[Server]:
    config = f"""
[[archive]]
name = "copy"
target = "elasticsearch"
url = "http://127.0.0.1:{elasticsearch.ports["http"]}"
interval_ms = 0
"""
    running = Server(folder=tmp_path, config=config).start()
    yield running
    running.stop()
    # The next test begins without indices.
    ask(elasticsearch, "DELETE", "/strongback-*")


def ask(elasticsearch: Peer, method: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    url = f"http://127.0.0.1:{elasticsearch.ports['http']}{path}"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method), timeout=30) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)
    except (urllib.error.URLError, OSError) as error:
        return {"error": str(error)}


def search(elasticsearch: Peer, index: str, body: Any) -> Any:
    ask(elasticsearch, "POST", f"/{index}/_refresh")
    return ask(elasticsearch, "POST", f"/{index}/_search", body)


def documents(elasticsearch: Peer, table: str, count: int) -> list[dict[str, Any]]:
    """Waits for a number of documents, and returns them by time and row."""

    def found() -> list[dict[str, Any]] | None:
        sort = [{"time_ns": "asc"}, {"strongback_row": "asc"}]
        answer = search(elasticsearch, f"strongback-{table}", {"size": 1000, "sort": sort})
        hits = [hit["_source"] for hit in answer.get("hits", {}).get("hits", [])]
        return hits if len(hits) == count else None

    return eventually(f"{count} documents of {table}", found)


def test_each_value_is_there_as_it_is_here(server: Server, elasticsearch: Peer) -> None:
    lines = [
        f'm,bay=no\\ rth f=0.1,i=-9223372036854775808i,b=t,s="a\\"\\\\\u00e9" {START + 1}',
        f"m,bay=no\\ rth f=1e300,i=9223372036854775807i,b=f,u=7u,x.y=1 {START + 2}",
    ]
    assert server.write("\n".join(lines)) == (204, None)
    first, second = documents(elasticsearch, "m", 2)
    received = server.sql("select receive_time_ns from m order by time_ns")
    expected = {
        "time": "2026-09-21T14:13:20.000000001Z",
        "time_ns": START + 1,
        "receive_time_ns": received[0][0],
        "source_time_ns": START + 1,
        "strongback_stream": first["strongback_stream"],
        "strongback_row": 0,
        "bay": "no rth",
        "f": 0.1,
        "i": -(2**63),
        "b": True,
        "s": 'a"\\\u00e9',
    }
    assert first == expected
    assert (second["f"], second["i"], second["b"], second["u"], second["x_y"]) == (1e300, 2**63 - 1, False, 7, 1.0)
    fields = ask(elasticsearch, "GET", "/strongback-m/_mapping")["strongback-m-1"]["mappings"]["properties"]
    types = {name: field["type"] for name, field in fields.items()}
    assert types["time"] == "date_nanos"
    assert [types[name] for name in ("bay", "f", "i", "b", "s", "x_y")] == [
        "keyword",
        "double",
        "long",
        "boolean",
        "keyword",
        "double",
    ]
    # Instants are found to the nanosecond.
    query = {"query": {"range": {"time": {"gt": "2026-09-21T14:13:20.000000001Z"}}}}
    assert search(elasticsearch, "strongback-m", query)["hits"]["total"]["value"] == 1


def test_an_index_grows_with_its_streams(server: Server, elasticsearch: Peer) -> None:
    assert server.write(f"g,x=1 a=1i {START}") == (204, None)
    documents(elasticsearch, "g", 1)
    assert server.write(f'g,y=2 a=2i,b=2.5 {START + 1}\ng x=7.5,a=1.5 {START + 2}\ng,z=3 a="t" {START + 3}') == (204, None)
    rows = [
        {name: value for name, value in row.items() if name[0] in "abxyz"} for row in documents(elasticsearch, "g", 4)
    ]
    assert rows == [
        {"x": "1", "a": 1},
        {"y": "2", "a": 2, "b": 2.5},
        {"x_f64": 7.5, "a_f64": 1.5},
        {"z": "3", "a_string": "t"},
    ]


def test_count_and_sum_are_equal_whatever_is_killed(server: Server, elasticsearch: Peer) -> None:
    # Many frames have the time of another one.
    sent = send_while_killing(server, elasticsearch, seed=4, frames_per_instant=3)
    sums = {"s": {"terms": {"field": "s"}, "aggs": {"sum": {"sum": {"field": "n"}}}}}
    expected = [(str(s), n, n * (n - 1) // 2) for s, n in enumerate(sent)]

    def are_equal() -> bool:
        found = search(elasticsearch, "strongback-k", {"size": 0, "aggs": sums}).get("aggregations")
        buckets = found["s"]["buckets"] if found else []
        return sorted((b["key"], b["doc_count"], int(b["sum"]["value"])) for b in buckets) == expected

    eventually("equal sums", are_equal)
    eventually("an archive that is up to date", lambda: follower(server)["behind_frames"] == 0)
    assert server.stop() == 0
    # Not even the position is there: all comes again, and nothing is doubled.
    for file in (server.folder / "store/followers").glob("copy.*position*"):
        file.unlink()
    server.start()
    eventually("all frames again", lambda: follower(server)["delivered_frames"] >= sum(sent))
    assert are_equal()


def test_an_index_that_somebody_changes(server: Server, elasticsearch: Peer) -> None:
    assert server.write(f"c n=1i {START}\nd n=1i {START}") == (204, None)
    documents(elasticsearch, "c", 1)
    # One that is deleted is made again, with its types.
    ask(elasticsearch, "DELETE", "/strongback-c-1")
    assert server.write(f"c n=2i {START + 1}") == (204, None)
    assert [row["n"] for row in documents(elasticsearch, "c", 1)] == [2]
    assert ask(elasticsearch, "GET", "/strongback-c/_mapping")["strongback-c-1"]["mappings"]["dynamic"] == "false"
    # One that takes nothing keeps all waiting, and nothing is lost.
    ask(elasticsearch, "PUT", "/strongback-c/_settings", {"index.blocks.write": True})
    assert server.write(f"c n=3i {START + 2}") == (204, None)
    told(server, "delivers nothing", "cluster_block_exception")
    ask(elasticsearch, "PUT", "/strongback-c/_settings", {"index.blocks.write": False})
    assert [row["n"] for row in documents(elasticsearch, "c", 2)] == [2, 3]


def test_values_that_it_cannot_hold_are_counted(server: Server, elasticsearch: Peer) -> None:
    lines = [f"v u=18446744073709551615u {START}", f"v u=1u {START + 1}", "v u=2u -5"]
    assert server.write("\n".join(lines)) == (204, None)
    assert [row.get("u") for row in documents(elasticsearch, "v", 2)] == [None, 1]
    eventually("a rejected frame", lambda: follower(server)["rejected_frames"] == 1)
    told(server, "leaves out row 2 of v", "before 1970")
    eventually("altered_values", lambda: follower(server)["altered_values"] == 1)
