//! What streams received lately: the newest is known longest, whatever others receive.

use crate::disk::fault::FaultDisk;
use crate::*;

const T0: i64 = 1_790_000_000_000_000_000;

fn send(store: &Store, stream: StreamId, rows: std::ops::Range<i64>, now: i64) -> usize {
    let mut duplicates = 0;
    for from in rows.clone().step_by(4096) {
        let mut batch = FrameBatch::new();
        for n in from..rows.end.min(from + 4096) {
            batch.begin(FrameHead { stream, receive_time: now, source_time: Some(T0 + n), sequence: None });
            batch.push(ChannelIndex(0), Value::I64(n));
            batch.end();
        }
        let outcomes = store.append(&batch, now).outcomes;
        duplicates += outcomes.iter().filter(|outcome| **outcome == Outcome::Duplicate).count();
        store.commit(now).expect("committed");
        while store.maintain(now).expect("upkeep") {}
    }
    duplicates
}

#[test]
fn the_newest_is_known_longest_and_memory_is_bounded() {
    let disk = FaultDisk::new(3);
    let options = StoreOptions { log_bytes: 1 << 20, open_bytes: 0, settle: false, ..StoreOptions::default() };
    let store = disk.open_store(options, T0).expect("opened");
    let most = 700 << 10;
    store.inner.sealer.lock().recent_max = most;
    let stream = |name: &str| {
        let spec = StreamSpec {
            key: StreamKey::new(name, []),
            source: "test".into(),
            clock: Clock::Source,
            expected_period_ns: None,
            sequence_modulus: None,
            channels: vec![ChannelSpec::new("x", ChannelType::I64)],
        };
        store.resolve(&spec, T0).expect("resolved").0.id
    };
    // More than a stream remembers: its oldest went for its own newest.
    let (a, b) = (stream("a"), stream("b"));
    send(&store, a, 0..150_000, T0);
    send(&store, b, 0..30_000, T0);
    send(&store, a, 150_000..154_096, T0);
    // Others take the room of what is oldest, not of what is newest.
    send(&store, b, 30_000..40_000, T0);
    assert_eq!(send(&store, a, 151_000..154_000, T0), 3_000);
    assert_eq!(send(&store, b, 1_000..40_000, T0), 39_000);
    let (bytes, order, lists) = store.inner.sealer.lock().recent.sizes();
    assert!(bytes <= most && order <= 2 * lists + 1_025, "{bytes} bytes, {order} of {lists}");
}
