//! Evaluations compared with a naive model that sorts all frames and computes each result from scratch, with shuffled
//! arrivals, frames that are too late, and evaluations cut off in between.

use std::collections::HashSet;
use std::time::Duration;

use strongback_query::Cell;
use strongback_sources::Sink;
use strongback_store::{
    ChannelSpec, ChannelType, Clock, FrameBatch, FrameHead, Scan, StoreOptions, StreamKey, StreamSpec, Value,
};

use super::book::BookError;
use super::definition::DerivedTable;
use super::past::Past;
use super::*;
use crate::live::Live;

const MS: i64 = 1_000_000;
const BASE: i64 = 1_700_000_000_000_000_000;

fn table(name: &str, trigger: &str, expression: &str) -> DerivedTable {
    DerivedTable {
        name: name.to_owned(),
        trigger: trigger.to_owned(),
        expression: expression.to_owned(),
        unit: String::new(),
        description: String::new(),
        align_ms: None,
    }
}

fn configured() -> Vec<Arc<Definition>> {
    let tables = vec![
        table("d.x", "a", "\"a.v\" * 2 + moving_average(\"b.w\", '30ms') + coalesce(asof(\"b.w\", '8ms'), 0.5)"),
        table("e.y", "d", "integral(\"d.x\") + delta(\"d.x\")"),
    ];
    definition::compile(tables).expect("definitions")
}

struct Rig {
    ingest: Arc<Ingest>,
    derived: Derived,
    work: DerivedThread,
    ledger: Ledger,
    folder: tempfile::TempDir,
}

impl Rig {
    fn new() -> Rig {
        Rig::with(StoreOptions::default())
    }

    fn with(options: StoreOptions) -> Rig {
        let folder = tempfile::tempdir().expect("a folder");
        let live = Arc::new(Live::default());
        let ingest = Ingest::open(folder.path().to_owned(), options, Vec::new(), live);
        let book = Definitions::open(folder.path(), &configured(), BASE).expect("a book");
        let (derived, work) = (Derived::new(book), DerivedThread::default());
        Rig { ingest: Arc::new(ingest.expect("a store")), derived, work, ledger: Ledger::default(), folder }
    }

    fn turn(&mut self, now: i64) {
        let clocks = (now, Duration::from_nanos(now.unsigned_abs()));
        self.derived.turn(&mut self.work, &self.ingest, &self.ledger, clocks, false);
    }

    /// Returns the number of standings of `d.x`.
    fn standings(&self) -> u64 {
        let view = self.ingest.store().view();
        let of = |stream: &&Arc<Stream>| stream.key.tag("evaluation") == Some("d.x version 1 of a");
        view.catalog().streams.iter().find(of).map_or(0, |stream| view.next_row(stream.id))
    }

    /// Drops everything that is only in memory.
    fn cut_off(&mut self) {
        self.ingest.live().fanout().derived.clear();
        let _ = self.ingest.live().fanout().derived.take();
        let book = Definitions::open(self.folder.path(), &configured(), BASE + 1).expect("the book again");
        (self.derived, self.work) = (Derived::new(book), DerivedThread::default());
    }

    fn send(&self, table: &str, channel: &str, time: i64, receive_time: i64, value: f64) {
        self.send_to(StreamKey::new(table, []), channel, time, receive_time, value);
    }

    fn send_to(&self, key: StreamKey, channel: &str, time: i64, receive_time: i64, value: f64) {
        self.send_each(key, channel, receive_time, [(time, value)]);
    }

    /// Sends values, each with a `time`, that are received at once.
    fn send_each(
        &self,
        key: StreamKey,
        channel: &str,
        receive_time: i64,
        values: impl IntoIterator<Item = (i64, f64)>,
    ) {
        let spec = StreamSpec {
            key,
            source: "test".to_owned(),
            clock: Clock::Source,
            expected_period_ns: None,
            sequence_modulus: None,
            channels: vec![ChannelSpec::new(channel, ChannelType::F64)],
        };
        let (stream, channels) = self.ingest.resolve(&spec).expect("a stream");
        let mut batch = FrameBatch::new();
        for (time, value) in values {
            batch.begin(FrameHead { stream: stream.id, receive_time, source_time: Some(time), sequence: None });
            batch.push(channels[0], Value::F64(value));
            batch.end();
        }
        let _ = self.ingest.accept(&batch);
    }

