//! What the numbers of messages count, by the first of them: files do not say it.
//!
//! Recorders number the messages of each channel, those of the whole file, or none. Numbers of the whole file say
//! nothing of a stream: between two messages of a topic lie those of others.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::ops::ControlFlow;

use super::container::{ContainerError, Entry, read};

/// Messages that are looked at.
const MESSAGES: usize = 4_096;

/// What the numbers of messages count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Numbering {
    /// Nothing: all are 0, or there are none.
    #[default]
    None,
    /// The messages of the file.
    File,
    /// The messages of each channel; those that are numbered.
    Channel(HashSet<u16>),
}

impl Numbering {
    /// Looks at the first messages of a file.
    ///
    /// # Errors
    /// As [`read`].
    pub fn of(input: impl Read) -> Result<Numbering, ContainerError> {
        let mut looked = 0;
        let mut by_number: HashMap<u32, u16> = HashMap::new();
        let (mut channels, mut numbered, mut twice) = (HashSet::new(), HashSet::new(), false);
        read(input, |entry, _| {
            if let Entry::Message(message) = entry {
                looked += 1;
                channels.insert(message.channel);
                if message.sequence != 0 {
                    numbered.insert(message.channel);
                    let first = *by_number.entry(message.sequence).or_insert(message.channel);
                    twice |= first != message.channel;
                }
            }
            if looked < MESSAGES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(match numbered.len() {
            0 => Numbering::None,
            // The same number in two channels, or a single channel: they count by channel.
            _ if twice || channels.len() == 1 => Numbering::Channel(numbered),
            _ => Numbering::File,
        })
    }

    /// The number of a message as the sequence of its stream.
    pub(super) fn sequence(&self, channel: u16, number: u32) -> Option<u64> {
        match self {
            Numbering::Channel(numbered) if number != 0 || numbered.contains(&channel) => Some(number.into()),
            _ => None,
        }
    }

    /// In words.
    pub fn words(&self) -> &'static str {
        match self {
            Numbering::None => "none",
            Numbering::File => "by file",
            Numbering::Channel(_) => "by channel",
        }
    }
}
