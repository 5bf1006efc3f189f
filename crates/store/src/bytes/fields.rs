//! Writing the little-endian fields of catalog records, checkpoints and the superblock.

/// Writer of fields, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Put(pub(crate) Vec<u8>);

impl Put {
    pub(crate) fn u8(&mut self, v: u8) {
        self.0.push(v);
    }
    pub(crate) fn u16(&mut self, v: u16) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }
    pub(crate) fn u32(&mut self, v: u32) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }
    pub(crate) fn u64(&mut self, v: u64) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }
    pub(crate) fn i64(&mut self, v: i64) {
        self.u64(v as u64);
    }
    pub(crate) fn u128(&mut self, v: u128) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }
    /// Writes the length (u16) and UTF-8. Names are checked to be shorter when they enter the store; other texts are
    /// truncated.
    pub(crate) fn text(&mut self, v: &str) {
        let mut end = v.len().min(u16::MAX as usize);
        while !v.is_char_boundary(end) {
            end -= 1;
        }
        self.u16(end as u16);
        self.0.extend_from_slice(&v.as_bytes()[..end]);
    }
    /// Writes 1 and the value, or 0.
    pub(crate) fn optional(&mut self, v: Option<u64>) {
        self.u8(v.is_some() as u8);
        if let Some(v) = v {
            self.u64(v);
        }
    }
}