    /// Returns time, row and bits of some channels of a stream, in the order of rows.
    fn rows(&self, table: &str, channels: &[&str]) -> Vec<(i64, u64, Vec<Option<u64>>)> {
        let view = self.ingest.store().view();
        let stream = view.catalog().streams.iter().find(|stream| stream.key.table == table).cloned();
        let Some(stream) = stream else { return Vec::new() };
        let columns = channels.iter().map(|name| stream.layout.index(name).expect("a channel")).collect();
        let mut all = Vec::new();
        for batch in view.scan(Scan::all(stream.id, columns)) {
            let batch = batch.expect("a batch");
            for row in 0..batch.len() {
                let bits = |column: &strongback_store::Column| match column.cell(row).ok()? {
                    Value::F64(value) => Some(value.to_bits()),
                    Value::U64(value) => Some(value),
                    other => unreachable!("{other:?}"),
                };
                all.push((batch.time(row), batch.rows[row], batch.columns.iter().map(bits).collect()));
            }
        }
        all
    }

    fn late(&self, name: &str) -> HashSet<(StreamId, u64)> {
        let trigger = if name == "d.x" { "a".to_owned() } else { "d{version=1}".to_owned() };
        record::late(&self.ingest.store().view(), &format!("{name} version 1 of {trigger}")).expect("a scan")
    }

    fn past(&self, name: &str, from: i64, with_late: bool) -> Vec<(i64, u64, Option<u64>)> {
        let (definition, entry) = self.derived.book().find(name).expect("an entry");
        let versions = self.derived.versions();
        let store = self.ingest.store();
        let mut all =
            Past::all(&definition, &entry, &store.catalog(), |path| versions.get(path).copied()).expect("tied");
        assert_eq!(all.len(), 1);
        let mut found = Vec::new();
        let each = |results: &[instance::Evaluated], _| {
            found.extend(results.iter().map(|(frame, outcome)| {
                let bits = outcome.as_ref().map(|cell| match cell {
                    Cell::F64(value) => value.to_bits(),
                    other => unreachable!("{other:?}"),
                });
                (frame.time, frame.row.expect("a row"), bits)
            }));
            true
        };
        let mut counts = instance::Counts::default();
        all[0].evaluate(|| store.view(), from..i64::MAX, with_late, &mut counts, each).expect("a scan");
        found
    }
}

/// Returns the expected `d.x` for all frames (time, stream, row, value) in order; `b` is the stream of `w`.
fn naive(frames: &[(i64, u32, u64, f64)], b: u32) -> Vec<(i64, u64, Option<u64>)> {
    let mut results = Vec::new();
    for (at, (time, stream, row, v)) in frames.iter().enumerate() {
        if *stream == b {
            continue;
        }
        let samples: Vec<(i64, f64)> =
            frames[..at].iter().filter(|frame| frame.1 == b).map(|frame| (frame.0, frame.3)).collect();
        let result = samples.last().map(|(newest, w)| {
            let window: Vec<f64> =
                samples.iter().filter(|(time, _)| *time > newest - 30 * MS).map(|(_, value)| *value).collect();
            let average = window.iter().sum::<f64>() / window.len() as f64;
            let fresh = if time - newest <= 8 * MS { *w } else { 0.5 };
            v * 2.0 + average + fresh
        });
        results.push((*time, *row, result.map(f64::to_bits)));
    }
    results
}

