//! Each fault alone and each two together: exactly what is wrong is named.

use super::*;
use crate::doctor::{ChannelFacts, FrameFacts, RejectedFacts};

const S: i64 = 1_000_000_000;
const NOW: i64 = 1_780_000_000 * S;
/// The server started two hours ago; there is data for one hour.
const STARTED: i64 = NOW - 7_200 * S;
const FIRST: i64 = NOW - 3_600 * S;
/// An instant with data around it.
const AT: i64 = NOW - 1_800 * S;

fn frame(row: u64, time: i64) -> FrameFacts {
    FrameFacts { row, time, receive_time: time }
}

/// Returns the facts of a stream of ten frames a second, all present, with three of its channels asked about.
fn well(at: Option<i64>) -> Facts {
    let last = at.unwrap_or(NOW);
    let row = ((last - FIRST) / (S / 10)) as u64;
    let channel =
        |name: &str| ChannelFacts { name: name.to_owned(), value: Some((last, row)), ..ChannelFacts::default() };
    Facts {
        now: NOW,
        at,
        channel: Some("fti.bay.*".to_owned()),
        started: STARTED,
        sources: vec![SourceFacts { name: "fti".into(), kind: "inetx".into(), ..SourceFacts::default() }],
        streams: vec![StreamFacts {
            name: "fti.bay".into(),
            source: "fti".into(),
            live: true,
            source_clock: true,
            has_sequence: true,
            expected: RateOrigin::Given,
            expected_rate_hz: Some(10.0),
            rate_hz: 10.0,
            status: StreamStatus::Ok,
            since: STARTED,
            oldest: Some(frame(0, FIRST)),
            newest: Some(frame(35_999, NOW)),
            before: at.map(|at| frame(row, at)),
            after: at.map(|at| frame(row + 1, at + S / 10)),
            channels: ["fti.bay.p", "fti.bay.t", "fti.bay.v"].map(channel).into(),
            ..StreamFacts::default()
        }],
        ..Facts::default()
    }
}

fn causes(facts: &Facts) -> Vec<Cause> {
    judge(facts).findings.iter().map(|f| f.cause).collect()
}

/// A cause, and the change that introduces it into facts that are well.
type Fault = (Cause, fn(&mut Facts));

fn rejected(facts: &mut Facts, reason: &str, text: &str) {
    facts.sources[0].rejected.push(RejectedFacts {
        reason: reason.to_owned(),
        count: 12,
        last_time: NOW - 2 * S,
        text: text.to_owned(),
        from: Some("10.0.0.5:4001".to_owned()),
        bytes: "1000".to_owned(),
    });
}

fn gap(facts: &mut Facts, cause: &str, count: u64) {
    let time = match facts.at {
        Some(at) => (at - S / 2, at + S / 2),
        None => (NOW - 60 * S, NOW - 50 * S),
    };
    facts.streams[0].gaps.push(GapFacts { cause: cause.to_owned(), time, count });
}

