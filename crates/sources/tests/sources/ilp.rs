//! Lines to frames: values, escapes, times, faults, type conflicts, limits; and against a naive parser.

use std::sync::Arc;

use strongback_sources::ilp::parser::{self, FieldValue, Line, Next};
use strongback_sources::ilp::{Answer, IlpConfig, Ingress, Precision, WriteReport};
use strongback_store::{Clock, Refusal, Value};

use crate::recording::{Kept, Recording};

const NOW: i64 = 1_700_000_000_000_000_000;

fn ingress(sink: &Arc<Recording>) -> Arc<Ingress> {
    Ingress::new(Arc::clone(sink) as _, IlpConfig::default())
}

fn write(sink: &Arc<Recording>, body: impl AsRef<[u8]>) -> WriteReport {
    ingress(sink).write_body(body.as_ref(), Precision::Nanoseconds, NOW)
}

fn row(cells: &[(&str, Kept)]) -> Vec<(String, Kept)> {
    cells.iter().map(|(n, v)| ((*n).to_owned(), v.clone())).collect()
}

fn plain(v: Value<'static>) -> Kept {
    Kept::Plain(v)
}

fn text(v: &str) -> Kept {
    Kept::Text(v.to_owned())
}

#[test]
fn every_type_of_value_arrives_as_it_was_written() {
    let sink = Recording::new();
    let report = write(
        &sink,
        "m f=1.5,g=2,i=-3i,u=18446744073709551615u,t1=t,t2=True,t3=TRUE,f1=F,f2=false,s=\"a b,c=d\",us=5t,ns=7n 42\n",
    );
    assert_eq!((report.stored, report.rejected), (1, 0));
    assert_eq!(
        sink.rows("m"),
        vec![row(&[
            ("f", Kept::f64(1.5)),
            ("g", Kept::f64(2.0)),
            ("i", plain(Value::I64(-3))),
            ("u", plain(Value::U64(u64::MAX))),
            ("t1", plain(Value::Bool(true))),
            ("t2", plain(Value::Bool(true))),
            ("t3", plain(Value::Bool(true))),
            ("f1", plain(Value::Bool(false))),
            ("f2", plain(Value::Bool(false))),
            ("s", text("a b,c=d")),
            ("us", plain(Value::I64(5_000))),
            ("ns", plain(Value::I64(7))),
        ])]
    );
    let frame = &sink.frames()[0];
    assert_eq!((frame.receive_time, frame.source_time, frame.sequence), (NOW, Some(42), None));
    let stream = &sink.streams()[0];
    assert_eq!((stream.clock, stream.source.as_str(), stream.sequence_modulus), (Clock::Source, "ilp", None));
}

#[test]
fn a_line_without_a_time_has_no_source_time() {
    let sink = Recording::new();
    write(&sink, "m v=1\nm v=2 \nm v=3 7t\nm v=4 7n\n");
    let times: Vec<_> = sink.frames().iter().map(|f| f.source_time).collect();
    assert_eq!(times, [None, None, Some(7_000), Some(7)]);
    assert!(sink.frames().iter().all(|f| f.receive_time == NOW));
}

#[test]
fn precisions_are_units_and_overflow_is_a_fault() {
    for (v1, unit) in [("n", 1), ("ns", 1), ("u", 1_000), ("µ", 1_000), ("us", 1_000), ("ms", 1_000_000)] {
        assert_eq!(Precision::from_v1(v1).unwrap().unit_ns(), unit, "{v1}");
    }
    assert_eq!(Precision::from_v1("s").unwrap().unit_ns(), 1_000_000_000);
    assert_eq!(Precision::from_v1("m").unwrap().unit_ns(), 60_000_000_000);
    assert_eq!(Precision::from_v1("h").unwrap().unit_ns(), 3_600_000_000_000);
    for not_v2 in ["n", "u", "µ", "m", "h", "", "NS"] {
        assert_eq!(Precision::from_v2(not_v2), None, "{not_v2}");
    }
    let sink = Recording::new();
    let report = ingress(&sink).write_body(b"m v=1 472223\nm v=1 99999999", Precision::Hours, NOW);
    assert_eq!((report.stored, report.rejected), (1, 1));
    assert_eq!(sink.frames()[0].source_time, Some(472_223 * 3_600_000_000_000));
    assert_eq!(report.reasons, [("bad_timestamp", 1)]);
}

