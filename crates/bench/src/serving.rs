//! A server process, as users start it, and the simulated pad that feeds it.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde::Serialize;
use serde_json::Value;

use crate::http::HttpConnection;

/// Max time for a started server to answer, and for a stopped one to end.
const PATIENCE: Duration = Duration::from_secs(30);
/// Polling interval.
const LOOK: Duration = Duration::from_millis(5);

/// Program to be measured.
#[derive(Clone, Debug, clap::Args)]
pub struct ServerProgram {
    /// Path of the server's program [default: `strongback` next to this one]
    #[arg(long, value_name = "PATH")]
    pub server: Option<PathBuf>,
}

impl ServerProgram {
    /// Returns the path of the program.
    ///
    /// # Errors
    /// No path is given, and there is no server next to this program.
    pub fn path(&self) -> anyhow::Result<PathBuf> {
        if let Some(named) = &self.server {
            return Ok(named.clone());
        }
        let beside = std::env::current_exe().context("path of this program")?.with_file_name("strongback");
        if !beside.is_file() {
            bail!("there is no server to measure at {}: name one with --server", beside.display());
        }
        Ok(beside)
    }
}

/// Resources that a process has used so far.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Usage {
    /// Processor time in seconds.
    pub cpu_s: f64,
    /// Current resident memory, in MiB.
    pub rss_mib: f64,
    /// Max resident memory so far, in MiB.
    pub rss_mib_max: f64,
}

/// Addresses of a server on this machine.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    /// Page, REST, line protocol over HTTP.
    pub http: SocketAddr,
    /// Line protocol over TCP.
    pub ilp: SocketAddr,
    /// PostgreSQL wire.
    pub pg: SocketAddr,
    /// iNET-X.
    pub fti: SocketAddr,
}

impl Ports {
    /// Reserves free ports, all different.
    ///
    /// # Errors
    /// Any error of the system.
    pub fn reserve<const N: usize>() -> anyhow::Result<[Ports; N]> {
        // Hold all of them, so that they differ.
        let mut held = Vec::new();
        let mut tcp = || -> anyhow::Result<SocketAddr> {
            held.push(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?);
            Ok(held[held.len() - 1].local_addr()?)
        };
        let mut packets = Vec::new();
        let mut all = Vec::new();
        for _ in 0..N {
            packets.push(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?);
            all.push(Ports { http: tcp()?, ilp: tcp()?, pg: tcp()?, fti: packets[packets.len() - 1].local_addr()? });
        }
        all.try_into().map_err(|_| anyhow::anyhow!("as many as were asked for"))
    }
}

/// Running `strongback serve`.
pub struct ServerProcess {
    child: Child,
    program: PathBuf,
    log: PathBuf,
    /// Page, REST, line protocol over HTTP.
    pub http: SocketAddr,
    /// Line protocol over TCP.
    pub ilp: SocketAddr,
    /// PostgreSQL wire.
    pub pg: SocketAddr,
    /// iNET-X.
    pub fti: SocketAddr,
}

impl ServerProcess {
    /// Starts a server on a folder, with the pad's layouts and units, at free ports, and waits until it is healthy.
    ///
    /// # Errors
    /// The server ends or does not answer; the end of its log is in the message.
    pub fn start(program: &ServerProgram, dir: &Path) -> anyhow::Result<ServerProcess> {
        let [ports] = Ports::reserve()?;
        ServerProcess::start_at(program, dir, &ports, &strongback_sim::pad_config_at(ports.fti))
    }

    /// Starts a server at given ports, with a configuration that defines where it listens for packets.
    ///
    /// # Errors
    /// As for [`ServerProcess::start`].
    pub fn start_at(program: &ServerProgram, dir: &Path, ports: &Ports, text: &str) -> anyhow::Result<ServerProcess> {
        let mut server = ServerProcess::spawn(program, dir, &dir.join("store"), ports, text, &[])?;
        server.wait_until_healthy()?;
        Ok(server)
    }

