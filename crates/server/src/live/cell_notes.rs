//! Notes on cells of updates and histories, by each cell's position in its list. Clients that do not know them skip
//! them.

use strongback_store::Value;

use super::window::ChannelWindow;
use crate::text::json;

/// Notes on the cells of a window or series; usually empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CellNotes {
    /// Text cells that changed more often than their first and last value show.
    pub changed: Vec<u32>,
    /// Cells with an infinite extreme, with the min and max of their finite values.
    pub finite: Vec<(u32, Value<'static>, Value<'static>)>,
}

impl CellNotes {
    /// Collects the notes on cells, in their order.
    pub fn of<'a>(cells: impl Iterator<Item = &'a ChannelWindow>) -> CellNotes {
        let mut notes = CellNotes::default();
        cells.zip(0..).for_each(|(cell, place)| notes.add(place, cell));
        notes
    }

    /// Adds the notes on the cell at a position.
    pub fn add(&mut self, place: u32, cell: &ChannelWindow) {
        if cell.is_restless() {
            self.changed.push(place);
        }
        if let Some((min, max)) = cell.finite_range() {
            self.finite.push((place, min, max));
        }
    }

    /// Returns whether there are no notes.
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.finite.is_empty()
    }

    /// Appends the fields `changed` and `finite` to an object that already has fields. Leaves out empty ones.
    pub fn write(&self, out: &mut Vec<u8>) {
        if !self.changed.is_empty() {
            out.extend_from_slice(b",\"changed\":");
            json::push(out, &self.changed);
        }
        if self.finite.is_empty() {
            return;
        }
        out.extend_from_slice(b",\"finite\":[");
        for (i, (place, min, max)) in self.finite.iter().enumerate() {
            out.extend_from_slice(if i > 0 { b",[" } else { b"[" });
            json::push_number(out, u64::from(*place));
            for value in [min, max] {
                out.push(b',');
                json::push_value(out, *value);
            }
            out.push(b']');
        }
        out.push(b']');
    }
}
