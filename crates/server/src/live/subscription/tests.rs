use std::sync::Arc;

use strongback_store::{
    Appended, ChannelSpec, ChannelType, Clock, CommitNumber, FrameBatch, FrameHead, Outcome, Refusal, Reject, Store,
    StoreOptions, StreamKey, StreamSpec,
};
use tokio::sync::Notify;

use super::*;
use crate::live::Live;
use proptest::prelude::*;

const T0: i64 = 1_790_000_000_000_000_000;
const MS: i64 = 1_000_000;
const CHANNELS: u16 = 12;

/// Stream of twelve channels and a text, without subscriptions.
struct Stage {
    live: Live,
    store: Arc<Store>,
    stream: Arc<Stream>,
    _dir: tempfile::TempDir,
}

impl Stage {
    fn new() -> Stage {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(dir.path(), StoreOptions::default(), T0).unwrap());
        let spec = StreamSpec {
            key: StreamKey::new("bay", []),
            source: "test".to_owned(),
            clock: Clock::Source,
            expected_period_ns: None,
            sequence_modulus: None,
            channels: (0..CHANNELS)
                .map(|n| ChannelSpec::new(format!("c{n:02}"), ChannelType::F64))
                .chain([ChannelSpec::new("text", ChannelType::String)])
                .collect(),
        };
        let stream = store.resolve(&spec, T0).unwrap().0;
        Stage { live: Live::default(), store, stream, _dir: dir }
    }

    /// Subscribes to every `step`-th channel.
    fn subscribe(&self, step: usize) -> Arc<Subscription> {
        self.subscribe_to((0..CHANNELS).step_by(step).map(|n| format!("bay.c{n:02}")).collect())
    }

    fn subscribe_to(&self, wanted: Vec<String>) -> Arc<Subscription> {
        let patterns = PatternSet::parse(wanted).unwrap();
        let subscription = Arc::new(Subscription::new(1, patterns, Arc::new(Notify::new()), 0));
        let mut found = [subscription.find(&self.stream, 0, None, &mut Steps::of_look()).unwrap().unwrap()];
        self.live.add(subscription.clone());
        self.live.adopt(&subscription, &mut found, false, || self.store.clone());
        subscription
    }

    /// Publishes a frame with these cells in this order, and an unsubscribed text of `text_bytes` bytes.
    fn frame(&self, row: u64, at: i64, cells: impl Iterator<Item = u16>, text_bytes: usize) {
        self.frame_behind(0, row, at, cells, text_bytes);
    }

    /// Publishes a frame; `lost` frames are known lost by then.
    fn frame_behind(&self, lost: u64, row: u64, at: i64, cells: impl Iterator<Item = u16>, text_bytes: usize) {
        let mut batch = FrameBatch::new();
        batch.begin(FrameHead { stream: self.stream.id, receive_time: at, source_time: Some(at), sequence: None });
        for channel in cells {
            batch.push(ChannelIndex(channel), Value::F64(row as f64 * 100.0 + f64::from(channel)));
        }
        if text_bytes > 0 {
            batch.push(ChannelIndex(CHANNELS), Value::String(&"x".repeat(text_bytes)));
        }
        batch.end();
        let appended = Appended { outcomes: vec![Outcome::Stored { row }], commit: CommitNumber(0) };
        self.live.fanout().publish(&batch, &appended, at, |_| lost);
    }
}

/// Takes the update that was begun, as JSON.
fn written(subscription: &Arc<Subscription>, taken: &mut TakenUpdate) -> String {
    let mut out = Vec::new();
    subscription.take(taken, |window| window.write(&mut out, 0));
    String::from_utf8(out).unwrap()
}

/// Subscription to every third channel, and whether it woke its connection.
struct Bench {
    stage: Stage,
    subscription: Arc<Subscription>,
    stream: StreamId,
    taken: TakenUpdate,
    /// Update taken when it was due.
    told: String,
}

