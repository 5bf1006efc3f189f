use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;
use strongback_store::{Steps, StoreOptions};
use tokio::sync::Notify;

use super::super::replay::tests::{append, options, store_of};
use super::super::session::Patience;
use super::*;
use crate::live::round::Round;
use crate::live::subscription::{PatternSet, Subscription, TakenUpdate};

const T0: i64 = 1_790_000_000_000_000_000;
const S: i64 = 1_000_000_000;
const MS: i64 = 1_000_000;

/// Deck with a manual clock, and a viewer that takes updates.
struct Bench {
    deck: Deck,
    clock: Arc<AtomicI64>,
    wall: Arc<AtomicI64>,
    store: Arc<Store>,
    /// Store that the deck gets.
    given: Arc<Mutex<Arc<Store>>>,
    streams: Vec<StreamId>,
    viewer: Arc<Subscription>,
    taken: TakenUpdate,
    dir: tempfile::TempDir,
}

/// Update of one stream as a viewer gets it: stream, rows, first and last `time`, frames.
type Seen = (u32, (u64, u64), (i64, i64), u64);

impl Bench {
    /// Creates ten seconds of two streams, one with a frame every 100 ms, the other every second; values count up.
    fn new(interval: Range<i64>) -> Bench {
        Bench::of(2, interval)
    }

    /// Adds further streams, which are empty.
    fn of(streams: usize, interval: Range<i64>) -> Bench {
        let (store, streams, dir) = store_of(streams, options());
        let mut frames: Vec<_> = (0..100).map(|n| (streams[0], T0 + n * 100 * MS, n)).collect();
        frames.extend((0..10).map(|n| (streams[1], T0 + n * S, n)));
        append(&store, &frames);
        let store = Arc::new(store);
        let (clock, wall) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(T0 + 1_000 * S)));
        let given = Arc::new(Mutex::new(store.clone()));
        let (steady, own, machine_wall) = (clock.clone(), given.clone(), wall.clone());
        let machine = DeckHost {
            now: Box::new(move || Now {
                steady: steady.load(Ordering::Relaxed),
                wall: machine_wall.load(Ordering::Relaxed),
            }),
            store: Box::new(move || own.lock().clone()),
            gaps: Box::new(|_| Vec::new()),
        };
        let deck = Deck::new(machine, &Live::default(), interval, i64::MIN);
        let patterns = PatternSet::parse(vec!["*".to_owned()]).unwrap();
        let viewer = Arc::new(Subscription::new(1, patterns, Arc::new(Notify::new()), 0));
        Bench { deck, clock, wall, store, given, streams, viewer, taken: TakenUpdate::default(), dir }
    }

    fn watched(interval: Range<i64>) -> Bench {
        let mut bench = Bench::new(interval);
        bench.watch();
        bench
    }

    fn watch(&mut self) {
        let catalog = self.store.catalog();
        let mut found = self.viewer.find_new(&catalog.streams, None, Steps::of_look()).unwrap();
        let live = self.deck.live();
        live.add(self.viewer.clone());
        live.adopt(&self.viewer, &mut found, true, || self.store.clone());
        self.show();
    }

    /// Releases held streams, as a client does after the snapshot.
    fn show(&self) {
        let (round, held) = self.viewer.held();
        self.viewer.release(held.iter().map(|held| held.slot), round);
    }

    /// Advances the time and pumps the deck in steps of 10 ms.
    fn run(&mut self, ns: i64) {
        for _ in 0..ns / (10 * MS) {
            self.clock.fetch_add(10 * MS, Ordering::Relaxed);
            self.wall.fetch_add(10 * MS, Ordering::Relaxed);
            self.deck.pump();
        }
    }

    fn step(&mut self, wish: &ControlCommand) {
        self.deck.obey(wish).unwrap();
        while self.deck.is_stepping() {
            self.deck.pump();
        }
    }

    fn seen(&mut self) -> Vec<Seen> {
        self.viewer.begin(&mut self.taken);
        let mut seen = Vec::new();
        self.viewer.take(&mut self.taken, |place| {
            let window = &place.window;
            seen.push((place.stream.0, window.rows.unwrap(), window.time, window.frames));
        });
        seen
    }
}