/// Faults of the present.
const NOW_FAULTS: [Fault; 18] = [
    (Cause::NotRecording, |f| f.refusal = Some("disk full".into())),
    (Cause::Disconnected, |f| f.sources[0].connected = Some(false)),
    (Cause::SymbolMissing, |f| {
        f.sources[0].troubles = vec![("fti.bay".into(), "MAIN.p".into(), "no such symbol".into())];
        f.streams[0].channels[0] =
            ChannelFacts { name: "fti.bay.p".into(), in_frame: InFrame::Absent, ..ChannelFacts::default() };
    }),
    (Cause::NoLayout, |f| {
        rejected(f, "unknown_stream", "no layout for stream id 0x0000dead");
        f.sources[0].unknown = vec![("0x0000dead".into(), 12)];
    }),
    (Cause::Rejected, |f| rejected(f, "truncated", "a header of 10 bytes; 28 are right")),
    (Cause::ClockWrong, |f| {
        let newest = f.streams[0].newest.as_mut().unwrap();
        newest.time += 37 * S;
    }),
    (Cause::ClockWrong, |f| f.streams[0].newest.as_mut().unwrap().time = 0),
    (Cause::ServerNotRunning, |f| f.outages.push((NOW - 120 * S, NOW - 60 * S))),
    (Cause::Lost, |f| gap(f, "sequence", 3)),
    (Cause::Kernel, |f| f.sources[0].kernel_drops = (7, true)),
    (Cause::NotRecorded, |f| gap(f, "not recorded", 3)),
    (Cause::NotRecorded, |f| gap(f, "refused", 3)),
    (Cause::Damaged, |f| gap(f, "damaged", 1_536)),
    (Cause::NeverSeen, |f| {
        let stream = &mut f.streams[0];
        (stream.status, stream.newest, stream.oldest) = (StreamStatus::Never, None, None);
        stream.channels.clear();
    }),
    (Cause::Silent, |f| (f.streams[0].status, f.streams[0].since) = (StreamStatus::Silent, NOW - 12 * S)),
    (Cause::Slow, |f| (f.streams[0].status, f.streams[0].rate_hz) = (StreamStatus::Slow, 4.0)),
    (Cause::ChannelAbsent, |f| {
        let channel = &mut f.streams[0].channels[1];
        channel.in_frame = InFrame::Absent;
        channel.value = channel.value.map(|(_, row)| (NOW - 100 * S, row - 1_000));
    }),
    (Cause::Duplicate, |f| f.streams[0].duplicate = 4),
];

/// Faults of an instant with data around it.
const AT_FAULTS: [Fault; 6] = [
    (Cause::Expired, |f| {
        let stream = &mut f.streams[0];
        (stream.deleted, stream.oldest, stream.before) = (40_000, Some(frame(40_000, AT + 60 * S)), None);
        stream.channels.clear();
    }),
    (Cause::NeverSeen, |f| {
        let stream = &mut f.streams[0];
        (stream.oldest, stream.before) = (Some(frame(0, AT + 60 * S)), None);
        stream.channels.clear();
    }),
    (Cause::ServerNotRunning, |f| f.outages.push((AT - 60 * S, AT + 60 * S))),
    (Cause::Lost, |f| gap(f, "sequence", 3)),
    (Cause::Silent, |f| f.streams[0].after = Some(frame(18_001, AT + 90 * S))),
    (Cause::Reduced, |f| {
        let channel = &mut f.streams[0].channels[0];
        (channel.in_frame, channel.reduction) = (InFrame::Unchanged, Some("deadband 0.5".to_owned()));
    }),
];

#[test]
fn nothing_is_wrong_only_where_all_is_well() {
    for at in [None, Some(AT)] {
        let report = judge(&well(at));
        assert_eq!((report.wrong, &report.findings[..]), (false, &[][..]), "{at:?}");
        assert_eq!(report.verdict, "nothing is wrong: 1 stream looked at");
    }
    for fault in &NOW_FAULTS {
        let mut facts = well(None);
        fault.1(&mut facts);
        let report = judge(&facts);
        assert_eq!(report.wrong, fault.0.is_wrong(), "{:?}: {report:?}", fault.0);
        assert!(!report.verdict.contains("nothing is wrong"), "{}", report.verdict);
    }
    // Without sequence and period, silence cannot be known.
    let mut facts = well(None);
    let stream = &mut facts.streams[0];
    (stream.has_sequence, stream.expected, stream.expected_rate_hz) = (false, RateOrigin::None, None);
    assert_eq!(causes(&facts), [Cause::NotKnowable]);
    assert!(judge(&facts).verdict.starts_with("nothing is found wrong in 1 stream"));
}

