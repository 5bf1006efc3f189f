//! Determines the scope of message numbers from the messages themselves, because files do not state it.
//!
//! Recorders number the messages of each channel, or those of the whole file, or none. Numbers of the whole file cannot
//! serve as sequences of a stream, because between two messages of a topic there are others.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::ops::ControlFlow;

use super::container::{ContainerError, RecordEntry, read};

/// Messages to examine once a second channel is numbered, and at first to find any number at all.
const MESSAGES: usize = 4_096;
/// Maximum numbers kept before a second channel is numbered.
const NUMBERS_MAX: usize = 65_536;

/// Scope of message numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Numbering {
    /// No numbers: all are 0, or there are no messages.
    #[default]
    None,
    /// Numbers over the whole file.
    File,
    /// Numbers by channel, for these channels.
    Channel(HashSet<u16>),
}

impl Numbering {
    /// Examines the first messages of a file, and continues until two channels are numbered: a channel that sends alone
    /// for a while does not show whether others share its numbers.
    ///
    /// # Errors
    /// Same as [`read`].
    pub fn of(input: impl Read) -> Result<Numbering, ContainerError> {
        let (mut looked, mut compared) = (0, 0);
        let mut by_number: HashMap<u32, u16> = HashMap::new();
        let (mut channels, mut numbered, mut twice) = (HashSet::new(), HashSet::new(), false);
        read(input, |entry, _| {
            if let RecordEntry::Message(message) = entry {
                looked += 1;
                channels.insert(message.channel);
                if message.sequence != 0 {
                    numbered.insert(message.channel);
                    let is_kept = numbered.len() > 1 || by_number.len() < NUMBERS_MAX;
                    match by_number.get(&message.sequence) {
                        Some(first) => twice |= *first != message.channel,
                        None if is_kept => {
                            by_number.insert(message.sequence, message.channel);
                        }
                        None => {}
                    }
                }
                compared += usize::from(numbered.len() > 1);
            }
            let is_unnumbered = numbered.is_empty() && looked >= MESSAGES;
            if is_unnumbered || compared >= MESSAGES { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(match numbered.len() {
            0 => Numbering::None,
            // The same number in two channels, or a single channel, means numbers by channel.
            _ if twice || channels.len() == 1 => Numbering::Channel(numbered),
            _ => Numbering::File,
        })
    }

    /// Returns the number of a message as the sequence of its stream.
    pub(super) fn sequence(&self, channel: u16, number: u32) -> Option<u64> {
        match self {
            Numbering::Channel(numbered) if number != 0 || numbered.contains(&channel) => Some(number.into()),
            _ => None,
        }
    }

    /// Returns a description.
    pub fn words(&self) -> &'static str {
        match self {
            Numbering::None => "none",
            Numbering::File => "by file",
            Numbering::Channel(_) => "by channel",
        }
    }
}
