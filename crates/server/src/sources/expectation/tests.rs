//! Generated arrivals, polled about once a second as the server does: what is learnt and what is reported.

use super::*;

const S: i64 = 1_000_000_000;
/// An arbitrary instant.
const START: i64 = 1_780_000_000 * S;

/// Arrivals as (receive, source) time, ascending in the first.
type Arrivals = Vec<(i64, Option<i64>)>;

/// The reports of one run.
struct Told {
    of: Expectation,
    turns: Vec<StatusChanges>,
    /// Learnt rate at each poll.
    learnt: Vec<Option<f64>>,
}

impl Told {
    fn began(&self, status: StreamStatus) -> usize {
        self.turns.iter().filter_map(|t| t.began).filter(|b| b.status == status).count()
    }

    fn ended(&self, status: StreamStatus) -> Vec<EndedSilence> {
        self.turns.iter().filter_map(|t| t.ended).filter(|e| e.status == status).collect()
    }
}

/// Polls the arrivals until `until` seconds; polls are up to a tenth of a second late.
fn run(arrivals: &Arrivals, given_ns: Option<i64>, until: i64, seed: u64) -> Told {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut of, mut turns, mut learnt) = (Expectation::default(), Vec::new(), Vec::new());
    let (mut at, mut came) = (START, 0);
    while at < START + until * S {
        while came < arrivals.len() && arrivals[came].0 <= at {
            came += 1;
        }
        let newest = came.checked_sub(1).map(|i| arrivals[i]);
        turns.push(of.look(&Seen {
            now: at,
            frames: came as u64,
            received: newest.map(|n| n.0),
            source: newest.and_then(|n| n.1),
            time: newest.map(|n| n.1.unwrap_or(n.0)),
            given_ns,
            may_learn: true,
        }));
        learnt.push(of.learnt.map(|period| 1e9 / period));
        at += S + random.i64(0..S / 10);
    }
    Told { of, turns, learnt }
}

/// Returns one arrival every `period` seconds, each off by up to `jitter` of the period either way.
fn regular(period: f64, jitter: f64, from: f64, to: f64, random: &mut fastrand::Rng) -> Arrivals {
    let count = ((to - from) / period) as usize;
    let off = |random: &mut fastrand::Rng| (random.f64() * 2.0 - 1.0) * jitter;
    let mut times: Vec<i64> =
        (0..count).map(|n| START + ((from + (n as f64 + 0.5 + off(random)) * period) * 1e9) as i64).collect();
    times.sort_unstable();
    times.into_iter().map(|t| (t, None)).collect()
}

fn poisson(rate_hz: f64, to: f64, random: &mut fastrand::Rng) -> Arrivals {
    let (mut t, mut all) = (0.0, Vec::new());
    loop {
        t -= (1.0 - random.f64()).ln() / rate_hz;
        if t >= to {
            return all;
        }
        all.push((START + (t * 1e9) as i64, None));
    }
}

/// Gathers arrivals into deliveries every `every` seconds; all frames of a delivery share its time.
fn delivered(arrivals: Arrivals, every: f64) -> Arrivals {
    let every = (every * 1e9) as i64;
    arrivals.into_iter().map(|(t, _)| (START + ((t - START) / every + 1) * every, Some(t))).collect()
}

fn close(rate: Option<f64>, to: f64) -> bool {
    rate.is_some_and(|rate| (rate / to - 1.0).abs() < 0.02)
}

#[test]
fn a_regular_stream_is_learnt_whatever_its_rate_and_jitter() {
    let mut random = fastrand::Rng::with_seed(1);
    for (period, jitter) in [(0.001, 2.0), (0.01, 0.4), (0.1, 0.2), (1.0, 0.1), (5.0, 0.1), (0.3, 0.0)] {
        let until = 40.0 + 20.0 * period;
        let told = run(&regular(period, jitter, 0.0, until + 1.0, &mut random), None, until as i64, 2);
        assert!(close(told.of.expected_rate_hz(), 1.0 / period), "{period} s: {:?}", told.of);
        assert_eq!((told.of.expected(), told.of.status()), (RateOrigin::Learnt, StreamStatus::Ok));
        assert!((told.of.rate_hz() * period - 1.0).abs() < 0.2, "{period} s: {} Hz", told.of.rate_hz());
        assert!(told.turns.iter().all(|t| *t == StatusChanges::default()), "{period} s: {:?}", told.turns);
    }
}

