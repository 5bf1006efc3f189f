#!/usr/bin/env bash
# The C interface: builds clients/c/examples/record.c against the library, runs it in a folder, in a file of a fixed size
# and in memory, and under valgrind. The library is built as users do it, without what the tests of other crates add to the store.
set -euo pipefail
. "$(dirname "$0")/environment.sh"
cd "$root"

target=${CARGO_TARGET_DIR:-$root/target}
cargo build --locked --quiet -p strongback-store-c
# What fits a small machine compiles, too.
cargo check --locked --quiet -p strongback-store-c --no-default-features
work=$(mktemp -d "${TMPDIR:-/tmp}/strongback-c.XXXXXX")
trap 'rm -rf "$work"' EXIT
flags=(-std=c11 -O1 -g -Wall -Wextra -Werror -Iclients/c/include clients/c/examples/record.c)

cc "${flags[@]}" -o "$work/record" "$target/debug/libstrongback_store.a" -lpthread -ldl -lm
cc "${flags[@]}" -o "$work/record-shared" -L"$target/debug" -lstrongback_store -lm -Wl,-rpath,"$target/debug"
"$work/record" "$work/folder"
"$work/record" "$work/file" 16777216
[ "$(stat -c %s "$work/file")" = 16777216 ] || die "the file is not as long as it was made"
"$work/record"
"$work/record-shared" "$work/shared"

if (debian_package valgrind valgrind); then
  for arguments in "$work/valgrind-folder" "$work/valgrind-file 16777216" ""; do
    # shellcheck disable=SC2086
    valgrind --quiet --error-exitcode=9 --leak-check=full --show-leak-kinds=definite,indirect,possible \
      --errors-for-leak-kinds=definite,indirect,possible "$work/record" $arguments ||
      die "valgrind, or the example under it, found something wrong"
  done
  say "valgrind: no error, no leak"
else
  say "SKIPPED: valgrind is not here and cannot be installed"
fi
