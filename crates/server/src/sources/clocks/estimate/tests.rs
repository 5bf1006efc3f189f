use super::*;

const S: i64 = 1_000_000_000;
const MS: i64 = 1_000_000;
const T0: i64 = 1_780_000_000 * S;

/// A made-up source: its clock and its travel times.
struct World {
    random: fastrand::Rng,
    /// Source clock minus true time at `T0`, and the drift since then.
    offset_ns: f64,
    drift_ppm: f64,
    /// Minimum travel time.
    way_ns: i64,
    jitter_ns: f64,
    /// Distribution of the jitter: 0 exponential, 1 uniform, 2 two paths, 3 heavy tail.
    shape: u8,
    frames_a_second: i64,
    /// Spans in which a queue delays everything, and the max delay.
    bursts: Vec<(i64, i64, i64)>,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = fastrand::Rng::with_seed(seed);
        World {
            offset_ns: (random.f64() - 0.5) * 4e9,
            drift_ppm: (random.f64() - 0.5) * 200.0,
            way_ns: random.i64(10_000..20 * MS),
            jitter_ns: 1e3 + random.f64() * 1e6,
            shape: random.u8(0..4),
            frames_a_second: *[1, 10, 50, 200].get(random.usize(0..4)).unwrap(),
            bursts: Vec::new(),
            random,
        }
    }

    /// Returns the source clock minus true time at `at`.
    fn truth(&self, at: i64) -> f64 {
        self.offset_ns + (at - T0) as f64 * self.drift_ppm * 1e-6
    }

    fn jitter(&mut self) -> i64 {
        let u = self.random.f64();
        let times = match self.shape {
            0 => -(1.0 - u).ln(),
            1 => u * 2.0,
            2 => u * 0.2 + if self.random.bool() { 3.0 } else { 0.0 },
            _ => (1.0 - u).powf(-0.7) - 1.0,
        };
        (times.min(2_000.0) * self.jitter_ns) as i64
    }

    /// Returns the window of one second.
    fn second(&mut self, second: i64) -> ArrivalWindow {
        let mut delays = Vec::new();
        for n in 0..self.frames_a_second {
            let sent = T0 + second * S + n * S / self.frames_a_second;
            let queued = match self.bursts.iter().find(|(from, to, _)| (*from..*to).contains(&second)) {
                Some((.., most)) => self.random.i64(*most / 4..=*most),
                None => 0,
            };
            let received = sent + self.way_ns + self.jitter() + queued;
            let stamp = sent + self.truth(sent) as i64;
            delays.push((received - stamp, received));
        }
        let (least_ns, at) = *delays.iter().min().unwrap();
        let sum: i64 = delays.iter().map(|(d, _)| d - least_ns).sum();
        ArrivalWindow { least_ns, at, above_ns: sum / delays.len() as i64, never_set: false }
    }
}

/// Runs the given seconds and returns the reported jumps.
fn run(world: &mut World, estimate: &mut Option<ClockEstimate>, seconds: std::ops::Range<i64>) -> Vec<(i64, Jump)> {
    let mut jumps = Vec::new();
    for second in seconds {
        let window = world.second(second);
        match estimate {
            None => *estimate = Some(ClockEstimate::new(&window)),
            Some(estimate) => jumps.extend(estimate.window(&window).map(|jump| (second, jump))),
        }
    }
    jumps
}

/// Returns the allowed error of an estimate: the part of the jitter that the min of many delays leaves.
fn bounds(world: &World) -> (f64, f64) {
    let offset_ns = 20e3 + world.jitter_ns * if world.frames_a_second == 1 { 1.5 } else { 0.4 };
    (offset_ns, offset_ns / 1e9 / 100.0 * 1e6)
}

fn check(world: &World, estimate: &ClockEstimate, what: &str) {
    let reading = estimate.reading();
    let (offset_bound, drift_bound) = bounds(world);
    let truth = world.truth(estimate.newest) - world.way_ns as f64;
    let off = reading.offset_ns as f64 - truth;
    assert!(off.abs() <= offset_bound, "{what}: offset {off} ns off, {offset_bound} allowed: {reading:?}");
    let off = reading.drift_ppm - world.drift_ppm;
    assert!(off.abs() <= drift_bound, "{what}: drift {off} ppm off, {drift_bound} allowed: {reading:?}");
}

