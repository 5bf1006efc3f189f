# Elasticsearch, as a node within a small program: its jars are on Maven Central, its distribution is not.
# shellcheck shell=bash disable=SC2034,SC2154
version=7.17.28
ports="http transport"

fetch() {
  maven "$peers/elasticsearch-$version" "org.elasticsearch:elasticsearch:$version" \
    "org.elasticsearch.plugin:transport-netty4-client:$version"
}

start() {
  mkdir -p "$folder/config"
  # A source file as a program: java compiles it in memory.
  background "$(jdk)/bin/java" -Xmx768m -Des.set.netty.runtime.available.processors=false \
    --add-opens java.base/java.nio=ALL-UNNAMED -cp "$peers/elasticsearch-$version/*" \
    "$here/elasticsearch/Node.java" "$folder" "$http" "$transport"
  answers get "http://127.0.0.1:$http/"
}