/// Facts of questdb/c-questdb-client `ilp-client-interop-test.json` and influxdata `influxdb_line_protocol`,
/// in our own words.
#[test]
fn escapes_of_each_position() {
    for (line, stream, cells) in [
        (r"test\ 1\=2 a=42i", "test 1=2", vec![("a", plain(Value::I64(42)))]),
        (
            r"foo\,bar,k\ ey=v\,a\ l\=ue f\,i\ e\=ld=t",
            r#"foo,bar{k ey="v,a l=ue"}"#,
            vec![("f,i e=ld", plain(Value::Bool(true)))],
        ),
        (
            "t name\\ 1\\=2=\"value 1,2=3\\\n4\\\r5\\\"6\\\\7\"",
            "t",
            vec![("name 1=2", text("value 1,2=3\n4\r5\"6\\7"))],
        ),
        ("t,s=a\\\nb\\\rc\"d\\\\e v=1", "t{s=\"a\nb\rc\\\"d\\\\e\"}", vec![("v", Kept::f64(1.0))]),
        ("таблица имя\\ раз=\"шесть\\\\семь\"", "таблица", vec![("имя раз", text("шесть\\семь"))]),
        (r"a\bc v=1", r"a\bc", vec![("v", Kept::f64(1.0))]),
        (r#"m s="c:\dir\new" 5"#, "m", vec![("s", text(r"c:\dir\new"))]),
        ("m s=\"two\nlines\",v=1 5", "m", vec![("s", text("two\nlines")), ("v", Kept::f64(1.0))]),
        (r#"m s="",v=1"#, "m", vec![("s", text("")), ("v", Kept::f64(1.0))]),
        (r#"m"x",t"=" v"=1"#, r#""m\"x\""{"t\""="\""}"#, vec![("v\"", Kept::f64(1.0))]),
        (r"m,a=b=c v=1", r#"m{a="b=c"}"#, vec![("v", Kept::f64(1.0))]),
        (r"m,z=1,a=2 v=1", "m{a=2,z=1}", vec![("v", Kept::f64(1.0))]),
    ] {
        let sink = Recording::new();
        let report = write(&sink, line);
        assert_eq!(report.first_error, None, "{line:?}");
        assert_eq!(sink.rows(stream), vec![row(&cells)], "{line:?}");
        // The same line twice in a body: its end was found where it is.
        let body = format!("{line}\n{line}\r\n# {line}\n\n  other v=2\n");
        let twice = write(&Recording::new(), body.replace("# t name\\ 1\\=2=\"value 1,2=3\\\n", "# "));
        if !line.contains('\n') {
            assert_eq!((twice.received(), twice.rejected), (3, 0), "{line:?}");
        }
    }
}

#[test]
fn doubles_of_the_interop_vectors_keep_their_bits() {
    let sink = Recording::new();
    for line in [
        "doubles d0=0,dm0=-0,d1=1,dE100=1E+100,d0000001=1E-06,dN0000001=-1E-06 1",
        "doubles d0=0.0,dm0=-0.0,d1=1.0,dE100=1e100,d0000001=1e-6,dN0000001=-1e-6 2",
        "doubles d0=NaN,dm0=Infinity,d1=-Infinity,dE100=inf,d0000001=-inf,dN0000001=nan 3",
    ] {
        assert_eq!(write(&sink, line).stored, 1);
    }
    let bits: Vec<Vec<u64>> = sink
        .frames()
        .iter()
        .map(|f| {
            let bits = f.cells.iter().map(|(_, v)| match v {
                Ok(Kept::Plain(v)) => v.bits(),
                other => panic!("{other:?}"),
            });
            bits.collect()
        })
        .collect();
    let want: Vec<u64> = [0.0, -0.0, 1.0, 1e100, 1e-6, -1e-6_f64].iter().map(|v| v.to_bits()).collect();
    assert_eq!(bits[0], want);
    assert_eq!(bits[1], want);
    assert!(f64::from_bits(bits[2][0]).is_nan() && f64::from_bits(bits[2][5]).is_nan());
    assert_eq!(bits[2][1..5], [f64::INFINITY, f64::NEG_INFINITY, f64::INFINITY, f64::NEG_INFINITY].map(f64::to_bits));
}

#[test]
fn each_fault_is_named_with_line_and_column_and_disturbs_no_other_line() {
    for (line, column, message, reason) in [
        ("m", 2, "no fields", "syntax"),
        ("m ", 3, "no fields", "syntax"),
        (",a=b v=1", 1, "a measurement is missing", "syntax"),
        ("m, v=1", 3, "a tag without a name", "syntax"),
        ("m,=b v=1", 3, "a tag without a name", "syntax"),
        ("m,a v=1", 3, "a tag without `=`", "syntax"),
        ("m,a= v=1", 5, "a tag without a value", "syntax"),
        ("m,a=1,a=2 v=1", 7, "duplicate tag", "syntax"),
        ("m =1", 3, "a field without a name", "syntax"),
        ("m v", 3, "a field without `=`", "syntax"),
        ("m v=", 5, "a field without a value", "syntax"),
        ("m v=1,", 7, "a field without a name", "syntax"),
        ("m v=1,v=2", 7, "duplicate field", "syntax"),
        ("m v=1x", 5, "not a valid value, such as 1, 1.5, 1i, 1u, 1t, 1n, t, f or \"text\"", "syntax"),
        ("m v=tru", 5, "not a valid value, such as 1, 1.5, 1i, 1u, 1t, 1n, t, f or \"text\"", "syntax"),
        ("m v=9223372036854775808i", 5, "an integer out of range", "integer_overflow"),
        ("m v=-1u", 5, "an integer out of range", "integer_overflow"),
        ("m v=1e400", 5, "a number beyond the range of a double", "number_overflow"),
        ("m v=-1e309d", 5, "a number beyond the range of a double", "number_overflow"),
        ("m,a=b x", 7, "a field without `=`", "syntax"),
        ("m,a=b 1x", 7, "expected an integer timestamp", "bad_timestamp"),
        ("m,a=b 1 2", 9, "unexpected text after the timestamp", "syntax"),
        ("m 1", 3, "no fields", "syntax"),
        ("m v=\"a\"b", 8, "expected a comma, a space or the end of the line after a string", "syntax"),
        ("m v=1 x", 7, "expected an integer timestamp", "bad_timestamp"),
        ("m v=1 9223372036854775808", 7, "a time out of range (1677 to 2262)", "bad_timestamp"),
        ("m v=1 1 2", 9, "unexpected text after the timestamp", "syntax"),
    ] {
        let sink = Recording::new();
        let body = format!("good v=1 1\n{line}\n  \n# comment\ngood v=2 2\n");
        let report = write(&sink, &body);
        assert_eq!((report.stored, report.rejected), (2, 1), "{line:?}");
        let error = report.first_error.as_ref().unwrap();
        assert_eq!((error.line, error.column, error.message.as_str()), (2, column, message), "{line:?}");
        assert_eq!(report.reasons, [(reason, 1)], "{line:?}");
        assert_eq!(sink.streams().len(), 1, "{line:?} made a stream");
        // The same fault in a stream that is known already.
        let known = write(&sink, format!("m v=1\n{line}\n"));
        assert_eq!(known.first_error.unwrap().message, message, "{line:?}");
    }
}

#[test]
fn a_row_of_symbols_alone_is_a_frame_without_values() {
    for (line, tag, time) in [
        ("m,a=b", "b", None),
        ("m,a=b ", "b", None),
        ("m,a=b 7", "b", Some(7)),
        ("m,a=b  7  ", "b", Some(7)),
        ("m,a=b 7t", "b", Some(7_000)),
        ("m,a=b -7n", "b", Some(-7)),
        ("m,a=b\\ 1\\,\\= 7", "b 1,=", Some(7)),
    ] {
        // Alone; as the last line of a body; before and behind lines with fields.
        for body in [format!("{line}\n{line}\n"), format!("{line}\n{line}"), format!("{line}\r\n{line}\n")] {
            let sink = Recording::new();
            let report = write(&sink, &body);
            // The second of the same time is the first again, for a store that knows; all are taken.
            assert_eq!((report.accepted(), report.rejected), (2, 0), "{line:?}: {:?}", report.first_error);
            assert_eq!(sink.streams().len(), 1, "{line:?}");
            assert_eq!(sink.streams()[0].key.tag("a"), Some(tag), "{line:?}");
            let frames = sink.frames();
            assert!(frames.iter().all(|f| f.cells.is_empty() && f.source_time == time), "{line:?}: {frames:?}");
        }
        let sink = Recording::new();
        let report = write(&sink, format!("m,a=b v=1 1\n{line}\nm,a=b w=2 3\n"));
        assert_eq!((report.stored, report.rejected), (3, 0), "{line:?}: {:?}", report.first_error);
    }
}

#[test]
fn invalid_utf8_is_rejected_where_it_is_and_only_there() {
    let sink = Recording::new();
    let report = write(
        &sink,
        b"m v=1 1\nm s=\"a\xffb\",v=2 2\nm v=3 3\nm,t=\xc3\x28 v=4 4\n\xff\xfe\nm v=\xf0\nm s=\"\xe2\x82\xac\" 5\n",
    );
    assert_eq!((report.stored, report.rejected), (3, 4));
    let error = report.first_error.unwrap();
    assert_eq!((error.line, error.column, error.message.as_str()), (2, 7, "invalid UTF-8"));
    assert_eq!(report.reasons, [("invalid_utf8", 4)]);
    assert_eq!(sink.frames().iter().map(|f| f.source_time).collect::<Vec<_>>(), [Some(1), Some(3), Some(5)]);
}

#[test]
fn an_open_string_costs_its_line_only() {
    let sink = Recording::new();
    let report = write(&sink, "m v=1 1\nm s=\"open 2\nm v=3 3\nm v=4 4");
    assert_eq!((report.stored, report.rejected), (3, 1));
    let error = report.first_error.unwrap();
    assert_eq!((error.line, error.message.as_str()), (2, "a string without its closing quote"));
    // Lines are counted through strings.
    let report = write(&sink, "m s=\"a\nb\nc\" 9\nm v=x\n");
    assert_eq!(report.first_error.unwrap().line, 4);
}

#[test]
fn a_conflicting_type_goes_to_a_second_column_and_is_counted() {
    let sink = Recording::new();
    let into = ingress(&sink);
    let report = into.write_body(b"m v=1 1\nm v=2i 2\nm v=\"x\" 3\nm v=3 4\nm v=4i 5", Precision::Nanoseconds, NOW);
    assert_eq!((report.stored, report.rejected, report.type_conflicts), (5, 0, 3));
    assert_eq!(Answer::of(&report).status, 204);
    let names: Vec<String> = sink.rows("m").into_iter().map(|r| r[0].0.clone()).collect();
    assert_eq!(names, ["v", "v_i64", "v_string", "v", "v_i64"]);
    assert_eq!(into.counts().type_conflicts.load(std::sync::atomic::Ordering::Relaxed), 3);
}

#[test]
fn reserved_names_get_out_of_the_way_and_are_no_conflict() {
    let sink = Recording::new();
    let report = write(&sink, "m,time=a,host=b time=1,host=2,sequence=3 1");
    assert_eq!((report.stored, report.type_conflicts), (1, 0));
    assert_eq!(
        sink.rows("m{host=b,time_tag=a}"),
        vec![row(&[
            ("time_field", Kept::f64(1.0)),
            ("host_field", Kept::f64(2.0)),
            ("sequence_field", Kept::f64(3.0))
        ])]
    );
}

#[test]
fn a_renamed_tag_is_called_as_no_other_of_its_line() {
    let sink = Recording::new();
    let body = "v,time=morning,time_tag=a x=1 5\nv,time=evening,time_tag=a x=2 5\nv,time_tag=a,time=morning x=3 6\n\
        v,time_tag_2=c,time=noon,time_tag=b,session=s,session_tag=t x=4 7";
    let report = write(&sink, body);
    assert_eq!((report.stored, report.rejected), (4, 0));
    let rows = |tags: &str| sink.rows(&format!("v{{{tags}}}"));
    let x = |value: f64| row(&[("x", Kept::f64(value))]);
    assert_eq!(rows("time_tag=a,time_tag_2=morning"), [x(1.0), x(3.0)]);
    assert_eq!(rows("time_tag=a,time_tag_2=evening"), [x(2.0)]);
    assert_eq!(rows("session_tag=t,session_tag_2=s,time_tag=b,time_tag_2=c,time_tag_3=noon"), [x(4.0)]);
    assert_eq!(sink.streams().len(), 3);
}

#[test]
fn layouts_grow_and_fields_may_come_in_any_order() {
    let sink = Recording::new();
    let into = ingress(&sink);
    let mut body = String::from("m a=1 1\nm b=2,a=3 2\nm c=4 3\n");
    let wide: Vec<String> = (0..100).map(|i| format!("w{i}={i}")).collect();
    let backwards: Vec<String> = wide.iter().rev().cloned().collect();
    body += &format!("m {} 4\nm {} 5\n", wide.join(","), backwards.join(","));
    let report = into.write_body(body.as_bytes(), Precision::Nanoseconds, NOW);
    assert_eq!((report.stored, report.rejected), (5, 0));
    assert_eq!(sink.streams()[0].layout.channels.len(), 103);
    assert_eq!(sink.resolves(), 4, "a known line resolves nothing");
    let rows = sink.rows("m");
    let mut last = rows[4].clone();
    last.reverse();
    assert_eq!(rows[3], last);
    for (name, value) in &rows[3] {
        assert_eq!(*value, Kept::f64(name[1..].parse().unwrap()));
    }
}

#[test]
fn a_million_tag_values_are_bounded_by_the_store() {
    let sink = Recording::with_max_streams(1_000);
    let into = ingress(&sink);
    let (mut stored, mut rejected) = (0, 0);
    for block in 0..100 {
        let mut body = String::new();
        for i in 0..10_000 {
            body += &format!("m,id={} v=1 {}\n", block * 10_000 + i, i);
        }
        let report = into.write_body(body.as_bytes(), Precision::Nanoseconds, NOW);
        stored += report.stored;
        rejected += report.rejected;
        if block == 1 {
            assert_eq!(report.reasons, [("too_many_streams", 10_000)]);
            assert!(report.first_error.unwrap().message.contains("max_streams"));
        }
    }
    assert_eq!((stored, rejected), (1_000, 999_000));
    // Streams that are there go on.
    assert_eq!(into.write_body(b"m,id=7 v=2 1", Precision::Nanoseconds, NOW).stored, 1);
}

#[test]
fn answers_make_clients_stop_or_retry_rightly() {
    let sink = Recording::new();
    let into = ingress(&sink);
    let partial = into.write_body(b"m v=1 1\nm v=x 2\nm v=3 3", Precision::Nanoseconds, NOW);
    let answer = Answer::of(&partial);
    assert_eq!(answer.status, 400);
    let body: serde_json::Value = serde_json::from_str(&answer.body.unwrap()).unwrap();
    let message = body["message"].as_str().unwrap();
    assert!(message.starts_with("partial write: line 2, column 5: not a valid value"), "{message}");
    assert_eq!(body["error"], body["message"]);
    assert_eq!(
        (&body["code"], &body["line"], &body["column"], &body["accepted"], &body["rejected"]),
        (&"invalid".into(), &2.into(), &5.into(), &2.into(), &1.into())
    );
    let none = Answer::of(&into.write_body(b"m", Precision::Nanoseconds, NOW));
    let body: serde_json::Value = serde_json::from_str(&none.body.unwrap()).unwrap();
    assert!(body["error"].as_str().unwrap().starts_with("unable to parse: line 1, column 2: no fields"));

    assert_eq!(Answer::of(&into.write_body(b"\n# nothing\n", Precision::Nanoseconds, NOW)), Answer::written());

    sink.refuse(Refusal::DiskFull, 1);
    let refused = into.write_body(b"m v=8 8", Precision::Nanoseconds, NOW);
    let answer = Answer::of(&refused);
    assert_eq!((answer.status, answer.retry_after_s), (503, Some(1)));
    assert!(answer.body.unwrap().contains("disk full"));
    // The retry of a body that was taken in part stores each row once.
    let retried = into.write_body(b"m v=1 1\nm v=8 8", Precision::Nanoseconds, NOW + 1);
    assert_eq!((retried.stored, retried.duplicate), (1, 1));
    assert_eq!(Answer::of(&retried).status, 204);
}

#[test]
fn a_full_log_is_waited_for() {
    let sink = Recording::new();
    sink.refuse(Refusal::LogFull, 3);
    let report = write(&sink, "m v=1 1\nm v=2 2\nm v=3 3\nm v=4 4\n");
    assert_eq!((report.stored, report.rejected, report.refusal), (4, 0, None));
    assert!(sink.waits() > 0);
    assert_eq!(sink.frames().len(), 4);
}

#[test]
fn a_reopened_store_gets_its_streams_anew() {
    let sink = Recording::new();
    let into = ingress(&sink);
    into.write_body(b"a v=1\nb v=1\n", Precision::Nanoseconds, NOW);
    sink.forget_streams();
    into.write_body(b"b v=1\nb w=1\n", Precision::Nanoseconds, NOW);
    assert_eq!(sink.streams().len(), 1);
    assert_eq!(sink.rows("b").len(), 2);
}

#[test]
fn limits_of_names_tags_and_fields() {
    let sink = Recording::new();
    let long = "x".repeat(1_025);
    for line in [format!("{long} v=1"), format!("m,{long}=1 v=1"), format!("m,t={long} v=1"), format!("m {long}=1")] {
        let report = write(&sink, &line);
        assert!(report.first_error.unwrap().message.starts_with("a name of more than"));
    }
    let tags: String = (0..129).map(|i| format!(",t{i}=1")).collect();
    assert_eq!(write(&sink, format!("m{tags} v=1")).first_error.unwrap().message, "more than 128 tags");
    let fields: Vec<String> = (0..5_000).map(|i| format!("f{i}=1")).collect();
    assert_eq!(write(&sink, format!("m {}", fields.join(","))).first_error.unwrap().message, "more than 4096 fields");
    let line = format!("m s=\"{}\"", "x".repeat(1 << 20));
    assert_eq!(write(&sink, format!("{line}\nm v=1")).reasons, [("line_too_long", 1)]);
    assert!(write(&sink, "strongback.x v=1").first_error.unwrap().message.contains("reserved"));
}

/// A second reading of the protocol, as plain as can be: bytes are taken one by one, escapes resolved at once.
mod naive {
    use super::*;

    #[derive(Debug, PartialEq)]
    pub(super) struct NaiveLine {
        pub(super) measurement: Vec<u8>,
        pub(super) tags: Vec<(Vec<u8>, Vec<u8>)>,
        pub(super) fields: Vec<(Vec<u8>, Kept)>,
        pub(super) time: Option<i64>,
    }

    struct Bytes<'a>(&'a [u8]);

    impl Bytes<'_> {
        fn peek(&self) -> Option<u8> {
            self.0.first().copied()
        }

        fn take(&mut self) -> Option<u8> {
            let (first, rest) = self.0.split_first()?;
            self.0 = rest;
            Some(*first)
        }

        fn until(&mut self, ends: &[u8], escaped: &[u8]) -> Vec<u8> {
            let mut out = Vec::new();
            while let Some(b) = self.peek() {
                if ends.contains(&b) {
                    break;
                }
                self.take();
                if b != b'\\' {
                    out.push(b);
                    continue;
                }
                match self.take() {
                    Some(e) if escaped.contains(&e) => out.push(e),
                    Some(e) => out.extend([b'\\', e]),
                    None => out.push(b'\\'),
                }
            }
            out
        }
    }

    pub(super) fn parse(line: &[u8]) -> Option<NaiveLine> {
        const NAME: &[u8] = b", =\\\n\r";
        let mut b = Bytes(line);
        let measurement = b.until(b", ", NAME);
        if measurement.is_empty() {
            return None;
        }
        let mut tags = Vec::new();
        while b.peek() == Some(b',') {
            b.take();
            let key = b.until(b"=, ", NAME);
            (b.take() == Some(b'=')).then_some(())?;
            let value = b.until(b", ", NAME);
            if key.is_empty() || value.is_empty() {
                return None;
            }
            tags.push((key, value));
        }
        let mut fields = Vec::new();
        while b.peek() == Some(b' ') {
            b.take();
        }
        // Tags alone, with or without a time.
        let rest = std::str::from_utf8(b.0).ok()?.trim_matches(' ');
        if !tags.is_empty() && (rest.is_empty() || !rest.starts_with('+') && rest.parse::<i64>().is_ok()) {
            return Some(NaiveLine { measurement, tags, fields, time: rest.parse().ok() });
        }
        loop {
            let key = b.until(b"=, ", NAME);
            (b.take() == Some(b'=') && !key.is_empty()).then_some(())?;
            let value = if b.peek() == Some(b'"') {
                b.take();
                let s = b.until(b"\"", b"\"\\\n\r");
                (b.take() == Some(b'"')).then_some(())?;
                matches!(b.peek(), None | Some(b',' | b' ')).then_some(())?;
                Kept::Text(String::from_utf8(s).ok()?)
            } else {
                let mut token = Vec::new();
                while let Some(c) = b.peek().filter(|c| !b", ".contains(c)) {
                    token.push(c);
                    b.take();
                }
                value(std::str::from_utf8(&token).ok()?)?
            };
            fields.push((key, value));
            match b.peek() {
                Some(b',') => b.take(),
                _ => break,
            };
        }
        let rest = std::str::from_utf8(b.0).ok()?.trim_matches(' ');
        let time = if rest.is_empty() { None } else { Some(rest.parse().ok()?) };
        Some(NaiveLine { measurement, tags, fields, time })
    }

    fn value(token: &str) -> Option<Kept> {
        Some(Kept::Plain(match token {
            "t" | "T" | "true" | "True" | "TRUE" => Value::Bool(true),
            "f" | "F" | "false" | "False" | "FALSE" => Value::Bool(false),
            _ => match token.strip_suffix(['i', 'u', 't', 'n']).map(|n| (n, token.as_bytes()[token.len() - 1])) {
                Some((n, suffix)) if !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit() || b == b'-') => {
                    match suffix {
                        b'u' => Value::U64(n.parse().ok()?),
                        b't' => Value::I64(n.parse::<i64>().ok()?.checked_mul(1_000)?),
                        _ => Value::I64(n.parse().ok()?),
                    }
                }
                _ => Value::F64(token.parse().ok()?),
            },
        }))
    }
}

/// What our parser makes of one line, in the naive parser's words.
fn ours(line: &str) -> Option<naive::NaiveLine> {
    let bytes = line.as_bytes();
    let Next::Line(found) = parser::next_line(bytes, 0, true) else { return None };
    if (found.start, found.end) != (0, bytes.len()) {
        return None;
    }
    let split = Line::split(line, found.escapes).ok()?;
    let series = split.series().ok()?;
    let mut fields = split.fields();
    let mut list = Vec::new();
    while let Some(field) = fields.next_field().ok()? {
        let value = match field.value {
            FieldValue::F64(v) => Kept::Plain(Value::F64(v)),
            FieldValue::I64(v) => Kept::Plain(Value::I64(v)),
            FieldValue::U64(v) => Kept::Plain(Value::U64(v)),
            FieldValue::Bool(v) => Kept::Plain(Value::Bool(v)),
            FieldValue::RawString(s) => Kept::Text(parser::unescape_string(s).into_owned()),
        };
        list.push((parser::unescape(field.raw_name).into_owned().into_bytes(), value));
    }
    let time = fields.time(1).ok()?;
    let tags = series.tags.into_iter().map(|(k, v)| (k.into_bytes(), v.into_bytes())).collect();
    Some(naive::NaiveLine { measurement: series.measurement.into_bytes(), tags, fields: list, time })
}

fn same(a: &Option<naive::NaiveLine>, b: &Option<naive::NaiveLine>) -> bool {
    // NaN is equal to itself here.
    format!("{a:?}") == format!("{b:?}")
}

mod generated {
    use proptest::prelude::*;

    use super::*;

    fn escape(raw: &str, special: &str) -> String {
        raw.chars().flat_map(|c| if special.contains(c) { vec!['\\', c] } else { vec![c] }).collect()
    }

    fn name() -> impl Strategy<Value = String> {
        "[a-zé,= \\\\\n\r\"#]{1,8}"
    }

    fn value() -> impl Strategy<Value = (String, Kept)> {
        prop_oneof![
            any::<f64>().prop_map(|v| (format!("{v:?}"), Kept::f64(v))),
            (any::<i32>(), 0_usize..10).prop_map(|(m, d)| {
                let token = format!("{:.d$}", m as f64 / 10_f64.powi(d as i32));
                let v = token.parse().unwrap();
                (token, Kept::f64(v))
            }),
            any::<i64>().prop_map(|v| (format!("{v}i"), Kept::Plain(Value::I64(v)))),
            any::<u64>().prop_map(|v| (format!("{v}u"), Kept::Plain(Value::U64(v)))),
            any::<bool>().prop_map(|v| (v.to_string(), Kept::Plain(Value::Bool(v)))),
            "[a-zé,= \\\\\n\r\"]{0,12}".prop_map(|v| (format!("\"{}\"", escape(&v, "\"\\")), Kept::Text(v))),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// A generated line comes back, alone and in the middle of a body.
        #[test]
        fn lines_come_back(
            measurement in "[a-zé=\\\\\n\r\"][a-zé,= \\\\\n\r\"#]{0,7}",
            tags in proptest::collection::btree_map(name(), name(), 0..4),
            fields in proptest::collection::vec((name(), value()), 1..5),
            time in proptest::option::of(any::<i64>()),
        ) {
            let special = ", =\\\n\r";
            let mut line = escape(&measurement, special);
            for (k, v) in &tags {
                line += &format!(",{}={}", escape(k, special), escape(v, special));
            }
            let list: Vec<String> = fields.iter().map(|(k, (v, _))| format!("{}={v}", escape(k, special))).collect();
            line += &format!(" {}", list.join(","));
            if let Some(t) = time {
                line += &format!(" {t}");
            }
            let want = Some(naive::NaiveLine {
                measurement: measurement.into_bytes(),
                tags: tags.into_iter().map(|(k, v)| (k.into_bytes(), v.into_bytes())).collect(),
                fields: fields.into_iter().map(|(k, (_, v))| (k.into_bytes(), v)).collect(),
                time,
            });
            prop_assert!(same(&ours(&line), &want), "{line:?}: {:?}", ours(&line));
            prop_assert!(same(&naive::parse(line.as_bytes()), &want), "{line:?}");
            let body = format!("a v=1\n{line}\nb v=1\n");
            match parser::next_line(body.as_bytes(), 6, false) {
                Next::Line(f) => prop_assert_eq!(&body[f.start..f.end], line.as_str()),
                other => prop_assert!(false, "{:?}", other),
            }
        }

        /// What one parser takes the other takes, as the same; what one refuses the other refuses.
        #[test]
        fn two_parsers_agree(line in "[ab,= \\\\\"10.itu-]{1,24}") {
            // The naive parser knows neither blanks before a line, nor repeated tags, nor suffixes of times.
            prop_assume!(!line.starts_with(' ') && !line.ends_with(['t', 'n']));
            let (a, b) = (ours(&line), naive::parse(line.as_bytes()));
            let repeated = b.as_ref().is_some_and(|l| {
                l.tags.iter().enumerate().any(|(i, t)| l.tags[..i].iter().any(|u| u.0 == t.0))
            });
            prop_assume!(!repeated);
            prop_assert!(same(&a, &b), "{line:?}\nours  {a:?}\nnaive {b:?}");
        }

        /// Anything at all: no panic, every byte is consumed, received is the sum of its parts.
        #[test]
        fn any_bytes_are_survived(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let sink = Recording::new();
            let report = write(&sink, &body);
            prop_assert_eq!(report.stored + report.duplicate, sink.frames().len() as u64 + report.duplicate);
            prop_assert_eq!(report.rejected, report.reasons.iter().map(|(_, n)| n).sum::<u64>());
            prop_assert_eq!(report.rejected > 0, report.first_error.is_some());
        }

        /// A body cut anywhere never yields a value that was not sent whole, but for its last line.
        #[test]
        fn mutated_bodies_are_survived(cut in 0_usize..120, flip in 0_usize..120, byte in any::<u8>()) {
            let mut body = b"m,host=a\\ b f=1.5,i=3i,s=\"x\\\"y\nz\",b=t 17\nn v=1 18\nm,host=b f=2.5 19\nq s=\"\" 20\n".to_vec();
            let at = flip % body.len();
            body[at] = byte;
            body.truncate(cut);
            write(&Recording::new(), &body);
        }
    }
}
