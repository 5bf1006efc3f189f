# PostgreSQL, as Debian has it: user postgres, no password. Commits are synced.
# shellcheck shell=bash disable=SC2034,SC2154
ports="postgres"

fetch() {
  programs=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
  [ -x "$programs/initdb" ] || die "PostgreSQL is not installed (on Debian: postgresql)"
}

start() {
  local data=$folder/data
  as=()
  if [ "$(id -u)" = 0 ]; then
    # The server refuses to run as root, and its user cannot enter root's folders.
    id postgres >/dev/null 2>&1 || die "PostgreSQL needs a user postgres when started by root"
    data=/var/tmp/strongback-peers$folder
    mkdir -p "$data"
    chown postgres "$data"
    as=(setpriv --reuid postgres --regid postgres --clear-groups)
  fi
  if [ ! -f "$folder/initdb.log" ]; then
    rm -rf "${data:?}"/*
    (cd / && "${as[@]}" "$programs/initdb" -D "$data" -A trust -U postgres -E UTF8) >"$folder/initdb.log" 2>&1 ||
      die "PostgreSQL could not make its folder; see $folder/initdb.log"
  fi
  background "${as[@]}" "$programs/postgres" -D "$data" -p "$postgres" -c listen_addresses=127.0.0.1 \
    -c "unix_socket_directories=$data" -c shared_buffers=256MB
  answers "$programs/pg_isready" -q -h 127.0.0.1 -p "$postgres"
}

# Its fast shutdown.
stop_signal=INT
