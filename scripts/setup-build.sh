#!/usr/bin/env bash
# What a build needs: a Rust toolchain, a C compiler (the codecs of Parquet; SQLite, for the benchmarks), one of C++ and
# make (librdkafka), node and npm.
set -euo pipefail
. "$(dirname "$0")/environment.sh"

rust_wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$root/Cargo.toml")
have cargo || die "cargo is missing. Install Rust $rust_wanted or newer as its makers say (https://rustup.rs):
  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal -c clippy -c rustfmt"
rust_found=$(rustc --version | cut -d ' ' -f 2)
at_least "$rust_found" "$rust_wanted" ||
  die "rustc $rust_found is too old, $rust_wanted is needed: rustup update stable"
debian_package cc gcc libc6-dev
debian_package c++ g++
debian_package make make
debian_package node nodejs npm
debian_package npm npm
node_found=$(node --version | tr -d v)
at_least "$node_found" 20.0 || die "node $node_found is too old; the page's build needs node 20 or newer"
