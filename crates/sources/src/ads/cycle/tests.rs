use super::*;

const T0: i64 = 1_780_000_000_000_000_000;
const MS: i64 = 1_000_000;

/// Judges one timestamp and everything waiting.
fn judged(cycles: &mut Cycles, stamp: i64, receive_time: i64) -> Judged {
    let mut judged = Vec::new();
    cycles.judge(stamp, receive_time, &mut judged);
    cycles.decide(&mut judged);
    assert_eq!(judged.len(), 1);
    judged[0]
}

/// Runs timestamps (in µs after T0) with a cycle in ms. Returns the judgement of each.
fn run(cycle_ms: i64, stamps_us: impl IntoIterator<Item = i64>) -> Vec<Judged> {
    let mut cycles = Cycles::new(cycle_ms * MS);
    let (mut judged, mut count) = (Vec::new(), 0);
    for us in stamps_us {
        let stamp = T0 + us * 1_000;
        cycles.judge(stamp, stamp + 300_000, &mut judged);
        count += 1;
        assert!(cycles.is_waiting() || judged.len() == count, "at {us} µs");
    }
    cycles.decide(&mut judged);
    assert_eq!(judged.len(), count);
    let mut number = None;
    for (at, last) in judged.iter().enumerate() {
        if !last.is_old && !last.clock_set && !last.is_known {
            assert_eq!(number.map_or(last.number, |n| n + 1 + last.dropped), last.number, "frame {at}");
            number = Some(last.number);
        }
    }
    judged
}

fn dropped(judged: &[Judged]) -> u64 {
    judged.iter().map(|judged| judged.dropped).sum()
}

#[test]
fn numbers_are_those_of_the_clock_and_dropped_cycles_are_counted() {
    let all = run(10, [0, 10_000, 20_000, 50_000, 60_000]);
    let numbers: Vec<u64> = all.iter().map(|judged| judged.number - T0 as u64 / 10_000_000).collect();
    assert_eq!((dropped(&all), numbers), (2, vec![0, 1, 2, 5, 6]));
    // After a restart of the server, numbers continue as if it had not stopped.
    assert_eq!(run(10, [100_000])[0].number, T0 as u64 / 10_000_000 + 10);
}

#[test]
fn jitter_and_drift_are_no_loss() {
    let mut random = fastrand::Rng::with_seed(7);
    let jitter: Vec<i64> = (0..20_000).map(|n| n * 1_000 + random.i64(-200..200)).collect();
    assert_eq!(dropped(&run(1, jitter)), 0);
    // A clock that is off by 1 in 1,000 makes 20 cycles more in 20,000.
    assert_eq!(dropped(&run(1, (0..20_000).map(|n| n * 1_001))), 0);
    assert_eq!(dropped(&run(1, (0..20_000).map(|n| n * 999))), 0);
    // Every loss is still detected.
    assert_eq!(dropped(&run(1, (0..20_000).filter(|n| n % 100 != 50).map(|n| n * 1_001))), 200);
}

#[test]
fn a_late_stamp_and_the_early_ones_behind_it_are_cycles_in_a_row() {
    // One cycle is late by this many µs; the following ones come as early as possible after it.
    for late in [600, 960, 1_000, 1_040, 1_500, 2_960, 7_300, 20_000, 150_000] {
        let mut earliest = 0;
        let stamps: Vec<i64> = (0..400)
            .map(|n| {
                let due = n * 1_000 + if n == 100 { late } else { 0 };
                earliest = due.max(earliest + 40);
                earliest
            })
            .collect();
        let all = run(1, stamps);
        let numbers = all.iter().map(|judged| judged.number - all[0].number);
        assert!(numbers.eq(0..400) && all.iter().all(|judged| !judged.is_known), "late by {late} µs");
    }
    // Late for some cycles.
    let slow = (0..100).map(|n| n * 1_000 + if (50..53).contains(&n) { 960 } else { 0 });
    assert_eq!(dropped(&run(1, slow)), 0);
    // Half a cycle of jitter in alternating directions.
    let wobble = (0..1_000).map(|n| n * 1_000 + if n % 2 == 0 { 450 } else { -450 });
    let all = run(1, wobble.clone().skip(1));
    assert!(all.iter().all(|judged| !judged.is_known) && dropped(&all) == 0);
}

