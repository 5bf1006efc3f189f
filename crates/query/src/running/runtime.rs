//! Threads for queries: few, and with lower priority than ingest and live data.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use strongback_store::let_run;
use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};

/// Stack size of a thread, in bytes. Plans nest, and running and dropping them takes stack for each level.
const STACK_BYTES: usize = 64 << 20;
/// Maximum blocked threads that are replaced by others.
const BLOCKED_MAX: usize = 256;
/// Maximum wait for the threads of a runtime that ends.
const END_PATIENCE: Duration = Duration::from_secs(60);

/// Runs long work on this thread. On a runtime's thread, another one takes its place meanwhile.
pub(crate) fn apart<T>(work: impl FnOnce() -> T) -> T {
    let is_worker = |runtime: Handle| runtime.runtime_flavor() == RuntimeFlavor::MultiThread;
    if Handle::try_current().is_ok_and(is_worker) { tokio::task::block_in_place(work) } else { work() }
}

/// A tokio runtime with threads of lower priority than the rest of the program.
pub(crate) struct Threads {
    runtime: Option<Runtime>,
}

impl Threads {
    /// Starts `count` threads with a name and a niceness (0 to 19, where higher is lower priority), and up to
    /// [`BLOCKED_MAX`] more in place of blocked ones.
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

    /// Returns the handle for spawning.
    pub(crate) fn handle(&self) -> Handle {
        match &self.runtime {
            Some(runtime) => runtime.handle().clone(),
            None => unreachable!("taken only when dropped"),
        }
    }
}

/// Shuts down a runtime on a separate thread, so that the caller need not wait for its threads, and they are not
/// detached while they end ([`let_run`] explains why).
pub fn let_end(runtime: Runtime) {
    let ending = Arc::new(Mutex::new(Some(runtime)));
    let here = Arc::clone(&ending);
    let end = move || {
        let runtime = ending.lock().take();
        runtime.into_iter().for_each(|runtime| runtime.shutdown_timeout(END_PATIENCE));
    };
    match std::thread::Builder::new().name("end".to_owned()).spawn(end) {
        Ok(thread) => let_run(thread),
        // Waiting here would block an async caller.
        Err(_) => here.lock().take().into_iter().for_each(Runtime::shutdown_background),
    }
}

/// Sets the niceness of the calling thread.
pub(crate) fn be_nice(niceness: i32) {
    // On Linux, setpriority applies to a single thread, and `None` is the calling one.
    if let Err(error) = rustix::process::setpriority_process(None, niceness) {
        tracing::warn!(%error, "query threads keep the priority of the rest of the server");
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Running queries end at their next yield.
            let_end(runtime);
        }
    }
}
