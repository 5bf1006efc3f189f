#!/usr/bin/env bash
# QuestDB 9.3.4 from Maven Central, on loopback: HTTP 19000, PostgreSQL wire 18812 (admin/quest), line protocol 19009.
. "$(dirname "$(readlink -f "$0")")/paths.sh"
home=$peers/questdb
running questdb && exit 0
java=$(ls -d /usr/lib/jvm/*17*/bin/java 2>/dev/null | head -1) || true
[ -x "${java:-}" ] || absent "QuestDB needs a JDK 17 in /usr/lib/jvm"
jar=$home/lib/questdb-9.3.4.jar
if [ ! -f "$jar" ]; then
  command -v mvn >/dev/null || absent "QuestDB needs Maven to be fetched"
  mkdir -p "$home"
  mvn -q -B -ntp dependency:copy -Dartifact=org.questdb:questdb:9.3.4 -DoutputDirectory="$home/lib" >&2 \
    || absent "QuestDB could not be fetched from Maven Central"
fi
rm -rf "$home/data"
mkdir -p "$home/data/conf"
# Visible soon after a write; nothing else differs from the defaults. It does not sync commits (cairo.commit.mode=nosync).
cat > "$home/data/conf/server.conf" <<CONF
http.bind.to=127.0.0.1:19000
http.min.net.bind.to=127.0.0.1:19003
pg.net.bind.to=127.0.0.1:18812
line.tcp.net.bind.to=127.0.0.1:19009
line.tcp.enabled=true
line.tcp.commit.interval.default=50
line.tcp.maintenance.job.interval=50
telemetry.enabled=false
CONF
QDB_LOG_LOG_DIR=$home/data/log nohup "$java" -XX:+UseParallelGC -Dout=/log.conf -Dcontainerized=false \
  -cp "$jar" io.questdb.ServerMain -d "$home/data" -n -f > "$home/out.log" 2>&1 &
echo $! > "$home/pid"
wait_port 18812 questdb
wait_port 19000 questdb
