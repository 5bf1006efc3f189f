//! Sources into a real store: what they wrote is what is read back, and nothing is lost or doubled unsaid.

use std::io::Write;
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use strongback_sources::config::SourceConfig;
use strongback_sources::ilp::tcp::Listener;
use strongback_sources::ilp::{IlpConfig, Ingress, Precision};
use strongback_sources::import::{self, ImportConfig, ImportReport};
use strongback_sources::inetx::InetxSource;
use strongback_sources::{Sink, wall_clock};
use strongback_store::{
    Appended, ChannelIndex, CommitNumber, FrameBatch, Refusal, Reject, Scan, Store, StoreOptions, Stream, StreamId,
    StreamSpec, Value,
};

use crate::import::sample_layout;
use crate::packets::{ethernet, inetx, ipv4, pcap};
use crate::recording::{Kept, eventually};

const NOW: i64 = 1_700_000_000_000_000_000;

/// A store behind the sink's face, committing when someone waits.
struct Stored {
    store: Store,
    _dir: tempfile::TempDir,
}

impl Stored {
    fn new() -> Arc<Stored> {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), StoreOptions::default(), NOW).unwrap();
        Arc::new(Stored { store, _dir: dir })
    }

    fn stream(&self, name: &str) -> Arc<Stream> {
        let catalog = self.store.catalog();
        let found = catalog.streams.iter().find(|s| s.key.to_string() == name);
        Arc::clone(found.unwrap_or_else(|| panic!("no stream {name}")))
    }

    /// `time` and values by column name of each row of a stream.
    fn rows(&self, name: &str) -> Vec<(i64, Vec<(String, Kept)>)> {
        let stream = self.stream(name);
        let columns: Vec<ChannelIndex> = (0..stream.layout.channels.len() as u16).map(ChannelIndex).collect();
        let mut rows = Vec::new();
        for batch in self.store.view().scan(Scan::all(stream.id, columns)) {
            let batch = batch.unwrap();
            for row in 0..batch.len() {
                let cells = batch
                    .columns
                    .iter()
                    .zip(&stream.layout.channels)
                    .filter_map(|(column, channel)| Some((channel.name.clone(), Kept::of(column.cell(row).ok()?))));
                rows.push((batch.time(row), cells.collect()));
            }
        }
        rows
    }
}

impl Sink for Stored {
    fn resolve(&self, spec: &StreamSpec) -> Result<(Arc<Stream>, Vec<ChannelIndex>), Reject> {
        self.store.resolve(spec, NOW)
    }

    fn accept(&self, batch: &FrameBatch) -> Appended {
        self.store.append(batch, NOW)
    }

    fn wait_durable(&self, commit: CommitNumber) -> Result<(), Refusal> {
        // A full log is emptied by the seals that follow its commits.
        self.store.commit(NOW)?;
        while self.store.maintain(NOW)? {}
        self.store.wait_committed(commit, Duration::ZERO).map(|_| ())
    }

    fn count_rejected(&self, stream: StreamId, frames: u64) {
        self.store.count_rejected(stream, frames);
    }
}

fn import_sample(sink: &Stored, run: &str) -> ImportReport {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/inetx/acranet_sample.pcap");
    let config = ImportConfig { run: run.to_owned(), sources: vec![sample_layout()] };
    import::run(&path, &config, sink, |_| ControlFlow::Continue(())).unwrap()
}

fn integer(row: &[(String, Kept)], column: &str) -> i64 {
    match row.iter().find(|(name, _)| name == column) {
        Some((_, Kept::Plain(Value::I64(v)))) => *v,
        Some((_, Kept::Plain(Value::U64(v)))) => *v as i64,
        other => panic!("{column}: {other:?}"),
    }
}