#[test]
fn shuffled_late_and_cut_off_the_record_gives_the_same_bits() {
    let (mut all_late, mut all_results) = (0, 0);
    for seed in 0..12 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut rig = Rig::new();
        let mut coming: Vec<(i64, &str, i64, f64)> = (0..400)
            .map(|n: i64| {
                let delay = if random.u8(0..40) == 0 { 60 } else { random.i64(0..15) };
                let table = if random.u8(0..5) < 3 { "a" } else { "b" };
                (n + delay, table, BASE + n / 2 * MS, random.f64() * 10.0)
            })
            .collect();
        coming.sort_by_key(|frame| frame.0);
        let (mut next, mut triggers) = (0, 0);
        for now in 0..700 {
            while next < coming.len() && coming[next].0 == now {
                let (_, table, time, value) = coming[next];
                rig.send(table, if table == "a" { "v" } else { "w" }, time, BASE + now * MS, value);
                triggers += usize::from(table == "a");
                next += 1;
            }
            if random.u8(0..4) == 0 || now > 600 {
                rig.turn(BASE + now * MS);
            }
            if seed % 3 == 1 && random.u8(0..90) == 0 {
                rig.cut_off();
            }
            if seed % 3 == 2 && random.u8(0..60) == 0 {
                // As if a queue had been full.
                let _ = rig.ingest.live().fanout().derived.take();
                rig.work.instances.iter_mut().for_each(Instance::miss);
            }
        }
        // Operations that failed are retried a second later by the clock.
        (0..40).for_each(|n| rig.turn(BASE + (3_000 + n * 200) * MS));

        let live = rig.rows("d", &["x_row", "x"]);
        let of = |(time, _, cells): &(i64, u64, Vec<Option<u64>>)| (*time, cells[0].expect("a row"), cells[1]);
        let live: Vec<(i64, u64, Option<u64>)> = live.iter().map(of).collect();
        let (late, catalog) = (rig.late("d.x"), rig.ingest.store().catalog());
        let id = |table: &str| catalog.streams.iter().find(|stream| stream.key.table == table).expect("a stream").id;
        let (a, b) = (id("a"), id("b"));
        let late_triggers = late.iter().filter(|(stream, _)| *stream == a).count();
        assert_eq!(live.len() + late_triggers, triggers, "seed {seed}: none is lost, none is double");

        let mut frames: Vec<(i64, u32, u64, f64)> = Vec::new();
        for (table, channel, stream) in [("a", "v", a), ("b", "w", b)] {
            for (time, row, cells) in rig.rows(table, &[channel]) {
                if !late.contains(&(stream, row)) {
                    frames.push((time, stream.0, row, f64::from_bits(cells[0].expect("a value"))));
                }
            }
        }
        frames.sort_by_key(|frame| (frame.0, frame.1, frame.2));
        assert_eq!(live, naive(&frames, b.0), "seed {seed}: what is not late has the result of the model");
        assert_eq!(rig.past("d.x", i64::MIN, false), live, "seed {seed}");
        // From the middle on, with the live memory.
        let middle = live[live.len() / 2].0;
        let half: Vec<_> = live.iter().filter(|of| of.0 >= middle).copied().collect();
        assert_eq!(rig.past("d.x", middle, false), half, "seed {seed}");
        assert_eq!(rig.past("d.x", i64::MIN, true).len(), triggers, "seed {seed}");

        let over: Vec<(i64, u64, Option<u64>)> = rig.rows("e", &["y_row", "y"]).iter().map(of).collect();
        assert_eq!(over.len() + rig.late("e.y").len(), live.len(), "seed {seed}");
        assert!(rig.late("e.y").is_empty(), "seed {seed}: results come in order, whoever reads them waits");
        assert_eq!(rig.past("e.y", i64::MIN, false), over, "seed {seed}");
        all_late += late.len();
        all_results += live.len();
    }
    assert!(all_late > 30 && all_results > 2_000, "{all_late} late, {all_results} results");
}

#[test]
fn a_trigger_that_appears_while_frames_come_is_evaluated_from_its_first_on() {
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut rig = Rig::new();
        let (mut sent, start) = (0, random.i64(0..80));
        for now in 0..300 {
            // The other stream starts later: until then the evaluation waits, and then catches up.
            if now > start {
                rig.send("b", "w", BASE + now * MS, BASE + now * MS, 1.0 + now as f64);
            }
            for n in 0..random.i64(0..4) {
                rig.send("a", "v", BASE + now * MS + n, BASE + now * MS, now as f64 + n as f64 / 8.0);
                sent += 1;
            }
            if random.u8(0..3) == 0 {
                rig.turn(BASE + now * MS);
            }
        }
        (0..10).for_each(|n| rig.turn(BASE + (2_000 + n * 200) * MS));
        let rows: HashSet<u64> =
            rig.rows("d", &["x_row"]).iter().map(|(_, _, cells)| cells[0].expect("a row")).collect();
        assert_eq!((rows.len(), rig.rows("d", &["x"]).len()), (sent, sent), "seed {seed}");
        assert!(rig.late("d.x").is_empty(), "seed {seed}");
    }
}

