//! A clock that is wrong: at 1970 until somebody sets it, ahead or behind by seconds to years for a while, two of them
//! apart. Nothing goes that is younger than `max_age` by the true time, which only the model knows.

use std::time::Duration;

use super::super::{Checked, T0, ensure};
use super::world::{End, World, scan, small_options};
use crate::tests::kit::*;
use crate::*;

const DAY: i64 = 86_400 * SECOND;
const AGE_MAX: i64 = 7_200 * SECOND;

struct Clocked {
    world: World,
    id: StreamId,
    /// The true time.
    time: i64,
    /// What clocks show beyond it.
    error: i64,
    /// When the clock will be right again.
    wrong_until: i64,
    /// True time of each row.
    rows: Vec<i64>,
    acknowledged: usize,
    /// Whether upkeep has a clock beside that nobody sets.
    steady: bool,
    /// How far an age may be taken for more than it is.
    slack: i64,
    /// Whether anything was stored under a time to come: it stays until then.
    ahead: bool,
}

pub(super) fn run(seed: u64) -> Checked {
    let mut options = StoreOptions { segment_bytes: 32 << 10, ..small_options() };
    options.max_age = Some(Duration::from_nanos(AGE_MAX as u64));
    // Every third begins before its clock is set.
    let shown = if seed.is_multiple_of(3) { 300 * SECOND } else { T0 };
    let world = World::at(seed, options, shown)?;
    let error = shown - T0;
    let wrong_until = if error == 0 { T0 } else { T0 + 600 * SECOND };
    let mut clocked = Clocked {
        world,
        id: StreamId(0),
        time: T0,
        error,
        wrong_until,
        rows: Vec::new(),
        acknowledged: 0,
        steady: seed % 2 == 1,
        // What a clock that is slewed may be off by, unnoticed.
        slack: 10 * SECOND,
        ahead: false,
    };
    clocked.resolve()?;
    (0..150).try_for_each(|_| clocked.step())?;
    clocked.views_age()?;
    clocked.old_rows_go()?;
    (0..3).try_for_each(|_| clocked.is_wrong_for_minutes())
}

impl Clocked {
    fn resolve(&mut self) -> Checked {
        let spec = spec("steady", [("value", ChannelType::I64)]).source("model");
        let resolved = self.world.store().resolve(&spec, self.world.now).map_err(|error| error.to_string())?;
        self.id = resolved.0.id;
        Ok(())
    }

    /// The true time passes; the clock shows what it shows.
    fn pass(&mut self, duration: i64) {
        self.time += duration;
        if self.time >= self.wrong_until {
            self.error = 0;
        }
        self.world.now = self.time.saturating_add(self.error);
    }

    fn step(&mut self) -> Checked {
        let choice = self.world.random.u8(0..100);
        match choice {
            0..40 => self.record()?,
            40..70 => {
                let passes = self.world.random.i64(SECOND / 10..30 * SECOND);
                self.pass(passes);
                self.upkeep(self.world.now)?;
            }
            70..76 => {
                self.leap();
                self.upkeep(self.world.now)?;
            }
            // The thread of upkeep reads the clock at another time than that of commits.
            76..84 => {
                let apart = self.world.random.i64(-5 * SECOND..5 * SECOND);
                self.upkeep(self.world.now.saturating_add(apart))?;
            }
            84..86 => {
                let ends = [i64::MAX, i64::MAX - 1, i64::MIN + 1, i64::MIN + 2, 0, -1];
                let end = ends[self.world.random.usize(..ends.len())];
                self.upkeep(end)?;
            }
            86..90 => {
                let minutes = self.world.random.i64(0..200);
                self.pass(minutes * 60 * SECOND);
            }
            90..94 => {
                let end = End::any(&mut self.world.random);
                if end == End::Clean {
                    self.acknowledged = self.rows.len();
                }
                self.world.end(end)?;
                self.come_back()?;
            }
            _ => {
                self.world.settle()?;
            }
        }
        self.check()
    }

    fn record(&mut self) -> Checked {
        self.append();
        self.world.commit()?;
        self.acknowledged = self.rows.len();
        Ok(())
    }

    /// Compares what an opening found.
    fn come_back(&mut self) -> Checked {
        self.resolve()?;
        let rows = self.world.store().view().next_row(self.id) as usize;
        let (acknowledged, most) = (self.acknowledged, self.rows.len());
        ensure((acknowledged..=most).contains(&rows), || format!("{rows} rows of {acknowledged} came back"))?;
        self.rows.truncate(rows);
        Ok(())
    }

    /// By a second to ten years, to either side, for seconds to an hour.
    fn leap(&mut self) {
        let random = &mut self.world.random;
        let far = [SECOND, 60 * SECOND, 3_600 * SECOND, DAY / 8, DAY, 400 * DAY, 3_650 * DAY][random.usize(..7)];
        self.error = random.i64(far / 2..=far) * if random.bool() { 1 } else { -1 };
        self.wrong_until = self.time + random.i64(SECOND..600 * SECOND);
        if !self.steady {
            // Up to a minute is taken for time that passed.
            self.slack += 120 * SECOND;
        }
        self.pass(1);
    }

