//! Parser-aligned payloads: a sequence of blocks, each a message seen by a bus monitor. All words are big-endian.
//!
//! | offset | size | field | meaning |
//! |---|---|---|---|
//! | 0 | 2 | errors and length | bit 15 error; bits 14–9 error code; bits 8–0 length of the block in 32-bit words,
//! including this header |
//! | 2 | 1 | message count | of the parser, over all its buses; wraps at 2⁸ |
//! | 3 | 1 | bus id | |
//! | 4 | 4 | elapsed time | nanoseconds since the packet's timestamp |
//! | 8 | 4 × (length − 2) | message | |

/// Size of a block's header.
pub const BLOCK_HEADER_BYTES: usize = 8;

/// A block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block<'a> {
    /// Whether the message has an error.
    pub error: bool,
    /// Error code.
    pub error_code: u8,
    /// Message number.
    pub message_count: u8,
    /// Bus id.
    pub bus_id: u8,
    /// Time of the message, in nanoseconds since the packet's timestamp.
    pub elapsed_ns: u32,
    /// Message, padded to a multiple of four bytes.
    pub message: &'a [u8],
}

/// Error in a parser-aligned payload. Offsets are bytes in the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// A payload that ends within a block's header.
    #[error("block {block}: {found_bytes} bytes left, its header needs {BLOCK_HEADER_BYTES}")]
    Truncated {
        /// Index of the block, from 0.
        block: usize,
        /// Offset of the block.
        offset: usize,
        /// Bytes available.
        found_bytes: usize,
    },
    /// A block whose length is less than its header, or more than the rest of the payload.
    #[error("block {block}: length {words} (32-bit words), must be 2 to {most_words}")]
    Length {
        /// Index of the block, from 0.
        block: usize,
        /// Offset of the block.
        offset: usize,
        /// Stated length in words.
        words: u16,
        /// Words available.
        most_words: usize,
    },
}

impl BlockError {
    /// Returns the offset of the block in the payload.
    pub fn offset(&self) -> usize {
        match self {
            BlockError::Truncated { offset, .. } | BlockError::Length { offset, .. } => *offset,
        }
    }
}

/// Iterator over the blocks of a payload. It ends after the first error.
#[derive(Clone, Debug)]
pub struct Blocks<'a> {
    payload: &'a [u8],
    offset: usize,
    count: usize,
}

impl<'a> Blocks<'a> {
    /// Iterates over the blocks of a packet's payload.
    pub fn new(payload: &'a [u8]) -> Blocks<'a> {
        Blocks { payload, offset: 0, count: 0 }
    }
}

impl<'a> Iterator for Blocks<'a> {
    type Item = Result<Block<'a>, BlockError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (block, offset) = (self.count, self.offset);
        let rest = self.payload.get(offset..).filter(|rest| !rest.is_empty())?;
        let Some(&[first, second, message_count, bus_id, e0, e1, e2, e3]) = rest.first_chunk::<BLOCK_HEADER_BYTES>()
        else {
            self.offset = self.payload.len();
            return Some(Err(BlockError::Truncated { block, offset, found_bytes: rest.len() }));
        };
        let word = u16::from_be_bytes([first, second]);
        let words = word & 0x1FF;
        let Some(message) = rest.get(BLOCK_HEADER_BYTES..usize::from(words) * 4) else {
            self.offset = self.payload.len();
            return Some(Err(BlockError::Length { block, offset, words, most_words: rest.len() / 4 }));
        };
        self.offset += usize::from(words) * 4;
        self.count += 1;
        Some(Ok(Block {
            error: word >> 15 == 1,
            error_code: (word >> 9 & 0x3F) as u8,
            message_count,
            bus_id,
            elapsed_ns: u32::from_be_bytes([e0, e1, e2, e3]),
            message,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        fn whole(bytes: &[u8]) -> Result<Vec<Block<'_>>, BlockError> {
            Blocks::new(bytes).collect()
        }
        let good = [0x86, 3, 9, 7, 0, 1, 0, 0, 1, 2, 3, 4];
        let block = Block {
            error: true,
            error_code: 3,
            message_count: 9,
            bus_id: 7,
            elapsed_ns: 65_536,
            message: &[1, 2, 3, 4],
        };
        let two = [good, good].concat();
        assert_eq!(whole(&two), Ok(vec![block; 2]));
        assert_eq!(whole(&[]), Ok(vec![]));
        let truncated = whole(&[&good[..], &good[..7]].concat()).unwrap_err();
        assert_eq!(truncated, BlockError::Truncated { block: 1, offset: 12, found_bytes: 7 });
        for words in [0, 1, 4, 0x1FF] {
            let mut bad = [good, good].concat();
            bad[12..14].copy_from_slice(&u16::to_be_bytes(words));
            let error = whole(&bad).unwrap_err();
            assert_eq!(error, BlockError::Length { block: 1, offset: 12, words, most_words: 3 });
            assert_eq!(error.offset(), 12);
        }
    }
}
