//! The judgement: turns facts into findings. Nothing here reads a clock, the store or the network.

mod archives;

use std::time::Duration;

use strongback_sources::instant;

use super::{Cause, ChannelFacts, Facts, Finding, GapFacts, InFrame, Report, SourceFacts, StreamFacts, misplaced};
use crate::sources::expectation::{RateOrigin, StreamStatus, in_words};
use crate::sources::roster::DERIVED_SOURCE;
use crate::text::json::Big;
use crate::text::plural::many;

/// Period that "now" covers, looking back.
pub(super) const RECENT_NS: i64 = 600_000_000_000;
/// Distance within which something is about an instant.
pub(super) const NEAR_NS: i64 = 1_000_000_000;
/// Distance of `time` from reception above which a clock is wrong. The 37 s between TAI and UTC are above it; data sent
/// each 10 s is not.
const CLOCK_NS: i64 = 30_000_000_000;
/// Number of periods without a frame that make a hole.
const HOLE_PERIODS: f64 = 3.0;
/// Max number of findings of one cause and source listed singly; more are joined into one.
const SINGLY: usize = 3;
/// Reasons of rejections covered by other findings: packets without a layout, frames not recorded.
const TOLD_OTHERWISE: [&str; 4] = ["unknown_stream", "disk_full", "not_recorded", "log_full"];

/// Explains why data is missing. Reports that nothing is wrong only if everything was examined and is well.
pub fn judge(facts: &Facts) -> Report {
    let mut found = Vec::new();
    if let Some(refusal) = &facts.refusal {
        let finding = Finding::new(Cause::NotRecording, format!("nothing is recorded now: {refusal}; screens go on"));
        found.push(finding.advise(match refusal.contains("full") {
            true => "make space, release runs (`strongback run list`), or raise store.max_gib",
            false => "look at the log of the server and at its disk; it tries again by itself",
        }));
    }
    if facts.streams.is_empty() {
        nothing_has_it(facts, &mut found);
    }
    for source in &facts.sources {
        of_source(facts, source, &mut found);
    }
    for outage in &facts.outages {
        if touches(facts, *outage) {
            let text = format!("no server ran for {}", span(outage.1 - outage.0));
            let finding = Finding::new(Cause::ServerNotRunning, text).within(outage.0, outage.1);
            found.push(finding.advise("what was sent meanwhile is lost unless its sender keeps it"));
        }
    }
    for gap in &facts.gaps {
        found.push(of_gap(gap, None));
    }
    for stream in &facts.streams {
        of_stream(facts, stream, &mut found);
    }
    archives::judge(facts, &mut found);
    let mut findings = joined(found);
    findings.sort_by_key(|finding| (!finding.wrong, rank(finding, facts)));
    let wrong = findings.iter().filter(|f| f.wrong).count();
    let looked = many(facts.streams.len(), "stream");
    let mut verdict = match (wrong, findings.len()) {
        (0, 0) => format!("nothing is wrong: {looked} looked at"),
        (0, n) => format!("nothing is found wrong in {looked}; {} to know", many(n, "thing")),
        (n, _) => format!("{} in {looked}", many(n, "finding")),
    };
    if wrong == 0 && facts.channel.is_none() && !facts.streams.is_empty() {
        verdict.push_str(", not each of their channels: ask for '*'");
    }
    if facts.streams_left > 0 {
        let left = many(facts.streams_left, "more stream");
        verdict.push_str(&format!("; {left} not looked at: ask for fewer"));
    }
    Report {
        now: Big(facts.now),
        at: facts.at.map(Big),
        channel: facts.channel.clone(),
        streams: facts.streams.len(),
        wrong: wrong > 0,
        verdict,
        findings,
    }
}

/// Orders findings: one that explains another comes first, and one about the instant itself precedes the others.
fn rank(finding: &Finding, facts: &Facts) -> (u8, Cause) {
    let instant = facts.at.unwrap_or(facts.now);
    let about = match (finding.from, finding.to) {
        (Some(from), Some(to)) => from.0 <= instant && instant <= to.0,
        _ => false,
    };
    // Rejections explain missing data only; if all streams are well, they concern something else.
    let aside = matches!(finding.cause, Cause::Rejected | Cause::NoLayout) && facts.streams.iter().all(is_well);
    (if aside { 2 } else { u8::from(!about && finding.cause >= Cause::Expired) }, finding.cause)
}

