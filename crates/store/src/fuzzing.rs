//! Every decoder of bytes on disk, each as a function of bytes alone: what a fuzzer calls with the feature `fuzzing`, and
//! the tests below with random changes of valid bytes. Where a checksum stands before what is decoded, it is made to fit first.
//! None of them may panic, whatever the bytes; some check that what was read is written as the same bytes again.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::append::Writer;
use crate::append::recent_file;
use crate::append::stream_slot::SlotTable;
use crate::blob::{CHUNK_HEADER_BYTES, ChunkHeader};
use crate::block::mixed::MixedBlock;
use crate::block::{self, Block};
use crate::bytes::Cursor;
use crate::bytes::fields::Put;
use crate::codec::{self, ChannelMemory, Codec, Effort};
use crate::disk::PAGE_BYTES;
use crate::disk::layout;
use crate::disk::names;
use crate::disk::space::Space;
use crate::log::checkpoint as log_checkpoint;
use crate::log::superblock::{Superblock, SuperblockState};
use crate::log::{UNIT_HEADER_BYTES, UnitHeader};
use crate::model::counts::RecoveryReport;
use crate::model::limits;
use crate::open::{checkpoint, replay};
use crate::rdl::StoreDefinition;
use crate::segment::directory;
use crate::segment::pyramid::Table;
use crate::segment::{self, GroupHeader, SegmentHeader};
use crate::*;

/// A target: its name, and what it calls.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: [Target; 14] = [
    ("superblock", superblock),
    ("first_page", first_page),
    ("checkpoint", checkpoint),
    ("log_header", log_header),
    ("log_records", log_records),
    ("segment_pages", segment_pages),
    ("group", group),
    ("footer", footer),
    ("block", block),
    ("codec", codec),
    ("rdl", rdl),
    ("recent", recent),
    ("blob", blob),
    ("pyramid", pyramid),
];

/// Puts a CRC32C of what comes before it.
fn forge(bytes: &mut [u8], at: usize) {
    if bytes.len() >= at + 4 {
        let crc = crc32c::crc32c(&bytes[..at]);
        bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    }
}

/// A page of the superblock.
pub fn superblock(bytes: &[u8]) {
    let mut page = bytes.to_vec();
    forge(&mut page, 120);
    if let SuperblockState::Valid(found) = Superblock::decode(&page) {
        let again = Superblock::decode(&found.encode());
        assert!(matches!(again, SuperblockState::Valid(again) if again == found), "{found:?}");
    }
}

/// The first page of a store of a fixed size.
pub fn first_page(bytes: &[u8]) {
    let mut page = bytes.to_vec();
    page.resize(PAGE_BYTES, 0);
    forge(&mut page, PAGE_BYTES - 4);
    if let layout::FirstPageState::Valid(found) = layout::Regions::read(&page) {
        let again = found.page().map(|page| layout::Regions::read(&page));
        assert!(matches!(again, Some(layout::FirstPageState::Valid(again)) if again == found), "{found:?}");
    }
}

fn writer() -> Writer {
    let space = Space::of(&StoreOptions { max_bytes: Some(1 << 30), ..StoreOptions::default() }, 0);
    let mut writer = Writer::new(Arc::new(SlotTable::new(64)), 64, Arc::new(AtomicU64::new(1)));
    writer.set_sizes(1 << 20, &space);
    writer
}

/// The entries of a part of a checkpoint, taken back as recovery does.
pub fn checkpoint(bytes: &[u8]) {
    let mut part = Put::default();
    part.0.extend_from_slice(b"SBCP");
    part.u32(1);
    part.u64(bytes.len() as u64);
    part.u64(0);
    part.u32(crc32c::crc32c(bytes));
    let crc = crc32c::crc32c(&part.0);
    part.u32(crc);
    part.0.extend_from_slice(bytes);
    let (mut writer, mut states, mut expired) = (writer(), Default::default(), Vec::new());
    let mut take =
        |kind: u8, t: &mut Cursor<'_>| checkpoint::apply_entry(&mut writer, &mut states, &mut expired, kind, t);
    if let Ok((_, read)) = log_checkpoint::read_part(&part.0, 0, 0, &mut take) {
        assert_eq!(read, part.0.len().next_multiple_of(PAGE_BYTES));
    }
}

