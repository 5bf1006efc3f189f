//! The HTTP connections: how many there are, what each waits for, and which one is ended if there is no room.
//!
//! ```text
//!  accept ─> admit ─┬─ room ───────────────────────────────> Place ─> Socket ─> requests
//!                   ├─ none: the one whose client was waited for longest goes, that of the same client first
//!                   └─ none waits for its client: refused, and counted
//! ```
//! Ending a connection that waits for its client (idle, within a header or a body, or with an unread answer) harms only
//! that client. A connection that works is never ended for another. A new connection thus finds a place however many
//! idle ones there are.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::process::budget::client_of;

/// Max time between two requests.
const IDLE_PATIENCE: Duration = Duration::from_secs(75);
/// Max time from the first byte of a header to its last.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// Max time in which a client takes no byte of its answer.
const STALL_PATIENCE: Duration = Duration::from_secs(30);
/// Number of places reserved for clients of this machine.
const LOCAL_PLACES: usize = 16;
/// Max number of candidates found in one search; searching all connections for each would take too long.
const FOUND_MAX: usize = 64;

/// Phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    /// Waiting for a request.
    Idle = 0,
    /// Receiving a header.
    Head = 1,
    /// Waiting for the body of a request.
    Body = 2,
    /// Working on a request.
    Working = 3,
    /// Sending an answer.
    Answering = 4,
    /// Speaking another protocol, with rules of its own.
    Upgraded = 5,
}

impl Phase {
    fn of(byte: u8) -> Phase {
        match byte {
            0 => Phase::Idle,
            1 => Phase::Head,
            2 => Phase::Body,
            3 => Phase::Working,
            4 => Phase::Answering,
            _ => Phase::Upgraded,
        }
    }
}

/// The connection a request came by.
#[derive(Debug)]
pub struct Connection {
    number: u64,
    address: SocketAddr,
    client: IpAddr,
    started: Instant,
    phase: AtomicU8,
    /// Time at which the phase began or the client last sent a body byte, milliseconds after the start of the server.
    since_ms: AtomicU64,
    /// Time at which the socket stopped taking bytes, milliseconds after the start of the server; 0 while it takes
    /// them.
    stalled_ms: AtomicU64,
    /// Bytes received.
    received_bytes: AtomicU64,
    /// Whether it must end.
    is_abandoned: AtomicBool,
    abandoned: Notify,
}

impl Connection {
    /// Returns the address of the client.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the connection at once, dropping unsent bytes.
    pub fn abandon(&self) {
        self.is_abandoned.store(true, Relaxed);
        self.abandoned.notify_one();
    }

    /// Waits until the connection must end.
    pub(crate) async fn ended(&self) {
        while !self.is_abandoned.load(Relaxed) {
            self.abandoned.notified().await;
        }
    }

    /// Returns how long the client has taken no byte of pending data.
    pub fn stalled(&self) -> Duration {
        match self.stalled_ms.load(Relaxed) {
            0 => Duration::ZERO,
            since => Duration::from_millis(self.now_ms().saturating_sub(since)),
        }
    }

    /// Returns the bytes received so far.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Relaxed)
    }

    /// Counts received bytes.
    pub(crate) fn received(&self, bytes: usize) {
        self.received_bytes.fetch_add(bytes as u64, Relaxed);
        match self.phase() {
            Phase::Idle => self.enter(Phase::Head),
            Phase::Body => self.since_ms.store(self.now_ms(), Relaxed),
            _ => {}
        }
    }

    /// Records whether the socket took the bytes written.
    pub(crate) fn wrote(&self, took: bool) {
        match (took, self.stalled_ms.load(Relaxed)) {
            (true, 0) => {}
            (true, _) => self.stalled_ms.store(0, Relaxed),
            (false, 0) => self.stalled_ms.store(self.now_ms().max(1), Relaxed),
            (false, _) => {}
        }
    }

    pub(crate) fn works(&self) {
        self.enter(Phase::Working);
    }

    pub(crate) fn waits_for_body(&self) {
        if self.phase() != Phase::Body {
            self.enter(Phase::Body);
        }
    }

    pub(crate) fn answers(&self) {
        self.enter(Phase::Answering);
    }

    pub(crate) fn answered(&self) {
        if self.phase() != Phase::Upgraded {
            self.enter(Phase::Idle);
        }
    }

    pub(crate) fn upgrades(&self) {
        self.enter(Phase::Upgraded);
    }

    fn phase(&self) -> Phase {
        Phase::of(self.phase.load(Relaxed))
    }

    fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
        self.since_ms.store(self.now_ms(), Relaxed);
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns since when its client has been waited for, milliseconds after the start of the server, or `None`.
    fn waits_since_ms(&self) -> Option<u64> {
        match self.phase() {
            Phase::Upgraded => None,
            Phase::Working | Phase::Answering => Some(self.stalled_ms.load(Relaxed)).filter(|since| *since > 0),
            Phase::Idle | Phase::Head | Phase::Body => Some(self.since_ms.load(Relaxed)),
        }
    }

    /// Returns how long its client has been waited for, or `None` if it is not.
    fn waited(&self) -> Option<Duration> {
        self.waits_since_ms().map(|since| Duration::from_millis(self.now_ms().saturating_sub(since)))
    }

    /// Returns the reason to end it if its client was waited for too long.
    fn overdue(&self) -> Option<EndReason> {
        let waited = self.waited()?;
        match self.phase() {
            Phase::Idle if waited > IDLE_PATIENCE => Some(EndReason::Idle),
            Phase::Head if waited > HEAD_PATIENCE => Some(EndReason::Head),
            Phase::Working | Phase::Answering if waited > STALL_PATIENCE => Some(EndReason::Unread),
            // A body has a time limit of its own, which is answered.
            _ => None,
        }
    }
}