fn is_well(stream: &StreamFacts) -> bool {
    stream.status == StreamStatus::Ok
}

fn nothing_has_it(facts: &Facts, found: &mut Vec<Finding>) {
    let Some(channel) = &facts.channel else {
        if facts.sources.iter().all(|s| s.rejected.is_empty()) {
            let finding = Finding::new(Cause::NeverSeen, "no source has sent anything yet".to_owned());
            found.push(finding.advise("send line protocol, or configure [[source]] tables"));
        }
        return;
    };
    let mut text = format!("no channel matches {channel}");
    if !facts.nearest.is_empty() {
        text.push_str(&format!("; the nearest: {}", facts.nearest.join(", ")));
    }
    let advice = "a channel of a packet or a PLC exists once it is configured, one of line protocol once a line with it \
                  came; /api/channels lists them";
    found.push(Finding::new(Cause::NotConfigured, text).advise(advice));
}

/// Returns whether a span touches the time asked about.
fn touches(facts: &Facts, (from, to): (i64, i64)) -> bool {
    let (start, end) = window(facts);
    from <= end && to >= start
}

/// Returns the time span around the instant asked about.
pub(super) fn window(facts: &Facts) -> (i64, i64) {
    match facts.at {
        Some(at) => (at.saturating_sub(NEAR_NS), at.saturating_add(NEAR_NS)),
        None => (facts.now.saturating_sub(RECENT_NS), facts.now),
    }
}

/// Returns whether something that last happened at `time`, since the server started, can explain the instant. For a
/// stream that stopped, it can from then on.
fn is_about(facts: &Facts, source: &SourceFacts, time: i64) -> bool {
    let stopped = facts.streams.iter().filter(|s| s.source == source.name && !is_well(s)).map(|s| match s.status {
        StreamStatus::Never => facts.started,
        _ => s.since,
    });
    let (start, _) = window(facts);
    let start = match facts.at {
        None => stopped.min().unwrap_or(start).min(start),
        Some(_) => start,
    };
    time >= start && facts.at.is_none_or(|at| at >= facts.started.saturating_sub(NEAR_NS))
}

/// Returns whether a present state explains the instant; it does not if data has been received since.
fn holds_now(facts: &Facts, source: &SourceFacts) -> bool {
    let newest = facts.streams.iter().filter(|s| s.source == source.name).filter_map(|s| s.newest).map(|f| f.time);
    facts.at.is_none_or(|at| newest.max().is_none_or(|newest| newest < at))
}

fn of_source(facts: &Facts, source: &SourceFacts, found: &mut Vec<Finding>) {
    let name = Some(source.name.as_str());
    if source.connected == Some(false) && holds_now(facts, source) {
        let why = source.why.as_deref().map_or_else(String::new, |why| format!(": {why}"));
        let text = format!("the PLC {} at {} does not answer{why}", source.name, source.address);
        let advice = "is it on, is it reached, does its router have a route for this machine (docs/sources.md)?";
        found.push(Finding::new(Cause::Disconnected, text).about(name, None).advise(advice));
    }
    for (stream, symbol, why) in source.troubles.iter().filter(|_| holds_now(facts, source)) {
        let asked = facts.channel.is_none()
            || facts.streams.is_empty()
            || facts.streams.iter().any(|s| s.name == *stream && (s.channels.is_empty() || gives_nothing(s)));
        if asked {
            let finding = Finding::new(Cause::SymbolMissing, format!("{symbol}: {why}")).about(name, Some(stream));
            found.push(finding.advise("`strongback sources ads symbols` lists what the PLC has"));
        }
    }
    let last_unknown = source.rejected.iter().find(|r| r.reason == "unknown_stream");
    if let Some(last) = last_unknown.filter(|last| is_about(facts, source, last.last_time)) {
        let ids: Vec<String> =
            source.unknown.iter().take(5).map(|(id, n)| format!("{id} ({})", many(*n, "packet"))).collect();
        let more = source.unknown.len().saturating_sub(5);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let text = format!("packets of stream ids that no layout has: {}{more}", ids.join(", "));
        let finding = Finding::new(Cause::NoLayout, text).about(name, None).count(last.count);
        let advice = format!("add [[source.stream]] tables with these ids to source {}", source.name);
        found.push(finding.until(last.last_time).advise(advice));
    }
    for rejected in &source.rejected {
        if TOLD_OTHERWISE.contains(&rejected.reason.as_str()) || !is_about(facts, source, rejected.last_time) {
            continue;
        }
        let mut text = format!("{} ({}): {}", many_of(rejected.count, &source.kind), rejected.reason, rejected.text);
        if let Some(from) = &rejected.from {
            text.push_str(&format!("; the newest from {from}"));
        }
        if !rejected.bytes.is_empty() {
            text.push_str(&format!("; it begins {}", rejected.bytes));
        }
        let finding = Finding::new(Cause::Rejected, text).about(name, None).count(rejected.count);
        let advice =
            format!("compare what is sent with the layout or format; /api/sources/{} has samples", source.name);
        found.push(finding.until(rejected.last_time).advise(advice));
    }
    let (drops, now) = source.kernel_drops;
    if drops > 0 && (now || facts.streams.iter().any(|s| s.gaps.iter().any(|g| g.cause == "sequence"))) {
        let text = format!(
            "the kernel dropped {} since the server started: faster than they were read",
            many(drops, "datagram")
        );
        let finding = Finding::new(Cause::Kernel, text).about(name, None).count(drops);
        found.push(finding.advise("raise receive_buffer_bytes and net.core.rmem_max; look for load on this machine"));
    }
}

