//! This program once more as another process: the simulated pad, or what fails between it and the server.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// How long it may take to end once told.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// A process that reports as JSON lines on its standard output.
pub(super) struct Helper {
    name: &'static str,
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Helper {
    /// Starts this program with other arguments. It is killed if this is dropped.
    pub(super) fn start(name: &'static str, arguments: &[String]) -> anyhow::Result<Helper> {
        let program = std::env::current_exe().context("this program cannot be found")?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().with_context(|| format!("{name} does not start"))?;
        let output = child.stdout.take().with_context(|| format!("{name} has no output"))?;
        Ok(Helper { name, child, lines: BufReader::new(output).lines() })
    }

    /// The first line that it says.
    pub(super) async fn first(&mut self) -> anyhow::Result<Value> {
        let line = self.lines.next_line().await?;
        let line = line.with_context(|| format!("{} ended at its start", self.name))?;
        serde_json::from_str(&line).with_context(|| format!("{} said {line:?}", self.name))
    }

    /// Waits until it ended by itself.
    pub(super) async fn ended(&mut self) -> anyhow::Result<ExitStatus> {
        Ok(self.child.wait().await?)
    }

    /// Asks it to end, if it has not; how it ended, and the last line that it said.
    pub(super) async fn end(mut self) -> anyhow::Result<(ExitStatus, Value)> {
        if let Some(id) = self.child.id() {
            let id = nix::unistd::Pid::from_raw(i32::try_from(id)?);
            // It may have ended this moment.
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
