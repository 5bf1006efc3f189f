//! Reads comma-separated values (RFC 4180): a header, then rows. Keeps the position of each cell for errors.

use std::io::BufRead;

use super::lines::Lines;
use super::{FilePlace, ROW_BYTES_MAX};

/// Maximum columns of a file.
const COLUMNS_MAX: usize = 10_000;

/// A record, split into cells.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// Unquoted cells: end in `text`, position in the file, and whether the cell was quoted.
    cells: Vec<(usize, FilePlace, bool)>,
    text: String,
}

impl Record {
    pub(super) fn len(&self) -> usize {
        self.cells.len()
    }

    pub(super) fn cell(&self, index: usize) -> (&str, FilePlace) {
        let begin = if index == 0 { 0 } else { self.cells[index - 1].0 };
        let (end, place, _) = self.cells[index];
        (&self.text[begin..end], place)
    }

    /// Reports whether a cell is empty and unquoted.
    pub(super) fn is_absent(&self, index: usize) -> bool {
        self.cell(index).0.is_empty() && !self.cells[index].2
    }

    /// Reads and splits a record, joining the lines of a quoted cell. Returns `None` at the end.
    ///
    /// An error has a position and a reason; the next record can be read after it.
    pub(super) fn read(&mut self, lines: &mut Lines<impl BufRead>) -> Option<Result<(), (FilePlace, String)>> {
        self.cells.clear();
        self.text.clear();
        let line = match lines.next()? {
            Ok(line) => line,
            Err(error) => return Some(Err(error)),
        };
        let mut raw = line;
        let mut place = FilePlace { line: lines.number(), column: 1 };
        let mut rest = raw.as_str();
        loop {
            let begins = place;
            let is_quoted = rest.starts_with('"');
            if let Some(quoted) = rest.strip_prefix('"') {
                (rest, place.column) = (quoted, place.column + 1);
                loop {
                    match rest.find('"') {
                        Some(end) => {
                            self.text.push_str(&rest[..end]);
                            place.column += rest[..end].chars().count() as u32 + 1;
                            rest = &rest[end + 1..];
                            let Some(doubled) = rest.strip_prefix('"') else { break };
                            self.text.push('"');
                            (rest, place.column) = (doubled, place.column + 1);
                        }
                        None => {
                            self.text.push_str(rest);
                            self.text.push_str(lines.end());
                            if self.text.len() > ROW_BYTES_MAX {
                                return Some(Err((
                                    begins,
                                    "this quote is not closed within a row's most bytes".into(),
                                )));
                            }
                            raw = match lines.next() {
                                None => return Some(Err((begins, "this quote is not closed".into()))),
                                Some(Err(error)) => return Some(Err(error)),
                                Some(Ok(line)) => line,
                            };
                            rest = raw.as_str();
                            place = FilePlace { line: lines.number(), column: 1 };
                        }
                    }
                }
                if !(rest.is_empty() || rest.starts_with(',')) {
                    return Some(Err((place, "after a closing quote comes a comma or the end of the line".into())));
                }
            } else {
                let cell = &rest[..rest.find(',').unwrap_or(rest.len())];
                self.text.push_str(cell);
                place.column += cell.chars().count() as u32;
                rest = &rest[cell.len()..];
            }
            self.cells.push((self.text.len(), begins, is_quoted));
            if self.cells.len() > COLUMNS_MAX {
                return Some(Err((begins, format!("more than {COLUMNS_MAX} columns"))));
            }
            match rest.strip_prefix(',') {
                Some(more) => (rest, place.column) = (more, place.column + 1),
                None => return Some(Ok(())),
            }
        }
    }
}
