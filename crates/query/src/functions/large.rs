//! Limits the concurrency of calls whose results may be large, and counts their results as query memory.
//!
//! A function occupies its thread until it finishes, and no operator has counted its result by then. Such calls
//! therefore wait for each other, which leaves processors to cheap queries. A result is counted from before it is made
//! until its last owner drops it.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use datafusion::arrow::array::{Array, ArrayRef, make_array};
use datafusion::arrow::buffer::Buffer;
use datafusion::error::{DataFusionError, Result};
use parking_lot::{Condvar, Mutex};

use crate::error::{QueryError, sqlstate};
use crate::running::memory::{Share, SharedMemory};
use crate::running::runtime::apart;
use crate::running::stopped::Stopped;

/// Minimum size of a large result, in bytes.
pub(crate) const LARGE_BYTES: usize = 1 << 20;

/// Interval at which a waiting call checks whether its statement was stopped.
const LOOK: Duration = Duration::from_millis(50);

/// Large calls of an engine.
#[derive(Clone, Debug)]
pub(crate) struct LargeCalls(Arc<LargeState>);

#[derive(Debug)]
struct LargeState {
    free: Mutex<usize>,
    ended: Condvar,
    memory: Arc<SharedMemory>,
    /// Max estimate of a call, in bytes for each of its rows.
    row_bytes_max: usize,
}

/// A running large call.
struct LargeCall<'a>(&'a LargeState);

impl LargeCalls {
    /// Allows this number of concurrent calls.
    pub(crate) fn new(at_a_time: usize, memory: Arc<SharedMemory>) -> LargeCalls {
        LargeCalls::with_row_bytes_max(at_a_time, memory, usize::MAX)
    }

    /// Also refuses calls whose estimate is above `row_bytes_max` per row, for callers that cannot be stopped.
    pub(crate) fn with_row_bytes_max(at_a_time: usize, memory: Arc<SharedMemory>, row_bytes_max: usize) -> LargeCalls {
        let free = Mutex::new(at_a_time.max(1));
        LargeCalls(Arc::new(LargeState { free, ended: Condvar::new(), memory, row_bytes_max }))
    }

    /// Returns the max estimate of a call with this number of rows, in bytes.
    pub(crate) fn bytes_max(&self, rows: usize) -> usize {
        self.0.row_bytes_max.saturating_mul(rows.max(1))
    }

    /// Makes a call of a statement once it may begin. Meanwhile its runtime thread is blocked, and another one takes
    /// its place.
    ///
    /// # Errors
    /// If the call fails, or the statement is stopped before it may begin.
    pub(crate) fn run<T>(&self, stopped: &Stopped, call: impl FnOnce() -> Result<T>) -> Result<T> {
        apart(|| {
            let _place = self.begin(stopped)?;
            call()
        })
    }

    fn begin(&self, stopped: &Stopped) -> Result<LargeCall<'_>> {
        let mut free = self.0.free.lock();
        while *free == 0 {
            stopped.check()?;
            self.0.ended.wait_for(&mut free, LOOK);
        }
        *free -= 1;
        Ok(LargeCall(&self.0))
    }

    /// Returns an empty memory account for the result of a function.
    pub(crate) fn room<'a>(&self, name: &'a str) -> Room<'a> {
        Room { what: "the result", name, share: Share::new(self.0.memory.clone(), 0) }
    }

    /// Returns an empty memory account for the patterns that a function compiles. A few patterns are free.
    pub(crate) fn room_of_patterns<'a>(&self, name: &'a str) -> Room<'a> {
        Room { what: "the patterns", name, share: Share::new(self.0.memory.clone(), LARGE_BYTES) }
    }
}

/// Memory of a call's result, or of its intermediate data.
pub(crate) struct Room<'a> {
    what: &'static str,
    name: &'a str,
    share: Share,
}