#[test]
fn a_field_that_gets_out_of_the_way_of_another_is_no_conflict_of_types() {
    let sink = Stored::new();
    let into = Ingress::new(sink.clone() as _, IlpConfig::default());
    let report = into.write_body(b"v time=1,time_field=2 5\nv time=3,time_field=4 6\n", Precision::Nanoseconds, NOW);
    assert_eq!((report.stored, report.rejected, report.type_conflicts), (2, 0, 0));
    into.wait_durable(&report).unwrap();
    let row = |a, b| vec![("time_field".to_owned(), Kept::f64(a)), ("time_field_2".to_owned(), Kept::f64(b))];
    assert_eq!(sink.rows("v"), [(5, row(1.0, 2.0)), (6, row(3.0, 4.0))]);
    let report = into.write_body(b"v time=\"late\" 7\n", Precision::Nanoseconds, NOW);
    assert_eq!((report.stored, report.type_conflicts), (1, 1));
}

#[test]
fn an_import_keeps_a_tag_that_is_called_as_its_own() {
    let mut layout = sample_layout();
    layout.add_tag("run", "configured");
    layout.add_tag("run", "one");
    let tags = &layout.streams[0].tables[0].spec.key;
    assert_eq!((tags.tag("run"), tags.tag("run_tag")), (Some("one"), Some("configured")));
    layout.add_tag("run", "two");
    let tags = &layout.streams[0].tables[0].spec.key;
    assert_eq!(
        (tags.tag("run"), tags.tag("run_tag_2"), tags.tag("run_tag")),
        (Some("two"), Some("one"), Some("configured"))
    );
}

/// 5,541 packets: a gap of exactly ten (2000 to 2009), one duplicate (1000), one late (3000), and a wrap that is no gap.
#[test]
fn the_sample_is_accounted_for_to_the_frame() {
    let sink = Stored::new();
    let report = import_sample(&sink, "one");
    assert_eq!((report.packets, report.stored(), report.duplicate()), (5_541, 5_540, 1));
    let counts = |name: &str| sink.store.counts(sink.stream(name).id);
    let slow = counts("fti.slow{run=one}");
    assert_eq!((slow.received, slow.stored, slow.lost, slow.late, slow.restarts), (500, 500, 0, 0, 0), "the wrap");
    let fast = counts("fti.fast{run=one}");
    assert_eq!((fast.received, fast.stored, fast.duplicate), (4_991, 4_990, 1));
    assert_eq!((fast.lost, fast.filled, fast.restarts), (11, 1, 0), "ten, and the late one until it came");
    let wide = counts("fti.wide{run=one}");
    assert_eq!((wide.received, wide.stored, wide.lost), (50, 50, 0));
    // The unwrapped sequence goes on over the wrap.
    let slow = sink.stream("fti.slow{run=one}");
    let sequences: Vec<i64> = sink
        .store
        .view()
        .scan(Scan::all(slow.id, Vec::new()))
        .flat_map(|batch| batch.unwrap().sequence.unwrap().values)
        .collect();
    assert!(sequences.len() == 500 && sequences.windows(2).all(|w| w[1] == w[0] + 1), "{sequences:?}");
    // What is still missing in the end is one gap, and it is located.
    let mut open: Vec<(i64, i64, i64, i64, i64)> = Vec::new();
    let mut filled = Vec::new();
    for (_, row) in sink.rows("strongback.gaps") {
        let cause = row.iter().find(|(name, _)| name == "cause").map(|(_, v)| v.clone());
        let id = integer(&row, "id");
        if cause == Some(Kept::Text("filled".to_owned())) {
            filled.push(id);
        } else {
            let times = (integer(&row, "from_time"), integer(&row, "to_time"));
            open.push((id, integer(&row, "from_sequence"), integer(&row, "to_sequence"), times.0, times.1));
        }
    }
    open.retain(|gap| !filled.contains(&gap.0));
    let [(_, from, to, from_time, to_time)] = open.as_slice() else { panic!("{open:?}") };
    assert_eq!((from, to), (&2_000, &2_009));
    // 1999 came at 1.999 s, 2010 at 2.010 s.
    assert_eq!((*from_time, *to_time), (NOW + 1_999_000_000, NOW + 2_010_000_000));
}

