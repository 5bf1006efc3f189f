//! The threads that tell live clients: of their own, so that a request, above all one that writes, does not wait behind a
//! thousand views, and of a priority between those that record and those that read.

use strongback_query::let_end;
use tokio::runtime::{Builder, Runtime};

use crate::process::readers::lower_priority;

/// 0 to 19, higher yields more.
const NICENESS: i32 = 2;

/// What live clients are told by.
#[derive(Debug)]
pub struct Viewers {
    runtime: Option<Runtime>,
}

impl Viewers {
    /// Starts so many threads.
    ///
    /// # Errors
    /// Where no thread can be had.
    pub fn start(threads: usize) -> std::io::Result<Viewers> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("live")
            .on_thread_start(|| lower_priority(NICENESS, "live clients"))
            .enable_all()
            .build()?;
        Ok(Viewers { runtime: Some(runtime) })
    }

    /// Serves a client.
    pub fn spawn(&self, client: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            runtime.spawn(client);
        }
    }
}

impl Drop for Viewers {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // The server's stop has told the clients.
            let_end(runtime);
        }
    }
}
