//! Segments of blobs: their chunks, and the cells that name them.

use std::io;

use super::place::StoreFile;
use super::{Depth, Inspection, ListedSegment, SegmentUse, reason};
use crate::blob::ChunkHeader;
use crate::model::batch::{Column, ColumnValues};
use crate::model::blob_ref::BlobRef;
use crate::model::limits::{BLOB_CHUNK_BYTES, PAGE_BYTES};
use crate::model::value::Value;
use crate::segment::SegmentHeader;
use crate::segment::directory::file_name;

/// Progress of reading a blob: its first chunk, the next one, the checksum so far, and whether all so far was intact.
struct Under {
    start: u32,
    next: u32,
    crc: u32,
    whole: bool,
}

/// Inspects a segment of blobs. The bytes that the checkpoint counts were durable as whole chunks, unless the segment
/// was torn by a crash; the bytes behind them may be incomplete.
pub(super) fn walk(
    name: &str,
    file: &StoreFile,
    header: SegmentHeader,
    listed: Option<&ListedSegment>,
    depth: Depth,
    found: &mut Inspection,
) -> io::Result<()> {
    let durable = listed.map_or(0, |known| if known.left { 0 } else { known.bytes });
    let end = listed.filter(|known| known.sealed).map_or(file.size, |known| known.bytes.min(file.size));
    let of = (header.id, header.generation);
    let (mut blobs, mut blob_bytes, mut bytes) = (0, 0, Vec::new());
    let mut under: Option<Under> = None;
    let (mut at, mut missing) = (PAGE_BYTES as u64, false);
    if file.size < durable {
        found.damaged(name, file.size, format!("shorter than the {durable} bytes that were written"));
    }
    while at + PAGE_BYTES as u64 <= end {
        let wanted = if depth == Depth::Everything { BLOB_CHUNK_BYTES } else { PAGE_BYTES };
        let read = file.read_at(&mut bytes, at, wanted)?;
        let chunk = match ChunkHeader::read(read) {
            Ok(chunk) if chunk.is_at(at, of) => chunk,
            other => {
                if at < durable && !missing {
                    let why = other.map_or_else(|error| reason(&error), |_| "a chunk of another place".to_owned());
                    found.damaged(name, at, why);
                }
                (missing, under) = (true, None);
                at += PAGE_BYTES as u64;
                continue;
            }
        };
        missing = false;
        let goes_on = under.take().filter(|under| (under.start, under.next) == (chunk.start, chunk.index));
        let mut now = goes_on.unwrap_or(Under { start: chunk.start, next: 0, crc: 0, whole: chunk.index == 0 });
        now.next = chunk.index + 1;
        if depth == Depth::Everything {
            match chunk.body(read) {
                Ok(body) => now.crc = crc32c::crc32c_append(now.crc, body),
                Err(error) => {
                    now.whole = false;
                    if at < durable {
                        found.damaged(name, at, reason(&error));
                    }
                }
            }
        }
        if let Some(whole) = chunk.whole {
            blobs += 1;
            blob_bytes += u64::from(whole.length_bytes);
            if depth == Depth::Everything && now.whole {
                if now.crc == whole.crc {
                    let start = u64::from(chunk.start);
                    found.whole_blobs.insert(BlobRef::new(header.id, start, whole.length_bytes, whole.crc));
                } else if at < durable {
                    found.damaged(name, chunk.start.into(), "a blob whose checksum is not that of its chunks");
                }
            }
        } else {
            under = Some(now);
        }
        at += chunk.padded_bytes();
    }
    found.segments.push(SegmentUse {
        file: name.to_owned(),
        id: header.id,
        group: header.group,
        sealed: listed.is_some_and(|known| known.sealed),
        settled: false,
        file_bytes: file.size,
        block_bytes: 0,
        blocks: 0,
        blobs: Some((blobs, blob_bytes)),
        rows: 0,
        time: None,
    });
    Ok(())
}

/// Collects the blobs that the cells of a column name.
pub(super) fn take_named(column: &Column, found: &mut Inspection) {
    if matches!(&column.values, ColumnValues::Array { kind, .. } if kind.is_blob()) {
        let cells = (0..column.values.len()).filter_map(|row| column.cell(row).ok());
        found.named_blobs.extend(cells.filter_map(|value| match value {
            Value::Blob(blob) => Some(blob),
            _ => None,
        }));
    }
}

/// Lists blobs that cells name and that are not intact; blobs whose segments were removed are expired.
pub(super) fn check_named(found: &mut Inspection) {
    let segments: std::collections::BTreeSet<u64> =
        found.segments.iter().filter(|segment| segment.blobs.is_some()).map(|segment| segment.id).collect();
    let named = std::mem::take(&mut found.named_blobs);
    for blob in named.difference(&std::mem::take(&mut found.whole_blobs)) {
        if segments.contains(&blob.segment()) {
            let reason = format!("a frame names {blob} here, and it is not there as it was written");
            found.damaged(&file_name(blob.segment()), blob.offset(), reason);
        }
    }
}
