#!/usr/bin/env bash
# Fuzzes targets one after the other: fuzz/run.sh SECONDS [TARGET…]; without names all of them. Ends with 1 if one crashed;
# what crashed it is in fuzz/artifacts.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:?seconds for each target}
shift
read -ra all <<<"$(sed -n 's|^path = "fuzz_targets/\(.*\)\.rs"|\1|p' Cargo.toml | tr '\n' ' ')"
[ $# -gt 0 ] && all=("$@")

# What `cargo fuzz` sets for coverage; all of it is stable. No sanitizer: the code is safe Rust.
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares"
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}
# A target names the platform, so that build scripts are built without these flags.
host=$(rustc -vV | sed -n 's/^host: //p')
cargo build --release --target "$host" --bins
binaries=$CARGO_TARGET_DIR/$host/release
crashed=0
for target in "${all[@]}"; do
  mkdir -p "corpus/$target" "artifacts/$target"
  "$binaries/$target" -max_total_time="$seconds" -max_len=65536 -rss_limit_mb=1024 -timeout=10 -print_final_stats=1 \
    -artifact_prefix="artifacts/$target/" "corpus/$target" 2>&1 | tail -n 400 >"artifacts/$target.log" || crashed=1
  awk -v t="$target" '/cov: /{for(i=1;i<=NF;i++){if($i=="cov:")c=$(i+1);if($i=="ft:")f=$(i+1)}}
    /number_of_executed_units/{n=$2} /SUMMARY: /{s=$0} END{printf "%-14s %12s executions, %6s edges, %7s features %s\n",t,n,c,f,s}' \
    "artifacts/$target.log"
done
exit $crashed
