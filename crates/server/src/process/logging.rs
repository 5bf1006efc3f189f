//! Logging to standard error by `tracing`. `RUST_LOG` sets the filter; the default is `info` for our own crates.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Starts logging, once per process.
pub fn start() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| {
        EnvFilter::new("warn,strongback=info,strongback_server=info,strongback_sources=info,strongback_query=info")
    });
    // A second start, as in tests, changes nothing.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .try_init();
}
