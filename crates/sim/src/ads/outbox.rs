//! Bounded queue of data to be written to a client. Notifications that find no room are dropped and counted, and a
//! client that does not read its replies is no longer served.

use std::io::Write;
use std::net::TcpStream;
use std::sync::{Condvar, Mutex};

use super::report::{Counts, add};
use super::server::lock;

/// Max waiting bytes before notifications are dropped and requests are no longer read: about a second of 1,000
/// samples in every cycle. The same amount again may be on its way into the socket.
const ROOM: usize = 4 << 20;

/// Waiting bytes, and how much of them is notifications.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    packets: u64,
    stamps: u64,
    samples: u64,
}

#[derive(Debug, Default)]
struct WaitingReply {
    bytes: Vec<u8>,
    load: Load,
    closed: bool,
}

/// Output queue of one client.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    waiting: Mutex<WaitingReply>,
    /// Signals that there is something to write, or the end.
    filled: Condvar,
    /// Signals that there is room again, or the end.
    emptied: Condvar,
}

impl Outbox {
    /// Waits until there is room for a reply. Returns `false` at the end.
    pub(crate) fn wait_for_room(&self) -> bool {
        let mut waiting = lock(&self.waiting);
        while waiting.bytes.len() >= ROOM && !waiting.closed {
            waiting = self.emptied.wait(waiting).unwrap_or_else(|e| e.into_inner());
        }
        !waiting.closed
    }

    /// Adds a reply.
    pub(crate) fn reply(&self, packet: &[u8]) {
        let mut waiting = lock(&self.waiting);
        if !waiting.closed {
            waiting.bytes.extend_from_slice(packet);
            self.filled.notify_one();
        }
    }

    /// Adds a packet of notifications, in two parts, or drops it.
    pub(crate) fn notify(&self, head: &[u8], data: &[u8], stamps: u64, samples: u64, counts: &Counts) {
        let mut waiting = lock(&self.waiting);
        if waiting.closed || waiting.bytes.len() + head.len() + data.len() > ROOM {
            add(&counts.samples_dropped, samples);
            return;
        }
        waiting.bytes.extend_from_slice(head);
        waiting.bytes.extend_from_slice(data);
        waiting.load.packets += 1;
        waiting.load.stamps += stamps;
        waiting.load.samples += samples;
        self.filled.notify_one();
    }

    /// Closes the queue; what waits is still written.
    pub(crate) fn close(&self) {
        lock(&self.waiting).closed = true;
        self.filled.notify_all();
        self.emptied.notify_all();
    }

    /// Writes queued data until the end, or until the client disconnects.
    pub(crate) fn drain(&self, mut to: &TcpStream, counts: &Counts) {
        let mut bytes = Vec::new();
        loop {
            let mut waiting = lock(&self.waiting);
            while waiting.bytes.is_empty() && !waiting.closed {
                waiting = self.filled.wait(waiting).unwrap_or_else(|e| e.into_inner());
            }
            if waiting.bytes.is_empty() {
                return;
            }
            bytes.clear();
            std::mem::swap(&mut bytes, &mut waiting.bytes);
            let load = std::mem::take(&mut waiting.load);
            drop(waiting);
            self.emptied.notify_all();
            if to.write_all(&bytes).is_err() {
                let mut waiting = lock(&self.waiting);
                waiting.closed = true;
                add(&counts.samples_dropped, load.samples + waiting.load.samples);
                *waiting = WaitingReply { closed: true, ..WaitingReply::default() };
                self.emptied.notify_all();
                return;
            }
            add(&counts.bytes_sent, bytes.len() as u64);
            add(&counts.notifications_sent, load.packets);
            add(&counts.stamps_sent, load.stamps);
            add(&counts.samples_sent, load.samples);
        }
    }
}
