use std::collections::{HashMap, HashSet};

use super::saved::SavedSequence;
use super::session::INTERVALS_MAX;
use super::*;
use crate::bytes::Cursor;

fn take(tracker: &mut SequenceTracker, wire: u64, stamps: Stamps, gap: u64) -> Judged {
    let judged = tracker.judge(wire, stamps.0, stamps.1);
    if judged.seen != Seen::Duplicate {
        tracker.take(&judged, stamps, gap);
    }
    judged
}

#[test]
fn a_sequence_of_the_disk_that_cannot_be_is_none() {
    for forged in [i64::MAX, i64::MAX - 1, i64::MIN + 1, crate::model::row::NONE] {
        let mut tracker = SequenceTracker::new(1 << 16);
        tracker.restore(5, 0, (1, None), 0);
        tracker.restore(forged, 0, (2, None), 0);
        let judged = tracker.judge(7, 3, None);
        assert_eq!((judged.sequence, judged.seen), (7, Seen::After { from: 6, to: 6 }), "{forged}");
        tracker.resume(1, forged);
        let judged = tracker.judge(7, 3, None);
        assert_eq!((judged.sequence, judged.seen), (7, Seen::Next), "{forged}");
    }
}

/// Feeds wire sequences, each with its source time, and counts (lost, filled, duplicate, late, restart).
fn run(modulus: u64, frames: &[(u64, i64)]) -> (Vec<i64>, [u64; 5], u32) {
    let mut tracker = SequenceTracker::new(modulus);
    let (mut sequences, mut counts, mut session) = (Vec::new(), [0; 5], 0);
    for (n, &(wire, source)) in frames.iter().enumerate() {
        let judged = take(&mut tracker, wire, (n as i64 * 1000, Some(source)), n as u64);
        match judged.seen {
            Seen::Next => {}
            Seen::After { from, to } => counts[0] += (to - from + 1) as u64,
            Seen::Filled { .. } => counts[1] += 1,
            Seen::Duplicate => {
                counts[2] += 1;
                continue;
            }
            Seen::Late => counts[3] += 1,
            Seen::Restart => counts[4] += 1,
        }
        session = judged.session;
        sequences.push(judged.sequence);
    }
    (sequences, counts, session)
}

#[test]
fn a_wrap_is_no_gap() {
    let m = 1 << 32;
    let (sequences, counts, _) = run(m, &[(m - 2, 1), (m - 1, 2), (0, 3), (1, 4), (4, 7)]);
    let base = m as i64;
    assert_eq!(sequences, [base - 2, base - 1, base, base + 1, base + 4]);
    assert_eq!(counts, [2, 0, 0, 0, 0]);
}

#[test]
fn late_frames_fill_and_twice_is_a_duplicate() {
    let (_, counts, _) = run(1 << 32, &[(5, 5), (8, 8), (7, 7), (7, 7), (6, 6), (6, 6), (8, 8), (4, 4)]);
    assert_eq!(counts, [2, 2, 3, 1, 0]);
}

#[test]
fn frames_before_the_first_seen_are_late_each_once() {
    let cases: [(&[u64], [u64; 5]); 4] = [
        (&[8, 5, 6, 7, 9, 10], [0, 0, 0, 3, 0]),
        (&[8, 5, 6, 6, 5, 7, 8, 9], [0, 0, 3, 3, 0]),
        (&[8, 11, 2, 10, 5, 9, 3, 4, 2, 3, 4, 5], [2, 2, 4, 4, 0]),
        // Before zero and beyond a wrap.
        (&[1, 65_535, 0, 65_534, 0, 65_535, 2], [0, 0, 2, 3, 0]),
    ];
    for (frames, expected) in cases {
        let source = |wire: u64| (wire as i64 + 1_000) % 65_536;
        let frames: Vec<(u64, i64)> = frames.iter().map(|&wire| (wire, source(wire))).collect();
        assert_eq!(run(1 << 16, &frames).1, expected, "{frames:?}");
    }
}

#[test]
fn a_clock_that_is_set_makes_no_restart_of_what_comes_late_or_twice() {
    // Ahead by 1,000 from sequence 6 on, and back at 9: 5 and 7 come late, 8 again.
    let frames = [(4, 4), (6, 1_006), (5, 5), (8, 1_008), (9, 9), (7, 1_007), (8, 1_008), (10, 10)];
    assert_eq!(run(1 << 32, &frames).1, [2, 2, 1, 0, 0]);
    // With a clock behind its former time, a restart is recognized once no frame can be late any more.
    let mut tracker = SequenceTracker::new(1 << 32);
    for (sequence, at, source) in [(5, 0, 1_000), (6, 1, 10)] {
        take(&mut tracker, sequence, (at, Some(source)), 0);
    }
    assert_eq!(tracker.judge(5, 2, Some(1_000)).seen, Seen::Duplicate);
    assert_eq!(tracker.judge(5, 2 + REORDER_NS, Some(500)).seen, Seen::Restart);
}

