use std::sync::Arc;

use strongback_store::{
    ChannelSpec, ChannelType, Clock, FrameBatch, FrameHead, Store, StoreOptions, StreamKey, StreamSpec,
};
use tokio::sync::Notify;

use super::*;
use crate::live::Live;

const T0: i64 = 1_790_000_000_000_000_000;
const MS: i64 = 1_000_000;
const CHANNELS: u16 = 12;

/// A subscription of every third channel of a stream of twelve, and whether it woke its connection.
struct Bench {
    subscription: Arc<Subscription>,
    stream: StreamId,
    wake: Arc<Notify>,
    taken: Taken,
    _dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(dir.path(), StoreOptions::default(), T0).unwrap());
        let spec = StreamSpec {
            key: StreamKey::new("bay", []),
            source: "test".to_owned(),
            clock: Clock::Source,
            expected_period_ns: None,
            sequence_modulus: None,
            channels: (0..CHANNELS).map(|n| ChannelSpec::new(format!("c{n:02}"), ChannelType::F64)).collect(),
        };
        let stream = store.resolve(&spec, T0).unwrap().0;
        let wanted = (0..CHANNELS).step_by(3).map(|n| format!("bay.c{n:02}")).collect();
        let wake = Arc::new(Notify::new());
        let patterns = PatternSet::parse(wanted).unwrap();
        let subscription = Arc::new(Subscription::new(1, patterns, wake.clone(), 0));
        let mut found = [subscription.find(&stream, None).unwrap()];
        Live::default().adopt(&subscription, &mut found, false, || store.clone());
        Bench { subscription, stream: stream.id, wake, taken: Taken::default(), _dir: dir }
    }

    /// A frame comes, with the cells of these channels in this order.
    fn frame(&self, row: u64, at: i64, cells: impl Iterator<Item = u16>) {
        let mut batch = FrameBatch::new();
        batch.begin(FrameHead { stream: self.stream, receive_time: at, source_time: Some(at), sequence: None });
        for channel in cells {
            batch.push(ChannelIndex(channel), Value::F64(row as f64 * 100.0 + f64::from(channel)));
        }
        batch.end();
        let frame = batch.frame(0);
        let fresh = Fresh { frame, in_place: frame.is_in_place(), row: Some(row), gap: false };
        self.subscription.add(0, &fresh, at);
    }

    fn due(&mut self, at: i64, overdue_ns: i64, paced_ns: Option<i64>) -> Due {
        self.subscription.take_due(&Turn { now: at, overdue_ns, paced_ns }, &mut self.taken)
    }

    fn has_woken(&self) -> bool {
        let mut woken = std::pin::pin!(self.wake.notified());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        woken.as_mut().poll(&mut context).is_ready()
    }

    fn json(&mut self) -> String {
        let mut out = Vec::new();
        self.taken.write_streams(&mut out, |_| 0);
        String::from_utf8(out).unwrap()
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
        // The first channels alone are in place, too; the rest has no value in this frame.
        bench.frame(7, T0 + 7 * MS, order(4).into_iter().filter(|i| *i < 4));
        bench.subscription.take(&mut bench.taken);
        bench.json()
    });
    assert!(told[0].contains("[0,8,0.0,700.0,0.0,700.0,350.0]"), "{}", told[0]);
    assert!(told[0].contains("[9,7,9.0,609.0,9.0,609.0,309.0]"), "{}", told[0]);
    assert_eq!(told[0], told[1]);
    // Of its last frame it has channel 3 and 0 as well.
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
    // Until its next time the connection sleeps, whatever comes.
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
    assert!(bench.json().contains("\"from_row\":\"1\",\"to_row\":\"6\""));
    // Nothing came until its next time: the first frame wakes it, and leaves.
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
    assert_eq!((bench.taken.epoch(), bench.taken.rewound.as_slice()), (1, &[(bench.stream, 0)][..]));
}