#[test]
fn deliveries_and_a_burst_at_the_start_do_not_hide_the_rate() {
    let mut random = fastrand::Rng::with_seed(3);
    let all = delivered(regular(1.0, 0.05, 0.0, 400.0, &mut random), 10.0);
    let told = run(&all, None, 395, 4);
    assert!(close(told.of.expected_rate_hz(), 1.0), "{:?}", told.of);
    assert_eq!(told.began(StreamStatus::Silent), 0, "ten seconds between deliveries are no silence");
    // With a given period, the first delivery is a silence; after it, the deliveries are known.
    let told = run(&all, Some(S), 395, 4);
    assert!(told.began(StreamStatus::Silent) <= 1, "{:?}", told.turns);
    assert!(
        told.ended(StreamStatus::Silent).iter().all(|e| e.missing.is_none()),
        "nothing is missing: {:?}",
        told.turns
    );

    let mut burst: Arrivals = (0..5_000).map(|n| (START + n * 100_000, None)).collect();
    burst.extend(regular(0.1, 0.1, 1.0, 60.0, &mut random));
    let told = run(&burst, None, 58, 5);
    assert!(close(told.of.expected_rate_hz(), 10.0), "{:?}", told.of);
}

#[test]
fn an_irregular_stream_has_no_rate() {
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        for rate in [0.2, 1.0, 10.0, 100.0, 800.0] {
            let told = run(&poisson(rate, 600.0, &mut random), None, 598, seed);
            assert!(told.learnt.iter().all(Option::is_none), "{rate} Hz, seed {seed}: {:?}", told.learnt);
            assert_eq!((told.of.expected(), told.of.status()), (RateOrigin::None, StreamStatus::Ok));
        }
        // Deliveries of random sizes.
        let sizes: Arrivals =
            (0..600).flat_map(|n| std::iter::repeat_n((START + n * S, None), random.usize(0..20))).collect();
        let told = run(&sizes, None, 598, seed);
        assert!(told.learnt.iter().all(Option::is_none), "seed {seed}: {:?}", told.learnt);
    }
}

#[test]
fn a_stream_that_comes_and_goes_is_not_learnt_for_long() {
    let mut random = fastrand::Rng::with_seed(7);
    for (on, off) in [(5.0, 5.0), (30.0, 30.0), (60.0, 20.0)] {
        let mut all = Vec::new();
        let mut t = 0.0;
        while t < 3_600.0 {
            all.extend(regular(0.05, 0.1, t, t + on, &mut random));
            t += on + off;
        }
        let told = run(&all, None, 3_600, 8);
        assert!(
            told.began(StreamStatus::Silent) <= 12,
            "{on}/{off}: {} silences told",
            told.began(StreamStatus::Silent)
        );
        for rate in told.learnt.iter().flatten() {
            assert!((rate / 20.0 - 1.0).abs() < 0.05, "{on}/{off}: {rate} Hz");
        }
    }
}

#[test]
fn a_change_of_rate_is_slow_first_if_slower_and_then_expected() {
    let mut random = fastrand::Rng::with_seed(9);
    let mut all = regular(0.1, 0.1, 0.0, 60.0, &mut random);
    all.extend(regular(0.2, 0.1, 60.0, 240.0, &mut random));
    let told = run(&all, None, 238, 10);
    assert_eq!((told.began(StreamStatus::Slow), told.ended(StreamStatus::Slow).len()), (1, 1), "{:?}", told.turns);
    assert!(close(told.of.expected_rate_hz(), 5.0), "{:?}", told.of);

    let mut all = regular(0.2, 0.1, 0.0, 60.0, &mut random);
    all.extend(regular(0.1, 0.1, 60.0, 120.0, &mut random));
    let told = run(&all, None, 118, 11);
    assert_eq!(told.began(StreamStatus::Slow), 0);
    assert!(close(told.of.expected_rate_hz(), 10.0), "{:?}", told.of);
    // A given period is never replaced.
    assert_eq!(run(&all, Some(S / 5), 118, 11).of.expected_rate_hz(), Some(5.0));
    assert_eq!(run(&all, Some(S / 20), 118, 11).of.status(), StreamStatus::Slow);
}

#[test]
fn what_is_sent_from_a_file_is_not_learnt() {
    let mut random = fastrand::Rng::with_seed(12);
    let live = regular(0.1, 0.1, 0.0, 120.0, &mut random);
    // An hour of data each second, perfectly regular.
    let filled: Arrivals = live.iter().map(|(t, _)| (*t, Some((t - START) * 3_600))).collect();
    assert!(run(&filled, None, 118, 13).learnt.iter().all(Option::is_none));
    // A clock that is off by years is not such data.
    let wrong: Arrivals = live.iter().map(|(t, _)| (*t, Some(t - START))).collect();
    assert!(close(run(&wrong, None, 118, 13).of.expected_rate_hz(), 10.0));
}

