//! Output of data: standard output or a file.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::Path;

use anyhow::Context;

/// Error of standard output whose reader has closed it, as `head` does.
#[derive(Debug, thiserror::Error)]
#[error("standard output is closed")]
struct OutputClosed;

/// Standard output that reports a closed pipe as [`OutputClosed`], and not as an error of a file or socket.
#[derive(Debug)]
pub struct Output<W>(W);

impl<W: Write> Write for Output<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(marked)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(marked)
    }
}

fn marked(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::BrokenPipe => io::Error::new(ErrorKind::BrokenPipe, OutputClosed),
        _ => error,
    }
}

/// Returns standard output, buffered.
pub fn standard() -> BufWriter<Output<io::StdoutLock<'static>>> {
    BufWriter::new(Output(io::stdout().lock()))
}

/// Creates a file for output, or returns standard output if no file is given.
///
/// # Errors
/// If the file cannot be created.
pub fn open(file: Option<&Path>) -> anyhow::Result<Box<dyn Write>> {
    Ok(match file {
        Some(path) => Box::new(BufWriter::new(File::create(path).with_context(|| path.display().to_string())?)),
        None => Box::new(standard()),
    })
}

/// Returns whether an error comes from standard output being closed by its reader, who has seen enough.
pub fn is_closed(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let cause = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        cause.is_some_and(|inner| inner.is::<OutputClosed>())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_output_is_told_from_a_closed_socket() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let closed = Output(&writer).write_all(b"x").context("the export cannot be written").unwrap_err();
        assert!(is_closed(&closed), "{closed:#}");
        let socket = (&writer).write_all(b"x").context("the request cannot be sent").unwrap_err();
        assert!(!is_closed(&socket), "{socket:#}");
    }
}
