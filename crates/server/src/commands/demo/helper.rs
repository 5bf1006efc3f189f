//! This program started again as another process: the simulated pad, or the faults between it and the server.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// Max time for the process to exit after it was asked to.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// A process that reports as JSON lines on its standard output.
pub(super) struct Helper {
    name: &'static str,
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Helper {
    /// Starts this program with other arguments. The process is killed when this is dropped.
    pub(super) fn start(name: &'static str, arguments: &[String]) -> anyhow::Result<Helper> {
        let program = std::env::current_exe().context("this program cannot be found")?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().with_context(|| format!("{name} does not start"))?;
        let output = child.stdout.take().with_context(|| format!("{name} has no output"))?;
        Ok(Helper { name, child, lines: BufReader::new(output).lines() })
    }

    /// Returns the first line of its output.
    pub(super) async fn first(&mut self) -> anyhow::Result<Value> {
        let line = self.lines.next_line().await?;
        let line = line.with_context(|| format!("{} ended at its start", self.name))?;
        serde_json::from_str(&line).with_context(|| format!("{} said {line:?}", self.name))
    }

    /// Waits until the process exits.
    pub(super) async fn ended(&mut self) -> anyhow::Result<ExitStatus> {
        Ok(self.child.wait().await?)
    }

    /// Asks the process to exit, if it has not. Returns its exit status and the last line of its output.
    pub(super) async fn end(mut self) -> anyhow::Result<(ExitStatus, Value)> {
        if let Some(id) = self.child.id() {
            let id = nix::unistd::Pid::from_raw(i32::try_from(id)?);
            // The process may have exited just now.
            let _ = nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM);
            if tokio::time::timeout(END_PATIENCE, self.child.wait()).await.is_err() {
                tracing::warn!("{} did not end and is killed", self.name);
                self.child.kill().await?;
            }
        }
        let status = self.child.wait().await?;
        let mut last = Value::Null;
        while let Some(line) = self.lines.next_line().await? {
            last = serde_json::from_str(&line).unwrap_or(Value::Null);
        }
        Ok((status, last))
    }
}