#[test]
fn offset_and_drift_are_found_under_jitter_of_any_shape() {
    for seed in 0..200 {
        let mut world = World::new(seed);
        let mut estimate = None;
        assert_eq!(run(&mut world, &mut estimate, 0..200), [], "seed {seed}");
        let estimate = estimate.unwrap();
        assert_eq!(estimate.reading().state, ClockState::Good, "seed {seed}");
        check(&world, &estimate, &format!("seed {seed}"));
    }
}

#[test]
fn bursts_of_late_frames_move_nothing() {
    for seed in 0..100 {
        let mut world = World::new(seed);
        let mut from = 60;
        while from < 290 {
            let length = world.random.i64(1..11);
            let most = world.random.i64(20 * MS..2 * S);
            world.bursts.push((from, from + length, most));
            from += length + world.random.i64(5..40);
        }
        let mut estimate = None;
        assert_eq!(run(&mut world, &mut estimate, 0..300), [], "seed {seed}");
        // The bounds hold within the last burst as well as after it.
        check(&world, estimate.as_ref().unwrap(), &format!("seed {seed}"));
    }
}

#[test]
fn jumps_are_told_once_with_their_size_and_the_estimate_begins_anew() {
    for seed in 0..100 {
        let mut world = World::new(seed);
        let mut estimate = None;
        run(&mut world, &mut estimate, 0..120);
        // The step is larger than the spread of a few single frames explains.
        let size = world.random.f64().mul_add(5e9, 40.0 * world.jitter_ns + 5e6);
        let by = if world.random.bool() { size } else { -size };
        world.offset_ns += by;
        let jumps = run(&mut world, &mut estimate, 120..300);
        let [(told, jump)] = jumps[..] else { panic!("seed {seed}: {by} ns gave {jumps:?}") };
        let limit = if by > 0.0 { SHORT_SUSPECTS } else { LONG_SUSPECTS } as i64;
        // A single slow window in between may restart the count.
        assert!(told < 120 + 4 * limit, "seed {seed}: told {} s later", told - 120);
        let tolerance = 10.0 * world.jitter_ns + 1e6;
        assert!((jump.by_ns as f64 - by).abs() < tolerance, "seed {seed}: {by} was told as {jump:?}");
        let estimate = estimate.unwrap();
        assert_eq!((estimate.reading().jumps, estimate.reading().state), (1, ClockState::Good), "seed {seed}");
        check(&world, &estimate, &format!("seed {seed}"));
    }
}

#[test]
fn states_follow_each_other() {
    let window = |second: i64, delay: i64, never_set| ArrivalWindow {
        least_ns: delay,
        at: T0 + second * S,
        above_ns: 2 * MS,
        never_set,
    };
    let mut clock = ClockEstimate::new(&window(0, MS, false));
    assert_eq!(clock.reading().state, ClockState::Learning);
    for second in 1..=30 {
        assert_eq!(clock.window(&window(second, MS, false)), None);
    }
    let good = clock.reading();
    assert_eq!((good.state, good.since, good.offset_ns), (ClockState::Good, T0 + 30 * S, -MS));
    assert_eq!((good.spread_ns, good.drift_ppm, good.jumps), (2 * MS, 0.0, 0));
    // One window without a queue changes nothing, nor does one that is too short.
    assert_eq!(clock.window(&window(31, -5 * MS, false)), None);
    assert_eq!(clock.window(&window(32, MS, false)), None);
    assert_eq!(clock.reading().offset_ns, -MS);
    assert_eq!(clock.window(&window(33, -S, false)), None);
    assert_eq!(clock.window(&window(34, -S, false)), None);
    assert_eq!(clock.window(&window(35, -S, false)), Some(Jump { at: T0 + 33 * S, by_ns: S + MS }));
    assert_eq!((clock.reading().state, clock.reading().jumps), (ClockState::Jumped, 1));
    assert_eq!((clock.reading().offset_ns, clock.reading().since), (S, T0 + 33 * S));
    for second in 36..=63 {
        assert_eq!(clock.window(&window(second, -S, false)), None);
    }
    assert_eq!(clock.reading().state, ClockState::Good);
    clock.look(T0 + 123 * S);
    assert_eq!(clock.reading().state, ClockState::Good);
    clock.look(T0 + 124 * S);
    assert_eq!(clock.reading().state, ClockState::Gone);
    assert_eq!(clock.window(&window(130, -S, false)), None);
    assert_eq!(clock.reading().state, ClockState::Good);
    // A clock switched off and on starts at 1970, runs, and is set later. Neither is a jump.
    let unset = T0 - 755 * S;
    for second in 140..200 {
        assert_eq!(clock.window(&window(second, unset, true)), None);
    }
    assert_eq!((clock.reading().state, clock.reading().offset_ns), (ClockState::NeverSet, -unset));
    assert_eq!(clock.window(&window(200, 0, false)), None);
    assert_eq!((clock.reading().state, clock.reading().jumps), (ClockState::Learning, 1));
}

