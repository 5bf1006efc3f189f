//! Messages of PostgreSQL's protocol 3.0: parsed as untrusted input, written without copies.

use bytes::{BufMut, BytesMut};
use pgwire::api::Type;

use super::encode::type_len;
use crate::error::{QueryError, sqlstate};

/// Maximum message accepted from a client, in bytes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Maximum startup message accepted, in bytes (as in PostgreSQL).
pub(crate) const STARTUP_BYTES_MAX: usize = 10_000;

/// Code of `SSLRequest`, in place of a version.
pub(crate) const SSL_REQUEST: i32 = 80_877_103;
/// Code of `GSSENCRequest`, in place of a version.
pub(crate) const GSS_REQUEST: i32 = 80_877_104;
/// Code of `CancelRequest`, in place of a version.
pub(crate) const CANCEL_REQUEST: i32 = 80_877_102;
/// Major version of the protocol.
pub(crate) const PROTOCOL_MAJOR: i32 = 3;

/// Parser of a message's body.
pub(crate) struct Body<'a>(pub(crate) &'a [u8]);

fn violation(what: &str) -> QueryError {
    QueryError::new(sqlstate::PROTOCOL_VIOLATION, format!("invalid message: {what}"))
}

impl<'a> Body<'a> {
    /// Reads `count` bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], QueryError> {
        let (head, rest) = self.0.split_at_checked(count).ok_or_else(|| violation("it ends too early"))?;
        self.0 = rest;
        Ok(head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, QueryError> {
        Ok(self.bytes(1)?[0])
    }

    pub(crate) fn i16(&mut self) -> Result<i16, QueryError> {
        let bytes = self.bytes(2)?;
        Ok(i16::from_be_bytes([bytes[0], bytes[1]]))
    }

    pub(crate) fn i32(&mut self) -> Result<i32, QueryError> {
        let bytes = self.bytes(4)?;
        Ok(i32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Reads a count. It is not negative, because the 16 bits on the wire are unsigned.
    pub(crate) fn count(&mut self) -> Result<usize, QueryError> {
        Ok(usize::from(self.i16()? as u16))
    }

    /// Reads text up to its NUL.
    pub(crate) fn text(&mut self) -> Result<&'a str, QueryError> {
        let end = self.0.iter().position(|b| *b == 0).ok_or_else(|| violation("a text has no end"))?;
        let text = std::str::from_utf8(&self.0[..end])
            .map_err(|_| QueryError::new("22021", "invalid byte sequence for encoding \"UTF8\""))?;
        self.0 = &self.0[end + 1..];
        Ok(text)
    }

    /// Splits messages into the body of the first and the rest.
    pub(crate) fn message(mut self) -> Option<(&'a [u8], &'a [u8])> {
        let _ = self.u8().ok()?;
        let size = usize::try_from(self.i32().ok()?).ok()?.checked_sub(4)?;
        Some((self.bytes(size).ok()?, self.0))
    }

    /// Reads bytes preceded by their length. Returns `None` if that is −1.
    pub(crate) fn sized(&mut self) -> Result<Option<&'a [u8]>, QueryError> {
        match self.i32()? {
            -1 => Ok(None),
            size => {
                let size = usize::try_from(size).map_err(|_| violation("a length is negative"))?;
                self.bytes(size).map(Some)
            }
        }
    }
}

/// Writes a message: its tag, its length, and the output of `write`.
pub(crate) fn put(out: &mut BytesMut, tag: u8, write: impl FnOnce(&mut BytesMut)) {
    out.put_u8(tag);
    let at = out.len();
    out.put_i32(0);
    write(out);
    let size = (out.len() - at) as i32;
    out[at..at + 4].copy_from_slice(&size.to_be_bytes());
}

/// Appends text and a NUL. Text is cut at an embedded NUL, which would end it early.
pub(crate) fn put_text(out: &mut BytesMut, text: &str) {
    let text = text.split('\0').next().unwrap_or_default();
    out.put_slice(text.as_bytes());
    out.put_u8(0);
}

/// Message of the error for a prepared statement whose columns changed since.
pub(crate) const PLAN_CHANGED: &str = "cached plan must not change result type";

/// Writes `ErrorResponse`. After a fatal error, the connection ends.
pub(crate) fn put_error(out: &mut BytesMut, error: &QueryError, fatal: bool) {
    // Drivers prepare a statement again if the error names this routine of PostgreSQL.
    let routine = (error.message == PLAN_CHANGED).then_some((b'R', "RevalidateCachedQuery"));
    let severity = if fatal { "FATAL" } else { "ERROR" };
    put(out, b'E', |out| {
        let hint = error.hint.as_deref().map(|hint| (b'H', hint));
        let fields = [(b'S', severity), (b'V', severity), (b'C', error.sqlstate), (b'M', error.message.as_str())];
        for (code, text) in fields.into_iter().chain(hint).chain(routine) {
            out.put_u8(code);
            put_text(out, text);
        }
        out.put_u8(0);
    });
}

/// Writes `NoticeResponse` with a warning.
pub(crate) fn put_warning(out: &mut BytesMut, code: &str, message: &str) {
    put(out, b'N', |out| {
        for (field, text) in [(b'S', "WARNING"), (b'V', "WARNING"), (b'C', code), (b'M', message)] {
            out.put_u8(field);
            put_text(out, text);
        }
        out.put_u8(0);
    });
}

/// Writes `ParameterStatus`.
pub(crate) fn put_parameter_status(out: &mut BytesMut, name: &str, value: &str) {
    put(out, b'S', |out| {
        put_text(out, name);
        put_text(out, value);
    });
}

/// Writes `CommandComplete`.
pub(crate) fn put_complete(out: &mut BytesMut, tag: &str) {
    put(out, b'C', |out| put_text(out, tag));
}

/// A column of a result.
#[derive(Clone, Debug)]
pub(crate) struct ResultColumn {
    pub(crate) name: String,
    pub(crate) kind: Type,
    /// `pg_attribute.atttypmod`, or −1 for none.
    pub(crate) modifier: i32,
}

/// Writes `RowDescription`, where `binary` returns whether a column is binary.
pub(crate) fn put_row_description(out: &mut BytesMut, columns: &[ResultColumn], binary: impl Fn(usize) -> bool) {
    put(out, b'T', |out| {
        out.put_i16(columns.len() as i16);
        for (at, column) in columns.iter().enumerate() {
            put_text(out, &column.name);
            out.put_i32(0);
            out.put_i16(0);
            out.put_u32(column.kind.oid());
            out.put_i16(type_len(&column.kind));
            out.put_i32(column.modifier);
            out.put_i16(i16::from(binary(at)));
        }
    });
}

/// Tag of a data row.
pub(crate) const DATA_ROW: u8 = b'D';
/// Tag of copy data, which has one row in each message.
pub(crate) const COPY_DATA: u8 = b'd';

/// Form of the messages of rows. A row of binary copy data has the same body as a data row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RowForm {
    pub(crate) tag: u8,
    pub(crate) formats: Formats,
}

