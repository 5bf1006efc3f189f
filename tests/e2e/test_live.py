"""Live values as clients see them: over the WebSocket in JSON and in binary."""

from __future__ import annotations

import json
import pathlib
import time
from typing import Any

import live_binary
import pytest
import websockets.sync.client
from strongback import Server
from websockets.typing import Subprotocol

VECTORS = pathlib.Path(__file__).parents[2] / "crates/server/tests/data/live.json"
BASE = 1_780_000_000_000_000_000


def connect(server: Server, *protocols: str) -> websockets.sync.client.ClientConnection:
    """A WebSocket client that offers these subprotocols."""
    offered = [Subprotocol(p) for p in protocols] or None
    return websockets.sync.client.connect(f"ws://127.0.0.1:{server.http_port}/api/live", subprotocols=offered)


def next_message(live: websockets.sync.client.ClientConnection, kind: str, *, form: type) -> dict[str, Any]:
    """The next message of a kind, which must come as text or as bytes; others are passed over."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        data = live.recv(timeout=20)
        message = json.loads(data) if isinstance(data, str) else live_binary.read(data)
        if message is not None and message["type"] == kind:
            assert isinstance(data, form), f"{kind} as {type(data)}"
            return message
    raise AssertionError(f"no {kind}")


@pytest.mark.parametrize("vector", json.loads(VECTORS.read_text()), ids=lambda v: v["name"])
def test_the_reader_of_binary_messages_knows_the_vectors(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    assert live_binary.read(data) == vector["message"]
    for end in range(len(data)):
        try:
            # What a later version adds at its end may be missing.
            assert live_binary.read(data[:end]) == vector["message"]
        except live_binary.Damaged:
            pass


def test_binary_says_what_json_says(server: Server) -> None:
    truths = ("false", "true", "true", "false", "true")
    for i, go in enumerate(truths):
        line = f'all f={i}.125,i={i}i,u={2**63 + i}u,go={go},mode="S{i}" {BASE + i}'
        assert server.write(line) == (204, None)
    with connect(server) as plain, connect(server, "else.where", live_binary.PROTOCOL) as binary:
        assert (plain.subprotocol, binary.subprotocol) == (None, live_binary.PROTOCOL)
        for live in (plain, binary):
            ask = {"type": "subscribe", "id": 5, "channels": ["all.*"], "history_s": 1e9, "history_points": 3}
            live.send(json.dumps(ask))
            assert len(next_message(live, "subscribed", form=str)["channels"]) == 5
        told = [next_message(plain, "history", form=str), next_message(binary, "history", form=bytes)]
        # The grid of a history ends at the moment it was asked for, so buckets may differ by where they begin.
        for history in told:
            for series in history["series"]:
                series["buckets"] = [bucket[1:] for bucket in series["buckets"]]
        assert told[0] == told[1] and told[0]["rows"] and len(told[0]["series"]) == 5
        one = f'all f=0.1,i={-(2**63)}i,u={2**64 - 1}u,go=true,mode="µ" {BASE + 9}'
        assert server.write(one) == (204, None)
        told = [next_message(plain, "update", form=str), next_message(binary, "update", form=bytes)]
        for update in told:
            assert abs(int(update.pop("time")) - time.time_ns()) < 60 * 10**9
            # Whether the commit was over already when it was written.
            assert update["streams"][0].pop("committed") in ("5", "6")
        assert told[0] == told[1]
        [stream] = told[0]["streams"]
        assert (stream["from_row"], stream["to_row"], len(stream["channels"])) == ("5", "6", 5)
        assert {str(cell[3]) for cell in stream["channels"]} == {"0.1", str(-(2**63)), str(2**64 - 1), "True", "µ"}
        for live, form in ((plain, str), (binary, bytes)):
            assert next_message(live, "heartbeat", form=form)["store"] == "recording"
