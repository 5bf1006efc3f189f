//! Who comes in: connections that have not shown yet who they are, those that have, and wrong passwords.
//!
//! Those that only connect keep nobody out: of those that are still starting the oldest that has not said who it is
//! leaves when one too many comes, once it had the time to say it; until then the new one waits. Connections take a seat
//! once they are authenticated; some seats are left for this machine, and no other machine gets more than half. Where
//! none is free, the oldest that has never asked anything leaves its own.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Connections that start at a time.
const STARTING_MAX: usize = 256;
/// Time that a connection has at least to say who it is.
const CHANCE: Duration = Duration::from_millis(100);
/// Time between two looks whether one that starts has made room.
const LOOK: Duration = Duration::from_millis(5);
/// Wait after the first wrong password from an address; it doubles with each further one.
const PENALTY: Duration = Duration::from_millis(250);
/// Longest such wait.
const PENALTY_MAX: Duration = Duration::from_secs(4);
/// Wrong passwords are forgotten after this time.
const PENALTY_TIME: Duration = Duration::from_secs(60);
/// Addresses with wrong passwords that are remembered.
const PENALTIES_MAX: usize = 1_024;

/// The connections of a listener.
pub(super) struct Doors {
    seats_max: usize,
    starting: Arc<Mutex<Line>>,
    seated: Arc<Mutex<Line>>,
    wrong: Mutex<HashMap<IpAddr, (u32, Instant)>>,
}

/// Connections in the order in which they came.
#[derive(Default)]
struct Line {
    next: u64,
    all: VecDeque<Standing>,
}

struct Standing {
    number: u64,
    peer: IpAddr,
    since: Instant,
    /// Whether it does not have to leave for others any more.
    is_spared: bool,
    /// Dropped to make it leave.
    _stay: oneshot::Sender<()>,
}

impl Line {
    /// The oldest that may have to leave for others, of those that `fits` says.
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

/// A connection that was let in.
pub(super) struct Entry {
    pub(super) place: DoorPlace,
    /// Ready when it must leave.
    pub(super) leave: oneshot::Receiver<()>,
}

/// The place of a connection in a line, which it leaves when this is dropped.
pub(super) struct DoorPlace {
    line: Arc<Mutex<Line>>,
    number: u64,
    /// Where it comes from.
    pub(super) peer: IpAddr,
    is_spared: bool,
}

impl DoorPlace {
    /// Notes that it stays, whoever comes; false: it had to leave before.
    pub(super) fn spare(&mut self) -> bool {
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
    pub(super) fn new(seats_max: usize) -> Doors {
        Doors { seats_max, starting: Arc::default(), seated: Arc::default(), wrong: Mutex::default() }
    }

    /// Lets a connection start, when there is room; it is spared once it said who it is.
    pub(super) async fn start(&self, peer: IpAddr) -> Entry {
        loop {
            if let Some(entry) = self.start_at(peer, Instant::now()) {
                return entry;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Lets a connection start at an instant, unless those that start need more time to say who they are.
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

    /// A seat for a connection from an address, if there is one for it; it is spared once it asked anything.
    pub(super) fn seat(&self, peer: IpAddr) -> Option<Entry> {
        let mut line = self.seated.lock();
        let own = line.all.iter().filter(|standing| standing.peer == peer).count();
        let (room, share) = if peer.is_loopback() {
            (self.seats_max, self.seats_max)
        } else {
            (self.seats_max.saturating_sub((self.seats_max / 10).max(1)), self.seats_max.div_ceil(2))
        };
        if own >= share || line.all.len() >= room {
            // One that leaves makes room for one.
            if line.all.len() > room {
                return None;
            }
            let of_any = || if own < share { line.oldest(|_| true) } else { None };
            let leaves = line.oldest(|of| of == peer).or_else(of_any)?;
            line.all.remove(leaves);
        }
        Some(enter(&self.seated, &mut line, peer))
    }

    /// How long a client waits for the word that its password is wrong.
    pub(super) fn penalty(&self, peer: IpAddr) -> Duration {
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
    pub(super) fn forgive(&self, peer: IpAddr) {
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
        // Of another machine, those of its own leave first; and it never gets more than its share.
        let doors = Doors::new(10);
        let mut other = doors.seat(away(2)).unwrap();
        let mut one: Vec<Entry> = (0..6).map(|_| doors.seat(away(1)).unwrap()).collect();
        assert!(has_left(&mut one[0]) && !has_left(&mut one[1]) && !has_left(&mut other));
        assert_eq!(doors.seated.lock().all.len(), 6);
        // What is left for this machine stays so.
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
