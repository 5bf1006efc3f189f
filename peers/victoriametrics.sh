# VictoriaMetrics, as Debian has it.
# shellcheck shell=bash disable=SC2034,SC2154
ports="http"

fetch() { debian victoria-metrics; }

start() {
  background "$peers/victoria-metrics/usr/bin/victoria-metrics" "-storageDataPath=$folder/data" "-httpListenAddr=127.0.0.1:$http" -retentionPeriod=100y
  answers get "http://127.0.0.1:$http/health"
}