#[test]
fn the_clock_says_what_is_played() {
    let mut bench = Bench::watched(T0..T0 + 10 * S);
    assert_eq!((bench.deck.at(), bench.seen().len()), (T0, 0));
    bench.run(450 * MS);
    assert_eq!(bench.deck.at(), T0 + 450 * MS);
    assert_eq!(bench.seen(), [(0, (0, 5), (T0, T0 + 400 * MS), 5), (1, (0, 1), (T0, T0), 1)]);
    bench.deck.obey(&ControlCommand::Speed(10.0)).unwrap();
    bench.run(100 * MS);
    assert_eq!(bench.deck.at(), T0 + 1_450 * MS);
    bench.deck.obey(&ControlCommand::Pause).unwrap();
    bench.run(S);
    assert_eq!(bench.deck.at(), T0 + 1_450 * MS);
    assert_eq!(bench.seen(), [(0, (5, 15), (T0 + 500 * MS, T0 + 1_400 * MS), 10), (1, (1, 2), (T0 + S, T0 + S), 1)]);
    bench.deck.obey(&ControlCommand::Play).unwrap();
    bench.run(100 * MS);
    assert_eq!(bench.deck.at(), T0 + 2_450 * MS);
    // The end: every frame was played once, and it stays there.
    bench.run(2 * S);
    assert!(bench.deck.is_ended());
    assert_eq!(bench.deck.at(), T0 + 10 * S);
    let frames: u64 = bench.seen().iter().map(|seen| seen.3).sum();
    assert_eq!(frames, 85 + 8);
    bench.deck.obey(&ControlCommand::Speed(0.1)).unwrap();
    bench.deck.obey(&ControlCommand::Seek(T0 + 9 * S)).unwrap();
    assert!(!bench.deck.is_ended());
    bench.run(S);
    assert_eq!(bench.deck.at(), T0 + 9_100 * MS);
}

#[test]
fn steps_go_frame_by_frame_in_the_order_of_time_and_stream() {
    let mut bench = Bench::watched(T0..T0 + 10 * S);
    let mut order = Vec::new();
    for _ in 0..13 {
        bench.step(&ControlCommand::StepFrames(1));
        let seen = bench.seen();
        assert_eq!((seen.len(), seen[0].3), (1, 1), "{seen:?}");
        assert_eq!(bench.deck.at(), seen[0].2.0);
        order.push((seen[0].0, seen[0].1.0));
    }
    let expected = [(0, 0), (1, 0)].into_iter().chain((1..=10).map(|row| (0, row))).chain([(1, 1)]);
    assert_eq!(order, expected.collect::<Vec<_>>());
    assert!(bench.deck.mode().1, "it is paused");
    bench.step(&ControlCommand::StepTime(250 * MS));
    assert_eq!(bench.deck.at(), T0 + 1_250 * MS);
    assert_eq!(bench.seen(), [(0, (11, 13), (T0 + 1_100 * MS, T0 + 1_200 * MS), 2)]);
    bench.step(&ControlCommand::StepFrames(10_000));
    assert!(bench.deck.is_ended());
    assert_eq!(bench.seen().iter().map(|seen| seen.3).sum::<u64>(), 87 + 8);
}

#[test]
fn frames_of_one_stream_and_time_are_one_step() {
    let mut bench = Bench::watched(T0 + 20 * S..T0 + 30 * S);
    let again: Vec<_> = (0..3).map(|n| (bench.streams[0], T0 + 21 * S, 1_000 + n)).collect();
    append(&bench.store, &again);
    append(&bench.store, &[(bench.streams[1], T0 + 21 * S, 1_000)]);
    bench.step(&ControlCommand::StepFrames(1));
    assert_eq!(bench.seen(), [(0, (100, 103), (T0 + 21 * S, T0 + 21 * S), 3)]);
    bench.step(&ControlCommand::StepFrames(1));
    assert_eq!(bench.seen(), [(1, (10, 11), (T0 + 21 * S, T0 + 21 * S), 1)]);
}