impl Bench {
    fn new() -> Bench {
        let stage = Stage::new();
        let (subscription, stream) = (stage.subscribe(3), stage.stream.id);
        Bench { stage, subscription, stream, taken: TakenUpdate::default(), told: String::new() }
    }

    /// Publishes a frame with the cells of these channels in this order.
    fn frame(&self, row: u64, at: i64, cells: impl Iterator<Item = u16>) {
        self.stage.frame(row, at, cells, 0);
    }

    fn due(&mut self, at: i64, overdue_ns: i64, paced_ns: Option<i64>) -> Due {
        let due = self.subscription.take_due(&UpdateTurn { now: at, overdue_ns, paced_ns }, &mut self.taken);
        if due == Due::Now {
            self.told = self.json();
        }
        due
    }

    fn has_woken(&self) -> bool {
        let mut woken = std::pin::pin!(self.subscription.wake.notified());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        woken.as_mut().poll(&mut context).is_ready()
    }

    fn json(&mut self) -> String {
        written(&self.subscription, &mut self.taken)
    }
}

#[test]
fn frames_in_place_and_in_any_order_give_the_same_windows() {
    let orders: [fn(u16) -> Vec<u16>; 3] =
        [|n| (0..n).collect(), |n| (0..n).rev().collect(), |n| (0..n).map(|i| i * 5 % 12).collect()];
    let told = orders.map(|order| {
        let mut bench = Bench::new();
        for row in 0..7 {
            bench.frame(row, T0 + row as i64 * MS, order(CHANNELS).into_iter());
        }
        // The first channels alone are at their indexes, too; the others have no value in this frame.
        bench.frame(7, T0 + 7 * MS, order(4).into_iter().filter(|i| *i < 4));
        bench.subscription.begin(&mut bench.taken);
        bench.json()
    });
    assert!(told[0].contains("[0,8,0.0,700.0,0.0,700.0,350.0]"), "{}", told[0]);
    assert!(told[0].contains("[9,7,9.0,609.0,9.0,609.0,309.0]"), "{}", told[0]);
    assert_eq!(told[0], told[1]);
    // Its last frame has channels 3 and 0 as well.
    assert_eq!(told[0], told[2]);
}

#[test]
fn a_view_is_woken_once_and_not_before_its_time() {
    let mut bench = Bench::new();
    let period = Some(200 * MS);
    assert_eq!((bench.due(T0, 0, period), bench.has_woken()), (Due::Nothing, false));
    bench.frame(0, T0, 0..CHANNELS);
    assert!(bench.has_woken());
    assert_eq!(bench.due(T0, 0, period), Due::Now);
    // Until its next due time the connection sleeps, whatever arrives.
    for row in 1..5 {
        bench.frame(row, T0 + row as i64 * 40 * MS, 0..CHANNELS);
        assert!(!bench.has_woken(), "row {row}");
    }
    assert_eq!(bench.due(T0 + 170 * MS, -30 * MS, period), Due::AtItsTime);
    // Due between two frames: the next one wakes it.
    let Due::After(wait) = bench.due(T0 + 195 * MS, 0, period) else { panic!("it waits for the frame") };
    assert!(wait > Duration::from_millis(5), "{wait:?}");
    bench.frame(5, T0 + 200 * MS, 0..CHANNELS);
    assert!(bench.has_woken());
    assert_eq!(bench.due(T0 + 200 * MS, 5 * MS, period), Due::Now);
    assert!(bench.told.contains("\"from_row\":\"1\",\"to_row\":\"6\""));
    // Nothing arrived by the due time: the first frame wakes it and is sent.
    assert_eq!(bench.due(T0 + 300 * MS, -95 * MS, period), Due::AtItsTime);
    assert_eq!(bench.due(T0 + 400 * MS, 0, period), Due::Nothing);
    bench.frame(6, T0 + 900 * MS, 0..CHANNELS);
    assert!(bench.has_woken());
    assert_eq!(bench.due(T0 + 900 * MS, 500 * MS, period), Due::Now);
}