/// Reason why the server ended or refused a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum EndReason {
    /// No request for too long.
    Idle = 0,
    /// An unfinished header.
    Head = 1,
    /// An unread answer.
    Unread = 2,
    /// Eviction by a newer connection.
    Evicted = 3,
    /// Refusal because there was no place.
    Refused = 4,
    /// Refusal because the system had no descriptor.
    NoDescriptor = 5,
    /// First bytes that are no HTTP request.
    NotHttp = 6,
}

impl EndReason {
    /// All reasons, with their names in metrics.
    pub const ALL: [(EndReason, &str); 7] = [
        (EndReason::Idle, "idle"),
        (EndReason::Head, "header"),
        (EndReason::Unread, "unread"),
        (EndReason::Evicted, "evicted"),
        (EndReason::Refused, "refused"),
        (EndReason::NoDescriptor, "no_descriptor"),
        (EndReason::NotHttp, "not_http"),
    ];
}

/// All HTTP connections.
#[derive(Debug)]
pub struct Connections {
    max: usize,
    max_per_client: usize,
    started: Instant,
    open: Mutex<OpenConnection>,
    ended: [AtomicU64; EndReason::ALL.len()],
    /// Notified when a connection has gone.
    left: Notify,
}

#[derive(Debug, Default)]
struct OpenConnection {
    next: u64,
    by_number: HashMap<u64, Arc<Connection>>,
    by_client: HashMap<IpAddr, usize>,
    /// Cache of the connections whose clients were waited for longest at the last search, by client or for all, with
    /// the time since when. The longest wait is last.
    longest: HashMap<Option<IpAddr>, Vec<(u64, Arc<Connection>)>>,
}

impl OpenConnection {
    fn remove(&mut self, connection: &Connection) -> bool {
        if self.by_number.remove(&connection.number).is_none() {
            return false;
        }
        if let Some(mine) = self.by_client.get_mut(&connection.client) {
            *mine -= 1;
            if *mine == 0 {
                self.by_client.remove(&connection.client);
                self.longest.remove(&Some(connection.client));
            }
        }
        true
    }

    /// Returns the connection, of one client or of all, whose client was waited for longest.
    fn longest_waiting(&mut self, client: Option<IpAddr>) -> Option<Arc<Connection>> {
        // Connections that start to wait later have waited less, so those found once stay in order.
        let mut found = self.longest.remove(&client).unwrap_or_default();
        while found.pop_if(|(since_ms, connection)| !self.still_waits(connection, *since_ms)).is_some() {}
        if found.is_empty() {
            found = self.waiting(client);
        }
        let (_, longest) = found.pop()?;
        if !found.is_empty() {
            self.longest.insert(client, found);
        }
        Some(longest)
    }

    fn still_waits(&self, connection: &Connection, since_ms: u64) -> bool {
        connection.waits_since_ms() == Some(since_ms) && self.by_number.contains_key(&connection.number)
    }

