//! How a store is opened.

use std::time::Duration;

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Bytes of the commit log's ring.
    pub log_bytes: u64,
    /// Most bytes on disk in directory mode; none: 80 % of the file system.
    pub max_bytes: Option<u64>,
    /// Oldest stored age kept; none: as long as `max_bytes` allows.
    pub max_age: Option<Duration>,
    /// Most streams; new ones beyond are rejected.
    pub max_streams: u32,
    /// Bytes of a segment file: 32 KiB to 64 MiB.
    pub segment_bytes: u64,
    /// Memory for open blocks before pressure seals them.
    pub open_bytes: usize,
    /// Times further ahead of the caller's clock are flagged and kept out of `latest`.
    pub max_future: Duration,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            log_bytes: 64 << 20,
            max_bytes: None,
            max_age: None,
            max_streams: 200_000,
            segment_bytes: 64 << 20,
            open_bytes: 64 << 20,
            max_future: Duration::from_secs(86_400),
        }
    }
}