/// Simulated PLC: the cycles it ran as numbers, with their timestamps and receive times.
struct Simulated {
    stamps: Vec<(u64, i64)>,
    received: Vec<i64>,
}

impl Simulated {
    fn new(random: &mut fastrand::Rng, cycle_ns: i64) -> Simulated {
        // Offset of its clock from ours, and its drift.
        let offset = [0, -3_600_000 * MS, -2_000 * MS, 86_400_000 * MS][random.usize(0..4)];
        let drift_ppm = random.i64(-200..=200);
        let jitter = cycle_ns * random.i64(0..20) / 100;
        let (mut stamps, mut received) = (Vec::new(), Vec::new());
        let (mut calm, mut lost, mut earliest, mut arrived) = (50, 0, i64::MIN, i64::MIN);
        for cycle in 0..5_000_i64 {
            calm -= 1;
            let mut late = 0;
            // No late timestamp near the end, where no later one would follow to correct it.
            if calm < 0 && lost == 0 && cycle < 4_980 {
                calm = random.i64(12..60);
                match random.bool() {
                    true => lost = if random.u8(0..10) == 0 { random.i64(1..400) } else { random.i64(1..5) },
                    false => late = cycle_ns * random.i64(60..500) / 100,
                }
            }
            if lost > 0 {
                lost -= 1;
                calm = calm.max(12);
                continue;
            }
            let due = T0 + offset + cycle * (cycle_ns + cycle_ns * drift_ppm / 1_000_000);
            let jittered = if late > 0 { late } else { random.i64(-jitter..=jitter) };
            let stamp = (due + jittered).max(earliest.saturating_add(cycle_ns / 25));
            earliest = stamp;
            stamps.push((cycle as u64, stamp));
            // The network delivers some in bursts.
            arrived = (stamp - offset + random.i64(0..3) * random.i64(0..50) * MS).max(arrived);
            received.push(arrived);
        }
        Simulated { stamps, received }
    }
}

#[test]
fn every_cycle_has_its_number_whatever_the_stamps_do() {
    for seed in 0..100 {
        let mut random = fastrand::Rng::with_seed(seed);
        let cycle_ns = [MS, 2 * MS, 10 * MS, 100 * MS][random.usize(0..4)];
        let plc = Simulated::new(&mut random, cycle_ns);
        let (mut cycles, mut all) = (Cycles::new(cycle_ns), Vec::new());
        for ((_, stamp), received) in plc.stamps.iter().zip(&plc.received) {
            cycles.judge(*stamp, *received, &mut all);
        }
        cycles.decide(&mut all);
        assert_eq!(all.len(), plc.stamps.len(), "seed {seed}");
        let first = all[0].number;
        for (judged, (cycle, _)) in all.iter().zip(&plc.stamps) {
            assert_eq!((judged.number - first, judged.is_known), (*cycle, false), "seed {seed}");
        }
        let ran = plc.stamps.last().unwrap().0 + 1;
        assert_eq!(dropped(&all), ran - plc.stamps.len() as u64, "seed {seed}");
    }
}

#[test]
fn a_suspected_loss_waits_for_a_few_stamps_and_no_longer() {
    let mut cycles = Cycles::new(MS);
    let mut all = Vec::new();
    for n in (0..100).chain(110..114) {
        cycles.judge(T0 + n * MS, T0 + n * MS, &mut all);
    }
    assert!(cycles.is_waiting() && all.len() == 100);
    cycles.judge(T0 + 114 * MS, T0 + 114 * MS, &mut all);
    assert!(!cycles.is_waiting());
    assert_eq!((all[100].dropped, all[104].number - all[0].number), (10, 114));
    // A burst of any size stays bounded.
    let mut all = Vec::new();
    for n in 0..10_000 {
        cycles.judge(T0 + 100_000 * MS + n * 1_000, T0 + 100_000 * MS, &mut all);
        assert!(cycles.waiting.len() <= WAITING_MAX);
    }
}

