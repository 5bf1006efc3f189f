//! Long texts of a frame, stored once however many windows show them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use strongback_store::ChannelIndex;

/// Min size of texts that are shared. Copying shorter ones costs about as much as the rest of a window.
pub const SHARED_BYTES_MIN: usize = 256;

/// Text in a window.
#[derive(Clone, Debug)]
pub enum Text {
    /// Copy owned by the window.
    Own(String),
    /// Text shared with other windows of the same frame.
    Shared(Arc<str>),
}

impl Text {
    /// Returns the text as a string slice.
    pub fn as_str(&self) -> &str {
        match self {
            Text::Own(text) => text,
            Text::Shared(text) => text,
        }
    }

    /// Returns whether both texts are equal. Skips the comparison if they share one allocation.
    pub fn is(&self, other: &Text) -> bool {
        match (self, other) {
            (Text::Shared(one), Text::Shared(other)) if Arc::ptr_eq(one, other) => true,
            _ => self.as_str() == other.as_str(),
        }
    }

    /// Replaces the text with a copy of `text`, reusing its memory.
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

/// Long texts of one frame, each copied when the first window takes it.
#[derive(Debug, Default)]
pub struct Texts {
    by_channel: RefCell<BTreeMap<ChannelIndex, Arc<str>>>,
}

impl Texts {
    /// Returns the shared text of a channel.
    pub fn share(&self, channel: ChannelIndex, text: &str) -> Arc<str> {
        let mut by_channel = self.by_channel.borrow_mut();
        let shared = by_channel.entry(channel).or_insert_with(|| Arc::from(text));
        // A frame may contain a channel twice.
        if **shared != *text {
            *shared = Arc::from(text);
        }
        shared.clone()
    }
}
