//! `COPY … TO STDOUT` byte for byte as PostgreSQL writes it.

use std::time::SystemTime;

use bytes::{BufMut, Bytes, BytesMut};
use futures::{StreamExt, pin_mut};
use strongback_store::{ChannelType, Value};
use tokio_postgres::Client;
use tokio_postgres::binary_copy::BinaryCopyOutStream;
use tokio_postgres::types::Type;

use crate::{Fixture, MS, T0, state_of, texts};

/// The messages of copy data of a statement.
async fn chunks(client: &Client, sql: &str) -> Vec<Bytes> {
    let copy = client.copy_out(sql).await.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
    copy.map(|chunk| chunk.unwrap()).collect().await
}

async fn copied(client: &Client, sql: &str) -> String {
    String::from_utf8(chunks(client, sql).await.concat()).unwrap()
}

/// Expected text from PostgreSQL 15.
#[tokio::test(flavor = "multi_thread")]
async fn text_and_csv_are_written_as_in_postgresql() {
    let fixture = Fixture::start().await;
    fixture.pad(3);
    let client = fixture.client().await;
    let special = "select e'a\\tb\\\\c\\nd\\r\\x08\\x0b\\x0c|' as a, null as b, '' as c, true as d";
    let quoted = "select 'a,b' as a, null as b, '' as c, 'say \"x\"' as d, 'x' as e, e'two\\nlines' as \"F,g\"";
    for (sql, want) in [
        (format!("copy ({special}) to stdout"), "a\\tb\\\\c\\nd\\r\\b\\v\\f|\t\\N\t\tt\n"),
        (
            format!("copy ({special}) to stdout (delimiter '|', null 'NIL', header)"),
            "a|b|c|d\na\\tb\\\\c\\nd\\r\\b\\v\\f\\||NIL||t\n",
        ),
        (
            format!("copy ({quoted}) to stdout (format csv, header on)"),
            "a,b,c,d,e,\"F,g\"\n\"a,b\",,\"\",\"say \"\"x\"\"\",x,\"two\nlines\"\n",
        ),
        (
            format!(
                "copy ({quoted}) to stdout with csv header quote as '''' escape e'\\\\' force quote a, \"F,g\" null ''"
            ),
            "a,b,c,d,e,'F,g'\n'a,b',,'',say \"x\",x,'two\nlines'\n",
        ),
        (
            "copy (select 'it''s \\' as a, null as b, 'NULL' as c) to stdout (format csv, quote '''', escape '\\', \
             null 'NULL', force_quote *)"
                .to_owned(),
            "'it\\'s \\\\',NULL,'NULL'\n",
        ),
        ("copy (select '\\.' as a) to stdout csv".to_owned(), "\"\\.\"\n"),
        ("copy (select '\\.' as a, 1 as b) to stdout csv force quote *".to_owned(), "\"\\.\",\"1\"\n"),
        (
            "copy (select 1.5::float8 as a, -7 as b, 'x' as c) to stdout (format csv, delimiter '5', force_quote (b))"
                .to_owned(),
            "\"1.5\"5\"-7\"5x\n",
        ),
        ("copy (select 1 as a where false) to stdout csv header".to_owned(), "a\n"),
        ("copy pad (y, x) to stdout using delimiters ' ' with null '-'".to_owned(), "- 0\n0.125 1\n0.25 2\n"),
        (
            "copy public.pad(time, x) to stdout (format 'csv', header false)".to_owned(),
            "2026-11-20 00:00:00+00,0\n2026-11-20 00:00:00.001+00,1\n2026-11-20 00:00:00.002+00,2\n",
        ),
        ("copy (select relname from pg_class where relname = 'pad') to stdout".to_owned(), "pad\n"),
    ] {
        assert_eq!(copied(&client, &sql).await, want, "{sql}");
    }
    // Each line is a message.
    assert_eq!(chunks(&client, "copy (select x from pad) to stdout csv header").await.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn options_that_contradict_are_refused_with_the_codes_of_postgresql() {
    let fixture = Fixture::start().await;
    fixture.pad(3);
    let client = fixture.client().await;
    for (options, code) in [
        ("(format csv, delimiter ',,')", "0A000"),
        ("(delimiter '')", "0A000"),
        ("(delimiter 'é')", "0A000"),
        ("(delimiter 'a')", "22023"),
        ("(delimiter e'\\n')", "22023"),
        ("(quote 'x')", "0A000"),
        ("(escape 'x')", "0A000"),
        ("(force_quote *)", "0A000"),
        ("(format binary, delimiter ',')", "42601"),
        ("(format binary, null '')", "42601"),
        ("(format binary, header)", "0A000"),
        ("(format nope)", "22023"),
        ("(nope)", "42601"),
        ("(format csv, format csv)", "42601"),
        ("csv csv", "42601"),
        ("csv nope", "42601"),
        ("(format csv, force_quote (b))", "42703"),
        ("(format csv, force_quote ())", "42601"),
        ("(format csv, null 'a,b')", "0A000"),
        ("(format csv, null '\"')", "0A000"),
        ("(format csv, delimiter '\"')", "22023"),
        ("(format csv, force_null (x))", "0A000"),
        ("(format csv, force_not_null (x))", "0A000"),
        ("(null e'a\\n')", "22023"),
        ("(header maybe)", "42601"),
        ("(encoding 'latin1')", "0A000"),
    ] {
        let sql = format!("copy (select x as a from pad) to stdout {options}");
        assert_eq!(state_of(&client, &sql).await, code, "{sql}");
    }
    for (sql, code) in [
        ("copy pad from stdin", "25006"),
        ("copy pad (x, y) from '/etc/passwd' with (format csv)", "25006"),
        ("copy pad to program 'cat'", "25006"),
        ("copy nowhere to stdout", "42P01"),
        ("copy pad (z) to stdout", "42703"),
        ("copy (select $1) to stdout", "42P02"),
    ] {
        assert_eq!(state_of(&client, sql).await, code, "{sql}");
    }
}

/// Expected bytes from PostgreSQL 15.
#[tokio::test(flavor = "multi_thread")]
async fn binary_data_is_that_of_postgresql() {
    let fixture = Fixture::start().await;
    fixture.pad(3);
    let client = fixture.client().await;
    let header = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
    let sql = "copy (select 1::int8 as a, null::text as b, 'x'::text as c, 1.5::float8 as d, \
        timestamptz '2026-11-20 00:00:01.5+00' as t) to stdout";
    let mut want = BytesMut::from(header.as_slice());
    want.put_slice(&[0, 5, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, b'x']);
    want.put_slice(&[0, 0, 0, 8, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 3, 3, 0xa8, 0xb1, 0xbd, 0x63, 0x60]);
    for options in ["binary", "(format binary)", "with (format 'binary')"] {
        let chunks = chunks(&client, &format!("{sql} {options}")).await;
        // The header comes with the first row, the end by itself: clients that read by row rely on it.
        assert_eq!(chunks, [want.clone().freeze(), Bytes::from_static(&[0xff, 0xff])], "{options}");
    }
    let none = chunks(&client, "copy binary (select 1 as a where false) to stdout").await;
    assert_eq!(none, [[header.as_slice(), &[0xff, 0xff]].concat()]);
}

/// Rows of fixed size and others, directly from the store and through the planner, are the same as by SELECT.
#[tokio::test(flavor = "multi_thread")]
async fn binary_data_has_all_rows_once() {
    use ChannelType::*;
    let fixture = Fixture::start().await;
    let kinds =
        [("b", Bool), ("i8", I8), ("i16", I16), ("i32", I32), ("i64", I64), ("u8", U8), ("u16", U16), ("u32", U32)];
    let more = [("u64", U64), ("f32", F32), ("f64", F64), ("t", String), ("n", F64)];
    let (stream, at) = fixture.stream("all", &[("rig", "a")], &[kinds.as_slice(), &more].concat());
    let rows = 3_000;
    for row in 0..rows {
        let mut cells = vec![
            (at[0], Value::Bool(row % 2 == 0)),
            (at[1], Value::I8(-(row % 100) as i8)),
            (at[2], Value::I16(row as i16)),
            (at[3], Value::I32(-(row as i32))),
            (at[4], Value::I64(row << 40)),
            (at[5], Value::U8(row as u8)),
            (at[6], Value::U16(60_000 + row as u16)),
            (at[7], Value::U32(u32::MAX - row as u32)),
            (at[8], Value::U64(u64::MAX - row as u64)),
            (at[9], Value::F32(row as f32 / 3.0)),
            (at[10], Value::F64(row as f64 / 3.0)),
            (at[11], Value::String("größe")),
        ];
        if row % 7 != 0 {
            cells.push((at[12], Value::F64(row as f64)));
        }
        fixture.append(&stream, T0 + row * MS, &cells);
    }
    let client = fixture.client().await;
    let numbers = "time, time_ns, b, i8, i16, i32, i64, u8, u16, u32, f32, f64";
    for columns in [numbers, &format!("{numbers}, rig, u64, t, n")] {
        for condition in ["", "where i32 <= 0"] {
            for order in ["order by time", "order by time desc"] {
                let sql = format!("select {columns} from \"all\" {condition} {order}");
                let selected = crate::bytes_of(&client, &sql).await;
                assert_eq!(selected.len(), rows as usize);
                let data = chunks(&client, &format!("copy ({sql}) to stdout binary")).await;
                assert_eq!(data.len(), rows as usize + 1, "{sql}");
                let mut want = BytesMut::new();
                want.put_slice(b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0");
                for row in &selected {
                    want.put_i16(row.len() as i16);
                    for cell in row {
                        want.put_i32(cell.as_ref().map_or(-1, |cell| cell.len() as i32));
                        want.put_slice(cell.as_deref().unwrap_or_default());
                    }
                }
                want.put_i16(-1);
                assert!(data.concat() == want, "{sql}");
            }
        }
    }
    let copy = client.copy_out("copy (select time, f64, n from \"all\" order by time) to stdout binary").await.unwrap();
    let read = BinaryCopyOutStream::new(copy, &[Type::TIMESTAMPTZ, Type::FLOAT8, Type::FLOAT8]);
    pin_mut!(read);
    let mut row = 0;
    while let Some(read) = read.next().await {
        let read = read.unwrap();
        let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_nanos((T0 + row * MS) as u64);
        assert_eq!(read.get::<SystemTime>(0), time);
        assert_eq!(read.get::<f64>(1), row as f64 / 3.0);
        assert_eq!(read.get::<Option<f64>>(2), (row % 7 != 0).then_some(row as f64));
        row += 1;
    }
    assert_eq!(row, rows);
}

/// A copy whose rows are not read holds little and ends when it is cancelled.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_cancelled_between_rows() {
    let fixture = Fixture::start().await;
    let client = fixture.client().await;
    for options in ["binary", "csv"] {
        let sql = format!("copy (select v, v::float8 from generate_series(1, 1000000000) g(v)) to stdout {options}");
        let copy = client.copy_out(&sql).await.unwrap();
        pin_mut!(copy);
        for _ in 0..1_000 {
            copy.next().await.unwrap().unwrap();
        }
        client.cancel_token().cancel_query(tokio_postgres::NoTls).await.unwrap();
        let error = loop {
            match copy.next().await {
                Some(Ok(_)) => {}
                Some(Err(error)) => break error,
                None => panic!("the copy ended"),
            }
        };
        assert_eq!(error.code().unwrap().code(), "57014");
        assert_eq!(texts(&client, "select 1").await.len(), 1);
    }
}
