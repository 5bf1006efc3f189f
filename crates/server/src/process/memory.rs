//! What the process uses, as the kernel counts it.

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};

/// Resident memory in bytes; 0 where `/proc` does not tell.
pub fn resident_bytes() -> u64 {
    status_kib("VmRSS:") * 1024
}

/// The most that was resident at a time, in bytes; 0 where `/proc` does not tell.
pub fn resident_peak_bytes() -> u64 {
    status_kib("VmHWM:") * 1024
}

fn status_kib(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Time on a processor since start, user and system, of all threads.
pub fn cpu_time() -> Duration {
    // It cannot fail for the calling process.
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Duration::ZERO };
    let time = |t: nix::sys::time::TimeVal| {
        Duration::from_secs(t.tv_sec().unsigned_abs()) + Duration::from_micros(t.tv_usec().unsigned_abs())
    };
    time(usage.user_time()) + time(usage.system_time())
}
