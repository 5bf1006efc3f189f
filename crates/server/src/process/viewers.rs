//! The threads that serve live clients. They are separate, so that a request, above all a write, does not wait behind a
//! thousand views. Their priority is between that of recording and that of reading.

use strongback_query::let_end;
use tokio::runtime::{Builder, Runtime};

use crate::process::readers::lower_priority;

/// Nice value of these threads, 0 to 19; higher yields more.
const NICENESS: i32 = 2;

/// The thread pool for live clients.
#[derive(Debug)]
pub struct Viewers {
    runtime: Option<Runtime>,
}

impl Viewers {
    /// Starts `threads` threads.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(threads: usize) -> std::io::Result<Viewers> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("live")
            .on_thread_start(|| lower_priority(NICENESS, "live clients"))
            .enable_all()
            .build()?;
        Ok(Viewers { runtime: Some(runtime) })
    }

    /// Runs the task of a client.
    pub fn spawn(&self, client: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            runtime.spawn(client);
        }
    }
}

impl Drop for Viewers {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // The clients were already notified when the server stopped.
            let_end(runtime);
        }
    }
}
