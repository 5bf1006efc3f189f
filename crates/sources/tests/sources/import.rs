//! Captures: link layers, times, damage; the real captures against AcraNetwork's reading of them.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use strongback_sources::capture::{self, CaptureEnd, CaptureError, Captured};
use strongback_sources::config::SourceConfig;
use strongback_sources::import::{self, ImportConfig, ImportError, ImportReport};
use strongback_sources::inetx::Packet;
use strongback_sources::{Sink, SourceLayout};
use strongback_store::Refusal;

use crate::packets::{ethernet, inetx, ipv4, ipv6, pcap, pcapng};
use crate::recording::Recording;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/inetx").join(name)
}

/// Time, destination port and payload of each datagram.
type Datagrams = Vec<(i64, u16, Vec<u8>)>;

/// What a capture holds: its datagrams, and the words for everything else.
fn read(bytes: &[u8]) -> (Datagrams, Vec<String>, Result<CaptureEnd, CaptureError>) {
    let (mut datagrams, mut others) = (Vec::new(), Vec::new());
    let end = capture::read(bytes, |captured, _| {
        match captured {
            Captured::Datagram(d) => datagrams.push((d.time, d.destination.port(), d.payload.to_vec())),
            other => others.push(format!("{other:?}")),
        }
        ControlFlow::Continue(())
    });
    (datagrams, others, end)
}

/// The lines that `headers.py` prints for a capture.
fn header_lines(path: &Path) -> Vec<String> {
    let bytes = std::fs::read(path).unwrap();
    let (datagrams, others, end) = read(&bytes);
    assert_eq!((others.as_slice(), end), (&[][..], Ok(CaptureEnd::Whole)));
    let lines = datagrams.iter().map(|(_, _, payload)| {
        let p = Packet::parse(payload).unwrap();
        let pif = p.payload_information.unwrap().0;
        let mut crc = flate2::Crc::new();
        crc.update(p.payload);
        format!(
            "{} {} {} {} {} {} {pif} {} {}",
            p.control,
            p.stream_id,
            p.sequence,
            p.packet_bytes,
            p.ptp_s,
            p.ptp_ns,
            p.payload.len(),
            crc.sum()
        )
    });
    lines.collect()
}

fn assert_headers_equal(expected: &str) {
    let expected: serde_json::Value = serde_json::from_str(expected).unwrap();
    let captures = expected.as_object().unwrap();
    assert_eq!(captures.len(), 4);
    for (name, want) in captures {
        let lines = header_lines(&data(name));
        assert_eq!(want["packets"], lines.len(), "{name}");
        for (line, want) in lines.iter().zip(want["lines"].as_array().unwrap()) {
            assert_eq!(line, want.as_str().unwrap(), "{name}");
        }
        let digest = Sha256::digest(lines.join("\n")).iter().fold(String::new(), |mut out, b| {
            let _ = write!(out, "{b:02x}");
            out
        });
        assert_eq!(want["sha256"], digest.as_str(), "{name}");
    }
}

#[test]
fn headers_equal_those_that_acranetwork_reads() {
    assert_headers_equal(&std::fs::read_to_string(data("headers.json")).unwrap());
}

