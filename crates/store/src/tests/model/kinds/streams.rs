//! Streams with sequences: what is stored, called a duplicate and counted missing against a set of all that ever came.

use std::collections::BTreeMap;

use super::super::{Checked, ensure};
use super::seen::{Counted, GapRows, Seen};
use super::sender::{Sender, Sent};
use super::world::{End, World, scan, small_options};
use crate::tests::kit::*;
use crate::*;

/// Frames that a receiver looks back over, less those that wait for a second commit.
const LOOK_BACK: i64 = 1_000;

struct Followed {
    sender: Sender,
    seen: Seen,
    counted: Counted,
    acknowledged: usize,
}

struct Streams {
    world: World,
    followed: Vec<Followed>,
    /// Frames since the last commit: too many lost at once would be one wrap of a small modulus.
    since_commit: i64,
    /// The newest commit that an append named.
    named: CommitNumber,
}

pub(super) fn run(seed: u64) -> Checked {
    let mut streams = Streams {
        world: World::new(seed, small_options())?,
        followed: Vec::new(),
        since_commit: 0,
        named: CommitNumber(0),
    };
    for _ in 0..120 {
        streams.step()?;
    }
    streams.books()
}

impl Streams {
    fn step(&mut self) -> Checked {
        let choice = self.world.random.u8(0..100);
        match choice {
            0..8 if self.followed.len() < 3 => self.add(),
            0..60 => self.send(),
            60..75 => self.commit(),
            75..85 => {
                let slices = self.world.random.usize(1..8);
                self.world.maintain(slices)
            }
            85..90 => self.begin_again(),
            90..93 => self.books(),
            93..94 => self.world.settle(),
            _ => self.end(),
        }
    }

    fn add(&mut self) -> Checked {
        let mut sender = Sender::new(self.followed.len(), &mut self.world.random);
        let (stream, _) = self.world.store().resolve(&sender.spec(), self.world.now).map_err(|e| e.to_string())?;
        sender.id = stream.id;
        self.followed.push(Followed { sender, seen: Seen::default(), counted: Counted::default(), acknowledged: 0 });
        Ok(())
    }

    fn send(&mut self) -> Checked {
        if self.since_commit > 250 {
            self.commit()?;
        }
        if self.world.is_log_full() {
            self.commit()?;
            self.world.make_room()?;
        }
        for n in 0..self.followed.len() {
            let frames = self.world.random.i64(1..60);
            self.world.now += frames * MS / 4;
            let arrived = self.followed[n].sender.send(frames, self.world.now, &mut self.world.random);
            self.since_commit += frames;
            self.offer(n, &arrived)?;
        }
        Ok(())
    }

    /// Offers frames in one batch, or one by one.
    fn offer(&mut self, n: usize, arrived: &[Sent]) -> Checked {
        let at_once = if self.world.random.bool() { arrived.len().max(1) } else { 1 };
        for part in arrived.chunks(at_once) {
            let followed = &mut self.followed[n];
            let mut batch = FrameBatch::new();
            for sent in part {
                self.world.now += 1_000;
                let head = followed.sender.head(*sent, self.world.now);
                batch.put(head, [Value::I64(sent.value())]);
                let time = head.source_time.filter(|_| followed.sender.habit.clock == Clock::Source);
                followed.seen.times.insert(time.unwrap_or(head.receive_time));
            }
            let appended = self.world.store().append(&batch, self.world.now);
            self.named = self.named.max(appended.commit);
            for (sent, outcome) in part.iter().zip(&appended.outcomes) {
                followed.take(*sent, outcome)?;
            }
        }
        Ok(())
    }

    fn commit(&mut self) -> Checked {
        self.world.commit()?;
        self.since_commit = 0;
        for followed in &mut self.followed {
            followed.acknowledged = followed.seen.rows.len();
        }
        let (committed, named) = (self.world.store().committed(), self.named);
        ensure(committed >= named, || format!("{committed:?} is durable and {named:?} was named, all is committed"))
    }

    fn begin_again(&mut self) -> Checked {
        if self.followed.is_empty() {
            return Ok(());
        }
        let n = self.world.random.usize(..self.followed.len());
        // The end of its life is durable first, and so is the beginning of the next.
        self.commit()?;
        self.world.now += 20 * MS;
        if self.followed[n].sender.begin_again(&mut self.world.random) {
            let mut arrived = self.followed[n].sender.send(12, self.world.now, &mut self.world.random);
            if self.world.random.bool() && arrived.len() > 3 {
                // The first come in another order.
                let random = &mut self.world.random;
                random.shuffle(&mut arrived[..4]);
            }
            self.offer(n, &arrived)?;
            self.commit()?;
        }
        Ok(())
    }