#[test]
fn a_step_needs_somebody_who_watches() {
    let mut bench = Bench::new(T0..T0 + 10 * S);
    assert!(matches!(bench.deck.obey(&ControlCommand::StepFrames(1)), Err(Refused::Bad(_))));
    // The clock runs all the same.
    bench.deck.obey(&ControlCommand::Play).unwrap();
    bench.run(S);
    assert_eq!(bench.deck.at(), T0 + S);
}

#[test]
fn who_joins_late_is_held_at_the_place_and_misses_nothing_behind_it() {
    let mut bench = Bench::new(T0..T0 + 10 * S);
    bench.run(1_050 * MS);
    bench.watch();
    bench.run(100 * MS);
    assert_eq!(bench.seen(), [(0, (11, 12), (T0 + 1_100 * MS, T0 + 1_100 * MS), 1)]);
    // Another viewer does not disturb the first.
    let patterns = PatternSet::parse(vec!["s1.*".to_owned()]).unwrap();
    let other = Arc::new(Subscription::new(2, patterns, Arc::new(Notify::new()), 0));
    let catalog = bench.store.catalog();
    let mut found = other.find_new(&catalog.streams, None, Steps::of_look()).unwrap();
    bench.deck.live().add(other.clone());
    bench.deck.live().adopt(&other, &mut found, true, || bench.store.clone());
    let (_, held) = other.held();
    assert_eq!(
        (held.len(), held[0].since, found[0].end_time),
        (1, FramePosition::after(T0 + 1_150 * MS), T0 + 1_150 * MS + 1)
    );
    bench.run(S);
    let frames: u64 = bench.seen().iter().map(|seen| seen.3).sum();
    assert_eq!(frames, 10 + 1);
}

#[test]
fn a_seek_takes_away_what_was_not_shown_and_holds_what_comes() {
    let mut bench = Bench::watched(T0..T0 + 10 * S);
    bench.run(300 * MS);
    bench.deck.obey(&ControlCommand::Seek(T0 + 5 * S)).unwrap();
    assert_eq!((bench.deck.round(), *bench.deck.live().rounds().borrow()), (1, Round { number: 1, at: T0 + 5 * S }));
    bench.run(150 * MS);
    assert_eq!(bench.seen(), [], "the client was not told of the jump");
    let (round, held) = bench.viewer.held();
    assert_eq!((round.number, held.len(), held[0].since), (1, 2, FramePosition::after(T0 + 5 * S)));
    // A release from before another jump has no effect.
    bench.viewer.release([0, 1], Round::default());
    assert_eq!(bench.seen(), []);
    bench.show();
    // The frame at the time itself is in the snapshot.
    assert_eq!(bench.seen(), [(0, (51, 52), (T0 + 5_100 * MS, T0 + 5_100 * MS), 1)]);
    assert!(bench.deck.obey(&ControlCommand::Seek(T0 - 1)).is_err());
    // To the start: the frames there are played.
    bench.deck.obey(&ControlCommand::Seek(T0)).unwrap();
    bench.show();
    bench.run(10 * MS);
    assert_eq!(bench.seen(), [(0, (0, 1), (T0, T0), 1), (1, (0, 1), (T0, T0), 1)]);
}

#[test]
fn a_loop_begins_again_when_the_viewers_have_seen_its_end() {
    let mut bench = Bench::watched(T0..T0 + 500 * MS);
    bench.deck.obey(&ControlCommand::Loop(true)).unwrap();
    bench.run(600 * MS);
    assert!(!bench.deck.is_ended());
    assert_eq!((bench.deck.round(), bench.deck.at()), (0, T0 + 500 * MS));
    assert!(bench.viewer.is_hurried(), "what waits leaves at once");
    assert_eq!(bench.seen().iter().map(|seen| seen.3).sum::<u64>(), 6);
    bench.run(10 * MS);
    assert_eq!((bench.deck.round(), bench.deck.at()), (1, T0));
    // The viewer was not told of the jump yet, so the loop waits for it.
    bench.run(700 * MS);
    assert_eq!((bench.deck.round(), bench.deck.at()), (1, T0 + 500 * MS));
    bench.show();
    assert_eq!(bench.seen().iter().map(|seen| seen.3).sum::<u64>(), 6);
    bench.run(20 * MS);
    assert_eq!(bench.deck.round(), 2);
    bench.show();
    // The loop does not wait forever for a viewer that takes nothing.
    bench.run(3 * S);
    assert!(bench.deck.round() >= 3);
    bench.show();
    bench.run(100 * MS);
    bench.viewer.begin(&mut bench.taken);
    assert!(bench.taken.dropped >= 1);
    bench.viewer.take(&mut bench.taken, |_| {});
    bench.deck.obey(&ControlCommand::Loop(false)).unwrap();
    bench.run(S);
    assert!(bench.deck.is_ended());
}

