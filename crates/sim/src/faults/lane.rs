//! The fate of messages on their way: pure, given the random numbers and the caller's clock.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use super::report::Tally;
use crate::noise::Random;

/// Max number of flows that a relay distinguishes; the others are counted together.
const FLOWS_MAX: usize = 4_096;
/// Name of the flow of all others.
const OTHERS: &str = "others";
/// Max number of later messages of its flow that overtake a held message.
const PASSED_BY_MAX: u64 = 8;
/// Max time a message is held, whether or not later ones arrive.
const HELD_MAX_NS: i64 = 250_000_000;
/// Max time between a message and its copy.
const COPY_WITHIN_NS: f64 = 20e6;

/// Periodic event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spell {
    /// Period.
    pub(crate) every_ns: i64,
    /// Duration of a silence, or size of a clock jump.
    pub(crate) by_ns: i64,
}

/// Chances that apply to each message, and periodic events.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Faults {
    /// Chance that a loss begins at a message.
    pub(crate) loss: f64,
    /// Max number of messages in a loss.
    pub(crate) burst: u32,
    /// Chance that a message is copied.
    pub(crate) duplicate: f64,
    /// Chance that later messages of its flow overtake a message.
    pub(crate) reorder: f64,
    /// Chance that a message is garbled so that no receiver accepts it.
    pub(crate) garble: f64,
    /// Max delay; order is kept.
    pub(crate) jitter_ns: i64,
    /// Periodic silence of `by_ns`, in which nothing gets through.
    pub(crate) silence: Option<Spell>,
    /// Clock jump: the source's clock is `by_ns` ahead in every second period.
    pub(crate) clock_jump: Option<Spell>,
}

/// Protocol-specific behaviour of a lane.
pub(crate) trait Form {
    /// Shifts the times in a message.
    fn move_times(&self, bytes: &mut [u8], by_ns: i64);

    /// Garbles a message so that no receiver accepts it.
    fn garble(&self, bytes: &mut Vec<u8>, random: &mut Random);

    /// Returns whether a message in a silence arrives late rather than never.
    fn waits(&self) -> bool;

    /// Returns whether messages can overtake each other and be duplicated.
    fn can_pass(&self) -> bool;
}

/// Message on its way.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// Connection that it belongs to.
    pub(crate) route: u64,
    pub(crate) bytes: Vec<u8>,
    /// Units of each flow it carries; if empty, it passes without faults, in order.
    pub(crate) parts: Vec<(usize, u64)>,
}

#[derive(Debug)]
struct WaitingMessage {
    due_ns: i64,
    order: u64,
    message: Message,
    /// Whether its arrival is counted: it is neither a copy nor garbled.
    counts: bool,
}

impl PartialEq for WaitingMessage {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for WaitingMessage {}
impl PartialOrd for WaitingMessage {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for WaitingMessage {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.due_ns, self.order).cmp(&(other.due_ns, other.order))
    }
}

#[derive(Debug)]
struct HeldMessage {
    message: Message,
    /// Number of later messages of its flow that may still overtake it.
    left: u64,
    passed: bool,
    until_ns: i64,
}

/// Reason why a message did not arrive.
#[derive(Clone, Copy, Debug)]
enum Missed {
    Lost,
    Silenced,
    Garbled,
}

impl Missed {
    fn of(self, tally: &mut Tally) -> &mut u64 {
        match self {
            Missed::Lost => &mut tally.lost,
            Missed::Silenced => &mut tally.silenced,
            Missed::Garbled => &mut tally.garbled,
        }
    }
}

/// State of one direction of a relay.
pub(crate) struct Lane<F> {
    form: F,
    faults: Faults,
    random: Random,
    flows: Vec<(String, Tally)>,
    index: HashMap<String, usize>,
    queue: BinaryHeap<Reverse<WaitingMessage>>,
    held: Vec<HeldMessage>,
    /// Newest message of each flow of each route, if it did not arrive.
    missed: HashMap<(u64, usize), (Missed, Message)>,
    waiting_bytes: usize,
    order: u64,
    newest_due_ns: i64,
    burst_left: u32,
    clock_ahead: bool,
    clock_jumps: u64,
}

