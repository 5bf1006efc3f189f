//! Logging to standard error by `tracing`. `RUST_LOG` sets the filter; the default is `info` for our own crates.
//!
//! Lines are written by a thread of their own. If nobody reads standard error, as when a journal waits for a disk that
//! hangs, lines are dropped and counted; commits and sources, which log, never wait.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::time::{Duration, Instant};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Max lines waiting to be written.
const LINES_MAX: usize = 4_096;
/// Max time for which the end of the process waits for lines to be written.
const END_WAIT: Duration = Duration::from_secs(1);

/// Lines on their way to standard error.
#[derive(Clone, Debug)]
struct LogLines {
    lines: SyncSender<LogEntry>,
    dropped: Arc<AtomicU64>,
}

/// Entry of the queue.
#[derive(Debug)]
enum LogEntry {
    Line(Vec<u8>),
    /// Everything before it is written once this sender is dropped.
    Written(#[allow(dead_code, reason = "dropping it is the message")] SyncSender<()>),
}

impl LogLines {
    /// Starts the thread that writes lines to `out`.
    fn start(mut out: impl Write + Send + 'static) -> io::Result<LogLines> {
        let (lines, queue) = mpsc::sync_channel(LINES_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let missing = dropped.clone();
        let write = move || {
            while let Ok(entry) = queue.recv() {
                let LogEntry::Line(line) = entry else { continue };
                // There is nobody to tell if it fails.
                let _ = out.write_all(&line);
                let missing = missing.swap(0, Relaxed);
                if missing > 0 {
                    let _ = writeln!(out, "{missing} lines of the log were dropped: nobody read standard error");
                }
            }
        };
        std::thread::Builder::new().name("log".into()).spawn(write)?;
        Ok(LogLines { lines, dropped })
    }

    /// Waits until all lines so far are written, for at most [`END_WAIT`].
    fn flush(&self) {
        let (until, (written, wait)) = (Instant::now() + END_WAIT, mpsc::sync_channel(0));
        let mut entry = LogEntry::Written(written);
        while let Err(TrySendError::Full(back)) = self.lines.try_send(entry) {
            if Instant::now() > until {
                return;
            }
            entry = back;
            std::thread::park_timeout(Duration::from_millis(1));
        }
        // Ends with an error in any case: nothing is sent.
        let _ = wait.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}

impl Write for LogLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self.lines.try_send(LogEntry::Line(line.to_vec())) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => _ = self.dropped.fetch_add(1, Relaxed),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogLines {
    type Writer = LogLines;

    fn make_writer(&'a self) -> LogLines {
        self.clone()
    }
}

/// Log of the process. Lines that wait are written when it is dropped.
#[derive(Debug)]
pub struct Log(Option<LogLines>);

impl Drop for Log {
    fn drop(&mut self) {
        if let Some(lines) = &self.0 {
            lines.flush();
        }
    }
}

/// Starts logging, once per process. Keep the result until the process ends.
pub fn start() -> Log {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| {
        EnvFilter::new("warn,strongback=info,strongback_server=info,strongback_sources=info,strongback_query=info")
    });
    let log =
        tracing_subscriber::fmt().with_env_filter(filter).with_ansi(io::stderr().is_terminal()).with_target(false);
    // A second start, as in tests, changes nothing.
    match LogLines::start(io::stderr()) {
        Ok(lines) => {
            let _ = log.with_writer(lines.clone()).try_init();
            Log(Some(lines))
        }
        Err(_) => {
            let _ = log.with_writer(io::stderr).try_init();
            Log(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    /// A pipe whose reader stands still while its lock is held.
    #[derive(Clone, Default)]
    struct Pipe(Arc<Mutex<Vec<u8>>>);

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_stands_still_stops_nobody_and_what_it_misses_is_counted() {
        let pipe = Pipe::default();
        let mut lines = LogLines::start(pipe.clone()).unwrap();
        let held = pipe.0.lock();
        let sent = LINES_MAX + 100;
        (0..sent).for_each(|n| lines.write_all(format!("{n}\n").as_bytes()).unwrap());
        drop(held);
        lines.flush();
        let text = String::from_utf8(pipe.0.lock().clone()).unwrap();
        let (told, written): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.contains("dropped"));
        let dropped: usize = told.iter().filter_map(|line| line.split(' ').next()?.parse::<usize>().ok()).sum();
        assert!(dropped >= 99, "{told:?}");
        assert_eq!(written.len() + dropped, sent);
    }
}