/// The header of a unit of the log.
pub fn log_header(bytes: &[u8]) {
    let mut header = bytes.to_vec();
    forge(&mut header, UNIT_HEADER_BYTES - 4);
    if let Some(found) = UnitHeader::decode(&header) {
        assert_eq!(UnitHeader::decode(&found.encode()), Some(found));
        let _ = found.follows(&found.link());
    }
}

/// The records of a unit of the log, taken back as recovery does.
pub fn log_records(bytes: &[u8]) {
    let (mut writer, mut scratch) = (writer(), Default::default());
    let (mut report, mut lost) = (RecoveryReport::default(), Vec::new());
    let _ = replay::apply_unit(&mut writer, bytes, &mut scratch, 1, &mut report, &mut lost);
}

/// The header page and the trailer page of a segment.
pub fn segment_pages(bytes: &[u8]) {
    let mut page = bytes.to_vec();
    page.resize(PAGE_BYTES, 0);
    forge(&mut page, PAGE_BYTES - 4);
    if let Ok(found) = SegmentHeader::read(&page) {
        let again = found.page().map(|page| SegmentHeader::read(&page));
        assert!(matches!(again, Ok(Ok(again)) if again == found), "{found:?}");
    }
    let _ = segment::read_trailer(&page);
}

/// A write group: its header and its blocks' headers, as recovery reads them.
pub fn group(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    if bytes.len() > segment::GROUP_HEADER_BYTES {
        let (header, body) = bytes.split_at_mut(segment::GROUP_HEADER_BYTES);
        let crc = crc32c::crc32c(body);
        header[32..36].copy_from_slice(&crc.to_le_bytes());
        forge(header, 36);
    }
    let Ok(header) = GroupHeader::read(&bytes) else { return };
    let Ok(body) = header.body(&bytes) else { return };
    let of = SegmentHeader {
        origin: 1,
        id: header.segment,
        generation: header.generation,
        size_bytes: 1 << 20,
        created: 0,
        group: String::new(),
        blobs: false,
    };
    let mut builder = segment::Builder::new(of);
    let _ = builder.resume_group(&bytes, |_| None);
    block::headers(body).for_each(drop);
}

/// The footer of a segment.
pub fn footer(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    segment::forge_footer_checksums(&mut bytes);
    let number =
        |at: usize| bytes.get(at..at + 8).map_or(0, |b| b.iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b)));
    let trailer = segment::Trailer {
        footer_offset: PAGE_BYTES as u64,
        footer_bytes: bytes.len(),
        segment: number(8),
        generation: number(16),
    };
    if let Ok(footer) = segment::read_footer(&bytes, &trailer) {
        assert!(
            footer.entries.iter().filter(|entry| footer.stream(entry.header.stream).is_none()).count() <= bytes.len()
        );
    }
}

/// The table of a channel's pyramid, its length before it, and a group of level 0 behind it.
pub fn pyramid(bytes: &[u8]) {
    let Some((&length, rest)) = bytes.split_first() else { return };
    let mut rest = rest.to_vec();
    let all = rest.len();
    let (table, groups) = rest.split_at_mut(all.min(length.into()));
    let fit = |part: &mut [u8]| {
        if part.len() >= 4 {
            let crc = crc32c::crc32c(&part[4..]);
            part[..4].copy_from_slice(&crc.to_le_bytes());
        }
    };
    fit(table);
    let Ok(read) = Table::read(table, all as u32) else { return };
    let Some((offset, len)) = read.group(0, 0) else { return };
    let group = &mut groups[offset as usize - table.len()..][..len as usize];
    fit(group);
    let (.., blocks, _) = segment::pyramid::built(40);
    let _ = read.nodes(group, 0, 0, &blocks);
}

/// A chunk of a blob, and a reference to one.
pub fn blob(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    if bytes.len() > CHUNK_HEADER_BYTES {
        let (header, body) = bytes.split_at_mut(CHUNK_HEADER_BYTES);
        let length = header[4..8].iter().rev().fold(0usize, |n, b| n << 8 | usize::from(*b)).min(body.len());
        let crc = crc32c::crc32c(&body[..length]);
        header[56..60].copy_from_slice(&crc.to_le_bytes());
    }
    forge(&mut bytes, CHUNK_HEADER_BYTES - 4);
    if let Ok(chunk) = ChunkHeader::read(&bytes) {
        assert_eq!(ChunkHeader::read(&chunk.bytes()), Ok(chunk));
        assert!(chunk.padded_bytes() <= limits::BLOB_CHUNK_BYTES as u64);
        let _ = (chunk.offset(), chunk.body(&bytes));
    }
    if let Some(reference) = bytes.get(..16).and_then(BlobRef::from_bytes) {
        assert_eq!(reference.bytes(), bytes[..16]);
        let _ = (reference.segment(), reference.offset(), reference.to_string());
    }
}

