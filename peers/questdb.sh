# QuestDB, from Maven Central; its jar has the native code for Linux on x86-64.
# shellcheck shell=bash disable=SC2034,SC2154
version=9.3.4
ports="http postgres health line"

fetch() { maven "$peers/questdb-$version" "org.questdb:questdb:$version"; }

# Rows that come over TCP are visible soon after; nothing else differs from the defaults. Commits are not synced.
start() {
  mkdir -p "$folder/data/conf"
  cat >"$folder/data/conf/server.conf" <<END
http.bind.to=127.0.0.1:$http
http.min.net.bind.to=127.0.0.1:$health
pg.net.bind.to=127.0.0.1:$postgres
line.tcp.net.bind.to=127.0.0.1:$line
line.tcp.commit.interval.default=50
line.tcp.maintenance.job.interval=50
telemetry.enabled=false
END
  [ ! -f "$folder/extra.conf" ] || cat "$folder/extra.conf" >>"$folder/data/conf/server.conf"
  background "$(jdk)/bin/java" -XX:+UseParallelGC -cp "$peers/questdb-$version/*" -Dout=/log.conf -Dcontainerized=false \
    io.questdb.ServerMain -d "$folder/data" -n -f
  answers get "http://127.0.0.1:$http/exec?query=select%201"
}