/// A turn reads the clock once, but also takes frames that arrive after that.
#[test]
fn frames_received_while_they_are_evaluated_are_not_late_after_a_start() {
    let mut rig = Rig::new();
    let times = || (0..40).map(|n: i64| BASE + n * MS);
    for time in times() {
        rig.send("b", "w", time, time, 2.0);
        rig.send("a", "v", time, time + 500 * MS, 1.0);
        rig.turn(time + 100 * MS);
    }
    (2..6).for_each(|n| rig.turn(BASE + n * 100 * MS));
    let written = rig.rows("d", &["x"]);
    assert_eq!((written.len(), rig.rows("e", &["y"]).len()), (40, 40), "all have results before the end");
    rig.cut_off();
    (10..30).for_each(|n| rig.turn(BASE + n * 100 * MS));
    rig.send("a", "v", BASE + 60 * MS, BASE + 3_000 * MS, 1.0);
    (30..60).for_each(|n| rig.turn(BASE + n * 100 * MS));
    assert_eq!((rig.late("d.x"), rig.late("e.y")), (HashSet::new(), HashSet::new()));
    assert_eq!(rig.rows("d", &["x"])[..40], written);
    let live: Vec<_> = rig.rows("e", &["y"]).into_iter().map(|(time, _, cells)| (time, cells[0])).collect();
    let past: Vec<_> = rig.past("e.y", i64::MIN, false).into_iter().map(|(time, _, bits)| (time, bits)).collect();
    assert_eq!((live.len(), live), (41, past));
}

/// Compiles a definition with the trigger `a`, and puts it in force.
fn put(book: &mut Definitions, name: &str, expression: &str, now: i64) -> Result<u32, BookError> {
    let definition = book.compile(table(name, "a", expression))?;
    book.put(&definition, now)
}

#[test]
fn a_book_keeps_versions_and_what_needs_what() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = || Definitions::open(folder.path(), &[], 5).expect("a book");
    let mut book = open();
    assert_eq!(put(&mut book, "d.x", "\"a.v\"", 1).expect("put"), 1);
    assert_eq!(put(&mut book, "e.x", "\"d.x\" + 1", 2).expect("put"), 1);
    assert_eq!(put(&mut book, "f.x", "\"e.x\" + 1", 3).expect("put"), 1);
    assert_eq!(put(&mut book, "d.x", "\"a.v\" + 1", 4).expect("put"), 2);
    let versions =
        |book: &Definitions| book.in_force().iter().map(|(_, entry)| (entry.version, entry.since)).collect::<Vec<_>>();
    assert_eq!(versions(&book), [(2, 4), (2, 4), (2, 4)]);
    for (name, expression, says) in [
        ("d.x", "\"f.x\"", "\"d.x\": expression: these refer to each other in a circle: e.x, f.x, d.x"),
        ("d.x", "\"d.x\"", "\"d.x\": expression: it refers to itself"),
        ("d.x", "nosuch(\"a.v\")", "\"d.x\": expression: there is no function nosuch()"),
        ("d.x{k=1}", "\"a.v\"", "\"d.x{k=1}\": name: \"d.x\" is that channel already"),
        ("d", "\"a.v\"", "\"d\": name: expected table.channel"),
        ("Strongback.x", "\"a.v\"", "tables named strongback are the store's own"),
    ] {
        let error = put(&mut book, name, expression, 9).expect_err(says).to_string();
        assert!(error.contains(says), "{error}");
    }
    assert!(matches!(book.remove("d.x"), Err(BookError::Conflict(_))));
    assert_eq!(book.begin_backfill("d.x", 1, 2, true).expect("begun"), "2.1");
    let again = open();
    assert_eq!(versions(&again), versions(&book));
    assert_eq!(again.get("d.x").expect("one").backfills[0].state, "interrupted");
    book.remove("f.x").expect("removed");
    assert_eq!(put(&mut book, "f.x", "\"a.v\"", 7).expect("put"), 2 + 1);
    // Configured definitions can only be changed in the configuration.
    let of_file = definition::compile(vec![table("f.x", "a", "\"a.v\"")]).expect("definitions");
    let mut book = Definitions::open(folder.path(), &of_file, 8).expect("a book");
    assert_eq!(book.get("f.x").map(|entry| (entry.version, entry.configured)), Some((3, true)));
    assert!(matches!(put(&mut book, "f.x", "\"a.v\" + 2", 9), Err(BookError::Conflict(_))));
    std::fs::write(folder.path().join("derived.json"), "{").expect("written");
    assert!(Definitions::open(folder.path(), &[], 9).is_err());
}

#[test]
fn a_configuration_that_turns_dependencies_around_is_applied_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = |first: &str, second: &str, now: i64| {
        let tables = vec![table("d.x", "a", first), table("e.x", "a", second)];
        Definitions::open(folder.path(), &definition::compile(tables).expect("valid"), now).expect("a book")
    };
    let order = |book: &Definitions| -> Vec<(String, u32)> {
        book.in_force().into_iter().map(|(definition, entry)| (definition.path(), entry.version)).collect()
    };
    let before = open("\"a.v\"", "\"d.x\" + 1", 1);
    assert_eq!(order(&before), [("d.x".to_owned(), 1), ("e.x".to_owned(), 1)]);
    let after = open("\"e.x\" + 1", "\"a.v\"", 2);
    assert_eq!(order(&after), [("e.x".to_owned(), 2), ("d.x".to_owned(), 2)]);
}