#[test]
fn each_fault_alone_is_the_one_that_is_named() {
    for (at, faults) in [(None, &NOW_FAULTS[..]), (Some(AT), &AT_FAULTS[..])] {
        for (n, (cause, make)) in faults.iter().enumerate() {
            let mut facts = well(at);
            make(&mut facts);
            let found = causes(&facts);
            // A missing symbol gives no values either; it explains that and comes first.
            let expected = match cause {
                Cause::SymbolMissing => vec![*cause, Cause::ChannelAbsent],
                cause => vec![*cause],
            };
            assert_eq!(found, expected, "fault {n} at {at:?}: {:#?}", judge(&facts).findings);
        }
    }
}

#[test]
fn of_two_faults_both_are_named() {
    let mut pairs = 0;
    for (a, first) in NOW_FAULTS.iter().enumerate() {
        for second in &NOW_FAULTS[a + 1..] {
            let both = [first.0, second.0];
            // A stream has one status, and one that was never received has no frames that could be wrong.
            let statuses = [Cause::NeverSeen, Cause::Silent, Cause::Slow];
            let frames = [Cause::ClockWrong, Cause::ChannelAbsent, Cause::SymbolMissing];
            if both.iter().all(|c| statuses.contains(c))
                || both.contains(&Cause::NeverSeen) && both.iter().any(|c| frames.contains(c))
                || first.0 == second.0
            {
                continue;
            }
            let mut facts = well(None);
            first.1(&mut facts);
            second.1(&mut facts);
            let found = causes(&facts);
            assert!(both.iter().all(|c| found.contains(c)), "{both:?}: {found:?}");
            pairs += 1;
        }
    }
    assert!(pairs > 100, "{pairs}");
}

#[test]
fn what_explains_another_comes_first() {
    let first = |make: &[fn(&mut Facts)]| {
        let mut facts = well(None);
        make.iter().for_each(|make| make(&mut facts));
        causes(&facts)
    };
    let silent: fn(&mut Facts) = |f| (f.streams[0].status, f.streams[0].since) = (StreamStatus::Silent, NOW - 12 * S);
    assert_eq!(first(&[silent, |f| f.sources[0].connected = Some(false)]), [Cause::Disconnected, Cause::Silent]);
    assert_eq!(first(&[silent, |f| rejected(f, "version", "version 3")]), [Cause::Rejected, Cause::Silent]);
    // If the stream is received, the rejections concern something else.
    let lost_and_rejected = first(&[|f| rejected(f, "version", "version 3"), |f| gap(f, "sequence", 3)]);
    assert_eq!(lost_and_rejected, [Cause::Lost, Cause::Rejected]);
    assert_eq!(first(&[|f| f.streams[0].duplicate = 4, silent]), [Cause::Silent, Cause::Duplicate]);
}

#[test]
fn rejections_of_long_ago_explain_nothing_unless_the_stream_stopped_before() {
    let mut facts = well(None);
    rejected(&mut facts, "version", "version 3");
    facts.sources[0].rejected[0].last_time = NOW - 3_000 * S;
    assert_eq!(causes(&facts), []);
    (facts.streams[0].status, facts.streams[0].since) = (StreamStatus::Silent, NOW - 3_001 * S);
    assert_eq!(causes(&facts), [Cause::Rejected, Cause::Silent]);
}

#[test]
fn a_name_that_nothing_has_is_told_with_its_neighbours_and_what_was_refused() {
    let mut facts = well(None);
    facts.streams.clear();
    facts.channel = Some("fti.bai.p".into());
    facts.nearest = vec!["fti.bay.p".into()];
    assert_eq!(causes(&facts), [Cause::NotConfigured]);
    assert_eq!(judge(&facts).findings[0].text, "no channel matches fti.bai.p; the nearest: fti.bay.p");
    rejected(&mut facts, "unknown_stream", "no layout for stream id 0x0000dead");
    facts.sources[0].unknown = vec![("0x0000dead".into(), 12)];
    assert_eq!(causes(&facts), [Cause::NotConfigured, Cause::NoLayout]);
    let report = judge(&facts);
    assert!(report.findings[1].text.contains("0x0000dead (12 packets)"), "{report:?}");
}

