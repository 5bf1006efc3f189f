//! Scans: batches of rows.

use std::ffi::c_int;

use store::{Batch, ChannelIndex, Scan, Scanner, StreamId};

use crate::fault::{Code, Fault, guard};
use crate::pointer;
use crate::store::StrongbackStore;
use crate::value::StrongbackValue;

/// `strongback_scan`.
pub struct StrongbackScan {
    scanner: Scanner,
    batch: Option<Batch>,
    times: Vec<i64>,
}

/// `strongback_batch`.
#[repr(C)]
pub struct StrongbackBatch {
    rows: usize,
    columns: usize,
    time: *const i64,
    row: *const u64,
}

impl StrongbackScan {
    /// A column of the newest batch, and its rows.
    fn column(&self, column: usize) -> Result<(&store::Column, usize), Fault> {
        let batch = self.batch.as_ref();
        let batch = batch.ok_or_else(|| Fault::new(Code::Argument, "no batch: strongback_scan_next first"))?;
        let found = batch.columns.get(column);
        let found =
            found.ok_or_else(|| Fault::new(Code::Argument, format!("column {column} of {}", batch.columns.len())))?;
        Ok((found, batch.len()))
    }
}

/// See the header.
///
/// # Safety
/// `store` came from `strongback_open`; `channels` points at `count` indices, `scan` at room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongback_scan_new(
    store: *const StrongbackStore,
    stream: u32,
    from: i64,
    to: i64,
    channels: *const u16,
    count: usize,
    scan: *mut *mut StrongbackScan,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises. Before anything is made: a null pointer would leak it.
        unsafe { pointer::write(scan, std::ptr::null_mut(), "scan") }?;
        // SAFETY: as the caller promises.
        let store = unsafe { pointer::shared(store, "store") }?;
        // SAFETY: as the caller promises.
        let channels = unsafe { pointer::slice(channels, count, "channels") }?;
        for channel in channels {
            store.channel(stream, *channel)?;
        }
        store.stream(stream)?;
        let columns = channels.iter().map(|channel| ChannelIndex(*channel)).collect();
        let scanner = store.store.view().scan(Scan { time: from..to, ..Scan::all(StreamId(stream), columns) });
        let made = Box::new(StrongbackScan { scanner, batch: None, times: Vec::new() });
        // SAFETY: as the caller promises.
        unsafe { pointer::write(scan, Box::into_raw(made), "scan") }?;
        Ok(Code::Ok)
    })
}

/// See the header.
///
/// # Safety
/// `scan` came from [`strongback_scan_new`]; `batch` points at room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongback_scan_next(scan: *mut StrongbackScan, batch: *mut StrongbackBatch) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let scan = unsafe { pointer::exclusive(scan, "scan") }?;
        scan.batch = None;
        let Some(found) = scan.scanner.next().transpose()? else { return Ok(Code::End) };
        scan.times = found.times();
        let rows = found.len();
        let found = scan.batch.insert(found);
        let told =
            StrongbackBatch { rows, columns: found.columns.len(), time: scan.times.as_ptr(), row: found.rows.as_ptr() };
        // SAFETY: as the caller promises.
        unsafe { pointer::write(batch, told, "batch") }?;
        Ok(Code::Ok)
    })
}

/// See the header.
///
/// # Safety
/// `scan` came from [`strongback_scan_new`]; `value` points at room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongback_scan_cell(
    scan: *const StrongbackScan,
    column: usize,
    row: usize,
    value: *mut StrongbackValue,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let (found, rows) = unsafe { pointer::shared(scan, "scan") }?.column(column)?;
        if row >= rows {
            return Err(Fault::new(Code::Argument, format!("row {row} of {rows}")));
        }
        // SAFETY: as the caller promises.
        unsafe { pointer::write(value, StrongbackValue::of(found.values.channel_type(), found.cell(row)), "value") }?;
        Ok(Code::Ok)
    })
}

/// See the header.
///
/// # Safety
/// `scan` came from [`strongback_scan_new`]; `out` points at room for `room` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongback_scan_f64(
    scan: *const StrongbackScan,
    column: usize,
    out: *mut f64,
    room: usize,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let (found, rows) = unsafe { pointer::shared(scan, "scan") }?.column(column)?;
        if room < rows {
            return Err(Fault::new(Code::Argument, format!("room for {room} of {rows} rows")));
        }
        if out.is_null() {
            return Err(Fault::new(Code::Argument, "out is null"));
        }
        for row in 0..rows {
            let value = found.cell(row).ok().and_then(|value| value.as_f64()).unwrap_or(f64::NAN);
            // SAFETY: not null, and `row` is below `room`, which the caller promises.
            unsafe { out.add(row).write(value) };
        }
        Ok(Code::Ok)
    })
}

/// See the header.
///
/// # Safety
/// `scan` is null, or came from [`strongback_scan_new`], and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strongback_scan_free(scan: *mut StrongbackScan) {
    guard(|| {
        if !scan.is_null() {
            // SAFETY: it came from Box::into_raw, and by the caller's promise nobody has it any more.
            drop(unsafe { Box::from_raw(scan) });
        }
        Ok(Code::Ok)
    });
}
