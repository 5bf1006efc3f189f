//! Work of one step of a reader, done by several threads.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;

use crate::error::QueryError;

/// Maximum threads of a step.
const THREADS_MAX: usize = 4;

/// Returns the threads that a step can use.
pub(crate) fn threads() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX)
}

/// Does the work of each item, on several threads if there are several items. Results are in the order of the items.
///
/// # Errors
/// The first error of the work.
pub(crate) fn on_threads<I: Send, T: Send>(
    items: impl IntoIterator<Item = I>,
    work: impl Fn(I) -> Result<T, QueryError> + Sync,
) -> Result<Vec<T>, QueryError> {
    let items: Vec<Mutex<Option<I>>> = items.into_iter().map(|item| Mutex::new(Some(item))).collect();
    let results: Vec<Mutex<Option<Result<T, QueryError>>>> = items.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let run = || {
        while let Some((item, result)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            items.get(at).zip(results.get(at))
        } {
            if let Some(item) = item.lock().take() {
                *result.lock() = Some(work(item));
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads().min(items.len()) {
            // Without another thread, this one does all.
            drop(thread::Builder::new().name("sql-part".to_owned()).spawn_scoped(scope, run));
        }
        run();
    });
    // No item is left without a result.
    results.into_iter().filter_map(Mutex::into_inner).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::sqlstate;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        for count in [0, 1, 2, 7, 100] {
            let found = on_threads(0..count, |item| Ok(item * 2)).unwrap();
            assert!(found.into_iter().eq((0..count).map(|item| item * 2)));
        }
        let failed = on_threads(0..10, |item| match item {
            5.. => Err(QueryError::new(sqlstate::DATA_EXCEPTION, format!("item {item}"))),
            item => Ok(item),
        });
        assert_eq!(failed.unwrap_err().message, "item 5");
    }
}
