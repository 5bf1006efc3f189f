//! The machine a benchmark ran on, and the processor time of a thread.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::unistd::Pid;
use serde::Serialize;

/// Machine that the figures were measured on.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Name of the processor.
    pub processor: String,
    /// Number of cores this process may use.
    pub cores: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Kernel version.
    pub kernel: String,
    /// File system of the benchmark's folder.
    pub file_system: String,
    /// Load average over the last minute, which shows what else ran during the benchmark.
    pub load: f64,
    /// Median of a 4 KiB write and fdatasync on a file with its blocks already written, in microseconds.
    pub sync_us: f64,
}

impl Machine {
    /// Examines the machine; `dir` is the benchmark's folder.
    pub fn look(dir: &Path) -> anyhow::Result<Machine> {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|l| l.starts_with(name)).unwrap_or_default();
            line.split(':').nth(1).unwrap_or_default().trim().to_string()
        };
        let kib = field(&read("/proc/meminfo"), "MemTotal").trim_end_matches(" kB").parse().unwrap_or(0u64);
        Ok(Machine {
            processor: field(&read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: kib / 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_string(),
            file_system: file_system(dir, &read("/proc/mounts")),
            load: read("/proc/loadavg").split(' ').next().and_then(|l| l.parse().ok()).unwrap_or(0.0),
            sync_us: sync_us(dir).context("cannot time a sync")?,
        })
    }

    /// Returns one line for the head of a table.
    pub fn line(&self) -> String {
        format!(
            "{}, {} cores, {} MiB, Linux {}, {}, fdatasync {:.0} µs, load {:.1}",
            self.processor, self.cores, self.memory_mib, self.kernel, self.file_system, self.sync_us, self.load
        )
    }
}

/// Returns the type of the file system of a folder: that of the longest mount point that is a prefix of its path.
fn file_system(dir: &Path, mounts: &str) -> String {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let mut best = (0, String::from("unknown"));
    for line in mounts.lines() {
        let mut parts = line.split(' ').skip(1);
        let (Some(point), Some(kind)) = (parts.next(), parts.next()) else { continue };
        if dir.starts_with(point) && point.len() >= best.0 {
            best = (point.len(), kind.to_string());
        }
    }
    best.1
}

fn sync_us(dir: &Path) -> std::io::Result<f64> {
    use std::os::unix::fs::FileExt;
    let file = tempfile::tempfile_in(dir)?;
    let page = [0x5au8; 4096];
    for i in 0..64 {
        file.write_at(&page, i * 4096)?;
    }
    file.sync_all()?;
    let mut times = Vec::new();
    for i in 0..64 {
        let begin = std::time::Instant::now();
        file.write_at(&page, i * 4096)?;
        file.sync_data()?;
        times.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// Returns the processor time of this thread.
pub fn thread_time() -> Duration {
    getrusage(UsageWho::RUSAGE_THREAD).map_or(Duration::ZERO, |usage| processor_time(&usage))
}

/// Returns the processor time, in user code and in the kernel.
pub(crate) fn processor_time(usage: &Usage) -> Duration {
    let seconds = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6;
    Duration::from_secs_f64(seconds(usage.user_time()) + seconds(usage.system_time()))
}

/// Runs `work` on one core: this thread and those it starts stay on it until it returns.
pub fn on_one_core<T>(work: impl FnOnce() -> T) -> anyhow::Result<T> {
    let all = sched_getaffinity(Pid::from_raw(0)).context("which cores this thread may use")?;
    let first = (0..CpuSet::count()).rev().find(|cpu| all.is_set(*cpu).unwrap_or(false)).unwrap_or(0);
    let mut one = CpuSet::new();
    one.set(first).context("a core")?;
    sched_setaffinity(Pid::from_raw(0), &one).context("cannot stay on one core")?;
    let result = work();
    sched_setaffinity(Pid::from_raw(0), &all).context("cannot use all cores again")?;
    Ok(result)
}
