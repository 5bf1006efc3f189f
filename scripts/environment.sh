# Sourced by the other scripts: where things are, and the words they print.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${STRONGBACK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/strongback}
export PATH="$PATH:$HOME/.cargo/bin:/usr/local/go/bin"

say() { printf '%s\n' "$*" >&2; }
die() {
  say "error: $*"
  exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

# Runs a command as root, or says that it cannot.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif have sudo && sudo -n true 2>/dev/null; then
    sudo -n "$@"
  elif have sudo && [ -t 0 ]; then
    sudo "$@"
  else
    return 1
  fi
}

# debian_package COMMAND PACKAGE…: installs the packages if the command is missing.
debian_package() {
  local command=$1
  shift
  have "$command" && return 0
  have apt-get || die "$command is missing; install it (on Debian: $*)"
  say "installing $* (for $command)"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >&2 ||
    { as_root apt-get update -q >&2 &&
      as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >&2; } ||
    die "$command is missing and could not be installed; as root: apt-get install $*"
}

# at_least HAVE WANT: whether version HAVE is WANT or newer.
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }
