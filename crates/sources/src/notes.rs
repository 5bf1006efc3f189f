//! Notes of sources, which become events of the server.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// Maximum notes waiting for the server. Beyond it, the oldest are dropped.
const NOTES_MAX: usize = 256;

/// Message for the operator, which becomes an event of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Time, in nanoseconds since 1970 UTC.
    pub time: i64,
    /// Level: `info`, `watch`, `warning` or `critical`.
    pub level: &'static str,
    /// Message.
    pub text: String,
}

/// Queue of notes.
#[derive(Debug, Default)]
pub struct Notes {
    waiting: Mutex<VecDeque<Note>>,
}

impl Notes {
    /// Takes up to `most` of the oldest notes. The caller must pass them on.
    pub fn take(&self, most: usize) -> Vec<Note> {
        let mut waiting = self.waiting.lock();
        let count = waiting.len().min(most);
        waiting.drain(..count).collect()
    }

    pub(crate) fn add(&self, note: Note) {
        let mut waiting = self.waiting.lock();
        if waiting.len() == NOTES_MAX {
            waiting.pop_front();
        }
        waiting.push_back(note);
    }
}
