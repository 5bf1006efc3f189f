//! The `pco` library's standalone format, if this program is built with the feature `pco`; without it nothing is written
//! so, and reading what was says which feature is missing.

use crate::bytes::{Cursor, FormatError};

#[cfg(feature = "pco")]
pub(crate) use pco::data_types::Number as PcoNumber;

/// What pco encodes.
#[cfg(not(feature = "pco"))]
pub(crate) trait PcoNumber {}

#[cfg(not(feature = "pco"))]
impl<T> PcoNumber for T {}

/// Replaces `out` by the values; false: they do not go this way.
#[cfg(feature = "pco")]
pub(crate) fn encode<T: PcoNumber>(values: &[T], level: usize, out: &mut Vec<u8>) -> bool {
    let config = pco::ChunkConfig::default().with_compression_level(level);
    match pco::standalone::simple_compress(values, &config) {
        Ok(bytes) => {
            *out = bytes;
            true
        }
        // Only what it was asked for can be wrong, never the values; the other codecs stand in.
        Err(_) => false,
    }
}

/// Replaces `out` by the values; false: they do not go this way.
#[cfg(not(feature = "pco"))]
pub(crate) fn encode<T: PcoNumber>(_values: &[T], _level: usize, _out: &mut Vec<u8>) -> bool {
    false
}

/// Fills `out` from the bytes that are left.
#[cfg(feature = "pco")]
pub(crate) fn decode<T: PcoNumber>(cursor: &mut Cursor<'_>, out: &mut [T]) -> Result<(), FormatError> {
    use crate::bytes::malformed;
    let progress =
        pco::standalone::simple_decompress_into(cursor.rest(), out).map_err(|_| malformed("pco refuses its bytes"))?;
    if progress.n_processed != out.len() {
        return Err(malformed("pco has another number of values"));
    }
    Ok(())
}

/// Says what is missing.
#[cfg(not(feature = "pco"))]
pub(crate) fn decode<T: PcoNumber>(_cursor: &mut Cursor<'_>, _out: &mut [T]) -> Result<(), FormatError> {
    Err(FormatError::LeftOut { what: "a column in the codec pco", feature: "pco" })
}
