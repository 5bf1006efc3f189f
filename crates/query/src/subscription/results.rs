//! Progress of a subscription of the class `result`: a digest of the last result, with which the next is compared.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use sha2::{Digest, Sha256};
use strongback_store::{Store, StreamId};
use tokio::time::Instant;

use crate::error::{QueryError, sqlstate};
use crate::query::Rows;
use crate::query::answer::put_row;
use crate::running::memory::{Share, SharedMemory};
use crate::running::size::Size;

/// Maximum rows of a result.
const ROWS_MAX: usize = 10_000;
/// Maximum size of a result, in bytes.
const BYTES_MAX: usize = 8 << 20;
/// Bytes of a result that do not count as memory of answers.
const BYTES_FREE: usize = 64 << 10;
/// Rows between two yields.
const ROWS_AT_A_TIME: usize = 1_024;

/// Number of rows and a sum over them.
type ResultDigest = (usize, u128);

/// The last result, as far as it is remembered.
#[derive(Debug, Default)]
pub(crate) struct ResultProgress {
    last: Option<ResultDigest>,
    /// Sum of the committed rows of its streams, or number of the commit, when it was made.
    seen: Option<u64>,
    /// Time at which it was made.
    pub(crate) made_at: Option<Instant>,
}

impl ResultProgress {
    /// Returns a number that rises with each new row of the streams, or with each commit if they are not known.
    pub(crate) fn state(store: &Store, streams: Option<&[StreamId]>) -> u64 {
        match streams {
            Some(streams) => streams.iter().map(|stream| store.committed_row(*stream)).fold(0, u64::wrapping_add),
            None => store.committed().0,
        }
    }

    /// Reports whether there are new rows since the result was made.
    pub(crate) fn has_changes(&self, store: &Store, streams: Option<&[StreamId]>) -> bool {
        self.seen != Some(Self::state(store, streams))
    }

    /// Notes that the result is made from this state.
    pub(crate) fn begin(&mut self, state: u64) {
        (self.seen, self.made_at) = (Some(state), Some(Instant::now()));
    }

    /// Notes a result. Returns whether it differs from the last.
    pub(crate) fn differs(&mut self, result: ResultDigest) -> bool {
        self.last.replace(result) != Some(result)
    }
}

/// A whole result with its memory.
pub(crate) struct Collected {
    pub(crate) batches: Vec<RecordBatch>,
    pub(crate) digest: ResultDigest,
    pub(crate) share: Share,
}

/// Collects a result. Without an order, rows in another order give the same digest.
///
/// # Errors
/// If the statement fails, or its result is too large.
pub(crate) async fn collect(
    mut rows: Rows,
    is_ordered: bool,
    memory: Arc<SharedMemory>,
) -> Result<Collected, QueryError> {
    let share = Share::new(memory, BYTES_FREE);
    let mut collected = Collected { batches: Vec::new(), digest: (0, 0), share };
    let (mut bytes, mut text) = (0, String::new());
    while let Some(batch) = rows.next().await {
        let batch = batch?;
        bytes += Size::of_batch(&batch).total;
        if collected.digest.0 + batch.num_rows() > ROWS_MAX || bytes > BYTES_MAX {
            return Err(too_large());
        }
        if !collected.share.try_resize(bytes) {
            let text = "no room for the result of a subscription beside answers that are not read yet";
            return Err(QueryError::new(sqlstate::OUT_OF_MEMORY, text));
        }
        for row in 0..batch.num_rows() {
            text.clear();
            put_row(&mut text, &batch, row, true)?;
            let mut hash = Sha256::new();
            if is_ordered {
                hash.update((collected.digest.0 as u64).to_le_bytes());
            }
            hash.update(text.as_bytes());
            let hash: [u8; 32] = hash.finalize().into();
            let (first, _) = hash.split_first_chunk::<16>().unwrap_or((&[0; 16], &[]));
            collected.digest.0 += 1;
            collected.digest.1 = collected.digest.1.wrapping_add(u128::from_le_bytes(*first));
            if collected.digest.0.is_multiple_of(ROWS_AT_A_TIME) {
                tokio::task::yield_now().await;
            }
        }
        collected.batches.push(batch);
    }
    Ok(collected)
}

fn too_large() -> QueryError {
    let text = format!("the result of a subscription has more than {ROWS_MAX} rows or {} MiB", BYTES_MAX >> 20);
    QueryError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, text)
        .with_hint("Add LIMIT, aggregate by windows of time, or follow the rows themselves, without an order.")
}
