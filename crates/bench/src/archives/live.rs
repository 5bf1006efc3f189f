//! All targets at once, fed live: the pad in its real time, and how far behind each follower is.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde::Serialize;

use super::target::{Kind, RunningTarget};
use super::{ArchivesArguments, card, wait};
use crate::serving::{Ports, ServerProcess};
use crate::table::{Table, short};

/// Result of the section.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LiveResult {
    /// Length in seconds.
    pub(super) seconds: u64,
    /// Frames stored per second.
    pub(super) frames_per_s: f64,
    /// Processor time of the server over the elapsed time.
    pub(super) server_cores: f64,
    /// Each follower.
    pub(super) followers: Vec<FollowerResult>,
}

/// Lag of a follower.
#[derive(Clone, Debug, Serialize)]
pub(super) struct FollowerResult {
    /// Name of the target.
    pub(super) target: String,
    /// Frames delivered at the end, which are all.
    pub(super) frames: u64,
    /// Median age of the oldest frame not delivered, in seconds.
    pub(super) lag_s_p50: f64,
    /// Max of it after the first ten seconds.
    pub(super) lag_s_max: f64,
}

/// Runs the pad for some seconds beside followers of all targets.
pub(super) fn run(
    kinds: &[Kind],
    arguments: &ArchivesArguments,
    seconds: u64,
    dir: &Path,
) -> anyhow::Result<LiveResult> {
    let mut targets = Vec::new();
    for kind in kinds {
        if let Some(peer) = arguments.peers.start_named(kind.recipe(), kind.name(), kind.configuration()) {
            targets.push(RunningTarget::new(*kind, peer, dir)?);
        }
    }
    let [ports] = Ports::reserve()?;
    let mut config = strongback_sim::pad_config_at(ports.fti);
    config.push('\n');
    targets.iter().for_each(|target| config.push_str(&target.config(target.kind().recipe(), 200)));
    let server = ServerProcess::start_at(&arguments.program, dir, &ports, &config)?;
    let pad = server.start_pad(dir)?;
    let (begin, before) = (Instant::now(), server.usage().cpu_s);
    let mut lags: Vec<Vec<f64>> = vec![Vec::new(); targets.len()];
    while begin.elapsed() < Duration::from_secs(seconds) {
        std::thread::park_timeout(Duration::from_millis(250));
        for (target, lags) in targets.iter().zip(&mut lags) {
            if begin.elapsed() > Duration::from_secs(10) {
                lags.push(card(&server, target.kind().recipe())?["lag_s"].as_f64().unwrap_or_default());
            }
        }
    }
    let (elapsed, cpu_s) = (begin.elapsed().as_secs_f64(), server.usage().cpu_s - before);
    pad.stop()?;
    let mut followers = Vec::new();
    for (target, lags) in targets.iter().zip(&mut lags) {
        let name = target.kind().recipe();
        wait(|| Ok(card(&server, name)?["behind_frames"] == 0))?;
        let card = card(&server, name)?;
        ensure!(card["rejected_frames"] == 0 && card["skipped_frames"] == 0, "{name} has not all frames: {card}");
        lags.sort_by(f64::total_cmp);
        followers.push(FollowerResult {
            target: target.kind().name().to_owned(),
            frames: card["delivered_frames"].as_u64().unwrap_or_default(),
            lag_s_p50: lags.get(lags.len() / 2).copied().unwrap_or_default(),
            lag_s_max: lags.last().copied().unwrap_or_default(),
        });
    }
    let frames_per_s = followers.first().map_or(0.0, |follower| follower.frames as f64 / elapsed);
    server.stop()?;
    let result = LiveResult { seconds, frames_per_s, server_cores: cpu_s / elapsed, followers };
    print(&result);
    Ok(result)
}

fn print(result: &LiveResult) {
    println!(
        "\nThe pad live for {} s, {} frames/s, into all at once; the server took {:.2} cores\n",
        result.seconds,
        short(result.frames_per_s),
        result.server_cores
    );
    let mut table = Table::new(["target", "frames", "lag p50, s", "lag max, s"]);
    for follower in &result.followers {
        table.row([
            follower.target.clone(),
            short(follower.frames as f64),
            format!("{:.2}", follower.lag_s_p50),
            format!("{:.2}", follower.lag_s_max),
        ]);
    }
    table.print();
}