/// Two interfaces were captured: 25 of 26 sequence numbers come twice.
#[test]
fn packets_captured_twice_are_kept_once() {
    let sink = Stored::new();
    let text = "name = 'x'\nkind = 'inetx'\nlisten = '127.0.0.1:1'\n[[stream]]\nid = 0xDC\ntable = 'video'
        channel = [{ name = 'first', offset = 0, type = 'u32' }]";
    let layout = toml::from_str::<SourceConfig>(text).unwrap().compile("source[0]").unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/inetx/mpegts_input.pcap");
    let config = ImportConfig { run: "twice".to_owned(), sources: vec![layout] };
    let report = import::run(&path, &config, sink.as_ref(), |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((report.packets, report.stored(), report.duplicate()), (51, 26, 25));
    let counts = sink.store.counts(sink.stream("video{run=twice}").id);
    assert_eq!((counts.received, counts.lost, counts.late, counts.restarts), (51, 0, 0, 0));
}

/// The same packets in two groups, in each order and with some missing in one of them.
#[test]
fn packets_on_redundant_paths_are_kept_once() {
    let sink = Stored::new();
    let text = "name = 'x'\nkind = 'inetx'\n
        groups = [{ address = '239.192.7.5:0', interface = 'lo' }, { address = '239.192.7.6:0', interface = 'lo' }]
        [[stream]]\nid = 1\ntable = 'fixed'\nchannel = [{ name = 'c', offset = 0, type = 'u32' }]
        [[stream]]\nid = 2\ntable = 'packets'\npayload = 'parser-aligned'\n[[stream.block]]\ntable = 'blocks'";
    let layout = toml::from_str::<SourceConfig>(text).unwrap().compile("source[0]").unwrap();
    let mut running = InetxSource::start(layout, Arc::clone(&sink) as _, wall_clock()).unwrap();
    let [one, other] = running.addresses[..] else { panic!("{:?}", running.addresses) };
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let send = |to, sequence: u32| {
        let stamp = (1_700_000_000, sequence * 1_000_000);
        sender.send_to(&inetx(1, sequence, stamp, &sequence.to_be_bytes()), to).unwrap();
        // Two blocks of nothing but their headers.
        let blocks = [[0, 2, 0, 3, 0, 0, 0, 0], [0, 2, 1, 3, 0, 0, 0, 1]].concat();
        sender.send_to(&inetx(2, sequence, stamp, &blocks), to).unwrap();
    };
    for sequence in 0..300 {
        let (first, second) = if sequence % 3 == 0 { (other, one) } else { (one, other) };
        send(first, sequence);
        // Every tenth is lost on one path.
        if sequence % 10 != 5 {
            send(second, sequence);
        }
    }
    running.stop();
    let counts = |name: &str| sink.store.counts(sink.stream(name).id);
    for name in ["fixed", "packets"] {
        let counts = counts(name);
        assert_eq!((counts.received, counts.stored, counts.duplicate), (570, 300, 270), "{name}");
        // Where the other path is read later, what only it has is missing until then.
        assert_eq!((counts.lost, counts.restarts), (counts.filled, 0), "{name}");
    }
    assert_eq!(counts("blocks").stored, 600);
}

/// Copies of a packet behind others, further than any memory of the decoder's would be asked for.
#[test]
fn blocks_on_redundant_paths_are_kept_once_however_late_the_copy() {
    let text = "name = 'fti'\nkind = 'inetx'\nlisten = '127.0.0.1:4440'\n[[stream]]\nid = 0xA00\ntable = 'packets'\n\
                payload = 'parser-aligned'\n[[stream.block]]\ntable = 'blocks'\n\
                channel = [{ name = 'word', offset = 0, type = 'u32' }]";
    let layout = toml::from_str::<SourceConfig>(text).unwrap().compile("source").unwrap();
    let packet = |number: u32| {
        let block = [0, 3, 0, 7, 0, 0, 0, 5].into_iter().chain(number.to_be_bytes());
        let datagram = inetx(0xA00, number, (1_700_000_000 + number, 0), &block.collect::<Vec<u8>>());
        (1_700_000_000 + number, 0, ethernet(&[], &ipv4(4440, 0, &datagram)))
    };
    // Of two numbers that share a place of 1,024 the older one's copy comes between, and again behind.
    let order = [5, 1_029, 5, 1_029, 5, 6, 6];
    let captured: Vec<_> = (0..5).chain(order).map(packet).collect();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("blocks.pcap");
    std::fs::write(&path, pcap(false, 1, &captured)).unwrap();
    let sink = Stored::new();
    let config = ImportConfig { run: "one".to_owned(), sources: vec![layout] };
    let report = import::run(&path, &config, sink.as_ref(), |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(report.packets, 12);
    let mut words: Vec<i64> = sink
        .rows("blocks{run=one}")
        .iter()
        .map(|(_, row)| match &row[0].1 {
            Kept::Plain(Value::U32(word)) => i64::from(*word),
            other => panic!("{other:?}"),
        })
        .collect();
    words.sort_unstable();
    assert_eq!(words, [0, 1, 2, 3, 4, 5, 6, 1_029]);
    assert_eq!(sink.store.counts(sink.stream("packets{run=one}").id).duplicate, 4);
}

#[test]
fn two_runs_hold_the_same_times_without_mixing() {
    let sink = Stored::new();
    import_sample(&sink, "one");
    let before = sink.rows("fti.fast{run=one}");
    let report = import_sample(&sink, "two");
    assert_eq!((report.stored(), report.duplicate()), (5_540, 1));
    assert_eq!(sink.rows("fti.fast{run=one}"), before);
    assert_eq!(sink.rows("fti.fast{run=two}"), before);
}

#[test]
fn lines_are_read_back_extremes_included() {
    let sink = Stored::new();
    let into = Ingress::new(Arc::clone(&sink) as _, IlpConfig::default());
    let body = format!(
        "m,host=a i={}i,u={}u,f=-0,d=5e-324,b=t,s=\"two\nlines\" {NOW}\n\
         m,host=a i={}i,u=0u,f=9007199254740993,d=NaN,b=f,s=\"\" {}\n\
         m,host=a f=\"text\",time=1 {}\n\
         m,host=a f=2 -1\n",
        i64::MAX,
        u64::MAX,
        i64::MIN,
        NOW + 1,
        NOW + 2,
    );
    let report = into.write_body(body.as_bytes(), Precision::Nanoseconds, NOW);
    assert_eq!((report.stored, report.rejected, report.type_conflicts), (4, 0, 1), "{:?}", report.first_error);
    into.wait_durable(&report).unwrap();
    let rows = sink.rows("m{host=a}");
    let times: Vec<i64> = rows.iter().map(|(t, _)| *t).collect();
    assert_eq!(times, [NOW, NOW + 1, NOW + 2, -1]);
    let shown: Vec<String> = rows.iter().map(|(_, cells)| format!("{cells:?}")).collect();
    for (row, part) in [
        (0, "(\"i\", Plain(I64(9223372036854775807)))"),
        (0, "(\"u\", Plain(U64(18446744073709551615)))"),
        (0, "(\"f\", Plain(F64(-0.0)))"),
        (0, "(\"d\", Plain(F64(5e-324)))"),
        (0, "(\"s\", Text(\"two\\nlines\"))"),
        (1, "(\"i\", Plain(I64(-9223372036854775808)))"),
        (1, "(\"f\", Plain(F64(9007199254740992.0)))"),
        (1, "(\"d\", Plain(F64(NaN)))"),
        (1, "(\"s\", Text(\"\"))"),
        (2, "(\"f_string\", Text(\"text\"))"),
        (2, "(\"time_field\", Plain(F64(1.0)))"),
        (3, "(\"f\", Plain(F64(2.0)))"),
    ] {
        assert!(shown[row].contains(part), "row {row}: {part} in {}", shown[row]);
    }
    // A retried body doubles nothing; the same time with other values is another row.
    let retried = into.write_body(body.as_bytes(), Precision::Nanoseconds, NOW + 9);
    assert_eq!((retried.stored, retried.duplicate), (0, 4));
    let other = into.write_body(format!("m,host=a f=3 {NOW}").as_bytes(), Precision::Nanoseconds, NOW);
    assert_eq!((other.stored, other.duplicate), (1, 0));
}

#[test]
fn a_line_that_widens_nothing_and_names_the_store_refuses() {
    let sink = Stored::new();
    let into = Ingress::new(Arc::clone(&sink) as _, IlpConfig::default());
    let report = into.write_body(b"strongback.gaps count=1\nm v=1 1\n", Precision::Nanoseconds, NOW);
    assert_eq!((report.stored, report.rejected), (1, 1));
    assert_eq!(report.reasons, [("bad_name", 1)]);
    let long = format!("m s=\"{}\" 1", "x".repeat((1 << 20) - 20));
    let report = into.write_body(long.as_bytes(), Precision::Nanoseconds, NOW);
    assert_eq!(report.received(), 1);
}

/// A client that makes a field of each measured value fills its stream; then its new fields are refused, cheaply,
/// and the known ones go on.
#[test]
fn a_full_layout_refuses_new_fields_and_takes_old_ones() {
    let sink = Stored::new();
    let into = Ingress::new(Arc::clone(&sink) as _, IlpConfig::default());
    let fields: Vec<String> = (0..4_096).map(|i| format!("f{i}={i}")).collect();
    let mut body = format!("m {} 1\n", fields.join(","));
    for i in 0..200 {
        body += &format!("m f{}=1,new{i}=1 {}\nm f{}=2 {}\n", i, i + 2, i, i + 10_000);
    }
    let report = into.write_body(body.as_bytes(), Precision::Nanoseconds, NOW);
    assert_eq!((report.stored, report.rejected), (201, 200));
    assert_eq!(report.reasons, [("too_many_channels", 200)]);
    assert!(report.first_error.unwrap().message.contains("4096 channels"));
}

/// Four connections that make and grow the same streams at once: each row once, every field under its own name.
#[test]
fn connections_that_race_for_streams_lose_nothing() {
    const ROWS: usize = 4_000;
    let sink = Stored::new();
    let into = Ingress::new(Arc::clone(&sink) as _, IlpConfig::default());
    let mut listener = Listener::start("127.0.0.1:0".parse().unwrap(), Arc::clone(&into), wall_clock()).unwrap();
    let address = listener.address;
    let senders: Vec<_> = (0..4)
        .map(|sender| {
            std::thread::spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                for row in 0..ROWS {
                    let n = sender * ROWS + row;
                    let line = format!("t,id={} f{}={n},g{}={n}i {}\n", n % 50, n % 7, n % 3, NOW + n as i64);
                    stream.write_all(line.as_bytes()).unwrap();
                }
                stream.shutdown(Shutdown::Write).unwrap();
            })
        })
        .collect();
    for sender in senders {
        sender.join().unwrap();
    }
    eventually("all rows", || {
        (into.counts().stored.load(std::sync::atomic::Ordering::Relaxed) == 4 * ROWS as u64).then_some(())
    });
    listener.stop();
    let mut seen = vec![false; 4 * ROWS];
    for id in 0..50 {
        for (time, cells) in sink.rows(&format!("t{{id={id}}}")) {
            let n = (time - NOW) as usize;
            assert!(!std::mem::replace(&mut seen[n], true), "row {n} twice");
            assert_eq!(n % 50, id);
            let mut names: Vec<&str> = cells.iter().map(|(name, _)| name.as_str()).collect();
            names.sort_unstable();
            assert_eq!(names, [format!("f{}", n % 7), format!("g{}", n % 3)]);
            assert!(cells.iter().all(|(name, v)| match v {
                Kept::Plain(v) => v.as_f64() == Some(n as f64) && name.starts_with(['f', 'g']),
                Kept::Text(_) => false,
            }));
        }
    }
    assert!(seen.iter().all(|s| *s));
}
