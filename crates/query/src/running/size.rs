//! Sizes of values in bytes as if copied, so that a slice counts only what it shows.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, OffsetSizeTrait, RecordBatch};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::DataType;

/// Total and max size of the values in an array, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Size {
    /// Size of all values.
    pub(crate) total: usize,
    /// Size of the widest value.
    pub(crate) widest: usize,
    /// Number of list elements.
    pub(crate) elements: usize,
}

impl Size {
    fn fixed(rows: usize, width: usize) -> Size {
        Size { total: rows.saturating_mul(width), widest: width, elements: 0 }
    }

    fn views(lengths: impl Iterator<Item = usize>) -> Size {
        lengths.fold(Size::default(), |size, length| Size {
            total: size.total + 16 + length,
            widest: size.widest.max(16 + length),
            elements: 0,
        })
    }

    fn offsets<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> Size {
        let widest = offsets.lengths().max().unwrap_or(0);
        let total = range_of(offsets);
        Size { total: total + offsets.len() * 8, widest: widest + 8, elements: 0 }
    }

    fn lists<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>, values: &ArrayRef) -> Size {
        let start = offsets.first().map_or(0, |o| o.as_usize());
        let elements = range_of(offsets);
        let inner = Size::of(&values.slice(start, elements));
        let longest = offsets.lengths().max().unwrap_or(0);
        Size {
            total: inner.total + offsets.len() * 8,
            widest: longest.saturating_mul(inner.widest).min(inner.total) + 8,
            elements: elements + inner.elements,
        }
    }

    /// Measures an array, in time proportional to its rows, not their bytes.
    pub(crate) fn of(array: &dyn Array) -> Size {
        let rows = array.len();
        match array.data_type() {
            DataType::Utf8 => Size::offsets(array.as_string::<i32>().offsets()),
            DataType::LargeUtf8 => Size::offsets(array.as_string::<i64>().offsets()),
            DataType::Binary => Size::offsets(array.as_binary::<i32>().offsets()),
            DataType::LargeBinary => Size::offsets(array.as_binary::<i64>().offsets()),
            DataType::Utf8View => Size::views(array.as_string_view().views().iter().map(|view| *view as u32 as usize)),
            DataType::BinaryView => {
                Size::views(array.as_binary_view().views().iter().map(|view| *view as u32 as usize))
            }
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                Size::lists(list.offsets(), list.values())
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                Size::lists(list.offsets(), list.values())
            }
            DataType::Map(..) => {
                let map = array.as_map();
                let entries: ArrayRef = std::sync::Arc::new(map.entries().clone());
                Size::lists(map.offsets(), &entries)
            }
            DataType::FixedSizeList(_, length) => {
                let inner = Size::of(array.as_fixed_size_list().values());
                let length = usize::try_from(*length).unwrap_or(0);
                Size { total: inner.total, widest: inner.widest * length, elements: rows * length + inner.elements }
            }
            DataType::Struct(_) => {
                array.as_struct().columns().iter().map(|column| Size::of(column)).fold(Size::default(), |all, one| {
                    Size {
                        total: all.total + one.total,
                        widest: all.widest + one.widest,
                        elements: all.elements.max(one.elements),
                    }
                })
            }
            DataType::Dictionary(..) => {
                let widest = Size::of(array.as_any_dictionary().values()).widest;
                Size::fixed(rows, widest)
            }
            DataType::Boolean => Size::fixed(rows, 1),
            kind => match kind.primitive_width() {
                Some(width) => Size::fixed(rows, width),
                None => {
                    let total = array.get_array_memory_size();
                    Size { total, widest: total, elements: 0 }
                }
            },
        }
    }

    /// Measures the rows of a batch.
    pub(crate) fn of_batch(batch: &RecordBatch) -> Size {
        batch.columns().iter().map(|column| Size::of(column)).fold(Size::default(), |all, one| Size {
            total: all.total + one.total,
            widest: all.widest + one.widest,
            elements: all.elements + one.elements,
        })
    }
}

fn range_of<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> usize {
    match (offsets.first(), offsets.last()) {
        (Some(first), Some(last)) => last.as_usize() - first.as_usize(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{Int64Array, ListArray, StringArray, StringViewArray};
    use datafusion::arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn a_slice_counts_only_what_it_shows() {
        let long = "x".repeat(1_000);
        let texts = ["a", long.as_str(), "b"];
        for array in [
            Arc::new(StringArray::from_iter_values(texts)) as ArrayRef,
            Arc::new(StringViewArray::from_iter_values(texts)),
        ] {
            let (whole, last) = (Size::of(&array), Size::of(&array.slice(2, 1)));
            assert!(whole.widest >= 1_000 && whole.total >= 1_002, "{whole:?}");
            assert!(last.widest < 40 && last.total < 40, "{last:?}");
        }
        assert_eq!(Size::of(&Int64Array::from(vec![1, 2, 3]).slice(1, 2)).total, 16);
    }

    #[test]
    fn lists_count_their_elements() {
        let rows = [Some(vec![Some(1)]), Some(vec![Some(2); 100]), None];
        let lists = ListArray::from_iter_primitive::<Int64Type, _, _>(rows);
        let size = Size::of(&lists);
        assert_eq!(size.elements, 101);
        assert!(size.widest >= 800 && size.total >= 808, "{size:?}");
        assert_eq!(Size::of(&lists.slice(0, 1)).elements, 1);
    }
}
