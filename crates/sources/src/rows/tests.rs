use std::io::Write as _;

use strongback_store::text::{CsvLead, TextForm};
use strongback_store::*;

// The store has another item of this name.
use super::RowSelection;
use super::*;

const CSV_NS: TextForm = TextForm::Csv(CsvLead { time: false, gap: false, ..CsvLead::ALL });
const CSV_UTC: TextForm = TextForm::Csv(CsvLead { time_ns: false, gap: false, ..CsvLead::ALL });
const T0: i64 = 1_790_000_000_000_000_000;

/// A store as a sink. Appended frames are committed when a caller waits for them.
struct StoreSink {
    store: Store,
    _folder: tempfile::TempDir,
}

impl StoreSink {
    fn new() -> StoreSink {
        let folder = tempfile::tempdir().unwrap();
        let options = StoreOptions { log_bytes: 1 << 20, ..StoreOptions::default() };
        StoreSink { store: Store::open(folder.path(), options, T0).unwrap(), _folder: folder }
    }

    fn define(&self, text: &str) {
        let definition = rdl::StoreDefinition::parse(text, "t").unwrap();
        for stream in &definition.streams {
            self.store.resolve(&stream.spec("t"), T0).unwrap();
        }
    }

    fn config(&self, format: RowFormat) -> RowConfig {
        RowConfig::new("t.csv", format, self.store.catalog())
    }

    fn csv(&self, text: &str) -> RowReport {
        run(text.as_bytes(), self.config(RowFormat::Csv), self, |_| ControlFlow::Continue(())).unwrap()
    }

    fn jsonl(&self, text: &str) -> RowReport {
        run(text.as_bytes(), self.config(RowFormat::Jsonl), self, |_| ControlFlow::Continue(())).unwrap()
    }

    /// Returns each frame of a stream as `time channel=value …`.
    fn frames(&self, stream: &str) -> Vec<String> {
        let catalog = self.store.catalog();
        let key = StreamKey::parse(stream);
        let found = catalog.streams.iter().find(|s| s.key == key).expect("the stream is there");
        let columns: Vec<ChannelIndex> = (0..found.layout.channels.len() as u16).map(ChannelIndex).collect();
        let mut out = Vec::new();
        for batch in self.store.view().scan(Scan::all(found.id, columns)) {
            let batch = batch.unwrap();
            for row in 0..batch.len() {
                let mut line = batch.time(row).to_string();
                for (column, channel) in batch.columns.iter().zip(&found.layout.channels) {
                    match column.cell(row) {
                        Ok(value) => line.push_str(&format!(" {}={value:?}", channel.name)),
                        Err(CellState::Absent) => {}
                        Err(state) => line.push_str(&format!(" {}={state:?}", channel.name)),
                    }
                }
                out.push(line);
            }
        }
        out
    }
}

impl Sink for StoreSink {
    fn resolve(&self, spec: &StreamSpec) -> Result<(Arc<Stream>, Vec<ChannelIndex>), Reject> {
        self.store.resolve(spec, T0)
    }

    fn accept(&self, batch: &FrameBatch) -> Appended {
        self.store.append(batch, T0)
    }

    fn wait_durable(&self, commit: CommitNumber) -> Result<(), Refusal> {
        if self.store.committed() < commit {
            self.store.commit(T0)?;
        }
        while self.store.maintain(T0)? {}
        Ok(())
    }

    fn count_rejected(&self, _: StreamId, _: u64) {}
}

fn complaints(report: &RowReport) -> Vec<String> {
    report.complaints.iter().map(|c| format!("{}:{} {}", c.place.line, c.place.column, c.reason)).collect()
}

#[test]
fn columns_become_frames_of_their_streams() {
    let sink = StoreSink::new();
    let report = sink.csv(
        "time_ns,a.n,a.x [bar],\"b.t\"\"q\"\"{k=1}\",b.on{k=1}\r\n1,5,,,\n2,-6,2.5,\"two\nlines, \"\"quoted\"\"\",true\n\n3,,unknown,,\n4,,,,\n",
    );
    assert_eq!(sink.frames("a"), ["1 n=I64(5)", "2 n=I64(-6) x=F64(2.5)", "3 x=Unknown"]);
    assert_eq!(sink.frames("b{k=1}"), ["2 t\"q\"=String(\"two\\nlines, \\\"quoted\\\"\") on=Bool(true)"]);
    assert_eq!((report.rows, report.stored(), report.empty_rows, report.values), (4, 4, 1, 5));
    assert!(report.is_whole(), "{report:?}");
    assert_eq!((report.time, report.lines), (Some((1, 3)), 7));
    let catalog = sink.store.catalog();
    let unit = |name: &str| catalog.streams[0].layout.channels.iter().find(|c| c.name == name).unwrap().unit.clone();
    assert_eq!((unit("x").as_str(), unit("n").as_str()), ("bar", ""));
}

