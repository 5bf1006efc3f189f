//! Notifications by hand: when they come, how they are gathered, what they belong to, and a program that changes.

use std::time::Duration;

use strongback_sim::{CycleUnit, PlcOptions};

use crate::raw::{DATA, Raw, join, report, start, word};

const CYCLIC: u32 = 3;
const ON_CHANGE: u32 = 4;
/// 1 ms as Beckhoff's library sends it.
const MS: u32 = 10_000;

/// The only sample of the next packet.
fn sample(raw: &mut Raw) -> (u64, u32, Vec<u8>) {
    let mut stamps = raw.notification();
    assert_eq!(stamps.len(), 1);
    let (time, mut samples) = stamps.remove(0);
    assert_eq!(samples.len(), 1);
    let (handle, value) = samples.remove(0);
    (time, handle, value)
}

#[test]
fn a_cycle_time_is_kept_from_the_first_sample_on() {
    let plc = start(PlcOptions::default());
    let mut raw = Raw::new(plc.address());
    let place = raw.place("FAST.cycle");
    // Shorter than a cycle of the task is every cycle; 2.5 cycles are 3.
    for (cycle_time, cycles) in [(0, 1), (1, 1), (MS, 1), (25_000, 3), (7 * MS, 7)] {
        let handle = raw.watch(place, CYCLIC, 0, cycle_time).unwrap();
        let samples: Vec<_> = (0..10).map(|_| sample(&mut raw)).collect();
        for (one, next) in samples.iter().zip(&samples[1..]) {
            assert_eq!((one.1, next.1), (handle, handle));
            assert_eq!(next.0 - one.0, u64::from(cycles * MS));
            assert_eq!(word(&next.2, 0) - word(&one.2, 0), cycles);
        }
        assert_eq!(raw.code(7, &[handle], &[]), 0);
        assert_eq!(raw.code(7, &[handle], &[]), 0x714, "deleted twice");
        raw.notified.clear();
    }
}

#[test]
fn the_time_of_a_stamp_is_that_of_its_cycle() {
    let plc = start(PlcOptions::default());
    let mut raw = Raw::new(plc.address());
    let place = raw.place("MAIN.task.now_ns");
    let seconds = raw.place("MAIN.task.now");
    raw.watch([place[0], seconds[1], place[1] + 8 - seconds[1]], CYCLIC, 0, MS).unwrap();
    for _ in 0..5 {
        let (time, _, bytes) = sample(&mut raw);
        let now_ns = u64::from_le_bytes(bytes[bytes.len() - 8..].try_into().unwrap());
        assert_eq!(time * 100, 11_644_473_600_000_000_000 + now_ns);
        assert_eq!(u64::from(word(&bytes, 0)), now_ns / 1_000_000_000);
    }
}

#[test]
fn the_unit_of_times_is_milliseconds_only_by_the_switch() {
    let plc = start(PlcOptions { cycle_unit: CycleUnit::Milliseconds, ..PlcOptions::default() });
    let mut raw = Raw::new(plc.address());
    let place = raw.place("FAST.cycle");
    raw.watch(place, CYCLIC, 12, 4).unwrap();
    let stamps: Vec<_> = (0..3).flat_map(|_| raw.notification()).collect();
    for pair in stamps.windows(2) {
        assert_eq!(pair[1].0 - pair[0].0, u64::from(4 * MS));
    }
}

