//! `strongback store read`: prints frames as text, from a store that no server uses.

use std::io::Write;
use std::ops::Range;

use anyhow::{Context, bail};
use strongback_sources::rows::{self, RowSelection};
use strongback_store::text::{self, CsvLead};
use strongback_store::{Chosen, Pattern, Resample, Store, matching_data};

use super::place;
use crate::cli::{ReadArgs, Selection, TextForm, TimeForm};
use crate::commands::outcome::{Outcome, WrongFlag};
use crate::commands::output;
use crate::instant;
use crate::process::clock::now_ns;

/// Parses the times of the flags.
pub(super) fn time_range(selection: &Selection) -> anyhow::Result<Range<i64>> {
    let now = now_ns();
    let read = |text: &Option<String>, flag: &str, open: i64| -> anyhow::Result<i64> {
        match text {
            Some(text) => instant::parse(text, now).map_err(|error| WrongFlag(format!("{flag}: {error}")).into()),
            None => Ok(open),
        }
    };
    Ok(read(&selection.from, "--from", i64::MIN)?..read(&selection.to, "--to", i64::MAX)?)
}

/// Returns the channels that match the patterns, at least one.
pub(super) fn chosen(store: &Store, patterns: &str) -> anyhow::Result<Vec<Chosen>> {
    let patterns = crate::http::split_patterns(patterns).map_err(|failure| anyhow::anyhow!(failure.message))?;
    let catalog = store.catalog();
    let chosen = matching_data(&catalog, &patterns)?;
    if chosen.is_empty() {
        let text: Vec<&str> = patterns.iter().map(Pattern::as_str).collect();
        match catalog.streams.iter().any(|stream| !stream.key.is_internal()) {
            true => bail!("no channel matches {}; `strongback store stats` lists those there are", text.join(",")),
            false => bail!("the store holds no stream"),
        }
    }
    Ok(chosen)
}

/// Writes frames.
///
/// # Errors
/// If frames cannot be read or written.
pub(super) fn run(args: &ReadArgs) -> anyhow::Result<Outcome> {
    let time = time_range(&args.selection)?;
    let (store, opened) = place::open_to_read(&args.path)?;
    let read = (|| {
        let is_ns = args.time == TimeForm::Ns;
        let lead = CsvLead { time: !is_ns, time_ns: is_ns, stream: true, gap: false };
        let reading = RowSelection {
            chosen: chosen(&store, &args.selection.channels)?,
            time,
            limit: args.first.or(args.last),
            from_newest: args.last.is_some(),
            newest_first: args.newest_first,
            form: match args.format {
                TextForm::Csv => text::TextForm::Csv(lead),
                TextForm::Jsonl => text::TextForm::Jsonl,
            },
        };
        let mut output = output::open(args.output.as_deref())?;
        let mut damaged = 0;
        let written = if args.intervals {
            rows::write_intervals(&store.view(), &reading, &mut output)
        } else if let Some(every) = args.every {
            let step_ns = u64::try_from(every.as_nanos()).unwrap_or(u64::MAX);
            let how = if args.interpolate { Resample::Interpolated } else { Resample::AsOf };
            rows::write_grid(&store.view(), &reading, (step_ns, how), &mut output)
        } else {
            rows::write(&store.view(), &reading, &mut output, |error| {
                damaged += 1;
                eprintln!("strongback: {error}");
            })
        };
        written.and_then(|_| output.flush()).context("not all frames are printed")?;
        Ok(if damaged > 0 { Outcome::DataLost } else { opened })
    })();
    place::close(&store, read)
}
