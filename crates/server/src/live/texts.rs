//! Long texts of a frame, held once however many windows show them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use strongback_store::ChannelIndex;

/// Texts from this size on are shared: copies of shorter ones cost about as much as the rest of a window.
pub const SHARED_BYTES_MIN: usize = 256;

/// A text in a window.
#[derive(Clone, Debug)]
pub enum Text {
    /// The window's own copy.
    Own(String),
    /// That of its frame.
    Shared(Arc<str>),
}

impl Text {
    /// It.
    pub fn as_str(&self) -> &str {
        match self {
            Text::Own(text) => text,
            Text::Shared(text) => text,
        }
    }

    /// Whether another is the same text. Two that are shared may be one, which takes no comparison.
    pub fn is(&self, other: &Text) -> bool {
        match (self, other) {
            (Text::Shared(one), Text::Shared(other)) if Arc::ptr_eq(one, other) => true,
            _ => self.as_str() == other.as_str(),
        }
    }

    /// Becomes a copy of a text, in the memory that it has.
    pub fn set(&mut self, text: &str) {
        match self {
            Text::Own(own) => {
                own.clear();
                own.push_str(text);
            }
            Text::Shared(_) => *self = Text::Own(text.to_owned()),
        }
    }
}

/// The long texts of one frame, each copied when the first window takes it.
#[derive(Debug, Default)]
pub struct Texts {
    by_channel: RefCell<BTreeMap<ChannelIndex, Arc<str>>>,
}

impl Texts {
    /// The text of a channel, to be shared.
    pub fn share(&self, channel: ChannelIndex, text: &str) -> Arc<str> {
        let mut by_channel = self.by_channel.borrow_mut();
        let shared = by_channel.entry(channel).or_insert_with(|| Arc::from(text));
        // A frame may name a channel twice.
        if **shared != *text {
            *shared = Arc::from(text);
        }
        shared.clone()
    }
}
