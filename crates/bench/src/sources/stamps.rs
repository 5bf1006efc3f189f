//! Precision of the kernel's receive timestamps: for a regular source of 1 kHz, with all cores loaded, the spread of
//! the distances between packets by the kernel's timestamps compared with that by a program's.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Serialize;
use strongback_sources::counts::PacketCounts;
use strongback_sources::udp::{Datagrams, Listen, Peer, Receiver, Sockets};
use strongback_sources::wall_clock;

use crate::table::Table;

const PERIOD: Duration = Duration::from_millis(1);

/// Both kinds of timestamps of the same datagrams.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Stamps {
    datagrams: usize,
    busy_threads: usize,
    /// Deviation of the sender itself from its period.
    sender: Spread,
    kernel: Spread,
    program: Spread,
}

/// Deviation of distances from those of the sender's own clock, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
struct Spread {
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
}

impl Spread {
    fn of(mut deviations_ns: Vec<i64>) -> Spread {
        deviations_ns.iter_mut().for_each(|ns| *ns = ns.abs());
        deviations_ns.sort_unstable();
        let at = |share: f64| deviations_ns.get((deviations_ns.len() as f64 * share) as usize).copied().unwrap_or(0);
        Spread {
            p50_us: at(0.5) as f64 / 1e3,
            p99_us: at(0.99) as f64 / 1e3,
            max_us: deviations_ns.last().copied().unwrap_or(0) as f64 / 1e3,
        }
    }
}

/// Times of each datagram by sender, kernel and program.
struct Take(Arc<Mutex<Vec<[i64; 3]>>>, strongback_sources::Now);

impl Datagrams for Take {
    fn datagram(&mut self, bytes: &[u8], receive_time: i64, _: &Peer) {
        let now = (self.1)();
        let Some(sent) = bytes.first_chunk().map(|bytes| i64::from_le_bytes(*bytes)) else { return };
        if let Ok(mut all) = self.0.lock() {
            all.push([sent, receive_time, now]);
        }
    }

    fn batch_end(&mut self) {}
}

/// Measures for the given time.
pub(super) fn run(span: Duration) -> anyhow::Result<Stamps> {
    let busy_threads = std::thread::available_parallelism().map_or(2, usize::from);
    let listen = Listen { address: "127.0.0.1:0".parse()?, interface: None };
    let sockets = Sockets::open(&[listen], 1 << 20)?;
    let address = sockets.local_addrs()?[0];
    let taken = Arc::new(Mutex::new(Vec::new()));
    let take = Take(taken.clone(), wall_clock());
    let mut receiver = Receiver::start("stamps", sockets, Arc::new(PacketCounts::default()), wall_clock(), take)?;
    let stop = AtomicBool::new(false);
    let now = wall_clock();
    std::thread::scope(|scope| -> anyhow::Result<()> {
        for _ in 0..busy_threads {
            scope.spawn(|| {
                let mut n = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    n = std::hint::black_box(n.wrapping_mul(31).wrapping_add(7));
                }
            });
        }
        let sent = (|| -> anyhow::Result<()> {
            let sender = UdpSocket::bind("127.0.0.1:0")?;
            sender.connect(address)?;
            let start = Instant::now();
            for n in 1.. {
                let due = PERIOD * n;
                if due > span {
                    break;
                }
                std::thread::sleep(due.saturating_sub(start.elapsed()));
                sender.send(&now().to_le_bytes())?;
            }
            Ok(())
        })();
        stop.store(true, Ordering::Relaxed);
        sent
    })?;
    receiver.stop();
    let all = taken.lock().map_err(|_| anyhow::anyhow!("the receiver panicked"))?;
    let distances = |of: usize| all.windows(2).map(move |pair| pair[1][of] - pair[0][of]);
    let period_ns = i64::try_from(PERIOD.as_nanos()).context("period")?;
    let beside_sender = |of| distances(of).zip(distances(0)).map(|(stamp, sent)| stamp - sent).collect();
    let result = Stamps {
        datagrams: all.len(),
        busy_threads,
        sender: Spread::of(distances(0).map(|ns| ns - period_ns).collect()),
        kernel: Spread::of(beside_sender(1)),
        program: Spread::of(beside_sender(2)),
    };
    let mut table = Table::new(["1 kHz, all cores busy: deviation of distances", "p50 µs", "p99 µs", "max µs"]);
    for (what, spread) in [
        ("sender from its period", result.sender),
        ("kernel's stamps from the sender's", result.kernel),
        ("program's stamps from the sender's", result.program),
    ] {
        let cell = |us: f64| format!("{us:.1}");
        table.row([what.to_owned(), cell(spread.p50_us), cell(spread.p99_us), cell(spread.max_us)]);
    }
    table.print();
    println!();
    Ok(result)
}