/// The layout of a block as it stands.
fn layout_of(kinds: impl Iterator<Item = ChannelType>) -> Layout {
    let channel = |(n, channel_type): (usize, ChannelType)| Channel {
        id: ChannelId(n as u32),
        name: n.to_string(),
        source_name: n.to_string(),
        channel_type,
        unit: String::new(),
        description: String::new(),
        interpolation: Interpolation::Hold,
        reduction: Reduction::None,
    };
    Layout { version: 1, channels: kinds.enumerate().map(channel).collect() }
}

fn look_at(batch: &Batch) {
    for row in [0, batch.len() - 1] {
        let _ = batch.time(row);
        for column in &batch.columns {
            let _ = column.cell(row).map(|value| value.bits());
        }
    }
}

/// A block, or a mixed one: statistics and every column.
pub fn block(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    block::forge_checksums(&mut bytes);
    if let Ok(block) = Block::read(&bytes) {
        let _ = block.statistics();
        let layout = layout_of(block.columns().iter().map(|column| column.channel_type));
        // One by one, so that one that does not fit hides no other.
        for channel in 0..layout.channels.len().min(64) {
            if let Ok(batch) = block.decode(&layout, &[ChannelIndex(channel as u16)]) {
                look_at(&batch);
            }
        }
    }
    if let Ok(mixed) = MixedBlock::read(&bytes) {
        for (n, part) in mixed.parts().iter().enumerate().take(64) {
            let layout = layout_of(part.types().iter().copied());
            let channels: Vec<_> = (0..layout.channels.len().min(64) as u16).map(ChannelIndex).collect();
            if let Ok(batch) = mixed.decode(n, &layout, &channels) {
                look_at(&batch);
            }
        }
    }
}

/// The values of a column: type, codec, bytes of parameters, count (2 bytes); then parameters and values.
pub fn codec(bytes: &[u8]) {
    let Some((&[kind, codec, parameters, low, high], rest)) = bytes.split_first_chunk() else { return };
    let (Some(kind), Some(codec)) = (ChannelType::from_code(kind), Codec::from_code(codec)) else { return };
    let Some((parameters, values)) = rest.split_at_checked(parameters.into()) else { return };
    let count = usize::from(u16::from_le_bytes([low, high])) % 2048;
    if let Ok(found) = codec::decode(kind, codec, parameters, values, count) {
        assert_eq!((found.len(), found.channel_type()), (count, kind));
    }
}

/// A definition of a recorder.
pub fn rdl(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(found) = StoreDefinition::parse(text, "fuzz") {
        let printed = found.to_string();
        assert_eq!(StoreDefinition::parse(&printed, "fuzz").as_ref(), Ok(&found), "{printed}");
    }
}

/// The lists of frames received lately.
pub fn recent(bytes: &[u8]) {
    recent_file::read_forged(bytes);
}

const T0: i64 = 1_790_000_000_000_000_000;

fn spec(name: &str, channels: Vec<ChannelSpec>) -> StreamSpec {
    StreamSpec {
        key: StreamKey::new(name, [("n".to_owned(), "1".to_owned())]),
        source: "fuzz".into(),
        clock: if name == "every" { Clock::Source } else { Clock::Receive },
        expected_period_ns: Some(1_000_000),
        sequence_modulus: (name == "every").then_some(1 << 16),
        channels,
    }
}

fn value(kind: ChannelType, n: u64) -> OwnedValue {
    let noise = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    OwnedValue::Plain(match kind {
        ChannelType::String => return OwnedValue::String(format!("text {}", n % 5)),
        ChannelType::F64 if n.is_multiple_of(3) => Value::F64(f64::from_bits(noise)),
        ChannelType::F64 => Value::F64((n % 97) as f64 / 8.0),
        ChannelType::F32 => Value::F32((n % 89) as f32 / 4.0),
        ChannelType::I64 => Value::I64(noise as i64),
        kind => Value::from_bits(kind, noise & (n & 0x7f)),
    })
}

