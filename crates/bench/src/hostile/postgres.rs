//! Hostile messages of the PostgreSQL wire: before and after the login, almost valid, far too long, never answered.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use fastrand::Rng;

use super::socket::{connect, many, read_some, spoil, trickle};
use super::target::Target;

const STARTUP: &[u8] = b"\0\0\0\x26\0\x03\0\0user\0evil\0database\0strongback\0\0";
/// Types of messages, including those of a server and invalid ones.
const TYPES: &[u8] = b"QPBEDSCHXFdfcpRKZT\0\xff";
/// Max number of statements in a strike, so that it ends.
const STATEMENTS_MAX: usize = 2000;

/// Makes one strike.
pub(super) fn strike(target: &Target, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let way = rng.u32(..6);
    target.strike("postgres", seed, &format!("way {way}"), || match way {
        0 => before_login(target, &mut rng),
        1 => trickled(target, &mut rng),
        2 => messages(target, &mut rng),
        3 => prepared(target, &mut rng),
        4 => unread(target, &mut rng),
        _ => waiting(target, &mut rng),
    });
}

/// Returns a message of a type with its length, which may be wrong.
fn message(kind: u8, body: &[u8], rng: &mut Rng) -> Vec<u8> {
    let size = match rng.u32(..8) {
        0 => rng.u32(..),
        1 => rng.u32(..8),
        _ => body.len() as u32 + 4,
    };
    [&[kind][..], &size.to_be_bytes(), body].concat()
}

fn logged_in(target: &Target) -> Option<TcpStream> {
    let mut stream = connect(target.pg, true).ok()?;
    stream.write_all(STARTUP).ok()?;
    Some(stream)
}

fn before_login(target: &Target, rng: &mut Rng) {
    let mut startup = STARTUP.to_vec();
    match rng.u32(..4) {
        0 => spoil(&mut startup, rng),
        1 => startup[..4].copy_from_slice(&rng.u32(..).to_be_bytes()),
        2 => startup = (0..rng.usize(1..100_000)).map(|_| rng.u8(..)).collect(),
        _ => startup.truncate(rng.usize(..STARTUP.len())),
    }
    let streams = many(target.pg, rng.usize(1..150), |_| startup.clone());
    std::thread::park_timeout(Duration::from_millis(rng.u64(..3_000)));
    drop(streams);
}

fn trickled(target: &Target, rng: &mut Rng) {
    let Ok(stream) = connect(target.pg, false) else { return };
    trickle(stream, STARTUP, rng, Duration::from_secs(4));
}

/// Sends messages of any type with any bytes.
fn messages(target: &Target, rng: &mut Rng) {
    let Some(mut stream) = logged_in(target) else { return };
    for _ in 0..rng.usize(1..200) {
        let kind = TYPES[rng.usize(..TYPES.len())];
        let mut body = match rng.u32(..4) {
            0 => b"select * from m\0".to_vec(),
            1 => b"\0select $1::int8 + x from m\0\0\0".to_vec(),
            2 => b"\0\0\0\x01\0\x01\0\x01\0\0\0\x08\0\0\0\0\0\0\0\x01\0\x01\0\x01".to_vec(),
            _ => (0..rng.usize(..200)).map(|_| rng.u8(..)).collect(),
        };
        if rng.bool() {
            spoil(&mut body, rng);
        }
        if stream.write_all(&message(kind, &body, rng)).is_err() {
            return;
        }
    }
    read_some(&mut stream, 1 << 20);
}

/// Prepares named statements without limit and without a sync.
fn prepared(target: &Target, rng: &mut Rng) {
    let Some(mut stream) = logged_in(target) else { return };
    let padding = "x".repeat(rng.usize(..20_000));
    for number in 0..rng.usize(1..STATEMENTS_MAX) {
        let body = format!("s{number}\0select x, '{padding}' from m where x = $1\0");
        let body = [body.as_bytes(), &[0, 0]].concat();
        let size = body.len() as u32 + 4;
        if stream.write_all(&[&b"P"[..], &size.to_be_bytes(), body.as_slice()].concat()).is_err() {
            return;
        }
    }
    read_some(&mut stream, 1 << 20);
}

/// Requests large results without reading them.
fn unread(target: &Target, rng: &mut Rng) {
    let sql = b"select a.*, b.s from m a, m b\0";
    let query = [&b"Q"[..], &(sql.len() as u32 + 4).to_be_bytes(), sql].concat();
    let begin = [STARTUP, query.as_slice()].concat();
    let streams = many(target.pg, rng.usize(1..30), |_| begin.clone());
    std::thread::park_timeout(Duration::from_millis(rng.u64(..4_000)));
    drop(streams);
}

/// Opens sessions that do nothing.
fn waiting(target: &Target, rng: &mut Rng) {
    let streams = many(target.pg, rng.usize(1..150), |_| STARTUP.to_vec());
    std::thread::park_timeout(Duration::from_millis(rng.u64(..4_000)));
    drop(streams);
}
