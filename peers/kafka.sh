# Kafka with one broker that is its own controller (KRaft), from Maven Central.
# shellcheck shell=bash disable=SC2034,SC2154
version=4.3.1
ports="broker controller"

fetch() {
  maven "$peers/kafka-$version" "org.apache.kafka:kafka_2.13:$version" "org.apache.kafka:kafka-tools:$version" \
    org.apache.logging.log4j:log4j-slf4j-impl:2.25.4
}

# A class of Kafka, such as org.apache.kafka.tools.ProducerPerformance.
tool() { "$(jdk)/bin/java" -cp "$peers/kafka-$version/*" "$@"; }

start() {
  local java jars
  java=$(jdk)/bin/java
  jars="$peers/kafka-$version/*"
  cat >"$folder/server.properties" <<END
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$controller
listeners=PLAINTEXT://127.0.0.1:$broker,CONTROLLER://127.0.0.1:$controller
advertised.listeners=PLAINTEXT://127.0.0.1:$broker
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=$folder/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
group.initial.rebalance.delay.ms=0
END
  if [ ! -f "$folder/data/meta.properties" ]; then
    "$java" -cp "$jars" kafka.tools.StorageTool format -t MkU3OEVBNTcwNTJENDM2Qk -c "$folder/server.properties" \
      --ignore-formatted >"$folder/format.log" 2>&1 || die "the folder of Kafka could not be prepared; see $folder/format.log"
  fi
  background "$java" -Xmx512m -XX:+UseG1GC -cp "$jars" kafka.Kafka "$folder/server.properties"
  answers python3 -c "import socket; socket.create_connection(('127.0.0.1', $broker), 1)"
}
