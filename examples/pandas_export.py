"""Reads channels of a running server into pandas: python examples/pandas_export.py http://127.0.0.1:8080 'fti.*'"""

import io
import sys
import urllib.parse
import urllib.request

import pandas

server, pattern = sys.argv[1:3]
query = urllib.parse.urlencode({"from": "now-10m", "to": "now", "channels": pattern, "format": "parquet"})
with urllib.request.urlopen(f"{server}/api/export?{query}") as answer:
    frame = pandas.read_parquet(io.BytesIO(answer.read()))
print(frame.describe())
print(frame.tail())
