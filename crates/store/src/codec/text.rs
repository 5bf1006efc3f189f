//! Text codec: a dictionary if values repeat, or else all values one after the other.
//!
//! ```text
//! plain:      lengths (integer stream), bytes of all values
//! dictionary: entry count, entry lengths (integer stream), bytes of all entries, indices (integer stream)
//! ```

use hashbrown::HashMap;

use crate::bytes::{Cursor, FormatError, malformed, put_varint};
use crate::codec::integer;
use crate::model::limits::COLUMN_TEXT_BYTES_MAX;

/// Appends values as a dictionary. Returns `false` and appends nothing if too few repeat.
pub(crate) fn encode_dictionary<'a>(values: impl Iterator<Item = &'a [u8]>, count: usize, out: &mut Vec<u8>) -> bool {
    let mut known: HashMap<&[u8], i64, foldhash::fast::RandomState> = HashMap::default();
    let (mut entries, mut indices) = (Vec::new(), Vec::with_capacity(count));
    for value in values {
        let next = entries.len() as i64;
        let index = *known.entry(value).or_insert(next);
        if index == next {
            entries.push(value);
            if entries.len() > 1 && entries.len() * 2 > count {
                return false;
            }
        }
        indices.push(index);
    }
    put_varint(out, entries.len() as u64);
    encode_plain(entries.iter().copied(), out);
    integer::encode(&indices, out);
    true
}

/// Appends values one after the other.
pub(crate) fn encode_plain<'a>(values: impl Iterator<Item = &'a [u8]> + Clone, out: &mut Vec<u8>) {
    let lengths: Vec<i64> = values.clone().map(|v| v.len() as i64).collect();
    integer::encode(&lengths, out);
    values.for_each(|v| out.extend_from_slice(v));
}

/// Decoded text column: offsets (one more than values) and bytes.
pub(crate) type Text = (Vec<u32>, Vec<u8>);

/// Reads `count` values that are stored one after the other.
pub(crate) fn decode_plain(cursor: &mut Cursor<'_>, count: usize) -> Result<Text, FormatError> {
    let mut lengths = vec![0i64; count];
    integer::decode(cursor, &mut lengths, |v| v)?;
    let mut offsets = Vec::with_capacity(count + 1);
    let mut end = 0u64;
    offsets.push(0);
    for length in lengths {
        let length = u64::try_from(length).map_err(|_| malformed("negative text length"))?;
        end = end.saturating_add(length);
        if end > COLUMN_TEXT_BYTES_MAX as u64 {
            return Err(too_long(end));
        }
        offsets.push(end as u32);
    }
    let bytes = cursor.take(end as usize, "text")?;
    let text = std::str::from_utf8(bytes).map_err(|_| malformed("text is not UTF-8"))?;
    if !offsets.iter().all(|at| text.is_char_boundary(*at as usize)) {
        return Err(malformed("text is not UTF-8"));
    }
    Ok((offsets, bytes.to_vec()))
}

/// Reads `count` values of a dictionary.
pub(crate) fn decode_dictionary(cursor: &mut Cursor<'_>, count: usize) -> Result<Text, FormatError> {
    let entries = cursor.count("dictionary entries", count)?;
    let (entry_offsets, entry_bytes) = decode_plain(cursor, entries)?;
    let mut indices = vec![0i64; count];
    integer::decode(cursor, &mut indices, |v| v)?;
    let entry = |index: i64| {
        let index = usize::try_from(index).ok().filter(|i| *i < entries).ok_or(malformed("dictionary index"))?;
        Ok::<_, FormatError>(entry_offsets[index] as usize..entry_offsets[index + 1] as usize)
    };
    // Check the total length first: a small dictionary must not expand without bound.
    let mut total = 0u64;
    for index in &indices {
        total += entry(*index)?.len() as u64;
    }
    if total > COLUMN_TEXT_BYTES_MAX as u64 {
        return Err(too_long(total));
    }
    let (mut offsets, mut bytes) = (Vec::with_capacity(count + 1), Vec::with_capacity(total as usize));
    offsets.push(0);
    for index in indices {
        bytes.extend_from_slice(&entry_bytes[entry(index)?]);
        offsets.push(bytes.len() as u32);
    }
    Ok((offsets, bytes))
}

fn too_long(found: u64) -> FormatError {
    FormatError::Limit { what: "bytes of text in a column", offset: None, found, limit: COLUMN_TEXT_BYTES_MAX as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dictionary_is_no_bomb() {
        let long = vec![b'x'; 1 << 20];
        let mut out = Vec::new();
        assert!(encode_dictionary((0..100).map(|_| long.as_slice()), 100, &mut out));
        assert!(out.len() < 2 << 20);
        let refused = decode_dictionary(&mut Cursor::new(&out), 100);
        assert!(matches!(refused, Err(FormatError::Limit { found: 104_857_600, .. })), "{refused:?}");
    }

    #[test]
    fn a_length_inside_a_character_is_refused() {
        let mut out = Vec::new();
        encode_plain(["ö".as_bytes(), b"x"].into_iter(), &mut out);
        assert!(decode_plain(&mut Cursor::new(&out), 2).is_ok());
        let mut split = Vec::new();
        integer::encode(&[1, 2], &mut split);
        split.extend_from_slice("öx".as_bytes());
        assert_eq!(decode_plain(&mut Cursor::new(&split), 2), Err(malformed("text is not UTF-8")));
    }
}