impl Room<'_> {
    /// Resizes it to a number of bytes.
    ///
    /// # Errors
    /// If all queries together hold too much memory.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<()> {
        if self.share.try_resize(bytes) {
            return Ok(());
        }
        let Room { what, name, .. } = self;
        let text = format!("out of memory: {what} of {name}: {bytes} bytes, and all queries together hold too much");
        Err(QueryError::new(sqlstate::OUT_OF_MEMORY, text).into_datafusion())
    }

    /// Counts a large result for as long as any part of it lives.
    ///
    /// # Errors
    /// If all queries together hold too much memory.
    pub(crate) fn keep(mut self, result: ArrayRef) -> Result<ArrayRef> {
        let bytes = result.get_buffer_memory_size();
        if bytes < LARGE_BYTES {
            return Ok(result);
        }
        self.resize(bytes)?;
        let data = result.to_data();
        let mut buffers = data.buffers().to_vec();
        let Some(largest) = buffers.iter_mut().max_by_key(|buffer| buffer.len()) else { return Ok(result) };
        *largest = Buffer::from(Bytes::from_owner(Counted { buffer: largest.clone(), _share: self.share }));
        Ok(make_array(data.into_builder().buffers(buffers).build().map_err(DataFusionError::from)?))
    }
}

/// Equal for calls of the same engine, because functions are compared.
impl PartialEq for LargeCalls {
    fn eq(&self, other: &LargeCalls) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for LargeCalls {}

impl Hash for LargeCalls {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

impl Drop for LargeCall<'_> {
    fn drop(&mut self) {
        *self.0.free.lock() += 1;
        self.0.ended.notify_one();
    }
}

/// Bytes of a result, with their share of the memory.
struct Counted {
    buffer: Buffer,
    _share: Share,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use datafusion::arrow::array::{AsArray, Int64Array, StringArray};

    use super::*;

    #[test]
    fn a_large_result_is_counted_as_long_as_a_part_of_it_lives() {
        let texts = || Arc::new(StringArray::from(vec!["x".repeat(3 << 20), "yes".into()])) as ArrayRef;
        let numbers = Arc::new(Int64Array::from(vec![1; 300_000])) as ArrayRef;
        let most = texts().get_buffer_memory_size() + numbers.get_buffer_memory_size();
        let memory = SharedMemory::new(most);
        let calls = LargeCalls::new(1, memory.clone());
        let small = calls.room("f").keep(Arc::new(Int64Array::from(vec![1; 100]))).unwrap();
        let one = calls.room("f").keep(texts()).unwrap();
        assert_eq!(one.as_string::<i32>().value(1), "yes");
        let part = one.slice(1, 1);
        drop((small, one));
        assert_eq!(calls.room("f").keep(numbers.clone()).unwrap().to_data(), numbers.to_data());
        let refused = calls.room("f").keep(texts()).unwrap_err().to_string();
        assert!(refused.contains("out of memory: the result of f"), "{refused}");
        drop(part);
        assert!(Share::new(memory, 0).try_resize(most));
    }

    #[test]
    fn large_calls_wait_for_each_other() {
        let calls = LargeCalls::new(2, SharedMemory::new(1));
        let under_way = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let call = || {
                            assert!(under_way.fetch_add(1, Ordering::SeqCst) < 2);
                            under_way.fetch_sub(1, Ordering::SeqCst);
                            Ok(())
                        };
                        calls.run(&Stopped::default(), call).unwrap();
                    }
                });
            }
        });
        assert_eq!(*calls.0.free.lock(), 2);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn large_calls_leave_threads_to_others() {
        let calls = LargeCalls::new(1, SharedMemory::new(1));
        let mut under_way = Vec::new();
        let mut ends = Vec::new();
        for _ in 0..4 {
            let (end, ended) = std::sync::mpsc::channel::<()>();
            let calls = calls.clone();
            under_way.push(tokio::spawn(async move { calls.run(&Stopped::default(), || Ok(ended.recv().is_err())) }));
            ends.push(end);
        }
        for _ in 0..100 {
            assert_eq!(tokio::spawn(async { 7 }).await.unwrap(), 7);
        }
        drop(ends);
        for call in under_way {
            assert!(call.await.unwrap().unwrap());
        }
    }

    #[test]
    fn a_call_of_a_statement_that_is_over_waits_no_longer() {
        let calls = LargeCalls::new(1, SharedMemory::new(1));
        let stopped = Stopped::default();
        let error = calls.run(&Stopped::default(), || {
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| calls.run(&stopped, || Ok(())));
                stopped.stop();
                Ok(waits.join().unwrap().unwrap_err().to_string())
            })
        });
        assert!(error.unwrap().contains("cancel"));
        calls.run(&Stopped::default(), || Ok(())).unwrap();
    }
}
