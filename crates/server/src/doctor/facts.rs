//! Gathers the facts: what the server, its store and its sources know about the channels asked about.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use strongback_query::Quality;
use strongback_store::{CellState, ChannelIndex, Clock, Pattern, Reduction, Scan, ScanError, Stream, StreamId, View};

use super::judgement::{NEAR_NS, RECENT_NS};
use super::misplaced::SPAN;
use super::{
    ArchiveFacts, ChannelFacts, Facts, FrameFacts, GapFacts, InFrame, RejectedFacts, SourceFacts, StreamFacts,
};
use crate::archives::FollowerCard;
use crate::live::NewestFrame;
use crate::server::Server;
use crate::sources::expectation::{Expectation, StreamStatus};
use crate::sources::ledger::ROWS_MAX;
use crate::sources::roster::{SourceCard, is_live};
use crate::text::nearest::nearest;

/// Max number of streams examined.
const STREAMS_MAX: usize = 2_000;
/// Max number of channels of one stream examined.
const CHANNELS_MAX: usize = 1_000;
/// Max number of channels compared with an unknown name.
const NAMES_MAX: usize = 10_000;
/// Max number of late frames passed over to find the one nearest to an instant.
const LATE_MAX: usize = 64;

/// Gathers the facts about channels, or everything, at an instant or now. Reads the disk, so it belongs on a reader
/// thread.
///
/// # Errors
/// If frames cannot be read.
pub fn gather(
    server: &Server,
    channel: Option<&str>,
    patterns: &[Pattern],
    at: Option<i64>,
    now: i64,
) -> Result<Facts, ScanError> {
    // What is stored counts, whatever queries leave out of it.
    let view = server.ingest.store().view().with_excluded();
    let catalog = view.catalog().clone();
    let cards = server.roster.cards();
    let feeds = |source: &str| cards.iter().any(|c| c.name == source && is_live(c.kind));
    let mut chosen: Vec<(&Stream, Vec<ChannelIndex>)> = Vec::new();
    for stream in &catalog.streams {
        let channels = || (0..stream.layout.channels.len() as u16).map(ChannelIndex);
        let columns: Vec<ChannelIndex> = channels()
            .filter(|c| patterns.iter().any(|p| p.matches(&stream.key, &stream.layout.channel(*c).name)))
            .collect();
        if channel.is_none() && !stream.key.is_internal() && feeds(&stream.source) || !columns.is_empty() {
            chosen.push((stream, columns));
        }
    }
    if chosen.is_empty() {
        // The name of a table is accepted, too.
        let named = catalog.streams.iter().filter(|s| patterns.iter().any(|p| p.matches_stream(&s.key)));
        chosen.extend(named.map(|s| (s.as_ref(), Vec::new())));
    }
    let streams_left = chosen.len().saturating_sub(STREAMS_MAX);
    chosen.truncate(STREAMS_MAX);
    let expectations = server.roster.expectations(chosen.iter().map(|(s, _)| s.id));
    let range = match at {
        Some(at) => at.saturating_sub(NEAR_NS)..at.saturating_add(NEAR_NS),
        None => now.saturating_sub(RECENT_NS)..now,
    };
    let mut gaps = gaps_of(server, &range);
    let mut streams = Vec::with_capacity(chosen.len());
    for ((stream, columns), of) in chosen.iter().zip(&expectations) {
        let facts = StreamFacts {
            live: feeds(&stream.source),
            gaps: gaps.remove(&Some(stream.id)).unwrap_or_default(),
            ..of_stream(server, &view, stream, columns, of, at)?
        };
        streams.push(facts);
    }
    let wanted: BTreeSet<&str> = streams.iter().map(|s| s.source.as_str()).collect();
    let everything = channel.is_none() || streams.is_empty();
    let sources = cards.iter().filter(|card| is_live(card.kind));
    let sources = sources.filter(|card| everything || wanted.contains(card.name.as_str()));
    let refusal = server.ingest.refusal().filter(|r| *r != strongback_store::Refusal::LogFull);
    Ok(Facts {
        now,
        at,
        channel: channel.map(str::to_owned),
        nearest: match (channel, streams.is_empty()) {
            (Some(name), true) => {
                let received = catalog.streams.iter().filter(|stream| !stream.key.is_internal());
                let names = received.flat_map(|stream| {
                    stream.layout.channels.iter().map(|channel| stream.key.channel_name(&channel.name))
                });
                nearest(name, names.take(NAMES_MAX))
            }
            _ => Vec::new(),
        },
        started: now.saturating_sub(i64::try_from(server.started.elapsed().as_nanos()).unwrap_or(i64::MAX)),
        // A present refusal does not explain a past instant.
        refusal: refusal.filter(|_| at.is_none_or(|at| at > now - RECENT_NS)).map(|r| r.to_string()),
        outages: server.ledger.outages(),
        gaps: gaps.remove(&None).unwrap_or_default(),
        sources: sources.map(|card| of_source(server, card)).collect(),
        streams,
        archives: match (channel, at) {
            (None, None) => server.archives.cards().into_iter().map(of_archive).collect(),
            _ => Vec::new(),
        },
        streams_left,
    })
}

