//! Thousands of connections that are silent, or begin and then stall.

use std::time::Duration;

use fastrand::Rng;

use super::socket::many;
use super::target::Target;

/// Max number of connections in a strike.
const CONNECTIONS_MAX: usize = 1500;

/// First bytes of a connection.
const BEGINNINGS: [&[u8]; 9] = [
    b"",
    b"G",
    b"GET /ping HTTP/1.1\r\nHost: localhost\r\n",
    b"POST /api/sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n",
    b"POST /write HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nm x=",
    b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"\0\0\0\x08\x04\xd2\x16\x2f",
    b"\0\0\0\x26\0\x03\0\0user\0evil\0database\0strongback\0\0",
    b"m x=",
];

/// Makes one strike.
pub(super) fn strike(target: &Target, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let address = [target.http, target.http, target.ilp, target.pg][rng.usize(..4)];
    let count = rng.usize(1..CONNECTIONS_MAX);
    let only = rng.bool().then(|| BEGINNINGS[rng.usize(..BEGINNINGS.len())]);
    target.strike("connections", seed, &format!("{count} to {address}"), || {
        let streams = many(address, count, |number| only.unwrap_or(BEGINNINGS[number % BEGINNINGS.len()]).to_vec());
        std::thread::park_timeout(Duration::from_millis(rng.u64(..5_000)));
        drop(streams);
    });
}
