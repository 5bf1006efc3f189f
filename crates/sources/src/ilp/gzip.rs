//! Decompresses gzip bodies up to a size limit.

use std::io::Read;

use flate2::read::MultiGzDecoder;

/// Reason why a compressed body cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum GzipError {
    /// A body that is not gzip, or is damaged.
    #[error("the body is not valid gzip: {0}")]
    Malformed(std::io::Error),
    /// A body larger than the limit after decompression.
    #[error("the body has more than {limit_bytes} bytes after decompression")]
    TooLarge {
        /// Limit in bytes.
        limit_bytes: usize,
    },
}

/// Decompresses a body of at most `limit_bytes`, which also bounds memory.
///
/// # Errors
/// If the body is damaged or too large.
pub fn inflate(body: &[u8], limit_bytes: usize) -> Result<Vec<u8>, GzipError> {
    let mut out = Vec::with_capacity(body.len().saturating_mul(4).min(limit_bytes));
    let mut limited = MultiGzDecoder::new(body).take(limit_bytes as u64 + 1);
    limited.read_to_end(&mut out).map_err(GzipError::Malformed)?;
    if out.len() > limit_bytes { Err(GzipError::TooLarge { limit_bytes }) } else { Ok(out) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn bodies_come_back_and_bombs_do_not() {
        let body = b"m v=1\n".repeat(1_000);
        assert_eq!(inflate(&gzip(&body), body.len()).unwrap(), body);
        assert!(matches!(inflate(&gzip(&body), body.len() - 1), Err(GzipError::TooLarge { .. })));
        assert!(matches!(inflate(&gzip(&vec![0; 50 << 20]), 1 << 20), Err(GzipError::TooLarge { .. })));
        assert!(matches!(inflate(b"m v=1", 100), Err(GzipError::Malformed(_))));
        let mut cut = gzip(&body);
        cut.truncate(cut.len() / 2);
        assert!(matches!(inflate(&cut, body.len()), Err(GzipError::Malformed(_))));
    }
}
