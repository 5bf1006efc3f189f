//! Admits connections: those still starting, those authenticated, and penalties for wrong passwords.
//!
//! Connections that never authenticate keep no one out. If too many are starting, the oldest that has not sent its
//! startup message is dropped, once it had time to send it; until then the new one waits. An authenticated connection
//! takes a seat. Some seats are reserved for this machine, and no other machine gets more than half. If none is free,
//! the oldest connection that has never sent a request loses its seat.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Maximum connections that are starting.
const STARTING_MAX: usize = 256;
/// Minimum time for a connection to send its startup message.
const CHANCE: Duration = Duration::from_millis(100);
/// Interval between checks for room to start.
const LOOK: Duration = Duration::from_millis(5);
/// Delay after the first wrong password from an address. It doubles with each further one.
const PENALTY: Duration = Duration::from_millis(250);
/// Maximum delay.
const PENALTY_MAX: Duration = Duration::from_secs(4);
/// Time after which wrong passwords are forgotten.
const PENALTY_TIME: Duration = Duration::from_secs(60);
/// Maximum addresses tracked for wrong passwords.
const PENALTIES_MAX: usize = 1_024;

/// Connections of a listener.
pub(crate) struct Doors {
    seats_max: usize,
    starting: Arc<Mutex<Line>>,
    seated: Arc<Mutex<Line>>,
    wrong: Mutex<HashMap<IpAddr, (u32, Instant)>>,
}

/// Connections in order of arrival.
#[derive(Default)]
struct Line {
    next: u64,
    all: VecDeque<Standing>,
}

struct Standing {
    number: u64,
    peer: IpAddr,
    since: Instant,
    /// Whether it no longer has to leave for others.
    is_spared: bool,
    /// Sender that makes the connection leave when dropped.
    _stay: oneshot::Sender<()>,
}

impl Line {
    /// Returns the oldest connection that may have to leave for others and for which `fits` is true.
    fn oldest(&self, fits: impl Fn(IpAddr) -> bool) -> Option<usize> {
        self.all.iter().position(|standing| !standing.is_spared && fits(standing.peer))
    }
}

/// Adds a connection to a line.
fn enter(line: &Arc<Mutex<Line>>, locked: &mut Line, peer: IpAddr) -> Entry {
    let (stay, leave) = oneshot::channel();
    locked.next += 1;
    let number = locked.next;
    locked.all.push_back(Standing { number, peer, since: Instant::now(), is_spared: false, _stay: stay });
    Entry { place: DoorPlace { line: line.clone(), number, peer, is_spared: false }, leave }
}

/// An admitted connection.
pub(crate) struct Entry {
    pub(crate) place: DoorPlace,
    /// Receiver that completes when the connection must leave.
    pub(crate) leave: oneshot::Receiver<()>,
}

/// Place of a connection in a line, given up when dropped.
pub(crate) struct DoorPlace {
    line: Arc<Mutex<Line>>,
    number: u64,
    /// Address of the client.
    pub(crate) peer: IpAddr,
    is_spared: bool,
}

impl DoorPlace {
    /// Marks the connection as no longer having to leave for others. Returns `false` if it already had to leave.
    pub(crate) fn spare(&mut self) -> bool {
        if !self.is_spared {
            let mut line = self.line.lock();
            let standing = line.all.iter_mut().find(|standing| standing.number == self.number);
            self.is_spared = standing.map(|standing| standing.is_spared = true).is_some();
        }
        self.is_spared
    }
}

impl Drop for DoorPlace {
    fn drop(&mut self) {
        self.line.lock().all.retain(|standing| standing.number != self.number);
    }
}

impl Doors {
    pub(crate) fn new(seats_max: usize) -> Doors {
        Doors { seats_max, starting: Arc::default(), seated: Arc::default(), wrong: Mutex::default() }
    }

