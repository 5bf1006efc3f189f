//! Every limit of the format, each with its reason. Encoders keep them, decoders refuse what passes
//! them before they allocate, so hostile bytes cost at most what these numbers say.

/// Most channels of a layout: a directory of this many columns still fits a write group.
pub const MAX_CHANNELS: usize = 4_096;

/// Most rows of one block. Seals happen at 1,024; settle may join up to this many, beyond which a
/// point lookup would decode too much.
pub const MAX_BLOCK_ROWS: usize = 65_536;

/// Most cells (rows × columns) of one block: bounds what a decoder allocates for a block whose
/// columns take no bytes at all (128 MiB at 8 bytes a cell).
pub const MAX_BLOCK_CELLS: usize = 1 << 24;

/// Most bytes of one block on disk. One frame has at most 1 MiB, so a row always fits.
pub const MAX_BLOCK_BYTES: usize = 16 << 20;

pub use crate::array::MAX_ARRAY_LENGTH;

/// Most bytes of text that one text column of a block decodes to, or of elements that one of arrays does: a dictionary,
/// or a tile of equal elements, must not be a bomb. Far above the byte cap at which blocks are sealed, far below what a `u32` offset can say.
pub const MAX_COLUMN_TEXT_BYTES: usize = 64 << 20;

/// Most sections of a block or footer: this version writes three; the rest is room to grow.
pub const MAX_SECTIONS: usize = 32;

/// Most bytes of parameters of one column codec.
pub const MAX_CODEC_PARAMETER_BYTES: usize = 1_024;

/// Most bytes of a write group, except one that holds a single larger block: what a reader of an
/// open segment must take in to check one checksum.
pub const MAX_GROUP_BYTES: usize = 256 << 10;

/// Write groups begin and end at multiples of this: no durable page is ever written again.
pub const PAGE_BYTES: usize = 4_096;

/// Blocks begin and end at multiples of this.
pub const BLOCK_ALIGN_BYTES: usize = 8;

/// Smallest segment: below this, header, footer and trailer leave no room for blocks.
pub const MIN_SEGMENT_BYTES: u64 = 32 << 10;

/// Largest segment: blocks are addressed by `u32` offsets in the footer.
pub const MAX_SEGMENT_BYTES: u64 = 64 << 20;

/// Bytes of a whole chunk of a blob, with its header: what a writer or a reader of one holds in memory.
pub const BLOB_CHUNK_BYTES: usize = 128 << 10;

/// Most blobs that are written at a time, whatever the size of the store: each has a segment to itself meanwhile.
pub const MAX_BLOB_WRITERS: usize = 16;

/// Most bytes of a footer: the whole segment at worst.
pub const MAX_FOOTER_BYTES: usize = MAX_SEGMENT_BYTES as usize;

/// Most blocks of a segment: the smallest block is its header.
pub const MAX_SEGMENT_BLOCKS: usize = MAX_SEGMENT_BYTES as usize / crate::block::HEADER_BYTES;

/// Most streams in one mixed block.
pub const MAX_MIXED_PARTS: usize = 65_536;

/// Most bytes of a name, unit, tag or description in a stream definition.
pub const MAX_NAME_BYTES: usize = 65_535;

/// Most tags of a stream.
pub const MAX_TAGS: usize = 1_024;

/// Blocks with fewer rows carry no statistics: decoding them costs less than reading those.
pub const STATISTICS_MIN_ROWS: usize = 64;

/// A block of so many channels and bytes is parted: each of its columns can be read and checked without the others.
pub const PARTED_CHANNELS: usize = 4;
/// See [`PARTED_CHANNELS`]: bytes of values and statistics.
pub const PARTED_BYTES: usize = 12 << 10;

/// Most rows of a stream: none lives that long, and sums of rows never overflow.
pub(crate) const MAX_ROWS: u64 = 1 << 62;

const _: () = {
    assert!(MAX_BLOCK_ROWS <= MAX_BLOCK_CELLS);
    assert!(MAX_CHANNELS * 1_024 <= MAX_BLOCK_CELLS, "a full seal of the widest layout must fit");
    assert!(MAX_BLOCK_BYTES as u64 <= MAX_SEGMENT_BYTES / 2);
    assert!(MAX_GROUP_BYTES.is_multiple_of(PAGE_BYTES) && PAGE_BYTES.is_multiple_of(BLOCK_ALIGN_BYTES));
    assert!(MAX_SEGMENT_BYTES <= u32::MAX as u64);
    assert!(MAX_SEGMENT_BYTES / PAGE_BYTES as u64 <= 1 << 16, "a blob's reference has 16 bits for its page");
    assert!(BLOB_CHUNK_BYTES.is_multiple_of(PAGE_BYTES));
    assert!(MAX_COLUMN_TEXT_BYTES <= u32::MAX as usize);
    assert!(MAX_ARRAY_LENGTH * 8 <= crate::row::FRAME_BYTES_MAX / 2, "the longest array fits a frame");
};