impl<F: Form> Lane<F> {
    pub(crate) fn new(form: F, faults: Faults, random: Random) -> Self {
        Lane {
            form,
            faults,
            random,
            flows: Vec::new(),
            index: HashMap::new(),
            queue: BinaryHeap::new(),
            held: Vec::new(),
            missed: HashMap::new(),
            waiting_bytes: 0,
            order: 0,
            newest_due_ns: 0,
            burst_left: 0,
            clock_ahead: false,
            clock_jumps: 0,
        }
    }

    /// Returns the index of a flow.
    pub(crate) fn flow(&mut self, name: &str) -> usize {
        if let Some(flow) = self.index.get(name) {
            return *flow;
        }
        let name = if self.flows.len() < FLOWS_MAX { name } else { OTHERS };
        *self.index.entry(name.to_owned()).or_insert_with(|| {
            self.flows.push((name.to_owned(), Tally::default()));
            self.flows.len() - 1
        })
    }

    /// Accepts a message at a time since the start.
    pub(crate) fn take(&mut self, now_ns: i64, mut message: Message) {
        if message.parts.is_empty() {
            self.send_in_order(now_ns, message);
            return;
        }
        self.count(&message, |tally| &mut tally.taken);
        if let Some(missed) = self.misses(now_ns) {
            self.count(&message, |tally| missed.of(tally));
            self.remember(missed, message);
            return;
        }
        if self.jump_clock(now_ns) {
            let by_ns = self.faults.clock_jump.map_or(0, |jump| jump.by_ns);
            self.form.move_times(&mut message.bytes, by_ns);
        }
        if self.chance(self.faults.garble) {
            let mut spoilt = message.clone();
            self.form.garble(&mut spoilt.bytes, &mut self.random);
            self.count(&message, |tally| &mut tally.garbled);
            self.remember(Missed::Garbled, message);
            let due_ns = self.due_in_order(now_ns);
            self.send(due_ns, spoilt, false);
            return;
        }
        self.missed.remove(&key(&message));
        self.pass(now_ns, &message);
        let can_pass = self.form.can_pass();
        if can_pass && self.chance(self.faults.duplicate) {
            self.count(&message, |tally| &mut tally.duplicates);
            let due_ns = self.due_in_order(now_ns) + self.random.between(0.0, COPY_WITHIN_NS) as i64;
            self.send(due_ns, message.clone(), false);
        }
        if can_pass && self.chance(self.faults.reorder) {
            let left = 1 + self.random.bits() % PASSED_BY_MAX;
            self.waiting_bytes += message.bytes.len();
            self.held.push(HeldMessage { message, left, passed: false, until_ns: now_ns + HELD_MAX_NS });
            return;
        }
        self.send_in_order(now_ns, message);
    }

    /// Returns the next message that is due.
    pub(crate) fn due(&mut self, now_ns: i64) -> Option<(u64, Vec<u8>)> {
        while let Some(at) = self.held.iter().position(|held| held.until_ns <= now_ns) {
            let message = self.release(at);
            self.send_in_order(now_ns, message);
        }
        if self.queue.peek().is_none_or(|next| next.0.due_ns > now_ns) {
            return None;
        }
        let Reverse(waiting) = self.queue.pop()?;
        Some((waiting.message.route, self.hand_out(waiting)))
    }

    /// Returns when the next message is due.
    pub(crate) fn next_due_ns(&self) -> Option<i64> {
        let queued = self.queue.peek().map(|next| next.0.due_ns);
        let held = self.held.iter().map(|held| held.until_ns).min();
        queued.into_iter().chain(held).min()
    }

    /// Takes all messages still waiting on a route, in order, followed by the newest ones that its flows missed: only
    /// a later message reveals a loss.
    pub(crate) fn flush(&mut self, route: u64) -> Vec<Vec<u8>> {
        let mut waiting = self.take_waiting(route);
        waiting.sort();
        let mut out: Vec<Vec<u8>> = waiting.into_iter().map(|waiting| self.hand_out(waiting)).collect();
        let mut last: Vec<(usize, Missed, Message)> = Vec::new();
        self.missed.retain(|(of, flow), (missed, message)| {
            let stays = *of != route;
            if !stays {
                last.push((*flow, *missed, message.clone()));
            }
            stays
        });
        last.sort_by_key(|(flow, ..)| *flow);
        for (_, missed, message) in last {
            for &(flow, units) in &message.parts {
                let tally = &mut self.flows[flow].1;
                *missed.of(tally) -= units;
                tally.delivered += units;
            }
            out.push(message.bytes);
        }
        out
    }

