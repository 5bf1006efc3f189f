"""What the tests of archives ask of a server."""

from __future__ import annotations

from typing import Any

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
