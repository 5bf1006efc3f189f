#!/usr/bin/env bash
# InfluxDB 1.6 (Debian package influxdb), on loopback: HTTP 18086. It syncs its write-ahead log before it answers.
. "$(dirname "$(readlink -f "$0")")/paths.sh"
home=$peers/influxdb
running influxdb && exit 0
influxd=$(command -v influxd) || influxd=$home/package/usr/bin/influxd
if [ ! -x "$influxd" ]; then
  # The package is unpacked beside its data, not installed.
  mkdir -p "$home/package"
  (cd "$home" && apt-get download -qq influxdb >&2 && dpkg -x influxdb_*.deb package) \
    || absent "InfluxDB is not installed and its Debian package (influxdb) cannot be had"
fi
rm -rf "$home/data" && mkdir -p "$home/data"
cat > "$home/influxdb.conf" <<CONF
reporting-disabled = true
bind-address = "127.0.0.1:18088"
[meta]
  dir = "$home/data/meta"
[data]
  dir = "$home/data/data"
  wal-dir = "$home/data/wal"
[http]
  bind-address = "127.0.0.1:18086"
  log-enabled = false
  max-body-size = 0
[monitor]
  store-enabled = false
CONF
nohup "$influxd" -config "$home/influxdb.conf" > "$home/out.log" 2>&1 &
echo $! > "$home/pid"
wait_port 18086 influxdb