#[test]
fn the_interval_can_be_another() {
    let mut bench = Bench::watched(T0..T0 + 10 * S);
    bench.run(2 * S);
    bench.deck.obey(&ControlCommand::Interval(None, Some(T0 + 3 * S))).unwrap();
    assert_eq!((bench.deck.round(), bench.deck.at()), (0, T0 + 2 * S));
    bench.deck.obey(&ControlCommand::Interval(Some(T0 + 5 * S), Some(T0 + 6 * S))).unwrap();
    assert_eq!((bench.deck.round(), bench.deck.at()), (1, T0 + 5 * S));
    bench.show();
    bench.run(2 * S);
    assert_eq!(bench.seen().iter().map(|seen| seen.3).sum::<u64>(), 10 + 1);
    for bad in [(Some(T0 + 6 * S), None), (Some(T0), Some(T0)), (None, Some(i64::MAX)), (Some(i64::MIN), None)] {
        assert!(bench.deck.obey(&ControlCommand::Interval(bad.0, bad.1)).is_err(), "{bad:?}");
    }
    assert_eq!(*bench.deck.interval(), T0 + 5 * S..T0 + 6 * S);
}

#[test]
fn an_interval_that_is_longer_than_it_was_is_played_on_from_its_end_at_its_speed() {
    let mut bench = Bench::watched(T0..T0 + 2 * S);
    bench.run(5 * S);
    assert!(bench.deck.is_ended());
    assert_eq!(bench.seen().iter().map(|seen| seen.3).sum::<u64>(), 20 + 2);
    bench.deck.obey(&ControlCommand::Interval(None, Some(T0 + 10 * S))).unwrap();
    bench.run(450 * MS);
    assert_eq!((bench.deck.round(), bench.deck.at()), (0, T0 + 2_450 * MS));
    assert_eq!(bench.seen().iter().map(|seen| seen.3).sum::<u64>(), 5 + 1);
    // A running playback continues unchanged.
    bench.deck.obey(&ControlCommand::Interval(None, Some(T0 + 9 * S))).unwrap();
    bench.run(100 * MS);
    assert_eq!(bench.deck.at(), T0 + 2_550 * MS);
}

#[test]
fn what_has_not_come_yet_is_followed() {
    let mut bench = Bench::watched(T0 + 100 * S..T0 + 200 * S);
    bench.wall.store(T0 + 102 * S, Ordering::Relaxed);
    bench.deck.obey(&ControlCommand::Speed(1_000.0)).unwrap();
    append(&bench.store, &[(bench.streams[0], T0 + 100 * S + 500 * MS, 1)]);
    bench.run(100 * MS);
    assert_eq!(bench.seen().len(), 1);
    assert!(!bench.deck.is_behind() && !bench.deck.is_ended());
    let at = bench.deck.at();
    assert!((T0 + 101 * S - 300 * MS..=T0 + 101 * S + 100 * MS).contains(&at), "{}", at - T0);
    for n in 0..20 {
        // Live data: stamped now, seen a second later.
        let now = bench.wall.load(Ordering::Relaxed);
        append(&bench.store, &[(bench.streams[0], now, 100 + n)]);
        bench.run(100 * MS);
    }
    bench.run(1_300 * MS);
    assert_eq!(bench.seen().iter().map(|seen| seen.3).sum::<u64>(), 20);
    // The deck waits if nothing arrives for long.
    bench.deck.obey(&ControlCommand::Seek(T0 + 150 * S)).unwrap();
    bench.run(S);
    assert_eq!(bench.deck.at(), T0 + 150 * S);
}