#[test]
fn a_plc_with_a_longer_cycle_of_its_own_loses_nothing() {
    assert_eq!(dropped(&run(1, (0..1_000).map(|n| n * 10_000))), 0);
    assert_eq!(dropped(&run(1, (0..1_000).filter(|n| *n != 500).map(|n| n * 10_000))), 1);
    let mut cycles = Cycles::new(MS);
    (0..50).for_each(|n| _ = judged(&mut cycles, T0 + n * 10 * MS, T0 + n * 10 * MS));
    assert_eq!(cycles.real_ns(), 10 * MS);
    // Kept across a reconnect; the interrupted cycle itself is not.
    cycles.ask_again();
    assert_eq!(judged(&mut cycles, T0 + 600 * MS, T0 + 600 * MS).dropped, 10);
    (601..611).for_each(|n| cycles.judge(T0 + n * MS, T0 + n * MS, &mut Vec::new()));
    assert_eq!(cycles.real_ns(), MS);
}

#[test]
fn a_clock_that_is_set_is_no_loss_and_an_old_stamp_has_its_own_number() {
    let mut cycles = Cycles::new(10 * MS);
    let first = judged(&mut cycles, T0, T0 + MS);
    let second = judged(&mut cycles, T0 + 10 * MS, T0 + 11 * MS);
    let old = judged(&mut cycles, T0, T0 + 12 * MS);
    assert_eq!((old.number, old.is_old, old.is_known), (first.number, true, true));
    let day = 86_400_000 * MS;
    let set = judged(&mut cycles, T0 + day, T0 + 21 * MS);
    assert_eq!((set.number, set.clock_set, set.dropped), (second.number + 1, true, 0));
    let back = judged(&mut cycles, T0 + 20 * MS, T0 + 31 * MS);
    assert_eq!((back.number, back.clock_set), (second.number + 2, true));
    // A stall of the network is neither: all frames arrive, but late.
    for n in 3..500 {
        let judged = judged(&mut cycles, T0 + n * 10 * MS, T0 + 5_000 * MS + n);
        assert_eq!((judged.dropped, judged.clock_set, judged.is_old), (0, false, false), "{n}");
    }
    // A loss during the stall is detected.
    assert_eq!(judged(&mut cycles, T0 + 5_100 * MS, T0 + 5_101 * MS).dropped, 10);
    // Frames that wait when the clock is set count as loss.
    let mut all = Vec::new();
    cycles.judge(T0 + 5_200 * MS, T0 + 5_201 * MS, &mut all);
    assert!(all.is_empty());
    cycles.judge(T0 + day, T0 + 5_211 * MS, &mut all);
    assert_eq!((all[0].dropped, all[1].dropped, all[1].clock_set), (9, 0, true));
    assert_eq!(all[1].number, all[0].number + 1);
}

#[test]
fn a_cycle_that_came_late_fills_its_place_once() {
    let mut cycles = Cycles::new(10 * MS);
    let first = judged(&mut cycles, T0, T0);
    assert_eq!(judged(&mut cycles, T0 + 30 * MS, T0 + 30 * MS).dropped, 2);
    let late = judged(&mut cycles, T0 + 20 * MS, T0 + 31 * MS);
    assert_eq!((late.number, late.is_old, late.is_known), (first.number + 2, true, false));
    assert!(judged(&mut cycles, T0 + 20 * MS, T0 + 32 * MS).is_known);
    assert_eq!(judged(&mut cycles, T0 + 40 * MS, T0 + 41 * MS).number, first.number + 4);
}

#[test]
fn samples_between_cycles_have_no_number_and_hide_no_loss() {
    let mut cycles = Cycles::new(100 * MS);
    let first = judged(&mut cycles, T0, T0);
    for early in 1..10 {
        assert!(judged(&mut cycles, T0 + early * MS, T0 + early * MS).is_known);
    }
    // Then the task's own phase.
    for n in 0..10 {
        let stamp = T0 + (60 + 100 * n) * MS;
        let judged = judged(&mut cycles, stamp, stamp);
        assert_eq!((judged.number, judged.dropped, judged.is_known), (first.number + 1 + n as u64, 0, false));
    }
    let stamp = T0 + (60 + 100 * 11) * MS;
    assert_eq!(judged(&mut cycles, stamp, stamp).dropped, 1);
}

#[test]
fn a_rate_is_measured_over_a_second() {
    let mut watch = RateWatch::default();
    let rates: Vec<f64> = (0..3_000).filter_map(|n| watch.frame(T0 + n * MS)).collect();
    assert_eq!(rates.len(), 2);
    assert!(rates.iter().all(|rate| (*rate - 1_000.0).abs() < 2.0), "{rates:?}");
}