    fn append(&mut self) {
        let mut batch = FrameBatch::new();
        let mut times = Vec::new();
        for _ in 0..self.world.random.usize(1..1_500) {
            self.pass(1_000);
            let head = head(self.id, self.world.now);
            batch.put(head, [Value::I64(self.world.random.i64(..))]);
            times.push(self.time);
        }
        self.ahead |= self.error > 0;
        let appended = self.world.store().append(&batch, self.world.now);
        let stored = times.into_iter().zip(appended.outcomes);
        self.rows.extend(stored.filter(|(_, outcome)| matches!(outcome, Outcome::Stored { .. })).map(|(time, _)| time));
    }

    fn upkeep(&mut self, shown: i64) -> Checked {
        let since = Duration::from_nanos((self.time - T0) as u64);
        for _ in 0..40 {
            let store = self.world.store();
            let done = if self.steady { store.maintain_at(shown, since) } else { store.maintain(shown) };
            if !done.map_err(|refusal| format!("cannot maintain: {refusal}"))? {
                break;
            }
        }
        Ok(())
    }

    /// What is younger than `max_age` is there.
    fn check(&self) -> Checked {
        let young = self.rows.partition_point(|time| self.time - time >= AGE_MAX - self.slack);
        let first = self.first()?;
        ensure(first <= young, || {
            let age = (self.time - self.rows[first - 1]) / SECOND;
            format!("row {} is gone after {age} s, with the clock {} s ahead", first - 1, self.error / SECOND)
        })
    }

    /// The oldest row that is there.
    fn first(&self) -> Result<usize, String> {
        let view = self.world.store().view();
        for batch in view.scan(Scan { batch_rows: 1, ..Scan::all(self.id, Vec::new()) }) {
            let batch = batch.map_err(|error| format!("cannot read: {error}"))?;
            if let Some(row) = batch.rows.first() {
                return Ok(*row as usize);
            }
        }
        Ok(self.rows.len())
    }

    /// A view that is held too long is told so by a clock that is right again, wherever it was before.
    fn views_age(&mut self) -> Checked {
        let until_right = (self.wrong_until - self.time).max(0);
        self.pass(until_right + SECOND);
        for _ in 0..20 {
            self.pass(SECOND);
            self.upkeep(self.world.now)?;
        }
        let view = self.world.store().view();
        for _ in 0..90 {
            self.pass(SECOND);
            self.upkeep(self.world.now)?;
        }
        match scan(&view, Scan::all(self.id, Vec::new())) {
            Ok(_) => Err("a view that was held for 90 s is read".into()),
            Err(_) => scan(&self.world.store().view(), Scan::all(self.id, Vec::new())).map(drop),
        }
    }

    /// While it is wrong frames come. It is right again while the store runs, between two openings, before the first
    /// upkeep of an opening, or after it; another opening follows.
    fn is_wrong_for_minutes(&mut self) -> Checked {
        self.record()?;
        self.leap();
        let when = self.world.random.u8(0..4);
        // One that ends soon may not have seen the leap.
        if when == 0 || self.world.random.bool() {
            self.upkeep(self.world.now)?;
        }
        for left in (1..=self.world.random.i64(1..8)).rev() {
            let passes = (self.wrong_until - self.time - 1).max(0) / left;
            self.pass(passes / 2);
            self.record()?;
            self.pass(passes / 2);
            self.upkeep(self.world.now)?;
        }
        self.record()?;
        if when > 0 {
            self.end()?;
            if when == 1 {
                self.become_right();
            }
            self.begin()?;
            if when == 3 {
                self.upkeep(self.world.now)?;
            }
        }
        self.become_right();
        let steps = self.world.random.usize(..120);
        self.run_on(steps)?;
        self.end()?;
        self.begin()?;
        self.run_on(200)
    }

    fn become_right(&mut self) {
        self.wrong_until = self.time;
        let passes = self.world.random.i64(1..30 * SECOND);
        self.pass(passes);
    }

    fn end(&mut self) -> Checked {
        let end = End::any(&mut self.world.random);
        if end == End::Clean {
            self.world.store().close(self.world.now).map_err(|refusal| format!("cannot close: {refusal}"))?;
        }
        self.world.let_go(end);
        Ok(())
    }

    fn begin(&mut self) -> Checked {
        self.world.open()?;
        self.come_back()
    }

    /// By steps that are no leaps to anybody.
    fn run_on(&mut self, steps: usize) -> Checked {
        for _ in 0..steps {
            self.pass(50 * SECOND);
            if self.world.random.u8(0..16) == 0 {
                self.record()?;
            }
            self.upkeep(self.world.now)?;
            self.check()?;
        }
        Ok(())
    }

    /// What is too old goes once the clock has been right for long.
    fn old_rows_go(&mut self) -> Checked {
        let before = self.rows.len();
        for _ in 0..450 {
            // By steps that are no leaps to anybody.
            self.pass(50 * SECOND);
            if self.world.random.u8(0..16) == 0 {
                self.append();
                self.world.commit()?;
            }
            self.upkeep(self.world.now)?;
            self.check()?;
        }
        let first = self.first()?;
        ensure(first >= before || self.ahead, || {
            format!("{} rows are three times as old as they may get", before - first)
        })
    }
}
