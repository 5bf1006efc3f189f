//! Frames that a target rejects, by name in a file: `NAME.rejected.jsonl`. Their values stay in the store.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::delivery::StreamFrames;

/// Max size of the file in bytes. Rejected frames beyond are counted only.
const FILE_MAX: u64 = 64 << 20;
/// Max bytes of a reason.
const REASON_MAX: usize = 500;

/// Rejected frames of a follower.
pub(crate) struct Quarantine {
    path: PathBuf,
}

impl Quarantine {
    pub(crate) fn new(folder: &Path, name: &str) -> Quarantine {
        Quarantine { path: folder.join(format!("{name}.rejected.jsonl")) }
    }

    /// Adds the frames, and makes them durable. A frame whose delivery was repeated can be there twice.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub(crate) fn add(&self, frames: &StreamFrames, reason: &str, now: i64) -> io::Result<()> {
        let mut file: File = OpenOptions::new().create(true).append(true).open(&self.path)?;
        if file.metadata()?.len() >= FILE_MAX {
            return Ok(());
        }
        let mut text = String::new();
        for (at, row) in frames.batch.rows.iter().enumerate() {
            let line = json!({
                "stream": frames.stream.key.to_string(),
                "row": row.to_string(),
                "time_ns": frames.batch.time(at).to_string(),
                "reason": shortened(reason),
                "rejected_at_ns": now.to_string(),
            });
            text.push_str(&line.to_string());
            text.push('\n');
        }
        file.write_all(text.as_bytes())?;
        file.sync_data()
    }
}

/// Returns a text, cut to the bytes of a reason.
pub(crate) fn shortened(text: &str) -> &str {
    let end = (0..=text.len().min(REASON_MAX)).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}
