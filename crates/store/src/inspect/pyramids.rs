//! Statistics pyramids of a compacted segment, compared with those computed from its blocks.

use std::io;
use std::sync::Arc;

use super::Inspection;
use super::place::StoreFile;
use crate::block::Block;
use crate::model::limits::PAGE_BYTES;
use crate::model::stream::{Stream, StreamId};
use crate::segment::pyramid::PyramidBuilder;
use crate::segment::{Footer, IndexEntry, Trailer};

/// Recomputes each pyramid from the statistics of its stream's blocks and compares it. Skips one whose blocks are
/// damaged, which is listed already.
pub(super) fn verify(
    name: &str,
    file: &StoreFile,
    (trailer, footer): &(Trailer, Footer),
    found: &mut Inspection,
) -> io::Result<()> {
    let mut at = trailer.footer_offset + (trailer.footer_bytes as u64).next_multiple_of(PAGE_BYTES as u64);
    let mut bytes = Vec::new();
    for (number, extents) in &footer.pyramids.streams {
        let len: usize = extents.iter().map(|(_, all)| *all as usize).sum();
        let Some(stream) = footer.stream(StreamId(*number)) else {
            found.damaged(name, at, format!("a pyramid of stream {number}, which the segment does not define"));
            at += len as u64;
            continue;
        };
        if let Some(builder) = of_blocks(file, stream, &footer.entries)? {
            let expected = builder.finish(|_| true);
            let said = file.read_at(&mut bytes, at, len)?;
            let (of_stream, from) = (&expected.directory.streams, expected.bytes.as_slice());
            let same = of_stream.iter().map(|(n, e)| (n, e)).eq([(number, extents)]);
            if !same || said != from {
                let equal = said.iter().zip(from).take_while(|(a, b)| a == b).count();
                let why = format!("the statistics pyramid of {} is not that of its blocks", stream.key);
                found.damaged(name, at + equal as u64, why);
            }
            found.verified_pyramids += 1;
        }
        at += len as u64;
    }
    Ok(())
}

/// Computes the pyramid of a stream as compaction does. Returns `None` if a block cannot be read.
fn of_blocks(file: &StoreFile, stream: &Stream, entries: &[IndexEntry]) -> io::Result<Option<PyramidBuilder>> {
    let (mut builder, mut bytes) = (PyramidBuilder::default(), Vec::new());
    let stream = Arc::new(stream.clone());
    for entry in entries.iter().filter(|entry| entry.header.stream == stream.id) {
        if entry.part.is_some() {
            builder.add_part(&stream);
            continue;
        }
        let block = Block::read(file.read_at(&mut bytes, entry.offset, entry.length_bytes)?);
        let Ok(statistics) = block.and_then(|block| block.statistics()) else { return Ok(None) };
        builder.add(&stream, &entry.header, statistics.as_deref());
    }
    Ok(Some(builder))
}