fn gives_nothing(stream: &StreamFacts) -> bool {
    stream.channels.iter().any(|channel| channel.in_frame == InFrame::Absent)
}

fn of_stream(facts: &Facts, stream: &StreamFacts, found: &mut Vec<Finding>) {
    let (source, name) = (Some(stream.source.as_str()), Some(stream.name.as_str()));
    let first = found.len();
    for gap in &stream.gaps {
        found.push(of_gap(gap, Some(stream)));
    }
    clock(facts, stream, found);
    match facts.at {
        Some(at) => at_instant(facts, stream, at, found),
        None => at_present(facts, stream, found),
    }
    if facts.channel.is_some() {
        absent(facts, stream, found);
    }
    if stream.reduced > 0 && facts.channel.is_none() {
        let text =
            format!("{} with nothing outside the bounds of its reductions: no row", many(stream.reduced, "frame"));
        found.push(Finding::new(Cause::Reduced, text).about(source, name).count(stream.reduced).advise(REDUCED));
    }
    if stream.duplicate > 0 {
        let text = format!("{} came twice since the server started, stored once", many(stream.duplicate, "frame"));
        let finding = Finding::new(Cause::Duplicate, text).about(source, name).count(stream.duplicate);
        found.push(finding.advise("nothing is lost; look for two senders, or for one that repeats itself"));
    }
    let explained = found[first..].iter().any(|f| f.wrong);
    let not_knowable = !stream.has_sequence && stream.expected == RateOrigin::None && stream.live;
    if not_knowable && !explained && facts.at.is_none() {
        let text = "loss is not knowable: its frames have no sequence, and no period is given or regular";
        let finding = Finding::new(Cause::NotKnowable, text.to_owned()).about(source, name);
        found.push(finding.advise("give it a period: expected_period_ms in a [[channel]] table"));
    }
}

const REDUCED: &str = "nothing is lost: what was left out is read back within the bound";

/// Adds findings on the present status of a stream.
fn at_present(facts: &Facts, stream: &StreamFacts, found: &mut Vec<Finding>) {
    if !stream.live {
        return;
    }
    let (source, name) = (Some(stream.source.as_str()), Some(stream.name.as_str()));
    let rate = stream.expected_rate_hz.unwrap_or(0.0);
    match (stream.status, stream.newest) {
        (StreamStatus::Never, None) => {
            let text = format!("no frame ever came: the server waits since {}", instant::format(facts.started));
            let finding = Finding::new(Cause::NeverSeen, text).about(source, name).within(facts.started, facts.now);
            found.push(finding.advise(SILENT));
        }
        (StreamStatus::Never, Some(newest)) => {
            let text = format!("no frame since the server started; the newest is of {}", instant::format(newest.time));
            let finding = Finding::new(Cause::Silent, text).about(source, name);
            let finding = finding.within(newest.receive_time, facts.now);
            // A stream without a rhythm may be quiet for long.
            let finding = if stream.expected == RateOrigin::None { finding.harmless() } else { finding };
            found.push(finding.advise(SILENT));
        }
        (StreamStatus::Silent, _) => {
            let quiet = facts.now.saturating_sub(stream.since);
            let frames = (quiet as f64 / 1e9 * rate) as u64;
            let text = format!("no frame for {}; {} are {}", span(quiet), hertz(rate), said(stream.expected));
            let finding = Finding::new(Cause::Silent, text).about(source, name).within(stream.since, facts.now);
            found.push(finding.count(frames).advise(SILENT));
        }
        (StreamStatus::Slow, _) => {
            let text = format!("{} instead of {}", hertz(stream.rate_hz), hertz(rate));
            let finding = Finding::new(Cause::Slow, text).about(source, name).within(stream.since, facts.now);
            found.push(finding.advise("is its sender loaded, or set to another rate than is expected here?"));
        }
        (StreamStatus::Ok, _) => {}
    }
}