#[test]
fn a_saved_definition_that_cannot_be_in_force_is_kept_and_told_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("derived.json");
    let open = |of_file: &[Arc<Definition>], now| Definitions::open(folder.path(), of_file, now).expect("a book");
    let mut book = open(&[], 1);
    put(&mut book, "d.x", "\"a.v\" + 1", 2).expect("put");
    put(&mut book, "e.x", "\"f.x\" + 1", 2).expect("put");
    put(&mut book, "g.x", "\"a.v\"", 2).expect("put");
    let change = |from: &str, to: &str| {
        let text = std::fs::read_to_string(&file).expect("the file");
        std::fs::write(&file, text.replace(from, to)).expect("written");
    };
    change("\\\"a.v\\\" + 1", "\\\"a.v\\\" +");
    // The configuration refers to e.x, which refers to it.
    let of_file = definition::compile(vec![table("f.x", "a", "\"e.x\"")]).expect("definitions");
    let book = open(&of_file, 3);
    let in_force: Vec<String> = book.in_force().iter().map(|(definition, _)| definition.path()).collect();
    assert_eq!(in_force, ["f.x", "g.x"]);
    let listed: Vec<String> = book.listed().into_iter().map(|entry| entry.definition.name).collect();
    assert_eq!(listed, ["f.x", "g.x", "d.x", "e.x"]);
    assert!(book.unfit()["d.x"].contains("expression: "), "{:?}", book.unfit());
    assert!(book.unfit()["e.x"].contains("in a circle"), "{:?}", book.unfit());
    let error = book.find("d.x").expect_err("not in force").to_string();
    assert!(error.starts_with("\"d.x\" is not in force: expression: "), "{error}");

    // Without the clash one is in force again; the other can be mended or removed.
    let mut book = open(&[], 4);
    assert_eq!(book.unfit().keys().collect::<Vec<_>>(), ["d.x"]);
    assert_eq!(book.find("e.x").expect("in force").1.version, 1);
    assert_eq!(put(&mut book, "d.x", "\"a.v\" + 2", 5).expect("put"), 2);
    assert!(book.unfit().is_empty());
    change("\\\"a.v\\\" + 2", "\\\"a.v\\\" +");
    let mut book = open(&[], 6);
    book.remove("d.x").expect("removed");
    assert!(book.unfit().is_empty() && book.get("d.x").is_none());
    assert!(open(&[], 7).unfit().is_empty());
}

#[test]
fn a_circle_names_its_members_alone() {
    let tables = vec![
        table("u.v", "a", "\"x.y\" + 1"),
        table("x.y", "a", "\"p.q\" + 1"),
        table("p.q", "a", "\"x.y\" + 1"),
        table("s.t", "a", "\"u.v\" + 1"),
    ];
    let error = definition::compile(tables).expect_err("a circle");
    assert_eq!(error.path, "derived[2].expression");
    assert_eq!(error.reason, "\"p.q\": these refer to each other in a circle: x.y, p.q");
    let many = (0..257).map(|n| table(&format!("d{n}.x"), "a", "\"a.v\"")).collect();
    assert_eq!(definition::compile(many).expect_err("too many").path, "derived");
}

#[test]
fn what_is_remembered_is_written_the_less_often_the_more_it_is() {
    let seconds = |bytes| stand_each_ns(bytes) / 1_000_000_000;
    // A window of 32,768 samples takes 512 KiB, written as 683 KiB.
    assert_eq!([0, 683 << 10, 8 << 20, u64::MAX].map(seconds), [10, 10, 128, 600]);
    // The written size counts: 4 bytes for every 3 of memory, plus the rows up to which frames were seen.
    let rig = Rig::new();
    let standing = record::Standing { seen: vec![(StreamId(1), 8)], memory: vec![0; 300], ..standing_at(5) };
    assert_eq!(record::stand(&rig.ingest, "one", None, &standing).expect("recorded"), 400 + 3);
}

