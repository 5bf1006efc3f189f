"""Other servers for a test, started by the recipes in peers/."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import tempfile

RECIPES = pathlib.Path(__file__).parents[2] / "peers/peer"
START_TIMEOUT_S = 300


class Peer:
    """A server that is started with the block and stopped with it. It can be killed, and started again at its ports."""

    def __init__(self, name: str, *, configuration: str = "") -> None:
        self.name = name
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"strongback-{name}-"))
        if configuration:
            (self.folder / "extra.conf").write_text(configuration)
        self.ports: dict[str, int] = {}

    def _recipe(self, *words: str) -> str:
        done = subprocess.run([RECIPES, *words], capture_output=True, text=True, timeout=START_TIMEOUT_S)
        assert done.returncode == 0, f"peer {' '.join(words)}: {done.stderr[-3000:]}"
        return done.stdout

    def start(self) -> None:
        lines = self._recipe("start", self.name, str(self.folder)).split()
        self.ports = {name: int(port) for name, port in (line.split("=") for line in lines)}

    def stop(self) -> None:
        self._recipe("stop", str(self.folder))

    def kill(self) -> None:
        self._recipe("kill", str(self.folder))

    def __enter__(self) -> Peer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