#[test]
fn frames_that_come_too_late_to_be_followed_are_told_of_once() {
    let mut bench = Bench::watched(T0 + 100 * S..T0 + 200 * S);
    bench.wall.store(T0 + 105 * S, Ordering::Relaxed);
    bench.deck.obey(&ControlCommand::Speed(1_000.0)).unwrap();
    bench.run(S);
    // Before the start, and ahead of what was played: neither is left out.
    append(&bench.store, &[(bench.streams[0], T0 + 99 * S, 1), (bench.streams[0], T0 + 106 * S, 2)]);
    bench.run(S);
    assert_eq!(bench.deck.take_told(), Vec::<String>::new());
    append(&bench.store, &[(bench.streams[0], T0 + 102 * S, 3)]);
    bench.run(S);
    let told = bench.deck.take_told();
    assert!(told.len() == 1 && told[0].contains("s0") && told[0].contains("too late"), "{told:?}");
    append(&bench.store, &[(bench.streams[0], T0 + 103 * S, 4), (bench.streams[1], T0 + 103 * S, 5)]);
    bench.run(S);
    let told = bench.deck.take_told();
    assert!(told.len() == 1 && told[0].contains("s1"), "{told:?}");
    assert_eq!(bench.seen().iter().map(|seen| seen.3).sum::<u64>(), 1);
    // After going back they are shown.
    bench.deck.obey(&ControlCommand::Seek(T0 + 101 * S)).unwrap();
    bench.show();
    bench.run(S);
    assert_eq!(bench.seen().iter().map(|seen| seen.3).sum::<u64>(), 4);
    assert_eq!(bench.deck.take_told(), Vec::<String>::new());
}

#[test]
fn late_frames_of_very_many_streams_are_summed_up_and_leave_room_for_troubles() {
    let mut bench = Bench::of(LATE_TOLD_MAX + 5, T0 + 100 * S..T0 + 200 * S);
    bench.watch();
    bench.wall.store(T0 + 105 * S, Ordering::Relaxed);
    bench.deck.obey(&ControlCommand::Speed(1_000.0)).unwrap();
    bench.run(S);
    for (value, expected) in [(1, LATE_TOLD_MAX + 1), (2, 0)] {
        let late: Vec<_> = bench.streams.iter().map(|stream| (*stream, T0 + 102 * S, value)).collect();
        append(&bench.store, &late);
        bench.run(S);
        let told = bench.deck.take_told();
        assert_eq!(told.len(), expected, "{told:?}");
        assert!(told.last().is_none_or(|last| last.contains("further streams")), "{told:?}");
    }
    bench.deck.tell_once("what cannot be read".to_owned());
    assert_eq!(bench.deck.take_told(), ["what cannot be read"]);
}

#[test]
fn what_cannot_be_read_in_time_is_behind_and_nothing_is_left_out() {
    let mut bench = Bench::watched(T0..T0 + 10 * S);
    // Each read of the clock takes 30 ms, so a turn ends after a few frames.
    let clock = bench.clock.clone();
    let wall = bench.wall.load(Ordering::Relaxed);
    bench.deck.machine.now = Box::new(move || Now { steady: clock.fetch_add(30 * MS, Ordering::Relaxed), wall });
    bench.deck.obey(&ControlCommand::Speed(1_000.0)).unwrap();
    let mut frames = 0;
    let mut behind = false;
    for _ in 0..1_000 {
        bench.deck.pump();
        behind |= bench.deck.is_behind();
        frames += bench.seen().iter().map(|seen| seen.3).sum::<u64>();
    }
    assert!(behind && bench.deck.is_ended());
    assert_eq!(frames, 110);
}

#[test]
fn a_view_that_is_too_old_is_replaced() {
    let mut bench = Bench::watched(T0..T0 + 10 * S);
    bench.deck.obey(&ControlCommand::Speed(0.1)).unwrap();
    for n in 0..100 {
        bench.run(S);
        append(&bench.store, &[(bench.streams[0], T0 - S, n)]);
        bench.store.commit(T0 + (500 + n) * S).unwrap();
        assert_eq!(bench.deck.take_told(), Vec::<String>::new());
    }
    assert_eq!(bench.seen().iter().map(|seen| seen.3).sum::<u64>(), 110);
}

