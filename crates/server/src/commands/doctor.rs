//! `strongback doctor`: asks a running server for its findings and prints them.

use std::fmt::Write as _;

use anyhow::Context;
use serde_json::Value;
use strongback_sources::instant;

use crate::cli::DoctorArgs;
use crate::commands::client;
use crate::commands::outcome::{Outcome, WrongFlag};
use crate::commands::settings;
use crate::process::clock::now_ns;

/// Width of the output in characters.
const WIDTH: usize = 98;

/// Asks the server and prints its report.
///
/// # Errors
/// If no server answers, or a flag is invalid ([`WrongFlag`]).
pub fn run(args: &DoctorArgs) -> anyhow::Result<Outcome> {
    if let Some(Err(error)) = args.at.as_deref().map(|at| instant::parse(at, now_ns())) {
        return Err(WrongFlag(format!("--at: {error}")).into());
    }
    let report = ask(args)?;
    match args.json {
        true => println!("{report}"),
        false => print!("{}", text(&report)),
    }
    Ok(if report["wrong"] == false { Outcome::Done } else { Outcome::Findings })
}

fn ask(args: &DoctorArgs) -> anyhow::Result<Value> {
    let mut path = "/api/doctor?".to_owned();
    for (key, value) in [("channel", &args.channel), ("at", &args.at)] {
        if let Some(value) = value {
            write!(path, "{key}={}&", client::percent_encoded(value))?;
        }
    }
    let server = settings::server(args.server.as_deref(), args.auth_token_file.as_deref())?;
    let asked = client::ask(&server, "GET", &path)?;
    let report = asked.json()?;
    report["wrong"].as_bool().context("the answer is none of a doctor: is the server older?")?;
    Ok(report)
}

/// Formats a report for people.
pub fn text(report: &Value) -> String {
    let mut out = String::new();
    let of = report["channel"].as_str().unwrap_or("everything");
    let at = time(&report["at"]).map_or_else(|| "now".to_owned(), |at| format!("at {at}"));
    put(&mut out, "", "", &format!("{of}, {at}: {}", report["verdict"].as_str().unwrap_or_default()));
    for (n, finding) in report["findings"].as_array().into_iter().flatten().enumerate() {
        let field = |key: &str| finding[key].as_str().unwrap_or_default();
        let about = if field("stream").is_empty() { field("source") } else { field("stream") };
        let cause = field("cause").replace('_', " ");
        let note = if finding["wrong"] == false { " (to know)" } else { "" };
        out.push('\n');
        put(&mut out, &format!("{:2}. ", n + 1), "    ", format!("{cause}{note}  {about}").trim_end());
        put(&mut out, "    ", "    ", field("text"));
        let span = match (time(&finding["from"]), time(&finding["to"])) {
            (Some(from), Some(to)) => format!("from {from} to {to}"),
            (Some(from), None) => format!("since {from}"),
            (None, Some(to)) => format!("until {to}"),
            (None, None) => String::new(),
        };
        let count = finding["count"].as_str().map_or_else(String::new, |n| format!("count {n}"));
        let place = [span, count].into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>().join(", ");
        put(&mut out, "    ", "    ", &place);
        put(&mut out, "    -> ", "       ", field("advice"));
    }
    out
}

/// Formats a time of the report, to the millisecond.
fn time(value: &Value) -> Option<String> {
    let ns: i64 = value.as_str()?.parse().ok()?;
    let text = instant::format(ns);
    Some(format!("{}Z", text.get(..23)?))
}

/// Appends a paragraph wrapped to the width; nothing if it is empty.
fn put(out: &mut String, first: &str, others: &str, paragraph: &str) {
    if paragraph.is_empty() {
        return;
    }
    let mut line = first.to_owned();
    let mut is_new = true;
    for word in paragraph.split(' ') {
        let mut word = word;
        if !is_new && line.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(out, "{}", line.trim_end());
            others.clone_into(&mut line);
            is_new = true;
        }
        if !is_new {
            line.push(' ');
        }
        // A name may be longer than a line.
        while let Some((end, _)) = word.char_indices().nth(WIDTH.saturating_sub(line.chars().count()).max(1)) {
            let _ = writeln!(out, "{line}{}", &word[..end]);
            others.clone_into(&mut line);
            word = &word[end..];
        }
        line.push_str(word);
        is_new = false;
    }
    let _ = writeln!(out, "{}", line.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_fits_the_screen_and_says_all() {
        let long = "x".repeat(250);
        let report = serde_json::json!({
            "channel": "tank.p", "at": "1780000000000000000", "verdict": "1 finding in 1 stream", "findings": [{
                "cause": "server_not_running", "wrong": true, "source": "ilp", "stream": "tank",
                "from": "1780000000000000000", "to": "1780000010000000000", "count": "250",
                "text": format!("no server {long} ran {}", "for long ".repeat(40)), "advice": "start it",
            }],
        });
        let text = text(&report);
        assert!(text.lines().all(|l| l.chars().count() <= 100), "{text}");
        assert_eq!(text.matches('x').count(), 250);
        assert_eq!(text.matches("for long").count() + text.matches("for\n    long").count(), 40, "{text}");
        for part in [
            "tank.p, at 2026-05-28T20:26:40.000Z: 1 finding in 1 stream\n\n 1. server not running  tank\n    no server",
            "\n    from 2026-05-28T20:26:40.000Z to 2026-05-28T20:26:50.000Z, count 250\n    -> start it\n",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}
