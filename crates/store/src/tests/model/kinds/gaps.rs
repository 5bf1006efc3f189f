//! A small folder and many senders that lose frames all the time: what tells of losses stays bounded, never takes the
//! place of data, and never stops the store.

use super::super::{Checked, ensure};
use super::seen::GapRows;
use super::world::{End, World, small_options};
use crate::tests::kit::*;
use crate::*;

const BYTES_MAX: u64 = 2_400 << 10;

struct Loser {
    id: StreamId,
    sequence: u64,
}

pub(super) fn run(seed: u64) -> Checked {
    let options = StoreOptions {
        log_bytes: 256 << 10,
        segment_bytes: 32 << 10,
        max_bytes: Some(BYTES_MAX),
        open_bytes: 64 << 10,
        ..small_options()
    };
    let mut world = World::new(seed, options)?;
    let mut losers = Vec::new();
    let count = world.random.usize(20..80);
    resolve(&world, &mut losers, count)?;
    let (mut openings, began) = (1, world.now);
    for _ in 0..400 {
        world.now += 50 * MS;
        let mut batch = FrameBatch::new();
        for loser in &mut losers {
            // A loss each time, and of any size: what no codec makes small.
            let size = world.random.u8(2..20);
            loser.sequence += world.random.u64(2..1 << size);
            let (stream, sequence) = (loser.id, Some(loser.sequence));
            batch.put(head(stream, world.now).numbered(sequence), [Value::F64(world.random.f64())]);
        }
        let appended = world.store().append(&batch, world.now);
        let refused = appended.outcomes.iter().find(|outcome| !matches!(outcome, Outcome::Stored { .. }));
        if let Some(refused) = refused {
            let groups = groups(world.store());
            return Err(format!("{refused:?}, with {groups:?} bytes by group of {BYTES_MAX}"));
        }
        world.commit()?;
        world.maintain(1_000)?;
        if world.random.u8(0..150) == 0 {
            let end = End::any(&mut world.random);
            world.end(end)?;
            openings += 1;
            resolve(&world, &mut losers, count)?;
        }
    }
    world.commit()?;
    check_rows(&world, (world.now - began) / SECOND + 2 * openings)?;
    let groups = groups(world.store());
    let (told, data) = (groups.0, groups.1);
    ensure(told <= BYTES_MAX / 8, || format!("gap rows take {told} bytes, data {data}, of {BYTES_MAX}"))
}

fn resolve(world: &World, losers: &mut Vec<Loser>, count: usize) -> Checked {
    for n in 0..count {
        let spec = spec("loser", [("value", ChannelType::F64)]).tag("n", n).modulus(Some(1 << 32)).source("network");
        let (stream, _) = world.store().resolve(&spec, world.now).map_err(|error| error.to_string())?;
        match losers.get_mut(n) {
            Some(loser) => loser.id = stream.id,
            None => losers.push(Loser { id: stream.id, sequence: 0 }),
        }
    }
    Ok(())
}

/// Bytes of segments with gap rows, and of others.
fn groups(store: &Store) -> (u64, u64) {
    let (mut told, mut data) = (0, 0);
    for segment in store.segments() {
        let group = if ["gaps", "ledger"].contains(&&*segment.group) { &mut told } else { &mut data };
        *group += segment.size_bytes;
    }
    (told, data)
}

/// Of each stream at most one row of losses a second.
fn check_rows(world: &World, most: i64) -> Checked {
    for (stream, gaps) in GapRows::read(world.store())? {
        let rows = gaps.rows.iter().filter(|row| row.cause == "sequence").count();
        ensure(rows as i64 <= most, || format!("stream {stream}: {rows} rows of losses, {most} at most"))?;
        let mut ids: Vec<u64> = gaps.rows.iter().filter(|row| row.cause == "sequence").map(|row| row.id).collect();
        ids.sort_unstable();
        ensure(ids.is_sorted_by(|a, b| a < b), || format!("stream {stream}: an id came twice"))?;
    }
    Ok(())
}