#[test]
fn a_clock_of_reception_that_is_set_back_is_a_jump_and_disorder_is_none() {
    let window = |at: i64, least_ns| ArrivalWindow { least_ns, at, above_ns: 0, never_set: false };
    let mut clock = ClockEstimate::new(&window(T0, 0));
    for second in 1..60 {
        clock.window(&window(T0 + second * S, 0));
    }
    assert_eq!(clock.window(&window(T0 + 59 * S - MS, 0)), None);
    assert_eq!(clock.reading().state, ClockState::Good);
    let back = window(T0 + 60 * S - 3_600 * S, -3_600 * S);
    assert_eq!(clock.window(&back), Some(Jump { at: back.at, by_ns: 3_600 * S }));
}

#[test]
fn what_happens_while_a_clock_is_learnt_is_no_jump_and_is_forgotten() {
    let window =
        |second: i64, delay: i64| ArrivalWindow { least_ns: delay, at: T0 + second * S, above_ns: 0, never_set: false };
    let mut clock = ClockEstimate::new(&window(0, 0));
    for second in 1..60 {
        // A step of a tenth of a second fits no clock's line.
        assert_eq!(clock.window(&window(second, if second < 10 { 0 } else { S / 10 })), None);
    }
    let reading = clock.reading();
    assert_eq!((reading.state, reading.jumps, reading.offset_ns), (ClockState::Good, 0, -S / 10));
    assert_eq!(reading.drift_ppm, 0.0);
    // The clock of reception is set back before anything is known.
    let mut clock = ClockEstimate::new(&window(100, 0));
    assert_eq!(clock.window(&window(50, -50 * S)), None);
    assert_eq!((clock.reading().state, clock.reading().jumps), (ClockState::Learning, 0));
}

#[test]
fn stamps_that_follow_no_clock_are_never_good_and_never_jump() {
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        // Past data, sent as fast as possible.
        let mut stamp = T0 - 86_400 * S;
        let mut clock: Option<ClockEstimate> = None;
        for second in 0..600 {
            stamp += random.i64(1..200) * S;
            let at = T0 + second * S;
            let window = ArrivalWindow { least_ns: at - stamp, at, above_ns: S, never_set: false };
            match &mut clock {
                None => clock = Some(ClockEstimate::new(&window)),
                Some(clock) => {
                    assert_eq!(clock.window(&window), None, "seed {seed}");
                    assert_ne!(clock.reading().state, ClockState::Good, "seed {seed}, second {second}");
                }
            }
        }
        let clock = clock.unwrap();
        assert_eq!(clock.reading().jumps, 0);
        assert!(clock.points.len() <= POINTS_MAX && clock.suspects.len() < SUSPECTS_MAX);
    }
}

#[test]
fn any_numbers_are_survived() {
    let ends = [i64::MIN, i64::MIN + 1, -1, 0, 1, T0, i64::MAX - 1, i64::MAX];
    for seed in 0..50 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut pick = || ends[random.usize(0..ends.len())];
        let mut clock =
            ClockEstimate::new(&ArrivalWindow { least_ns: pick(), at: pick(), above_ns: pick(), never_set: false });
        for n in 0..200 {
            clock.window(&ArrivalWindow { least_ns: pick(), at: pick(), above_ns: pick(), never_set: n % 7 == 0 });
            clock.look(pick());
            clock.reading();
        }
    }
}