#[test]
fn ten_thousand_streams_are_one_finding() {
    let mut facts = well(None);
    facts.channel = None;
    let mut stream = facts.streams.remove(0);
    (stream.status, stream.since) = (StreamStatus::Silent, NOW - 12 * S);
    facts.streams = (0..10_000).map(|n| StreamFacts { name: format!("s{n}"), ..stream.clone() }).collect();
    facts.streams[7].since = NOW - 20 * S;
    let report = judge(&facts);
    let [finding] = &report.findings[..] else { panic!("{} findings", report.findings.len()) };
    assert!(finding.text.starts_with("s0, s1, s2 and 9997 more; the first: no frame for 12.0 s"), "{}", finding.text);
    assert_eq!((finding.from, finding.to), (Some(Big(NOW - 20 * S)), Some(Big(NOW))));
    assert_eq!(finding.count, Some(Big(120 * 9_999 + 200)));
    assert_eq!(report.verdict, "1 finding in 10000 streams");
}

#[test]
fn three_streams_stand_alone_and_four_are_one_finding() {
    // Streams of two sources, each silent or slow.
    let report = |streams: &[(&str, StreamStatus)]| {
        let mut facts = well(None);
        facts.channel = None;
        let stream = facts.streams.remove(0);
        let of = |(n, (source, status)): (usize, &(&str, StreamStatus))| StreamFacts {
            name: format!("s{n}"),
            source: (*source).to_owned(),
            status: *status,
            since: NOW - 12 * S,
            ..stream.clone()
        };
        facts.streams = streams.iter().enumerate().map(of).collect();
        judge(&facts).findings
    };
    let silent = ("fti", StreamStatus::Silent);
    let three = report(&[silent; 3]);
    let names: Vec<Option<&str>> = three.iter().map(|f| f.stream.as_deref()).collect();
    assert_eq!(names, [Some("s0"), Some("s1"), Some("s2")]);
    assert!(three.iter().all(|f| f.text.starts_with("no frame for 12.0 s") && f.count == Some(Big(120))), "{three:?}");
    let four = report(&[silent; 4]);
    let [one] = &four[..] else { panic!("{four:?}") };
    assert!(one.stream.is_none() && one.text.starts_with("s0, s1, s2 and 1 more; the first: "), "{}", one.text);
    assert_eq!(one.count, Some(Big(480)));
    // Findings of another source or cause are not joined with the four.
    let mixed = report(&[silent, silent, silent, ("pad", StreamStatus::Silent), ("fti", StreamStatus::Slow)]);
    assert_eq!(mixed.len(), 5, "{mixed:?}");
}

#[test]
fn counts_and_spans_are_those_of_the_facts() {
    let mut facts = well(Some(AT));
    gap(&mut facts, "sequence", 3);
    let report = judge(&facts);
    let lost = &report.findings[0];
    assert_eq!((lost.count, lost.from, lost.to), (Some(Big(3)), Some(Big(AT - S / 2)), Some(Big(AT + S / 2))));
    assert_eq!(lost.text, "3 frames lost before the receiver, by their sequence");
    let mut facts = well(Some(AT));
    facts.streams[0].after = Some(frame(18_001, AT + 90 * S));
    let report = judge(&facts);
    assert_eq!((report.findings[0].count, report.findings[0].to), (Some(Big(899)), Some(Big(AT + 90 * S))));
}

