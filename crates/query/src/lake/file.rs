//! A Parquet file of the lake.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::Schema;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;

use crate::lake::book::{BookColumn, ELEMENT, Kind};
use crate::lake::frames::STREAM;

/// Level of compression: higher ones take several times as long for a few percent.
const LEVEL: i32 = 3;
/// Maximum rows and bytes of a row group.
const GROUP_ROWS: usize = 1 << 20;
const GROUP_BYTES: usize = 128 << 20;

/// Writes a file with these columns, and returns its bytes.
///
/// # Errors
/// Returns an error in words if the values do not fit the columns.
pub(crate) fn write(
    columns: &[&BookColumn],
    tags: &[&str],
    batches: impl Iterator<Item = Result<RecordBatch, String>>,
) -> Result<Vec<u8>, String> {
    let schema = Arc::new(Schema::new(columns.iter().map(|column| column.field()).collect::<Vec<_>>()));
    let failed = |error: parquet::errors::ParquetError| error.to_string();
    let mut writer = ArrowWriter::try_new(Vec::new(), schema, Some(properties(columns, tags)?)).map_err(failed)?;
    for batch in batches {
        writer.write(&batch?).map_err(failed)?;
    }
    writer.into_inner().map_err(failed)
}

fn properties(columns: &[&BookColumn], tags: &[&str]) -> Result<WriterProperties, String> {
    let level = ZstdLevel::try_new(LEVEL).map_err(|error| error.to_string())?;
    let place = |name: &str| columns.iter().position(|column| column.column == name);
    let sorted = [STREAM, "time_ns"].iter().filter_map(|name| place(name));
    let sorted = sorted.map(|at| SortingColumn { column_idx: at as i32, descending: false, nulls_first: false });
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!("strongback ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(level))
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_max_row_group_bytes(Some(GROUP_BYTES))
        .set_sorting_columns(Some(sorted.collect()));
    for column in columns {
        properties = encoded(properties, column);
        if tags.contains(&column.column.as_str()) {
            properties = properties.set_column_bloom_filter_enabled(ColumnPath::from(column.name.as_str()), true);
        }
    }
    Ok(properties.build())
}

/// Chooses the encodings of a column: those of columns whose values repeat begin with a dictionary.
fn encoded(properties: WriterPropertiesBuilder, column: &BookColumn) -> WriterPropertiesBuilder {
    let path = match column.element_id {
        Some(_) => ColumnPath::new(vec![column.name.clone(), "list".to_owned(), ELEMENT.to_owned()]),
        None => ColumnPath::from(column.name.as_str()),
    };
    let is_counted = ["time", "receive_time", "source_time", "sequence", "strongback_row"]
        .iter()
        .any(|name| column.column == *name || column.column.strip_suffix("_ns") == Some(name));
    match column.kind {
        Kind::Long | Kind::Time if is_counted => properties
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED),
        Kind::Long => properties.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED),
        // Spark cannot read BYTE_STREAM_SPLIT.
        _ => properties,
    }
}
