#!/usr/bin/env bash
# stop.sh NAME…: ends servers that the recipes started, by their recorded process ids, and waits for them.
. "$(dirname "$(readlink -f "$0")")/paths.sh"
for name in "$@"; do
  running "$name" || continue
  pid=$(cat "$peers/$name/pid")
  # PostgreSQL: SIGINT is its fast shutdown.
  if [ "$name" = postgres ]; then kill -INT "$pid"; else kill "$pid"; fi
  for _ in $(seq 200); do running "$name" || break; sleep 0.1; done
  rm -f "$peers/$name/pid"
done
