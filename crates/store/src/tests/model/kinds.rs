//! The model by kinds: each looks for one class of faults with what provokes it, and compares what that class spoils.
//! Which there are, what each checks and how to run one: docs/model.md.

mod clock;
mod full;
mod gaps;
mod naive;
mod readings;
mod seen;
mod sender;
mod streams;
mod values;
mod world;

use super::Checked;
use crate::mutant::{self, Mutant};

/// A kind of run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Streams,
    Gaps,
    Readings,
    Values,
    Clock,
    Full,
}

impl Kind {
    const ALL: [Kind; 6] = [Kind::Streams, Kind::Gaps, Kind::Readings, Kind::Values, Kind::Clock, Kind::Full];

    /// Its name in `STRONGBACK_MODEL_KIND`.
    fn name(self) -> &'static str {
        match self {
            Kind::Streams => "streams",
            Kind::Gaps => "gaps",
            Kind::Readings => "readings",
            Kind::Values => "values",
            Kind::Clock => "clock",
            Kind::Full => "full",
        }
    }

    fn run(self, seed: u64) -> Checked {
        match self {
            Kind::Streams => streams::run(seed),
            Kind::Gaps => gaps::run(seed),
            Kind::Readings => readings::run(seed),
            Kind::Values => values::run(seed),
            Kind::Clock => clock::run(seed),
            Kind::Full => full::run(seed),
        }
    }
}

/// Runs a seed; a panic is an error like others.
fn outcome(kind: Kind, seed: u64) -> Checked {
    std::panic::catch_unwind(|| kind.run(seed)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panicked: {}", text.unwrap_or_default()))
    })
}

/// Runs seeds of a kind, and says which of them failed.
fn run_all(kind: Kind, seeds: impl Iterator<Item = u64>) {
    let (mut failed, mut count) = (Vec::new(), 0);
    for seed in seeds {
        count += 1;
        if let Err(error) = outcome(kind, seed) {
            println!("seed {seed}: {error}");
            failed.push(format!("STRONGBACK_MODEL_KIND={} STRONGBACK_MODEL_SEEDS={seed}: {error}", kind.name()));
        }
    }
    println!("{}: {count} seeds, {} failed", kind.name(), failed.len());
    let first = failed.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
    assert!(failed.is_empty(), "{} of {count} seeds failed:\n{first}", failed.len());
}

/// The kinds that `STRONGBACK_MODEL_KIND` names, with the seeds of `STRONGBACK_MODEL_SEEDS`: for more than the few of
/// each that the tests below run.
#[test]
fn the_kinds_that_are_asked_for_agree() {
    let Ok(wanted) = std::env::var("STRONGBACK_MODEL_KIND") else { return };
    for name in wanted.split(',') {
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name.trim());
        let kind = kind.unwrap_or_else(|| panic!("STRONGBACK_MODEL_KIND: {name:?} is none of {:?}", Kind::ALL));
        run_all(kind, super::seeds::seeds(100));
    }
}

/// Seeds that any fault must be found within.
const FOUND_WITHIN: u64 = 1_000;

/// Prints after how many seeds of its kind each fault that was put in on purpose is found, and fails if one is not.
fn find(faults: &[(&str, Mutant, Kind)]) {
    let found: Vec<(&str, Option<u64>)> = faults
        .iter()
        .map(|&(what, mutant, kind)| {
            mutant::activate(Some(mutant));
            let found = (0..FOUND_WITHIN).find(|seed| outcome(kind, *seed).is_err());
            mutant::activate(None);
            (what, found)
        })
        .collect();
    for (what, seed) in &found {
        println!("{what}: found by seed {seed:?}");
    }
    assert!(found.iter().all(|(_, seed)| seed.is_some()), "{found:?}");
}

#[test]
fn values_of_any_bits_are_read_back() {
    run_all(Kind::Values, 0..60);
}

#[test]
fn a_clock_that_is_believed_at_once_is_found() {
    find(&[("a clock believed at once", Mutant::BelieveClock, Kind::Clock)]);
}

#[test]
fn what_is_read_back_wrongly_is_found() {
    find(&[
        ("negative zeros of a grid", Mutant::NegativeZero, Kind::Values),
        ("frames of the last nanosecond", Mutant::LastInstant, Kind::Values),
    ]);
}
