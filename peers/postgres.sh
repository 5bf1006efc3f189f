#!/usr/bin/env bash
# PostgreSQL (Debian), a private cluster on loopback: port 15455, user postgres, no password. Commits are synced.
. "$(dirname "$(readlink -f "$0")")/paths.sh"
home=$peers/postgres
running postgres && exit 0
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -1) || true
[ -x "${bin:-}/initdb" ] || absent "PostgreSQL is not installed (Debian package postgresql)"
mkdir -p "$home"
as=""
if [ "$(id -u)" = 0 ]; then
  # The server refuses to run as root.
  id postgres >/dev/null 2>&1 || absent "PostgreSQL needs a user postgres when started by root"
  case $home in /root/*) home=/var/tmp/strongback-postgres; mkdir -p "$home";; esac
  chown postgres "$home"
  as="su postgres -s /bin/bash -c"
fi
run() { if [ -n "$as" ]; then $as "$1"; else bash -c "$1"; fi; }
[ -f "$home/data/PG_VERSION" ] || run "$bin/initdb -D $home/data -A trust -U postgres -E UTF8 > $home/initdb.log" \
  || absent "PostgreSQL could not make its cluster"
run "$bin/pg_ctl -w -s -D $home/data -l $home/out.log \
  -o '-p 15455 -c listen_addresses=127.0.0.1 -c unix_socket_directories=$home -c shared_buffers=256MB' start" \
  || absent "PostgreSQL did not start"
mkdir -p "$peers/postgres"
head -1 "$home/data/postmaster.pid" > "$peers/postgres/pid"