#[test]
fn an_evaluation_that_stands_still_is_written_down_again_before_its_standing_goes_with_old_data() {
    let mut rig = Rig::new();
    rig.send("b", "w", BASE, BASE, 1.0);
    rig.send("a", "v", BASE + MS, BASE + MS, 2.0);
    (0..5).for_each(|n| rig.turn(BASE + (1_000 + n * 200) * MS));
    rig.turn(BASE + 20_000 * MS);
    let stood = rig.standings();
    assert_eq!(rig.rows("d", &["x"]).len(), 1);
    rig.turn(BASE + 40_000 * MS);
    assert_eq!(rig.standings(), stood, "no news");
    rig.turn(BASE + 700_000 * MS);
    assert_eq!(rig.standings(), stood + 1);
    rig.turn(BASE + 720_000 * MS);
    assert_eq!(rig.standings(), stood + 1);
    rig.turn(BASE + 3_700_000 * MS);
    assert_eq!(rig.standings(), stood + 2);
}

#[test]
fn a_standing_that_the_store_refused_is_written_with_the_next_and_no_result_waits_for_it() {
    let mut rig = Rig::new();
    rig.send("b", "w", BASE, BASE, 1.0);
    rig.send("a", "v", BASE + MS, BASE + MS, 2.0);
    (0..5).for_each(|n| rig.turn(BASE + (1_000 + n * 200) * MS));
    rig.turn(BASE + 20_000 * MS);
    let stood = rig.standings();
    rig.send("a", "v", BASE + 20_000 * MS, BASE + 20_000 * MS, 3.0);
    (1..5).for_each(|n| rig.turn(BASE + (20_000 + n * 200) * MS));
    // No stream can have a tag as long as this.
    let label = std::mem::replace(&mut rig.work.instances[0].label, "x".repeat(1 << 20));
    rig.turn(BASE + 30_000 * MS);
    assert_eq!(rig.standings(), stood);
    rig.send("a", "v", BASE + 30_000 * MS, BASE + 30_000 * MS, 4.0);
    (1..5).for_each(|n| rig.turn(BASE + (30_000 + n * 200) * MS));
    assert_eq!(rig.rows("d", &["x"]).len(), 3);
    // No more frames arrive.
    rig.turn(BASE + 40_000 * MS);
    rig.work.instances[0].label = label;
    rig.turn(BASE + 45_000 * MS);
    assert_eq!(rig.standings(), stood);
    rig.turn(BASE + 50_000 * MS);
    assert_eq!(rig.standings(), stood + 1);
}

/// Appends a standing in the form of an earlier version of the server.
fn stand_as_before(rig: &Rig, label: &str) {
    let channels = [
        ("stream", ChannelType::U32),
        ("row", ChannelType::U64),
        ("seen", ChannelType::String),
        ("memory", ChannelType::String),
    ];
    let spec = StreamSpec {
        key: StreamKey::new("strongback.derived", [("of".to_owned(), label.to_owned())]),
        source: "internal".to_owned(),
        clock: Clock::Source,
        expected_period_ns: None,
        sequence_modulus: None,
        channels: channels.map(|(name, kind)| ChannelSpec::new(name, kind)).to_vec(),
    };
    let (stream, channels) = rig.ingest.resolve_own(&spec).expect("a stream");
    let mut batch = FrameBatch::new();
    batch.begin(FrameHead { stream: stream.id, receive_time: 6, source_time: Some(5), sequence: None });
    let cells = [Value::U32(1), Value::U64(7), Value::String("1:8"), Value::String("AA==")];
    channels.iter().zip(cells).for_each(|(channel, cell)| batch.push(*channel, cell));
    batch.end();
    let _ = rig.ingest.accept(&batch);
}

/// Returns a standing at a `time`.
fn standing_at(time: i64) -> record::Standing {
    record::Standing { released: (time, 1, 8), seen: Vec::new(), memory: vec![0], from_row: None }
}

#[test]
fn standings_of_an_earlier_version_of_the_server_are_gone_on_from() {
    let rig = Rig::new();
    stand_as_before(&rig, "one");
    let found = |end| record::standing(&rig.ingest.store().view(), "one", end).expect("a scan");
    let first = || record::first_standing(&rig.ingest.store().view(), "one").expect("a scan");
    let before = found(i64::MAX).expect("a standing");
    let (seen, memory) = (before.seen.as_slice(), before.memory.as_slice());
    assert_eq!((before.released, seen, memory), ((5, 1, 7), &[(StreamId(1), 8)][..], &[0][..]));
    assert_eq!(first().as_ref(), Some(&before));
    let after = record::Standing { released: (9, 1, 8), ..before.clone() };
    record::stand(&rig.ingest, "one", None, &after).expect("recorded");
    assert_eq!(found(i64::MAX), Some(after.clone()));
    assert_eq!((found(9).as_ref(), first().as_ref()), (Some(&before), Some(&before)));
    // A newer standing is stored with the frames of its run.
    let of_run = record::Standing { released: (12, 1, 9), ..before.clone() };
    record::stand(&rig.ingest, "one", Some("r1"), &of_run).expect("recorded");
    assert_eq!((found(i64::MAX), found(12)), (Some(of_run), Some(after)));
    assert_eq!((found(9).as_ref(), first().as_ref()), (Some(&before), Some(&before)));
}

