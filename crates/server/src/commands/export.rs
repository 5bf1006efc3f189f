//! `strongback export`: stored data to standard output or a file, from a folder or from a running server.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use strongback_query::{
    EventRow, ExportFormat, ExportMarks, ExportRequest, GapRow, MarkedSpan, Query, QueryOptions, SourceRow, SystemRows,
};
use strongback_store::{ChannelIndex, Store, Stream};

use crate::cli::{self, ExportArgs};
use crate::commands::client::{Refused, Server};
use crate::commands::outcome::{Outcome, check_times};
use crate::commands::reach::{DataPlace, Flags};
use crate::commands::serve::runtime;
use crate::commands::{client, output, reach, settings};
use crate::config::Config;
use crate::http::{range, split_patterns};
use crate::marks::log::MarkLog;
use crate::process::clock::now_ns;
use crate::sources::ledger::{Ledger, ROWS_MAX};

/// Exports the data.
///
/// # Errors
/// If the data cannot be read or written.
pub fn run(args: &ExportArgs) -> anyhow::Result<Outcome> {
    let config = if args.server.is_some() { None } else { settings::file(args.config.as_deref()) };
    run_with(args, config.as_deref())
}

/// Exports the data, with the configuration of a file, or the default one.
///
/// # Errors
/// As [`run`].
pub fn run_with(args: &ExportArgs, config: Option<&Path>) -> anyhow::Result<Outcome> {
    check_times(&[("--from", &args.from), ("--to", &args.to)])?;
    let found = reach::find(&Flags {
        config,
        data: args.data.as_deref(),
        server: args.server.as_deref(),
        token: args.auth_token_file.as_deref(),
        writes: false,
    })?;
    let mut output = output::open(args.output.as_deref())?;
    match found {
        DataPlace::Server(server) => from_server(&server, args, &mut output)?,
        DataPlace::Folder(found) => {
            let (store, config) = *found;
            let done = from_folder(&store, &config, args, &mut output);
            store.close(now_ns()).context("the store did not close")?;
            done?;
        }
    }
    output.flush().context("the end of the export cannot be written")?;
    Ok(Outcome::Done)
}

/// Gaps, events and marks of a store without a server.
struct StoreRows {
    ledger: Ledger,
    marks: MarkLog,
    store: Store,
}

impl SystemRows for StoreRows {
    fn sources(&self) -> Vec<SourceRow> {
        Vec::new()
    }

    fn gaps(&self, time: std::ops::Range<i64>) -> Vec<GapRow> {
        self.ledger.gaps(&time, ROWS_MAX)
    }

    fn gaps_known_from(&self) -> Option<i64> {
        self.ledger.gaps_known_from(&self.store)
    }

    fn events(&self, time: std::ops::Range<i64>) -> Vec<EventRow> {
        self.ledger.events(&time, ROWS_MAX)
    }

    fn marked_spans(&self, stream: &Stream, channel: ChannelIndex, time: &std::ops::Range<i64>) -> Vec<MarkedSpan> {
        self.marks.now().of_channel(stream, channel, time)
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
        marks: match args.marks {
            cli::ExportMarks::Apply => ExportMarks::Apply,
            cli::ExportMarks::Ignore => ExportMarks::Ignore,
            cli::ExportMarks::Show => ExportMarks::Show,
        },
    };
    let marks = MarkLog::default();
    marks.load(store).context("the marks cannot be read, so it is not known which values are bad")?;
    let ledger = Ledger::default();
    if let Err(error) = ledger.load(store) {
        tracing::error!(%error, "gaps cannot all be read");
    }
    runtime()?.block_on(async {
        let options = QueryOptions { memory_bytes: config.query.memory_mib << 20, ..QueryOptions::default() };
        let rows = StoreRows { ledger, marks, store: store.clone() };
        let engine = Query::new(store.clone(), Arc::new(rows), options)?;
        let mut stream = engine.export(request).await?;
        while let Some(chunk) = stream.next().await {
            output.write_all(&chunk?).context("the export cannot be written")?;
        }
        anyhow::Ok(())
    })
}

fn from_server(server: &Server, args: &ExportArgs, into: &mut dyn Write) -> anyhow::Result<()> {
    let format = match args.format {
        cli::ExportFormat::Csv => "csv",
        cli::ExportFormat::Jsonl => "jsonl",
        cli::ExportFormat::Parquet => "parquet",
    };
    let mut path = format!("/api/export?format={format}&channels={}", client::percent_encoded(&args.channels));
    match args.marks {
        cli::ExportMarks::Apply => {}
        cli::ExportMarks::Ignore => path.push_str("&marks=ignore"),
        cli::ExportMarks::Show => path.push_str("&marks=show"),
    }
    for (key, value) in [("from", &args.from), ("to", &args.to)] {
        if let Some(value) = value {
            path.push_str(&format!("&{key}={}", client::percent_encoded(value)));
        }
    }
    let asked = client::ask(server, "GET", &path)?;
    asked.receive(into).map_err(|error| match error.is::<Refused>() || output::is_closed(&error) {
        true => error,
        false => error.context(format!("{} broke the export off", server.address)),
    })
}
