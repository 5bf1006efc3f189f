#!/usr/bin/env bash
# mariadbd.sh prepare        makes MariaDB (Debian package mariadb-server-core) ready and prints its version
# mariadbd.sh run DIR PORT   a private server on the data in DIR, on loopback; it ends with the process that started it
# InnoDB syncs its log at each commit and keeps its doublewrite buffer, as its defaults are; no binary log.
. "$(dirname "$(readlink -f "$0")")/paths.sh"
home=$peers/mariadb
server=$(command -v mariadbd) || server=$home/package/usr/sbin/mariadbd
if [ "$server" = "$home/package/usr/sbin/mariadbd" ]; then
  export LD_LIBRARY_PATH=$home/package/usr/lib/x86_64-linux-gnu:$home/package/lib/x86_64-linux-gnu
  share="--basedir=$home/package/usr --lc-messages-dir=$home/package/usr/share/mysql"
fi
as=$(id -un)
case $1 in
  prepare)
    if [ ! -x "$server" ]; then
      # The packages are unpacked beside the data, not installed.
      mkdir -p "$home/package"
      (cd "$home" && apt-get download -qq mariadb-server-core mariadb-client-core libaio1 liburing2 libsnappy1v5 libnuma1 >&2 \
        && for package in ./*.deb; do dpkg -x "$package" package; done) \
        || absent "MariaDB is not installed and its Debian packages (mariadb-server-core and what it needs) cannot be had"
    fi
    version=$("$server" --version 2>/dev/null | sed 's/.*Ver \([0-9.]*\).*/\1/')
    [ -n "$version" ] || absent "MariaDB does not start: $("$server" --version 2>&1 | tail -1)"
    if [ ! -d "$home/template/mysql" ]; then
      rm -rf "$home/template"
      install=$(command -v mariadb-install-db) || install=$home/package/usr/bin/mariadb-install-db
      # shellcheck disable=SC2086
      "$install" --no-defaults ${share:-} --datadir="$home/template" --user="$as" --auth-root-authentication-method=normal \
        --skip-test-db > "$home/install.log" 2>&1 || absent "MariaDB could not make its tables: $(tail -1 "$home/install.log")"
    fi
    echo "$version"
    ;;
  run)
    [ -d "$2/mysql" ] || cp -a "$home/template/." "$2"
    # shellcheck disable=SC2086
    exec setpriv --pdeathsig KILL "$server" --no-defaults ${share:-} --user="$as" --datadir="$2" --socket="$2/socket" \
      --port="$3" --bind-address=127.0.0.1 --innodb-buffer-pool-size=1G --innodb-flush-log-at-trx-commit=1 \
      --max-allowed-packet=64M --skip-name-resolve --skip-networking=0 > "$2/out.log" 2>&1
    ;;
esac