    /// Returns the connections whose clients were waited for longest, with the time since when; the longest wait is
    /// last.
    fn waiting(&self, client: Option<IpAddr>) -> Vec<(u64, Arc<Connection>)> {
        let of = |connection: &&Arc<Connection>| client.is_none_or(|client| connection.client == client);
        let waits = |connection: &Arc<Connection>| Some((connection.waits_since_ms()?, connection.clone()));
        let mut found: Vec<_> = self.by_number.values().filter(of).filter_map(waits).collect();
        // Among equal waits the first connection is last.
        found.sort_unstable_by_key(|(since_ms, connection)| Reverse((*since_ms, connection.number)));
        found.split_off(found.len().saturating_sub(FOUND_MAX))
    }
}

/// A connection slot, freed when dropped.
#[derive(Debug)]
pub struct ConnectionPlace {
    connections: Arc<Connections>,
    connection: Arc<Connection>,
}

impl ConnectionPlace {
    /// Returns the connection in the slot.
    pub fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.connections.open.lock().remove(&self.connection);
        self.connections.left.notify_waiters();
    }
}

impl Connections {
    /// Makes slots for `max` connections, of which one client may use `max_per_client`.
    pub fn new(max: usize, max_per_client: usize) -> Arc<Connections> {
        Connections::since(Instant::now(), max, max_per_client)
    }

    /// Makes slots as [`Connections::new`] does, with times counted from `started`.
    fn since(started: Instant, max: usize, max_per_client: usize) -> Arc<Connections> {
        Arc::new(Connections {
            max: max.max(1),
            max_per_client: max_per_client.clamp(1, max.max(1)),
            started,
            open: Mutex::default(),
            ended: Default::default(),
            left: Notify::new(),
        })
    }

    /// Gives a new connection a slot, if necessary by evicting one that waits for its client. Returns `None` if
    /// refused.
    pub fn admit(self: &Arc<Self>, address: SocketAddr) -> Option<ConnectionPlace> {
        let client = client_of(address.ip());
        let max = match client.is_loopback() {
            true => self.max,
            false => self.max.saturating_sub(LOCAL_PLACES.min(self.max / 8)),
        };
        let mut open = self.open.lock();
        if open.by_client.get(&client).is_some_and(|mine| *mine >= self.max_per_client)
            && !self.evict(&mut open, Some(client))
        {
            self.count(EndReason::Refused);
            return None;
        }
        if open.by_number.len() >= max && !self.evict(&mut open, Some(client)) && !self.evict(&mut open, None) {
            self.count(EndReason::Refused);
            return None;
        }
        let number = open.next;
        open.next += 1;
        let connection = Arc::new(Connection {
            number,
            address,
            client,
            started: self.started,
            phase: AtomicU8::new(Phase::Idle as u8),
            since_ms: AtomicU64::new(0),
            stalled_ms: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            is_abandoned: AtomicBool::new(false),
            abandoned: Notify::new(),
        });
        connection.enter(Phase::Idle);
        open.by_number.insert(number, connection.clone());
        *open.by_client.entry(client).or_default() += 1;
        Some(ConnectionPlace { connections: self.clone(), connection })
    }

    /// Ends the connection whose client was waited for longest and frees its slot. Returns whether there was one.
    fn evict(&self, open: &mut OpenConnection, client: Option<IpAddr>) -> bool {
        let Some(victim) = open.longest_waiting(client) else { return false };
        open.remove(&victim);
        victim.abandon();
        self.count(EndReason::Evicted);
        true
    }

    /// Ends up to `most` connections that wait for their clients, for lack of descriptors. Returns how many.
    pub fn shed(&self, most: usize) -> usize {
        let mut open = self.open.lock();
        (0..most).take_while(|_| self.evict(&mut open, None)).count()
    }

    /// Ends the connections whose clients were waited for too long.
    pub fn sweep(&self) {
        let open: Vec<Arc<Connection>> = self.open.lock().by_number.values().cloned().collect();
        for connection in open {
            if let Some(why) = connection.overdue() {
                self.count(why);
                connection.abandon();
            }
        }
    }

    /// Counts a connection that was ended or refused.
    pub fn count(&self, why: EndReason) {
        self.ended[why as usize].fetch_add(1, Relaxed);
    }

    /// Returns how many connections were ended or refused for this reason.
    pub fn ended(&self, why: EndReason) -> u64 {
        self.ended[why as usize].load(Relaxed)
    }

    /// Returns the number of connections.
    pub fn len(&self) -> usize {
        self.open.lock().by_number.len()
    }

