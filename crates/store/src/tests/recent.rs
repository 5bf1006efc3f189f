//! What streams received lately: the newest is known longest, whatever others receive.

use crate::disk::fault::FaultDisk;
use crate::disk::names;
use crate::tests::kit::*;
use crate::*;

fn send(store: &Store, stream: StreamId, rows: std::ops::Range<i64>, now: i64) -> usize {
    let mut duplicates = 0;
    for from in rows.clone().step_by(4096) {
        let mut batch = FrameBatch::new();
        for n in from..rows.end.min(from + 4096) {
            batch.put(head(stream, now).sampled(Some(T0 + n)), [Value::I64(n)]);
        }
        let outcomes = store.append(&batch, now).outcomes;
        duplicates += outcomes.iter().filter(|outcome| **outcome == Outcome::Duplicate).count();
        store.upkeep(now);
    }
    duplicates
}

#[test]
fn the_newest_is_known_longest_and_memory_is_bounded() {
    let disk = FaultDisk::new(3);
    let options = StoreOptions { log_bytes: 1 << 20, open_bytes: 0, settle: false, ..StoreOptions::default() };
    let store = open(&disk, options);
    let most = 700 << 10;
    store.sealer.lock().sealing.set_recent_max(most);
    let stream = |name: &str| store.stream(&spec(name, [("x", ChannelType::I64)]).clock(Clock::Source));
    // More than a stream remembers: its oldest went for its own newest.
    let (a, b) = (stream("a"), stream("b"));
    send(&store, a, 0..150_000, T0);
    send(&store, b, 0..30_000, T0);
    send(&store, a, 150_000..154_096, T0);
    // Others take the room of what is oldest, not of what is newest.
    send(&store, b, 30_000..40_000, T0);
    assert_eq!(send(&store, a, 151_000..154_000, T0), 3_000);
    assert_eq!(send(&store, b, 1_000..40_000, T0), 39_000);
    let (bytes, order, lists) = store.sealer.lock().sealing.recent_sizes();
    assert!(bytes <= most && order <= 2 * lists + 1_025, "{bytes} bytes, {order} of {lists}");
}

/// A number's bits may be those of another number in another type, and a widened channel has the same number twice.
#[test]
fn numbers_are_told_apart_by_their_types() {
    let disk = FaultDisk::new(3);
    let store = open(&disk, StoreOptions::default());
    let stream = |kind: ChannelType| {
        let spec = spec("registers", [(format!("of_{kind:?}"), kind), ("widened".into(), ChannelType::I32)])
            .clock(Clock::Source);
        store.resolve(&spec, T0).expect("resolved").1
    };
    let send = |column: ChannelIndex, value: Value<'_>| {
        let mut batch = FrameBatch::new();
        let head = head(StreamId(0), T0).sampled(Some(T0));
        batch.put_at(head, [(column, value)]);
        store.append(&batch, T0).outcomes[0] == Outcome::Duplicate
    };
    let bits = 5.0_f64.to_bits();
    let quiet = [0x7FA0_0000, 0x7FE0_0000].map(f32::from_bits);
    let pairs = [
        (ChannelType::U64, Value::U64(5), Value::U64(bits)),
        (ChannelType::I64, Value::I64(5), Value::I64(bits as i64)),
        (ChannelType::F32, Value::F32(quiet[0]), Value::F32(quiet[1])),
        (ChannelType::F64, Value::F64(0.0), Value::F64(-0.0)),
    ];
    for (kind, one, other) in pairs {
        let column = stream(kind)[0];
        let found = [one, other, one, other].map(|value| send(column, value));
        assert_eq!(found, [false, false, true, true], "{kind:?}");
    }
    let column = stream(ChannelType::I32)[1];
    assert!(!send(column, Value::I32(7)));
    let spec = |kind| spec("registers", [("widened", kind)]).clock(Clock::Source);
    store.resolve(&spec(ChannelType::F64), T0).expect("widened");
    assert!(send(column, Value::F64(7.0)), "the same number once the channel is wider");
    assert!(!send(column, Value::F64(7.5)));
}