#[test]
fn what_cannot_be_taken_is_counted_and_told_and_the_rest_goes_on() {
    let sink = StoreSink::new();
    sink.define("CREATE STREAM S WITH ID 1 { n uint8, ok boolean NULL, x float NULL }");
    let mut config = sink.config(RowFormat::Csv);
    config.stream = Some("S".into());
    config.time_unit = Some(TimeUnit::Ms);
    config.required = [("S".to_owned(), vec!["n".to_owned()])].into();
    let text = "ts,n,ok,x\n1,1,true,0.1\n2,256,true,0.2\n3,2,yes,0.3\nnoon,3,,\n5,4\n6,\"5,,\n7,6,,\n8,,true,\n";
    // The quote on line 7 is never closed and includes everything after it.
    let report = run(text.as_bytes(), config, &sink, |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(sink.frames("S"), ["1000000 n=U8(1) ok=Bool(true) x=F32(0.1)", "3000000 n=U8(2) x=F32(0.3)"]);
    assert_eq!(
        complaints(&report),
        [
            "3:3 n: \"256\" is not a valid u8",
            "4:5 ok: \"yes\" is not a valid bool",
            "5:1 \"noon\" is not a time: RFC 3339 (2026-11-20T17:00:00Z) or a number is",
            "6:1 2 cells, and the header has 4",
            "7:3 this quote is not closed",
        ]
    );
    assert_eq!((report.bad_cells, report.bad_rows, report.rows), (2, 4, 6));
    let report = sink.csv("time_ns,stream,n,x\n9,S,,0.5\n10,,1,1\n11,T,1,\n");
    assert_eq!(complaints(&report), ["3:4 the row names no stream"]);
    assert_eq!(sink.frames("T"), ["11 n=I64(1)"]);
    let mut config = sink.config(RowFormat::Csv);
    config.required = [("S".to_owned(), vec!["n".to_owned()])].into();
    let report = run(&b"time_ns,S.n,S.x\n20,,0.5\n21,7,\n"[..], config, &sink, |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(complaints(&report), ["2:5 n of stream S has no value, and is not NULL in its definition"]);
    assert_eq!(report.stored(), 1);
}

#[test]
fn headers_that_cannot_be_meant_are_refused_before_anything_is_stored() {
    let sink = StoreSink::new();
    let refused = |text: &str, time: Option<&str>| {
        let config = RowConfig { time_column: time.map(str::to_owned), ..sink.config(RowFormat::Csv) };
        run(text.as_bytes(), config, &sink, |_| ControlFlow::Continue(())).unwrap_err().to_string()
    };
    for (text, time, want) in [
        ("", None, "t.csv:1:1: the file is empty; the first line must name the columns"),
        (
            "a.b,a.c\n",
            None,
            "t.csv:1:1: no column is named time, time_ns, timestamp …: say which is the time by --time-column",
        ),
        ("tiem,a.c\n", Some("time"), "t.csv:1:1: there is no column \"time\"; did you mean tiem?"),
        (
            "time,rpm\n",
            None,
            "t.csv:1:6: \"rpm\" does not say its stream: name it STREAM.CHANNEL, add a column stream, or give --stream",
        ),
        ("time,a.c,a.c\n", None, "t.csv:1:10: there are two columns \"a.c\""),
        ("time,a.c,\n", None, "t.csv:1:10: column 3 has no name"),
        ("time\n", None, "t.csv:1:1: no column is a channel that was asked for"),
    ] {
        assert_eq!(refused(text, time), want, "{text:?}");
    }
    assert!(sink.store.catalog().streams.is_empty());
}

#[test]
fn one_value_a_row_goes_where_its_name_is_mapped() {
    let sink = StoreSink::new();
    sink.define("CREATE STREAM RPM WITH ID 190 { value float }");
    let mut config = sink.config(RowFormat::Csv);
    config.names = [("engine_rpm".to_owned(), "RPM.value".to_owned())].into();
    let text = "unix_time_s,channel,value\n1635188455.029900,engine_rpm,649.25\n1635188455.03,speed.00,0\n";
    let report = run(text.as_bytes(), config, &sink, |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(sink.frames("RPM"), ["1635188455029900000 value=F32(649.25)"]);
    assert_eq!((report.rows, report.ignored_rows, report.stored()), (2, 1, 1));
    assert!(report.is_whole());
}

#[test]
fn json_lines_are_rows_flat_or_as_exports_write_them() {
    let sink = StoreSink::new();
    let report = sink.jsonl(concat!(
        r#"{"type":"channels","channels":[{"name":"a.big{k=1}","type":"u64","unit":"Pa","description":"much"}]}"#, "\n",
        r#"{"type":"frame","time":"1970-01-01T00:00:00Z","time_ns":"7","stream":"a{k=1}","values":{"a.big{k=1}":"18446744073709551615"}}"#, "\n",
        r#"{"type":"gap","stream":"a{k=1}","from_time_ns":"1","to_time_ns":"2","count":"3","cause":"sequence","words":"x"}"#, "\n",
        r#"{"time":"1970-01-01T00:00:00.000000008Z","stream":"b","x":1.5,"t":"né","n":null,"on":true}"#, "\n",
        r#"{"time_us":9,"b.x":9007199254740993}"#, "\n",
        "\n",
        r#"{"time_ns":10,"stream":"b","x":[1]}"#, "\n",
        r#"{"time_ns":11,"stream":"b","x":1"#, "\n",
        r#"{"stream":"b","x":1}"#, "\n",
        r#"{"time_ns":12,"stream":"b","x":"NaN","on":"unknown"}"#, "\n",
    ));
    assert_eq!(sink.frames("a{k=1}"), ["7 big=U64(18446744073709551615)"]);
    let b = sink.frames("b");
    assert_eq!(b[0], "8 x=F64(1.5) t=String(\"né\") on=Bool(true)");
    // The nearest double, because the column has doubles.
    assert_eq!(b[1], "9000 x=F64(9007199254740992.0)");
    assert_eq!(b[2], "12 x=F64(NaN) on=Unknown");
    assert_eq!(
        complaints(&report),
        [
            "7:32 x: an array is not a valid f64",
            "8:33 the line ends, expected ',' or '}'",
            "9:1 no key time, time_ns, timestamp …",
        ]
    );
    assert_eq!((report.rows, report.empty_rows, report.bad_rows), (8, 1, 3));
    let catalog = sink.store.catalog();
    let big = &catalog.streams.iter().find(|s| s.key.table == "a").unwrap().layout.channels[0];
    assert_eq!((big.unit.as_str(), big.description.as_str()), ("Pa", "much"));
}

#[test]
fn channels_named_gap_and_type_are_no_gaps() {
    let sink = StoreSink::new();
    let mut config = sink.config(RowFormat::Csv);
    config.stream = Some("car".to_owned());
    let report = run("time_s,gap,rpm\n1,5,0.3\n2,6,0.4\n".as_bytes(), config, &sink, |_| ControlFlow::Continue(()));
    assert!(report.unwrap().is_whole());
    assert_eq!(sink.frames("car"), ["1000000000 gap=I64(5) rpm=F64(0.3)", "2000000000 gap=I64(6) rpm=F64(0.4)"]);

    // As exports write them, and a row of both kinds.
    let sink = StoreSink::new();
    let text = "time,time_ns,stream,gap,a.x\n\
        1970-01-01T00:00:00Z,1,a,,5\n1970-01-01T00:00:00Z,2,a,3 frames are missing,\n\
        1970-01-01T00:00:00Z,3,a,1 frame is missing,6\n";
    let report = run(text.as_bytes(), sink.config(RowFormat::Csv), &sink, |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(sink.frames("a"), ["1 x=I64(5)"]);
    assert_eq!(complaints(&report), ["4:26 a row that describes a gap has no values"]);
    assert_eq!((report.rows, report.empty_rows), (3, 1));

    let sink = StoreSink::new();
    let report = sink.jsonl(concat!(
        r#"{"time_s":2,"stream":"car","type":"gap","rpm":6}"#,
        "\n",
        r#"{"time_s":3,"stream":"car","type":"frame","rpm":7}"#,
        "\n",
        r#"{"time_s":4,"stream":"car","type":"fast","rpm":8}"#,
        "\n",
    ));
    assert!(report.is_whole());
    assert_eq!(
        sink.frames("car"),
        [
            "2000000000 type=String(\"gap\") rpm=I64(6)",
            "3000000000 rpm=I64(7)",
            "4000000000 type=String(\"fast\") rpm=I64(8)"
        ]
    );
}

#[test]
fn types_are_guessed_from_the_first_thousand_rows_or_said() {
    let sink = StoreSink::new();
    let mut text = String::from("time_ns,s.n,s.m,s.k\n");
    for i in 0..1_500 {
        text.push_str(&format!("{i},{i},{},{i}\n", if i == 999 { "0.5" } else { "1" }));
    }
    text.push_str("2000,1.5,1.5,1\n");
    let mut config = sink.config(RowFormat::Csv);
    config.types = [("s.k".to_owned(), ChannelType::U16)].into();
    let report = run(text.as_bytes(), config, &sink, |_| ControlFlow::Continue(())).unwrap();
    let frames = sink.frames("s");
    assert_eq!(frames.len(), 1_501);
    assert_eq!(frames[7], "7 n=I64(7) m=F64(1.0) k=U16(7)");
    assert_eq!(frames[1_500], "2000 m=F64(1.5) k=U16(1)");
    assert_eq!(complaints(&report), ["1502:6 n: \"1.5\" is not a valid i64"]);
}

#[test]
fn a_stopped_file_goes_on_where_it_was_stopped() {
    let sink = StoreSink::new();
    let mut text = String::from("time_ns,s.n\n");
    (0..50_000).for_each(|i| text.push_str(&format!("{i},{i}\n")));
    let mut calls = 0;
    let report = run(text.as_bytes(), sink.config(RowFormat::Csv), &sink, |progress| {
        calls += 1;
        assert!(progress.bytes > 0 && progress.lines > 0);
        if calls == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .unwrap();
    assert!(report.stopped && report.lines < 50_000 && report.stored() + 1 == report.lines, "{report:?}");
    let config = RowConfig { from_line: report.lines + 1, ..sink.config(RowFormat::Csv) };
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(text.as_bytes()).unwrap();
    let rest = run(&packed.finish().unwrap()[..], config, &sink, |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(report.stored() + rest.stored(), 50_000);
    let frames = sink.frames("s");
    assert!(frames.iter().enumerate().all(|(i, frame)| *frame == format!("{i} n=I64({i})")));
}

#[test]
fn a_log_of_a_bus_becomes_streams_of_its_messages() {
    const DBC: &[u8] = include_bytes!("../../../../tests/data/vehicle/CSS-Electronics-SAE-J1939-DEMO.dbc");
    const LOG: &[u8] = include_bytes!("../../../../tests/data/vehicle/candump.log");
    const DECODED: &str = include_str!("../../../../tests/data/vehicle/decoded.csv");
    let sink = StoreSink::new();
    let database = Arc::new(can::Database::parse(DBC, "demo.dbc").unwrap());
    let report = run(LOG, sink.config(RowFormat::Candump(database)), &sink, |_| ControlFlow::Continue(())).unwrap();
    assert!(report.is_whole(), "{report:?}");
    assert_eq!(report.rows, LOG.split(|b| *b == b'\n').filter(|line| !line.is_empty()).count() as u64);
    // Another decoder read the same recording: time and value of each frame.
    let expected = |channel: &str| -> Vec<(i64, f64)> {
        let rows = DECODED.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
        let rows = rows.filter(|cells| cells[1] == channel);
        rows.map(|cells| (parse_time(cells[0], Some(TimeUnit::S)).unwrap(), cells[2].parse().unwrap())).collect()
    };
    for (stream, channel, other) in [
        ("EEC1{bus=can0,source=0}", "EngineSpeed", "engine_rpm"),
        ("CCVS1{bus=can0,source=0}", "WheelBasedVehicleSpeed", "vehicle_speed_kmh.00"),
    ] {
        let frames = sink.frames(stream);
        let want = expected(other);
        assert!(want.len() > 50, "{other}: {}", want.len());
        assert_eq!(frames.len(), want.len(), "{stream}");
        for (frame, (time, value)) in frames.iter().zip(want) {
            let prefix = format!("{time} {channel}=F64(");
            let found: f64 = frame.strip_prefix(&prefix).unwrap().trim_end_matches(')').parse().unwrap();
            assert!((found - value).abs() <= 0.005, "{frame}: {value}");
        }
    }
}

fn written(sink: &StoreSink, change: impl FnOnce(&mut RowSelection)) -> String {
    let all = [Pattern::parse("*").unwrap()];
    let mut reading = RowSelection {
        chosen: matching_data(&sink.store.catalog(), &all).unwrap(),
        time: i64::MIN..i64::MAX,
        limit: None,
        from_newest: false,
        newest_first: false,
        form: CSV_NS,
    };
    change(&mut reading);
    let mut out = Vec::new();
    write(&sink.store.view(), &reading, &mut out, |error| panic!("{error}")).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn frames_are_written_merged_by_time_from_either_end() {
    let sink = StoreSink::new();
    sink.csv("time_ns,a.x [bar],b{k=1}.y\n1,1.5,\n2,,7\n3,2.5,8\n5,,9\n");
    sink.csv("time_ns,a.x,\"a.t\"\n4,unknown,\"q\"\"x, y\"\n");
    let rows = ["1,a,1.5,,", "2,b,,,7", "3,a,2.5,,", "3,b,,,8", "4,a,unknown,\"q\"\"x, y\",", "5,b,,,9"];
    let rows = rows.map(|row| row.replace(",b,", ",b{k=1},"));
    let header = "time_ns,stream,a.x [bar],a.t,b.y{k=1}";
    let text = |rows: &[&String]| {
        let lines: Vec<&str> = std::iter::once(header).chain(rows.iter().map(|row| row.as_str())).collect();
        lines.join("\n") + "\n"
    };
    let all: Vec<&String> = rows.iter().collect();
    assert_eq!(written(&sink, |_| {}), text(&all));
    let back: Vec<&String> = rows.iter().rev().collect();
    assert_eq!(written(&sink, |r| r.newest_first = true).lines().count(), 7);
    let times = |text: &str| text.lines().skip(1).map(|l| l.split(',').next().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(times(&written(&sink, |r| r.newest_first = true)), ["5", "4", "3", "3", "2", "1"]);
    assert_eq!(times(&text(&back)), ["5", "4", "3", "3", "2", "1"]);
    assert_eq!(written(&sink, |r| r.limit = Some(2)), text(&all[..2]));
    assert_eq!(written(&sink, |r| (r.limit, r.from_newest) = (Some(2), true)), text(&all[4..]));
    let two = written(&sink, |r| (r.limit, r.from_newest, r.newest_first) = (Some(2), true, true));
    assert_eq!(two, text(&[all[5], all[4]]));
    let two = written(&sink, |r| (r.limit, r.newest_first) = (Some(2), true));
    assert_eq!(two, text(&[all[1], all[0]]));
    assert_eq!(written(&sink, |r| r.time = 2..4), text(&all[1..4]));
    let one = written(&sink, |r| r.chosen.truncate(1));
    assert_eq!(one, "time_ns,a.x [bar],a.t\n1,1.5,\n3,2.5,\n4,unknown,\"q\"\"x, y\"\n");
    assert_eq!(written(&sink, |r| r.limit = Some(0)), format!("{header}\n"));
}

#[test]
fn what_is_written_is_taken_again_as_the_same() {
    let sink = StoreSink::new();
    sink.define(
        "CREATE STREAM \"a.b\" WITH ID 1 { o boolean, i int64, u uint64, f float, d double, t string, small uint8 }",
    );
    let rows = "time_ns,stream,o,i,u,f,d,t,small\n\
        -1,a.b,true,-9223372036854775808,18446744073709551615,0.1,5e-324,\"x\n\"\"y\"\"\",0\n\
        1790000000000000001,a.b,unknown,9007199254740993,0,NaN,-inf,,255\n\
        1790000000000000002,a.b,false,,,-0,1e300,é,\n";
    assert!(sink.csv(rows).is_whole());
    let frames = sink.frames("a.b");
    assert_eq!(frames.len(), 3);
    for form in [CSV_NS, CSV_UTC, TextForm::Csv(CsvLead::ALL), TextForm::Jsonl] {
        let text = written(&sink, |r| r.form = form);
        let again = StoreSink::new();
        // CSV does not state types, so the streams must exist.
        again.define("CREATE STREAM \"a.b\" WITH ID 1 { o boolean, i int64, u uint64, f float, d double, t string, small uint8 }");
        let report = if form == TextForm::Jsonl { again.jsonl(&text) } else { again.csv(&text) };
        assert!(report.is_whole(), "{text} {report:?}");
        assert_eq!(again.frames("a.b"), frames, "{text}");
    }
    // JSON lines state types.
    let text = written(&sink, |r| r.form = TextForm::Jsonl);
    let again = StoreSink::new();
    again.jsonl(&text);
    assert_eq!(again.frames("a.b"), frames);
}

#[test]
fn streams_and_texts_that_look_odd_are_taken_again_as_they_were() {
    let sink = StoreSink::new();
    let lines = [
        r#"{"time_ns":1,"stream":"p{site=\"Berlin,Mitte\"}","v":1}"#,
        r#"{"time_ns":2,"stream":"p{site=\"Berlin,Wedding\"}","v":2}"#,
        r#"{"time_ns":3,"stream":"p{site=\" {a=\\\"1\\\\\\\"} \",\"k,\"=\"\"}","v":3}"#,
        r#"{"time_ns":4,"stream":"t","s":"a\r\nb","n":1}"#,
        r#"{"time_ns":5,"stream":"t","s":"","n":2}"#,
        r#"{"time_ns":6,"stream":"t","n":3}"#,
        r#"{"time_ns":7,"stream":"t","s":"\r"}"#,
        r#"{"time_ns":8,"stream":"t","s":"\r\n\n\r\n"}"#,
        r#"{"time_ns":9,"stream":"u","s":""}"#,
    ];
    assert!(sink.jsonl(&lines.join("\n")).is_whole());
    let frames = |sink: &StoreSink| -> Vec<(String, Vec<String>)> {
        let names: Vec<String> = sink.store.catalog().streams.iter().map(|stream| stream.key.to_string()).collect();
        names.into_iter().map(|name| (name.clone(), sink.frames(&name))).collect()
    };
    let all = frames(&sink);
    assert_eq!(all.len(), 5, "{all:?}");
    assert_eq!(all[0], ("p{site=\"Berlin,Mitte\"}".to_owned(), vec!["1 v=I64(1)".to_owned()]));
    assert_eq!(all[3].1[1..3], ["5 s=String(\"\") n=I64(2)", "6 n=I64(3)"]);
    for form in [CSV_NS, CSV_UTC, TextForm::Csv(CsvLead::ALL), TextForm::Jsonl] {
        let text = written(&sink, |r| r.form = form);
        let again = StoreSink::new();
        let report = if form == TextForm::Jsonl { again.jsonl(&text) } else { again.csv(&text) };
        assert!(report.is_whole(), "{text} {report:?}");
        assert_eq!(frames(&again), all, "{text}");
    }
    // Without the stream column, and with stream names of earlier versions: no two are merged.
    let text =
        "time_ns,\"p.v{site=\"\"Berlin,Mitte\"\"}\",\"q.v{site=Berlin,Mitte}\",\"q.v{site=Berlin,Wedding}\"\n1,5,6,7\n";
    let again = StoreSink::new();
    assert!(again.csv(text).is_whole());
    assert_eq!(again.frames("p{site=\"Berlin,Mitte\"}"), ["1 v=I64(5)"]);
    assert_eq!(again.frames("q"), ["1 v{site=Berlin,Mitte}=I64(6) v{site=Berlin,Wedding}=I64(7)"]);
}

#[test]
fn quotes_around_nothing_are_a_text_or_no_value() {
    let sink = StoreSink::new();
    // As written by programs that quote every cell.
    let report = sink.csv("time_ns,s.t,s.n\n1,\"\",\"7\"\n2,\"x\",\"\"\n3,,\"\"\n4,\"\",\n");
    assert_eq!(sink.frames("s"), ["1 t=String(\"\") n=I64(7)", "2 t=String(\"x\")", "4 t=String(\"\")"]);
    assert!(report.is_whole(), "{report:?}");
    assert_eq!((report.rows, report.stored(), report.empty_rows), (4, 3, 1));
    let report = sink.csv("time_ns,channel,value\n5,s.t,\"\"\n6,s.t,\n7,s.n,\"\"\n");
    assert_eq!((report.stored(), report.empty_rows, report.is_whole()), (1, 2, true));
    assert_eq!(sink.frames("s")[3..], ["5 t=String(\"\")"]);
}

#[test]
fn intervals_say_from_when_to_when() {
    let sink = StoreSink::new();
    sink.define("CREATE STREAM S WITH ID 1 { n uint8 WITH CODEC StepAlgorithm, x float }");
    let report = sink.csv("time_ns,S.n,S.x\n10,1,0\n20,1,2\n30,2,2\n40,2,2\n50,unknown,2\n60,3,unknown\n");
    assert_eq!(report.stored() + report.reduced, 6);
    let reading = RowSelection {
        chosen: matching_data(&sink.store.catalog(), &[Pattern::parse("S.n").unwrap()]).unwrap(),
        time: 0..100,
        limit: None,
        from_newest: false,
        newest_first: false,
        form: CSV_NS,
    };
    let mut out = Vec::new();
    write_intervals(&sink.store.view(), &reading, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let want = "start_ns,end_ns,channel,value,end_value,open\n10,30,S.n,1,1,false\n30,50,S.n,2,2,false\n\
        50,60,S.n,unknown,unknown,false\n60,100,S.n,3,3,true\n";
    assert_eq!(text, want);
}

#[test]
fn a_grid_has_all_channels_side_by_side() {
    let sink = StoreSink::new();
    let report = sink.csv("time_ns,a.x [bar],b{k=1}.n\n12,1.5,\n15,,7\n21,3.5,8\n38,unknown,\n");
    assert!(report.is_whole(), "{report:?}");
    let grid = |sink: &StoreSink, time, limit, step_ns, how| {
        let all = [Pattern::parse("*").unwrap()];
        let reading = RowSelection {
            chosen: matching_data(&sink.store.catalog(), &all).unwrap(),
            time,
            limit,
            from_newest: false,
            newest_first: false,
            form: CSV_NS,
        };
        let mut out = Vec::new();
        let rows = write_grid(&sink.store.view(), &reading, (step_ns, how), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let (header, rest) = text.split_once('\n').unwrap();
        assert!(header.starts_with("time_ns,a.x [bar]"), "{header}");
        assert_eq!(rest.lines().count() as u64, rows);
        rest.to_owned()
    };
    let all = i64::MIN..i64::MAX;
    assert_eq!(
        grid(&sink, all.clone(), None, 5, Resample::AsOf),
        "10,,\n15,1.5,7\n20,1.5,7\n25,3.5,8\n30,3.5,8\n35,3.5,8\n"
    );
    assert_eq!(
        grid(&sink, 13..25, None, 6, Resample::Interpolated),
        "13,1.7222222222222223,\n19,3.0555555555555554,7\n"
    );
    assert_eq!(grid(&sink, all.clone(), Some(2), 100, Resample::AsOf), "0,,\n");
    assert_eq!(grid(&sink, 39..60, None, 7, Resample::AsOf), "");
    assert!(grid(&sink, all.clone(), None, 1, Resample::AsOf).ends_with("37,3.5,8\n38,unknown,8\n"));
    // More rows than are held at a time.
    let long = StoreSink::new();
    long.csv("time_ns,a.x [bar]\n0,1\n9000,2\n");
    let found = grid(&long, all, None, 1, Resample::AsOf);
    let want = (0..=9000).map(|time| format!("{time},{}\n", if time < 9000 { 1 } else { 2 }));
    assert!(found == want.collect::<String>());
}

#[test]
fn what_stays_in_its_band_is_counted_as_reduced() {
    let sink = StoreSink::new();
    sink.define("CREATE STREAM S WITH ID 1 { rpm float WITH CODEC DeadbandAlgorithm PARAMS (deadband=50) }");
    let report = sink.csv("time_ns,S.rpm\n1,700\n2,740\n3,751\n4,702\n5,700\n");
    assert_eq!((report.rows, report.stored(), report.reduced), (5, 3, 2));
    assert_eq!(sink.frames("S"), ["1 rpm=F32(700.0)", "3 rpm=F32(751.0)", "5 rpm=F32(700.0)"]);
}

#[test]
fn arrays_come_as_lists_and_go_out_as_lists() {
    let sink = StoreSink::new();
    sink.define("CREATE STREAM a WITH ID 1 { s float[3], w uint64[], f boolean[] }");
    let report = sink.jsonl(concat!(
        "{\"time_ns\":1,\"a.s\":[1,2.5,\"NaN\"],\"a.w\":[],\"a.f\":[true,false]}\n",
        "{\"time_ns\":2,\"a.s\":[1,2],\"a.w\":[\"18446744073709551615\",0]}\n",
        "{\"time_ns\":3,\"a.s\":[1,2,\"x\"],\"a.f\":\"unknown\"}\n",
        "{\"time_ns\":4,\"a.s\":[1,[2],3]}\n",
        "{\"a.w\":7,\"time_ns\":5}\n",
        "{\"time_ns\":6,\"b.new\":[1.5,2]}\n",
    ));
    let want = [
        "2:20 s: an array of 2 elements, expected f32[3] of at most 65536",
        "3:20 s: element 2: \"x\" is not a valid f32",
        "4:20 a.s is neither a number, a text, true nor false, nor an array of these",
        "5:8 w: no array, expected u64[]",
    ];
    assert_eq!(complaints(&report), want);
    let json = "{\"type\":\"frame\",\"time\":\"1970-01-01T00:00:00.000000001Z\",\"time_ns\":\"1\",\"stream\":\"a\",\"values\":{\"a.s\":[1.0,2.5,\"NaN\"],\"a.w\":[],\"a.f\":[true,false]}}";
    let written = |form| {
        let reading = RowSelection {
            chosen: matching_data(&sink.store.catalog(), &[Pattern::parse("a.*").unwrap()]).unwrap(),
            time: i64::MIN..i64::MAX,
            limit: None,
            from_newest: false,
            newest_first: false,
            form,
        };
        let mut out = Vec::new();
        write(&sink.store.view(), &reading, &mut out, |error| panic!("{error}")).unwrap();
        String::from_utf8(out).unwrap()
    };
    assert!(written(TextForm::Jsonl).contains(json), "{}", written(TextForm::Jsonl));
    let csv = written(CSV_NS);
    assert!(csv.contains("\n1,\"[1.0,2.5,NaN]\",[],\"[true,false]\"\n"), "{csv}");
    // Exported text can be imported in either form.
    for again in [written(TextForm::Jsonl), csv] {
        let other = StoreSink::new();
        other.define("CREATE STREAM a WITH ID 1 { s float[3], w uint64[], f boolean[] }");
        let report = if again.starts_with('{') { other.jsonl(&again) } else { other.csv(&again) };
        assert_eq!(complaints(&report), [""; 0]);
        assert_eq!(other.frames("a"), sink.frames("a"));
    }
    assert!(sink.frames("b")[0].contains("F64"), "{:?}", sink.frames("b"));
}

/// Creates a store with one frame in each stream, whose channels hold different numbers.
fn odd_store(streams: &[(StreamKey, &[&str])]) -> StoreSink {
    let sink = StoreSink::new();
    for (key, names) in streams {
        let channels = names.iter().map(|name| ChannelSpec::new(*name, ChannelType::I16)).collect();
        let (stream, indices) = sink.resolve(&StreamSpec::new(key.clone(), channels)).unwrap();
        let mut batch = FrameBatch::new();
        batch.begin(FrameHead { stream: stream.id, receive_time: 7, source_time: None, sequence: None });
        for (value, index) in indices.into_iter().enumerate() {
            batch.push(index, Value::I16(value as i16));
        }
        batch.end();
        let appended = sink.accept(&batch);
        sink.wait_durable(appended.commit).unwrap();
    }
    sink
}

#[test]
fn streams_and_channels_with_alike_names_come_back_apart() {
    let tags =
        |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<Vec<_>>();
    let streams: [(StreamKey, &[&str]); 6] = [
        (StreamKey::new("a", tags(&[("b", "c")])), &["x", "y"]),
        (StreamKey::new("a{b=c}", []), &["x"]),
        (StreamKey::new("a", []), &["b.c", "x{b=c}", "a.d"]),
        (StreamKey::new("a.b", []), &["c", "\"q\""]),
        (StreamKey::new("a.\"b", tags(&[("k", ",z=w")])), &["c\""]),
        (StreamKey::new("a.a", []), &["d"]),
    ];
    let sink = odd_store(&streams);
    for form in [CSV_NS, TextForm::Jsonl] {
        let text = written(&sink, |reading| reading.form = form);
        let again = StoreSink::new();
        let report = if form == TextForm::Jsonl { again.jsonl(&text) } else { again.csv(&text) };
        assert_eq!(complaints(&report), [""; 0], "{text}");
        for (key, _) in &streams {
            // Only JSON lines state types.
            let want = sink.frames(&key.to_string());
            let got = again.frames(&key.to_string());
            let want: Vec<String> =
                want.iter().map(|frame| frame.replace("I16", if form == CSV_NS { "I64" } else { "I16" })).collect();
            assert_eq!(got, want, "{key}");
        }
    }
    // One stream alone is named if its channels do not say it.
    let one = odd_store(&streams[2..3]);
    let text = written(&one, |_| ());
    assert!(text.starts_with("time_ns,stream,"), "{text}");
    let again = StoreSink::new();
    again.csv(&text);
    assert_eq!(again.frames("a").len(), 1, "{text}");
    assert!(written(&odd_store(&streams[1..2]), |_| ()).starts_with("time_ns,\"\"\"a{b=c}\"\".x\""));
}

#[test]
fn rows_of_streams_that_the_store_refuses_are_counted_and_the_rest_is_stored() {
    let sink = StoreSink::new();
    let long = "n".repeat(2000);
    let text = format!(
        "{{\"time_ns\":1,\"stream\":\"a\",\"values\":{{\"a.x\":1}}}}\n\
         {{\"time_ns\":2,\"stream\":\"strongback.events\",\"values\":{{\"text\":\"t\",\"source\":\"s\"}}}}\n\
         {{\"time_ns\":3,\"stream\":\"strongback.events\",\"values\":{{\"text\":\"u\"}}}}\n\
         {{\"time_ns\":4,\"stream\":\"a\",\"values\":{{\"a.x\":2,\"{long}\":3}}}}\n\
         {{\"time_ns\":5,\"stream\":\"a\",\"values\":{{\"{long}\":3}}}}\n\
         {{\"time_ns\":6,\"stream\":\"a\",\"values\":{{\"a.x\":3,\"a.y\":4}}}}\n"
    );
    for text in [text.clone(), text.replace("\"stream\":\"strongback.events\",", "\"stream\":\"strongback.other\",")] {
        let report = sink.jsonl(&text);
        assert_eq!((report.rows, report.stored(), report.bad_cells), (6, 3, 1));
        assert_eq!(
            report.rejected.iter().map(|(reason, count)| (*reason, *count)).collect::<Vec<_>>(),
            [("bad_name", 3)]
        );
        assert!(!report.is_whole());
        let complaints = complaints(&report);
        assert!(complaints[0].starts_with("2:") && complaints[0].contains("strongback."), "{complaints:?}");
        assert_eq!(complaints.len(), 4);
    }
    let frames = sink.frames("a");
    assert_eq!(frames[..3], ["1 x=I64(1)", "4 x=I64(2)", "6 x=I64(3) y=I64(4)"]);
}
