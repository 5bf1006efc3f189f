//! Every limit of the format, each with its reason. Encoders keep them, decoders refuse what passes
//! them before they allocate, so hostile bytes cost at most what these numbers say.

/// Most channels of a layout: a directory of this many columns still fits a write group.
pub const CHANNELS_MAX: usize = 4_096;

/// Most rows of one block. Seals happen at 1,024; settle may join up to this many, beyond which a
/// point lookup would decode too much.
pub const BLOCK_ROWS_MAX: usize = 65_536;

/// Most cells (rows × columns) of one block: bounds what a decoder allocates for a block whose
/// columns take no bytes at all (128 MiB at 8 bytes a cell).
pub const BLOCK_CELLS_MAX: usize = 1 << 24;

/// Most bytes of one block on disk. One frame has at most 1 MiB, so a row always fits.
pub const BLOCK_BYTES_MAX: usize = 16 << 20;

/// Most elements of an array.
pub const ARRAY_LENGTH_MAX: usize = 65_536;

/// Most bytes of text that one text column of a block decodes to, or of elements that one of arrays does: a dictionary,
/// or a tile of equal elements, must not be a bomb. Far above the byte cap at which blocks are sealed, far below what a `u32` offset can say.
pub const COLUMN_TEXT_BYTES_MAX: usize = 64 << 20;

/// Most sections of a block or footer: this version writes three; the rest is room to grow.
pub const SECTIONS_MAX: usize = 32;

/// Most bytes of parameters of one column codec.
pub const CODEC_PARAMETER_BYTES_MAX: usize = 1_024;

/// Most bytes of a write group, except one that holds a single larger block: what a reader of an
/// open segment must take in to check one checksum.
pub const GROUP_BYTES_MAX: usize = 256 << 10;

/// Write groups begin and end at multiples of this: no durable page is ever written again.
pub const PAGE_BYTES: usize = 4_096;

/// Blocks begin and end at multiples of this.
pub const BLOCK_ALIGN_BYTES: usize = 8;

/// Smallest segment: below this, header, footer and trailer leave no room for blocks.
pub const SEGMENT_BYTES_MIN: u64 = 32 << 10;

/// Largest segment: blocks are addressed by `u32` offsets in the footer.
pub const SEGMENT_BYTES_MAX: u64 = 64 << 20;

/// Bytes of a whole chunk of a blob, with its header: what a writer or a reader of one holds in memory.
pub const BLOB_CHUNK_BYTES: usize = 128 << 10;

/// Most blobs that are written at a time, whatever the size of the store: each has a segment to itself meanwhile.
pub const BLOB_WRITERS_MAX: usize = 16;

/// Most bytes of a footer: the whole segment at worst.
pub const FOOTER_BYTES_MAX: usize = SEGMENT_BYTES_MAX as usize;

/// Bytes of a block's header.
pub const BLOCK_HEADER_BYTES: usize = 96;

/// Most blocks of a segment: the smallest block is its header.
pub const SEGMENT_BLOCKS_MAX: usize = SEGMENT_BYTES_MAX as usize / BLOCK_HEADER_BYTES;

/// Most streams in one mixed block.
pub const MIXED_PARTS_MAX: usize = 65_536;

/// Most bytes of a text in a stream definition, as the formats hold it: a unit, source or description.
pub const TEXT_BYTES_MAX: usize = 65_535;

/// Most bytes of the name of a table, tag or channel.
pub const NAME_BYTES_MAX: usize = 1_024;

/// Most bytes of a tag's value.
pub const TAG_VALUE_BYTES_MAX: usize = 16 << 10;

/// Most tags of a new stream.
pub const STREAM_TAGS_MAX: usize = 256;

/// Most tags of a stream, as the formats hold it.
pub const TAGS_MAX: usize = 1_024;

/// Most bytes of the name of a retention group.
pub const GROUP_NAME_BYTES_MAX: usize = 64;

/// Blocks with fewer rows carry no statistics: decoding them costs less than reading those.
pub const STATISTICS_MIN_ROWS: usize = 64;

/// A block of so many channels and bytes is parted: each of its columns can be read and checked without the others.
pub const PARTED_CHANNELS: usize = 4;
/// See [`PARTED_CHANNELS`]: bytes of values and statistics.
pub const PARTED_BYTES: usize = 12 << 10;

/// Most rows of a stream: none lives that long, and sums of rows never overflow.
pub(crate) const ROWS_MAX: u64 = 1 << 62;

/// Most bytes of a row and its text.
pub(crate) const FRAME_BYTES_MAX: usize = 1 << 20;

const _: () = {
    assert!(BLOCK_ROWS_MAX <= BLOCK_CELLS_MAX);
    assert!(CHANNELS_MAX * 1_024 <= BLOCK_CELLS_MAX, "a full seal of the widest layout must fit");
    assert!(BLOCK_BYTES_MAX as u64 <= SEGMENT_BYTES_MAX / 2);
    assert!(GROUP_BYTES_MAX.is_multiple_of(PAGE_BYTES) && PAGE_BYTES.is_multiple_of(BLOCK_ALIGN_BYTES));
    assert!(SEGMENT_BYTES_MAX <= u32::MAX as u64);
    assert!(SEGMENT_BYTES_MAX / PAGE_BYTES as u64 <= 1 << 16, "a blob's reference has 16 bits for its page");
    assert!(BLOB_CHUNK_BYTES.is_multiple_of(PAGE_BYTES));
    assert!(COLUMN_TEXT_BYTES_MAX <= u32::MAX as usize);
    assert!(NAME_BYTES_MAX <= TEXT_BYTES_MAX && TAG_VALUE_BYTES_MAX <= TEXT_BYTES_MAX, "the formats hold every name");
    assert!(STREAM_TAGS_MAX <= TAGS_MAX && TEXT_BYTES_MAX <= u16::MAX as usize);
    assert!(ARRAY_LENGTH_MAX * 8 <= FRAME_BYTES_MAX / 2, "the longest array fits a frame");
};