#[test]
fn what_went_with_old_data_is_not_made_up_for_by_what_is_older() {
    let options =
        StoreOptions { log_bytes: 1 << 20, segment_bytes: 64 << 10, max_bytes: Some(4 << 20), ..Default::default() };
    let rig = Rig::with(options);
    let store = rig.ingest.store();
    let stand = |label: &str, time| {
        record::stand(&rig.ingest, label, None, &standing_at(time)).expect("recorded");
    };
    for label in ["one", "two"] {
        stand(label, 5);
    }
    let found = |label: &str| record::standing(&store.view(), label, i64::MAX).expect("a scan");
    // Incompressible data displaces all of that.
    let (mut random, mut time) = (fastrand::Rng::with_seed(1), BASE);
    for _ in 0..400 {
        if found("one").is_none() && found("two").is_none() {
            break;
        }
        let values = (0..4_000).map(|n| (time + n * MS, f64::from_bits(random.u64(..) >> 2)));
        rig.send_each(StreamKey::new("filler", []), "v", BASE, values);
        time += 4_000 * MS;
        store.commit(crate::process::clock::now_ns()).expect("committed");
        while store.maintain(crate::process::clock::now_ns()).expect("maintained") {}
    }
    assert_eq!((found("one"), found("two")), (None, None), "they are there still");
    // A stream of an earlier version is kept longer than data.
    ["one", "three"].into_iter().for_each(|label| stand_as_before(&rig, label));
    assert_eq!(found("one"), None);
    assert_eq!(found("three").map(|standing| standing.released), Some((5, 1, 7)));
    for label in ["one", "two", "four"] {
        stand(label, 9);
    }
    assert_eq!(found("one"), Some(standing_at(9)));
    // The start of an evaluation is known as long as its first standing exists.
    let began = |label: &str| record::first_standing(&store.view(), label).expect("a scan");
    assert_eq!((found("two"), began("two")), (Some(standing_at(9)), None));
    assert_eq!(began("four"), Some(standing_at(9)));
    assert_eq!(began("three").map(|standing| standing.released), Some((5, 1, 7)));
}

#[test]
fn the_standings_of_a_run_are_kept_with_its_frames() {
    let mut rig = Rig::new();
    let of_run = |table: &str| StreamKey::new(table, [("run".to_owned(), "r1".to_owned())]);
    rig.send_to(of_run("b"), "w", BASE, BASE, 1.0);
    rig.send_to(of_run("a"), "v", BASE + MS, BASE + MS, 2.0);
    (0..5).for_each(|n| rig.turn(BASE + (1_000 + n * 200) * MS));
    rig.turn(BASE + 20_000 * MS);
    let (view, label) = (rig.ingest.store().view(), "d.x version 1 of a{run=r1}");
    let standings = view.catalog().streams.iter().filter(|stream| stream.key.tag("evaluation") == Some(label));
    assert_eq!(standings.map(|stream| stream.key.tag("run")).collect::<Vec<_>>(), [Some("r1")]);
    let standing = record::standing(&view, label, i64::MAX).expect("a scan").expect("a standing");
    assert_eq!(standing.released.0, BASE + MS);
}

#[test]
fn a_stream_that_appears_with_the_clock_set_back_is_evaluated_from_its_first_frame_on() {
    let mut rig = Rig::new();
    // The version is in force, and no frame has arrived.
    rig.turn(BASE);
    let set_back = BASE - 30_000 * MS;
    for n in 1..=10 {
        rig.send("a", "v", BASE + n * MS, set_back + n * MS, n as f64);
    }
    // Another input is missing for a while.
    (1..=3).for_each(|n| rig.turn(set_back + n * 200 * MS));
    assert!(rig.work.instances.is_empty());
    rig.send("a", "v", BASE + 11 * MS, set_back + 700 * MS, 11.0);
    rig.send("b", "w", BASE, set_back + 700 * MS, 1.0);
    rig.send("a", "v", BASE + 12 * MS, set_back + 700 * MS, 12.0);
    (4..=16).for_each(|n| rig.turn(set_back + n * 200 * MS));
    assert_eq!((rig.rows("d", &["x"]).len(), rig.rows("e", &["y"]).len()), (12, 12));
    // The same after a restart.
    rig.cut_off();
    rig.send("a", "v", BASE + 13 * MS, set_back + 4_000 * MS, 13.0);
    (20..=30).for_each(|n| rig.turn(set_back + n * 200 * MS));
    assert_eq!((rig.rows("d", &["x"]).len(), rig.rows("e", &["y"]).len()), (13, 13));
    assert!(rig.late("d.x").is_empty() && rig.late("e.y").is_empty());
}

