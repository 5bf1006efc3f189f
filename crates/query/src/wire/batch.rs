//! Encodes rows of an Arrow batch as messages, many at a time if all columns have cells of fixed lengths.

use std::convert::identity;

use bytes::BytesMut;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Field, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit,
    TimestampMicrosecondType, TimestampNanosecondType, UInt8Type, UInt16Type, UInt32Type,
};
use pgwire::api::Type;

use super::encode::{EPOCH_2000_DAYS, EPOCH_2000_US};
use super::message::RowForm;
use super::template::{Cells, ColumnPlaces, RowTemplate};
use crate::table::column::floor_micros;
use crate::table::merge::Run;

/// Creates the template of a batch whose columns have these types on the wire. Returns `None` if the length of any cell
/// depends on its row.
pub(crate) fn template(batch: &RecordBatch, kinds: &[(Type, bool)], form: &RowForm) -> Option<RowTemplate> {
    RowTemplate::of_cells(form, batch.num_columns(), |column, binary| {
        let (kind, is_text) = &kinds[column];
        cells(batch.column(column), batch.schema_ref().field(column), kind, binary && !is_text)
    })
}

/// Appends consecutive rows of the batch for which the template was made.
pub(crate) fn put(template: &RowTemplate, out: &mut BytesMut, batch: &RecordBatch, run: &Run) {
    template.put_columns(out, run, |column, places| put_column(batch.column(column), places));
}

fn cells(array: &ArrayRef, field: &Field, kind: &Type, binary: bool) -> Cells<'static> {
    if matches!(array.data_type(), DataType::Null) || array.null_count() == array.len() {
        return Cells::Same(None);
    }
    if !binary || array.null_count() > 0 || !field.metadata().is_empty() {
        return Cells::Unknown;
    }
    match array.data_type() {
        DataType::Boolean => Cells::OfBytes(1),
        DataType::Int8 | DataType::Int16 | DataType::UInt8 => Cells::OfBytes(2),
        DataType::Int32 | DataType::UInt16 | DataType::Float32 | DataType::Date32 => Cells::OfBytes(4),
        DataType::Float64 if *kind == Type::FLOAT8 => Cells::OfBytes(8),
        DataType::Int64 | DataType::UInt32 => Cells::OfBytes(8),
        DataType::Timestamp(TimeUnit::Microsecond | TimeUnit::Nanosecond, _) => Cells::OfBytes(8),
        _ => Cells::Unknown,
    }
}

/// Writes the cells of a column for which [`cells`] returned a size.
fn put_column(array: &ArrayRef, places: ColumnPlaces<'_>) {
    macro_rules! put {
        ($kind:ty, $value:expr) => {{
            let values = array.as_primitive::<$kind>().values();
            places.put(|row| $value(values[row]).to_be_bytes())
        }};
    }
    let since_2000 = |time_us: i64| time_us.saturating_sub(EPOCH_2000_US);
    match array.data_type() {
        DataType::Boolean => {
            let values = array.as_boolean();
            places.put(|row| [u8::from(values.value(row))]);
        }
        DataType::Int8 => put!(Int8Type, i16::from),
        DataType::Int16 => put!(Int16Type, identity),
        DataType::UInt8 => put!(UInt8Type, i16::from),
        DataType::Int32 => put!(Int32Type, identity),
        DataType::UInt16 => put!(UInt16Type, i32::from),
        DataType::Float32 => put!(Float32Type, identity),
        DataType::Date32 => put!(Date32Type, |days: i32| days.saturating_sub(EPOCH_2000_DAYS)),
        DataType::Int64 => put!(Int64Type, identity),
        DataType::UInt32 => put!(UInt32Type, i64::from),
        DataType::Float64 => put!(Float64Type, identity),
        DataType::Timestamp(TimeUnit::Microsecond, _) => put!(TimestampMicrosecondType, since_2000),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            put!(TimestampNanosecondType, |time_ns| since_2000(floor_micros(time_ns)))
        }
        _ => {}
    }
}