#[test]
fn without_a_rate_each_frame_wakes() {
    let mut bench = Bench::new();
    for row in 0..3 {
        bench.frame(row, T0 + row as i64 * MS, 0..CHANNELS);
        assert!(bench.has_woken(), "row {row}");
        assert_eq!(bench.due(T0 + row as i64 * MS, -1, None), Due::AtItsTime);
        assert_eq!(bench.due(T0 + row as i64 * MS, 0, None), Due::Now);
        assert_eq!(bench.due(T0 + row as i64 * MS, -MS, None), Due::Nothing);
    }
}

#[test]
fn what_is_hurried_or_went_back_does_not_wait() {
    let mut bench = Bench::new();
    let period = Some(200 * MS);
    bench.frame(0, T0, 0..CHANNELS);
    assert_eq!(bench.due(T0, -MS, period), Due::AtItsTime);
    assert!(bench.subscription.hurry() && bench.has_woken());
    assert_eq!(bench.due(T0, -MS, period), Due::Now);
    assert!(!bench.subscription.hurry(), "nothing waits");
    for row in 1..5 {
        bench.frame(row, T0 + row as i64 * 40 * MS, 0..CHANNELS);
    }
    bench.subscription.rewind(1, |_| 0);
    assert_eq!(bench.due(T0 + 195 * MS, 0, period), Due::Now, "no frame is waited for");
    assert_eq!((bench.taken.epoch, bench.taken.rewound.as_slice()), (1, &[(bench.stream, 0)][..]));
}

