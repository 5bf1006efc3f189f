//! Small stores of a fixed size take whatever is offered to them again after a commit and its upkeep: a log that is full is
//! never the end.

mod kit;

use kit::*;
use strongback_store::*;

/// A car's snapshots: each element with a reduction, so that the newest frame is held.
fn car() -> StreamSpec {
    let deadband = |bound| Reduction::Deadband { bound };
    let channels = [
        ("rpm", ChannelType::F32, deadband(50.0)),
        ("speed", ChannelType::F32, deadband(5.0)),
        ("passengers", ChannelType::U8, Reduction::Step),
        ("driving", ChannelType::Bool, Reduction::Step),
    ];
    spec("CarSnapshots", channels)
}

#[test]
fn frames_with_reductions_are_taken_too() {
    for pages in (0..40).chain([50, 80, 160, 320]) {
        // Nothing within a bound, everything, and in turn.
        for moving in [1, 3, 1_000_000] {
            let fixed = FixedOptions { max_streams: 3, max_channels: 12, ..FixedOptions::new(0) };
            let least = fixed.least_bytes().expect("a size");
            let fixed = FixedOptions { size_bytes: least + pages * 4096, ..fixed };
            let case = format!("{} bytes, every {moving}. frame outside its bounds", fixed.size_bytes);
            let region = MemoryRegion::new(fixed.size_bytes as usize);
            let store = Store::in_memory(&region, &fixed, StoreOptions::default(), T0).expect("made");
            store.resolve(&car(), T0).expect("resolved");
            write_definition(&store);
            let store = reopened(store, &region, &fixed);
            let id = store.stream(&car());
            // Beside it one whose frames all get a row: what is held must not keep the log from going round.
            let plain = store.stream(&floats(1, 1));
            let mut batch = FrameBatch::new();
            for row in 0..1_200 {
                if row % 3 > 0 {
                    batch.put(head(plain, T0 + row * 100_000_000), [Value::F64(row as f64 / 7.0)]);
                }
                batch.begin(head(id, T0 + row * 100_000_000));
                let step = (row / moving) as f32;
                batch.push(ChannelIndex(0), Value::F32(step * 100.0));
                batch.push(ChannelIndex(1), Value::F32(step * 10.0));
                batch.push(ChannelIndex(2), Value::U8(step as u8));
                batch.push(ChannelIndex(3), Value::Bool(step as u64 % 2 == 1));
                batch.end();
            }
            offer_all(
                &store,
                batch,
                || {
                    store.upkeep(T0);
                },
                &case,
            );
            let counts = store.counts(id);
            assert_eq!(counts.stored + counts.reduced, 1_200, "{case}: {counts:?}");
            assert_eq!(counts.received, 1_200, "{case}: {counts:?}");
            assert_eq!(store.counts(plain).stored, 800, "{case}");
        }
    }
}

fn floats(stream: usize, channels: usize) -> StreamSpec {
    spec(format!("s{stream}"), (0..channels).map(|n| (format!("c{n}"), ChannelType::F64)))
}

/// What `store create` writes into the store's own table.
fn write_definition(store: &Store) {
    let spec = spec("strongback.definitions", [("version", ChannelType::U32), ("statement", ChannelType::String)]);
    let (stream, channels) = store.resolve_own(&spec, T0).expect("resolved");
    let mut batch = FrameBatch::new();
    for statement in 0..3 {
        let text = format!("CREATE STREAM s{statement} WITH ID {statement} {{ }} {:200}", "");
        batch.put_at(head(stream.id, T0), [(channels[0], Value::U32(1)), (channels[1], Value::String(&text))]);
    }
    assert!(store.append(&batch, T0).outcomes.iter().all(is_stored));
    store.commit(T0).expect("committed");
}

/// As the next command finds it.
fn reopened(store: Store, region: &MemoryRegion, fixed: &FixedOptions) -> Store {
    store.close(T0).expect("closed");
    Store::in_memory(region, fixed, StoreOptions::default(), T0).expect("opened")
}

/// Offers frames that the log has no room for until it has taken all, `wait` between two offers, and returns how often.
fn offer_all(store: &Store, mut batch: FrameBatch, mut wait: impl FnMut(), case: &str) -> usize {
    let mut offers = 0;
    while !batch.is_empty() {
        offers += 1;
        let outcomes = store.offer(&batch, T0).outcomes;
        let mut rest = FrameBatch::new();
        for (n, outcome) in outcomes.iter().enumerate() {
            match outcome {
                Outcome::Stored { .. } | Outcome::Reduced { .. } => {}
                Outcome::Rejected(Reject::Refused(Refusal::LogFull)) => rest.copy(&batch.frame(n)),
                other => panic!("{case}: {other:?}"),
            }
        }
        assert!(rest.len() < batch.len(), "{case}: {} frames are refused for ever", rest.len());
        // What was taken is the beginning.
        let taken = batch.len() - rest.len();
        let is_full = |o: &Outcome| matches!(o, Outcome::Rejected(Reject::Refused(Refusal::LogFull)));
        assert!(outcomes[taken..].iter().all(is_full), "{case}");
        batch = rest;
        wait();
    }
    offers
}

#[test]
fn what_the_log_has_no_room_for_is_taken_after_a_commit_and_its_upkeep() {
    for pages in (0..40).chain([50, 80, 160, 320]) {
        for (streams, channels) in [(1, 1), (1, 3), (3, 4)] {
            let fixed = FixedOptions { max_streams: 3, max_channels: 12, ..FixedOptions::new(0) };
            let least = fixed.least_bytes().expect("a size");
            let fixed = FixedOptions { size_bytes: least + pages * 4096, ..fixed };
            let case = format!("{} bytes, {streams} streams of {channels}", fixed.size_bytes);
            let region = MemoryRegion::new(fixed.size_bytes as usize);
            let store = Store::in_memory(&region, &fixed, StoreOptions::default(), T0).expect("made");
            (0..streams).for_each(|n| drop(store.resolve(&floats(n, channels), T0).expect("resolved")));
            let store = reopened(store, &region, &fixed);
            let ids: Vec<StreamId> = (0..streams).map(|n| store.stream(&floats(n, channels))).collect();
            let mut batch = FrameBatch::new();
            for row in 0..1_200 {
                batch.begin(head(ids[row % streams], T0 + row as i64));
                for channel in 0..channels {
                    batch.push(ChannelIndex(channel as u16), Value::F64((row * 17 + channel) as f64 / 7.0));
                }
                batch.end();
            }
            offer_all(
                &store,
                batch,
                || {
                    store.upkeep(T0);
                },
                &case,
            );
            let stored: u64 = ids.iter().map(|id| store.counts(*id).stored).sum();
            assert_eq!(stored, 1_200, "{case}");
        }
    }
}
