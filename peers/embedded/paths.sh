# Where the rivals of `bench embedded` live. Sourced by their recipes.
set -euo pipefail
peers=${PEERS_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/strongback-peers}
mkdir -p "$peers"

# absent WHAT: the server cannot be had here; the benchmark prints the reason and goes on without it.
absent() { echo "$1" >&2; exit 2; }