const SILENT: &str = "is it on, is the cable in, does it send to this address and port, does a firewall stand between?";

fn said(expected: RateOrigin) -> &'static str {
    if expected == RateOrigin::Learnt { "usual" } else { "expected" }
}

/// Adds findings from the frames around an instant.
fn at_instant(facts: &Facts, stream: &StreamFacts, at: i64, found: &mut Vec<Finding>) {
    let (source, name) = (Some(stream.source.as_str()), Some(stream.name.as_str()));
    let Some(oldest) = stream.oldest else {
        let text = "it has no frame at all".to_owned();
        found.push(Finding::new(Cause::NeverSeen, text).about(source, name).advise(SILENT));
        return;
    };
    let Some(before) = stream.before else {
        let since = instant::format(oldest.time);
        let finding = if stream.deleted > 0 && oldest.time > at {
            let text = format!("data this old has been deleted; stored data begins at {since}");
            let advice = "raise store.max_gib, give the streams a [[retention]] group, or import into a named run";
            Finding::new(Cause::Expired, text).count(stream.deleted).until(oldest.time).advise(advice)
        } else if oldest.time <= at {
            if found.iter().any(|finding| finding.cause == Cause::ClockWrong && finding.stream.as_deref() == name) {
                return;
            }
            let text = format!("its frames have times in 1970: the oldest is stored at {since}");
            Finding::new(Cause::ClockWrong, text).advise(clock_advice(facts, stream, oldest.time))
        } else {
            let text = format!("its first frame is of {since}");
            Finding::new(Cause::NeverSeen, text).until(oldest.time).advise("nothing had come yet")
        };
        found.push(finding.about(source, name));
        return;
    };
    let period = stream.expected_rate_hz.map(|hz| 1e9 / hz);
    let end = stream.after.map_or(facts.now, |after| after.time);
    let hole = end.saturating_sub(before.time);
    let told = stream.gaps.iter().any(|g| g.count > 0 && g.cause != "refused")
        || facts.outages.iter().any(|outage| outage.0 <= at && at <= outage.1);
    let frames = period.map(|period| ((hole as f64 / period).round() - 1.0).max(0.0) as u64);
    match frames {
        // A known loss or an outage says more.
        _ if told || at >= facts.now => {}
        Some(frames) if hole as f64 > period.unwrap_or(0.0) * HOLE_PERIODS => {
            let what = if stream.after.is_some() { "no frame came between these" } else { "no frame came since" };
            let text = format!("{what}: {} without one, {frames} by its rate", span(hole));
            let finding = Finding::new(Cause::Silent, text).about(source, name).within(before.time, end);
            found.push(finding.count(frames).advise(SILENT));
        }
        Some(_) => {}
        None if hole > NEAR_NS => {
            let text = format!(
                "there is no frame for {} about this instant; without sequence and period nobody can say whether one is \
                 missing",
                span(hole)
            );
            let cause = if stream.has_sequence { Cause::Silent } else { Cause::NotKnowable };
            let text = match stream.has_sequence {
                true => format!("no frame came for {}; none is missing by their sequence", span(hole)),
                false => text,
            };
            let finding = Finding::new(cause, text).about(source, name).within(before.time, end).harmless();
            found.push(finding.advise("give it a period: expected_period_ms in a [[channel]] table"));
        }
        None => {}
    }
}