/// Test action on subscriptions.
#[derive(Clone, Debug)]
enum Step {
    /// New frame, with a text of this many bytes.
    Frame(usize),
    /// Update taken by the subscription at this index, modulo their number.
    Take(usize),
    /// New subscription to every n-th channel.
    Subscribe(usize),
    /// End of the subscription at this index.
    Remove(usize),
    /// Rewind of the store by this many rows.
    Rewind(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => Just(Step::Frame(0)),
        // A tail holds eight of these, and none of the larger ones.
        3 => Just(Step::Frame(15_000)),
        1 => Just(Step::Frame(20_000)),
        6 => (0..8_usize).prop_map(Step::Take),
        1 => (1..5_usize).prop_map(Step::Subscribe),
        1 => (0..8_usize).prop_map(Step::Remove),
        1 => (0..4_u64).prop_map(Step::Rewind),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whichever order subscriptions take in, each window holds the frames since its previous one.
    #[test]
    fn each_subscription_sees_each_frame_once(steps in steps()) {
        let stage = Stage::new();
        let (mut row, mut epoch) = (0, 0);
        // Each subscription with its expected window.
        let mut all: Vec<(Arc<Subscription>, usize, TakenUpdate, StreamWindow)> = Vec::new();
        for (at, step) in (0..).map(|n| T0 + n * MS).zip(steps) {
            match step {
                Step::Subscribe(step) => {
                    all.push((stage.subscribe(step), step, TakenUpdate::default(), StreamWindow::default()));
                }
                Step::Frame(text_bytes) => {
                    stage.frame(row, at, 0..CHANNELS, text_bytes);
                    for (subscription, step, _, window) in &mut all {
                        prop_assert!(subscription.is_dirty());
                        window.begin(at, at, Some(row));
                        window.channels.resize_with((CHANNELS as usize).div_ceil(*step), Default::default);
                        for (channel, index) in window.channels.iter_mut().zip((0..CHANNELS).step_by(*step)) {
                            channel.add(Value::F64(row as f64 * 100.0 + f64::from(index)));
                        }
                    }
                    row += 1;
                }
                Step::Rewind(rows) => {
                    (row, epoch) = (row.saturating_sub(rows), epoch + 1);
                    Live::rewind(&mut stage.live.fanout(), epoch, |_| row, |_| 0);
                    all.iter_mut().for_each(|(.., window)| window.rewind(row));
                }
                Step::Take(place) | Step::Remove(place) if !all.is_empty() => {
                    let place = place % all.len();
                    let (subscription, _, taken, window) = &mut all[place];
                    let channels = subscription.pending().slots[0].channels.clone();
                    subscription.begin(taken);
                    let mut expected = Vec::new();
                    if !window.is_empty() {
                        let window = std::mem::take(window);
                        TakenWindow { stream: stage.stream.id, window, channels }.write(&mut expected, 0);
                    }
                    prop_assert_eq!(written(subscription, taken), String::from_utf8(expected).unwrap());
                    taken.rewound.clear();
                    if matches!(step, Step::Remove(_)) {
                        stage.live.remove(subscription);
                        all.swap_remove(place);
                    }
                }
                Step::Take(_) | Step::Remove(_) => {}
            }
        }
    }
}

/// Applies both to frames in a tail and to those too large for one.
#[test]
fn a_long_text_is_held_once_however_many_windows_show_it() {
    let stage = Stage::new();
    let all: Vec<Arc<Subscription>> = (0..3).map(|_| stage.subscribe_to(vec!["bay.text".to_owned()])).collect();
    for (row, bytes) in (0..).zip([300, 20_000, 100, 20_000, 300]) {
        stage.frame(row, T0 + row as i64 * MS, 0..CHANNELS, bytes);
        let last = |subscription: &Arc<Subscription>| {
            subscription.catch_up(0);
            let pending = subscription.pending();
            let (first, last) = pending.slots[0].window.channels[0].texts().unwrap();
            assert_eq!((first.len(), last), (300, &*"x".repeat(bytes)));
            (first.as_ptr() as usize, last.as_ptr() as usize)
        };
        let held: Vec<(usize, usize)> = all.iter().map(last).collect();
        let is_shared = held.iter().all(|(first, last)| *first == held[0].0 && *last == held[0].1);
        assert_eq!(is_shared, bytes > 256, "{bytes} bytes: {held:?}");
    }
}

/// A loss is reported with the frame that shows it: the first one after subscribing or after the store was reopened,
/// or a later one.
#[test]
fn the_frame_that_shows_a_loss_tells_of_it_whichever_it_is() {
    let mut bench = Bench::new();
    let gap_at = |bench: &mut Bench, lost: u64, row: u64| {
        let at = T0 + row as i64 * MS;
        bench.stage.frame_behind(lost, row, at, 0..CHANNELS, 0);
        bench.subscription.begin(&mut bench.taken);
        bench.taken.rewound.clear();
        bench.json().contains("\"gap\":true")
    };
    assert!(gap_at(&mut bench, 3, 0));
    assert!(!gap_at(&mut bench, 3, 1));
    // A loss in the previous store is not one before the next frame.
    Live::rewind(&mut bench.stage.live.fanout(), 1, |_| 2, |_| 5);
    assert!(gap_at(&mut bench, 9, 2));
    assert!(!gap_at(&mut bench, 9, 3));
    Live::rewind(&mut bench.stage.live.fanout(), 2, |_| 4, |_| 11);
    assert!(!gap_at(&mut bench, 11, 4));
    assert!(gap_at(&mut bench, 12, 5));
}

/// Window buffers move between streams as they are taken.
#[test]
fn the_memory_of_a_wide_window_does_not_stay_with_narrow_streams() {
    const WIDE: usize = 1000;
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(dir.path(), StoreOptions::default(), T0).unwrap());
    let stream = |n: usize, channels: usize| {
        let spec = StreamSpec {
            key: StreamKey::new("bay", [("n".to_owned(), n.to_string())]),
            source: "test".to_owned(),
            clock: Clock::Receive,
            expected_period_ns: None,
            sequence_modulus: None,
            channels: (0..channels).map(|n| ChannelSpec::new(format!("c{n}"), ChannelType::F64)).collect(),
        };
        store.resolve(&spec, T0).unwrap().0
    };
    let streams: Vec<Arc<Stream>> = (0..20).map(|n| stream(n, if n == 7 { WIDE } else { 2 })).collect();
    let live = Live::default();
    let patterns = PatternSet::parse(vec!["bay.*".to_owned()]).unwrap();
    let subscription = Arc::new(Subscription::new(1, patterns, Arc::new(Notify::new()), 0));
    let mut found = subscription.find_new(&store.catalog().streams, None, Steps::of_look()).unwrap();
    live.add(subscription.clone());
    live.adopt(&subscription, &mut found, false, || store.clone());
    let mut taken = TakenUpdate::default();
    for row in 0..60 {
        for stream in &streams {
            let mut batch = FrameBatch::new();
            batch.begin(FrameHead { stream: stream.id, receive_time: T0, source_time: None, sequence: None });
            (0..stream.layout.channels.len() as u16).for_each(|n| batch.push(ChannelIndex(n), Value::F64(1.0)));
            batch.end();
            let appended = Appended { outcomes: vec![Outcome::Stored { row }], commit: CommitNumber(0) };
            live.fanout().publish(&batch, &appended, T0, |_| 0);
        }
        subscription.begin(&mut taken);
        let mut told = 0;
        subscription.take(&mut taken, |window| told += window.window.channels.len());
        assert_eq!(told, WIDE + 19 * 2);
        let pending = subscription.pending();
        for slot in &pending.slots {
            let (capacity, channels) = (slot.window.channels.capacity(), slot.channels.len());
            assert!(capacity <= 2 * channels.max(4), "{capacity} for {channels} channels, at row {row}");
        }
    }
}

