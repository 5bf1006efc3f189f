//! Hostile messages of the PostgreSQL wire: before and after the login, almost valid, far too long, never answered, and
//! parameters of every type and shape.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use fastrand::Rng;

use super::grammar::array_text;
use super::socket::{connect, many, read_some, spoil, trickle};
use super::target::Target;

const STARTUP: &[u8] = b"\0\0\0\x26\0\x03\0\0user\0evil\0database\0strongback\0\0";
/// Types of messages, including those of a server and invalid ones.
const TYPES: &[u8] = b"QPBEDSCHXFdfcpRKZT\0\xff";
/// Statements with one parameter.
const PARAMETRIC: [&str; 8] = [
    "select count(*) from m where x = any($1)",
    "select count(*) from m where rig = any($1)",
    "select count(*) from m where y <> all($1)",
    "select $1",
    "select x from m where y > $1 limit 10",
    "select unnest($1)",
    "select array_append($1, 1), cardinality($1)",
    "select x from m limit $1",
];
/// Types of parameters (`pg_type.oid`): single values, arrays, unspecified, and those that no one knows.
const PARAMETER_TYPES: [u32; 24] = [
    0,
    16,
    17,
    20,
    21,
    23,
    25,
    700,
    701,
    1000,
    1005,
    1007,
    1009,
    1015,
    1016,
    1021,
    1022,
    1043,
    1114,
    1184,
    1185,
    1231,
    1700,
    4_000_000_000,
];
/// Max number of statements in a strike, so that it ends.
const STATEMENTS_MAX: usize = 2000;

/// Makes one strike.
pub(super) fn strike(target: &Target, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let way = rng.u32(..8);
    target.strike("postgres", seed, &format!("way {way}"), || match way {
        0 => before_login(target, &mut rng),
        1 => trickled(target, &mut rng),
        2 => messages(target, &mut rng),
        3 => prepared(target, &mut rng),
        4 => unread(target, &mut rng),
        5 | 6 => bound(target, &mut rng),
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

/// Binds parameters of any type, as text and binary: arrays that are long, nested, cut, or lie about their sizes.
fn bound(target: &Target, rng: &mut Rng) {
    let Some(mut stream) = logged_in(target) else { return };
    for _ in 0..rng.usize(1..20) {
        let sql = PARAMETRIC[rng.usize(..PARAMETRIC.len())];
        let (parameter, is_binary) = match rng.u32(..4) {
            0 => (array_text(rng).into_bytes(), false),
            1 | 2 => (binary_array(rng), true),
            _ => ((0..rng.usize(..40)).map(|_| rng.u8(..)).collect(), rng.bool()),
        };
        let kind = PARAMETER_TYPES[rng.usize(..PARAMETER_TYPES.len())];
        let parse = [b"\0", sql.as_bytes(), b"\0\0\x01", &kind.to_be_bytes()].concat();
        let format = [0, u8::from(is_binary)];
        let size = (parameter.len() as u32).to_be_bytes();
        let bind = [&b"\0\0\0\x01"[..], &format, b"\0\x01", &size, &parameter, b"\0\0"].concat();
        let messages = [(b'P', parse), (b'B', bind), (b'E', vec![0; 5]), (b'S', Vec::new())];
        for (kind, body) in messages {
            let size = (body.len() as u32 + 4).to_be_bytes();
            if stream.write_all(&[&[kind][..], &size, &body].concat()).is_err() {
                return;
            }
        }
    }
    read_some(&mut stream, 1 << 20);
}

/// Returns an array in binary: dimensions, flag of nulls, type, each dimension, each element (PostgreSQL,
/// `array_send`). Any of them may be wrong.
fn binary_array(rng: &mut Rng) -> Vec<u8> {
    let count = 10f64.powf(rng.f64() * 6.0) as u32;
    let (element, size): (u32, u32) = [(20, 8), (23, 4), (701, 8), (25, 3), (16, 1), (1184, 8)][rng.usize(..6)];
    let (dimensions, claimed) = match rng.u32(..4) {
        0 => (rng.u32(..), count),
        1 => (rng.u32(..8), rng.u32(..)),
        _ => (1, count),
    };
    let mut array = [dimensions.to_be_bytes(), 1_u32.to_be_bytes(), element.to_be_bytes()].concat();
    for _ in 0..dimensions.min(1000) {
        array.extend([claimed.to_be_bytes(), 1_u32.to_be_bytes()].concat());
    }
    for number in 0..count {
        if number % 7 == 3 && rng.bool() {
            array.extend(u32::MAX.to_be_bytes());
        } else {
            array.extend(size.to_be_bytes());
            array.extend((0..size).map(|_| number as u8));
        }
    }
    if rng.u32(..4) == 0 {
        array.truncate(rng.usize(..=array.len()));
    }
    if rng.u32(..4) == 0 {
        spoil(&mut array, rng);
    }
    array
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