/// Returns the gap rows that touch a range, summed by stream and cause.
fn gaps_of(server: &Server, range: &Range<i64>) -> HashMap<Option<StreamId>, Vec<GapFacts>> {
    let mut gaps: HashMap<Option<StreamId>, Vec<GapFacts>> = HashMap::new();
    for gap in server.ledger.gaps(range, ROWS_MAX) {
        // Refused frames may be sent again, so they are not open; they are absent all the same.
        let count = if gap.cause == "refused" { gap.count } else { gap.open };
        if count == 0 && gap.cause != "torn" {
            continue;
        }
        let of = gaps.entry(gap.stream).or_default();
        match of.iter_mut().find(|have| have.cause == gap.cause) {
            Some(have) => {
                have.count = have.count.saturating_add(count);
                have.time = (have.time.0.min(gap.from_time_ns), have.time.1.max(gap.to_time_ns));
            }
            None => of.push(GapFacts { cause: gap.cause, time: (gap.from_time_ns, gap.to_time_ns), count }),
        }
    }
    gaps
}

fn of_archive(card: FollowerCard) -> ArchiveFacts {
    ArchiveFacts { name: card.name, address: card.address, lag_s: card.lag_s, status: card.status }
}

fn of_source(server: &Server, card: &SourceCard) -> SourceFacts {
    let own = server.roster.own(&card.name);
    let rejected = own.rejected().into_iter().map(|r| RejectedFacts {
        reason: r.reason.to_owned(),
        count: r.count,
        last_time: r.last_time,
        bytes: r.sample.shown(),
        text: r.sample.text,
        from: r.sample.from.map(|peer| peer.to_string()),
    });
    let away = card.plc.as_ref().is_some_and(|plc| !plc.connected);
    let troubles = card.plc.iter().flat_map(|plc| &plc.troubles);
    let mut unknown: Vec<(String, u64)> = own.unknown_streams().into_iter().collect();
    unknown.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    SourceFacts {
        name: card.name.clone(),
        kind: card.kind.to_owned(),
        address: card.address.clone(),
        connected: card.plc.as_ref().map(|plc| plc.connected),
        why: if away { server.roster.newest_trouble(&card.name) } else { None },
        troubles: troubles.map(|t| (t.stream.clone(), t.symbol.clone(), t.why.clone())).collect(),
        unknown,
        rejected: rejected.collect(),
        kernel_drops: (card.counters.kernel_drops, card.status == "dropping"),
    }
}

