//! Notifications of one client: collects the samples due in a cycle into stamps, and stamps into packets.
//!
//! | offset | size | field of a packet's data |
//! |---|---|---|
//! | 0 | 4 | bytes that follow |
//! | 4 | 4 | stamps |
//! | 8 | 8 | time of a cycle, 100 ns since 1601 |
//! | 16 | 4 | samples of that cycle |
//! | 20 | 4, 4 | handle, bytes; then the bytes, the next sample, and after the last one the next stamp |

use super::image::Snapshot;
use super::outbox::Outbox;
use super::report::Counts;
use super::wire::{ADS_COMMAND, Address, Header, command, error, group};

/// Bytes of stamps at which a packet is sent at the latest.
const PACKET: usize = 64 << 10;
/// Max bytes of the value of one notification.
const VALUE_MAX: u32 = 256 << 10;

/// Transmission modes cyclic and on change, in which the server, not the client, keeps time.
const CYCLIC: u32 = 3;
const ON_CHANGE: u32 = 4;

/// Target of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Watched {
    /// Index group: memory, version of the symbols, or state.
    pub(crate) group: u32,
    pub(crate) offset: u32,
    pub(crate) length: u32,
    /// Version of its symbols, if it was requested by a symbol's handle.
    pub(crate) version: Option<u8>,
}

/// Transmission attributes of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) mode: u32,
    pub(crate) max_delay: u32,
    pub(crate) cycle_time: u32,
}

#[derive(Debug)]
struct Notification {
    handle: u32,
    watched: Watched,
    on_change: bool,
    every: u64,
    delay: u64,
    due: u64,
    /// Value sent last, for notifications on change.
    last: Option<Vec<u8>>,
    /// Whether its symbol is gone: one sample without data was sent, and no more follow.
    dead: bool,
}

/// Notifications of one AMS address of a client, and stamps that are not sent yet.
#[derive(Debug)]
struct Subscriber {
    client: Address,
    plc: Address,
    notifications: Vec<Notification>,
    stamps: Vec<u8>,
    stamp_count: u32,
    sample_count: u64,
    /// Cycle in which the packet is sent.
    leaves: u64,
}

/// Notifications of one connection.
#[derive(Debug)]
pub(crate) struct Notifications {
    subscribers: Vec<Subscriber>,
    count: usize,
    limit: usize,
    last_handle: u32,
    /// Number of 100 ns units in one unit of a request's times.
    unit: u64,
}

impl Notifications {
    pub(crate) fn new(limit: usize, unit: u64) -> Self {
        Notifications { subscribers: Vec::new(), count: 0, limit, last_handle: 0, unit }
    }

    /// Adds a notification; its first sample is sent in the next cycle.
    ///
    /// # Errors
    /// An ADS error code: too many, too long or zero length, or an unsupported mode.
    pub(crate) fn add(&mut self, request: &Header, watched: Watched, attributes: Attributes) -> Result<u32, u32> {
        if self.count >= self.limit {
            return Err(error::NO_MORE_HANDLES);
        }
        // A sample without data means that its symbol is gone, so zero length is refused.
        if watched.length == 0 {
            return Err(error::SIZE);
        }
        if watched.length > VALUE_MAX {
            return Err(error::WATCH_SIZE);
        }
        let on_change = match attributes.mode {
            CYCLIC => false,
            ON_CHANGE => true,
            _ => return Err(error::TRANSMISSION_MODE),
        };
        // A cycle of the task is the shortest possible, and times in between are rounded up.
        let cycles = |time: u32| (u64::from(time) * self.unit).div_ceil(10_000);
        let (every, delay) = (cycles(attributes.cycle_time).max(1), cycles(attributes.max_delay));
        self.last_handle = self.last_handle.wrapping_add(1);
        let handle = self.last_handle;
        let notification = Notification { handle, watched, on_change, every, delay, due: 0, last: None, dead: false };
        let (client, plc) = (request.source, request.target);
        let index = self.subscribers.iter().position(|s| s.client == client && s.plc == plc).unwrap_or_else(|| {
            self.subscribers.push(Subscriber {
                client,
                plc,
                notifications: Vec::new(),
                stamps: Vec::new(),
                stamp_count: 0,
                sample_count: 0,
                leaves: u64::MAX,
            });
            self.subscribers.len() - 1
        });
        self.subscribers[index].notifications.push(notification);
        self.count += 1;
        Ok(handle)
    }

