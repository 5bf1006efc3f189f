//! Reports of parts of the server that work beside the sources, such as webhooks and archives.

use strongback_query::{EventOrigin, EventRow};

use crate::ingest::Ingest;
use crate::process::clock::now_ns;
use crate::sources::ledger::Ledger;

/// Max bytes of a report.
const TEXT_MAX: usize = 500;

/// Reports a text to the log and as an event of `source`, cut to 500 bytes. Levels other than `info` are warnings in the
/// log.
pub fn report(ingest: &Ingest, ledger: &Ledger, source: &str, level: &str, mut text: String) {
    while text.len() > TEXT_MAX {
        text.pop();
    }
    match level {
        "info" => tracing::info!("{text}"),
        _ => tracing::warn!("{text}"),
    }
    let (level, source, origin) = (level.to_owned(), source.to_owned(), EventOrigin::Server);
    ledger.record_or_say(ingest, &EventRow { time_ns: now_ns(), level, source, text, origin });
}
