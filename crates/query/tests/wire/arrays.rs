//! Arrays through the wire: PostgreSQL arrays, text and binary, by the short way and by DataFusion's.

use strongback_store::{ArrayRef, ArrayType, BlobRef, ChannelType, ElementType, Value};

use tokio_postgres::types::Type;

use crate::{Fixture, MS, T0, state_of, texts};

fn bytes<const N: usize>(values: impl IntoIterator<Item = [u8; N]>) -> Vec<u8> {
    values.into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn arrays_are_postgresql_arrays() {
    let fixture = Fixture::start().await;
    let fixed = ArrayType::fixed(ElementType::F32, 3).map(ChannelType::Array).expect("a length");
    let variable = |element| ChannelType::Array(ArrayType::variable(element));
    let kinds = [
        ("spectrum", fixed),
        ("wave", variable(ElementType::F64)),
        ("counts", variable(ElementType::U64)),
        ("codes", variable(ElementType::U16)),
        ("flags", variable(ElementType::Bool)),
    ];
    let (stream, at) = fixture.stream("lab", &[], &kinds);
    let waves = [vec![f64::NAN, -0.0, 1.5], Vec::new(), vec![f64::NEG_INFINITY]];
    for (row, wave) in waves.iter().enumerate() {
        let spectrum = bytes([0.5f32, -1.0, row as f32].map(f32::to_le_bytes));
        let (wave, counts) = (bytes(wave.iter().map(|v| v.to_le_bytes())), bytes([u64::MAX, 7].map(u64::to_le_bytes)));
        let (codes, flags) = (bytes([65_535u16].map(u16::to_le_bytes)), vec![1, 0]);
        let array = |element, bytes| Value::Array(ArrayRef::new(element, bytes).expect("elements"));
        let mut cells = vec![
            (at[0], array(ElementType::F32, &spectrum)),
            (at[1], array(ElementType::F64, &wave)),
            (at[2], array(ElementType::U64, &counts)),
            (at[3], array(ElementType::U16, &codes)),
        ];
        if row != 1 {
            cells.push((at[4], array(ElementType::Bool, &flags)));
        }
        fixture.append(&stream, T0 + row as i64 * MS, &cells);
    }
    let client = fixture.client().await;
    for more in ["", " where 1 = 1"] {
        let sql = format!("select spectrum, wave, counts, codes, flags from lab{more} order by time");
        let shown = texts(&client, &sql).await;
        let want = [
            ["{0.5,-1,0}", "{NaN,-0,1.5}", "{18446744073709551615,7}", "{65535}", "{t,f}"].map(Some),
            [Some("{0.5,-1,1}"), Some("{}"), Some("{18446744073709551615,7}"), Some("{65535}"), None],
            ["{0.5,-1,2}", "{-Infinity}", "{18446744073709551615,7}", "{65535}", "{t,f}"].map(Some),
        ];
        assert_eq!(shown, want.map(|row| row.map(|cell| cell.map(str::to_owned)).to_vec()), "{sql}");
        let sql = format!("select spectrum, wave, codes, flags from lab{more} order by time");
        for (row, found) in client.query(&sql, &[]).await.expect("rows").iter().enumerate() {
            assert_eq!(found.get::<_, Vec<f32>>(0), [0.5, -1.0, row as f32], "{sql}");
            let wave: Vec<u64> = found.get::<_, Vec<f64>>(1).into_iter().map(f64::to_bits).collect();
            assert_eq!(wave, waves[row].iter().map(|v| v.to_bits()).collect::<Vec<_>>(), "{sql}");
            assert_eq!(found.get::<_, Vec<i32>>(2), [65_535]);
            assert_eq!(found.get::<_, Option<Vec<bool>>>(3), (row != 1).then(|| vec![true, false]));
        }
    }
    let first = texts(&client, "select spectrum[3] from lab order by time desc limit 1").await;
    assert_eq!(first, [[Some("2".to_owned())]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn blobs_are_texts_that_say_their_length_and_checksum() {
    let fixture = Fixture::start().await;
    let kinds = [("shot", ChannelType::U32), ("image", ChannelType::Blob)];
    let (stream, at) = fixture.stream("camera", &[], &kinds);
    for row in 0..3u32 {
        let mut reference = [0; 16];
        reference[8..12].copy_from_slice(&(1_000 + row).to_le_bytes());
        reference[12..].copy_from_slice(&(0xabc + row).to_le_bytes());
        let blob = BlobRef::from_bytes(&reference).expect("a reference");
        let mut cells = vec![(at[0], Value::U32(row))];
        if row != 1 {
            cells.push((at[1], Value::Blob(blob)));
        }
        fixture.append(&stream, T0 + i64::from(row) * MS, &cells);
    }
    let client = fixture.client().await;
    let want = [Some("blob(1000 bytes, 00000abc)"), None, Some("blob(1002 bytes, 00000abe)")];
    for more in ["", " where 1 = 1"] {
        let sql = format!("select image from camera{more} order by time");
        assert_eq!(texts(&client, &sql).await, want.map(|cell| vec![cell.map(str::to_owned)]), "{sql}");
        let rows = client.query(&sql, &[]).await.expect("rows");
        assert_eq!(
            rows.iter().map(|row| row.get::<_, Option<String>>(0)).collect::<Vec<_>>(),
            want.map(|c| c.map(str::to_owned))
        );
    }
    let found = texts(&client, "select shot from camera where image is null").await;
    assert_eq!(found, [[Some("1".to_owned())]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn arrays_are_parameters() {
    let fixture = Fixture::start().await;
    for stand in ["2", "3", "a,b", "null"] {
        let (stream, at) = fixture.stream("engine", &[("stand", stand)], &[("p", ChannelType::F64)]);
        fixture.append(&stream, T0, &[(at[0], Value::F64(stand.len() as f64))]);
    }
    let client = fixture.client().await;
    let count = async |sql: &str, parameter: &(dyn tokio_postgres::types::ToSql + Sync)| {
        let kind = if sql.contains("float8") { Type::FLOAT8_ARRAY } else { Type::TEXT_ARRAY };
        let statement = client.prepare_typed(sql, &[kind]).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        let row = client.query_one(&statement, &[parameter]).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        row.get::<_, i64>(0)
    };
    for sql in [
        "select count(*) from engine where stand = any($1::text[])",
        "select count(*) from engine where stand = any(cast($1 as text[]))",
        "select count(*) from engine where stand = any($1)",
    ] {
        assert_eq!(count(sql, &vec!["2", "3"]).await, 2, "{sql}");
        assert_eq!(count(sql, &vec!["a,b", "null", "4"]).await, 2, "{sql}");
        assert_eq!(count(sql, &Vec::<&str>::new()).await, 0, "{sql}");
        assert_eq!(count(sql, &vec![None, Some("2")]).await, 1, "{sql}");
    }
    assert_eq!(count("select count(*) from engine where stand <> all($1::text[])", &vec!["2", "3"]).await, 2);
    // Drivers that announce no type get the one of the place.
    let statement = client.prepare("select count(*) from engine where stand = any($1) and p <> all($2)").await.unwrap();
    assert_eq!(statement.params(), [Type::TEXT_ARRAY, Type::FLOAT8_ARRAY]);
    let row = client.query_one(&statement, &[&vec!["2", "a,b"], &vec![3.0, 9.0]]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 1);
    let inner = "select (select max(p) from engine where stand = any($1)) + $2";
    let row = client.query_one(inner, &[&vec!["2", "3"], &0.5]).await.unwrap();
    assert_eq!(row.get::<_, f64>(0), 1.5);
    assert_eq!(count("select count(*) from engine where p = any($1::float8[])", &vec![1.0, 4.0]).await, 3);
    let statement = client
        .prepare_typed("select $1::float8[], array_length($1::float8[])::bigint", &[Type::FLOAT8_ARRAY])
        .await
        .unwrap();
    let row = client.query_one(&statement, &[&vec![Some(1.5), None]]).await.unwrap();
    assert_eq!((row.get::<_, Vec<Option<f64>>>(0), row.get::<_, i64>(1)), (vec![Some(1.5), None], 2));
    let cast = "select $1::int, $2::float8[], $3::timestamptz, $4::text";
    let statement = client.prepare(cast).await.unwrap();
    let kinds = [Type::INT4, Type::FLOAT8_ARRAY, Type::TIMESTAMPTZ, Type::TEXT];
    assert_eq!(statement.params(), kinds);
    let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_795_132_800);
    let row = client.query_one(&statement, &[&7, &vec![1.5, -0.0], &time, &"x"]).await.unwrap();
    assert_eq!((row.get::<_, i32>(0), row.get::<_, Vec<f64>>(1)), (7, vec![1.5, -0.0]));
    assert_eq!((row.get::<_, std::time::SystemTime>(2), row.get::<_, &str>(3)), (time, "x"));
    let rounded = client.prepare_typed("select $1::int", &[Type::FLOAT8]).await.unwrap();
    assert_eq!(client.query_one(&rounded, &[&2.7]).await.unwrap().get::<_, i32>(0), 3);
    // Elements that could be read as something else are in quotes.
    let sql = "select array_agg(s order by n) from (values (1, 'a'), (2, '{1,2}'), (3, ''), (4, 'nuLL'), (5, 'x,y'), \
               (6, null), (7, 'q\"z\\'), (8, ' b')) v(n, s)";
    let quoted = r#"{a,"{1,2}","","nuLL","x,y",NULL,"q\"z\\"," b"}"#;
    assert_eq!(texts(&client, sql).await, [crate::cells([quoted])]);
    assert_eq!(texts(&client, "select array[1.5, null, 'NaN'::float8]").await, [crate::cells(["{1.5,NULL,NaN}"])]);
    assert_eq!(
        texts(&client, "select array[timestamptz '2026-11-20 00:00']").await,
        [crate::cells([r#"{"2026-11-20 00:00:00+00"}"#])]
    );
    // As text, which clients send that know no types.
    let statement = client.prepare_typed("select $1::int[]", &[Type::UNKNOWN]).await.unwrap();
    let rows = client.query(&statement, &[&"{7,8}"]).await.unwrap();
    assert_eq!(rows[0].get::<_, Vec<i32>>(0), [7, 8]);
    for (sql, shown) in [
        ("select '{2,3}'::text[]", "{2,3}"),
        ("select cast('{2,3}' as int[])", "{2,3}"),
        ("select count(*) from engine where stand = any('{2,3}'::text[])", "2"),
        ("select '{nan,1e999}'::text[]", "{nan,1e999}"),
        ("select '{nan,1.5,null}'::float8[]", "{NaN,1.5,NULL}"),
        ("select array_length('{a b,\"c,d\"}'::text[])", "2"),
    ] {
        assert_eq!(texts(&client, sql).await, [[Some(shown.to_owned())]], "{sql}");
    }
    assert_eq!(state_of(&client, "select '2,3'::int[]").await, "22P02");
    assert_eq!(state_of(&client, "select ('{2,' || stand || '}')::text[] from engine").await, "0A000");
}