/// Adds a finding if the `time` of frames is far from their reception.
fn clock(facts: &Facts, stream: &StreamFacts, found: &mut Vec<Finding>) {
    let Some(newest) = stream.newest.filter(|_| stream.source_clock && stream.live) else { return };
    let ahead = newest.time.saturating_sub(newest.receive_time);
    let (start, end) = window(facts);
    // Frames received at the instant are stored elsewhere; those received before and after it show that.
    let is_about = newest.receive_time >= start && stream.oldest.is_none_or(|oldest| oldest.receive_time <= end);
    if ahead.abs() > CLOCK_NS && is_about {
        let way = if ahead > 0 { "ahead of" } else { "behind" };
        let text = format!(
            "frames come with a time {} {way} their reception: what came at {} is stored at {}",
            span(ahead.abs()),
            instant::format(newest.receive_time),
            instant::format(newest.time)
        );
        let finding = Finding::new(Cause::ClockWrong, text).about(Some(&stream.source), Some(&stream.name));
        found.push(finding.advise(clock_advice(facts, stream, newest.time)));
    }
}

/// Returns the advice for frames with a wrong `time`.
fn clock_advice(facts: &Facts, stream: &StreamFacts, time: i64) -> String {
    let is_lines = facts.sources.iter().any(|source| source.name == stream.source && source.kind == "ilp");
    match misplaced::unit_of(time) {
        Some(unit) if is_lines => format!(
            "the precision of the timestamps is wrong: send them with POST /write?precision={unit}, or in nanoseconds, \
             as over TCP; what is stored already stays where it is"
        ),
        None if is_lines && misplaced::SPAN.contains(&time) => {
            "is the precision of the timestamps right? they are in nanoseconds unless POST /write says ?precision=s, ms \
             or us; what is stored already stays where it is"
                .to_owned()
        }
        _ => "look there for them; set the clock of the source, or clock = \"receive\"".to_owned(),
    }
}

/// Adds findings for channels without a value in an existing frame.
fn absent(facts: &Facts, stream: &StreamFacts, found: &mut Vec<Finding>) {
    let Some(frame) = (if facts.at.is_some() { stream.before } else { stream.newest }) else { return };
    if stream.source == DERIVED_SOURCE {
        // Each derived channel has frames of its own, without the others of its table.
        return;
    }
    // Some of the server's own channels have no value on some machines, such as the offset of an unknown clock.
    let is_expected = |channel: &ChannelFacts| stream.source != "internal" || channel.value.is_some();
    for channel in stream.channels.iter().filter(|channel| is_expected(channel)) {
        let since = channel.value.map(|(time, _)| instant::format(time));
        let missing = match channel.value {
            Some((_, row)) => frame.row.saturating_sub(row).max(1),
            None => frame.row + 1,
        };
        let frames = if missing == 1 { "newest frame".to_owned() } else { format!("newest {missing} frames") };
        let (cause, text, advice) = match (channel.in_frame, &channel.reduction, since) {
            (InFrame::There, ..) => match &channel.bad {
                Some(bad) => (Cause::Marked, format!("{}: {bad}", channel.name), MARKED),
                None => continue,
            },
            // The value read back is as new as the frame that omits it, so the time of the last change is unknown.
            (InFrame::Unchanged, Some(reduction), Some(_)) => {
                let text = format!("{}: left out of the newest frame, within its reduction {reduction}", channel.name);
                (Cause::Reduced, text, REDUCED)
            }
            (InFrame::Unchanged, ..) => continue,
            (InFrame::Absent, _, Some(since)) => {
                let text = format!("{}: not in the {frames}; its newest value is of {since}", channel.name);
                (Cause::ChannelAbsent, text, ABSENT)
            }
            (InFrame::Absent, _, None) => {
                (Cause::ChannelAbsent, format!("{}: in no frame that is kept", channel.name), ABSENT)
            }
        };
        let finding = Finding::new(cause, text).about(Some(&stream.source), Some(&stream.name)).count(missing);
        let from = channel.value.map_or(frame.time, |(time, _)| time);
        found.push(finding.within(from.min(frame.time), frame.time).advise(advice));
    }
}

const MARKED: &str = "queries leave it out, unless they ask for all values; `strongback mark good` takes a mark back";

const ABSENT: &str = "its frames come without it: does the sender leave it out, is its name or type another now?";

