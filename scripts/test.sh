#!/usr/bin/env bash
# `make test`: every check of the project, cheapest first; stops at the first phase that fails. Ends with
# the table of phases and the line `N passed, N failed`. `make test-all` adds what needs another tool to be compiled.
set -uo pipefail
. "$(dirname "$0")/environment.sh"
cd "$root"

results=$(mktemp -d "${TMPDIR:-/tmp}/strongback-test.XXXXXX")
trap 'rm -rf "$results"' EXIT
summary=${STRONGBACK_SUMMARY:-$results/summary}
export RUST_BACKTRACE=1 CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-auto}
export STRONGBACK_CACHE=$cache

# phase NAME COMMAND…: runs it, notes seconds and outcome; the first failure ends the run.
phase() {
  local name=$1 begin=$SECONDS code=0
  shift
  printf '\n=== %s\n' "$name"
  RESULTS="$results/$name" "$@" 2>&1 | tee "$results/$name.log"
  code=${PIPESTATUS[0]}
  printf '%s\t%s\t%s\n' "$name" "$((SECONDS - begin))" "$code" >>"$results/phases"
  printf '=== %s: %s in %s s\n' "$name" "$([ "$code" = 0 ] && echo passed || echo "FAILED ($code)")" "$((SECONDS - begin))"
  [ "$code" = 0 ] || finish
}

finish() {
  python3 "$root/scripts/tally.py" "$results" | tee "$summary.part"
  local code=${PIPESTATUS[0]}
  mv "$summary.part" "$summary"
  exit "$code"
}

clippy() { cargo clippy --workspace --all-targets --locked --quiet -- -D warnings; }
licences() { python3 "$root/scripts/licences.py"; }
cargo_deny() { "$cache/cargo-deny-0.20.2/bin/cargo-deny" --log-level warn --all-features check licenses bans sources; }
rust_build() { cargo build --workspace --all-targets --locked; }
rust_tests() { cargo test --workspace --locked --no-fail-fast; }
web_build() { "$root/scripts/build-web.sh"; }
web_tests() {
  cd web && npm run --silent check &&
    npx vitest run --reporter=default --reporter=junit --outputFile.junit="$RESULTS.junit.xml"
}
page_tests() {
  cd web && npx vitest run --config vitest.e2e.config.ts \
    --reporter=default --reporter=junit --outputFile.junit="$RESULTS.junit.xml"
}
client_tests() {
  "$cache/python/bin/pytest" -q --durations=20 -o tmp_path_retention_policy=failed -o tmp_path_retention_count=1 \
    --junitxml="$RESULTS.junit.xml" tests/e2e
}
crash_test() {
  "$STRONGBACK" bench crash --rounds "${STRONGBACK_CRASH_ROUNDS:-5}"
}
fault_test() {
  "$STRONGBACK" bench faults --quick
}

printf 'Strongback tests: %s, %s, %s cores\n' "$(rustc --version 2>/dev/null)" "$(uname -sr)" "$(nproc)"
phase setup "$root/scripts/setup-test.sh"

# Outside the clone by default, so that a second clone does not compile everything again.
if [ -z "${CARGO_TARGET_DIR:-}" ]; then
  CARGO_TARGET_DIR=$cache/target-$(rustc --version | cut -d ' ' -f 2)
fi
[[ $CARGO_TARGET_DIR = /* ]] || CARGO_TARGET_DIR=$root/$CARGO_TARGET_DIR
export CARGO_TARGET_DIR
export STRONGBACK=$CARGO_TARGET_DIR/debug/strongback
say "builds in $CARGO_TARGET_DIR"
# Tests have the folder compiled in that they were built in, and cargo takes those of a clone elsewhere for this one's.
built_in=$CARGO_TARGET_DIR/built-in
if [ "$(cat "$built_in" 2>/dev/null)" != "$root" ]; then
  find "$root/crates" "$root/clients" -name '*.rs' -exec touch {} +
  mkdir -p "$CARGO_TARGET_DIR"
  printf '%s\n' "$root" >"$built_in"
fi

phase format cargo fmt --all --check
phase web-build web_build
phase web-tests web_tests
phase licences licences
[ -z "${STRONGBACK_TEST_ALL:-}" ] || phase cargo-deny cargo_deny
phase clippy clippy
phase rust-build rust_build
phase rust-tests rust_tests
phase c-client scripts/test-c.sh
phase clients client_tests
phase crash crash_test
phase faults fault_test
phase page page_tests
finish