    /// Admits a connection to start once there is room. It is spared after its startup message.
    pub(crate) async fn start(&self, peer: IpAddr) -> Entry {
        loop {
            if let Some(entry) = self.start_at(peer, Instant::now()) {
                return entry;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Admits a connection at an instant. Returns `None` if those that are starting need more time.
    fn start_at(&self, peer: IpAddr, now: Instant) -> Option<Entry> {
        let mut line = self.starting.lock();
        if line.all.len() >= STARTING_MAX {
            let leaves = line.oldest(|_| true).unwrap_or(0);
            if now.saturating_duration_since(line.all[leaves].since) < CHANCE {
                return None;
            }
            line.all.remove(leaves);
        }
        Some(enter(&self.starting, &mut line, peer))
    }

    /// Takes a seat for a connection from an address, if there is one for it. It is spared after its first request.
    pub(crate) fn seat(&self, peer: IpAddr) -> Option<Entry> {
        let mut line = self.seated.lock();
        let own = line.all.iter().filter(|standing| standing.peer == peer).count();
        let (room, share) = if peer.is_loopback() {
            (self.seats_max, self.seats_max)
        } else {
            (self.seats_max.saturating_sub((self.seats_max / 10).max(1)), self.seats_max.div_ceil(2))
        };
        if own >= share || line.all.len() >= room {
            // One connection that leaves makes room for only one.
            if line.all.len() > room {
                return None;
            }
            let of_any = || if own < share { line.oldest(|_| true) } else { None };
            let leaves = line.oldest(|of| of == peer).or_else(of_any)?;
            line.all.remove(leaves);
        }
        Some(enter(&self.seated, &mut line, peer))
    }

    /// Returns how long a client waits for the reply that its password is wrong.
    pub(crate) fn penalty(&self, peer: IpAddr) -> Duration {
        let (mut wrong, now) = (self.wrong.lock(), Instant::now());
        if wrong.len() >= PENALTIES_MAX {
            wrong.retain(|_, (_, last)| now.duration_since(*last) < PENALTY_TIME);
        }
        if wrong.len() >= PENALTIES_MAX && !wrong.contains_key(&peer) {
            return PENALTY_MAX;
        }
        let (count, last) = wrong.entry(peer).or_insert((0, now));
        if now.duration_since(*last) >= PENALTY_TIME {
            *count = 0;
        }
        let penalty = PENALTY.saturating_mul(1 << (*count).min(8)).min(PENALTY_MAX);
        *count += 1;
        *last = now;
        penalty
    }

    /// Forgets the wrong passwords from an address.
    pub(crate) fn forgive(&self, peer: IpAddr) {
        self.wrong.lock().remove(&peer);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn away(last: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, last))
    }

    fn has_left(entry: &mut Entry) -> bool {
        matches!(entry.leave.try_recv(), Err(oneshot::error::TryRecvError::Closed))
    }

    #[test]
    fn of_those_that_start_the_oldest_leaves_that_has_not_said_who_it_is() {
        let doors = Doors::new(10);
        let start = |after: Duration| doors.start_at(away(1), Instant::now() + after);
        let mut heard = start(Duration::ZERO).unwrap();
        assert!(heard.place.spare());
        let mut all: Vec<Entry> = (1..STARTING_MAX).map(|_| start(Duration::ZERO).unwrap()).collect();
        assert!(start(Duration::ZERO).is_none(), "none had the time to say who it is");
        all.extend((0..3).map(|_| start(CHANCE).unwrap()));
        let left: Vec<bool> = all.iter_mut().map(has_left).collect();
        assert!(left[..3].iter().all(|left| *left) && !left[3..].contains(&true));
        assert!(!has_left(&mut heard));
        drop((all, heard));
        assert!(doors.starting.lock().all.is_empty());
    }

    fn seats(doors: &Doors, peer: IpAddr) -> Vec<Entry> {
        let asks = |mut seat: Entry| seat.place.spare().then_some(seat);
        (0..20).map_while(|_| doors.seat(peer).and_then(asks)).collect()
    }

    #[test]
    fn one_machine_leaves_seats_for_others_and_all_leave_some_for_this_one() {
        let doors = Doors::new(10);
        let one = seats(&doors, away(1));
        assert_eq!(one.len(), 5);
        let other = seats(&doors, away(2));
        assert_eq!(other.len(), 4);
        let here = seats(&doors, HERE);
        assert_eq!(here.len(), 1);
        drop((one, other, here));
        assert!(doors.seated.lock().all.is_empty());
    }

    #[test]
    fn those_that_never_asked_leave_their_seats_to_others() {
        let doors = Doors::new(10);
        let mut asks = doors.seat(HERE).unwrap();
        assert!(asks.place.spare());
        let mut silent: Vec<Entry> = (0..9).map(|_| doors.seat(HERE).unwrap()).collect();
        let newer: Vec<Entry> = (0..3).map(|_| doors.seat(HERE).unwrap()).collect();
        let left: Vec<bool> = silent.iter_mut().map(has_left).collect();
        assert!(left[..3].iter().all(|left| *left) && !left[3..].contains(&true));
        assert!(!silent[0].place.spare() && silent[3].place.spare() && !has_left(&mut asks));
        drop(newer);
        // For another machine, its own connections leave first, and it never gets more than its share.
        let doors = Doors::new(10);
        let mut other = doors.seat(away(2)).unwrap();
        let mut one: Vec<Entry> = (0..6).map(|_| doors.seat(away(1)).unwrap()).collect();
        assert!(has_left(&mut one[0]) && !has_left(&mut one[1]) && !has_left(&mut other));
        assert_eq!(doors.seated.lock().all.len(), 6);
        // Seats reserved for this machine stay reserved.
        let doors = Doors::new(10);
        let here = seats(&doors, HERE);
        assert_eq!(here.len(), 10);
        assert!(doors.seat(away(1)).is_none());
    }

    #[test]
    fn each_wrong_password_takes_longer() {
        let doors = Doors::new(10);
        let waits: Vec<Duration> = (0..8).map(|_| doors.penalty(away(1))).collect();
        assert!(waits.is_sorted() && waits[1] == PENALTY * 2 && waits[7] == PENALTY_MAX);
        assert_eq!(doors.penalty(away(2)), PENALTY);
        doors.forgive(away(1));
        assert_eq!(doors.penalty(away(1)), PENALTY);
    }
}
