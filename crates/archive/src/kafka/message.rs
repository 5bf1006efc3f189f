//! A frame as a message: an object of JSON.
//!
//! ```json
//! {"time_ns": 1790000000000000000, "receive_time_ns": 1790000000000000000, "source_time_ns": 1790000000000000000,
//!  "sequence": 7, "row": 12, "tags": {"bay": "north"}, "values": {"pressure": 1.5}}
//! ```
//!
//! Values that the frame does not have are left out. Integers are numbers with all their digits, not-a-number and
//! infinities are texts, arrays are arrays, blobs their references.

use crate::delivery::StreamFrames;
use crate::json::{integer, text, value};

/// Writer of the frames of a stream.
pub(super) struct Writer<'a> {
    frames: &'a StreamFrames,
    /// Tags and the beginning of the values.
    middle: Vec<u8>,
    /// Name of each channel, as a key.
    keys: Vec<Vec<u8>>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(frames: &'a StreamFrames) -> Writer<'a> {
        let mut middle = b",\"tags\":{".to_vec();
        for (at, (key, value)) in frames.stream.key.tags.iter().enumerate() {
            if at > 0 {
                middle.push(b',');
            }
            text(&mut middle, key);
            middle.push(b':');
            text(&mut middle, value);
        }
        middle.extend_from_slice(b"},\"values\":{");
        let key = |index: &strongback_store::ChannelIndex| {
            let mut key = Vec::new();
            text(&mut key, &frames.stream.layout.channels[index.0 as usize].name);
            key.push(b':');
            key
        };
        Writer { frames, middle, keys: frames.channels.iter().map(key).collect() }
    }

    /// Adds the message of a frame.
    pub(super) fn write(&mut self, out: &mut Vec<u8>, at: usize) {
        let batch = &self.frames.batch;
        out.extend_from_slice(b"{\"time_ns\":");
        integer(out, batch.time(at));
        out.extend_from_slice(b",\"receive_time_ns\":");
        integer(out, batch.receive_time[at]);
        if let Some(time) = batch.source_time.as_ref().and_then(|times| times.get(at)) {
            out.extend_from_slice(b",\"source_time_ns\":");
            integer(out, time);
        }
        if let Some(sequence) = batch.sequence.as_ref().and_then(|sequence| sequence.get(at)) {
            out.extend_from_slice(b",\"sequence\":");
            integer(out, sequence);
        }
        out.extend_from_slice(b",\"row\":");
        integer(out, batch.rows[at] as i64);
        out.extend_from_slice(&self.middle);
        let mut is_first = true;
        for (key, column) in self.keys.iter().zip(&batch.columns) {
            let Ok(cell) = column.cell(at) else { continue };
            if !std::mem::replace(&mut is_first, false) {
                out.push(b',');
            }
            out.extend_from_slice(key);
            value(out, cell);
        }
        out.extend_from_slice(b"}}");
    }
}