    /// Returns whether there are no connections.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until no connections are left except upgraded ones.
    pub async fn all_left(&self) {
        loop {
            let mut left = std::pin::pin!(self.left.notified());
            left.as_mut().enable();
            if self.open.lock().by_number.values().all(|connection| connection.phase() == Phase::Upgraded) {
                return;
            }
            left.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        SocketAddr::new(text.parse().unwrap(), 1)
    }

    fn is_ended(place: &ConnectionPlace) -> bool {
        place.connection.is_abandoned.load(Relaxed)
    }

    #[test]
    fn a_new_connection_takes_the_place_of_the_one_that_waits_longest() {
        let connections = Connections::new(100, 3);
        let mut places: Vec<ConnectionPlace> =
            (0..3).map(|_| connections.admit(address("10.0.0.1")).unwrap()).collect();
        places[0].connection.works();
        let other = connections.admit(address("10.0.0.2")).unwrap();
        let fourth = connections.admit(address("10.0.0.1")).expect("one of its own goes");
        assert_eq!([0, 1, 2].map(|i| is_ended(&places[i])), [false, true, false], "the first that waits");
        assert!(!is_ended(&other) && !is_ended(&fourth));
        assert_eq!((connections.len(), connections.ended(EndReason::Evicted)), (4, 1));
        for place in &places[1..] {
            place.connection.works();
        }
        fourth.connection.works();
        assert!(connections.admit(address("10.0.0.1")).is_none(), "none of its own waits");
        assert_eq!(connections.ended(EndReason::Refused), 1);
        places.clear();
        drop((other, fourth));
        assert!(connections.is_empty() && connections.open.lock().by_client.is_empty());
    }

    #[test]
    fn those_found_at_once_go_in_order_unless_they_came_to_work() {
        let connections = Connections::new(1_000, 1_000);
        let places: Vec<ConnectionPlace> = (0..300).map(|_| connections.admit(address("10.0.0.1")).unwrap()).collect();
        for (i, place) in places.iter().enumerate() {
            place.connection.since_ms.store(i as u64 / 3, Relaxed);
        }
        let mut ended = Vec::new();
        let client = Some(IpAddr::from([10, 0, 0, 1]));
        for round in 0..20 {
            for i in 0..10 {
                assert!(connections.evict(&mut connections.open.lock(), [client, None][(round + i / 5) % 2]));
            }
            let new = (0..300).filter(|i| is_ended(&places[*i]) && !ended.contains(i)).collect::<Vec<_>>();
            let waiting = |i: &usize| !ended.contains(i) && i % 7 != 5;
            let first = (0..300).filter(waiting).take(10).collect::<Vec<_>>();
            match round {
                0 => assert_eq!(new, (0..10).collect::<Vec<_>>()),
                _ => assert_eq!(new, first, "round {round}"),
            }
            ended.extend(new);
            // From here on some are working.
            places.iter().skip(5).step_by(7).for_each(|place| place.connection.works());
        }
        assert_eq!(connections.len(), 100);
        drop(places);
        assert!(connections.open.lock().longest.keys().all(Option::is_none));
    }

    #[test]
    fn some_places_are_kept_for_this_machine() {
        let connections = Connections::new(16, 16);
        let work = |place: ConnectionPlace| {
            place.connection.works();
            place
        };
        let far: Vec<ConnectionPlace> =
            (0..20).filter_map(|_| connections.admit(address("10.0.0.1")).map(work)).collect();
        assert_eq!(far.len(), 14);
        let here: Vec<ConnectionPlace> =
            (0..20).filter_map(|_| connections.admit(address("127.0.0.1")).map(work)).collect();
        assert_eq!(here.len(), 2);
    }

    #[test]
    fn what_a_client_is_waited_for_is_known() {
        let connections = Connections::since(Instant::now() - Duration::from_secs(60), 16, 16);
        let place = connections.admit(address("10.0.0.1")).unwrap();
        let connection = place.connection();
        assert!(connection.waited().is_some(), "idle");
        connection.received(1);
        assert_eq!(connection.phase(), Phase::Head);
        connection.works();
        assert!(connection.waited().is_none());
        connection.waits_for_body();
        assert!(connection.waited().is_some());
        connection.answers();
        assert!(connection.waited().is_none());
        connection.wrote(false);
        connection.stalled_ms.store(1, Relaxed);
        assert!(connection.waited().is_some(), "an answer that is not read");
        assert_eq!(connection.overdue(), Some(EndReason::Unread));
        connection.wrote(true);
        assert!(connection.waited().is_none());
        connection.answered();
        assert_eq!(connection.phase(), Phase::Idle);
        connection.upgrades();
        assert!(connection.waited().is_none());
        assert_eq!(connections.shed(5), 0);
    }
}