/// Bytes of real stores, cut into what each target takes: a corpus to begin with.
///
/// # Panics
/// When a store in memory cannot be made.
pub fn corpus() -> Vec<(&'static str, Vec<u8>)> {
    let mut found: Vec<(&'static str, Vec<u8>)> = Vec::new();
    let disk = FaultDisk::new(1);
    let options = StoreOptions {
        log_bytes: 1 << 20,
        segment_bytes: 64 << 10,
        max_bytes: Some(1 << 30),
        open_bytes: 16 << 10,
        ..StoreOptions::default()
    };
    let store = disk.open_store(options, T0).expect("a store in memory");
    let every: Vec<ChannelSpec> =
        ChannelType::ALL.iter().map(|kind| ChannelSpec::new(format!("{}_channel", kind.name()), *kind)).collect();
    let reduced = vec![
        ChannelSpec { reduction: Reduction::SwingingDoor { bound: 0.5 }, ..ChannelSpec::new("door", ChannelType::F64) },
        ChannelSpec { reduction: Reduction::Step, ..ChannelSpec::new("step", ChannelType::String) },
    ];
    let specs =
        [spec("every", every), spec("reduced", reduced), spec("quiet", vec![ChannelSpec::new("x", ChannelType::I16)])];
    let mut n = 0u64;
    for lap in 0..40 {
        for (at, spec) in specs.iter().enumerate() {
            let stream = store.resolve(spec, T0).expect("a stream").0.id;
            let mut batch = FrameBatch::new();
            for _ in 0..[100, 30, 1][at] {
                n += 1;
                let time = T0 + n as i64 * 1_000;
                let sequence = (at == 0).then_some(n % (1 << 16));
                batch.begin(FrameHead {
                    stream,
                    receive_time: time,
                    source_time: (at == 0).then_some(time - 7),
                    sequence,
                });
                for (channel, spec) in spec.channels.iter().enumerate() {
                    match (n + channel as u64) % 11 {
                        0 => {}
                        1 => batch.push_state(ChannelIndex(channel as u16), CellState::Unknown),
                        _ => batch.push(ChannelIndex(channel as u16), value(spec.channel_type, n).as_value()),
                    }
                }
                batch.end();
            }
            store.append(&batch, T0 + n as i64 * 1_000);
        }
        store.commit(T0 + lap).expect("committed");
        if lap > 3 {
            while store.maintain(T0 + lap).expect("maintained") {}
        }
    }
    log_of(&disk, &mut found);
    for blocks in [4, 17, 40] {
        let (bytes, table, ..) = segment::pyramid::built(blocks);
        found.push(("pyramid", [&[table as u8], bytes.as_slice()].concat()));
    }
    for size in [0, 1_000, 30_000] {
        let mut writer = store.blob(StreamId(0)).expect("a blob");
        writer.write(&vec![7; size]).expect("written");
        let reference = writer.finish(T0).expect("finished");
        let file = disk.content(&directory::file_name(reference.segment())).expect("a segment");
        found.push(("blob", file[reference.offset() as usize..][..CHUNK_HEADER_BYTES + size].to_vec()));
    }
    let channels = (0..ChannelType::ALL.len() as u16).map(ChannelIndex).collect();
    for batch in store.view().scan(Scan::all(StreamId(0), channels)).flatten().step_by(7) {
        for (n, column) in batch.columns.iter().enumerate() {
            let effort = if n % 2 == 0 { Effort::Seal } else { Effort::Settle };
            found.push(("codec", column_of(&column.values, effort)));
        }
    }
    store.close(T0 + 100).expect("closed");
    log_of(&disk, &mut found);
    for page in disk.content("superblock").expect("a superblock").chunks(PAGE_BYTES) {
        found.push(("superblock", page[..124].to_vec()));
    }
    for name in names::CHECKPOINTS {
        let bytes = disk.content(name).unwrap_or_default();
        let length = bytes.get(8..16).map_or(0, |b| b.iter().rev().fold(0usize, |n, b| n << 8 | usize::from(*b)));
        found.extend(bytes.get(32..32 + length).map(|entries| ("checkpoint", entries.to_vec())));
    }
    found.extend(disk.content("recent").map(|bytes| ("recent", bytes)));
    for segment in store.segments() {
        segment_of(&disk.content(&directory::file_name(segment.id)).unwrap_or_default(), &mut found);
    }
    let page = FixedOptions::new(204_800).layout(7).expect("a layout").page().expect("a page");
    found.push(("first_page", page));
    let text = "SET fileSize = 8388608\nCREATE STREAM a WITH ID 1 { x double NULL WITH CODEC SwingingDoorAlgorithm \
                PARAMS (deviation=0.5), \"y z\" int32, s string WITH CODEC StepAlgorithm }\n";
    found.push(("rdl", text.as_bytes().to_vec()));
    found
}

/// Units of a log.
fn log_of(disk: &FaultDisk, found: &mut Vec<(&'static str, Vec<u8>)>) {
    let log = disk.content(names::LOG).expect("a log");
    let mut all = Vec::new();
    for at in (0..log.len()).step_by(PAGE_BYTES) {
        if let Some(header) = UnitHeader::decode(&log[at..]) {
            found.push(("log_header", log[at..at + UNIT_HEADER_BYTES].to_vec()));
            let records = at + UNIT_HEADER_BYTES..at + UNIT_HEADER_BYTES + header.len as usize;
            all.extend_from_slice(log.get(records).unwrap_or_default());
            // What defines the streams comes first, and frames of them follow.
            if header.len > 0 && all.len() < 64 << 10 {
                found.push(("log_records", all.clone()));
            }
        }
    }
}

/// The parts of the file of a segment, sealed or open.
///
/// # Panics
/// When it is none.
pub fn segment_of(file: &[u8], found: &mut Vec<(&'static str, Vec<u8>)>) {
    let trailer_at = file.len() - PAGE_BYTES;
    found.push(("segment_pages", file[..PAGE_BYTES].to_vec()));
    found.push(("segment_pages", file[trailer_at..].to_vec()));
    if let Ok(trailer) = segment::read_trailer(&file[trailer_at..]) {
        let at = trailer.footer_offset as usize;
        found.push(("footer", file[at..at + trailer.footer_bytes].to_vec()));
    }
    let mut at = PAGE_BYTES;
    while let Ok(header) = GroupHeader::read(&file[at..]) {
        let bytes = &file[at..at + header.length_bytes];
        found.push(("group", bytes.to_vec()));
        let body = header.body(bytes).expect("a whole group");
        found.extend(block::headers(body).flatten().map(|(range, _)| ("block", body[range].to_vec())));
        at += header.padded_bytes();
    }
}

fn column_of(values: &ColumnValues, effort: Effort) -> Vec<u8> {
    let (mut memory, mut scratch, mut out) = (ChannelMemory::default(), codec::Scratch::default(), Vec::new());
    let encoded = codec::encode(values, &mut memory, effort, &mut scratch, &mut out);
    let [low, high, ..] = values.len().to_le_bytes();
    let mut bytes = vec![values.channel_type().code(), encoded.codec as u8, encoded.parameter_bytes as u8, low, high];
    bytes.extend(out);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_decoder_panics_whatever_is_changed() {
        let corpus = corpus();
        let mut random = fastrand::Rng::with_seed(11);
        for (name, target) in TARGETS {
            let seeds: Vec<&Vec<u8>> = corpus.iter().filter(|(of, _)| *of == name).map(|(_, bytes)| bytes).collect();
            assert!(!seeds.is_empty(), "{name}: nothing to begin with");
            seeds.iter().for_each(|seed| target(seed));
            for _ in 0..1_500 {
                let mut bytes = seeds[random.usize(..seeds.len())].clone();
                for _ in 0..random.usize(1..6) {
                    change(&mut bytes, &mut random);
                }
                target(&bytes);
            }
        }
    }

    /// One change of bytes, as a disk or somebody with an editor makes it.
    fn change(bytes: &mut Vec<u8>, random: &mut fastrand::Rng) {
        if bytes.is_empty() {
            return;
        }
        let at = random.usize(..bytes.len());
        match random.u8(0..8) {
            0..3 => bytes[at] ^= 1 << random.u8(0..8),
            3 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.usize(..5)],
            4 => bytes[at..].iter_mut().take(8).for_each(|byte| *byte = 0xff),
            5 => bytes.truncate(at),
            6 => {
                let piece = bytes[at..].iter().copied().take(random.usize(1..64)).collect::<Vec<u8>>();
                bytes.splice(at..at, piece);
            }
            _ => drop(bytes.drain(at..bytes.len().min(at + random.usize(1..64)))),
        }
    }
}