#[test]
fn tables_are_counted_up_to_the_last_channel_that_is_wanted() {
    let stage = Stage::new();
    let subscription = stage.subscribe_to(vec!["bay.c03".to_owned(), "bay.text".to_owned()]);
    let found = |slot: u32, channels: &[u16]| Match {
        stream: stage.stream.clone(),
        channels: channels.to_vec(),
        slot,
        new_stream: slot == u32::MAX,
        start_row: 0,
        end_time: i64::MAX,
        lacks_before: false,
    };
    let new = |channels: &[u16]| subscription.table_bytes(&[found(u32::MAX, channels)]);
    assert_eq!((new(&[0]), new(&[3, 12]), new(&[])), (4, 52, 0));
    // Its table extends to channel 12.
    let more = |channels: &[u16]| subscription.table_bytes(&[found(0, channels)]);
    assert_eq!((more(&[4]), more(&[13, 14])), (0, 8));
    let narrow = stage.subscribe_to(vec!["bay.c00".to_owned()]);
    // A stream that grows adds nothing if none of its new channels is wanted.
    narrow.refresh(&stage.stream);
    assert_eq!(narrow.table_bytes(&[found(0, &[1])]), 4);
}

/// A gap of refused frames ends with the last refused frame; a gap in the sequence ends with the frame that shows it.
#[test]
fn who_comes_back_is_told_of_frames_refused_before_the_first_that_it_missed() {
    let stage = Stage::new();
    for row in 0..6 {
        let mut batch = FrameBatch::new();
        let at = T0 + 10 * row * MS;
        batch.begin(FrameHead { stream: stage.stream.id, receive_time: at, source_time: Some(at), sequence: None });
        batch.push(ChannelIndex(0), Value::F64(1.0));
        batch.end();
        stage.store.append(&batch, at);
    }
    let view = stage.store.view();
    let gap_of = |row: u64, (from, to): (i64, i64)| {
        let patterns = PatternSet::parse(vec!["bay.c00".to_owned()]).unwrap();
        let subscription = Arc::new(Subscription::new(1, patterns, Arc::new(Notify::new()), 0));
        let mut found = [subscription.find(&stage.stream, 0, None, &mut Steps::of_look()).unwrap().unwrap()];
        stage.live.adopt(&subscription, &mut found, true, || stage.store.clone());
        let (from, to) = (T0 + from * MS, T0 + to * MS);
        let gaps = |_: StreamId, time: &std::ops::Range<i64>| match from < time.end && to >= time.start {
            true => vec![(from, to)],
            false => Vec::new(),
        };
        let missed = found.iter().map(|found| (found, row));
        crate::live::snapshot::catch_up((&view, stage.store.epoch()), &subscription, missed, &gaps).unwrap();
        let pending = subscription.pending();
        let window = &pending.slots[0].window;
        assert_eq!(window.rows, Some((row, 6)));
        window.gap
    };
    // Between rows 2 and 3, at 20 and 30 ms.
    assert!(gap_of(3, (22, 28)) && gap_of(2, (22, 28)));
    assert!(!gap_of(4, (22, 28)));
    // Shown by row 3, or by the row before, which the client was told of.
    assert!(gap_of(3, (20, 30)) && !gap_of(3, (10, 20)) && !gap_of(4, (20, 30)));
    // There is no row before the first.
    assert!(gap_of(0, (-5, 0)) && !gap_of(0, (-5, -1)));
}

