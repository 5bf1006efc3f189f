//! Topics of a robot arm: 130 of them at 100 Hz, every tenth at 1,000 Hz, to 1 to 1,024 consumers at 60 Hz.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, bail};

use super::client::{Client, Form};
use super::crowd::{self, CrowdResult};
use crate::clock::now_ns;
use crate::serving::ServerProcess;

/// Number of published topics.
pub(super) const TOPICS: usize = 130;
/// Updates per second.
const RATE_HZ: f64 = 60.0;
/// Nanoseconds per step of the publisher.
const STEP_NS: i64 = 1_000_000;

/// Parses a number of topics, up to that of those published.
///
/// # Errors
/// There are fewer topics.
pub(super) fn at_most_all(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(topics @ 1..=TOPICS) => Ok(topics),
        _ => Err(format!("1 to {TOPICS}")),
    }
}

/// Publisher of all topics as lines until it is stopped.
pub(super) struct Publisher {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<()>>,
}

impl Publisher {
    pub(super) fn start(ilp: SocketAddr) -> anyhow::Result<Publisher> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("topics".into()).spawn(move || publish(ilp, &stopped))?;
        Ok(Publisher { stop, thread })
    }

    pub(super) fn stop(self) -> anyhow::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.join() {
            Ok(done) => done.context("publishing topics"),
            Err(_) => bail!("the publisher panicked"),
        }
    }
}

/// Returns the number of steps between two messages of a topic.
fn every(topic: usize) -> u64 {
    if topic.is_multiple_of(10) { 1 } else { 10 }
}

fn publish(ilp: SocketAddr, stop: &AtomicBool) -> anyhow::Result<()> {
    let mut socket = TcpStream::connect(ilp)?;
    socket.set_nodelay(true)?;
    let (start, mut step, mut text) = (now_ns(), 0_u64, String::new());
    while !stop.load(Ordering::Relaxed) {
        let ahead = start + step as i64 * STEP_NS - now_ns();
        if ahead > 0 {
            std::thread::sleep(Duration::from_nanos(ahead as u64));
        }
        text.clear();
        let angle = step as f64 * 1e-3;
        let time = now_ns();
        for topic in (0..TOPICS).filter(|topic| (step + *topic as u64).is_multiple_of(every(*topic))) {
            let position = (angle + topic as f64).sin();
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "arm.topic,id={topic:03} position={position},velocity={},effort={},temperature={} {time}",
                (angle + topic as f64).cos(),
                position * 12.5,
                300.0 + position
            );
        }
        socket.write_all(text.as_bytes())?;
        step += 1;
    }
    Ok(())
}

/// Measures `consumers` with `topics` each.
///
/// # Errors
/// A client is refused, or receives nothing.
pub(super) fn run(
    server: &ServerProcess,
    consumers: usize,
    topics: usize,
    span: Duration,
) -> anyhow::Result<CrowdResult> {
    let clients = (0..consumers)
        .map(|consumer| Client {
            channels: (0..topics).map(|i| format!("arm.topic.*{{id={:03}}}", (consumer + i) % TOPICS)).collect(),
            max_rate_hz: Some(RATE_HZ),
            form: Form::Binary,
        })
        .collect();
    crowd::measure(server, clients, span)?.result(format!("{consumers} × {topics}"), 1e3 / RATE_HZ)
}
