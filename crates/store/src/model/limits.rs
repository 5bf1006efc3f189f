//! Limits of the format, each with its reason. Encoders keep to them. Decoders check them before they allocate, so that
//! hostile bytes cost at most what these numbers say.

/// Maximum channels of a layout: a directory of this many columns still fits a write group.
pub const CHANNELS_MAX: usize = 4_096;

/// Maximum rows of one block. Blocks are sealed at 1,024 rows. Compaction may join up to this many; beyond, a point
/// lookup would decode too much.
pub const BLOCK_ROWS_MAX: usize = 65_536;

/// Maximum cells (rows × columns) of one block. Bounds what a decoder allocates for a block whose columns take no bytes
/// at all (128 MiB at 8 bytes a cell).
pub const BLOCK_CELLS_MAX: usize = 1 << 24;

/// Maximum bytes of one block on disk. A frame has at most 1 MiB, so a row always fits.
pub const BLOCK_BYTES_MAX: usize = 16 << 20;

/// Maximum elements of an array.
pub const ARRAY_LENGTH_MAX: usize = 65_536;

/// Maximum bytes that a column of texts or arrays in a block decodes to. Prevents decompression bombs by a dictionary
/// or a tile of equal elements. Far above the size at which blocks are sealed, and far below the range of `u32`
/// offsets.
pub const COLUMN_TEXT_BYTES_MAX: usize = 64 << 20;

/// Maximum sections of a block or footer. This version writes three; the rest leaves room to grow.
pub const SECTIONS_MAX: usize = 32;

/// Maximum bytes of parameters of one column codec.
pub const CODEC_PARAMETER_BYTES_MAX: usize = 1_024;

/// Maximum bytes of a write group, except one that holds a single larger block. A reader of an open segment must read
/// that much to check one checksum.
pub const GROUP_BYTES_MAX: usize = 256 << 10;

/// Alignment of write groups in bytes. No durable page is ever written again.
pub const PAGE_BYTES: usize = 4_096;

/// Alignment of blocks in bytes.
pub const BLOCK_ALIGN_BYTES: usize = 8;

/// Minimum size of a segment in bytes: below it, header, footer and trailer leave no room for blocks.
pub const SEGMENT_BYTES_MIN: u64 = 32 << 10;

/// Maximum size of a segment in bytes: the footer addresses blocks by `u32` offsets.
pub const SEGMENT_BYTES_MAX: u64 = 64 << 20;

/// Size of a full blob chunk with its header, in bytes. Writers and readers of a blob hold one in memory.
pub const BLOB_CHUNK_BYTES: usize = 128 << 10;

/// Maximum blobs that are written at the same time, whatever the size of the store: each occupies a segment meanwhile.
pub const BLOB_WRITERS_MAX: usize = 16;

/// Maximum bytes of a footer: the whole segment in the worst case.
pub const FOOTER_BYTES_MAX: usize = SEGMENT_BYTES_MAX as usize;

/// Size of a block's header in bytes.
pub const BLOCK_HEADER_BYTES: usize = 96;

/// Maximum blocks of a segment: the smallest block is just a header.
pub const SEGMENT_BLOCKS_MAX: usize = SEGMENT_BYTES_MAX as usize / BLOCK_HEADER_BYTES;

/// Maximum streams in one mixed block.
pub const MIXED_PARTS_MAX: usize = 65_536;

/// Maximum bytes of a text in a stream definition, as the formats hold it: unit, source or description.
pub const TEXT_BYTES_MAX: usize = 65_535;

/// Maximum bytes of the name of a table, tag or channel.
pub const NAME_BYTES_MAX: usize = 1_024;

/// Maximum bytes of a tag's value.
pub const TAG_VALUE_BYTES_MAX: usize = 16 << 10;

/// Maximum tags of a new stream.
pub const STREAM_TAGS_MAX: usize = 256;

/// Maximum tags of a stream that the formats hold.
pub const TAGS_MAX: usize = 1_024;

/// Maximum bytes of the name of a retention group.
pub const GROUP_NAME_BYTES_MAX: usize = 64;

/// Maximum number of retention groups of a configuration: each may have an open segment.
pub const GROUPS_MAX: usize = 32;

/// Minimum rows for a block to carry statistics: below, decoding costs less than reading them.
pub const STATISTICS_MIN_ROWS: usize = 64;

/// Minimum channels of a parted block. Each of its columns can be read and checked without the others.
pub const PARTED_CHANNELS: usize = 4;
/// Minimum bytes of values and statistics of a parted block; see [`PARTED_CHANNELS`].
pub const PARTED_BYTES: usize = 12 << 10;

/// Maximum rows of a stream: out of reach in practice, and sums of rows cannot overflow.
pub(crate) const ROWS_MAX: u64 = 1 << 62;

/// Maximum bytes of a row with its text.
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
