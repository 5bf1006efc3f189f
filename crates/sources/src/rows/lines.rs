//! Reads lines of a text file, with bounded length and line numbers.

use std::io::BufRead;

use super::{FilePlace, ROW_BYTES_MAX};

/// Reader of UTF-8 lines without line ends.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    input: R,
    number: u64,
    bytes: u64,
    buffer: Vec<u8>,
    /// Whether the latest line ended with a carriage return.
    has_return: bool,
    /// Error that ended reading, if the input failed.
    failed: Option<std::io::Error>,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(input: R) -> Lines<R> {
        Lines { input, number: 0, bytes: 0, buffer: Vec::new(), has_return: false, failed: None }
    }

    /// Returns the number of the latest line, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the line end of the latest line.
    pub(super) fn end(&self) -> &'static str {
        if self.has_return { "\r\n" } else { "\n" }
    }

    /// Returns the number of bytes read.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes the error that ended reading early, if any.
    pub(crate) fn take_failure(&mut self) -> Option<std::io::Error> {
        self.failed.take()
    }

    /// Reads the next line. Returns `None` at the end. A line that is too long or not UTF-8 is an error, after which
    /// reading may continue.
    pub(crate) fn next(&mut self) -> Option<Result<String, (FilePlace, String)>> {
        self.buffer.clear();
        let (mut any, mut too_long) = (false, false);
        loop {
            let chunk = match self.input.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    self.failed = Some(error);
                    return None;
                }
            };
            if chunk.is_empty() {
                break;
            }
            any = true;
            let end = memchr::memchr(b'\n', chunk);
            let taken = end.map_or(chunk.len(), |end| end + 1);
            if self.buffer.len() + taken > ROW_BYTES_MAX {
                too_long = true;
            } else {
                self.buffer.extend_from_slice(&chunk[..end.unwrap_or(taken)]);
            }
            self.input.consume(taken);
            self.bytes += taken as u64;
            if end.is_some() {
                break;
            }
        }
        if !any {
            return None;
        }
        self.number += 1;
        let here = FilePlace { line: self.number, column: 1 };
        if too_long {
            return Some(Err((here, format!("a line of more than {ROW_BYTES_MAX} bytes"))));
        }
        self.has_return = self.buffer.last() == Some(&b'\r');
        if self.has_return {
            self.buffer.pop();
        }
        let bytes = match self.number {
            1 => self.buffer.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&self.buffer),
            _ => &self.buffer,
        };
        Some(match std::str::from_utf8(bytes) {
            Ok(line) => Ok(line.to_owned()),
            Err(error) => {
                let before = String::from_utf8_lossy(&bytes[..error.valid_up_to()]).chars().count() as u32;
                Err((FilePlace { column: before + 1, ..here }, "no UTF-8".to_owned()))
            }
        })
    }
}