#[test]
fn a_store_that_is_opened_anew_is_read_on() {
    let mut bench = Bench::watched(T0..T0 + 10 * S);
    bench.run(5 * S);
    bench.store.close(T0 + 600 * S).unwrap();
    // Rows that were read remain valid meanwhile.
    bench.run(S);
    let again = Arc::new(Store::open(bench.dir.path(), options(), T0 + 601 * S).unwrap());
    *bench.given.lock() = again.clone();
    bench.run(5 * S);
    assert!(bench.deck.is_ended());
    assert_eq!(bench.seen().iter().map(|seen| seen.3).sum::<u64>(), 110);
    assert_eq!(bench.taken.epoch, again.epoch());
    assert_eq!(bench.taken.rewound, []);
    assert_eq!(bench.deck.take_told(), Vec::<String>::new());
}

#[test]
fn what_expires_under_it_is_told_and_the_rest_is_played() {
    let small = StoreOptions { segment_bytes: 64 << 10, max_bytes: Some(4 << 20), ..options() };
    let (store, streams, _dir) = store_of(2, small);
    let mut random = fastrand::Rng::with_seed(5);
    // Incompressible values, so that segments fill; the second stream is quiet.
    let mut frames: Vec<_> = (0..40_000).map(|n| (streams[0], T0 + n * MS, random.i64(..))).collect();
    append(&store, &frames);
    append(&store, &[(streams[1], T0 + 39 * S, 7)]);
    let mut bench = Bench::watched(T0..T0 + 40 * S);
    bench.deck = {
        let (steady, wall, store) = (bench.clock.clone(), bench.wall.clone(), Arc::new(store));
        bench.store = store.clone();
        let machine = DeckHost {
            now: Box::new(move || Now { steady: steady.load(Ordering::Relaxed), wall: wall.load(Ordering::Relaxed) }),
            store: Box::new(move || store.clone()),
            gaps: Box::new(|_| Vec::new()),
        };
        Deck::new(machine, &Live::default(), T0..T0 + 40 * S, T0)
    };
    bench.viewer =
        Arc::new(Subscription::new(1, PatternSet::parse(vec!["*".to_owned()]).unwrap(), Arc::new(Notify::new()), 0));
    bench.watch();
    bench.run(S);
    let before: u64 = bench.seen().iter().map(|seen| seen.3).sum();
    assert!((900..=1_010).contains(&before), "{before}");
    // All of it expires while it is played.
    for _ in 0..12 {
        for frame in &mut frames {
            frame.1 += 100 * S;
        }
        append(&bench.store, &frames);
        while bench.store.maintain(T0 + 500 * S).unwrap() {}
    }
    assert!(bench.store.stats().segments > 0);
    bench.deck.obey(&ControlCommand::Speed(100.0)).unwrap();
    bench.run(2 * S);
    assert!(bench.deck.is_ended(), "{}", bench.deck.at() - T0);
    let after: u64 = bench.seen().iter().map(|seen| seen.3).sum();
    assert!(before + after < 40_000, "{after}");
    let told = bench.deck.take_told();
    assert!(told.iter().any(|text| text.contains("expired") && text.contains("s0")), "{told:?}");
    // New frames are played again.
    append(&bench.store, &[(streams[0], T0 + 39 * S + 1, 1)]);
    bench.deck.obey(&ControlCommand::Seek(T0 + 39 * S)).unwrap();
    bench.show();
    bench.run(100 * MS);
    assert_eq!(bench.seen().iter().map(|seen| seen.3).sum::<u64>(), 1);
}

#[test]
fn nobody_there_for_five_minutes_ends_it() {
    let mut patience = Patience::new(0);
    assert!(!patience.is_over(false, 299 * S));
    assert!(!patience.is_over(true, 299 * S));
    assert!(!patience.is_over(false, 598 * S));
    assert!(patience.is_over(false, 599 * S));
}
