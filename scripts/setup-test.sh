#!/usr/bin/env bash
# What the tests need beyond a build: Chromium, psql, a Python environment, Telegraf, database drivers, servers. Each
# is built once into the cache folder, under a name that holds its version.
set -euo pipefail
. "$(dirname "$0")/environment.sh"
"$root/scripts/setup-build.sh"
mkdir -p "$cache"

cargo clippy --version >/dev/null 2>&1 || rustup component add clippy >&2 || die "clippy is missing"
cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt >&2 || die "rustfmt is missing"
debian_package chromium chromium
debian_package psql postgresql-client
debian_package python3 python3 python3-venv

# A PostgreSQL server, which reads foreign tables in one test. Its packages would start one for everybody. Without it
# that test says that it was skipped.
if ! compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null && ! have initdb && have apt-get; then
  say "installing postgresql"
  no_cluster=/etc/postgresql-common/createcluster.d/strongback.conf
  as_root sh -c "mkdir -p ${no_cluster%/*} && echo 'create_main_cluster = false' >$no_cluster" &&
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends postgresql >&2 ||
    say "PostgreSQL could not be installed: the test of postgres_fdw will be skipped"
fi

# Servers that archives are tested with.
"$root/peers/peer" fetch questdb kafka elasticsearch mariadb influxdb

# Python: the clients the end-to-end tests write and read with.
requirements=$root/tests/requirements.txt
python=$cache/python-$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')-$(sha256sum "$requirements" | cut -c 1-12)
if [ ! -x "$python/bin/pytest" ]; then
  say "Python clients: $python"
  rm -rf "$python"
  if ! python3 -m venv "$python" 2>/dev/null; then
    as_root apt-get install -y -q --no-install-recommends python3-venv >&2 || die "python3 -m venv fails: install python3-venv"
    python3 -m venv "$python"
  fi
  "$python/bin/pip" install -q --disable-pip-version-check -r "$requirements" >&2 || {
    rm -rf "$python"
    die "the Python clients of tests/requirements.txt could not be installed"
  }
fi
ln -sfn "$python" "$cache/python"

# Telegraf, with the plugins that one test needs. Without Go that test says that it was skipped.
telegraf_version=v1.37.2
telegraf=$cache/telegraf-$telegraf_version
if [ ! -x "$telegraf" ] && have go; then
  say "Telegraf $telegraf_version from source (about a minute): $telegraf"
  GOBIN=$cache/telegraf-build GOFLAGS=-buildvcs=false go install \
    -tags custom,inputs.file,outputs.influxdb_v2,outputs.influxdb,parsers.influx,serializers.influx \
    "github.com/influxdata/telegraf/cmd/telegraf@$telegraf_version" >&2
  mv "$cache/telegraf-build/telegraf" "$telegraf"
  rmdir "$cache/telegraf-build"
fi
[ -x "$telegraf" ] || say "no Go compiler: the Telegraf test will be skipped"

# Database drivers in other languages (tests/drivers), under names with a hash of what they are made of. Without a
# language its tests say that they were skipped.
drivers=$root/tests/drivers
content() { cat "$@" | sha256sum | cut -c 1-12; }
go_drivers=$cache/drivers-go-$(content "$drivers"/go/go.mod "$drivers"/go/go.sum "$drivers"/go/*.go)
if [ ! -x "$go_drivers" ] && have go; then
  say "drivers of Go (about a minute and a half): $go_drivers"
  (cd "$drivers/go" && GOFLAGS=-buildvcs=false go build -ldflags='-s -w' -o "$go_drivers" .) >&2
fi
[ -x "$go_drivers" ] || say "no Go compiler: its drivers will not be tested"
java_drivers=$cache/drivers-java-$(content "$drivers/java/jars.txt")
if [ ! -d "$java_drivers" ] && have javac && have mvn; then
  say "drivers of Java: $java_drivers"
  jars=$cache/drivers-java-part
  rm -rf "$jars"
  mkdir "$jars"
  grep -v '^#' "$drivers/java/jars.txt" | while read -r hash artifact; do
    mvn -q -B dependency:copy -Dartifact="$artifact" -DoutputDirectory="$jars" >"$jars.log" 2>&1 || {
      cat "$jars.log" >&2
      die "$artifact could not be fetched"
    }
    jar=$jars/$(cut -d : -f 2,3 <<<"$artifact" | tr : -).jar
    sha256sum --quiet --check <<<"$hash  $jar" >&2 || die "$artifact is not what tests/drivers/java/jars.txt says"
  done
  rm -f "$jars.log"
  mv "$jars" "$java_drivers"
fi
[ -d "$java_drivers" ] || say "no JDK with Maven: drivers of Java will not be tested"
node_drivers=$cache/drivers-node-$(content "$drivers/node/package.json" "$drivers/node/package-lock.json")
if [ ! -d "$node_drivers" ] && have npm; then
  say "drivers of Node: $node_drivers"
  modules=$cache/drivers-node-part
  rm -rf "$modules"
  mkdir "$modules"
  cp "$drivers/node/package.json" "$drivers/node/package-lock.json" "$modules"
  (cd "$modules" && npm ci --silent --no-audit --no-fund --ignore-scripts) >&2
  mv "$modules" "$node_drivers"
fi
[ -d "$node_drivers" ] || say "no Node: its drivers will not be tested"

# cargo-deny, for `make test-all`: licence files of everything linked.
deny_version=0.20.2
deny=$cache/cargo-deny-$deny_version
if [ -n "${STRONGBACK_TEST_ALL:-}" ] && [ ! -x "$deny/bin/cargo-deny" ]; then
  say "cargo-deny $deny_version from source (3 minutes on two cores): $deny"
  CARGO_TARGET_DIR=$cache/cargo-deny-build CARGO_PROFILE_DEV_DEBUG=0 \
    cargo install --quiet --locked --debug --root "$deny" "cargo-deny@$deny_version" >&2
  rm -rf "$cache/cargo-deny-build"
fi