/// Refused frames have no rows, and the ledger has no row of them until the store accepts frames again.
#[test]
fn who_comes_back_is_told_of_frames_refused_since_the_newest_row() {
    let stage = Stage::new();
    let publish = |outcome: Outcome, at: i64| {
        let mut batch = FrameBatch::new();
        batch.begin(FrameHead { stream: stage.stream.id, receive_time: at, source_time: Some(at), sequence: None });
        batch.push(ChannelIndex(0), Value::F64(1.0));
        batch.end();
        let appended = Appended { outcomes: vec![outcome], commit: CommitNumber(0) };
        stage.live.fanout().publish(&batch, &appended, at, |_| 3);
    };
    let gaps = |subscription: &Arc<Subscription>| {
        let (mut taken, mut gaps) = (TakenUpdate::default(), Vec::new());
        subscription.begin(&mut taken);
        subscription.take(&mut taken, |place| gaps.push(place.window.gap));
        gaps
    };
    // Losses are counted only for streams with a subscriber.
    let other = stage.subscribe(1);
    publish(Outcome::Stored { row: 0 }, T0);
    publish(Outcome::Rejected(Reject::Refused(Refusal::Closed)), T0 + MS);
    let back = stage.subscribe(1);
    publish(Outcome::Stored { row: 1 }, T0 + 2 * MS);
    assert_eq!(gaps(&back), [true]);
    publish(Outcome::Stored { row: 2 }, T0 + 3 * MS);
    assert_eq!(gaps(&back), [false]);
    let later = stage.subscribe(1);
    publish(Outcome::Stored { row: 3 }, T0 + 4 * MS);
    assert_eq!((gaps(&later), gaps(&other).len()), (vec![false], 1));
}

/// The row of a loss is written up to a second after the frame that shows it; until then its sequence shows the loss.
#[test]
fn who_comes_back_is_told_of_frames_whose_gap_has_no_row_yet() {
    let stage = Stage::new();
    let spec = StreamSpec {
        key: StreamKey::new("counted", []),
        sequence_modulus: Some(1 << 32),
        channels: vec![ChannelSpec::new("c00", ChannelType::F64)],
        source: "test".into(),
        clock: Clock::Receive,
        expected_period_ns: None,
    };
    let (stream, _) = stage.store.resolve(&spec, T0).unwrap();
    let mut at = T0;
    // Two frames are swapped, three are missing before row 5, and the one missing before row 7 arrives last.
    for sequence in [0, 2, 1, 3, 4, 8, 9, 11, 12, 10_u64] {
        let mut batch = FrameBatch::new();
        at += MS;
        batch.begin(FrameHead { stream: stream.id, receive_time: at, source_time: None, sequence: Some(sequence) });
        batch.push(ChannelIndex(0), Value::F64(1.0));
        batch.end();
        stage.store.append(&batch, at);
    }
    let view = stage.store.view();
    let gap_of = |row: u64| {
        let patterns = PatternSet::parse(vec!["counted.*".to_owned()]).unwrap();
        let subscription = Arc::new(Subscription::new(1, patterns, Arc::new(Notify::new()), 0));
        let mut found = [subscription.find(&stream, 0, None, &mut Steps::of_look()).unwrap().unwrap()];
        stage.live.adopt(&subscription, &mut found, true, || stage.store.clone());
        let missed = found.iter().map(|found| (found, row));
        let none = |_: StreamId, _: &std::ops::Range<i64>| Vec::new();
        crate::live::snapshot::catch_up((&view, stage.store.epoch()), &subscription, missed, &none).unwrap();
        let pending = subscription.pending();
        pending.slots[0].window.gap
    };
    assert_eq!([0, 2, 5, 6, 7].map(gap_of), [true, true, true, false, false]);
}

