"""Real clients write each row exactly once: in good times, with a bad line in the batch, with the answer lost."""

from __future__ import annotations

import os
import pathlib
import socket
import subprocess
import time
from collections.abc import Iterator

import influxdb_client
import pytest
import questdb
import strongback
from cutting_proxy import CuttingProxy
from influxdb_client.client.write_api import SYNCHRONOUS
from influxdb_client.client.write.retry import WritesRetry
from strongback import Server, eventually

ROWS = 500
TELEGRAF = strongback.CACHE / "telegraf-v1.37.2"
# a time of our own, so that rows can be told apart and retried rows are equal
BEGIN_NS = 1_760_000_000_000_000_000


def expected() -> list[tuple[int, str, float, int]]:
    """Rows every client here writes: time, tag, float, integer."""
    return [(BEGIN_NS + i * 1_000_000, f"s{i % 3}", i / 8, i - 250) for i in range(ROWS)]


def stored(server: Server, table: str) -> list[tuple[int, str, float, int]]:
    """The same rows read back."""
    return server.sql(f'select time_ns, sensor, pressure, count from "{table}" order by time_ns')


def write_questdb(*, conf: str, table: str) -> None:
    """Writes `expected()` with the QuestDB client."""
    with questdb.Sender.from_conf(conf) as sender:
        for at, sensor, pressure, count in expected():
            sender.row(
                table,
                symbols={"sensor": sensor},
                columns={"pressure": pressure, "count": count},
                at=questdb.TimestampNanos(at),
            )
        sender.flush()


def lines(*, table: str) -> list[str]:
    """`expected()` in line protocol."""
    return [f"{table},sensor={s} pressure={p},count={c}i {at}" for at, s, p, c in expected()]


def influxdb(*, port: int, seconds: float = 60) -> influxdb_client.InfluxDBClient:
    """An InfluxDB client that retries for some time."""
    return influxdb_client.InfluxDBClient(
        url=f"http://127.0.0.1:{port}",
        token="any",
        org="any",
        retries=WritesRetry(
            total=100, retry_interval=0.05, max_retry_delay=0.5, max_retry_time=seconds, allowed_methods=["POST"]
        ),
    )


def write_influxdb(*, port: int, table: str) -> None:
    """Writes `expected()` with the InfluxDB client."""
    with influxdb(port=port) as client:
        client.write_api(write_options=SYNCHRONOUS).write(bucket="any", record=lines(table=table))


class Telegraf:
    """Telegraf that reads a file and writes to a port until it is stopped."""

    def __init__(self, *, folder: pathlib.Path, port: int, output: str, content: list[str]) -> None:
        if not os.access(TELEGRAF, os.X_OK):
            pytest.skip(f"{TELEGRAF} was not built: no Go compiler")
        source = folder / "metrics.txt"
        source.write_text("\n".join(content) + "\n")
        target = {
            "influxdb_v2": f'urls = ["http://127.0.0.1:{port}"]\n token = "any"\n organization = "any"\n bucket = "any"',
            "influxdb": f'urls = ["http://127.0.0.1:{port}"]\n database = "any"',
        }[output]
        config = folder / "telegraf.conf"
        config.write_text(
            f"""
[agent]
 interval = "1h"
 round_interval = false
 flush_interval = "200ms"
 precision = "1ns"
 metric_batch_size = {2 * ROWS}
 metric_buffer_limit = {20 * ROWS}
 omit_hostname = true
 debug = true
[[inputs.file]]
 files = ["{source}"]
 data_format = "influx"
[[outputs.{output}]]
 {target}
"""
        )
        self.log = folder / "telegraf.log"
        self.config = config

    def __enter__(self) -> Telegraf:
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([TELEGRAF, "--config", self.config], stdout=log, stderr=log)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()

    def words(self) -> str:
        """Its log so far."""
        return self.log.read_text(errors="replace")


@pytest.mark.parametrize("scheme", ["http", "tcp"])
def test_questdb_client(server: Server, scheme: str) -> None:
    port = server.http_port if scheme == "http" else server.ilp_port
    write_questdb(conf=f"{scheme}::addr=127.0.0.1:{port};protocol_version=1;", table="quest")
    eventually("all rows", lambda: server.rows_of("quest") >= ROWS)
    assert stored(server, "quest") == expected()


def test_questdb_client_asks_for_the_protocol_itself(server: Server) -> None:
    write_questdb(conf=f"http::addr=127.0.0.1:{server.http_port};", table="quest")
    assert stored(server, "quest") == expected()


def test_questdb_client_is_told_of_a_refused_row(server: Server) -> None:
    with questdb.Sender.from_conf(f"http::addr=127.0.0.1:{server.http_port};auto_flush=off;") as sender:
        for i, table in enumerate(["good", "strongback.gaps", "good"]):
            sender.row(table, columns={"v": i}, at=questdb.TimestampNanos(BEGIN_NS + i))
        with pytest.raises(questdb.QuestDBError, match="partial write"):
            sender.flush()
    assert server.sql("select v from good order by time_ns") == [(0,), (2,)]


