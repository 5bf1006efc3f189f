//! What updates and histories say of cells beside their values, by the place of each cell in its list. Clients that do
//! not know of it pass over it.

use strongback_store::Value;

use super::window::ChannelWindow;
use crate::text::json;

/// What there is to say of the cells of a window or series; most often nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CellNotes {
    /// Cells of text that changed more often than their first and last value say.
    pub changed: Vec<u32>,
    /// Cells with an infinite extreme, and the least and the greatest of their finite values.
    pub finite: Vec<(u32, Value<'static>, Value<'static>)>,
}

impl CellNotes {
    /// Those of cells, in their order.
    pub fn of<'a>(cells: impl Iterator<Item = &'a ChannelWindow>) -> CellNotes {
        let mut notes = CellNotes::default();
        cells.zip(0..).for_each(|(cell, place)| notes.add(place, cell));
        notes
    }

    /// Adds what there is to say of the cell at a place.
    pub fn add(&mut self, place: u32, cell: &ChannelWindow) {
        if cell.is_restless() {
            self.changed.push(place);
        }
        if let Some((min, max)) = cell.finite_range() {
            self.finite.push((place, min, max));
        }
    }

    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.finite.is_empty()
    }

    /// Appends the fields `changed` and `finite` of an object that has others before them; none that is empty.
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