    fn end(&mut self) -> Checked {
        let end = End::any(&mut self.world.random);
        if end == End::Clean {
            self.followed.iter_mut().for_each(|f| f.acknowledged = f.seen.rows.len());
        }
        self.world.end(end)?;
        (self.since_commit, self.named) = (0, CommitNumber(0));
        let catalog = self.world.store().catalog();
        for followed in &mut self.followed {
            let (seen, random) = (&mut followed.seen, &mut self.world.random);
            followed.sender.nobody_receives(random);
            let known = catalog.streams.iter().find(|stream| stream.key.table == followed.sender.name);
            let rows = known.map_or(0, |stream| self.world.store().view().next_row(stream.id)) as usize;
            ensure(rows >= followed.acknowledged && rows <= seen.rows.len(), || {
                format!("{}: {rows} rows came back, {} acknowledged", followed.sender.name, followed.acknowledged)
            })?;
            seen.truncate(rows);
            followed.acknowledged = rows;
            followed.counted = Counted { missing_before: seen.missing(), ..Counted::default() };
            let spec = followed.sender.spec();
            let resolved = self.world.store().resolve(&spec, self.world.now).map_err(|e| e.to_string())?;
            followed.sender.id = resolved.0.id;
        }
        self.rows().map_err(|error| format!("after {end:?}: {error}"))
    }

    /// All that is under way arrives, all is told; then the books must be equal.
    fn books(&mut self) -> Checked {
        for n in 0..self.followed.len() {
            let arrived = self.followed[n].sender.drain(self.world.now);
            self.offer(n, &arrived)?;
        }
        // Rows that wait for their second to be over.
        for _ in 0..2 {
            self.world.now += 400 * MS;
            self.commit()?;
            self.world.now += SECOND;
        }
        self.commit()?;
        self.rows()?;
        let gaps = GapRows::read(self.world.store())?;
        for followed in &self.followed {
            let counts = self.world.store().counts(followed.sender.id);
            let name = format!("{} {:?}", followed.sender.name, followed.sender.habit);
            followed.counted.compare(&counts, &followed.seen).map_err(|error| format!("{name}: {error}"))?;
            let empty = GapRows::default();
            let told = gaps.get(&followed.sender.id.0).unwrap_or(&empty);
            let missing = followed.seen.missing();
            ensure(missing.holds(told.open()), || {
                format!("{name}: {missing:?} are missing, {} by {:?}", told.open(), told.rows)
            })?;
            for row in &told.rows {
                let known = |time| followed.seen.times.contains(&time);
                ensure(known(row.time.0) && known(row.time.1), || {
                    format!("{name}: no frame had the times of the gap {row:?}")
                })?;
            }
        }
        Ok(())
    }

    /// The rows that are stored are those of the model, with sequences that count as their sender did.
    fn rows(&self) -> Checked {
        let view = self.world.store().view();
        for followed in &self.followed {
            let name = &followed.sender.name;
            let mut at = 0;
            // By life: the session, and what was added to the number.
            let mut lives: BTreeMap<u32, (u32, i64)> = BTreeMap::new();
            for batch in scan(&view, Scan::all(followed.sender.id, vec![ChannelIndex(0)]))? {
                for row in 0..batch.len() {
                    let Ok(Value::I64(value)) = batch.columns[0].cell(row) else {
                        return Err(format!("{name}: no value in row {at}"));
                    };
                    let (life, number) = Sent::of_value(value);
                    ensure(followed.seen.rows.get(at) == Some(&(life, number)), || {
                        format!("{name}, row {at}: {number} of life {life}, not {:?}", followed.seen.rows.get(at))
                    })?;
                    let sequence = batch.sequence.as_ref().and_then(|all| all.get(row));
                    let session = batch.session.as_ref().map(|all| all[row]);
                    let (Some(sequence), Some(session)) = (sequence, session) else {
                        return Err(format!("{name}, row {at}: no sequence"));
                    };
                    let place = (session, sequence - number);
                    let first = *lives.entry(life).or_insert(place);
                    ensure(first == place && place.1 % followed.sender.habit.modulus as i64 == 0, || {
                        format!(
                            "{name}, row {at}, frame {number} of life {life}: session and offset {place:?} after {first:?}"
                        )
                    })?;
                    at += 1;
                }
            }
            ensure(at == followed.seen.rows.len(), || format!("{name}: {at} of {} rows", followed.seen.rows.len()))?;
            let sessions: Vec<u32> = lives.values().map(|place| place.0).collect();
            ensure(sessions.is_sorted_by(|a, b| a < b), || format!("{name}: sessions {sessions:?}"))?;
        }
        Ok(())
    }
}

impl Followed {
    /// What became of a frame must be what a set of all frames says.
    fn take(&mut self, sent: Sent, outcome: &Outcome) -> Checked {
        let name = format!("{} {:?}", self.sender.name, self.sender.habit);
        let known = self.seen.has(sent);
        self.counted.offered += 1;
        match outcome {
            Outcome::Duplicate => {
                self.counted.duplicate += 1;
                ensure(known, || format!("{name}: {sent:?} was never stored and is called a duplicate"))
            }
            Outcome::Stored { row } => {
                self.counted.stored += 1;
                ensure(*row == self.seen.rows.len() as u64, || format!("{name}: {sent:?} got row {row}"))?;
                ensure(!known || self.seen.is_beyond(sent, LOOK_BACK), || {
                    format!("{name}: {sent:?} is stored a second time")
                })?;
                self.seen.store(sent.life, sent.number);
                Ok(())
            }
            other => Err(format!("{name}: {sent:?}: {other:?}")),
        }
    }
}
