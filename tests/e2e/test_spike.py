"""No spike is hidden: one value of one frame at 1 kHz is seen at 5 Hz, in a month's plot, and in an export."""

from __future__ import annotations

import csv
import io
import json
import threading
import time
import urllib.parse
import urllib.request
from typing import Any

import live_binary
import pyarrow.parquet
import pytest
from strongback import Server, eventually
from test_live import connect, next_message

MS = 1_000_000
S = 1_000 * MS
DAY = 86_400 * S
QUIET, SPIKE = 1.25, 98.75


def get(server: Server, path: str, **query: Any) -> bytes:
    with urllib.request.urlopen(f"{server.url}{path}?{urllib.parse.urlencode(query)}", timeout=120) as answer:
        return answer.read()


@pytest.mark.parametrize("protocol", [None, live_binary.PROTOCOL])
def test_a_spike_of_a_millisecond_is_in_a_view_of_five_a_second(server: Server, protocol: str | None) -> None:
    assert server.write(f"fast p={QUIET}\n") == (204, None)
    done = threading.Event()
    written: list[int] = []

    def feed() -> None:
        """A kilohertz, a block of frames each 20 ms; frame 1,500 is another."""
        begin, number = time.time_ns(), 0
        while not done.is_set():
            due = min((time.time_ns() - begin) // MS, number + 1_000)
            lines = [f"fast p={SPIKE if n == 1_500 else QUIET} {begin + n * MS}" for n in range(number, due)]
            if lines:
                assert server.write("\n".join(lines)) == (204, None)
            number = due
            written.append(number)
            done.wait(0.02)

    with connect(server, *([protocol] if protocol else [])) as live:
        live.send(json.dumps({"type": "subscribe", "id": 1, "channels": ["fast.p"], "max_rate_hz": 5}))
        next_message(live, "subscribed", form=str)
        feeder = threading.Thread(target=feed)
        feeder.start()
        try:
            spikes, values, updates = [], 0, 0
            while values < 3_000:
                update = next_message(live, "update", form=bytes if protocol else str)
                for window in update["streams"]:
                    for _, count, first, last, least, greatest, mean in window["channels"]:
                        updates, values = updates + 1, values + count
                        assert least == QUIET
                        if greatest != QUIET:
                            spikes.append((count, first, last, greatest, mean))
        finally:
            done.set()
            feeder.join()
    # One window of all has it, among the many values that it stands for.
    ((count, _, _, greatest, mean),) = spikes
    assert greatest == SPIKE
    assert mean == pytest.approx(QUIET + (SPIKE - QUIET) / count)
    assert count > 1 and updates < values / 10


def test_a_spike_of_a_millisecond_is_in_a_months_plot_and_in_every_export(server: Server) -> None:
    now = time.time_ns() // S * S
    begin = now - 30 * DAY
    spiked = now - 11 * DAY + 12_345 * MS
    # A month at a value each half minute; in it a minute at 1 kHz, of which one value is another.
    month = [begin + n * 30 * S for n in range(30 * 2_880)]
    minute = [now - 11 * DAY + 7 * MS + n * MS for n in range(60_000)]
    times = sorted({*month, *minute, spiked})
    for at in range(0, len(times), 20_000):
        lines = [f"slow p={SPIKE if t == spiked else QUIET} {t}" for t in times[at : at + 20_000]]
        assert server.write("\n".join(lines)) == (204, None)
    eventually("all rows", lambda: server.rows_of("slow") == len(times))

    span = {"channels": "slow.p", "from": str(begin), "to": str(now)}
    # What the page's plots ask for: about as many points as pixels.
    for points in (1_000, 300, 10):
        (series,) = json.loads(get(server, "/api/history", **span, points=points))["series"]
        buckets = series["buckets"]
        assert len(buckets) <= points + 1 and sum(bucket[1] for bucket in buckets) == len(times)
        (spike,) = [bucket for bucket in buckets if bucket[5] != QUIET]
        assert (spike[4], spike[5]) == (QUIET, SPIKE)
        # In the bucket where it belongs.
        later = [int(bucket[0]) for bucket in buckets if int(bucket[0]) > int(spike[0])]
        assert int(spike[0]) <= spiked and (not later or spiked < min(later))
    # What the page asks for when it subscribes with a history of the same span.
    with connect(server) as live:
        ask = {"type": "subscribe", "id": 1, "channels": ["slow.p"], "max_rate_hz": 5, "history_s": 31 * 86_400,
               "history_points": 1_000}  # fmt: skip
        live.send(json.dumps(ask))
        (series,) = next_message(live, "history", form=str)["series"]
        assert max(bucket[5] for bucket in series["buckets"]) == SPIKE

    rows = list(csv.reader(io.StringIO(get(server, "/api/export", **span, format="csv").decode())))
    column = next(i for i, name in enumerate(rows[0]) if name.startswith("slow.p") or name == "p")
    values = [float(row[column]) for row in rows[1:] if row[column].replace(".", "").isdigit()]
    assert (len(values), max(values), values.count(SPIKE)) == (len(times), SPIKE, 1)
    lines = get(server, "/api/export", **span, format="jsonl").decode()
    assert lines.count(f"{SPIKE}") == 1
    table = pyarrow.parquet.read_table(io.BytesIO(get(server, "/api/export", **span, format="parquet")))
    name = next(name for name in table.column_names if name == "p" or name.endswith(".p"))
    assert max(value for value in table[name].to_pylist() if value is not None) == SPIKE
    assert server.sql("select max(p), count(p) from slow") == [(SPIKE, len(times))]
