# InfluxDB 1, as Debian has it. It syncs its write-ahead log before it answers.
# shellcheck shell=bash disable=SC2034,SC2154
ports="http backup"

fetch() { debian influxdb; }

start() {
  cat >"$folder/influxdb.conf" <<END
reporting-disabled = true
bind-address = "127.0.0.1:$backup"
[meta]
  dir = "$folder/meta"
[data]
  dir = "$folder/data"
  wal-dir = "$folder/wal"
[http]
  bind-address = "127.0.0.1:$http"
  log-enabled = false
  max-body-size = 0
[monitor]
  store-enabled = false
END
  background "$peers/influxdb/usr/bin/influxd" -config "$folder/influxdb.conf"
  answers get "http://127.0.0.1:$http/ping"
}