impl RowForm {
    /// Returns the form of data rows.
    pub(crate) fn data(formats: Formats) -> RowForm {
        RowForm { tag: DATA_ROW, formats }
    }
}

/// Appends a row as a message, or nothing if `write` fails.
pub(crate) fn put_row(
    out: &mut BytesMut,
    tag: u8,
    columns: usize,
    write: impl FnOnce(&mut BytesMut) -> Result<(), QueryError>,
) -> Result<(), QueryError> {
    let start = out.len();
    let mut result = Ok(());
    put(out, tag, |out| {
        out.put_i16(columns as i16);
        result = write(out);
    });
    if result.is_err() {
        out.truncate(start);
    }
    result
}

/// Formats of result columns, as requested by the client.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Formats(pub(crate) Vec<bool>);

impl Formats {
    /// Reports whether a column is binary.
    pub(crate) fn binary(&self, column: usize) -> bool {
        match self.0.as_slice() {
            [] => false,
            [all] => *all,
            each => each.get(column).copied().unwrap_or(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_and_lying_bodies_are_errors() {
        assert!(Body(&[0, 0, 0]).i32().is_err());
        assert!(Body(b"no end").text().is_err());
        assert!(Body(&[0, 0, 0, 9, 1]).sized().is_err());
        assert!(Body(&[0xFF, 0xFF, 0xFF, 0xFE]).sized().is_err());
        assert_eq!(Body(&[0xFF, 0xFF, 0xFF, 0xFF]).sized().unwrap(), None);
        assert_eq!(Body(b"caf\xc3\xa9\0rest").text().unwrap(), "café");
        assert_eq!(Body(b"\xff\0").text().unwrap_err().sqlstate, "22021");
    }
}