/// A source that numbers frames by this machine's clock, as polled controllers do, after both were set back.
#[test]
fn a_sequence_that_falls_back_with_the_clock_of_this_machine_restarts() {
    let minute = 60_000_000_000;
    let mut tracker = SequenceTracker::new(u64::MAX);
    (10_000..10_100).for_each(|n| _ = take(&mut tracker, n, (2 * minute + n as i64, None), 0));
    assert_eq!(tracker.judge(10_095, minute, None).seen, Seen::Duplicate);
    assert_eq!(tracker.judge(9_500, minute, None).seen, Seen::Restart);
    (9_500..9_600).for_each(|n| assert_ne!(take(&mut tracker, n, (minute + n as i64, None), 0).seen, Seen::Duplicate));
}

#[test]
fn a_restart_is_neither_a_wrap_nor_billions_lost() {
    for highest in [500, 70_000, 3_000_000_000] {
        let (_, counts, session) = run(1 << 32, &[(highest, 1), (highest + 1, 2), (0, 100), (1, 101)]);
        assert_eq!((counts, session), ([0, 0, 0, 0, 1], 1), "from {highest}");
    }
}

/// A source without a battery begins its clock and its sequence again, earlier than all it said before.
#[test]
fn a_restart_with_a_clock_from_before_the_session_is_one() {
    let (_, counts, session) = run(1 << 32, &[(5, 5_000), (6, 5_001), (7, 5_002), (5, 10), (6, 11), (7, 12), (8, 13)]);
    assert_eq!((counts, session), ([0, 0, 0, 0, 1], 1));
}

#[test]
fn frames_of_both_sessions_are_known_around_a_restart() {
    let frames = [(500, 1), (501, 2), (504, 5), (1, 102), (502, 3), (0, 101), (504, 5), (505, 6), (2, 103), (502, 3)];
    let (_, counts, session) = run(1 << 32, &frames);
    assert_eq!((counts, session), ([2, 1, 2, 1, 1], 1));
}

/// A source without time stamps restarts after frames 500 to 519 of its first session were lost. Frames of the second
/// session with these numbers are not the missing ones, though the second session has a hole there as well.
#[test]
fn without_a_clock_a_frame_is_of_the_session_whose_order_it_fits() {
    let mut tracker = SequenceTracker::new(1 << 16);
    let mut judge = |wire, n| take(&mut tracker, wire, (n, None), 7);
    for wire in (0..500).chain(520..1_500) {
        judge(wire, wire as i64);
    }
    for (n, wire) in (2_000..).zip((0..505).chain(508..540)) {
        assert_eq!(judge(wire, n).session, 1, "{wire}");
    }
    assert_eq!(judge(510, 2_600).seen, Seen::Duplicate);
    assert_eq!(judge(505, 2_601).seen, Seen::Filled { gap: 7 });
}

#[test]
fn what_is_forgotten_is_stored_and_never_dropped() {
    let mut tracker = SequenceTracker::new(1 << 32);
    let last = 3 * INTERVALS_MAX as i64;
    for n in 0..last {
        take(&mut tracker, 2 * n as u64, (n, Some(2 * n)), 1);
    }
    for n in 0..last - 1 {
        let missing = 2 * n + 1;
        assert_ne!(tracker.judge(missing as u64, last, Some(missing)).seen, Seen::Duplicate, "{missing}");
    }
    let known = 2 * (last - 1 - INTERVALS_MAX as i64);
    for n in 0..last {
        let seen = tracker.judge(2 * n as u64, last, Some(2 * n)).seen;
        assert_eq!(seen == Seen::Duplicate, 2 * n >= known, "{n}");
    }
}

#[test]
fn a_state_that_is_cut_to_its_room_forgets_the_lowest() {
    let mut tracker = SequenceTracker::new(1 << 32);
    for n in 0..100 {
        take(&mut tracker, 3 * n, (n as i64, Some(3 * n as i64)), n);
    }
    let saved = SavedSequence::of(7, 100, &tracker, |_| false);
    let whole = saved.encode().len();
    for room in 0..=whole {
        let Some(bytes) = saved.encode_within(room) else { continue };
        assert!(bytes.len() <= room, "{room}");
        let read = SavedSequence::decode(&mut Cursor::new(&bytes)).expect("reads");
        let mut again = SequenceTracker::new(1 << 32);
        read.restore(&mut again);
        for n in 0..300u64 {
            let seen = again.judge(n, 100, Some(n as i64)).seen;
            assert!(n % 3 == 0 || seen != Seen::Duplicate, "{n} with {room} bytes");
        }
        assert_eq!(again.judge(298, 101, Some(298)).seen, Seen::Next, "{room}");
    }
}

/// One frame as its source sent it: session, number in it, source time.
#[derive(Clone, Copy, Debug)]
struct Sent {
    session: usize,
    number: i64,
    source: i64,
}