    /// Deletes a notification.
    ///
    /// # Errors
    /// An ADS error code: this address has no such handle, or its symbol is gone.
    pub(crate) fn delete(&mut self, request: &Header, handle: u32) -> Result<(), u32> {
        let of = self.subscribers.iter_mut().find(|s| s.client == request.source && s.plc == request.target);
        let of = of.ok_or(error::NOTIFICATION_HANDLE)?;
        let at = of.notifications.iter().position(|n| n.handle == handle).ok_or(error::NOTIFICATION_HANDLE)?;
        let ended = of.notifications.remove(at);
        self.count -= 1;
        if ended.dead { Err(error::NOTIFICATION_HANDLE) } else { Ok(()) }
    }

    /// Collects what is due in a cycle, and passes packets that are due to the outbox.
    pub(crate) fn collect(&mut self, snapshot: &Snapshot, outbox: &Outbox, counts: &Counts) {
        for subscriber in &mut self.subscribers {
            subscriber.collect(snapshot, outbox, counts);
        }
        self.subscribers.retain(|s| !s.notifications.is_empty() || s.stamp_count > 0);
    }
}

impl Subscriber {
    fn collect(&mut self, snapshot: &Snapshot, outbox: &Outbox, counts: &Counts) {
        let tick = snapshot.tick;
        let head = self.stamps.len();
        self.stamps.extend_from_slice(&snapshot.file_time.to_le_bytes());
        self.stamps.extend_from_slice(&[0; 4]);
        let mut samples = 0u32;
        let mut gone = Vec::new();
        for notification in self.notifications.iter_mut().filter(|n| n.due <= tick && !n.dead) {
            // The first sample is sent at once, whatever the cycle of the notification.
            notification.due = tick + notification.every;
            let at = self.stamps.len();
            let Watched { group, offset, length, version } = notification.watched;
            self.stamps.extend_from_slice(&notification.handle.to_le_bytes());
            self.stamps.extend_from_slice(&[0; 4]);
            let old = version.is_some_and(|v| v != snapshot.table.version);
            if old || snapshot.value(group, offset, length, &mut self.stamps).is_err() {
                notification.dead = true;
                gone.push(notification.handle);
                self.stamps.truncate(at);
                continue;
            }
            let value = &self.stamps[at + 8..];
            if notification.on_change {
                if notification.last.as_deref() == Some(value) {
                    self.stamps.truncate(at);
                    continue;
                }
                let last = notification.last.get_or_insert_default();
                last.clear();
                last.extend_from_slice(value);
            }
            let length = value.len() as u32;
            self.stamps[at + 4..at + 8].copy_from_slice(&length.to_le_bytes());
            samples += 1;
            self.leaves = self.leaves.min(tick + notification.delay);
        }
        if samples == 0 {
            self.stamps.truncate(head);
        } else {
            self.stamps[head + 8..head + 12].copy_from_slice(&samples.to_le_bytes());
            self.stamp_count += 1;
            self.sample_count += u64::from(samples);
        }
        let full = self.leaves <= tick || self.stamps.len() >= PACKET || !gone.is_empty();
        if self.stamp_count > 0 && full {
            self.send(outbox, counts);
        }
        // Use a separate packet: Beckhoff's library skips the rest of a packet after a sample of another size.
        for handle in gone {
            self.stamps.extend_from_slice(&snapshot.file_time.to_le_bytes());
            for field in [1, handle, 0] {
                self.stamps.extend_from_slice(&u32::to_le_bytes(field));
            }
            (self.stamp_count, self.sample_count) = (1, 1);
            self.send(outbox, counts);
        }
    }

    fn send(&mut self, outbox: &Outbox, counts: &Counts) {
        let header = Header {
            target: self.client,
            source: self.plc,
            command: command::NOTIFICATION,
            flags: ADS_COMMAND,
            data_length: 0,
            error: 0,
            invoke_id: 0,
        };
        let mut head = Vec::with_capacity(64);
        header.write(8 + self.stamps.len(), &mut head);
        head.extend_from_slice(&(4 + self.stamps.len() as u32).to_le_bytes());
        head.extend_from_slice(&self.stamp_count.to_le_bytes());
        outbox.notify(&head, &self.stamps, u64::from(self.stamp_count), self.sample_count, counts);
        self.stamps.clear();
        (self.stamp_count, self.sample_count, self.leaves) = (0, 0, u64::MAX);
    }
}

/// Returns whether notifications can be requested for a group.
pub(crate) fn can_watch(group: u32) -> bool {
    matches!(group, group::DATA | group::MEMORY | group::MEMORY_BIT | group::SYMBOL_VERSION | group::DEVICE_DATA)
}
