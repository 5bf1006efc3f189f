//! Resource usage of the process, as counted by the kernel.

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};

/// Returns resident memory in bytes, or 0 if `/proc` does not provide it.
pub fn resident_bytes() -> u64 {
    status_kib("VmRSS:") * 1024
}

/// Returns peak resident memory in bytes, or 0 if `/proc` does not provide it.
pub fn resident_peak_bytes() -> u64 {
    status_kib("VmHWM:") * 1024
}

fn status_kib(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Returns the processor time since start, user and system, of all threads.
pub fn cpu_time() -> Duration {
    // The call cannot fail for the calling process.
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Duration::ZERO };
    let time = |t: nix::sys::time::TimeVal| {
        Duration::from_secs(t.tv_sec().unsigned_abs()) + Duration::from_micros(t.tv_usec().unsigned_abs())
    };
    time(usage.user_time()) + time(usage.system_time())
}
