//! Arrays through the wire: PostgreSQL arrays, text and binary, by the short way and by DataFusion's.

use strongback_store::{ArrayRef, ArrayType, BlobRef, ChannelType, ElementType, Value};

use crate::{Fixture, MS, T0, texts};

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