#[test]
fn timestamps_in_a_wrong_unit_are_a_matter_of_precision() {
    let advice = |facts: &Facts| {
        let findings = judge(facts).findings;
        let [finding] = &findings[..] else { panic!("{findings:?}") };
        assert_eq!(finding.cause, Cause::ClockWrong);
        finding.advice.clone()
    };
    for (unit, ns) in [("s", S), ("ms", S / 1_000), ("us", S / 1_000_000)] {
        let mut facts = well(None);
        facts.sources[0].kind = "ilp".into();
        facts.streams[0].newest.as_mut().unwrap().time = NOW / ns;
        let said = advice(&facts);
        assert!(said.contains("precision") && said.contains(&format!("POST /write?precision={unit},")), "{said}");
        // Packets have no precision.
        facts.sources[0].kind = "inetx".into();
        assert!(!advice(&facts).contains("precision"));
        // For an instant, when the stream has nothing else.
        let mut facts = well(Some(AT));
        facts.sources[0].kind = "ilp".into();
        let stream = &mut facts.streams[0];
        let frame = FrameFacts { row: 0, time: NOW / ns, receive_time: AT - 60 * S };
        (stream.oldest, stream.newest, stream.before, stream.after) = (Some(frame), Some(frame), None, None);
        let said = advice(&facts);
        assert!(said.contains(&format!("?precision={unit},")), "{said}");
    }
    let mut facts = well(None);
    facts.sources[0].kind = "ilp".into();
    facts.streams[0].newest.as_mut().unwrap().time = 1_000;
    assert!(advice(&facts).contains("?precision=s, ms or us"));
}

#[test]
fn a_value_that_is_marked_bad_is_explained_and_nothing_is_wrong() {
    let mut facts = well(None);
    facts.streams[0].channels[1].bad = Some("marked bad by ada: loose cable".to_owned());
    let report = judge(&facts);
    let marked: Vec<_> = report.findings.iter().filter(|finding| finding.cause == Cause::Marked).collect();
    assert_eq!(marked.len(), 1, "{report:?}");
    assert!(marked[0].text.ends_with(": marked bad by ada: loose cable") && !report.wrong, "{report:?}");
}

#[test]
fn an_archive_that_waits_is_told_with_what_waits() {
    use crate::doctor::ArchiveFacts;
    use strongback_archive::{State, Status};

    let said = |lag_s: f64, status: Status| {
        let archive = ArchiveFacts { name: "history".into(), address: "postgresql://db".into(), lag_s, status };
        let facts = Facts { channel: None, archives: vec![archive], ..well(None) };
        let of_archive = |finding: &Finding| finding.cause == Cause::Archive;
        let findings = judge(&facts).findings.into_iter().filter(of_archive);
        findings.map(|finding| (finding.text, finding.wrong)).collect::<Vec<_>>()
    };
    let behind = |state| Status { state, behind_frames: 7, ..Status::default() };
    let error = Some(("connection refused".to_owned(), NOW));
    let name = "archive \"history\" (postgresql://db)";
    for (lag_s, status, expected) in [
        (0.2, behind(State::Following), None),
        (0.0, Status { altered_values: 3, state: State::Following, ..Status::default() }, None),
        (
            90.0,
            behind(State::Following),
            Some((" is late: 7 frames wait, the oldest for 90.0 s, 0 frames/s are delivered", true)),
        ),
        (5.0, behind(State::Paused), Some((" is paused; 7 frames wait, the oldest for 5.0 s", false))),
        (
            5.0,
            Status { last_error: error.clone(), ..behind(State::Retrying) },
            Some((" delivers nothing: connection refused; 7 frames wait, the oldest for 5.0 s", true)),
        ),
        (
            5.0,
            Status { suspended_streams: 1, last_error: error.clone(), ..behind(State::Following) },
            Some((" delivers nothing of 1 stream: connection refused; 7 frames wait, the oldest for 5.0 s", true)),
        ),
        (0.0, Status { last_error: error, ..Status::default() }, None),
        (
            0.0,
            Status { rejected_frames: 2, state: State::Following, ..Status::default() },
            Some((" left out 2 frames that the target rejects", true)),
        ),
        (
            0.0,
            Status { skipped_frames: 1, state: State::Following, ..Status::default() },
            Some((" missed 1 frame, which expired or were damaged before they were delivered", true)),
        ),
    ] {
        let expected = expected.map(|(text, wrong)| (format!("{name}{text}"), wrong));
        assert_eq!(said(lag_s, status.clone()), Vec::from_iter(expected), "{status:?}");
    }
    // Of an instant or a channel, archives say nothing.
    assert_eq!(causes(&well(Some(AT))), []);
}