#[test]
fn readers_on_other_threads_miss_no_frame_and_are_not_left_asleep() {
    const FRAMES: u64 = 20_000;
    let stage = Stage::new();
    let readers: Vec<Arc<Subscription>> = (0..4).map(|_| stage.subscribe(4)).collect();
    std::thread::scope(|scope| {
        let read = |subscription: Arc<Subscription>| {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let (mut taken, mut next) = (TakenUpdate::default(), 0);
            runtime.block_on(async {
                while next < FRAMES {
                    subscription.wake.notified().await;
                    subscription.begin(&mut taken);
                    subscription.take(&mut taken, |window| {
                        let (from, to) = window.window.rows.unwrap();
                        assert_eq!((from, window.window.frames), (next, to - next));
                        assert!(window.window.channels.iter().all(|channel| channel.count() == to - from));
                        next = to;
                    });
                }
            });
        };
        for subscription in readers {
            scope.spawn(move || read(subscription));
        }
        for row in 0..FRAMES {
            // Some frames fill the tail, some are too large for it.
            let text_bytes = [0, 0, 0, 9_000, 0, 30_000, 0, 0][row as usize % 8];
            stage.frame(row, T0 + row as i64, 0..CHANNELS, text_bytes);
        }
    });
}

/// A frame that does not fit into a tail wakes a reader, which reads the next frame before being notified of it.
#[test]
fn who_has_read_a_frame_before_it_is_told_of_it_waits_for_the_next() {
    let mut bench = Bench::new();
    bench.stage.frame(0, T0, 0..CHANNELS, 20_000);
    let tail = bench.stage.live.fanout().by_stream[bench.stream.0 as usize].as_ref().unwrap().tail.clone();
    let mut batch = FrameBatch::new();
    batch.begin(FrameHead { stream: bench.stream, receive_time: T0, source_time: None, sequence: None });
    batch.end();
    let mut told = Vec::new();
    tail.push(&tail.fresh((batch.frame(0), &Texts::default()), Some(1), false), T0, 1, &mut told).unwrap();
    bench.subscription.begin(&mut bench.taken);
    assert!(bench.json().contains("\"from_row\":\"0\",\"to_row\":\"2\""));
    assert_eq!(told.len(), 1);
    bench.subscription.told(0, told[0].1, T0);
    bench.subscription.begin(&mut bench.taken);
    assert_eq!((bench.json(), bench.subscription.is_dirty()), (String::new(), false));
    bench.frame(2, T0, 0..CHANNELS);
    bench.subscription.begin(&mut bench.taken);
    assert!(bench.json().contains("\"from_row\":\"2\",\"to_row\":\"3\""));
}

#[test]
fn what_went_back_while_it_was_taken_is_told_before() {
    let mut bench = Bench::new();
    bench.frame(0, T0, 0..CHANNELS);
    bench.frame(1, T0 + MS, 0..CHANNELS);
    bench.subscription.begin(&mut bench.taken);
    bench.subscription.rewind(9, |_| 1);
    assert_eq!(bench.json(), "");
    assert!(bench.has_woken() && bench.subscription.is_dirty());
    bench.subscription.begin(&mut bench.taken);
    assert_eq!(bench.taken.epoch, 9);
    let told = bench.json();
    assert!(told.contains("\"from_row\":\"0\",\"to_row\":\"1\"") && told.contains("\"recorded\":false"), "{told}");
}