/// Makes the finding of a row of `strongback.gaps`.
fn of_gap(gap: &GapFacts, stream: Option<&StreamFacts>) -> Finding {
    let frames = many(gap.count, "frame");
    let (cause, text, advice) = match gap.cause.as_str() {
        "sequence" => (
            Cause::Lost,
            format!("{frames} lost before the receiver, by their sequence"),
            "look for loss in the network, and for `dropped by the kernel` here",
        ),
        "kernel" => (Cause::Kernel, format!("{frames} dropped by the kernel"), "raise receive_buffer_bytes"),
        "silence" => (Cause::Silent, format!("{frames} did not come, by the period of the stream"), SILENT),
        "damaged" => (
            Cause::Damaged,
            format!("{frames} stood in a damaged place of the disk"),
            "`strongback store verify` lists what is damaged; look at the disk",
        ),
        "torn" => (
            Cause::ServerNotRunning,
            "the server was cut off: what was not durable then is lost, at most a commit interval".to_owned(),
            "nothing that was acknowledged is lost",
        ),
        "refused" => (
            Cause::NotRecorded,
            format!("{frames} refused while the store took nothing; their sender was told"),
            "it may send them again",
        ),
        "not recorded" => (
            Cause::NotRecorded,
            format!("{frames} came and were not recorded: the disk was full or failed"),
            "look at the disk and at store.max_gib",
        ),
        other => (Cause::Lost, format!("{frames} lost: {other}"), "strongback.gaps has the rows"),
    };
    let finding = Finding::new(cause, text).about(stream.map(|s| s.source.as_str()), stream.map(|s| s.name.as_str()));
    finding.within(gap.time.0, gap.time.1).count(gap.count).advise(advice)
}

/// Joins findings of the same cause about streams of one source if they are more than [`SINGLY`].
fn joined(found: Vec<Finding>) -> Vec<Finding> {
    let mut out: Vec<Finding> = Vec::new();
    let mut groups: Vec<Vec<Finding>> = Vec::new();
    for finding in found {
        let same = |g: &&mut Vec<Finding>| {
            let first = &g[0];
            first.cause == finding.cause && first.wrong == finding.wrong && first.source == finding.source
        };
        match groups.iter_mut().find(same) {
            Some(group) if finding.stream.is_some() => group.push(finding),
            None if finding.stream.is_some() => groups.push(vec![finding]),
            _ => out.push(finding),
        }
    }
    for group in groups {
        if group.len() <= SINGLY {
            out.extend(group);
            continue;
        }
        let mut names: Vec<&str> = group.iter().filter_map(|f| f.stream.as_deref()).collect();
        names.dedup();
        let more = names.len().saturating_sub(SINGLY);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let list = names[..names.len().min(SINGLY)].join(", ");
        let first = &group[0];
        let text = format!("{list}{more}; the first: {}", first.text);
        let counts = group.iter().filter_map(|f| f.count.map(|c| c.0));
        out.push(Finding {
            stream: None,
            from: group.iter().filter_map(|f| f.from).min(),
            to: group.iter().filter_map(|f| f.to).max(),
            count: counts.reduce(u64::saturating_add).map(Big),
            text,
            ..first.clone()
        });
    }
    out
}

impl Finding {
    fn new(cause: Cause, text: String) -> Finding {
        let (source, stream, from, to, count, advice) = (None, None, None, None, None, String::new());
        Finding { cause, wrong: cause.is_wrong(), source, stream, from, to, count, text, advice }
    }

    fn about(self, source: Option<&str>, stream: Option<&str>) -> Finding {
        Finding { source: source.map(str::to_owned), stream: stream.map(str::to_owned), ..self }
    }

    /// Sets the span. A begin after the end, such as after the time of the request, is set to the end.
    fn within(self, from: i64, to: i64) -> Finding {
        Finding { from: Some(Big(from.min(to))), to: Some(Big(to)), ..self }
    }

    fn until(self, to: i64) -> Finding {
        Finding { to: Some(Big(to)), ..self }
    }

    fn count(self, count: u64) -> Finding {
        Finding { count: Some(Big(count)), ..self }
    }

    fn advise(self, advice: impl Into<String>) -> Finding {
        Finding { advice: advice.into(), ..self }
    }

    /// Marks the finding as information, nothing wrong.
    fn harmless(self) -> Finding {
        Finding { wrong: false, ..self }
    }
}

fn many_of(count: u64, kind: &str) -> String {
    let what = match kind {
        "inetx" => "datagram",
        "ilp" => "line",
        "ads" => "message",
        _ => "frame",
    };
    format!("{} rejected", many(count, what))
}

fn span(ns: i64) -> String {
    in_words(Duration::from_nanos(u64::try_from(ns).unwrap_or(0)))
}

fn hertz(hz: f64) -> String {
    if hz >= 10.0 { format!("{hz:.0} frames/s") } else { format!("{hz:.3} frames/s") }
}

#[cfg(test)]
mod tests;
