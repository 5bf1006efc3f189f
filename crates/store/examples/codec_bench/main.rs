//! Bytes and nanoseconds a point of the codecs, on generated series or on a file.
//!
//! ```text
//! cargo run --release --example codec_bench [-- --rows 1024] [--filter adc]
//! cargo run --release --example codec_bench -- --csv FILE | --json FILE
//! ```
//! A CSV file has a line of names; a JSON file holds an object of arrays, an array of objects, or one object
//! a line. The first column whose name is time, timestamp or t is the time (seconds or nanoseconds).

mod file;
mod series;

use std::hint::black_box;
use std::time::Instant;

use strongback_store::block::{self, Block, BlockMeta, Encoder};
use strongback_store::codec::{CodecMemory, Effort};
use strongback_store::*;

/// Channels of a frame of the generated series.
const CHANNELS: usize = 100;
/// Rounds: the first teaches the memory and is not counted.
const ROUNDS: usize = 12;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let option = |name: &str| arguments.iter().position(|a| a == name).and_then(|i| arguments.get(i + 1));
    let rows: usize = option("--rows").and_then(|r| r.parse().ok()).unwrap_or(1_024);
    if let Some(path) = option("--csv") {
        return report_file(path, file::csv(path));
    }
    if let Some(path) = option("--json") {
        return report_file(path, file::json(path));
    }
    let filter = option("--filter").map(|f| f.to_lowercase()).unwrap_or_default();
    println!("{rows} rows a block, {CHANNELS} channels a frame; encode with statistics, checksum and stamps\n");
    println!("{:36} {:>8} {:>8} {:>12} {:>12}  codec", "series", "plain", "B/point", "encode M/s", "decode M/s");
    for kind in series::ALL.iter().filter(|s| s.name.to_lowercase().contains(&filter)) {
        let columns: Vec<ColumnValues> = (0..CHANNELS as u64).map(|seed| (kind.values)(seed, rows * ROUNDS)).collect();
        let figures = measure(&columns, rows);
        println!(
            "{:36} {:8.2} {:8.3} {:12.0} {:12.0}  {}",
            kind.name,
            plain_bytes(&columns[0]),
            figures.bytes_per_point,
            figures.encode_m_per_s,
            figures.decode_m_per_s,
            figures.codecs,
        );
    }
    if filter.is_empty() {
        println!("\n{:36} {:>8}", "time stamps", "B/stamp");
        for (name, make) in series::STAMPS {
            let batch = batch_of(make(rows), Vec::new(), 0);
            let layout = Layout { version: 1, channels: Vec::new() };
            let (bytes, _) = encode(&mut Encoder::new(), &batch, &layout, &mut CodecMemory::new(), Effort::Seal);
            let stamps = Block::read(&bytes).expect("a block").system_bytes();
            println!("{name:36} {:8.3}", stamps as f64 / rows as f64);
        }
    }
}

struct Figures {
    bytes_per_point: f64,
    encode_m_per_s: f64,
    decode_m_per_s: f64,
    codecs: String,
}

fn measure(columns: &[ColumnValues], rows: usize) -> Figures {
    let layout = layout_of(columns.iter().enumerate().map(|(i, c)| (format!("c{i}"), c.channel_type())));
    let batches: Vec<Batch> = (0..ROUNDS)
        .map(|round| {
            let part = columns.iter().map(|c| slice(c, round * rows, rows)).collect();
            let times =
                (0..rows as i64).map(|i| 1_763_600_000_000_000_000 + (round as i64 * rows as i64 + i) * 1_000_000);
            batch_of(times.collect(), part, (round * rows) as u64)
        })
        .collect();
    let (mut encoder, mut memory) = (Encoder::new(), CodecMemory::new());
    let mut blocks = Vec::new();
    let mut encoding = f64::INFINITY;
    for batch in &batches {
        let started = Instant::now();
        let (bytes, _) = encode(&mut encoder, batch, &layout, &mut memory, Effort::Seal);
        if !blocks.is_empty() {
            encoding = encoding.min(started.elapsed().as_secs_f64());
        }
        blocks.push(bytes);
    }
    let all: Vec<ChannelIndex> = (0..columns.len() as u16).map(ChannelIndex).collect();
    let mut decoding = f64::INFINITY;
    for _ in 0..3 {
        for (bytes, batch) in blocks.iter().zip(&batches) {
            let started = Instant::now();
            let got = black_box(block::decode(bytes, &layout, &all).expect("a block"));
            decoding = decoding.min(started.elapsed().as_secs_f64());
            assert_eq!(got.len(), batch.len());
        }
    }
    let (mut size, mut codecs) = (0, Vec::new());
    for bytes in &blocks[1..] {
        let block = Block::read(bytes).expect("a block");
        size += bytes.len() - block.system_bytes();
        for name in block.columns().iter().map(|c| c.codec.name()) {
            if !codecs.contains(&name) {
                codecs.push(name);
            }
        }
    }
    let points = (rows * columns.len()) as f64;
    Figures {
        bytes_per_point: size as f64 / (points * (ROUNDS - 1) as f64),
        encode_m_per_s: points / encoding / 1e6,
        decode_m_per_s: points / decoding / 1e6,
        codecs: codecs.join(", "),
    }
}