fn of_stream(
    server: &Server,
    view: &View,
    stream: &Stream,
    columns: &[ChannelIndex],
    of: &Expectation,
    at: Option<i64>,
) -> Result<StreamFacts, ScanError> {
    let counts = server.ingest.store().counts(stream.id);
    let newest_live = server.ingest.live().fanout().newest_of(stream.id);
    let rows = view.next_row(stream.id);
    let columns = &columns[..columns.len().min(CHANNELS_MAX)];
    let all = Scan { batch_rows: 1, ..Scan::all(stream.id, Vec::new()) };
    let last = Scan { columns: columns.to_vec(), newest_first: true, ..all.clone() };
    let source_clock = stream.clock == Clock::Source;
    let (newest, mut in_frame) = match newest_live {
        _ if rows == 0 => (None, Vec::new()),
        // The stamps of the newest frame are known without reading it.
        Some(NewestFrame { receive_time, source_time, .. }) if columns.is_empty() || at.is_some() => {
            let time = source_time.filter(|_| source_clock).unwrap_or(receive_time);
            (Some(FrameFacts { row: rows - 1, time, receive_time }), Vec::new())
        }
        _ => frame(view, last.clone())?,
    };
    let (mut deleted, mut oldest, mut before, mut after) = (0, None, None, None);
    if let Some(at) = at {
        let first = frame(view, all.clone())?.0;
        deleted = first.map_or(0, |first| first.row);
        // Times in a wrong unit say nothing about later instants.
        let from = if at < SPAN.end { i64::MIN } else { SPAN.end };
        oldest = frame(view, Scan { time: from..i64::MAX, ..all.clone() })?.0.or(first);
        (before, in_frame) = last_before(view, last, from..at.saturating_add(1))?;
        after = first_after(view, all, at.saturating_add(1))?;
    }
    let cells = match columns {
        [] => Vec::new(),
        columns => view.state_at(stream.id, at.unwrap_or(i64::MAX - 1), columns)?,
    };
    let (marks, frame) = (server.marks.now(), if at.is_some() { before } else { newest });
    let bad = |column: ChannelIndex| {
        let time = frame?.time;
        let spans = marks.of_channel(stream, column, &(time..time.saturating_add(1)));
        let bad = spans.first().filter(|span| span.mark.quality == Quality::Bad)?;
        Some(format!("marked bad by {}: {}", bad.mark.by, bad.mark.reason))
    };
    let channels = columns.iter().zip(cells).enumerate().map(|(i, (column, cell))| {
        let channel = stream.layout.channel(*column);
        ChannelFacts {
            name: stream.key.channel_name(&channel.name),
            in_frame: in_frame.get(i).copied().unwrap_or_default(),
            value: cell.map(|cell| (cell.time, cell.row)),
            reduction: Some(channel.reduction).filter(|r| *r != Reduction::None).map(|r| r.to_string()),
            bad: bad(*column),
        }
    });
    Ok(StreamFacts {
        name: stream.key.to_string(),
        source: stream.source.clone(),
        live: true,
        has_sequence: stream.sequence_modulus.is_some(),
        source_clock,
        expected: of.expected(),
        expected_rate_hz: of.expected_rate_hz(),
        rate_hz: of.rate_hz(),
        status: match of.status() {
            // The first frame arrived between two polls.
            StreamStatus::Never if newest_live.is_some() => StreamStatus::Ok,
            status => status,
        },
        since: of.since(),
        duplicate: counts.duplicate,
        reduced: counts.reduced,
        deleted,
        oldest,
        newest,
        before,
        after,
        gaps: Vec::new(),
        channels: channels.collect(),
    })
}

/// Returns the frame with the latest time within `time`, and the state of the columns of `scan` in it. `scan` reads the
/// newest row first, and late frames may have newer rows than the frame sought.
fn last_before(view: &View, scan: Scan, time: Range<i64>) -> Result<FoundFrame, ScanError> {
    let mut found = frame(view, Scan { time: time.clone(), ..scan.clone() })?;
    let tries = if view.time_sorted(scan.stream) { 0 } else { LATE_MAX };
    for _ in 0..tries {
        let Some(before) = found.0 else { break };
        let later = frame(view, Scan { time: before.time.saturating_add(1)..time.end, ..scan.clone() })?;
        if later.0.is_none() {
            break;
        }
        found = later;
    }
    Ok(found)
}

/// Returns the frame with the earliest time from `from` on. `scan` reads the oldest row first.
fn first_after(view: &View, scan: Scan, from: i64) -> Result<Option<FrameFacts>, ScanError> {
    let mut found = frame(view, Scan { time: from..i64::MAX, ..scan.clone() })?.0;
    let tries = if view.time_sorted(scan.stream) { 0 } else { LATE_MAX };
    for _ in 0..tries {
        let Some(after) = found else { break };
        let Some(earlier) = frame(view, Scan { time: from..after.time, ..scan.clone() })?.0 else { break };
        found = Some(earlier);
    }
    Ok(found)
}

/// A frame, if there is one, and the state of columns in it.
type FoundFrame = (Option<FrameFacts>, Vec<InFrame>);

/// Returns the first frame of a scan, and the state of the scan's columns in it.
fn frame(view: &View, scan: Scan) -> Result<FoundFrame, ScanError> {
    for batch in view.scan(scan) {
        let batch = batch?;
        if let (Some(row), Some(receive_time)) = (batch.rows.first(), batch.receive_time.first()) {
            let frame = FrameFacts { row: *row, time: batch.time(0), receive_time: *receive_time };
            let in_frame = batch.columns.iter().map(|column| match column.cell(0) {
                Ok(_) | Err(CellState::Value | CellState::Unknown) => InFrame::There,
                Err(CellState::Unchanged) => InFrame::Unchanged,
                Err(CellState::Absent) => InFrame::Absent,
            });
            return Ok((Some(frame), in_frame.collect()));
        }
    }
    Ok((None, Vec::new()))
}