#[test]
fn on_change_sends_the_first_value_at_once_and_then_only_new_ones() {
    let plc = start(PlcOptions::default());
    let (mut raw, mut other) = (Raw::new(plc.address()), Raw::new(plc.address()));
    let target = other.place("HMI.target");
    let cycle = other.place("FAST.cycle");
    let handle = raw.handle("HMI.target");
    let watched = raw.watch([0xF005, handle, 4], ON_CHANGE, 0, MS).unwrap();
    assert_eq!(sample(&mut raw).1, watched);
    let mut last_time = 0;
    for value in [5u32, 7, 7, 7, 9] {
        assert_eq!(other.code(3, &target, &value.to_le_bytes()), 0);
        // The same value again says nothing: what comes next is the next change.
        if value != 7 || last_time == 0 {
            let (time, handle, bytes) = sample(&mut raw);
            assert_eq!((handle, word(&bytes, 0)), (watched, value));
            assert!(time > last_time);
            last_time = if value == 7 { time } else { last_time };
        }
    }
    assert_eq!(raw.code(7, &[watched], &[]), 0);
    // What changes in every cycle is looked at in every tenth.
    let watched = raw.watch(cycle, ON_CHANGE, 0, 10 * MS).unwrap();
    let first = sample(&mut raw);
    let second = sample(&mut raw);
    assert_eq!((second.1, word(&second.2, 0) - word(&first.2, 0)), (watched, 10));
    // Versions and states are watched as values are.
    assert_eq!(raw.code(7, &[watched], &[]), 0);
    raw.notified.clear();
    for (place, value) in [([0xF008, 0, 1], &[1][..]), ([0xF100, 0, 2], &[5, 0])] {
        raw.watch(place, ON_CHANGE, 0, 0).unwrap();
        assert_eq!(sample(&mut raw).2, value);
    }
    assert_eq!(other.code(5, &[6, 0], &[]), 0);
    assert_eq!(sample(&mut raw).2, [6, 0]);
    plc.change_program();
    assert_eq!(sample(&mut raw).2, [2]);
}

#[test]
fn samples_of_a_cycle_share_a_stamp_and_the_longest_delay_gathers_stamps() {
    let plc = start(PlcOptions::default());
    let mut raw = Raw::new(plc.address());
    let cycle = raw.place("FAST.cycle");
    let end = raw.place("FAST.cycle_end");
    let (a, b) = (raw.watch(cycle, CYCLIC, 20 * MS, MS).unwrap(), raw.watch(end, CYCLIC, 20 * MS, 5 * MS).unwrap());
    let mut seen = Vec::new();
    for _ in 0..4 {
        let stamps = raw.notification();
        seen.push(stamps.len());
        for (_, samples) in &stamps {
            let value = word(&samples[0].1, 0);
            assert!(samples.iter().all(|(_, bytes)| word(bytes, 0) == value), "two cycles in one stamp");
            assert!(samples.len() <= 2 && samples[0].0 == a || samples[0].0 == b);
        }
        assert!(stamps.windows(2).all(|w| w[1].0 - w[0].0 == u64::from(MS)), "one stamp a cycle, none missing");
    }
    // From the first sample in a packet to its end, 20 cycles: 21 stamps.
    assert_eq!(seen[1..], [21, 21, 21]);
    // One that may not wait takes the others with it.
    let now = raw.watch(end, CYCLIC, 0, 10 * MS).unwrap();
    let mut packets = (0..10).map(|_| raw.notification());
    let with_it = packets.find(|stamps| stamps.last().unwrap().1.iter().any(|(handle, _)| *handle == now));
    assert!(with_it.is_some());
    assert!(packets.any(|stamps| stamps.len() == 10 && stamps.last().unwrap().1.iter().any(|(h, _)| *h == now)));
}

#[test]
fn notifications_belong_to_the_address_that_asked_and_are_limited() {
    let plc = start(PlcOptions { notifications_max: 3, ..PlcOptions::default() });
    let mut raw = Raw::new(plc.address());
    let cycle = raw.place("FAST.cycle");
    let slow = 1_000 * MS;
    let watch = |raw: &mut Raw| {
        let handle = raw.watch(cycle, CYCLIC, 0, slow).unwrap();
        assert_eq!(sample(raw).1, handle);
        handle
    };
    let handles = [(); 3].map(|()| watch(&mut raw));
    assert_eq!(raw.watch(cycle, CYCLIC, 0, slow), Err(0x716));
    let sum = join(&[DATA, cycle[1], 4, CYCLIC, 0, slow], &[0; 16]);
    assert_eq!(word(&raw.get(9, &[0xF085, 1, 8, 40], &sum), 0), 0x716);
    // Another port of the same client, over the same connection.
    let first = raw.source;
    raw.source[6] += 1;
    assert_eq!(raw.code(7, &[handles[0]], &[]), 0x714);
    raw.source = first;
    assert_eq!(raw.code(7, &[handles[0]], &[]), 0);
    raw.source[6] += 1;
    let other = watch(&mut raw);
    assert!(!handles.contains(&other));
    assert_eq!(raw.addressed, raw.source, "its samples go to the port that asked");
    // Another connection has handles of its own; they end with it.
    let mut second = Raw::new(plc.address());
    second.watch(cycle, CYCLIC, 0, MS).unwrap();
    sample(&mut second);
    drop(second);
    report(&plc, |r| r.connections_open == 1);
    assert_eq!(plc.report().connections, 2);
}

