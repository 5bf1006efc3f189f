"""Starts the real binary and talks to it: the only way these tests know the server."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import random
import resource
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import psycopg

BINARY = os.environ.get("STRONGBACK", "")
CACHE = pathlib.Path(
    os.environ.get("STRONGBACK_CACHE")
    or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "strongback"
)
TIMEOUT_S = 60.0


given_ports: set[int] = set()
"""Ports that tests were given."""


def free_ports(*, count: int) -> list[int]:
    """Ports that nobody has, for TCP and for UDP, all different, and none twice in a run.

    They lie below those that the system hands out by itself, so that no connection takes one before its server does.
    """
    low = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports: list[int] = []
    for port in random.sample(sorted(set(range(10_000, max(low, 20_000))) - given_ports), k=1_000):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.bind(("127.0.0.1", port))
            ports.append(port)
            given_ports.add(port)
        if len(ports) == count:
            return ports
    raise AssertionError("hardly a port is free")


def eventually(what: str, condition: Callable[[], Any], *, timeout_s: float = TIMEOUT_S) -> Any:
    """The first true value of `condition`, asked again until `timeout_s` is over."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {timeout_s} s; last seen {value!r}")
        time.sleep(0.01)


class Server:
    """One server on one folder; it can be killed and started again at the same addresses."""

    def __init__(self, *, folder: pathlib.Path, config: str = "", file_bytes_max: int | None = None) -> None:
        self.folder = folder
        self.file_bytes_max = file_bytes_max
        self.http_port, self.ilp_port, self.pg_port, self.flight_port = free_ports(count=4)
        self.url = f"http://127.0.0.1:{self.http_port}"
        self.log = folder / "server.log"
        self.config = folder / "strongback.toml"
        if config:
            self.config.write_text(config)
        self.headers: dict[str, str] = {}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *, headers: dict[str, str] | None = None) -> Server:
        """Starts it and waits until it is healthy; `headers` go with each later request."""
        self.headers = headers or {}
        command = [BINARY, "serve", "--data", str(self.folder / "store")]
        if self.config.exists():
            command += ["--config", str(self.config)]
        ports = {"http": self.http_port, "ilp": self.ilp_port, "pg": self.pg_port, "flight": self.flight_port}
        for name, port in ports.items():
            command += [f"--{name}", f"127.0.0.1:{port}"]
        # Beyond a limit of files a write is to fail as on a full disk, and not to end the process by a signal.
        limited: dict[str, Any] = {"preexec_fn": self._limit_files, "restore_signals": False} if self.file_bytes_max else {}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, **limited)
        eventually("a healthy server", self._healthy)
        return self

    def _limit_files(self) -> None:
        assert self.file_bytes_max is not None
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.file_bytes_max, resource.RLIM_INFINITY))

    def limit_files(self, file_bytes_max: int = resource.RLIM_INFINITY) -> None:
        """Sets another limit of files, or none. It must have been started with one."""
        assert self.process is not None
        assert self.file_bytes_max is not None
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (file_bytes_max, resource.RLIM_INFINITY))

    def _healthy(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"the server ended: {self.last_words()}"
        try:
            return self.get("/api/health")["status"] == "pass"
        except (urllib.error.URLError, OSError):
            return False

    def kill(self) -> None:
        """SIGKILL: what is not on the disk is gone."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=TIMEOUT_S)

    def last_words(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-3000:]

    def get(self, path: str) -> Any:
        """JSON of a GET."""
        request = urllib.request.Request(self.url + path, headers=self.headers)
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return json.load(answer)

    def write(self, lines: str | bytes, *, path: str = "/api/v2/write?precision=ns") -> tuple[int, Any]:
        """Status and JSON of a line-protocol write."""
        body = lines.encode() if isinstance(lines, str) else lines
        request = urllib.request.Request(self.url + path, data=body, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                return answer.status, None
        except urllib.error.HTTPError as refused:
            return refused.code, json.load(refused)

    def connect(self) -> psycopg.Connection[Any]:
        """A PostgreSQL session."""
        return psycopg.connect(
            host="127.0.0.1", port=self.pg_port, user="test", dbname="strongback", autocommit=True
        )

    def sql(self, query: str, *arguments: Any) -> list[tuple[Any, ...]]:
        """Rows of a query over the PostgreSQL wire."""
        with self.connect() as connection:
            return connection.execute(query, arguments or None).fetchall()

    def rows_of(self, table: str) -> int:
        """Rows of a table, 0 if there is none yet."""
        try:
            return self.sql(f'select count(*) from "{table}"')[0][0]
        except psycopg.errors.UndefinedTable:
            return 0
