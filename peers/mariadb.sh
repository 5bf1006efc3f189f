# MariaDB, as Debian has it: user root, no password. Commits are synced.
# shellcheck shell=bash disable=SC2034,SC2154
ports="mysql"

PATH=$PATH:/usr/sbin
fetch() {
  debian_package mariadbd mariadb-server-core
  debian_package my_print_defaults mariadb-client-core
}

start() {
  local as=()
  # The server refuses to run as root unless it is told to.
  [ "$(id -u)" = 0 ] && as=(--user=root)
  if [ ! -d "$folder/data/mysql" ]; then
    rm -rf "$folder/data"
    mariadb-install-db --no-defaults "--datadir=$folder/data" --auth-root-authentication-method=normal \
      --skip-test-db "${as[@]}" >"$folder/install.log" 2>&1 ||
      die "MariaDB could not make its folder; see $folder/install.log"
  fi
  background mariadbd --no-defaults "${as[@]}" "--datadir=$folder/data" "--socket=$folder/socket" "--port=$mysql" \
    --bind-address=127.0.0.1 --innodb-buffer-pool-size=256M "--pid-file=$folder/mariadbd.pid"
  answers is_up
}

is_up() { python3 -c 'import socket, sys; print(socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5).recv(5)[4:])' "$mysql" | grep -q '\\n'; }