#[test]
fn a_clock_that_is_set_back_behind_the_begin_of_a_version_silences_nothing() {
    let mut rig = Rig::new();
    // Received before the version came into force.
    rig.send("b", "w", BASE - MS, BASE - MS, 1.0);
    rig.send("a", "v", BASE - MS, BASE - MS, 1.0);
    (0..5).for_each(|n| rig.turn(BASE + n * 200 * MS));
    assert!(rig.rows("d", &["x"]).is_empty());
    // The clocks of the sources are right.
    let set_back = BASE - 30_000 * MS;
    for n in 1..=10 {
        rig.send("a", "v", BASE + n * MS, set_back + n * MS, n as f64);
        rig.turn(set_back + n * MS);
    }
    (1..=10).for_each(|n| rig.turn(set_back + n * 200 * MS));
    assert_eq!((rig.rows("d", &["x"]).len(), rig.rows("e", &["y"]).len()), (10, 10));
    rig.cut_off();
    for n in 11..=20 {
        rig.send("a", "v", BASE + n * MS, set_back + (3_000 + n) * MS, n as f64);
    }
    (1..=10).for_each(|n| rig.turn(set_back + (4_000 + n * 200) * MS));
    assert_eq!((rig.rows("d", &["x"]).len(), rig.rows("e", &["y"]).len()), (20, 20));
    assert!(rig.late("d.x").is_empty() && rig.late("e.y").is_empty());
}

/// Returns the rows of triggers with a result of a version, in the order of the results.
fn triggers_of(rig: &Rig, table: &str, channel: &str, version: &str) -> Vec<u64> {
    let view = rig.ingest.store().view();
    let is_it = |stream: &&Arc<Stream>| stream.key.table == table && stream.key.tag("version") == Some(version);
    let Some(stream) = view.catalog().streams.iter().find(is_it).cloned() else { return Vec::new() };
    let column = stream.layout.index(channel).expect("a channel");
    let batches = view.scan(Scan::all(stream.id, vec![column]));
    let cells = batches.map(|batch| batch.expect("a batch"));
    let rows = |batch: strongback_store::Batch| -> Vec<u64> {
        let cell = |row| match batch.columns[0].cell(row) {
            Ok(Value::U64(row)) => row,
            other => panic!("{other:?}"),
        };
        (0..batch.len()).map(cell).collect()
    };
    cells.flat_map(rows).collect()
}

#[test]
fn frames_held_back_when_a_version_changes_have_a_result_of_one_of_the_two() {
    for is_killed in [false, true] {
        let mut rig = Rig::new();
        let put = |rig: &Rig, expression: &str, now: i64| {
            rig.derived.change(|book| {
                let definition = book.compile(table("f.z", "a", expression)).expect("compiled");
                book.put(&definition, now).expect("changed")
            })
        };
        let mut now = BASE;
        rig.send("b", "w", now, now, 0.0);
        put(&rig, "\"a.v\" + coalesce(\"b.w\", 0)", now);
        for n in 0..200 {
            now = BASE + n * 3_000_000;
            rig.send("a", "v", now, now, n as f64);
            if n % 5 == 0 {
                rig.send("b", "w", now, now, n as f64);
            }
            if n == 100 {
                assert_eq!(put(&rig, "\"a.v\" - coalesce(\"b.w\", 0)", now + 1), 2);
                if is_killed {
                    rig.cut_off();
                }
            }
            if n % 3 == 0 {
                rig.turn(now + 1_000_000);
            }
        }
        rig.turn(now + 2_000_000_000);
        rig.turn(now + 4_000_000_000);
        let (first, second) = (triggers_of(&rig, "f", "z_row", "1"), triggers_of(&rig, "f", "z_row", "2"));
        assert!(first.len() > 80 && second.len() >= 99, "{} and {} results", first.len(), second.len());
        let all: Vec<u64> = first.into_iter().chain(second).collect();
        assert_eq!(all, (0..200).collect::<Vec<_>>(), "killed: {is_killed}");
    }
}
