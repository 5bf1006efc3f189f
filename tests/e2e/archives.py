"""What the tests of archives ask of a server."""

from __future__ import annotations

import random
from typing import Any, Protocol

from strongback import Server, eventually

START = 1_790_000_000_000_000_000


def follower(server: Server, name: str = "copy") -> dict[str, Any]:
    """State and counters of an archive."""
    (found,) = (one for one in server.get("/api/followers")["followers"] if one["name"] == name)
    return found


def told(server: Server, *words: str) -> None:
    """Waits for an event of the archives with some words."""
    events = "select text from strongback.events where source = 'archive'"
    eventually(f"an event {words}", lambda: any(all(word in text for word in words) for (text,) in server.sql(events)))


class Killable(Protocol):
    """The server of an archive."""

    def kill(self) -> None: ...

    def start(self) -> object: ...


def send_while_killing(
    server: Server, target: Killable, *, seed: int, rounds: int = 1, frames_per_instant: int = 1
) -> list[int]:
    """Writes the frames `k,s=STREAM n=0i`, `n=1i`, … of three streams while the server, the target and both are killed.

    Returns the number of frames of each stream.
    """
    rng = random.Random(seed)
    sent = [0, 0, 0]
    for _ in range(rounds):
        for victim in ("server", "target", "nobody", "both"):
            for _ in range(20):
                stream = rng.randrange(3)
                values = range(sent[stream], sent[stream] + rng.randrange(1, 300))
                lines = [f"k,s={stream} n={n}i {START + n // frames_per_instant}" for n in values]
                assert server.write("\n".join(lines)) == (204, None)
                sent[stream] = values.stop
            if victim in ("target", "both"):
                target.kill()
            if victim in ("server", "both"):
                server.kill()
                server.start()
            if victim == "both":
                # The target is back later.
                eventually("an attempt that failed", lambda: follower(server)["failed_attempts"] > 0)
            if victim in ("target", "both"):
                target.start()
    return sent
