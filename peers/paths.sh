# Where the real servers of the benchmarks live, and waiting for them. Sourced by the recipes.
set -euo pipefail
peers=${PEERS_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/strongback-peers}
mkdir -p "$peers"

# absent WHAT: the server cannot be had here; the benchmark prints the reason and goes on without it.
absent() { echo "$1" >&2; exit 2; }

# running NAME: whether a recipe's server is still there.
running() { [ -f "$peers/$1/pid" ] && kill -0 "$(cat "$peers/$1/pid")" 2>/dev/null; }

# wait_port PORT NAME: until the port answers, at most two minutes.
wait_port() {
  for _ in $(seq 1200); do
    if (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then return 0; fi
    running "$2" || absent "$2 ended at its start: $(tail -1 "$peers/$2/out.log")"
    sleep 0.1
  done
  absent "$2 does not answer on port $1"
}
