//! Hostile line protocol over TCP: lines that never end, almost valid lines, unlimited streams.

use std::io::Write;
use std::time::Duration;

use fastrand::Rng;

use super::socket::{connect, many, spoil, trickle};
use super::target::Target;

/// Max number of new streams in a strike: the store has a limit for them.
const STREAMS_MAX: usize = 200;

/// Makes one strike.
pub(super) fn strike(target: &Target, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let way = rng.u32(..6);
    target.strike("lines", seed, &format!("way {way}"), || match way {
        0 => endless(target, &mut rng),
        1 => forged(target, &mut rng),
        2 => wide(target, &mut rng),
        3 => many_streams(target, &mut rng),
        4 => {
            let Ok(stream) = connect(target.ilp, false) else { return };
            trickle(stream, &lines(&mut rng), &mut rng, Duration::from_secs(3));
        }
        _ => spoilt(target, &mut rng),
    });
}

fn write(target: &Target, bytes: &[u8]) {
    if let Ok(mut stream) = connect(target.ilp, false) {
        // A server that applies back-pressure makes this wait, and give up.
        let _ = stream.write_all(bytes);
    }
}

/// Returns valid lines.
fn lines(rng: &mut Rng) -> Vec<u8> {
    let line = |n: usize| format!("hostile,n={} v={n}i,s=\"{}\"\n", n % 4, "x".repeat(n % 50));
    (0..rng.usize(1..2000)).map(line).collect::<String>().into_bytes()
}

fn endless(target: &Target, rng: &mut Rng) {
    let part = vec![b'x'; rng.usize(..2 << 20)];
    let streams = many(target.ilp, rng.usize(1..80), |_| part.clone());
    std::thread::park_timeout(Duration::from_millis(rng.u64(..3_000)));
    drop(streams);
}

fn forged(target: &Target, rng: &mut Rng) {
    let table = ["events", "alarms", "runs", "gaps", "late", "clocks", "imports"][rng.usize(..7)];
    let line = format!("strongback.{table} text=\"forged\",source=\"strongback\",step=\"stop\",run=\"hostile\"\n");
    write(target, line.repeat(rng.usize(1..1000)).as_bytes());
}

/// Sends one line with as many fields as allowed, and more.
fn wide(target: &Target, rng: &mut Rng) {
    let fields: Vec<String> = (0..rng.usize(1..6000)).map(|n| format!("f{n}={n}")).collect();
    write(target, format!("hostile_wide {}\n", fields.join(",")).as_bytes());
}

fn many_streams(target: &Target, rng: &mut Rng) {
    let line = |n: usize| format!("hostile_many,n={n},long={} v=1\n", "y".repeat(n % 200));
    write(target, (0..rng.usize(1..STREAMS_MAX)).map(line).collect::<String>().as_bytes());
}

fn spoilt(target: &Target, rng: &mut Rng) {
    let mut bytes = lines(rng);
    for _ in 0..rng.usize(1..50) {
        spoil(&mut bytes, rng);
        if bytes.is_empty() {
            break;
        }
    }
    write(target, &bytes);
}
