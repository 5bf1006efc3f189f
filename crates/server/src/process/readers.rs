//! Thread pools for work that blocks: reads and records of requests, new live subscriptions, heartbeats. They are few
//! and of lower priority than ingest and live, so that slow reading never slows recording. Each kind has its own pool,
//! so that none waits for another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use strongback_query::let_end;
use strongback_store::ScanError;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::{JoinError, JoinHandle};

use crate::process::budget::Over;

/// Nice value of reader threads, 0 to 19; higher yields more.
pub const NICENESS: i32 = 5;

/// Lowers the priority of the calling thread. `who` names its kind in the log.
pub fn lower_priority(niceness: i32, who: &str) {
    // On Linux, setpriority's "process" is a thread; `None` is the calling one.
    if let Err(error) = rustix::process::setpriority_process(None, niceness) {
        tracing::warn!(%error, "{who} keep the priority of the rest of the server");
    }
}

/// Reason why a read ended without an answer.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// An error of the store.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// Timeout.
    #[error("timed out after {} s; request less, or raise query.statement_timeout_s", .0.as_secs())]
    TooLong(Duration),
    /// Departure of the client.
    #[error("the client disconnected")]
    Left,
    /// An answer that exceeds the memory for clients.
    #[error(transparent)]
    Over(#[from] Over),
    /// A panic.
    #[error("internal error while reading: {0}")]
    Defect(#[from] JoinError),
}

/// Permission to continue a read: its client waits and its time is not over. Read loops check it periodically.
#[derive(Clone, Debug, Default)]
pub struct Leave {
    has_left: Arc<AtomicBool>,
    until: Option<(Instant, Duration)>,
}

impl Leave {
    /// Returns a permission without a time limit.
    pub fn unlimited() -> Leave {
        Leave::default()
    }

    /// Returns a permission that ends after `patience`.
    pub fn within(patience: Duration) -> Leave {
        Leave { has_left: Arc::default(), until: Instant::now().checked_add(patience).map(|until| (until, patience)) }
    }

    /// Checks whether the permission still holds.
    ///
    /// # Errors
    /// [`ReadError::Left`] or [`ReadError::TooLong`].
    pub fn check(&self) -> Result<(), ReadError> {
        if self.has_left.load(Relaxed) {
            return Err(ReadError::Left);
        }
        match self.until {
            Some((until, patience)) if Instant::now() > until => Err(ReadError::TooLong(patience)),
            _ => Ok(()),
        }
    }
}

/// Revokes the permission when dropped, as the future of a request is once its client has gone.
struct WaitingRead(Leave);

impl Drop for WaitingRead {
    fn drop(&mut self) {
        self.0.has_left.store(true, Relaxed);
    }
}

/// A pool of threads for blocking reads.
#[derive(Debug)]
pub struct Readers {
    runtime: Option<Runtime>,
}

impl Readers {
    /// Starts a pool of `threads` threads; further reads wait their turn.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(name: &str, threads: usize) -> std::io::Result<Readers> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(threads)
            .thread_name(name)
            .on_thread_start(|| lower_priority(NICENESS, "readers"))
            .build()?;
        Ok(Readers { runtime: Some(runtime) })
    }

    /// Runs a blocking read.
    pub fn spawn<T: Send + 'static>(&self, read: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        self.handle().spawn_blocking(read)
    }

    /// Runs a blocking read that checks its permission periodically. It ends when this future is dropped, or after
    /// `patience`, which includes the time it waits for its turn.
    ///
    /// # Errors
    /// The error of the read, or the end of its permission.
    pub async fn read<T: Send + 'static, E: From<ReadError> + Send + 'static>(
        &self,
        patience: Duration,
        read: impl FnOnce(&Leave) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        let read = |leave: &Leave| {
            leave.check()?;
            read(leave)
        };
        self.read_with(Leave::within(patience), read).await.unwrap_or_else(|error| Err(ReadError::from(error).into()))
    }

    /// Runs a blocking read while `leave` holds; dropping this future revokes it.
    ///
    /// # Errors
    /// If the read panicked.
    pub async fn read_with<T: Send + 'static>(
        &self,
        leave: Leave,
        read: impl FnOnce(&Leave) -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let waiting = WaitingRead(leave.clone());
        let answer = self.spawn(move || read(&leave)).await;
        drop(waiting);
        answer
    }

    fn handle(&self) -> &Handle {
        match &self.runtime {
            Some(runtime) => runtime.handle(),
            None => unreachable!("taken only when dropped"),
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Reads under way end with the process.
            let_end(runtime);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn a_read_ends_when_nobody_waits_for_it() {
        let readers = Readers::start("test", 1).unwrap();
        let (begun, has_begun) = channel();
        let (ended, has_ended) = channel();
        let reading = async {
            let read = move |leave: &Leave| {
                begun.send(()).unwrap();
                while leave.check().is_ok() {
                    std::thread::yield_now();
                }
                ended.send(leave.check().unwrap_err().to_string()).unwrap();
                Ok::<(), ReadError>(())
            };
            readers.read(Duration::from_secs(3600), read).await
        };
        tokio::select! {
            biased;
            _ = reading => panic!("it never ends by itself"),
            () = async {
                while has_begun.try_recv().is_err() {
                    tokio::task::yield_now().await;
                }
            } => {}
        }
        assert_eq!(has_ended.recv().unwrap(), "the client disconnected");
    }

    #[tokio::test]
    async fn a_read_whose_time_is_over_says_so() {
        let readers = Readers::start("test", 1).unwrap();
        let read = |leave: &Leave| {
            while leave.check().is_ok() {
                std::thread::yield_now();
            }
            leave.check()
        };
        let error = readers.read(Duration::from_millis(1), read).await.unwrap_err();
        assert!(matches!(error, ReadError::TooLong(_)), "{error}");
    }
}
