"""A PostgreSQL server of its own for a test, in a temporary folder, without a port."""

from __future__ import annotations

import os
import pathlib
import pwd
import shutil
import subprocess
import tempfile
from typing import Any

import psycopg
import pytest
from strongback import TIMEOUT_S, eventually

USER = "postgres"


def programs() -> pathlib.Path:
    """Returns the folder of PostgreSQL's programs, or skips the test if it is not installed."""
    folders = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    found = [folder for folder in folders if (folder / "initdb").exists()]
    if not found and (place := shutil.which("initdb")):
        found = [pathlib.Path(place).parent]
    if not found:
        pytest.skip("PostgreSQL is not installed (on Debian: postgresql)")
    if os.getuid() == 0:
        try:
            pwd.getpwnam(USER)
        except KeyError:
            pytest.skip(f"PostgreSQL does not run as root, and there is no user {USER}")
    return found[-1]


class PrivatePostgres:
    """A server that is started with the block and stopped with it."""

    def __init__(self) -> None:
        self.programs = programs()
        # Not below the folder of the test, which other users cannot enter.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="strongback-postgres-"))
        self.as_user: dict[str, Any] = {}
        if os.getuid() == 0:
            shutil.chown(self.folder, USER, USER)
            self.as_user = {"user": USER, "group": USER, "extra_groups": []}
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> PrivatePostgres:
        data = self.folder / "data"
        initdb = [
            self.programs / "initdb",
            "-D",
            data,
            "-U",
            USER,
            "-A",
            "trust",
            "-N",
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
        ]
        subprocess.run(initdb, check=True, capture_output=True, timeout=TIMEOUT_S, cwd=self.folder, **self.as_user)
        return self.start()

    def start(self) -> PrivatePostgres:
        """Starts the server, again after it was killed, and waits until it answers."""
        data = self.folder / "data"
        command = [self.programs / "postgres", "-D", data, "-k", self.folder, "-F", "-c", "listen_addresses="]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, **self.as_user)
        eventually("PostgreSQL", self._answers)
        return self

    def kill(self) -> None:
        """SIGKILL of the server, whose own processes end with it."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def __exit__(self, *_: object) -> None:
        assert self.process is not None
        # Its fast shutdown.
        self.process.send_signal(2)
        try:
            self.process.wait(timeout=TIMEOUT_S)
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "log").read_text()[-3000:]
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def connect(self) -> psycopg.Connection[Any]:
        """A session of its superuser."""
        return psycopg.connect(host=str(self.folder), user=USER, dbname="postgres", autocommit=True)
