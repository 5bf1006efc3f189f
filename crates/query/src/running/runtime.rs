//! The threads that queries run on: fewer, and of lower priority than ingest and live.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use strongback_store::let_run;
use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};

/// Stack of a thread, in bytes: plans nest, and running and dropping them takes stack for each level.
const STACK_BYTES: usize = 64 << 20;
/// Threads that may be blocked while others go on in their place.
const BLOCKED_MAX: usize = 256;
/// How long the threads of a runtime that ends are waited for.
const END_PATIENCE: Duration = Duration::from_secs(60);

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

/// Ends a runtime on a thread of its own: who calls need not wait for its threads, nor are they detached while they end
/// ([`let_run`] says why).
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
            // Queries under way end at their next yield.
            let_end(runtime);
        }
    }
}
