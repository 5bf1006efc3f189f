//! Rows of the server's own tables as one execution of a statement reads them: each table once, however often the
//! statement names it, and counted as the memory of queries until the execution ends.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::Session;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;

use crate::running::memory::{Share, SharedMemory};

/// Bytes of each execution that do not count, so that a small table can always be read.
const FREE_BYTES: usize = 1 << 20;

/// Rows read so far, by the name of the table or the call of the function. An extension of the session of an execution.
pub(crate) struct SystemRowsRead(Mutex<(HashMap<String, RecordBatch>, Share)>);

impl SystemRowsRead {
    pub(crate) fn new(memory: Arc<SharedMemory>) -> SystemRowsRead {
        SystemRowsRead(Mutex::new((HashMap::new(), Share::new(memory, FREE_BYTES))))
    }

    fn batch(&self, name: String, read: impl FnOnce() -> Result<RecordBatch>) -> Result<RecordBatch> {
        let mut this = self.0.lock();
        let (known, share) = &mut *this;
        if let Some(rows) = known.get(&name) {
            return Ok(rows.clone());
        }
        let rows = read()?;
        if !share.try_resize(share.bytes() + rows.get_array_memory_size()) {
            let bytes = rows.get_array_memory_size();
            let message =
                format!("out of memory: the rows of {name}: {bytes} bytes, and all queries together hold too much");
            return Err(DataFusionError::ResourcesExhausted(message));
        }
        known.insert(name, rows.clone());
        Ok(rows)
    }
}

/// Plans a scan of rows that are read now, unless this execution has read them before.
///
/// # Errors
/// If the rows cannot be read, or all queries together hold too much.
pub(crate) fn scan(
    session: &dyn Session,
    name: String,
    (schema, projection): (&SchemaRef, Option<&Vec<usize>>),
    columns: impl FnOnce() -> Result<Vec<ArrayRef>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let read = || Ok(RecordBatch::try_new(schema.clone(), columns()?)?);
    let rows = match session.config().get_extension::<SystemRowsRead>() {
        Some(all) => all.batch(name, read)?,
        // The statement is only described.
        None => read()?,
    };
    Ok(MemorySourceConfig::try_new_exec(&[vec![rows]], schema.clone(), projection.cloned())?)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Int64Array;
    use datafusion::arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    #[test]
    fn a_table_is_read_once_and_counts_until_the_end() {
        let memory = SharedMemory::new(8 << 20);
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
        let rows = |count: i64| {
            let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..count));
            Ok(RecordBatch::try_new(schema.clone(), vec![column])?)
        };
        let one = SystemRowsRead::new(memory.clone());
        for _ in 0..60 {
            assert_eq!(one.batch("gaps".to_owned(), || rows(500_000)).unwrap().num_rows(), 500_000);
        }
        let other = SystemRowsRead::new(memory);
        let error = other.batch("gaps".to_owned(), || rows(900_000)).unwrap_err().to_string();
        assert!(error.contains("the rows of gaps: 72"), "{error}");
        // A small table has a place of its own.
        assert_eq!(other.batch("runs".to_owned(), || rows(1_000)).unwrap().num_rows(), 1_000);
        drop(one);
        assert_eq!(other.batch("gaps".to_owned(), || rows(900_000)).unwrap().num_rows(), 900_000);
    }
}