    /// Discards what waits on a route that was cut, and counts it.
    pub(crate) fn cut(&mut self, route: u64) {
        for waiting in self.take_waiting(route) {
            self.waiting_bytes -= waiting.message.bytes.len();
            if waiting.counts {
                self.count(&waiting.message, |tally| &mut tally.cut_off);
            }
        }
        self.missed.retain(|(of, _), _| *of != route);
    }

    /// Returns the bytes that wait.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Returns the counts of every flow by its name.
    pub(crate) fn flows(&self) -> BTreeMap<String, Tally> {
        self.flows.iter().cloned().collect()
    }

    /// Returns how often the source's clock was set, forward or back.
    pub(crate) fn clock_jumps(&self) -> u64 {
        self.clock_jumps
    }

    fn take_waiting(&mut self, route: u64) -> Vec<WaitingMessage> {
        let (mine, others) = std::mem::take(&mut self.queue).into_iter().partition(|w| w.0.message.route == route);
        self.queue = others;
        let mut mine: Vec<WaitingMessage> = Vec::from_iter(mine).into_iter().map(|Reverse(waiting)| waiting).collect();
        while let Some(at) = self.held.iter().position(|held| held.message.route == route) {
            let message = self.release(at);
            self.waiting_bytes += message.bytes.len();
            self.order += 1;
            mine.push(WaitingMessage { due_ns: i64::MAX, order: self.order, message, counts: true });
        }
        mine
    }

    /// Removes a held message and returns it.
    fn release(&mut self, at: usize) -> Message {
        let held = self.held.remove(at);
        self.waiting_bytes -= held.message.bytes.len();
        if held.passed {
            self.count(&held.message, |tally| &mut tally.reordered);
        }
        held.message
    }

    fn hand_out(&mut self, waiting: WaitingMessage) -> Vec<u8> {
        self.waiting_bytes -= waiting.message.bytes.len();
        if waiting.counts {
            self.count(&waiting.message, |tally| &mut tally.delivered);
        }
        waiting.message.bytes
    }

    /// Decides whether a message does not arrive at all, and why.
    fn misses(&mut self, now_ns: i64) -> Option<Missed> {
        if !self.form.waits() && self.silent_until(now_ns).is_some() {
            return Some(Missed::Silenced);
        }
        if self.burst_left > 0 {
            self.burst_left -= 1;
            return Some(Missed::Lost);
        }
        if self.chance(self.faults.loss) {
            self.burst_left = (self.random.bits() % u64::from(self.faults.burst.max(1))) as u32;
            return Some(Missed::Lost);
        }
        None
    }

    fn remember(&mut self, missed: Missed, message: Message) {
        self.missed.insert(key(&message), (missed, message));
    }

    /// Returns the end of the current silence, or `None` outside one. Silences end with their period.
    fn silent_until(&self, now_ns: i64) -> Option<i64> {
        let Spell { every_ns, by_ns } = self.faults.silence?;
        let into = now_ns.rem_euclid(every_ns);
        (into >= every_ns - by_ns).then(|| now_ns - into + every_ns)
    }

    /// Returns whether the source's clock is ahead now.
    fn jump_clock(&mut self, now_ns: i64) -> bool {
        let ahead = self.faults.clock_jump.is_some_and(|jump| now_ns.div_euclid(jump.every_ns) % 2 == 1);
        self.clock_jumps += u64::from(ahead != self.clock_ahead);
        self.clock_ahead = ahead;
        ahead
    }

    fn chance(&mut self, of: f64) -> bool {
        of > 0.0 && self.random.uniform() < of
    }