/// The committed reading is what AcraNetwork says now, where python3 (or `STRONGBACK_TEST_PYTHON`) has it.
#[test]
fn acranetwork_still_reads_what_is_committed() {
    let python = std::env::var("STRONGBACK_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has_it = Command::new(&python).args(["-c", "import AcraNetwork.iNetX"]).output();
    if !has_it.is_ok_and(|o| o.status.success()) {
        eprintln!("{python} has no AcraNetwork: not compared");
        return;
    }
    let output = Command::new(&python).arg(data("headers.py")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json = String::from_utf8(output.stdout).unwrap();
    assert_headers_equal(&json);
    assert_eq!(json, std::fs::read_to_string(data("headers.json")).unwrap());
}

/// Streams of `acranet_sample.pcap`: 8, 16 and 64 words of 16 bits, offset binary.
pub(crate) fn sample_layout() -> SourceLayout {
    let mut text = String::from("name = 'fti'\nkind = 'inetx'\nlisten = '235.0.0.1:8020'\n");
    for (id, table, words, period_ms) in
        [(0xDC, "fti.slow", 8, 10), (0xDD, "fti.fast", 16, 1), (0xE0, "fti.wide", 64, 100)]
    {
        let _ = writeln!(text, "[[stream]]\nid = {id}\ntable = '{table}'\nperiod_ms = {period_ms}");
        for word in 0..words {
            let _ = writeln!(text, "[[stream.channel]]\nname = 'w{word}'\noffset = {}\ntype = 'u16'", word * 2);
        }
    }
    toml::from_str::<SourceConfig>(&text).unwrap().compile("source[0]").unwrap()
}

fn run(path: &Path, sources: Vec<SourceLayout>, sink: &dyn Sink) -> Result<ImportReport, ImportError> {
    let config = ImportConfig { run: "hotfire 3".to_owned(), sources };
    import::run(path, &config, sink, |_| ControlFlow::Continue(()))
}

#[test]
fn the_sample_is_imported_whole_into_its_run() {
    let sink = Recording::new();
    let mut last = None;
    let config = ImportConfig { run: "hotfire 3".to_owned(), sources: vec![sample_layout()] };
    let report = import::run(&data("acranet_sample.pcap"), &config, sink.as_ref(), |p| {
        last = Some(p);
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!((report.packets, report.datagrams, report.other, report.cut), (5_541, 5_541, 0, false));
    assert_eq!((report.rejected.len(), report.unknown_streams.len()), (0, 0));
    assert_eq!(report.file_sha256, "3377d3201219d7b24400bbb7b4b909d2e761985b374faf890e748812ce87d3ca");
    let streams: Vec<_> = report.streams.iter().map(|s| (s.key.to_string(), s.stream_id, s.frames)).collect();
    assert_eq!(
        streams,
        [
            ("fti.slow{run=hotfire 3}".to_owned(), 0xDC, 500),
            ("fti.fast{run=hotfire 3}".to_owned(), 0xDD, 4_991),
            ("fti.wide{run=hotfire 3}".to_owned(), 0xE0, 50),
        ]
    );
    assert_eq!(report.streams[0].time.unwrap().0, 1_700_000_000_000_000_000);
    let frames = sink.frames();
    assert_eq!(frames.len(), 5_541);
    assert!(sink.waits() > 0, "what was imported is durable");
    assert_eq!(
        (frames[0].receive_time, frames[0].source_time),
        (1_700_000_000_000_000_000, Some(1_700_000_000_000_000_000))
    );
    // The first 51 of 500 sequence numbers of the slow stream lie before the wrap.
    let slow: Vec<u64> =
        frames.iter().filter(|f| f.stream == report.streams[0].stream).map(|f| f.sequence.unwrap()).collect();
    assert_eq!((slow[0], slow[50], slow[51]), (u32::MAX as u64 - 50, u32::MAX as u64, 0));
    let last = last.unwrap();
    assert_eq!((last.bytes, last.total_bytes, last.packets), (650_662, 650_662, 5_541));
}

#[test]
fn the_real_captures_are_imported_whatever_their_clocks_say() {
    for (file, id, payload_bytes, packets, source_s) in [
        ("inetx_test.pcap", 0xCA, 44, 10, 755),
        ("mpegts_input.pcap", 0xDC, 1_316, 51, 35),
        ("valid_paligned.pcap", 0xA00, 996, 4, 0),
    ] {
        let text = format!(
            "name = 'x'\nkind = 'inetx'\nlisten = '127.0.0.1:1'\n[[stream]]\nid = {id}\ntable = 'x'
            [[stream.channel]]\nname = 'last'\noffset = {}\ntype = 'u8'",
            payload_bytes - 1
        );
        let layout = toml::from_str::<SourceConfig>(&text).unwrap().compile("source[0]").unwrap();
        let sink = Recording::new();
        let report = run(&data(file), vec![layout], sink.as_ref()).unwrap();
        assert_eq!((report.packets, report.streams[0].frames), (packets, packets), "{file}");
        assert_eq!(sink.frames()[0].source_time.unwrap() / 1_000_000_000, source_s, "{file}");
    }
    // Without a layout they are counted by stream id.
    let report = run(&data("mpegts_input.pcap"), Vec::new(), Recording::new().as_ref()).unwrap();
    assert_eq!(report.unknown_streams.into_iter().collect::<Vec<_>>(), [(0xDC, 51)]);
    assert_eq!(report.rejected["unknown_stream"], 51);
}

#[test]
fn link_layers_lead_to_the_same_datagram() {
    let payload = inetx(0xDD, 1, (5, 6), &[1, 2]);
    let four = ipv4(4440, 0x4000, &payload);
    let six = ipv6(4440, &payload);
    let sll = |kind: [u8; 2], ip: &[u8]| [&[0; 14][..], &kind, ip].concat();
    let sll2 = |kind: [u8; 2], ip: &[u8]| [&kind[..], &[0; 18], ip].concat();
    let mut padded = ethernet(&[], &four);
    padded.extend_from_slice(&[0; 20]);
    for (link, bytes) in [
        (1, ethernet(&[], &four)),
        (1, padded),
        (1, ethernet(&[5], &four)),
        (1, ethernet(&[5, 6], &six)),
        (1, ethernet(&[], &six)),
        (101, four.clone()),
        (12, six.clone()),
        (228, four.clone()),
        (229, six.clone()),
        (113, sll([8, 0], &four)),
        (113, sll([0x86, 0xDD], &six)),
        (276, sll2([8, 0], &four)),
        (0, [&[2, 0, 0, 0][..], &four].concat()),
        (108, [&[0, 0, 0, 30][..], &six].concat()),
    ] {
        let (datagrams, others, end) = read(&pcap(false, link, &[(7, 8, bytes)]));
        assert_eq!(datagrams, [(7_000_008_000, 4440, payload.clone())], "link {link}");
        assert_eq!((others.len(), end), (0, Ok(CaptureEnd::Whole)));
    }
}

#[test]
fn what_is_no_whole_datagram_is_counted() {
    let payload = inetx(0xDD, 1, (5, 6), &[1, 2]);
    let whole = ipv4(4440, 0, &payload);
    let mut tcp = whole.clone();
    tcp[9] = 6;
    let cut = whole[..40].to_vec();
    let mut long = whole.clone();
    long[25] = 0xFF;
    let packets = [
        ethernet(&[], &ipv4(4440, 0x2000, &payload)),
        ethernet(&[], &ipv4(4440, 0x00B9, &payload)),
        ethernet(&[], &tcp),
        ethernet(&[], &cut),
        ethernet(&[], &long),
        // Within the addresses, within the tags, and before anything.
        vec![0; 10],
        ethernet(&[5], &whole)[..16].to_vec(),
        ethernet(&[5, 6], &whole)[..20].to_vec(),
        Vec::new(),
        [vec![0; 12], vec![8, 6], vec![0; 28]].concat(),
    ];
    let file: Vec<_> = packets.into_iter().map(|p| (1, 1, p)).collect();
    let (datagrams, others, end) = read(&pcap(false, 1, &file));
    assert_eq!((datagrams.len(), end), (0, Ok(CaptureEnd::Whole)));
    let cut = ["Truncated"; 6];
    assert_eq!(others, [&["Fragment", "Fragment", "Other"][..], &cut, &["Other"]].concat());
    for (link, bytes, kind) in [
        (113, vec![0; 15], "Truncated"),
        (276, [&[8, 0][..], &[0; 17]].concat(), "Truncated"),
        (276, [&[8, 6][..], &[0; 17]].concat(), "Other"),
        (101, Vec::new(), "Truncated"),
        (0, vec![2, 0, 0, 0], "Truncated"),
    ] {
        assert_eq!(read(&pcap(false, link, &[(1, 1, bytes)])).1, [kind], "link {link}");
    }
    let (_, others, _) = read(&pcap(false, 147, &[(1, 1, whole)]));
    assert_eq!(others, ["UnreadLink"]);
}

#[test]
fn an_import_is_whole_only_if_no_packet_was_passed_over() {
    let datagram = ethernet(&[], &ipv4(8020, 0, &inetx(0xDD, 1, (1, 1), &[0; 32])));
    let mut tcp = datagram.clone();
    tcp[14 + 9] = 6;
    let packet = |bytes: &[u8]| [(1, bytes.to_vec())];
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pcapng");
    for (file, counts, is_whole) in [
        (pcapng(false, 1, 9, 0, &packet(&datagram)), [1, 0, 0, 0], true),
        (pcapng(false, 1, 9, 0, &packet(&tcp)), [0, 0, 0, 1], true),
        // A resolution that no number of 64 bits is, and a link layer that is not read.
        (pcapng(false, 1, 99, 0, &packet(&datagram)), [0, 1, 0, 0], false),
        (pcapng(false, 147, 9, 0, &packet(&datagram)), [0, 0, 1, 0], false),
        // It ends within its addresses.
        (pcapng(false, 1, 9, 0, &packet(&datagram[..13])), [0, 0, 0, 0], false),
    ] {
        std::fs::write(&path, file).unwrap();
        let report = run(&path, vec![sample_layout()], Recording::new().as_ref()).unwrap();
        assert_eq!([report.stored(), report.untimed, report.unread_link, report.other], counts);
        assert_eq!(report.is_whole(), is_whole, "{counts:?}");
    }
}

#[test]
fn packet_blocks_of_old_programs_are_read() {
    let frame = ethernet(&[], &ipv4(4440, 0, b"x"));
    for big in [false, true] {
        let u16 = |n: u16| if big { n.to_be_bytes() } else { n.to_le_bytes() };
        let u32 = |n: u32| if big { n.to_be_bytes() } else { n.to_le_bytes() };
        let block = |interface: u16, bytes: u32| {
            let mut body = [u16(interface), u16(3)].concat();
            for word in [1, 2, bytes, frame.len() as u32] {
                body.extend(u32(word));
            }
            body.extend_from_slice(&frame);
            body.resize(body.len().next_multiple_of(4), 0);
            let length = u32(body.len() as u32 + 12);
            [&u32(2)[..], &length, &body, &length].concat()
        };
        let size = frame.len() as u32;
        let blocks = [block(0, size), block(1, size), block(0, size + 100), block(0, 30)].concat();
        let (datagrams, others, end) = read(&[pcapng(big, 1, 9, 0, &[]), blocks].concat());
        assert_eq!(datagrams, [((1 << 32) + 2, 4440, b"x".to_vec())]);
        assert_eq!((others.join(" ").as_str(), end), ("Untimed Truncated Truncated", Ok(CaptureEnd::Whole)));
    }
}

#[test]
fn times_have_the_resolution_of_the_file() {
    let frame = ethernet(&[], &ipv4(1, 0, b"x"));
    let time = |file: Vec<u8>| read(&file).0[0].0;
    let s = 1_700_000_000_u64;
    let ns = s as i64 * 1_000_000_000 + 123_456_789;
    assert_eq!(time(pcap(false, 1, &[(s as u32, 123_456, frame.clone())])), ns / 1_000 * 1_000);
    assert_eq!(time(pcap(true, 1, &[(s as u32, 123_456_789, frame.clone())])), ns);
    for big in [false, true] {
        assert_eq!(time(pcapng(big, 1, 9, 0, &[(ns as u64, frame.clone())])), ns);
        assert_eq!(time(pcapng(big, 1, 6, 0, &[(ns as u64 / 1_000, frame.clone())])), ns / 1_000 * 1_000);
        assert_eq!(time(pcapng(big, 1, 3, 100, &[(5, frame.clone())])), 100_005_000_000);
        // 2⁻¹⁰ s.
        assert_eq!(time(pcapng(big, 1, 0x8A, -1, &[(1_536, frame.clone())])), 500_000_000);
        assert_eq!(read(&pcapng(big, 1, 99, 0, &[(1, frame.clone())])).1, ["Untimed"]);
        assert_eq!(read(&pcapng(big, 1, 0, 0, &[(u64::MAX, frame.clone())])).1, ["Untimed"]);
    }
}

#[test]
fn damaged_captures_are_told_from_cut_ones() {
    let good = std::fs::read(data("inetx_test.pcap")).unwrap();
    assert_eq!(read(b"").2, Err(CaptureError::NotACapture));
    assert_eq!(read(b"%PDF-1.4 and so on, for more than a header").2, Err(CaptureError::NotACapture));
    let (datagrams, _, end) = read(&good[..good.len() - 7]);
    assert_eq!((datagrams.len(), end), (9, Ok(CaptureEnd::Cut)));
    let mut huge = good.clone();
    // The second record's length: four gigabytes.
    let at = 24 + 16 + 114 + 8;
    huge[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    let (datagrams, _, end) = read(&huge);
    assert_eq!((datagrams.len(), end), (1, Ok(CaptureEnd::Cut)));
    // The same in a file that goes on for longer than any packet.
    huge.resize(40 << 20, 0);
    let (datagrams, _, end) = read(&huge);
    assert_eq!(datagrams.len(), 1);
    assert!(matches!(end, Err(CaptureError::Damaged { offset: 154, .. })), "{end:?}");
    let sink = Recording::new();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cut.pcap");
    std::fs::write(&path, &good[..good.len() - 7]).unwrap();
    assert!(run(&path, Vec::new(), sink.as_ref()).unwrap().cut);
    std::fs::write(&path, "no capture").unwrap();
    let error = run(&path, Vec::new(), sink.as_ref()).unwrap_err().to_string();
    assert!(error.ends_with("cut.pcap: not a capture: neither pcap nor pcapng"), "{error}");
    assert!(matches!(run(&dir.path().join("none"), Vec::new(), sink.as_ref()), Err(ImportError::Io { .. })));
}

#[test]
fn an_import_can_be_stopped_and_says_when_the_store_refuses() {
    let config = ImportConfig { run: "r".to_owned(), sources: vec![sample_layout()] };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("long.pcap");
    let frame = ethernet(&[], &ipv4(8020, 0, &inetx(0xDD, 1, (1, 1), &[0; 32])));
    std::fs::write(&path, pcap(false, 1, &vec![(1, 1, frame); 30_000])).unwrap();
    let sink = Recording::new();
    let stopped = import::run(&path, &config, sink.as_ref(), |_| ControlFlow::Break(())).unwrap_err();
    assert!(matches!(stopped, ImportError::Stopped { packets, .. } if packets < 30_000), "{stopped}");
    let sink = Recording::new();
    sink.refuse(Refusal::DiskFull, usize::MAX);
    let refused = import::run(&path, &config, sink.as_ref(), |_| ControlFlow::Continue(())).unwrap_err();
    assert!(matches!(refused, ImportError::Refused { source: Refusal::DiskFull, .. }), "{refused}");
}

#[test]
fn datagrams_go_to_the_source_of_their_address() {
    let source = |name: &str, listen: &str| {
        let text = format!(
            "name = '{name}'\nkind = 'inetx'\nlisten = '{listen}'\n[[stream]]\nid = 0xDD\ntable = '{name}'
            [[stream.channel]]\nname = 'c'\noffset = 0\ntype = 'u8'"
        );
        toml::from_str::<SourceConfig>(&text).unwrap().compile("source").unwrap()
    };
    let packet = |port, bytes: &[u8]| (1, 1, ethernet(&[], &ipv4(port, 0, bytes)));
    let good = inetx(0xDD, 1, (1, 1), &[1]);
    let file = pcap(
        false,
        1,
        &[
            packet(1, &good),
            packet(2, &good),
            packet(9, &good),
            packet(9, b"dns or so"),
            packet(2, &good[..27]),
            packet(2, &inetx(0xDD, 2, (1, 1), &[])),
        ],
    );
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.pcap");
    std::fs::write(&path, file).unwrap();
    let sink: Arc<Recording> = Recording::new();
    let sources = vec![source("a", "235.0.0.1:1"), source("b", "235.0.0.1:2"), source("c", "235.9.9.9:1")];
    let report = run(&path, sources, sink.as_ref()).unwrap();
    assert_eq!(report.streams.iter().map(|s| s.frames).collect::<Vec<_>>(), [2, 1, 0]);
    assert_eq!(report.other, 1);
    assert_eq!(report.rejected.into_iter().collect::<Vec<_>>(), [("length", 1), ("short_payload", 1)]);
    assert_eq!(sink.rejected(), 1);
}

mod generated {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        /// Captures with bytes changed, cut short or made up: no panic, and an end.
        #[test]
        fn any_capture_is_survived(
            changes in proptest::collection::vec((0_usize..2_000, any::<u8>()), 0..6),
            cut in 0_usize..2_000,
            kind in 0_u8..3,
        ) {
            let frame = ethernet(&[3], &ipv6(1, &inetx(0xDD, 1, (1, 1), &[7; 40])));
            let mut bytes = match kind {
                0 => pcap(true, 1, &vec![(1, 1, frame); 12]),
                1 => pcapng(true, 1, 6, 0, &vec![(1, frame); 12]),
                _ => pcapng(false, 1, 9, 0, &vec![(1, frame); 12]),
            };
            for (at, byte) in changes {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            bytes.truncate(cut);
            let _ = read(&bytes);
        }
    }
}
