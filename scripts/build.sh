#!/usr/bin/env bash
# `make build`: the page, then the release binary, then the link target/strongback to it. With `bench`, also the
# benchmarks beside it.
set -euo pipefail
. "$(dirname "$0")/environment.sh"
"$root/scripts/setup-build.sh"
"$root/scripts/build-web.sh"

cd "$root"
target=${CARGO_TARGET_DIR:-$root/target}
[[ $target = /* ]] || target=$root/$target
if [ ! -x "$target/release/strongback" ]; then
  say "First build: about 400 crates, about 15 minutes on two idle cores, 1.5 GB in $target. Later ones take seconds."
fi
binaries=(--bin strongback)
[ "${1:-}" != bench ] || binaries+=(--bin strongback-bench)
cargo build --release --locked "${binaries[@]}"
mkdir -p target
ln -sfn "$target/release/strongback" target/strongback
say "built: target/strongback ($(du -hL target/strongback | cut -f 1))"
