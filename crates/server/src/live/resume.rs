//! Resume tokens: where a client that comes back stood, and what of it still holds.
//!
//! A row is final once committed; before that it is provisional and dies with its epoch. A token beyond what
//! its epoch committed is answered with `rewound`, never silently.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use strongback_store::{Store, StreamId, View};

use super::outlet::Told;

/// What a client that comes back says of where it stood, from its last `hello`, `update` and `rewound`.
#[derive(Debug, Deserialize)]
pub struct Resume {
    origin: String,
    epoch: u32,
    /// By number of the stream: `to_row` and `committed` of its last window, in decimal digits.
    rows: BTreeMap<String, (String, String)>,
}

impl Resume {
    /// Where each stream goes on; adds a `rewound` to the messages for each that went back. `view` is one of
    /// `store`.
    pub fn check(&self, store: &Store, view: &View, id: i64, messages: &mut Vec<Told>) -> HashMap<StreamId, u64> {
        let mut resumed = HashMap::with_capacity(self.rows.len());
        for (stream, (row, committed)) in &self.rows {
            let Ok(number) = stream.parse() else { continue };
            let stream = StreamId(number);
            // What is no number is no row of ours.
            let row = row.parse().unwrap_or(u64::MAX);
            let kept = self.kept(store, view, stream, committed.parse().unwrap_or(0));
            if row > kept {
                messages.push(rewound(id, stream, store.epoch(), kept));
            }
            resumed.insert(stream, row.min(kept));
        }
        resumed
    }

    /// The rows below which all that the client was told still holds.
    fn kept(&self, store: &Store, view: &View, stream: StreamId, committed: u64) -> u64 {
        let next = view.next_row(stream);
        if self.origin != format!("{:032x}", store.origin()) || self.epoch > store.epoch() {
            return 0;
        }
        match store.epoch() - self.epoch {
            0 => next,
            1 => store.opened_row(stream).min(next),
            // How far older epochs came is not kept; what they called durable is.
            _ => committed.min(next),
        }
    }
}

/// The message that says which row a stream went back to.
pub fn rewound(id: i64, stream: StreamId, epoch: u32, row: u64) -> Told {
    let message = serde_json::json!({
        "type": "rewound", "id": id, "stream": stream.0, "epoch": epoch, "row": row.to_string(),
    });
    Told::Text(message.to_string().into())
}
