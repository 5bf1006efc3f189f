#!/usr/bin/env bash
# The page: web/dist, which the binary embeds. Does nothing when dist is newer than every source.
set -euo pipefail
. "$(dirname "$0")/environment.sh"
cd "$root/web"

if [ ! -d node_modules ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
  say "page: npm ci"
  npm ci --no-audit --no-fund --loglevel=error >&2
fi
if [ ! -f dist/index.html ] ||
  [ -n "$(find . -path ./node_modules -prune -o -path ./dist -prune -o -path './test-results*' -prune \
    -o -type f -newer dist/index.html -print -quit)" ]; then
  say "page: npm run build"
  npm run --silent build >&2
fi