/// Compares with a count made independently: each frame missing in a silence counts once, whatever the poll times.
#[test]
fn a_silence_is_told_once_with_what_is_missing() {
    for seed in 0..50 {
        let mut random = fastrand::Rng::with_seed(seed);
        let period = [0.02, 0.1, 1.0][random.usize(0..3)];
        let all = regular(period, 0.05, 0.0, 120.0, &mut random);
        let gone = random.f64() * 40.0 + 20.0;
        let long = 5.0 + random.f64() * 30.0;
        let within = |t: i64| ((t - START) as f64 / 1e9) >= gone && ((t - START) as f64 / 1e9) < gone + long;
        let left: Arrivals = all.iter().copied().filter(|(t, _)| !within(*t)).collect();
        let removed = (all.len() - left.len()) as u64;
        let told = run(&left, Some((period * 1e9) as i64), 119, seed);
        let ended = told.ended(StreamStatus::Silent);
        assert_eq!((told.began(StreamStatus::Silent), ended.len()), (1, 1), "seed {seed}: {:?}", told.turns);
        let (missing, from, to) = ended[0].missing.expect("some are missing");
        assert_eq!(missing, removed, "seed {seed}: {:?}", ended[0]);
        let before = left.iter().rev().find(|(t, _)| ((t - START) as f64 / 1e9) < gone).unwrap().0;
        let after = left.iter().find(|(t, _)| ((t - START) as f64 / 1e9) >= gone + long).unwrap().0;
        assert_eq!(from, before);
        assert!((to - after).abs() < (period * 2e8) as i64, "seed {seed}: {to} for {after}");
    }
}

#[test]
fn what_comes_late_with_its_own_time_is_not_missing() {
    // Ten frames a second; from 20 to 40 s the network holds them back.
    let all: Arrivals = (0..1_000)
        .map(|n| {
            let time = START + n * S / 10;
            let held = (20..40).contains(&((time - START) / S));
            (if held { START + 40 * S } else { time }, Some(time))
        })
        .collect();
    let told = run(&all, Some(S / 10), 99, 14);
    assert_eq!(told.ended(StreamStatus::Silent).len(), 1);
    assert_eq!(told.ended(StreamStatus::Silent)[0].missing, None, "{:?}", told.ended(StreamStatus::Silent));
}

#[test]
fn a_frame_is_missing_only_where_both_clocks_say_so() {
    // Ten frames a second, then nothing for 20 s. The stamps then continue without a step (the source slept), 20 s
    // later, or an hour later (its clock leapt).
    for (later, missing) in [(0, None), (20, Some(200)), (3_600, Some(200))] {
        let stamped = |n: i64| START + n * S / 10 + if n >= 200 { later * S } else { 0 };
        let received = |n: i64| START + n * S / 10 + if n >= 200 { 20 * S } else { 0 };
        let all: Arrivals = (0..600).map(|n| (received(n), Some(stamped(n)))).collect();
        let told = run(&all, Some(S / 10), 75, 18);
        let [ended] = told.ended(StreamStatus::Silent)[..] else { panic!("{later} s: {:?}", told.turns) };
        assert_eq!(ended.missing, missing.map(|count| (count, stamped(199), stamped(200))), "{later} s");
    }
}

#[test]
fn a_silence_after_a_frame_in_1970_begins_when_that_frame_came() {
    // Ten frames a second; the last one before 20 s of nothing has its time in seconds.
    let received = |n: i64| START + n * S / 10 + if n >= 200 { 20 * S } else { 0 };
    let stamped = |n: i64| if n == 199 { received(n) / S } else { received(n) };
    let all: Arrivals = (0..600).map(|n| (received(n), Some(stamped(n)))).collect();
    let told = run(&all, Some(S / 10), 75, 19);
    let [ended] = told.ended(StreamStatus::Silent)[..] else { panic!("{:?}", told.turns) };
    let (count, from, to) = ended.missing.expect("frames are missing");
    assert_eq!((count, to), (200, stamped(200)));
    assert!((from - received(199)).abs() < S, "{from}");
}

#[test]
fn a_silence_to_the_end_is_counted_at_the_end() {
    let mut random = fastrand::Rng::with_seed(15);
    let all = regular(0.1, 0.05, 0.0, 20.0, &mut random);
    let mut told = run(&all, Some(S / 10), 50, 16);
    assert_eq!((told.of.status(), told.began(StreamStatus::Silent)), (StreamStatus::Silent, 1));
    assert_eq!(told.of.since(), all.last().unwrap().0);
    let ended = told.of.finish(START + 50 * S).unwrap();
    let (missing, ..) = ended.missing.unwrap();
    assert!((298..=300).contains(&missing), "{missing}");
    assert_eq!(told.of.finish(START + 51 * S), None, "once");
}

