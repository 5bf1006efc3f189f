//! Well-behaved screens of the pad, which receive every frame during the attack.

use std::sync::mpsc::Sender;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use strongback_sim::{Pad, PadOptions, PadSource};

use super::target::Target;
use crate::http::HttpConnection;
use crate::live::client::{Client, Form, Seen};
use crate::live::crowd;
use crate::serving::ServerProcess;

/// Interval at which their observations are checked.
const LOOK: Duration = Duration::from_secs(5);
/// Max time to count the rows of a table.
const PATIENCE: Duration = Duration::from_secs(60);
/// Channels of the screens, in turn.
const SCREENS: [&[&str]; 4] = [
    &["avionics.sensor_values.*{acu=1}", "avionics.gnc.mode"],
    &["fti.bay.*"],
    &["plc.lox.*valve", "plc.lox.p_??", "plc.gse.*"],
    &["avionics.imu.*"],
];

/// Keeps a number of screens open until the time is over. Returns the observations of all of them. `opened` is
/// dropped when all are open.
pub(super) fn watch(server: &ServerProcess, target: &Target, screens: usize, opened: Sender<()>) -> Seen {
    let mut all = Seen::default();
    let clients = (0..screens)
        .map(|index| Client::of(SCREENS[index % SCREENS.len()], if index % 2 == 0 { Form::Binary } else { Form::Json }))
        .collect();
    let watched = crowd::watch(
        server,
        clients,
        (LOOK, u64::MAX),
        || drop(opened),
        |crowd| {
            let before = all.windows;
            crowd.seen.into_iter().for_each(|seen| all.add(seen));
            if target.is_over() {
                bail!("the time is over");
            }
            ensure!(all.windows > before, "{screens} screens were told of nothing for {LOOK:?}");
            Ok(())
        },
    );
    if let Err(error) = watched
        && !target.is_over()
    {
        target.fail(&format!("a screen of the pad: {error:#}"));
    }
    if all.dropped > 0 {
        target.fail(&format!("screens of the pad missed {} windows", all.dropped));
    }
    all
}

/// Compares what a pad sent over TCP with the stored data. `report` is the pad's own.
///
/// # Errors
/// Frames are missing, or were never sent.
pub(super) fn check(server: &ServerProcess, report: &Value) -> anyhow::Result<()> {
    let mut http = HttpConnection::open(server.http, PATIENCE)?;
    for source in [PadSource::Avionics, PadSource::Plc] {
        let sent = report["sources"][source.name()]["frames_sent"].as_u64().context("frames_sent")?;
        let pad = Pad::of(PadOptions::default(), &[source]);
        let mut tables: Vec<&str> = pad.streams().iter().map(|stream| stream.table.as_str()).collect();
        tables.sort_unstable();
        tables.dedup();
        let counts: Vec<String> = tables.iter().map(|table| format!("(select count(*) from \"{table}\")")).collect();
        let stored = http.sql_row(&format!("select {}", counts.join(" + ")))?;
        ensure!(stored == [sent], "{}: {stored:?} frames are stored of {sent} that were sent", source.name());
    }
    Ok(())
}
