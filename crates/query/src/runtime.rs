//! The threads that queries run on: fewer, and of lower priority than ingest and live.

use std::io;

use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};

/// Stack of a thread, in bytes: plans nest, and running and dropping them takes stack for each level.
const STACK_BYTES: usize = 64 << 20;
/// Threads that may be blocked while others go on in their place.
const BLOCKED_MAX: usize = 256;

/// Does what takes long on this thread; if it is one of a runtime, another one takes its place meanwhile.
pub(crate) fn apart<T>(work: impl FnOnce() -> T) -> T {
    let is_worker = |runtime: Handle| runtime.runtime_flavor() == RuntimeFlavor::MultiThread;
    if Handle::try_current().is_ok_and(is_worker) { tokio::task::block_in_place(work) } else { work() }
}

/// A tokio runtime whose threads yield to the rest of the program.
pub(crate) struct Threads {
    runtime: Option<Runtime>,
}

impl Threads {
    /// Starts `count` threads with a name and a niceness (0 to 19, higher is humbler), and up to [`BLOCKED_MAX`] more in
    /// the place of blocked ones.
    pub(crate) fn start(name: &str, count: usize, niceness: i32) -> io::Result<Threads> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(count.max(1))
            .max_blocking_threads(BLOCKED_MAX)
            .thread_name(name)
            .thread_stack_size(STACK_BYTES)
            .on_thread_start(move || be_nice(niceness))
            .enable_all()
            .build()?;
        Ok(Threads { runtime: Some(runtime) })
    }

    /// Where to spawn.
    pub(crate) fn handle(&self) -> Handle {
        match &self.runtime {
            Some(runtime) => runtime.handle().clone(),
            None => unreachable!("taken only when dropped"),
        }
    }
}

/// Gives the calling thread a niceness.
pub(crate) fn be_nice(niceness: i32) {
    // On Linux the "process" of setpriority is a thread; none is the calling one.
    if let Err(error) = rustix::process::setpriority_process(None, niceness) {
        tracing::warn!(%error, "query threads keep the priority of the rest of the server");
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Waiting here would block an async caller; queries under way end at their next yield.
            runtime.shutdown_background();
        }
    }
}