/// A frame of a machine's states: each channel absent or 0, seldom 1, at any nanosecond of a twentieth of a second.
fn states(random: &mut fastrand::Rng) -> (i64, Vec<Option<i64>>) {
    let states = (0..8).map(|_| if random.u8(..) == 0 { Some(1) } else { random.bool().then_some(0) }).collect();
    (T0 + random.i64(0..50_000_000), states)
}

#[test]
fn frames_that_differ_in_a_few_bits_are_told_apart_once_they_are_sealed() {
    let disk = FaultDisk::new(3);
    let options = StoreOptions { log_bytes: 4 << 20, open_bytes: 0, settle: false, ..StoreOptions::default() };
    let store = open(&disk, &options);
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let stream = store.stream(
        &spec("machine", names.map(|name| ChannelSpec::new(name, ChannelType::I64)).to_vec()).clock(Clock::Source),
    );
    let send = |store: &Store, frames: &[(i64, Vec<Option<i64>>)]| -> usize {
        let mut duplicates = 0;
        for part in frames.chunks(4096) {
            let mut batch = FrameBatch::new();
            for (time, states) in part {
                batch.begin(head(stream, T0).sampled(Some(*time)));
                for (channel, state) in states.iter().enumerate() {
                    if let Some(state) = state {
                        batch.push(ChannelIndex(channel as u16), Value::I64(*state));
                    }
                }
                batch.end();
            }
            let outcomes = store.append(&batch, T0).outcomes;
            duplicates += outcomes.iter().filter(|outcome| **outcome == Outcome::Duplicate).count();
            store.upkeep(T0);
        }
        duplicates
    };
    let mut random = fastrand::Rng::with_seed(11);
    let mut seen = std::collections::HashSet::new();
    let all: Vec<_> = std::iter::repeat_with(|| states(&mut random))
        .filter(|frame| frame.1.iter().any(Option::is_some) && seen.insert(frame.clone()))
        .take(60_000)
        .collect();
    // One that is not new in time is compared with all of these.
    send(&store, &[(T0 + 1_000_000_000, vec![Some(1); 8])]);
    assert_eq!(send(&store, &all[..40_000]), 0);
    store.close(T0).expect("closed");
    drop(store);
    let store = disk.open_store(options, T0).expect("opened again");
    assert_eq!(send(&store, &all[40_000..]), 0, "frames that were never sent are called duplicates");
    assert_eq!(send(&store, &all), all.len());
}

/// Nobody needs what was received lately, nor the file that was made for the next segment, to go on.
#[test]
fn what_is_only_of_help_and_cannot_be_read_keeps_no_store_shut() {
    let disk = FaultDisk::new(4);
    let options = StoreOptions { log_bytes: 1 << 20, open_bytes: 0, ..StoreOptions::default() };
    let open = |disk: &FaultDisk| disk.open_store(options.clone(), T0);
    let store = open(&disk).expect("opened");
    let stream = store.stream(&spec("a", [("x", ChannelType::I64)]).clock(Clock::Source));
    send(&store, stream, 0..20_000, T0);
    store.close(T0).expect("closed");
    for of_spare in [false, true] {
        let files = crate::disk::Disk::list(&disk).expect("files");
        let segments = files.iter().map(|(name, _)| name.as_str()).filter(|name| name.starts_with("segment-"));
        let file = if of_spare { segments.max().expect("a spare") } else { "recent" };
        disk.fail_reads(file, 1);
        let store = open(&disk).unwrap_or_else(|error| panic!("{file}: {error}"));
        let damaged = store.recovery().damaged.clone();
        assert!(damaged.len() == 1 && damaged[0].file == file, "{file}: {damaged:?}");
        assert_eq!(store.view().next_row(stream), 20_000);
        drop(store);
        // And nothing of it counts later.
        let again = open(&disk).expect("opened");
        assert!(again.recovery().damaged.is_empty(), "{:?}", again.recovery().damaged);
        again.close(T0).expect("closed");
    }
}