    /// Lets a new message overtake the held ones of its flow, and releases those that were overtaken often enough.
    fn pass(&mut self, now_ns: i64, by: &Message) {
        let (route, Some(&(flow, _))) = (by.route, by.parts.first()) else { return };
        let mut at = 0;
        while let Some(held) = self.held.get_mut(at) {
            if held.message.route != route || held.message.parts.first().map(|p| p.0) != Some(flow) {
                at += 1;
                continue;
            }
            if held.left > 0 {
                (held.left, held.passed) = (held.left - 1, true);
                at += 1;
                continue;
            }
            let message = self.release(at);
            self.send_in_order(now_ns, message);
        }
    }

    /// Returns when a message that arrives now is due: not before earlier ones.
    fn due_in_order(&mut self, now_ns: i64) -> i64 {
        let jitter = self.random.between(0.0, self.faults.jitter_ns as f64) as i64;
        let silence = if self.form.waits() { self.silent_until(now_ns) } else { None };
        self.newest_due_ns = self.newest_due_ns.max(silence.unwrap_or(now_ns + jitter));
        self.newest_due_ns
    }

    fn send_in_order(&mut self, now_ns: i64, message: Message) {
        let due_ns = self.due_in_order(now_ns);
        self.send(due_ns, message, true);
    }

    fn send(&mut self, due_ns: i64, message: Message, counts: bool) {
        self.order += 1;
        self.waiting_bytes += message.bytes.len();
        self.queue.push(Reverse(WaitingMessage { due_ns, order: self.order, message, counts }));
    }

    fn count(&mut self, message: &Message, of: impl Fn(&mut Tally) -> &mut u64) {
        for &(flow, units) in &message.parts {
            *of(&mut self.flows[flow].1) += units;
        }
    }
}

