//! Who comes in: connections that have not shown yet who they are, those that have, and wrong passwords.
//!
//! Those that only connect keep nobody out: of those that are still starting the oldest that has not said who it is
//! leaves when one too many comes. Connections take a seat once they are authenticated; some seats are left for this
//! machine, and no other machine gets more than half. Where none is free, the oldest that has never asked anything
//! leaves its own.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Connections that start at a time.
const STARTING_MAX: usize = 256;
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
    /// The oldest first.
    starting: Mutex<Starts>,
    seats: Mutex<Seats>,
    wrong: Mutex<HashMap<IpAddr, (u32, Instant)>>,
}

#[derive(Default)]
struct Starts {
    next: u64,
    all: VecDeque<Starting>,
}

struct Starting {
    number: u64,
    /// Whether it said who it is.
    is_heard: bool,
    /// Dropped to make it leave.
    _stay: oneshot::Sender<()>,
}

#[derive(Default)]
struct Seats {
    next: u64,
    /// The oldest first.
    all: VecDeque<Taken>,
}

struct Taken {
    number: u64,
    peer: IpAddr,
    has_asked: bool,
    /// Dropped to make it leave.
    _stay: oneshot::Sender<()>,
}

/// A connection that is starting.
pub(super) struct Start {
    doors: Arc<Doors>,
    pub(super) number: u64,
    /// Ready when it must leave.
    pub(super) leave: oneshot::Receiver<()>,
}

/// The seat of a connection that is authenticated.
pub(crate) struct Seat {
    doors: Arc<Doors>,
    number: u64,
    /// Ready when it must leave.
    pub(super) leave: oneshot::Receiver<()>,
}

impl Doors {
    pub(super) fn new(seats_max: usize) -> Arc<Doors> {
        Arc::new(Doors { seats_max, starting: Mutex::default(), seats: Mutex::default(), wrong: Mutex::default() })
    }

    /// Lets a connection start.
    pub(super) fn start(self: &Arc<Self>) -> Start {
        let (stay, leave) = oneshot::channel();
        let mut starts = self.starting.lock();
        if starts.all.len() >= STARTING_MAX {
            let leaves = starts.all.iter().position(|start| !start.is_heard).unwrap_or(0);
            starts.all.remove(leaves);
        }
        starts.next += 1;
        let number = starts.next;
        starts.all.push_back(Starting { number, is_heard: false, _stay: stay });
        Start { doors: self.clone(), number, leave }
    }

    /// Notes that the connection of a number said who it is.
    pub(super) fn hear(&self, number: u64) {
        let mut starts = self.starting.lock();
        if let Some(start) = starts.all.iter_mut().find(|start| start.number == number) {
            start.is_heard = true;
        }
    }

    /// A seat for a connection from an address, if there is one for it.
    pub(super) fn seat(self: &Arc<Self>, peer: IpAddr) -> Option<Seat> {
        let mut seats = self.seats.lock();
        let own = seats.all.iter().filter(|taken| taken.peer == peer).count();
        let (room, share) = if peer.is_loopback() {
            (self.seats_max, self.seats_max)
        } else {
            (self.seats_max.saturating_sub((self.seats_max / 10).max(1)), self.seats_max.div_ceil(2))
        };
        if own >= share || seats.all.len() >= room {
            // One that leaves makes room for one.
            if seats.all.len() > room {
                return None;
            }
            let silent = |own_only: bool| {
                seats.all.iter().position(|taken| !taken.has_asked && (taken.peer == peer || !own_only))
            };
            let leaves = silent(true).or_else(|| if own < share { silent(false) } else { None })?;
            seats.all.remove(leaves);
        }
        let (stay, leave) = oneshot::channel();
        seats.next += 1;
        let number = seats.next;
        seats.all.push_back(Taken { number, peer, has_asked: false, _stay: stay });
        Some(Seat { doors: self.clone(), number, leave })
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

impl Drop for Start {
    fn drop(&mut self) {
        self.doors.starting.lock().all.retain(|start| start.number != self.number);
    }
}

impl Seat {
    /// Notes that its connection asks something; false if it had to leave before.
    #[must_use]
    pub(super) fn ask(&self) -> bool {
        let mut seats = self.doors.seats.lock();
        let taken = seats.all.iter_mut().find(|taken| taken.number == self.number);
        taken.map(|taken| taken.has_asked = true).is_some()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.doors.seats.lock().all.retain(|taken| taken.number != self.number);
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

    #[test]
    fn of_those_that_start_the_oldest_leaves_that_has_not_said_who_it_is() {
        let doors = Doors::new(10);
        let mut heard = doors.start();
        doors.hear(heard.number);
        let mut all: Vec<Start> = (0..STARTING_MAX + 2).map(|_| doors.start()).collect();
        let left: Vec<bool> = all
            .iter_mut()
            .map(|start| matches!(start.leave.try_recv(), Err(oneshot::error::TryRecvError::Closed)))
            .collect();
        assert!(left[..3].iter().all(|left| *left) && !left[3..].contains(&true));
        assert!(matches!(heard.leave.try_recv(), Err(oneshot::error::TryRecvError::Empty)));
        drop((all, heard));
        assert!(doors.starting.lock().all.is_empty());
    }

    fn seats(doors: &Arc<Doors>, peer: IpAddr) -> Vec<Seat> {
        let asks = |seat: Seat| seat.ask().then_some(seat);
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
        assert!(doors.seats.lock().all.is_empty());
    }

    #[test]
    fn those_that_never_asked_leave_their_seats_to_others() {
        let has_left = |seat: &mut Seat| matches!(seat.leave.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        let doors = Doors::new(10);
        let mut asks = doors.seat(HERE).unwrap();
        assert!(asks.ask());
        let mut silent: Vec<Seat> = (0..9).map(|_| doors.seat(HERE).unwrap()).collect();
        let newer: Vec<Seat> = (0..3).map(|_| doors.seat(HERE).unwrap()).collect();
        let left: Vec<bool> = silent.iter_mut().map(has_left).collect();
        assert!(left[..3].iter().all(|left| *left) && !left[3..].contains(&true));
        assert!(!silent[0].ask() && silent[3].ask() && !has_left(&mut asks));
        drop(newer);
        // Of another machine, those of its own leave first; and it never gets more than its share.
        let doors = Doors::new(10);
        let mut other = doors.seat(away(2)).unwrap();
        let mut one: Vec<Seat> = (0..6).map(|_| doors.seat(away(1)).unwrap()).collect();
        assert!(has_left(&mut one[0]) && !has_left(&mut one[1]) && !has_left(&mut other));
        assert_eq!(doors.seats.lock().all.len(), 6);
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