#[test]
fn a_silence_since_a_start_that_waited_is_counted_from_the_start() {
    let newest = |given_ns| Seen {
        now: START,
        frames: 1,
        received: Some(START),
        source: None,
        time: Some(START),
        given_ns,
        may_learn: false,
    };
    let (start, until) = (START + 60 * S, START + 3_660 * S);
    let ended = Expectation::missed_since(start, &newest(Some(S)), until).unwrap();
    let (missing, from, to) = ended.missing.unwrap();
    assert!((3_599..=3_600).contains(&missing), "{missing}");
    assert_eq!((ended.status, from, to), (StreamStatus::Silent, start, until));
    assert_eq!(Expectation::missed_since(start, &newest(Some(S)), start + S / 2), None, "not silent yet");
    assert_eq!(Expectation::missed_since(start, &newest(None), until), None, "nobody knows how often it comes");
}

#[test]
fn nothing_is_never() {
    let told = run(&Vec::new(), Some(S / 10), 50, 17);
    assert_eq!(
        (told.of.status(), told.of.expected(), told.of.rate_hz()),
        (StreamStatus::Never, RateOrigin::Given, 0.0)
    );
    assert!(told.turns.iter().all(|t| *t == StatusChanges::default()));
}

/// A stream of 10 Hz that is silent twice; the clock is set in the first minute, at a poll.
#[test]
fn a_silence_is_one_by_a_clock_that_is_set_too() {
    for by in [-3_600 * S, 3_600 * S, -S] {
        for given in [Some(S / 10), None] {
            let (mut of, mut clock) = (Expectation::default(), 0);
            let mut spans = Vec::new();
            let mut missing = 0;
            let (mut frames, mut received) = (0, 0);
            for second in 0..200_i64 {
                let quiet = (90..110).contains(&second) || (150..165).contains(&second);
                if !quiet {
                    (frames, received) = (frames + 10, START + second * S + clock);
                }
                if second == 45 {
                    // Frames just before the leap are stamped by the old clock.
                    clock = by;
                    of.leap(by);
                }
                let turn = of.look(&Seen {
                    now: START + second * S + S / 2 + clock,
                    frames,
                    received: Some(received),
                    source: None,
                    time: Some(received),
                    given_ns: given,
                    may_learn: true,
                });
                if let Some(ended) = turn.ended.filter(|ended| ended.status == StreamStatus::Silent) {
                    spans.push((ended.span.1 - ended.span.0) / S);
                    missing += ended.missing.map_or(0, |missing| missing.0);
                }
            }
            assert_eq!(of.status(), StreamStatus::Ok, "{by} {given:?}");
            assert!(matches!(spans[..], [18..=21, 13..=16]), "{by} {given:?}: {spans:?}");
            assert!((300..=360).contains(&missing), "{by} {given:?}: {missing}");
        }
    }
}

#[test]
fn a_stream_that_came_before_a_start_is_waited_for_from_there_on() {
    let seen = |now: i64, frames: u64, received: Option<i64>| Seen {
        now,
        frames,
        received,
        source: None,
        time: received,
        given_ns: Some(S / 10),
        may_learn: true,
    };
    let mut of = Expectation::default();
    assert_eq!(of.look(&seen(START, 0, None)), StatusChanges::default());
    of.begin(START);
    assert_eq!(of.look(&seen(START + S, 0, None)), StatusChanges::default());
    let began = of.look(&seen(START + 3 * S, 0, None)).began.expect("silent");
    assert_eq!((began.status, began.since), (StreamStatus::Silent, START));
    // The silence is counted when it ends, by a frame or by the end of the server.
    let ended = of.clone().finish(START + 10 * S).expect("ended");
    assert_eq!(ended.missing, Some((99, START, START + 10 * S)));
    let came = START + 10 * S;
    let ended = of.look(&seen(came, 1, Some(came))).ended.expect("ended");
    assert_eq!(ended.missing, Some((99, START, came)));
    // The same holds if the source's clock differs from this one.
    for off in [-3_600 * S, 3_600 * S] {
        let mut of = Expectation::default();
        of.begin(START);
        of.look(&seen(START + 3 * S, 0, None));
        let first = Seen { time: Some(came + off), source: Some(came + off), ..seen(came, 1, Some(came)) };
        assert_eq!(of.look(&first).ended.expect("ended").missing, Some((99, START + off, came + off)));
    }
    // A stream that arrives in time is not silent.
    let mut of = Expectation::default();
    of.begin(START);
    (1..50).for_each(|n| {
        let at = START + n * S / 2;
        assert_eq!(of.look(&seen(at, 5 * n as u64, Some(at))), StatusChanges::default());
    });
}
