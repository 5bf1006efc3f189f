//! Reads the record batches that clients send.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_flight::FlightData;
use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::ipc::convert::fb_to_schema;
use datafusion::arrow::ipc::reader::{read_dictionary, read_record_batch};
use datafusion::arrow::ipc::{MessageHeader, RecordBatch as RawBatch, root_as_message};

use super::status::malformed;
use crate::error::{QueryError, sqlstate};

/// Maximum rows of a record batch.
const ROWS_MAX: i64 = i32::MAX as i64;

/// Reads messages of one stream.
#[derive(Default)]
pub(super) struct BatchReader {
    schema: Option<SchemaRef>,
    dictionaries: HashMap<i64, ArrayRef>,
    /// Sizes of the messages that the dictionaries are in.
    dictionary_bytes: HashMap<i64, usize>,
}

impl BatchReader {
    /// Returns the bytes that it holds from one message to the next.
    pub(super) fn held_bytes(&self) -> usize {
        self.dictionary_bytes.values().sum()
    }

    /// Reads a message. Returns its record batch, if it is one.
    ///
    /// # Errors
    /// If it is malformed, or comes out of order.
    pub(super) fn read(&mut self, data: &FlightData) -> Result<Option<RecordBatch>, QueryError> {
        // The decoder takes some malformed schemas and lengths for defects of the program.
        let read = catch_unwind(AssertUnwindSafe(|| self.read_message(data)));
        read.unwrap_or_else(|_| Err(malformed("a record batch does not fit its schema")))
    }

    fn read_message(&mut self, data: &FlightData) -> Result<Option<RecordBatch>, QueryError> {
        if data.data_header.is_empty() {
            return Ok(None);
        }
        let message = root_as_message(&data.data_header).map_err(|error| malformed(&error.to_string()))?;
        let body = Buffer::from(data.data_body.clone());
        if message.header_type() == MessageHeader::Schema {
            let schema = message.header_as_schema().ok_or_else(|| malformed("a schema without columns"))?;
            if self.schema.is_some() {
                return Err(malformed("a second schema"));
            }
            self.schema = Some(Arc::new(fb_to_schema(schema)));
            return Ok(None);
        }
        let schema = self.schema.clone().ok_or_else(|| malformed("a record batch before its schema"))?;
        if let Some(dictionary) = message.header_as_dictionary_batch() {
            let batch = dictionary.data().ok_or_else(|| malformed("a dictionary without values"))?;
            check(&batch, body.len())?;
            if dictionary.isDelta() {
                let text = "dictionaries in parts are not supported";
                return Err(QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, text));
            }
            read_dictionary(&body, dictionary, &schema, &mut self.dictionaries, &message.version())
                .map_err(|error| malformed(&error.to_string()))?;
            self.dictionary_bytes.insert(dictionary.id(), body.len());
            return Ok(None);
        }
        let batch = message.header_as_record_batch().ok_or_else(|| malformed("neither a schema nor a record batch"))?;
        check(&batch, body.len())?;
        let read = read_record_batch(&body, batch, schema, &self.dictionaries, None, &message.version());
        read.map(Some).map_err(|error| malformed(&error.to_string()))
    }
}

/// Checks that the buffers of a batch lie within its body.
fn check(batch: &RawBatch<'_>, bytes: usize) -> Result<(), QueryError> {
    if batch.compression().is_some() {
        let text = "compressed record batches are not supported";
        return Err(QueryError::new(sqlstate::FEATURE_NOT_SUPPORTED, text));
    }
    let is_within = |offset: i64, length: i64| {
        let end = offset.checked_add(length).and_then(|end| usize::try_from(end).ok());
        offset >= 0 && length >= 0 && end.is_some_and(|end| end <= bytes)
    };
    let buffers_fit =
        batch.buffers().is_none_or(|all| all.iter().all(|buffer| is_within(buffer.offset(), buffer.length())));
    let is_count = |count: i64| (0..=ROWS_MAX).contains(&count);
    let nodes_fit = batch.nodes().is_none_or(|all| {
        all.iter().all(|node| is_count(node.length()) && (0..=node.length()).contains(&node.null_count()))
    });
    if buffers_fit && nodes_fit && is_count(batch.length()) {
        return Ok(());
    }
    Err(malformed("a record batch is larger than its body"))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Array, DictionaryArray, Float64Array, Int64Array, ListArray, StringArray};
    use datafusion::arrow::datatypes::{Field, Int32Type, Schema};
    use datafusion::arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};

    use super::*;

    fn messages() -> (RecordBatch, Vec<FlightData>) {
        let tags: DictionaryArray<Int32Type> = ["a", "b", "a"].into_iter().collect();
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None, Some(vec![])]);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(vec![Some(1), None, Some(3)])),
            Arc::new(Float64Array::from(vec![0.5, 1.5, 2.5])),
            Arc::new(StringArray::from(vec!["x", "", "yz"])),
            Arc::new(tags),
            Arc::new(lists),
        ];
        let field = |(at, column): (usize, &ArrayRef)| Field::new(format!("c{at}"), column.data_type().clone(), true);
        let schema = Schema::new(columns.iter().enumerate().map(field).collect::<Vec<_>>());
        let batch = RecordBatch::try_new(Arc::new(schema.clone()), columns).unwrap();
        let (generator, options) = (IpcDataGenerator::default(), IpcWriteOptions::default());
        let (mut tracker, mut context) = (DictionaryTracker::new(false), IpcWriteContext::default());
        let first = generator.schema_to_bytes_with_dictionary_tracker(&schema, &mut tracker, &options);
        let (dictionaries, last) = generator.encode(&batch, &mut tracker, &options, &mut context).unwrap();
        let data = [first].into_iter().chain(dictionaries).chain([last]).map(FlightData::from).collect();
        (batch, data)
    }

    fn read_all(data: &[FlightData]) -> Result<Vec<RecordBatch>, QueryError> {
        let mut reader = BatchReader::default();
        data.iter().filter_map(|message| reader.read(message).transpose()).collect()
    }

    #[test]
    fn batches_are_read_as_they_were_sent() {
        let (batch, data) = messages();
        assert_eq!(read_all(&data).unwrap(), vec![batch]);
        assert_eq!(read_all(&data[1..]).unwrap_err().sqlstate, sqlstate::PROTOCOL_VIOLATION);
    }

    #[test]
    fn malformed_batches_are_errors() {
        let (_, data) = messages();
        let last = data.len() - 1;
        let mut cut = data.clone();
        cut[last].data_body = data[last].data_body.slice(..data[last].data_body.len() - 64);
        assert_eq!(read_all(&cut).unwrap_err().message, "invalid message: a record batch is larger than its body");
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..3_000 {
            let mut data = data.clone();
            let message = random.usize(..data.len());
            let part = if random.bool() { &mut data[message].data_header } else { &mut data[message].data_body };
            let mut bytes = part.to_vec();
            if bytes.is_empty() {
                continue;
            }
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
            *part = bytes.into();
            // Whatever comes, it is a valid batch or an error.
            for batch in read_all(&data).unwrap_or_default() {
                for column in batch.columns() {
                    column.to_data().validate_full().unwrap();
                }
            }
        }
    }
}