    /// Starts a server without waiting, with its data in another folder, and with environment variables.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn spawn(
        program: &ServerProgram,
        dir: &Path,
        data: &Path,
        ports: &Ports,
        text: &str,
        environment: &[(String, String)],
    ) -> anyhow::Result<ServerProcess> {
        let program = program.path()?;
        let log = dir.join("server.log");
        let Ports { http, ilp, pg, fti } = *ports;
        let config = dir.join("strongback.toml");
        File::create(&config)?.write_all(text.as_bytes())?;
        let file = File::options().create(true).append(true).open(&log)?;
        let child = Command::new(&program)
            .arg("serve")
            .args(["--config".as_ref(), config.as_os_str(), "--data".as_ref(), data.as_os_str()])
            .args(["--http", &http.to_string(), "--ilp", &ilp.to_string(), "--pg", &pg.to_string()])
            .args(["--flight", "off"])
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| program.display().to_string())?;
        Ok(ServerProcess { child, program, log, http, ilp, pg, fti })
    }

    /// Waits until the server is healthy.
    ///
    /// # Errors
    /// The server ends or does not answer; the end of its log is in the message.
    pub fn wait_until_healthy(&mut self) -> anyhow::Result<()> {
        let healthy = self.becomes_healthy(PATIENCE)?;
        ensure!(healthy, "the server was not healthy within {PATIENCE:?}: {}", self.last_words());
        Ok(())
    }

    /// Waits until the server is healthy, for at most `patience`. Returns whether it is.
    ///
    /// # Errors
    /// The server ended; the end of its log is in the message.
    pub fn becomes_healthy(&mut self, patience: Duration) -> anyhow::Result<bool> {
        let begin = Instant::now();
        loop {
            let healthy = HttpConnection::open(self.http, PATIENCE)
                .and_then(|mut http| http.get("/api/health"))
                .is_ok_and(|answer| answer.status == 200);
            if healthy {
                return Ok(true);
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("the server ended at its start with {status}: {}", self.last_words());
            }
            if begin.elapsed() > patience {
                return Ok(false);
            }
            std::thread::park_timeout(LOOK);
        }
    }

    /// Starts the simulated pad, sending to the server.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start_pad(&self, dir: &Path) -> anyhow::Result<Helper> {
        self.start_pad_with(dir, "")
    }

    /// Starts the simulated pad with additional flags.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start_pad_with(&self, dir: &Path, more: &str) -> anyhow::Result<Helper> {
        start_pad(&self.program, dir, self.fti, self.ilp, more)
    }

    /// Returns the resources it has used.
    pub fn usage(&self) -> Usage {
        usage(self.child.id())
    }

    /// Stops the server with SIGTERM; it must exit with code 0.
    ///
    /// # Errors
    /// The server exits with another code, or does not end.
    pub fn stop(mut self) -> anyhow::Result<()> {
        end(&mut self.child).with_context(|| self.last_words())
    }

    /// Kills the server with SIGKILL.
    ///
    /// # Errors
    /// The system refuses the signal.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().context("SIGKILL")?;
        self.child.wait().context("the killed server")?;
        Ok(())
    }

    /// Fails if the server has ended.
    ///
    /// # Errors
    /// The server has ended; its code and the end of its log are in the message.
    pub fn check_alive(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the server ended with {status}: {}", self.last_words()),
        }
    }

    /// Returns the end of its log.
    pub fn last_words(&self) -> String {
        last_lines(&self.log, 12)
    }

    /// Returns panics logged after the first `read` bytes of its log, and moves `read` to the end of the last whole
    /// line.
    ///
    /// A panic is a defect even where the server catches it and answers.
    pub fn panics(&self, read: &mut u64) -> Vec<String> {
        let mut fresh = Vec::new();
        let looked = File::open(&self.log).and_then(|mut log| {
            log.seek(SeekFrom::Start(*read))?;
            log.read_to_end(&mut fresh)
        });
        let Some(end) = looked.ok().and_then(|_| fresh.iter().rposition(|byte| *byte == b'\n')) else {
            return Vec::new();
        };
        *read += end as u64 + 1;
        let lines = String::from_utf8_lossy(&fresh[..end]);
        lines.lines().filter(|line| line.contains("panicked at")).map(str::to_owned).collect()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        put_away(&mut self.child);
    }
}

/// Starts the pad, sending to any line-protocol server.
///
/// # Errors
/// The program cannot be started.
pub fn start_pad_at(program: &ServerProgram, dir: &Path, ilp: SocketAddr) -> anyhow::Result<Helper> {
    // Its packets go to a port that was just freed, so there is no receiver.
    let fti = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    start_pad(&program.path()?, dir, fti, ilp, "")
}

/// Starts the pad with given receivers and additional flags.
///
/// # Errors
/// The program cannot be started.
pub fn start_pad(program: &Path, dir: &Path, fti: SocketAddr, ilp: SocketAddr, more: &str) -> anyhow::Result<Helper> {
    let (fti, ilp) = (fti.to_string(), ilp.to_string());
    let mut words = vec!["simulate", "pad", "--json", "--t0", "62s", "--fti", &fti, "--ilp", &ilp];
    words.extend(more.split_whitespace());
    Helper::start(program, dir, "pad", &words)
}

/// Process that runs alongside the server, whose standard output is kept.
pub struct Helper {
    name: String,
    child: Child,
    out: PathBuf,
    log: PathBuf,
}