/// Returns the frames that arrive from several sessions of a source, with losses, repetitions and disorder, also across
/// restarts.
fn arriving(random: &mut fastrand::Rng, modulus: u64) -> Vec<Sent> {
    let (mut sent, mut source) = (Vec::new(), 1_000_000);
    for session in 0..random.usize(1..4) {
        source += random.i64(100_000..1_000_000);
        // The first begins just before a wrap, others near zero, as a device does.
        let first = if session == 0 { modulus as i64 - random.i64(1..400) } else { random.i64(0..20) };
        for number in first..first + random.i64(500..900) {
            source += random.i64(1_000..2_000);
            sent.push(Sent { session, number, source });
        }
    }
    let loss = random.usize(0..12);
    let mut arrived: Vec<(usize, Sent)> = Vec::new();
    for (n, &frame) in sent.iter().enumerate() {
        let delayed = |random: &mut fastrand::Rng| match random.u8(0..10) {
            0 => n + random.usize(0..40),
            _ => n,
        };
        if random.usize(0..100) >= loss {
            arrived.push((delayed(random), frame));
        }
        if random.u8(0..20) == 0 {
            arrived.push((n + random.usize(0..60), frame));
        }
    }
    arrived.sort_by_key(|(at, _)| *at);
    arrived.into_iter().map(|(_, frame)| frame).collect()
}

/// Model that remembers every frame.
#[derive(Default)]
struct Naive {
    seen: HashSet<(usize, i64)>,
    /// First and highest number of each session.
    sessions: HashMap<usize, (i64, i64)>,
    lost: u64,
    filled: u64,
    late: u64,
}

impl Naive {
    /// Takes a frame. Returns whether it is new.
    fn take(&mut self, frame: Sent) -> bool {
        if !self.seen.insert((frame.session, frame.number)) {
            return false;
        }
        match self.sessions.get_mut(&frame.session) {
            None => drop(self.sessions.insert(frame.session, (frame.number, frame.number))),
            Some((_, highest)) if frame.number > *highest => {
                self.lost += (frame.number - *highest - 1) as u64;
                *highest = frame.number;
            }
            Some((first, _)) if frame.number < *first => self.late += 1,
            Some(_) => self.filled += 1,
        }
        true
    }
}

#[test]
fn the_tracker_and_a_model_that_remembers_all_agree() {
    for seed in 0..400 {
        let mut random = fastrand::Rng::with_seed(seed);
        let modulus = [1 << 16, 1 << 32][seed as usize % 2];
        let (mut tracker, mut naive) = (SequenceTracker::new(modulus), Naive::default());
        let (mut lost, mut filled, mut late) = (0, 0, 0);
        // On disk: a saved state, and the frames of the log since; some of those before are in both.
        let mut saved = SavedSequence::of(0, 0, &tracker, |_| false).encode();
        let mut log: Vec<(Judged, Stamps)> = Vec::new();
        let mut offsets: HashMap<usize, (u32, i64)> = HashMap::new();
        for (at, frame) in arriving(&mut random, modulus).into_iter().enumerate() {
            let stamps = (frame.source + 5_000_000, Some(frame.source));
            let wire = frame.number.rem_euclid(modulus as i64) as u64;
            let judged = take(&mut tracker, wire, stamps, 9);
            let is_new = naive.take(frame);
            assert_eq!(judged.seen != Seen::Duplicate, is_new, "seed {seed}, {at}: {frame:?}, {judged:?}");
            if is_new {
                log.push((judged, stamps));
                // Unwrapped sequences of a session have a constant offset from its numbers.
                let place = (judged.session, judged.sequence - frame.number);
                assert_eq!(*offsets.entry(frame.session).or_insert(place), place, "seed {seed}, {at}");
            }
            match judged.seen {
                Seen::After { from, to } => lost += (to - from + 1) as u64,
                Seen::Filled { .. } => filled += 1,
                Seen::Late => late += 1,
                _ => {}
            }
            if random.u8(0..100) == 0 {
                // A checkpoint; the log still has some of what is in it.
                saved = SavedSequence::of(0, at as u64, &tracker, |_| false).encode();
                let keep = random.usize(0..=log.len().min(50));
                log.drain(..log.len() - keep);
            }
            if random.u8(0..100) == 0 {
                // A kill: recovery restores the state.
                let mut again = SequenceTracker::new(modulus);
                SavedSequence::decode(&mut Cursor::new(&saved)).expect("reads").restore(&mut again);
                for (judged, stamps) in &log {
                    again.restore(judged.sequence, judged.session, *stamps, 9);
                }
                assert_eq!(again.open_frames(), tracker.open_frames(), "seed {seed}, {at}");
                tracker = again;
            }
        }
        assert_eq!((lost, filled, late), (naive.lost, naive.filled, naive.late), "seed {seed}");
    }
}
