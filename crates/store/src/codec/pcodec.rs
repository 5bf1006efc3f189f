//! Standalone format of the `pco` library, available with the feature `pco`. Without it nothing is written in this
//! format, and reading it returns an error that names the feature.

use crate::bytes::{Cursor, FormatError};

#[cfg(feature = "pco")]
pub(crate) use pco::data_types::Number as PcoNumber;

/// Number type that pco encodes.
#[cfg(not(feature = "pco"))]
pub(crate) trait PcoNumber {}

#[cfg(not(feature = "pco"))]
impl<T> PcoNumber for T {}

/// Replaces `out` by the encoded values. Returns `false` if they cannot be encoded.
#[cfg(feature = "pco")]
pub(crate) fn encode<T: PcoNumber>(values: &[T], level: usize, out: &mut Vec<u8>) -> bool {
    let config = pco::ChunkConfig::default().with_compression_level(level);
    match pco::standalone::simple_compress(values, &config) {
        Ok(bytes) => {
            *out = bytes;
            true
        }
        // Only the configuration can be wrong, never the values. The caller falls back to other codecs.
        Err(_) => false,
    }
}

/// Replaces `out` by the encoded values. Returns `false`: this build has no `pco`.
#[cfg(not(feature = "pco"))]
pub(crate) fn encode<T: PcoNumber>(_values: &[T], _level: usize, _out: &mut Vec<u8>) -> bool {
    false
}

/// Fills `out` from the remaining bytes.
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

/// Returns an error that names the missing feature.
#[cfg(not(feature = "pco"))]
pub(crate) fn decode<T: PcoNumber>(_cursor: &mut Cursor<'_>, _out: &mut [T]) -> Result<(), FormatError> {
    Err(FormatError::LeftOut { what: "a column in the codec pco", feature: "pco" })
}
