//! A sender with a sequence, and the network between it and the store: frames are lost, come twice, come late and in
//! another order, also over the ends of the store; the sender begins anew.

use fastrand::Rng;

use crate::tests::kit::*;
use crate::*;

/// A frame as its sender made it. The pair of its first two numbers is its own for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    /// How often the sender had begun before.
    pub(super) life: u32,
    /// Counts without wraps within a life.
    pub(super) number: i64,
    pub(super) source_time: i64,
}

impl Sent {
    /// What its frame holds: enough to know it by.
    pub(super) fn value(self) -> i64 {
        i64::from(self.life) << 44 | self.number
    }

    /// Life and number of such a value.
    pub(super) fn of_value(value: i64) -> (u32, i64) {
        ((value >> 44) as u32, value & ((1 << 44) - 1))
    }
}

/// What a sender is like.
#[derive(Clone, Debug)]
pub(super) struct Habit {
    pub(super) modulus: u64,
    /// Whether frames say when they were made.
    pub(super) stamped: bool,
    pub(super) clock: Clock,
    /// Frames that may overtake a late one.
    window: i64,
    /// Frames lost in a row.
    outage: i64,
}

pub(super) struct Sender {
    pub(super) name: String,
    pub(super) habit: Habit,
    pub(super) id: StreamId,
    life: u32,
    next: i64,
    /// Number of the first frame of this life.
    began: i64,
    source_time: i64,
    /// Frames under way: how many later ones overtake each.
    flight: Vec<(i64, Sent)>,
    /// The newest frames that were made, for those that come twice.
    newest: Vec<Sent>,
    /// The highest number that arrived in this life, and when.
    highest: i64,
    highest_at: i64,
    now: i64,
}

/// Frames remembered to come twice: fewer than a receiver looks back over.
const NEWEST: usize = 900;
/// A little less than the time after which a receiver takes a repeated sequence for a new beginning.
const QUIET: i64 = 1_900 * MS;

impl Sender {
    pub(super) fn new(n: usize, random: &mut Rng) -> Sender {
        let modulus = [1 << 16, 1 << 32, 1_000][random.usize(..3)];
        let small = modulus == 1_000;
        // A small modulus needs the time to tell a new beginning from a wrap.
        let stamped = small || random.u8(0..3) > 0;
        let clock = if stamped && random.bool() { Clock::Source } else { Clock::Receive };
        let (window, outage) = if small { (20, 30) } else { (60, 120) };
        let began = match random.u8(0..4) {
            0 => 0,
            1 => modulus as i64 - random.i64(1..60),
            2 => random.i64(0..8),
            _ => random.i64(0..modulus as i64),
        };
        Sender {
            name: format!("sender{n}"),
            habit: Habit { modulus, stamped, clock, window, outage },
            id: StreamId(0),
            life: 0,
            next: began,
            began,
            source_time: 0,
            flight: Vec::new(),
            newest: Vec::new(),
            highest: i64::MIN,
            highest_at: i64::MIN,
            now: i64::MIN,
        }
    }

    pub(super) fn spec(&self) -> StreamSpec {
        spec(self.name.clone(), [("value", ChannelType::I64)])
            .clock(self.habit.clock)
            .modulus(Some(self.habit.modulus))
            .source("network")
    }

    pub(super) fn head(&self, sent: Sent, receive_time: i64) -> FrameHead {
        head(self.id, receive_time)
            .sampled(self.habit.stamped.then_some(sent.source_time))
            .numbered(Some(sent.number as u64 % self.habit.modulus))
    }

    /// Begins anew, if its sequence says so beyond doubt: what is under way is lost.
    pub(super) fn begin_again(&mut self, random: &mut Rng) -> bool {
        let (wire, modulus) = ((self.next - 1) % self.habit.modulus as i64, self.habit.modulus as i64);
        let far = if self.habit.stamped { 400 } else { 1_500 };
        let beyond_doubt = self.next - self.began > far && (far..modulus / 2).contains(&wire);
        if beyond_doubt {
            self.life += 1;
            self.began = random.i64(0..4);
            self.next = self.began;
            self.highest = i64::MIN;
            self.flight.clear();
            self.newest.clear();
        }
        beyond_doubt
    }

    /// Makes frames up to an instant and gives those that arrive by now, in the order in which they do.
    pub(super) fn send(&mut self, frames: i64, now: i64, random: &mut Rng) -> Vec<Sent> {
        let mood = random.u8(0..6) * u8::from(!self.was_quiet(now));
        let mut out_until = self.next - 1;
        for n in 0..frames {
            let source_time = (self.source_time + 1).max(now - (frames - n) * MS / 4);
            let sent = Sent { life: self.life, number: self.next, source_time };
            (self.next, self.source_time) = (self.next + 1, source_time);
            self.newest.push(sent);
            if mood == 1 && random.u8(0..30) == 0 {
                out_until = sent.number + random.i64(0..self.habit.outage);
            }
            let lost = sent.number <= out_until || mood == 2 && random.u8(0..8) == 0;
            if !lost {
                let late = mood >= 3 && random.u8(0..6) == 0;
                let overtaken = if late { random.i64(1..self.habit.window) } else { 0 };
                self.flight.push((sent.number + overtaken, sent));
                if random.u8(0..40) == 0 {
                    self.flight.push((sent.number + random.i64(0..self.habit.window), sent));
                }
            }
        }
        // One that came long ago comes again, or one that seemed lost comes at last.
        while mood == 5 && random.bool() {
            let sent = self.newest[random.usize(self.newest.len().saturating_sub(NEWEST / 2)..self.newest.len())];
            self.flight.push((self.next - 1, sent));
        }
        self.newest.drain(..self.newest.len().saturating_sub(NEWEST));
        self.arrive(self.next - 1)
    }

    /// Lets all that is under way arrive.
    pub(super) fn drain(&mut self, now: i64) -> Vec<Sent> {
        self.was_quiet(now);
        self.arrive(i64::MAX)
    }

    /// Returns whether the sender was silent long enough that the store must take an old sequence without a source time
    /// for a restart. Frames under way are dropped then: a late one would look like a restart.
    fn was_quiet(&mut self, now: i64) -> bool {
        let quiet = !self.habit.stamped && now.saturating_sub(self.highest_at) > QUIET;
        self.now = now;
        if quiet {
            self.flight.clear();
        }
        quiet
    }

    /// What is under way is lost, or waits in the network, while nobody receives.
    pub(super) fn nobody_receives(&mut self, random: &mut Rng) {
        if random.bool() {
            self.flight.clear();
        }
    }

    fn arrive(&mut self, to: i64) -> Vec<Sent> {
        // Of equal places the order of sending stays.
        self.flight.sort_by_key(|(at, _)| *at);
        let ready = self.flight.partition_point(|(at, _)| *at <= to);
        let arrived: Vec<Sent> = self.flight.drain(..ready).map(|(_, sent)| sent).collect();
        let highest = arrived.iter().filter(|sent| sent.life == self.life).map(|sent| sent.number).max();
        if highest.is_some_and(|highest| highest > self.highest) {
            (self.highest, self.highest_at) = (highest.unwrap_or_default(), self.now);
        }
        arrived
    }
}
