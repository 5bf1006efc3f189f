#!/usr/bin/env bash
# Makes the authority and the receiver's certificate that tests of webhooks use. The keys are public: for tests alone.
set -euo pipefail
cd "$(dirname "$0")"
key() { openssl genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"; }
for authority in ca other-ca; do
  key "$authority.key"
  openssl req -x509 -new -key "$authority.key" -days 36500 -subj "/CN=Strongback tests, $authority" -out "$authority.pem" \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign
done
key receiver.key
openssl req -new -key receiver.key -subj "/CN=localhost" -out receiver.csr
openssl x509 -req -in receiver.csr -CA ca.pem -CAkey ca.key -set_serial 1 -days 36500 -out receiver.pem -extfile <(
  printf 'subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n'
)
rm receiver.csr ca.key other-ca.key