/// Only a full disk is waited for; any other failed sync of a file that grows says that the disk failed.
#[test]
fn a_checkpoint_file_whose_sync_fails_is_an_error() {
    let disk = FaultDisk::new(5);
    disk.fail_syncs(names::CHECKPOINTS[0], 1);
    let error = crate::log::checkpoint::Checkpoint::default().reserve(&disk).expect_err("the sync failed");
    assert!(!crate::model::trouble::is_full(&error), "{error}");
    disk.set_capacity_bytes(disk.used_bytes());
    crate::log::checkpoint::Checkpoint::default().reserve(&disk).expect("the next try may do better");
}

/// Senders whose clocks stand still: their rows are told apart by hashes, whatever their number, shape and place, and
/// however many clocks there are.
#[test]
fn frames_of_one_time_are_told_apart_however_many_there_are() {
    for seed in 0..8 {
        let mut random = fastrand::Rng::with_seed(seed);
        let disk = FaultDisk::new(seed);
        let options = StoreOptions { log_bytes: 4 << 20, open_bytes: 0, settle: false, ..StoreOptions::default() };
        let mut store = open(&disk, &options);
        let channels = |many: usize| {
            let kinds = [("n", ChannelType::I64), ("text", ChannelType::String), ("more", ChannelType::I32)];
            kinds.into_iter().take(many).map(|(name, kind)| ChannelSpec::new(name, kind)).collect::<Vec<_>>()
        };
        let mut many = 2;
        let (mut known, mut time, mut most) = (std::collections::HashSet::new(), T0, 0);
        for part in 0..120 {
            // Most parts go on with the time before; some channels, seals and openings come in between.
            match random.u8(0..16) {
                0 => time += random.i64(1..5),
                1 => store.upkeep(T0),
                2 => many = 3,
                3 => {
                    store.close(T0).expect("closed");
                    store = open(&disk, &options);
                }
                _ => {}
            }
            let name = ["stuck", "still", "slow"][random.usize(0..3)];
            let stream = store.stream(&spec(name, channels(many)).clock(Clock::Source));
            let late_max = [1, 2, 6][random.usize(0..3)];
            let mut batch = FrameBatch::new();
            let mut expected = Vec::new();
            for _ in 0..random.usize(1..300) {
                let at = time - random.i64(0..late_max);
                let (number, letter, more) = (random.i64(0..40), random.u8(0..8), random.bool() && many > 2);
                let text = "abcdefgh"[letter as usize..].to_owned();
                let is_sampled = random.u8(0..50) > 0;
                batch.begin(head(stream, at).sampled(is_sampled.then_some(at)));
                batch.push(ChannelIndex(0), Value::I64(number));
                batch.push(ChannelIndex(1), Value::String(&text));
                if more {
                    batch.push(ChannelIndex(2), Value::I32(letter.into()));
                }
                batch.end();
                let is_new = known.insert((name, at, number, letter, more));
                expected.push(is_sampled && !is_new);
            }
            let outcomes = store.append(&batch, T0).outcomes;
            let found: Vec<bool> = outcomes.iter().map(|outcome| *outcome == Outcome::Duplicate).collect();
            assert_eq!(found, expected, "seed {seed}, part {part}");
            let (times, hashes) = store.engine.writer.lock().same_times.sizes();
            assert!(times <= 1 || times <= 4 && hashes <= 600, "{times} times, {hashes} hashes");
            most = most.max(times);
        }
        assert_eq!(most, 4, "seed {seed}");
    }
}

#[test]
fn frames_without_a_source_time_are_no_duplicates() {
    let disk = FaultDisk::new(3);
    let store = open(&disk, StoreOptions::default());
    let stream = store.stream(&spec("m", [("v", ChannelType::I64)]).clock(Clock::Source));
    let mut batch = FrameBatch::new();
    for value in [5, 5, 6, 5] {
        batch.put(head(stream, T0), [Value::I64(value)]);
    }
    let outcomes = store.append(&batch, T0).outcomes;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Stored { .. })), "{outcomes:?}");
    let mut batch = FrameBatch::new();
    batch.put(head(stream, T0 + 1).sampled(Some(T0)), [Value::I64(5)]);
    assert_eq!(store.append(&batch, T0 + 1).outcomes, [Outcome::Duplicate]);
}
