//! The threads that read: for requests, for live subscriptions that begin, for heartbeats. Few and of lower
//! priority than ingest and live, so that reading can be slow and recording cannot; each kind has its own, so that
//! none waits for another.

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

/// 0 to 19, higher yields more.
pub const NICENESS: i32 = 5;

/// Lowers the priority of the calling thread, which is one of those that `who` names.
pub fn lower_priority(niceness: i32, who: &str) {
    // On Linux the "process" of setpriority is a thread; none is the calling one.
    if let Err(error) = rustix::process::setpriority_process(None, niceness) {
        tracing::warn!(%error, "{who} keep the priority of the rest of the server");
    }
}

/// A pool of threads for reads that block.
#[derive(Debug)]
pub struct Readers {
    runtime: Option<Runtime>,
}

impl Readers {
    /// Starts a pool of so many threads; further reads wait their turn.
    ///
    /// # Errors
    /// Where no thread can be had.
    pub fn start(name: &str, threads: usize) -> std::io::Result<Readers> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(threads)
            .thread_name(name)
            .on_thread_start(|| lower_priority(NICENESS, "readers"))
            .build()?;
        Ok(Readers { runtime: Some(runtime) })
    }

    /// Runs a read that blocks.
    pub fn spawn<T: Send + 'static>(&self, read: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        self.handle().spawn_blocking(read)
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
            // Waiting here would block an async caller; reads under way end with the process.
            runtime.shutdown_background();
        }
    }
}
