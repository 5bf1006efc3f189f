"""Stored frames are copied into a real Kafka, each exactly once, whatever is killed."""

from __future__ import annotations

import json
import pathlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from archives import START, follower, send_while_killing, told
from peers import Peer
from strongback import Server, eventually


@pytest.fixture(scope="module")
def kafka() -> Iterator[Peer]:
    with Peer("kafka") as peer:
        yield peer


def config(kafka: Peer, prefix: str, *, name: str = "copy", more: str = "") -> str:
    return f"""
[[archive]]
name = "{name}"
target = "kafka"
url = "kafka://127.0.0.1:{kafka.ports["broker"]}"
topic_prefix = "{prefix}."
interval_ms = 0
{more}
"""


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    return request.node.name


@pytest.fixture
def server(tmp_path: pathlib.Path, kafka: Peer, prefix: str) -> Iterator[Server]:
    running = Server(folder=tmp_path, config=config(kafka, prefix)).start()
    yield running
    running.stop()


class Topic:
    """What a consumer sees of a topic that reads committed messages alone."""

    def __init__(self, kafka: Peer, name: str) -> None:
        self.messages: list[confluent_kafka.Message] = []
        settings = {
            "bootstrap.servers": f"127.0.0.1:{kafka.ports['broker']}",
            "group.id": "test",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
        self.consumer = confluent_kafka.Consumer(settings)
        eventually(f"topic {name}", lambda: name in self.consumer.list_topics(timeout=10).topics)

        def found() -> Any:
            """Partitions, which a topic does not have yet in the moment when it is made."""
            topic = self.consumer.list_topics(name, timeout=10).topics[name]
            return topic.error is None and topic.partitions

        partitions = eventually(f"partitions of {name}", found)
        beginning = [
            confluent_kafka.TopicPartition(name, partition, confluent_kafka.OFFSET_BEGINNING) for partition in partitions
        ]
        self.consumer.assign(beginning)

    def has(self, count: int) -> list[dict[str, Any]]:
        """Waits for as many messages, and returns their contents."""

        def read() -> bool:
            for message in self.consumer.consume(10_000, timeout=0.2):
                if message.error() is None:
                    self.messages.append(message)
            return len(self.messages) >= count

        eventually(f"{count} messages", read)
        # None comes after them.
        for message in self.consumer.consume(10, timeout=0.5):
            assert message.error() is not None, message.value()
        assert len(self.messages) == count
        return [json.loads(message.value()) for message in self.messages]


def test_a_message_is_a_frame(server: Server, kafka: Peer, prefix: str) -> None:
    lines = [
        f'm,bay=no\\ rth f=0.1,i=-9223372036854775808i,b=t,s="a\\"\\\\\u00e9" {START}',
        f"m,bay=no\\ rth f=-0.0,u=18446744073709551615u {START + 1_000_000}",
    ]
    assert server.write("\n".join(lines)) == (204, None)
    topic = Topic(kafka, f"{prefix}.m")
    first, second = topic.has(2)
    times = server.sql("select receive_time_ns from m order by time_ns")
    assert first == {
        "time_ns": START,
        "receive_time_ns": times[0][0],
        "source_time_ns": START,
        "row": 0,
        "tags": {"bay": "no rth"},
        "values": {"f": 0.1, "i": -(2**63), "b": True, "s": 'a"\\\u00e9'},
    }
    assert second["values"] == {"f": -0.0, "u": 2**64 - 1}
    assert [message.key() for message in topic.messages] == [b"m{bay=no rth}"] * 2
    assert [message.timestamp()[1] for message in topic.messages] == [START // 10**6, START // 10**6 + 1]


def test_each_frame_is_there_once_whatever_is_killed(server: Server, kafka: Peer, prefix: str) -> None:
    sent = send_while_killing(server, kafka, seed=3)
    topic = Topic(kafka, f"{prefix}.k")
    messages = topic.has(sum(sent))
    for stream, count in enumerate(sent):
        # Each once, and in order.
        values = [message["values"]["n"] for message in messages if message["tags"] == {"s": str(stream)}]
        assert values == list(range(count))
    assert server.stop() == 0
    # The positions are in Kafka, so files here do not matter.
    for file in (server.folder / "store/followers").glob("copy.*position*"):
        file.unlink()
    server.start()
    assert server.write(f"k,s=0 n={sent[0]}i {START}") == (204, None)
    assert topic.has(sum(sent) + 1)[-1]["values"] == {"n": sent[0]}


def test_two_followers_of_one_name_are_told(server: Server, kafka: Peer, prefix: str) -> None:
    assert server.write(f"m n=0i {START}") == (204, None)
    topic = Topic(kafka, f"{prefix}.m")
    topic.has(1)
    # Positions are in a topic of this follower and store. Other tests have one, too.
    names = set(topic.consumer.list_topics(timeout=10).topics)
    origins = {name.removeprefix("strongback-positions-copy-") for name in names if "positions" in name}
    # What a second one would do as it begins.
    settings = {"bootstrap.servers": f"127.0.0.1:{kafka.ports['broker']}"}
    for n in range(1, 4):
        for origin in origins:
            name = f"strongback-copy-{origin}"
            confluent_kafka.Producer({**settings, "transactional.id": name}).init_transactions(30)
        assert server.write(f"m n={n}i {START + n}") == (204, None)
        assert topic.has(n + 1)[-1]["values"] == {"n": n}
    told(server, "delivers nothing", "another follower named")
    assert follower(server)["delivered_frames"] == 4


def test_a_message_that_is_too_large_is_left_out(tmp_path: pathlib.Path, kafka: Peer, prefix: str) -> None:
    properties = 'properties = { "message.max.bytes" = "2000" }'
    server = Server(folder=tmp_path, config=config(kafka, prefix, more=properties)).start()
    try:
        lines = f'm n=0i {START}\nm s="{"x" * 2_000}" {START + 1}\nm n=2i {START + 2}\nd n=1i {START}'
        assert server.write(lines) == (204, None)
        assert [message["values"] for message in Topic(kafka, f"{prefix}.m").has(2)] == [{"n": 0}, {"n": 2}]
        Topic(kafka, f"{prefix}.d").has(1)
        told(server, "leaves out row 1 of m", "message.max.bytes")
    finally:
        server.stop()


def test_a_deleted_topic_is_made_again(server: Server, kafka: Peer, prefix: str) -> None:
    assert server.write(f"m n=0i {START}\nd n=0i {START}") == (204, None)
    Topic(kafka, f"{prefix}.m").has(1)
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": f"127.0.0.1:{kafka.ports['broker']}"})
    admin.delete_topics([f"{prefix}.m"])[f"{prefix}.m"].result()
    eventually("no topic", lambda: f"{prefix}.m" not in admin.list_topics(timeout=10).topics)
    assert server.write(f"m n=1i {START + 1}\nd n=1i {START + 1}") == (204, None)
    assert [message["values"] for message in Topic(kafka, f"{prefix}.m").has(1)] == [{"n": 1}]
    Topic(kafka, f"{prefix}.d").has(2)


def test_what_is_no_kafka_is_told(tmp_path: pathlib.Path, kafka: Peer, prefix: str) -> None:
    wrong = Peer("kafka")
    wrong.ports = {"broker": 9}
    server = Server(folder=tmp_path, config=config(wrong, prefix)).start()
    try:
        assert server.write(f"m n=1i {START}") == (204, None)
        told(server, "delivers nothing", "127.0.0.1:9")
        assert follower(server)["state"] == "retrying"
        assert follower(server)["behind_frames"] == 1
    finally:
        server.stop()
