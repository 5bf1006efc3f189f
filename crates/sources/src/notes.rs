//! What sources have to say to people: it becomes events of the server.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// Notes that wait for the server to take them; of more, the oldest go.
const NOTES_MAX: usize = 256;

/// Something that people are to know of: an event of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// When, nanoseconds since 1970 UTC.
    pub time: i64,
    /// `info`, `watch`, `warning`, `critical`.
    pub level: &'static str,
    /// In words.
    pub text: String,
}

/// Notes that wait to be taken.
#[derive(Debug, Default)]
pub struct Notes {
    waiting: Mutex<VecDeque<Note>>,
}

impl Notes {
    /// The oldest notes, up to `most`: whoever takes them passes them on.
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