#[test]
fn a_program_change_moves_symbols_and_ends_their_handles() {
    let plc = start(PlcOptions::default());
    let mut raw = Raw::new(plc.address());
    let version = |raw: &mut Raw| raw.get(2, &[0xF008, 0, 1], &[])[0];
    let info = |raw: &mut Raw| raw.get(2, &[0xF00F, 0, 64], &[]);
    assert_eq!((version(&mut raw), word(&raw.get(2, &[0xF00C, 0, 8], &[]), 0)), (1, word(&info(&mut raw), 0)));
    let before = info(&mut raw);
    let names = ["MAIN.lox.fill_valve", "MAIN.fuel.fill_valve", "FAST.cycle"];
    let places = names.map(|name| raw.place(name));
    let handle = raw.handle("FAST.cycle");
    let by_handle = raw.watch([0xF005, handle, 4], CYCLIC, 0, MS).unwrap();
    let by_place = raw.watch(places[2], CYCLIC, 0, MS).unwrap();
    raw.handle("MAIN.gse.wind_gust");
    while raw.notification()[0].1.len() != 2 {}
    plc.change_program();
    // One sample without data for what stood on a handle, in a packet of its own; what stands on a place goes on there.
    let mut gone = 0;
    for _ in 0..50 {
        for (_, samples) in raw.notification() {
            for (handle, value) in &samples {
                assert_eq!(value.is_empty(), samples.len() == 1 && *handle == by_handle);
                gone += usize::from(value.is_empty());
            }
        }
    }
    assert_eq!(gone, 1);
    assert_eq!(version(&mut raw), 2);
    assert_eq!(raw.code(2, &[0xF005, handle, 4], &[]), 0x711);
    assert_eq!(raw.code(3, &[0xF005, handle, 4], &[0; 4]), 0x711);
    assert_eq!(raw.watch([0xF005, handle, 4], CYCLIC, 0, MS), Err(0x711));
    assert_eq!(raw.code(7, &[by_handle], &[]), 0x714);
    assert_eq!(raw.code(7, &[by_place], &[]), 0);
    assert_eq!(raw.code(9, &[0xF003, 0, 4, 18], b"MAIN.gse.wind_gust"), 0x710);
    raw.handle("MAIN.lox.fill_rates[4]");
    let moved = names.map(|name| raw.place(name));
    assert_eq!(moved[0], places[0], "before the new symbol");
    assert!(moved[1][1] > places[1][1] && moved[2][1] > places[2][1], "behind it");
    assert_eq!(raw.code(3, &[0xF006, 0, 4], &handle.to_le_bytes()), 0, "an old handle is released as any");
    let new = raw.handle("FAST.cycle");
    assert!(word(&raw.get(2, &[0xF005, new, 4], &[]), 0) > 100, "the count goes on");
    let after = info(&mut raw);
    assert_eq!(word(&after, 0), word(&before, 0), "one came, one went");
    assert_ne!(word(&after, 4), word(&before, 4));
    let changes = raw.place("TwinCAT_SystemInfoVarList._AppInfo.OnlineChangeCnt");
    while word(&raw.get(2, &changes, &[]), 0) != 1 {}
    assert_eq!(plc.stop().symbol_version, 2);
    // The same by the clock.
    let plc = start(PlcOptions { change_after: Some(Duration::from_millis(30)), ..PlcOptions::default() });
    report(&plc, |r| r.symbol_version == 2);
}
