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
use crate::model::mutant::{self, Mutant};

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
        if count % 1_000 == 0 {
            println!("{}: {count} seeds so far, {} failed", kind.name(), failed.len());
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

/// A fault that is put in on purpose.
struct PutIn {
    what: &'static str,
    mutant: Mutant,
    kind: Kind,
    /// The first seed that finds it: those before it are not run again.
    first: u64,
}

/// The first seed of a range that finds a fault.
fn found_by(mutant: Mutant, kind: Kind, mut seeds: std::ops::Range<u64>) -> Option<u64> {
    mutant::activate(Some(mutant));
    let found = seeds.find(|seed| outcome(kind, *seed).is_err());
    mutant::activate(None);
    found
}

/// Fails unless each fault that was put in on purpose is found, and by a seed that finds nothing without it.
fn find(faults: &[PutIn]) {
    let mut missed = Vec::new();
    for &PutIn { what, mutant, kind, first } in faults {
        let found = found_by(mutant, kind, first..FOUND_WITHIN);
        println!("{what} ({}): found by seed {found:?}", kind.name());
        let alone = found.filter(|seed| outcome(kind, *seed).is_ok());
        missed.extend(alone.is_none().then_some(what));
    }
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn values_of_any_bits_are_read_back() {
    run_all(Kind::Values, (0..60).chain([2_950]));
}

#[test]
fn every_frame_of_a_sequence_is_accounted_for() {
    // Behind the range: what found something once.
    run_all(Kind::Streams, (0..150).chain([289, 390, 435]));
}

#[test]
fn rows_of_losses_stay_bounded() {
    run_all(Kind::Gaps, 0..30);
}

#[test]
fn readings_stay_what_they_are_whatever_the_store_does() {
    run_all(Kind::Readings, (0..30).chain([40, 57, 125, 177, 877, 987]));
}

#[test]
fn nothing_goes_by_a_clock_that_is_wrong() {
    run_all(Kind::Clock, (0..30).chain([209, 455, 1047, 2195, 2617, 3461, 4237, 4241, 5651]));
}

#[test]
fn a_full_disk_costs_the_oldest_rows_and_no_others() {
    run_all(Kind::Full, (0..30).chain([63, 101, 155, 317, 614, 1_616]));
}

/// Faults of each kind that are put in on purpose.
const PUT_IN: [PutIn; 21] = [
    PutIn { what: "negative zeros of a grid", mutant: Mutant::NegativeZero, kind: Kind::Values, first: 29 },
    PutIn { what: "frames of the last nanosecond", mutant: Mutant::LastInstant, kind: Kind::Values, first: 0 },
    PutIn { what: "a clock believed at once", mutant: Mutant::BelieveClock, kind: Kind::Clock, first: 0 },
    PutIn { what: "a leap forgotten by the next opening", mutant: Mutant::ForgetLeap, kind: Kind::Clock, first: 209 },
    PutIn { what: "frames below the first not missing", mutant: Mutant::ForgetBelow, kind: Kind::Streams, first: 8 },
    PutIn { what: "sequences not in checkpoints", mutant: Mutant::ForgetSequences, kind: Kind::Streams, first: 1 },
    PutIn { what: "a commit that never comes", mutant: Mutant::NameNextCommit, kind: Kind::Streams, first: 21 },
    PutIn { what: "gaps that begin at no frame", mutant: Mutant::ForgetNewest, kind: Kind::Streams, first: 0 },
    PutIn { what: "states of late rows", mutant: Mutant::LateIsNewest, kind: Kind::Readings, first: 0 },
    PutIn { what: "statistics believed", mutant: Mutant::BelieveStatistics, kind: Kind::Readings, first: 57 },
    PutIn { what: "statistics that end with a value", mutant: Mutant::BelieveEnds, kind: Kind::Readings, first: 877 },
    PutIn { what: "a row for each loss", mutant: Mutant::TellEachLoss, kind: Kind::Gaps, first: 0 },
    PutIn { what: "refused once, refused for ever", mutant: Mutant::RefuseForEver, kind: Kind::Full, first: 5 },
    PutIn { what: "sequences ahead of their rows", mutant: Mutant::SealAhead, kind: Kind::Readings, first: 40 },
    PutIn { what: "gaps left out by settling", mutant: Mutant::DropGapMark, kind: Kind::Readings, first: 1 },
    PutIn { what: "segments that go too early", mutant: Mutant::DropEarly, kind: Kind::Full, first: 0 },
    PutIn { what: "groups thrown away", mutant: Mutant::ThrowGroups, kind: Kind::Full, first: 4 },
    PutIn { what: "segments replaced too early", mutant: Mutant::ReplaceEarly, kind: Kind::Full, first: 2 },
    PutIn { what: "poisoned by want of descriptors", mutant: Mutant::PoisonDescriptors, kind: Kind::Full, first: 4 },
    PutIn { what: "refused with history that may go", mutant: Mutant::KeepOldest, kind: Kind::Full, first: 0 },
    PutIn { what: "a cache that is believed", mutant: Mutant::KeepCached, kind: Kind::Full, first: 7 },
];

fn find_of(kind: Kind) {
    let faults: Vec<PutIn> = PUT_IN.into_iter().filter(|fault| fault.kind == kind).collect();
    find(&faults);
}

#[test]
fn a_clock_that_is_believed_is_found() {
    find_of(Kind::Clock);
}

#[test]
fn losses_that_take_too_much_room_are_found() {
    find_of(Kind::Gaps);
}

#[test]
fn what_is_read_back_wrongly_is_found() {
    find_of(Kind::Values);
}

#[test]
fn frames_that_are_counted_wrongly_are_found() {
    find_of(Kind::Streams);
}

#[test]
fn time_that_is_known_wrongly_is_found() {
    find_of(Kind::Readings);
}

#[test]
fn what_a_full_disk_spoils_is_found() {
    find_of(Kind::Full);
}