#[test]
fn what_is_held_while_it_is_taken_leaves_when_it_is_let_go() {
    let mut bench = Bench::new();
    bench.frame(0, T0, 0..CHANNELS);
    bench.subscription.begin(&mut bench.taken);
    bench.subscription.pending().slots[0].held = true;
    bench.frame(1, T0, 0..CHANNELS);
    assert_eq!(bench.json(), "");
    bench.subscription.release([0], Round::default());
    assert!(bench.has_woken());
    bench.subscription.begin(&mut bench.taken);
    assert!(bench.json().contains("\"from_row\":\"0\",\"to_row\":\"2\""));
}

#[test]
fn updates_that_a_late_look_merges_are_counted() {
    let mut bench = Bench::new();
    let period = Some(200 * MS);
    let mut missed = |row: u64, came: i64, looked: i64, overdue: i64| {
        bench.frame(row, T0 + came * MS, 0..CHANNELS);
        assert_eq!(bench.due(T0 + looked * MS, overdue * MS, period), Due::Now);
        bench.taken.missed
    };
    assert_eq!(missed(0, 0, 10, 0), 0);
    // There was something to send since 450 ms, and it was due for as long.
    assert_eq!(missed(1, 100, 660, 450), 2);
    // The data arrived just now, however long the update was due.
    assert_eq!(missed(2, 9_000, 9_010, 8_000), 0);
    assert_eq!(missed(3, 9_020, 9_419, 199), 0);
}

fn layout(
    table: &str,
    tags: &[(&str, &str)],
    channels: impl Iterator<Item = String>,
) -> (tempfile::TempDir, Arc<Stream>) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), StoreOptions::default(), T0).unwrap();
    let spec = StreamSpec {
        key: StreamKey::new(table, tags.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))),
        source: "test".to_owned(),
        clock: Clock::Source,
        expected_period_ns: None,
        sequence_modulus: None,
        channels: channels.map(|name| ChannelSpec::new(name, ChannelType::F64)).collect(),
    };
    let stream = store.resolve(&spec, T0).unwrap().0;
    (dir, stream)
}

#[test]
fn patterns_are_compared_once_and_each_is_marked() {
    let (_dir, stream) = layout("t", &[("rig", "A")], ["a", "b*", "ab"].map(str::to_owned).into_iter());
    let texts = ["t.a", "t.a*", "t.a*", "t.b*{rig=A}", "t.*{rig=B}", "*{rig=B}", "t.b*{rig=A}", "u.*"];
    let set = PatternSet::parse(texts.map(str::to_owned).to_vec()).unwrap();
    assert_eq!(set.globs(), 5);
    let mut used = set.marks();
    let steps = &mut Steps::of_look();
    assert_eq!(set.matching(&stream, 0, Some(&mut used), steps), Ok(vec![0, 1, 2]));
    assert_eq!(set.unused(&used), ["t.*{rig=B}", "*{rig=B}", "u.*"]);
    assert_eq!(set.matching(&stream, 2, None, steps), Ok(vec![2]));
}

#[test]
fn patterns_that_take_too_long_are_refused_whatever_their_number() {
    let (_dir, stream) = layout("t", &[], (0..200).map(|n| format!("{}{n}", "a".repeat(200))));
    let slow: Vec<String> = (0..2000).map(|n| format!("*{}b{n}*", "a".repeat(100))).collect();
    let set = PatternSet::parse(slow).unwrap();
    assert_eq!(set.matching(&stream, 0, None, &mut Steps::of_look()), Err(TooCostly));
    let quick: Vec<String> = (0..2000).map(|n| format!("t.{n}*")).collect();
    let set = PatternSet::parse(quick).unwrap();
    assert_eq!(set.matching(&stream, 0, None, &mut Steps::of_look()), Ok(Vec::new()));
}
