//! Which seeds are run, and how many of them find a fault that was put in on purpose.

use super::Model;
use crate::model::mutant::{self, Mutant};

/// What a seed came by.
#[derive(Default)]
struct Ran {
    cuts: u64,
    failures: u64,
    /// Whether anything was written over, or went for want of space.
    round: bool,
}

/// Runs one seed on a disk that lies about the syncs of files whose names begin so.
fn run(seed: u64, fixed: bool, lies_about: Option<&'static str>) -> Result<Ran, String> {
    let mut model = Model::new(seed, fixed);
    *model.disk.faults.lies_about.lock() = lies_about;
    // A small log takes less at a time.
    (0..if fixed { 900 } else { 250 }).try_for_each(|_| model.step())?;
    model.rot()?;
    let round = model.streams.iter().any(|stream| stream.first > 0);
    Ok(Ran { cuts: model.cuts.into(), failures: model.failures.into(), round })
}

/// Seeds as `STRONGBACK_MODEL_SEEDS` says, `FROM..TO` or one number; without it so many.
pub(super) fn seeds(usual: u64) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("STRONGBACK_MODEL_SEEDS") else { return 0..usual };
    let number = |text: &str| text.trim().parse().unwrap_or_else(|_| panic!("STRONGBACK_MODEL_SEEDS: {text:?}"));
    match text.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None => number(&text)..number(&text) + 1,
    }
}

/// Seeds beyond the usual ones that found something once. In a folder: a file whose name was not durable was used.
/// In a fixed size: the model itself expected one slot more than there is beside settle's.
const FOUND_ONCE: [(bool, &[u64]); 2] = [(false, &[326, 357, 1383]), (true, &[357, 449, 537, 571, 1383])];

fn run_all(fixed: bool, usual: u64) {
    let seeds = seeds(usual);
    let mut all = Ran::default();
    let (mut rounds, count) = (0, seeds.end - seeds.start);
    let mut failed = Vec::new();
    let again =
        FOUND_ONCE.iter().filter(|(of_fixed, _)| *of_fixed == fixed).flat_map(|(_, seeds)| seeds.iter().copied());
    for seed in seeds.chain(again) {
        let ran = std::panic::catch_unwind(|| run(seed, fixed, None)).unwrap_or_else(|_| Err("panicked".into()));
        match ran {
            Ok(ran) => {
                (all.cuts, all.failures) = (all.cuts + ran.cuts, all.failures + ran.failures);
                rounds += u64::from(ran.round);
            }
            Err(error) => failed.push(format!("STRONGBACK_MODEL_SEEDS={seed}: {error}")),
        }
    }
    assert!(failed.is_empty(), "{} of {count} seeds failed:\n{}", failed.len(), failed.join("\n"));
    println!("{count} seeds: {} cuts, {} failures of the disk, {rounds} went round", all.cuts, all.failures);
    // A few seeds alone may not come by anything.
    if count >= 50 {
        assert!(all.cuts > count && all.failures > count / 8, "{} cuts, {} failures", all.cuts, all.failures);
        assert!(rounds >= if fixed { count / 4 } else { 0 }, "{rounds} of {count} went round");
    }
}

#[test]
fn the_store_and_the_model_agree_whatever_fails() {
    run_all(false, 300);
}

#[test]
fn a_store_of_a_fixed_size_and_the_model_agree_whatever_fails() {
    run_all(true, 80);
}

/// Seeds that any fault must be found within.
const FOUND_WITHIN: u64 = 2_000;

/// Seeds that found what few others do, of which 1383 took 13 minutes to come by: the others are not run before them.
const FOUND_RARELY: [u64; 2] = [357, 1383];

/// A seed that finds a fault.
fn found_by(mutant: Option<Mutant>, lies_about: Option<&'static str>, fixed: bool) -> Option<u64> {
    mutant::activate(mutant);
    let found = FOUND_RARELY.into_iter().chain(0..FOUND_WITHIN).find(|seed| {
        let ran = std::panic::catch_unwind(|| run(*seed, fixed, lies_about));
        ran.is_err() || ran.is_ok_and(|ran| ran.is_err())
    });
    mutant::activate(None);
    found
}

/// Prints which seed finds each fault, and fails if none does.
fn find(faults: &[(&str, Option<Mutant>, Option<&'static str>, bool)]) {
    let found: Vec<(&str, bool, Option<u64>)> = faults
        .iter()
        .map(|&(what, mutant, lies_about, fixed)| (what, fixed, found_by(mutant, lies_about, fixed)))
        .collect();
    for (what, fixed, seed) in &found {
        let place = if *fixed { "fixed size" } else { "folder" };
        match seed {
            Some(seed) => println!("{what} ({place}): found by seed {seed}"),
            None => println!("{what} ({place}): NOT FOUND in {FOUND_WITHIN} seeds"),
        }
    }
    assert!(found.iter().all(|(_, _, seed)| seed.is_some()), "{found:?}");
}

#[test]
fn a_sync_that_is_left_out_is_found() {
    find(&[
        ("no sync at all", None, Some(""), false),
        ("no sync at all", None, Some(""), true),
        ("no sync of the log", None, Some("log"), false),
        ("no sync of segments", None, Some("segment"), false),
        ("no sync of checkpoints", None, Some("checkpoint"), false),
        ("no sync of the superblock", None, Some("superblock"), false),
        ("no sync of the folder", None, Some("."), false),
    ]);
}

#[test]
fn a_checksum_that_is_left_out_is_found() {
    find(&[
        ("no checksum of log units", Some(Mutant::NoLogCheck), None, false),
        ("no checksum of blocks", Some(Mutant::NoBlockCheck), None, false),
        ("no checksum of segments' pages and footers", Some(Mutant::NoSegmentCheck), None, false),
    ]);
}

#[test]
fn an_acknowledgement_too_early_is_found() {
    find(&[
        ("acknowledged before it is written", Some(Mutant::AcknowledgeEarly), None, false),
        ("acknowledged before it is written", Some(Mutant::AcknowledgeEarly), None, true),
        ("the cache believed after a failed sync", Some(Mutant::KeepCached), None, false),
        ("held frames not in the log", Some(Mutant::ForgetHeld), None, false),
        ("rows sealed past few others", Some(Mutant::SealPastFew), None, false),
        ("rows sealed past few others", Some(Mutant::SealPastFew), None, true),
        ("rows of the log by the newest clock", Some(Mutant::ForgetClock), None, false),
        ("rows of the log by the newest clock", Some(Mutant::ForgetClock), None, true),
    ]);
}

#[test]
fn damage_that_is_told_too_late_is_found() {
    find(&[("damage told with the first commit", Some(Mutant::TellDamageLate), None, false)]);
}
