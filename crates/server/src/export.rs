//! `strongback export`: stored data to standard output or a file, from a folder or from a running server.

use std::cell::Cell;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Arc;

use anyhow::Context;
use strongback_query::{EventRow, ExportFormat, ExportRequest, GapRow, Query, QueryOptions, SourceRow, SystemRows};
use strongback_store::{Scan, Store, Stream, Value};

use crate::cli::{self, ExportArgs};
use crate::client;
use crate::clock::now_ns;
use crate::config::Config;
use crate::http::{range, split_patterns};
use crate::ledger::{Ledger, ROWS_MAX};
use crate::outcome::Outcome;
use crate::reach::{self, Flags, Place};
use crate::serve::runtime;

/// Where the store keeps gaps, and the cause of those that fill others.
const GAPS: &str = "strongback.gaps";
const FILLED: &str = "filled";

/// Exports.
///
/// # Errors
/// What keeps the data from being read or written.
pub fn run(args: &ExportArgs) -> anyhow::Result<Outcome> {
    let found = reach::find(&Flags {
        config: args.config.as_deref(),
        data: args.data.as_deref(),
        server: args.server.as_deref(),
        token: args.auth_token_file.as_deref(),
    })?;
    let mut output: Box<dyn Write> = match &args.output {
        Some(path) => Box::new(BufWriter::new(File::create(path).with_context(|| path.display().to_string())?)),
        None => Box::new(BufWriter::new(std::io::stdout().lock())),
    };
    match found {
        Place::Server(server) => from_server(&server, args, &mut output)?,
        Place::Folder(found) => {
            let (store, config) = *found;
            let done = from_folder(&store, &config, args, &mut output);
            store.close(now_ns()).context("the store did not close")?;
            done?;
        }
    }
    output.flush().context("the end of the export cannot be written")?;
    Ok(Outcome::Done)
}

/// Finds the `time` before which a ledger left gaps out that the store has; `None` where it has them all.
pub fn gaps_known_from(ledger: &Ledger, store: &Store) -> Option<i64> {
    let oldest = Cell::new(None);
    // Looks at all, and copies none.
    ledger.gaps_where(&(i64::MIN..i64::MAX), 1, |gap| {
        let is_older = oldest.get().is_none_or(|(id, _)| gap.id < id);
        // A gap that is not kept any more may be filled.
        if gap.cause != FILLED && is_older {
            oldest.set(Some((gap.id, gap.to_time_ns)));
        }
        false
    });
    let (oldest, to_time) = oldest.get()?;
    first_gap(store).filter(|first| *first < oldest).map(|_| to_time)
}

/// Number of the oldest gap that is stored.
fn first_gap(store: &Store) -> Option<u64> {
    let view = store.view();
    let own = |stream: &&Arc<Stream>| stream.key.table == GAPS && stream.key.tags.is_empty();
    let stream = view.catalog().streams.iter().find(own)?;
    let columns = vec![stream.layout.index("id")?, stream.layout.index("cause")?];
    let scan = Scan { batch_rows: 64, ..Scan::all(stream.id, columns) };
    for batch in view.scan(scan).filter_map(Result::ok) {
        for row in 0..batch.len() {
            let [id, cause] = &batch.columns[..] else { return None };
            match (id.cell(row), cause.cell(row)) {
                (_, Ok(Value::String(FILLED))) | (Err(_), _) => {}
                (Ok(Value::U64(id)), _) => return Some(id),
                _ => return None,
            }
        }
    }
    None
}

/// Gaps and events of a store without a server.
struct Rows {
    ledger: Ledger,
    store: Store,
}

impl SystemRows for Rows {
    fn sources(&self) -> Vec<SourceRow> {
        Vec::new()
    }

    fn gaps(&self, time: std::ops::Range<i64>) -> Vec<GapRow> {
        self.ledger.gaps(&time, ROWS_MAX)
    }

    fn gaps_known_from(&self) -> Option<i64> {
        gaps_known_from(&self.ledger, &self.store)
    }

    fn events(&self, time: std::ops::Range<i64>) -> Vec<EventRow> {
        self.ledger.events(&time, ROWS_MAX)
    }
}