fn key(message: &Message) -> (u64, usize) {
    (message.route, message.parts.first().map_or(0, |part| part.0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Form of messages of eight bytes that hold their number.
    struct Numbers {
        waits: bool,
    }

    impl Form for Numbers {
        fn move_times(&self, bytes: &mut [u8], by_ns: i64) {
            let number = i64::from_le_bytes(bytes.try_into().unwrap());
            bytes.copy_from_slice(&(number + by_ns).to_le_bytes());
        }
        fn garble(&self, bytes: &mut Vec<u8>, _: &mut Random) {
            bytes.clear();
        }
        fn waits(&self) -> bool {
            self.waits
        }
        fn can_pass(&self) -> bool {
            true
        }
    }

    const PERIOD_NS: i64 = 1_000_000;

    /// Sends `count` messages of three flows, one per millisecond. Returns the numbers that arrived, and the lane.
    fn run(faults: Faults, waits: bool, seed: u64, count: i64) -> (Vec<Option<i64>>, Lane<Numbers>) {
        let mut lane = Lane::new(Numbers { waits }, faults, Random::new(seed, 7));
        let mut out = Vec::new();
        let number = |bytes: Vec<u8>| <[u8; 8]>::try_from(bytes).ok().map(i64::from_le_bytes);
        for n in 0..count {
            let now = n * PERIOD_NS;
            let flow = lane.flow(&format!("flow {}", n % 3));
            lane.take(now, Message { route: 1, bytes: n.to_le_bytes().to_vec(), parts: vec![(flow, 1)] });
            while let Some((route, bytes)) = lane.due(now) {
                assert_eq!(route, 1);
                out.push(number(bytes));
            }
        }
        out.extend(lane.flush(1).into_iter().map(number));
        assert_eq!(lane.waiting_bytes(), 0);
        (out, lane)
    }

    fn sum(lane: &Lane<Numbers>) -> Tally {
        lane.flows().values().fold(Tally::default(), |all, one| all + *one)
    }

    proptest! {
        #[test]
        fn what_is_taken_arrives_or_is_told_of(
            loss in 0.0..0.05, duplicate in 0.0..0.05, reorder in 0.0..0.05, garble in 0.0..0.05,
            burst in 1u32..6, jitter_ms in 0i64..5, silent_ms in 0i64..40, waits: bool, seed: u64,
        ) {
            let silence = Some(Spell { every_ns: 100_000_000, by_ns: silent_ms * 1_000_000 });
            let faults = Faults {
                loss, burst, duplicate, reorder, garble, silence, jitter_ns: jitter_ms * 1_000_000, clock_jump: None,
            };
            let (out, lane) = run(faults, waits, seed, 3_000);
            let all = sum(&lane);
            prop_assert_eq!(all.taken, 3_000);
            prop_assert_eq!(all.taken, all.delivered + all.lost + all.silenced + all.garbled);
            let mut came: Vec<i64> = out.iter().copied().flatten().collect();
            let spoilt = out.len() - came.len();
            prop_assert_eq!(came.len() as u64, all.delivered + all.duplicates);
            // The last garbled message of a flow is also sent intact at the end.
            prop_assert!(spoilt as u64 >= all.garbled && spoilt as u64 <= all.garbled + 3);
            came.sort_unstable();
            came.dedup();
            prop_assert_eq!(came.len() as u64, all.delivered);
            // The newest of each flow arrived, so every loss is visible.
            prop_assert!([2_997, 2_998, 2_999].iter().all(|n| came.binary_search(n).is_ok()));
            if waits {
                prop_assert_eq!(all.silenced, 0);
            }
        }
    }

    #[test]
    fn without_faults_all_comes_at_once_and_in_order() {
        let (out, lane) = run(Faults::default(), false, 1, 100);
        assert_eq!(out, (0..100).map(Some).collect::<Vec<_>>());
        assert_eq!(sum(&lane), Tally { taken: 100, delivered: 100, ..Tally::default() });
    }

    #[test]
    fn jitter_delays_and_keeps_the_order() {
        let faults = Faults { jitter_ns: 20_000_000, ..Faults::default() };
        let (out, _) = run(faults, false, 1, 1_000);
        assert_eq!(out, (0..1_000).map(Some).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_held_back_is_passed_within_its_flow() {
        let (out, lane) = run(Faults { reorder: 0.05, ..Faults::default() }, false, 1, 3_000);
        let numbers: Vec<i64> = out.into_iter().flatten().collect();
        let mut passed = 0;
        for flow in 0..3 {
            let mut newest = -1;
            for n in numbers.iter().filter(|n| *n % 3 == flow) {
                passed += u64::from(*n < newest);
                newest = newest.max(*n);
            }
        }
        assert!(passed > 50);
        assert_eq!(sum(&lane).reordered, passed);
    }

    #[test]
    fn a_silence_loses_what_cannot_wait_and_delays_what_can() {
        let silence = Some(Spell { every_ns: 100_000_000, by_ns: 30_000_000 });
        let faults = Faults { silence, ..Faults::default() };
        let (out, lane) = run(faults, false, 1, 1_000);
        assert_eq!((sum(&lane).silenced, out.len()), (300 - 3, 700 + 3));
        assert!(out[..140].iter().flatten().all(|n| n % 100 < 70));
        let (out, lane) = run(faults, true, 1, 1_000);
        assert_eq!(sum(&lane).delivered, 1_000);
        assert_eq!(out, (0..1_000).map(Some).collect::<Vec<_>>());
    }

    #[test]
    fn the_clock_of_the_source_is_ahead_in_every_second_period() {
        let clock_jump = Some(Spell { every_ns: 100_000_000, by_ns: 1_000_000 });
        let (out, lane) = run(Faults { clock_jump, ..Faults::default() }, false, 1, 300);
        let expected = (0..300).map(|n| Some(if (100..200).contains(&n) { n + 1_000_000 } else { n }));
        assert_eq!(out, expected.collect::<Vec<_>>());
        assert_eq!(lane.clock_jumps(), 2);
    }

    #[test]
    fn what_waits_on_a_route_that_is_cut_is_counted() {
        let faults = Faults { jitter_ns: 1_000_000_000, ..Faults::default() };
        let mut lane = Lane::new(Numbers { waits: true }, faults, Random::new(1, 7));
        let flow = lane.flow("a");
        for n in 0..10_i64 {
            lane.take(0, Message { route: n as u64 % 2, bytes: n.to_le_bytes().to_vec(), parts: vec![(flow, 1)] });
        }
        lane.cut(1);
        let rest = lane.flush(0).len() as u64;
        let tally = sum(&lane);
        assert_eq!((tally.cut_off, tally.delivered, rest), (5, 5, 5));
    }
}