def test_influxdb_client(server: Server) -> None:
    write_influxdb(port=server.http_port, table="influx")
    assert stored(server, "influx") == expected()
    with influxdb(port=server.http_port) as client:
        assert client.ping()


def test_influxdb_client_with_a_bad_line(server: Server) -> None:
    batch = lines(table="influx")
    batch.insert(100, "influx,sensor=s1 pressure=not-a-number 17")
    with influxdb(port=server.http_port) as client:
        api = client.write_api(write_options=SYNCHRONOUS)
        with pytest.raises(influxdb_client.rest.ApiException, match="partial write") as refused:
            api.write(bucket="any", record=batch)
        assert refused.value.status == 400
    assert stored(server, "influx") == expected()


def test_influxdb_client_with_gzip(server: Server) -> None:
    with influxdb_client.InfluxDBClient(url=server.url, token="any", org="any", enable_gzip=True) as client:
        client.write_api(write_options=SYNCHRONOUS).write(bucket="any", record=lines(table="influx"))
    assert stored(server, "influx") == expected()


@pytest.mark.parametrize("output", ["influxdb_v2", "influxdb"])
def test_telegraf(server: Server, tmp_path: pathlib.Path, output: str) -> None:
    with Telegraf(folder=tmp_path, port=server.http_port, output=output, content=lines(table="tele")):
        eventually("all rows", lambda: server.rows_of("tele") >= ROWS)
    assert stored(server, "tele") == expected()


@pytest.mark.parametrize("output", ["influxdb_v2", "influxdb"])
def test_telegraf_with_a_bad_line(server: Server, tmp_path: pathlib.Path, output: str) -> None:
    content = lines(table="tele")
    # a measurement that Telegraf takes and the server refuses
    content.insert(100, f"strongback.gaps count=1i {BEGIN_NS}")
    with Telegraf(folder=tmp_path, port=server.http_port, output=output, content=content) as telegraf:
        eventually("all good rows", lambda: server.rows_of("tele") >= ROWS)
        # it gives the batch up instead of sending it for ever
        eventually("an emptied buffer", lambda: "partial write" in telegraf.words())
        eventually("an emptied buffer", lambda: "Buffer fullness: 0 /" in telegraf.words().rpartition("partial write")[2])
    assert stored(server, "tele") == expected()


@pytest.fixture(params=[True, False], ids=["after the commit", "at once"])
def proxy(request: pytest.FixtureRequest, server: Server) -> Iterator[CuttingProxy]:
    """A way to the server on which the first write's answer is lost, because the server is killed."""

    def crash() -> None:
        server.kill()
        server.start()

    with CuttingProxy(upstream_port=server.http_port, wait_for_answer=request.param, cut=crash) as cutting:
        yield cutting


def was_retried(proxy: CuttingProxy) -> bool:
    return proxy.cuts == 1 and proxy.writes >= 2


def test_questdb_client_when_the_server_dies_before_its_answer(server: Server, proxy: CuttingProxy) -> None:
    conf = f"http::addr=127.0.0.1:{proxy.port};protocol_version=1;auto_flush=off;retry_timeout=60000;"
    try:
        write_questdb(conf=conf, table="quest")
    except questdb.QuestDBError:
        # a lost answer is an error to this client: its application sends the rows again
        write_questdb(conf=conf, table="quest")
    assert was_retried(proxy)
    assert stored(server, "quest") == expected()


def test_influxdb_client_when_the_server_dies_before_its_answer(server: Server, proxy: CuttingProxy) -> None:
    write_influxdb(port=proxy.port, table="influx")
    assert was_retried(proxy)
    assert stored(server, "influx") == expected()


@pytest.mark.parametrize("output", ["influxdb_v2", "influxdb"])
def test_telegraf_when_the_server_dies_before_its_answer(
    server: Server, proxy: CuttingProxy, tmp_path: pathlib.Path, output: str
) -> None:
    with Telegraf(folder=tmp_path, port=proxy.port, output=output, content=lines(table="tele")) as telegraf:
        eventually("a second write", lambda: was_retried(proxy))
        eventually("all rows", lambda: server.rows_of("tele") >= ROWS)
        eventually("an emptied buffer", lambda: "Buffer fullness: 0 /" in telegraf.words().rpartition("Wrote batch")[2])
    assert stored(server, "tele") == expected()


def test_lines_over_tcp_with_a_bad_one_keep_the_connection(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.ilp_port)) as connection:
        for part in (lines(table="tcp")[:10], ["broken line without fields"], lines(table="tcp")[10:]):
            connection.sendall(("\n".join(part) + "\n").encode())
        eventually("all rows", lambda: server.rows_of("tcp") >= ROWS)
    assert stored(server, "tcp") == expected()


def test_rows_without_time_get_the_receive_time(server: Server) -> None:
    before = time.time_ns()
    assert server.write("clock v=1i") == (204, None)
    after = time.time_ns()
    [(at, received, source)] = server.sql("select time_ns, receive_time_ns, source_time_ns from clock")
    assert before <= at <= after
    assert at == received
    assert source is None
