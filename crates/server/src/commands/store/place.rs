//! Opens and closes a store for one command.

use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use anyhow::{Context, bail};
use strongback_sources::Sink;
use strongback_store::{
    Appended, ChannelIndex, CommitNumber, FrameBatch, Refusal, Reject, Store, Stream, StreamId, StreamSpec, let_run,
};

use crate::commands::outcome::Outcome;
use crate::config::Config;
use crate::process::clock::now_ns;
use crate::text::plural::many;

/// Time between two checks for a signal while no input arrives.
const STOP_LATENCY: Duration = Duration::from_millis(50);

/// Opens an existing store.
pub(super) fn open(path: &Path, config: Option<&Path>) -> anyhow::Result<Store> {
    let config = match config {
        Some(file) => Config::read(file)?,
        None => Config::default(),
    };
    if !path.exists() {
        bail!("{}: there is no store; create one with `strongback store create`", path.display());
    }
    if path.is_dir() && !path.join("superblock").exists() {
        bail!("{}: not a store: it holds no superblock", path.display());
    }
    let store = Store::open(path, config.store_options(), now_ns())?;
    let report = store.recovery();
    for damage in &report.damaged {
        eprintln!("strongback: {}, offset {}: {}", damage.file, damage.offset, damage.reason);
    }
    if report.lost_rows > 0 {
        let lost = many(report.lost_rows, "damaged row");
        eprintln!("strongback: {lost} lost; strongback.gaps lists what is missing");
    }
    Ok(store)
}

/// Opens an existing store for reading. Nothing of it is changed, so it may be on read-only media. If it does not open
/// as it is, the readable rest is opened. Also returns whether something is damaged or missing.
pub(super) fn open_to_read(path: &Path) -> anyhow::Result<(Store, Outcome)> {
    if !path.exists() {
        bail!("{}: there is no store; create one with `strongback store create`", path.display());
    }
    let store = Store::open_read_only(path, Config::default().store_options(), now_ns())?;
    let damaged = store.recovery().damaged;
    for damage in &damaged {
        eprintln!("strongback: {}, offset {}: {}", damage.file, damage.offset, damage.reason);
    }
    if !damaged.is_empty() {
        eprintln!("strongback: what is left is read; `strongback store repair FROM --into NEW` makes a store of it");
    }
    Ok((store, if damaged.is_empty() { Outcome::Done } else { Outcome::DataLost }))
}

/// Closes a store after a command. An error of the command comes first.
pub(super) fn close<T>(store: &Store, done: anyhow::Result<T>) -> anyhow::Result<T> {
    let closed = store.close(now_ns()).context("the store did not close");
    let done = done?;
    closed?;
    Ok(done)
}

/// A store as a sink for one thread; waiting for a commit makes the commit.
pub(super) struct StoreSink {
    pub(super) store: Store,
}

impl Sink for StoreSink {
    fn resolve(&self, spec: &StreamSpec) -> Result<(Arc<Stream>, Vec<ChannelIndex>), Reject> {
        self.store.resolve(spec, now_ns())
    }

    fn accept(&self, batch: &FrameBatch) -> Appended {
        self.store.offer(batch, now_ns())
    }

    fn wait_durable(&self, commit: CommitNumber) -> Result<(), Refusal> {
        if self.store.committed() < commit {
            self.store.commit(now_ns())?;
        }
        while self.store.maintain(now_ns())? {}
        Ok(())
    }

    fn count_rejected(&self, stream: StreamId, frames: u64) {
        self.store.count_rejected(stream, frames);
    }
}

/// Whether Ctrl-C or SIGTERM was received.
#[derive(Clone, Debug)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Registers the signals; a second Ctrl-C ends the program at once.
    pub(super) fn on_signals() -> anyhow::Result<Stop> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register_conditional_shutdown(signal, 130, stop.clone())
                .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
                .context("cannot take signals")?;
        }
        Ok(Stop(stop))
    }

    /// Returns standard input, which ends when a signal arrives, even if no input does.
    pub(super) fn stdin(&self) -> anyhow::Result<impl Read + use<>> {
        let (send, chunks) = sync_channel(4);
        let reading = std::thread::Builder::new().name("stdin".into()).spawn(move || {
            let mut input = std::io::stdin().lock();
            loop {
                let mut chunk = vec![0; 64 << 10];
                let read = match input.read(&mut chunk) {
                    Ok(0) => return,
                    Ok(n) => {
                        chunk.truncate(n);
                        Ok(chunk)
                    }
                    Err(error) => Err(error),
                };
                let failed = read.is_err();
                if send.send(read).is_err() || failed {
                    return;
                }
            }
        })?;
        let_run(reading);
        Ok(Piped { chunks, left: Vec::new(), at: 0, stop: self.clone() })
    }

    pub(super) fn flow(&self) -> ControlFlow<()> {
        match self.0.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// Input read by another thread.
struct Piped {
    chunks: Receiver<io::Result<Vec<u8>>>,
    left: Vec<u8>,
    at: usize,
    stop: Stop,
}

impl Read for Piped {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.at == self.left.len() {
            match self.chunks.recv_timeout(STOP_LATENCY) {
                Ok(chunk) => (self.left, self.at) = (chunk?, 0),
                Err(RecvTimeoutError::Timeout) if self.stop.flow().is_continue() => {}
                Err(_) => return Ok(0),
            }
        }
        let taken = out.len().min(self.left.len() - self.at);
        out[..taken].copy_from_slice(&self.left[self.at..self.at + taken]);
        self.at += taken;
        Ok(taken)
    }
}
