//! `strongback store stats`: statistics of each channel, mostly from those of blocks.

use serde_json::json;
use strongback_store::{Bucket, Channel, Scan, ScanError, Stream, StreamId, Value, View};

use super::{place, read};
use crate::cli::StatsArgs;
use crate::commands::outcome::Outcome;
use crate::instant;
use crate::text::json::JsonCell;
use crate::text::plural::many;

/// Prints a line for each channel. A channel with damaged blocks is named without figures.
///
/// # Errors
/// If the store cannot be read.
pub(super) fn run(args: &StatsArgs) -> anyhow::Result<Outcome> {
    let time = read::time_range(&args.selection)?;
    let (store, opened) = place::open_to_read(&args.path)?;
    let done = (|| {
        let view = store.view();
        let (mut found, mut outcome) = (Vec::new(), opened);
        for (stream, channels) in read::chosen(&store, &args.selection.channels)? {
            for index in channels {
                let channel = stream.layout.channel(index).clone();
                let bucket = view.reduce(stream.id, index, time.clone(), 1).map(|buckets| buckets.into_iter().next());
                let bucket = bucket.inspect_err(|error| {
                    let name = stream.key.channel_name(&channel.name);
                    eprintln!("strongback: {name} has no figures: {error}");
                    outcome = Outcome::DataLost;
                });
                found.push((stream.clone(), channel, bucket));
            }
        }
        let stats = store.stats();
        if args.json {
            let channels: Vec<serde_json::Value> = found.iter().map(|(s, c, b)| card(s, c, b)).collect();
            let ranges = |id| time_range(&view, id).map(|(from, to)| [from.to_string(), to.to_string()]);
            let mut streams: Vec<_> = found.iter().map(|(stream, ..)| stream.clone()).collect();
            streams.dedup_by_key(|stream| stream.id);
            let streams: Vec<serde_json::Value> = streams
                .iter()
                .map(|s| {
                    let frames = view.next_row(s.id).to_string();
                    json!({ "stream": s.key.to_string(), "frames": frames, "time": ranges(s.id) })
                })
                .collect();
            println!(
                "{}",
                json!({
                    "channels": channels, "streams": streams, "disk_bytes": stats.disk_bytes.to_string(),
                    "block_bytes": stats.block_bytes.to_string(), "segments": stats.segments,
                })
            );
            return Ok(outcome);
        }
        println!(
            "{:6} {:>12} {:>14} {:>14} {:>14} {:>14} {:>14}  channel",
            "type", "values", "first", "last", "least", "greatest", "mean"
        );
        for (stream, channel, bucket) in &found {
            println!("{}  {}", line(channel, bucket), stream.key.channel_name(&channel.name));
        }
        if let Some((from, to)) =
            found.iter().filter_map(|(s, ..)| time_range(&view, s.id)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
        {
            println!("from {} to {}", instant::format(from), instant::format(to));
        }
        println!(
            "{} on disk, {} of them blocks in {}",
            many(stats.disk_bytes, "byte"),
            stats.block_bytes,
            many(stats.segments, "segment")
        );
        Ok(outcome)
    })();
    place::close(&store, done)
}

/// Returns the min and max `time` of the frames a stream still has, without overwritten ones.
fn time_range(view: &View, stream: StreamId) -> Option<(i64, i64)> {
    let (from, to) = view.time_range(stream)?;
    let oldest = view.scan(Scan::all(stream, Vec::new())).find_map(Result::ok)?;
    let first = (0..oldest.len()).map(|row| oldest.time(row)).min()?;
    // In streams out of order an older frame may follow.
    Some((if view.time_sorted(stream) { first } else { from }, to))
}

/// Figures of a channel: none without values, an error if they cannot be read.
type Figures = Result<Option<Bucket>, ScanError>;

fn card(stream: &Stream, channel: &Channel, figures: &Figures) -> serde_json::Value {
    let bucket = figures.as_ref().ok().and_then(Option::as_ref);
    let values = figures.as_ref().ok().map(|_| bucket.map_or(0, |b| b.count).to_string());
    let cell = |value: Option<Value<'_>>| value.map(|value| json!(JsonCell(value)));
    json!({
        "channel": stream.key.channel_name(&channel.name), "type": channel.channel_type.name(), "unit": channel.unit,
        "values": values,
        "first": bucket.and_then(|b| cell(Some(b.first.as_value()))),
        "last": bucket.and_then(|b| cell(Some(b.last.as_value()))),
        "min": bucket.and_then(|b| cell(b.min)), "max": bucket.and_then(|b| cell(b.max)),
        "mean": bucket.and_then(|b| b.mean),
    })
}

/// Formats the columns before the name.
fn line(channel: &Channel, figures: &Figures) -> String {
    let short = |value: Option<Value<'_>>| match value {
        None => "–".to_owned(),
        Some(Value::String(text)) => text.chars().take(14).collect(),
        Some(Value::Bool(is)) => is.to_string(),
        Some(Value::Blob(blob)) => format!("{} bytes", blob.length_bytes()),
        Some(Value::Array(array)) => format!("{}[{}]", array.element().channel_type().name(), array.len()),
        Some(value) => match value.as_f64() {
            Some(number) if channel.channel_type.is_float() => float(number),
            _ => json!(JsonCell(value)).to_string().trim_matches('"').to_owned(),
        },
    };
    let Ok(Some(bucket)) = figures else {
        return format!(
            "{:6} {:>12} {:>14} {:>14} {:>14} {:>14} {:>14}",
            channel.channel_type.name(),
            if figures.is_ok() { "0" } else { "damaged" },
            "–",
            "–",
            "–",
            "–",
            "–"
        );
    };
    let values = [Some(bucket.first.as_value()), Some(bucket.last.as_value()), bucket.min, bucket.max].map(short);
    let [first, last, min, max] = values;
    let mean = bucket.mean.map_or("–".to_owned(), float);
    format!(
        "{:6} {:>12} {first:>14} {last:>14} {min:>14} {max:>14} {mean:>14}",
        channel.channel_type.name(),
        bucket.count
    )
}

/// Formats a float in at most 14 characters: as it is if that is short enough, else with six decimals for usual sizes,
/// and with an exponent for others.
fn float(number: f64) -> String {
    let plain = format!("{number}");
    if plain.len() <= 14 {
        return plain;
    }
    let size = number.abs();
    if (1e-3..1e6).contains(&size) { format!("{number:.6}") } else { format!("{number:.6e}") }
}