fn from_folder(store: &Store, config: &Config, args: &ExportArgs, output: &mut dyn Write) -> anyhow::Result<()> {
    let failed = |failure: crate::http::answer::Failure| anyhow::anyhow!(failure.message);
    let request = ExportRequest {
        time: range(args.from.as_deref(), args.to.as_deref(), i64::MIN).map_err(failed)?,
        patterns: split_patterns(&args.channels).map_err(failed)?,
        format: match args.format {
            cli::ExportFormat::Csv => ExportFormat::Csv,
            cli::ExportFormat::Jsonl => ExportFormat::Jsonl,
            cli::ExportFormat::Parquet => ExportFormat::Parquet,
        },
    };
    let ledger = Ledger::default();
    if let Err(error) = ledger.load(store) {
        tracing::error!(%error, "gaps cannot all be read");
    }
    runtime()?.block_on(async {
        let options = QueryOptions { memory_bytes: config.query.memory_mib << 20, ..QueryOptions::default() };
        let rows = Rows { ledger, store: store.clone() };
        let engine = Query::new(store.clone(), Arc::new(rows), options)?;
        let mut stream = engine.export(request).await?;
        while let Some(chunk) = stream.next().await {
            output.write_all(&chunk?).context("the export cannot be written")?;
        }
        anyhow::Ok(())
    })
}

fn from_server(server: &str, args: &ExportArgs, output: &mut dyn Write) -> anyhow::Result<()> {
    let format = match args.format {
        cli::ExportFormat::Csv => "csv",
        cli::ExportFormat::Jsonl => "jsonl",
        cli::ExportFormat::Parquet => "parquet",
    };
    let mut path = format!("/api/export?format={format}&channels={}", client::percent_encoded(&args.channels));
    for (key, value) in [("from", &args.from), ("to", &args.to)] {
        if let Some(value) = value {
            path.push_str(&format!("&{key}={}", client::percent_encoded(value)));
        }
    }
    let asked = client::ask(server, "GET", &path, args.auth_token_file.as_deref())?;
    asked.receive(output).with_context(|| format!("{server} broke the export off"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use strongback_store::{
        ChannelIndex, ChannelSpec, ChannelType, Clock, FrameBatch, FrameHead, Outcome, StoreOptions, StreamKey,
        StreamSpec,
    };

    const T0: i64 = 1_790_000_000_000_000_000;

    #[test]
    fn where_there_are_more_gaps_than_are_kept_it_is_known_from_when_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), StoreOptions::default(), T0).unwrap();
        let channels = [
            ("id", ChannelType::U64),
            ("from_time", ChannelType::I64),
            ("to_time", ChannelType::I64),
            ("cause", ChannelType::String),
        ];
        let spec = StreamSpec {
            key: StreamKey::new(GAPS, []),
            source: "strongback".to_owned(),
            clock: Clock::Receive,
            expected_period_ns: None,
            sequence_modulus: None,
            channels: channels.into_iter().map(|(name, kind)| ChannelSpec::new(name, kind)).collect(),
        };
        let stream = store.resolve(&spec, T0).unwrap().0.id;
        let append = |ids: std::ops::Range<i64>, cause: &str, received: i64| {
            let mut batch = FrameBatch::new();
            for id in ids {
                let at = T0 + id;
                batch.begin(FrameHead { stream, receive_time: received + id, source_time: None, sequence: None });
                batch.push(ChannelIndex(0), Value::U64(id as u64));
                batch.push(ChannelIndex(1), Value::I64(at));
                batch.push(ChannelIndex(2), Value::I64(at + 1));
                batch.push(ChannelIndex(3), Value::String(cause));
                batch.end();
            }
            let now = T0 + 3 * ROWS_MAX as i64;
            let outcomes = store.append(&batch, now).outcomes;
            assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Stored { .. })));
            store.commit(now).unwrap();
            while store.maintain(now).unwrap() {}
        };
        let known_from = || {
            let ledger = Ledger::default();
            ledger.load(&store).unwrap();
            gaps_known_from(&ledger, &store)
        };
        assert_eq!(known_from(), None);
        let most = ROWS_MAX as i64;
        append(1..1 + most, "sequence", T0);
        assert_eq!(known_from(), None);
        // The oldest two are not read any more, and what fills one of them is no gap of its own.
        append(1 + most..2 + most, "sequence", T0);
        append(1..2, FILLED, T0 + 2 * most);
        assert_eq!(known_from(), Some(T0 + 3 + 1));
    }
}