fn encode(
    encoder: &mut Encoder,
    batch: &Batch,
    layout: &Layout,
    memory: &mut CodecMemory,
    effort: Effort,
) -> (Vec<u8>, block::BlockHeader) {
    let meta = BlockMeta {
        origin: 1,
        epoch: 1,
        stored: (0, 1),
        overlaps_previous: false,
        gaps: &[],
        max_future_ns: i64::MAX,
        effort,
    };
    let mut out = Vec::new();
    let header = encoder.encode(&meta, batch, layout, memory, &mut out).expect("a block");
    (out, header)
}

fn layout_of(channels: impl Iterator<Item = (String, ChannelType)>) -> Layout {
    let channel = |(i, (name, channel_type)): (usize, (String, ChannelType))| Channel {
        id: ChannelId(i as u32),
        source_name: name.clone(),
        name,
        channel_type,
        unit: String::new(),
        description: String::new(),
        interpolation: if channel_type.is_float() { Interpolation::Linear } else { Interpolation::Hold },
        reduction: Reduction::None,
    };
    Layout { version: 1, channels: channels.enumerate().map(channel).collect() }
}

fn batch_of(times: Vec<i64>, columns: Vec<ColumnValues>, first: u64) -> Batch {
    Batch {
        stream: StreamId(0),
        rows: (first..first + times.len() as u64).collect(),
        receive_time: times,
        source_time: None,
        sequence: None,
        session: None,
        source_clock: false,
        columns: columns.into_iter().map(|values| Column { values, states: None }).collect(),
    }
}

fn plain_bytes(values: &ColumnValues) -> f64 {
    match values {
        ColumnValues::String { bytes, .. } => bytes.len() as f64 / values.len() as f64 + 4.0,
        other => other.channel_type().size_bytes() as f64,
    }
}

/// Rows of a column.
fn slice(values: &ColumnValues, start: usize, rows: usize) -> ColumnValues {
    values.pick(start..start + rows)
}

/// Encodes a file's table in blocks of 1,024 rows and says what each column took.
fn report_file(path: &str, table: file::Table) {
    let rows = table.rows;
    let layout = layout_of(table.columns.iter().map(|(name, c)| (name.clone(), c.values.channel_type())));
    let (mut encoder, mut memory) = (Encoder::new(), CodecMemory::new());
    let mut taken: Vec<(usize, &'static str)> = vec![(0, ""); table.columns.len()];
    let (mut total, mut stamps) = (0, 0);
    for start in (0..rows).step_by(1_024) {
        let count = (rows - start).min(1_024);
        let mut batch = batch_of(table.times[start..start + count].to_vec(), Vec::new(), start as u64);
        batch.columns = table
            .columns
            .iter()
            .map(|(_, column)| Column {
                values: slice(&column.values, start, count),
                states: column.states.as_ref().map(|s| s[start..start + count].to_vec()),
            })
            .collect();
        let (bytes, _) = encode(&mut encoder, &batch, &layout, &mut memory, Effort::Seal);
        let block = Block::read(&bytes).expect("a block");
        total += bytes.len();
        stamps += block.system_bytes();
        for (taken, entry) in taken.iter_mut().zip(block.columns()) {
            *taken = (taken.0 + entry.bytes(), entry.codec.name());
        }
    }
    println!("{path}: {rows} rows, {} channels, {} points", table.columns.len(), table.points);
    println!("{:40} {:>7} {:>9}  codec of the last block", "channel", "type", "B/row");
    for ((name, column), (bytes, codec)) in table.columns.iter().zip(taken) {
        let kind = column.values.channel_type().name();
        println!("{name:40} {kind:>7} {:9.3}  {codec}", bytes as f64 / rows as f64);
    }
    println!("{:40} {:>7} {:9.3}", "time", "", stamps as f64 / rows as f64);
    println!(
        "total: {total} bytes, {:.3} bytes/point with stamps and headers",
        total as f64 / table.points.max(1) as f64
    );
}
