#!/usr/bin/env bash
# prepare.sh: makes ready the embedded rivals that run in Java (H2, Derby, DuckDB, RocksDB), from Maven Central, and
# MariaDB, which they talk to, and prints the Java program, the class path and their versions, a line each. `bench embedded` runs them.
. "$(dirname "$(readlink -f "$0")")/paths.sh"
here=$(dirname "$(readlink -f "$0")")
home=$peers/embedded
java=$(ls -d /usr/lib/jvm/*17*/bin/java 2>/dev/null | head -1) || true
[ -x "${java:-}" ] && [ -x "$(dirname "$java")/javac" ] || absent "the embedded rivals need a JDK 17 in /usr/lib/jvm"
h2=2.4.240 derby=10.16.1.1 duckdb=1.4.1.0 rocksdb=10.2.1 connector=3.5.6
want="com.h2database:h2:$h2 org.apache.derby:derby:$derby org.apache.derby:derbyshared:$derby org.apache.derby:derbytools:$derby \
org.duckdb:duckdb_jdbc:$duckdb org.rocksdb:rocksdbjni:$rocksdb org.mariadb.jdbc:mariadb-java-client:$connector"
mkdir -p "$home/lib" "$home/classes"
for artifact in $want; do
  IFS=: read -r _ name version <<< "$artifact"
  [ -f "$home/lib/$name-$version.jar" ] && continue
  command -v mvn > /dev/null || absent "the embedded rivals need Maven to be fetched"
  echo "fetching $artifact" >&2
  mvn -q -B -ntp dependency:copy -Dartifact="$artifact" -DoutputDirectory="$home/lib" >&2 \
    || absent "$artifact could not be fetched from Maven Central"
done
"$(dirname "$java")/javac" -cp "$home/lib/*" -d "$home/classes" "$here/Feeder.java" >&2 \
  || absent "the feeder does not compile"
servers=
if mariadb=$("$here/mariadbd.sh" prepare); then servers=" innodb $mariadb aria $mariadb"; fi
echo "$java"
echo "$home/classes:$home/lib/*"
echo "h2 $h2 derby $derby duckdb $duckdb rocksdb $rocksdb$servers"