impl Helper {
    /// Starts a program with its arguments; `name` is that of its files in the folder.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(program: &Path, dir: &Path, name: &str, words: &[&str]) -> anyhow::Result<Helper> {
        let (out, log) = (dir.join(format!("{name}.json")), dir.join(format!("{name}.log")));
        let child = Command::new(program)
            .args(words)
            .stdin(Stdio::null())
            .stdout(File::create(&out)?)
            .stderr(File::create(&log)?)
            .spawn()
            .with_context(|| program.display().to_string())?;
        Ok(Helper { name: name.to_owned(), child, out, log })
    }

    /// Waits until the process has printed its first line.
    ///
    /// # Errors
    /// The process ends, or prints nothing.
    pub fn wait_for_line(&mut self) -> anyhow::Result<()> {
        let begin = Instant::now();
        while !std::fs::read_to_string(&self.out)?.contains('\n') {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended at its start with {status}: {}", self.name, self.last_words());
            }
            if begin.elapsed() > PATIENCE {
                bail!("{} did not start within {PATIENCE:?}", self.name);
            }
            std::thread::park_timeout(LOOK);
        }
        Ok(())
    }

    /// Waits until the process ends.
    ///
    /// # Errors
    /// The process fails, or does not end in time.
    pub fn wait(&mut self, patience: Duration) -> anyhow::Result<()> {
        let begin = Instant::now();
        loop {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("{} ended with {status}: {}", self.name, self.last_words()),
                None if begin.elapsed() > patience => bail!("{} did not end within {patience:?}", self.name),
                None => std::thread::park_timeout(LOOK),
            }
        }
    }

    /// Returns the resources it has used.
    pub fn usage(&self) -> Usage {
        usage(self.child.id())
    }

    /// Stops the process and returns its report.
    ///
    /// # Errors
    /// The process does not exit with code 0, or prints nothing.
    pub fn stop(mut self) -> anyhow::Result<Value> {
        end(&mut self.child).with_context(|| format!("{}: {}", self.name, self.last_words()))?;
        self.report()
    }

    /// Returns the last line it printed, as JSON.
    ///
    /// # Errors
    /// There is no line, or it is not JSON.
    pub fn report(&self) -> anyhow::Result<Value> {
        let said = std::fs::read_to_string(&self.out)?;
        let last = said.lines().last().with_context(|| format!("{} reported nothing", self.name))?;
        serde_json::from_str(last).with_context(|| format!("the report of {}: {last}", self.name))
    }

    fn last_words(&self) -> String {
        last_lines(&self.log, 5)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        put_away(&mut self.child);
    }
}

/// Configuration in addition to the pad's groups: a thousand neighbours between two copies of their cycle's number.
pub const STRAIN: &str = r#"
[[source.group]]
table = "plc.strain"
symbols = ["FAST.cycle", "FAST.strain_????", "FAST.cycle_end"]
mode = "cyclic-notification"
cycle_ms = 1.0
"#;

/// Waits until the number of a server's channels stops growing, because the senders have started.
///
/// # Errors
/// The server does not answer, or receives nothing.
pub(crate) fn wait_for_channels(http: SocketAddr) -> anyhow::Result<()> {
    let mut http = HttpConnection::open(http, PATIENCE)?;
    let begin = Instant::now();
    let (mut before, mut since) = (0, Instant::now());
    loop {
        let total = http.json("/api/channels?limit=1")?["total"].as_u64().context("total")?;
        if total != before {
            (before, since) = (total, Instant::now());
        } else if total > 0 && since.elapsed() > Duration::from_secs(1) {
            return Ok(());
        }
        if begin.elapsed() > PATIENCE {
            bail!("{total} channels, and still growing, after {PATIENCE:?}");
        }
        std::thread::park_timeout(LOOK);
    }
}

/// Returns the end of a log.
pub(crate) fn last_lines(log: &Path, count: usize) -> String {
    let log = std::fs::read(log).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// Stops a process with SIGTERM; it must exit with code 0.
fn end(child: &mut Child) -> anyhow::Result<()> {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id())?);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM)?;
    let begin = Instant::now();
    loop {
        match child.try_wait()? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => bail!("it ended with {status} after SIGTERM"),
            None if begin.elapsed() > PATIENCE => bail!("it did not end within {PATIENCE:?} of SIGTERM"),
            None => std::thread::park_timeout(LOOK),
        }
    }
}

/// Kills a process that is still running.
fn put_away(child: &mut Child) {
    if matches!(child.try_wait(), Ok(None)) {
        // A process that cannot be killed has already ended.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Returns the resources that a process has used so far.
pub(crate) fn usage(pid: u32) -> Usage {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    // Fields after the name in parentheses: state is the third, user and system time are the 14th and 15th.
    let stat = read("stat");
    let ticks: u64 = stat
        .rsplit(')')
        .next()
        .map(|rest| rest.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<u64>().ok()).sum())
        .unwrap_or(0);
    let status = read("status");
    let mib = |name: &str| {
        let kib = status.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_default();
        kib.trim().trim_end_matches(" kB").parse().unwrap_or(0.0) / 1024.0
    };
    // USER_HZ is 100 on every Linux that is supported.
    Usage { cpu_s: ticks as f64 / 100.0, rss_mib: mib("VmRSS:"), rss_mib_max: mib("VmHWM:") }
}
