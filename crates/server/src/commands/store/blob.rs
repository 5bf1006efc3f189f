//! `strongback store blob`: gets a blob out of a store that no server uses, or puts one into it as a frame.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use strongback_store::{
    BlobRef, CellState, ChannelIndex, ChannelSpec, ChannelType, Clock, FrameBatch, FrameHead, OwnedValue, Refusal,
    Scan, ScanError, Store, Stream, StreamKey, StreamSpec, Value,
};

use super::place;
use crate::cli::BlobArgs;
use crate::commands::outcome::Outcome;
use crate::commands::output;
use crate::instant;
use crate::process::clock::now_ns;

/// Bytes of a file read at a time.
const PIECE_BYTES: usize = 64 << 10;

/// Writes a blob to a file, or puts a file into the store.
///
/// # Errors
/// If the blob cannot be found, read or written.
pub(super) fn run(args: &BlobArgs) -> anyhow::Result<Outcome> {
    let at = match &args.at {
        Some(text) => Some(instant::parse(text, now_ns()).map_err(|error| anyhow::anyhow!("--at: {error}"))?),
        None => None,
    };
    match &args.put {
        Some(file) => {
            let store = place::open(&args.path, None)?;
            place::close(&store, put(&store, args, file, at.unwrap_or_else(now_ns)))
        }
        None => {
            let (store, opened) = place::open_to_read(&args.path)?;
            let got = get(&store, args, at);
            place::close(&store, got.map(|got| if got == Outcome::Done { opened } else { got }))
        }
    }
}

fn stream(store: &Store, name: &str) -> Option<Arc<Stream>> {
    store.catalog().streams.iter().find(|stream| stream.key.to_string() == name).cloned()
}

/// Puts the bytes of a file into the store, with a frame that refers to them.
fn put(store: &Store, args: &BlobArgs, file: &Path, time: i64) -> anyhow::Result<Outcome> {
    let known = stream(store, &args.stream);
    if known.is_none() && args.stream.contains('{') {
        bail!("{}: no stream of this name; one with tags must be there", args.stream);
    }
    let spec = StreamSpec {
        key: known.as_ref().map_or_else(|| StreamKey::new(&args.stream, []), |stream| stream.key.clone()),
        source: known.as_ref().map_or_else(|| "blob".to_owned(), |stream| stream.source.clone()),
        clock: known.as_ref().map_or(Clock::Receive, |stream| stream.clock),
        expected_period_ns: known.as_ref().and_then(|stream| stream.expected_period_ns),
        sequence_modulus: known.as_ref().and_then(|stream| stream.sequence_modulus),
        channels: vec![ChannelSpec::new(&args.channel, ChannelType::Blob)],
    };
    let (stream, channels) = store.resolve(&spec, now_ns())?;
    let name = file.display().to_string();
    let mut writer = store.blob(stream.id)?;
    let mut input: Box<dyn Read> = if name == "-" {
        Box::new(io::stdin().lock())
    } else {
        let file = File::open(file).with_context(|| name.clone())?;
        let about = file.metadata().with_context(|| name.clone())?;
        if about.is_file() {
            writer.expect(about.len()).with_context(|| name.clone())?;
        }
        Box::new(file)
    };
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match input.read(&mut piece) {
            Ok(0) => break,
            Ok(len) => writer.write(&piece[..len]).with_context(|| name.clone())?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).with_context(|| name.clone()),
        }
    }
    let reference = writer.finish(now_ns()).with_context(|| name.clone())?;
    let mut batch = FrameBatch::new();
    batch.begin(FrameHead { stream: stream.id, receive_time: time, source_time: None, sequence: None });
    batch.push(channels[0], Value::Blob(reference));
    batch.end();
    let outcome = store.append(&batch, now_ns()).outcomes.remove(0);
    let row = match outcome {
        strongback_store::Outcome::Stored { row } => row,
        strongback_store::Outcome::Rejected(reject) => return Err(reject.into()),
        other => bail!("{name}: {other:?}"),
    };
    store.commit(now_ns()).map_err(|refusal: Refusal| anyhow::anyhow!("{name}: {refusal}"))?;
    let channel = stream.key.channel_name(&stream.layout.channel(channels[0]).name);
    println!("{channel} row {row}: {reference}");
    Ok(Outcome::Done)
}

/// Writes the blob of a frame.
fn get(store: &Store, args: &BlobArgs, at: Option<i64>) -> anyhow::Result<Outcome> {
    let Some(stream) = stream(store, &args.stream) else {
        bail!("{}: no stream of this name; `strongback store stats` lists those there are", args.stream);
    };
    let channels = &stream.layout.channels;
    let Some(index) = channels.iter().position(|channel| channel.name == args.channel) else {
        bail!("{}: no channel {}", args.stream, args.channel);
    };
    if channels[index].channel_type != ChannelType::Blob {
        bail!("{}.{}: holds {}, no blobs", args.stream, args.channel, channels[index].channel_type.name());
    }
    let reference = named(store, &stream, ChannelIndex(index as u16), args.row, at)?;
    let mut reader = store.view().blob(stream.id, &reference)?;
    let mut output = output::open(args.output.as_deref().filter(|path| path.as_os_str() != "-"))?;
    match io::copy(&mut reader, &mut output).and_then(|_| output.flush()) {
        Ok(()) => Ok(Outcome::Done),
        Err(error) => match error.get_ref().and_then(|inner| inner.downcast_ref::<ScanError>()) {
            Some(ScanError::Damaged { .. }) => {
                eprintln!("strongback: {error}; what was written ends before it");
                Ok(Outcome::DataLost)
            }
            _ => Err(error).context("the blob cannot be written"),
        },
    }
}

/// Returns the blob of a row, or the newest one up to a time.
fn named(
    store: &Store,
    stream: &Stream,
    channel: ChannelIndex,
    row: Option<u64>,
    at: Option<i64>,
) -> anyhow::Result<BlobRef> {
    let name = stream.key.channel_name(&stream.layout.channel(channel).name);
    let Some(row) = row else {
        let state = store.view().state_at(stream.id, at.unwrap_or(i64::MAX), &[channel])?;
        return match state.into_iter().flatten().next().and_then(|cell| cell.value) {
            Some(OwnedValue::Plain(Value::Blob(blob))) => Ok(blob),
            _ => bail!("{name}: no blob{}", if at.is_some() { " at this time or before" } else { "" }),
        };
    };
    let scan = Scan { rows: row..row.saturating_add(1), ..Scan::all(stream.id, vec![channel]) };
    for batch in store.view().scan(scan) {
        let batch = batch?;
        if !batch.is_empty() {
            return match batch.columns[0].cell(0) {
                Ok(Value::Blob(blob)) => Ok(blob),
                Err(CellState::Unknown) => bail!("{name}: what it is in row {row} is not known"),
                _ => bail!("{name}: row {row} has no blob"),
            };
        }
    }
    bail!("{name}: no row {row}")
}
