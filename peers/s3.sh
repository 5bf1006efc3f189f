# S3 on a folder: S3Proxy, from Maven Central. A bucket is a folder in $folder/data.
# shellcheck shell=bash disable=SC2034,SC2154
version=4.1.0
ports="http"

# Maven would choose annotations that are older than what S3Proxy needs.
fetch() {
  maven "$peers/s3proxy-$version" "org.gaul:s3proxy:$version" com.fasterxml.jackson.core:jackson-annotations:2.21
}

start() {
  mkdir -p "$folder/data/lake"
  cat >"$folder/s3proxy.conf" <<END
s3proxy.endpoint=http://127.0.0.1:$http
s3proxy.authorization=aws-v2-or-v4
s3proxy.identity=strongback
s3proxy.credential=secret
jclouds.provider=filesystem-nio2
jclouds.filesystem.basedir=$folder/data
END
  background "$(jdk)/bin/java" -cp "$peers/s3proxy-$version/*" org.gaul.s3proxy.Main --properties "$folder/s3proxy.conf"
  answers listens "$http"
}

listens() { python3 -c 'import socket, sys; socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5).close()' "$1"; }
