use serde_json::{Map, Value as Json, json};
use strongback_store::{
    ArrayRef, Channel, ChannelId, ChannelType, ElementType, Interpolation, Reduction, StreamId, Value,
};

use super::read::{Damaged, ReadCell, ReadMessage, read};
use super::*;
use crate::http::live::subscriber::write_update;
use crate::live::heartbeat::PlaybackState;
use crate::live::heartbeat::{Beat, PlaybackBeat, SourceBeat};
use crate::live::history::Series;
use crate::live::snapshot::StreamHistory;
use crate::live::window::StreamWindow;

/// Time used in the vectors.
const T: i64 = 1_760_000_000_000_000_000;

/// Message in both forms, from the file that all readers are tested against.
struct Vector {
    name: String,
    bytes: Vec<u8>,
    /// JSON form, with the notes of its cells.
    message: Json,
}

fn vectors() -> Vec<Vector> {
    let file: Vec<Json> = serde_json::from_str(include_str!("../../../tests/data/live.json")).unwrap();
    let text = |value: &Json| value.as_str().unwrap().to_owned();
    let bytes = |hex: &str| {
        let digit = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(digit).collect()
    };
    let vector = |v: &Json| {
        let message = v.get("full").unwrap_or(&v["message"]).clone();
        Vector { name: text(&v["name"]), bytes: bytes(&text(&v["hex"])), message }
    };
    file.iter().map(vector).collect()
}

fn vector(name: &str) -> Vector {
    vectors().into_iter().find(|v| v.name == name).unwrap()
}

fn gathered(values: &[Value<'_>]) -> ChannelWindow {
    let mut window = ChannelWindow::default();
    for value in values {
        window.add(*value);
    }
    window
}

fn one_of_every_type() -> Vec<TakenWindow> {
    use ChannelType::*;
    let floats: Vec<u8> = [1.5f32, 2.5].iter().flat_map(|v| v.to_le_bytes()).collect();
    let doubles: Vec<u8> = [1.0f64, 2.0, 3.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    let array = |element, bytes| Value::Array(ArrayRef::new(element, bytes).unwrap());
    let cells: [(ChannelType, Vec<Value<'_>>); 20] = [
        (F32, vec![Value::F32(1.5), Value::F32(900.25), Value::F32(-3.0)]),
        (F64, vec![Value::F64(0.1)]),
        (F32, vec![Value::F32(0.1)]),
        // A value received before its channel was widened.
        (I64, vec![Value::I8(-1), Value::I64(i64::MAX)]),
        (U64, vec![Value::U64(u64::MAX)]),
        (Bool, vec![Value::Bool(true), Value::Bool(false), Value::Bool(true)]),
        (Bool, vec![Value::Bool(true)]),
        (String, vec![Value::String("HOLD"), Value::String("GO")]),
        (String, vec![Value::String("µ \"x\"")]),
        (I8, vec![Value::I8(-5)]),
        (I16, vec![Value::I16(-300), Value::I16(300)]),
        (I32, vec![Value::I32(-70_000)]),
        (U8, vec![Value::U8(200)]),
        (U16, vec![Value::U16(1), Value::U16(65_535)]),
        (U32, vec![Value::U32(u32::MAX)]),
        (F64, [f64::NAN, 2.0, f64::INFINITY, 4.0].map(Value::F64).to_vec()),
        (F64, vec![Value::F64(f64::NAN)]),
        (F32, vec![Value::F32(f32::NEG_INFINITY)]),
        (String, vec![array(ElementType::F32, &floats)]),
        (String, vec![array(ElementType::F64, &[]), array(ElementType::F64, &doubles)]),
    ];
    let mut full = StreamWindow::default();
    full.begin(T, T + 200, Some(1200));
    full.begin(T + 100_000_000, T + 100_200_300, Some(1204));
    full.channels = cells.iter().map(|(_, values)| gathered(values)).collect();
    let ids = (17..).map(ChannelId);
    let channels = ids.zip(cells.iter().map(|(channel_type, _)| *channel_type)).collect();
    let mut refused = StreamWindow { gap: true, ..StreamWindow::default() };
    refused.begin(-5, T + 100_200_301, None);
    refused.channels = vec![gathered(&[]), gathered(&[Value::U16(7)])];
    vec![
        TakenWindow { stream: StreamId(3), window: full, channels },
        TakenWindow {
            stream: StreamId(4),
            window: refused,
            channels: vec![(ChannelId(39), F64), (ChannelId(40), U16)],
        },
    ]
}

fn committed(stream: StreamId) -> u64 {
    if stream == StreamId(3) { 1180 } else { 0 }
}

#[test]
fn an_update_has_the_bytes_of_the_vector_and_says_what_json_says() {
    let vector = vector("update");
    let head = UpdateHead { id: 7, epoch: 3, time: T + 123_456_789, conflated: 2, dropped: 1 };
    let windows = one_of_every_type();
    let mut out = Vec::new();
    push_update(&mut out, &head, windows.len());
    windows.iter().for_each(|window| push_window(&mut out, window, committed(window.stream)));
    assert_eq!(out, vector.bytes);
    let (mut body, mut text) = (Vec::new(), Vec::new());
    for window in &windows {
        if !body.is_empty() {
            body.push(b',');
        }
        window.write(&mut body, committed(window.stream));
    }
    write_update(&mut text, &head, &body);
    assert_eq!(floats(serde_json::from_slice(&text).unwrap()), floats(vector.message));
}

/// Converts all numbers to floats, since JSON does not distinguish 5 and 5.0.
fn floats(value: Json) -> Json {
    match value {
        Json::Number(number) => json!(number.as_f64()),
        Json::Array(all) => all.into_iter().map(floats).collect(),
        Json::Object(fields) => fields.into_iter().map(|(key, value)| (key, floats(value))).collect(),
        other => other,
    }
}

#[test]
fn notes_of_cells_have_the_bytes_of_the_vectors_and_say_what_json_says() {
    let texts = |all: &[&'static str]| gathered(&all.iter().map(|text| Value::String(text)).collect::<Vec<_>>());
    let mut window = StreamWindow::default();
    window.begin(3, 4, Some(0));
    window.begin(4, 5, Some(2));
    window.channels = vec![texts(&["GO", "HOLD", "GO"]), gathered(&[0.1, 0.25, f32::NEG_INFINITY].map(Value::F32))];
    let channels = vec![(ChannelId(24), ChannelType::String), (ChannelId(17), ChannelType::F32)];
    let window = TakenWindow { stream: StreamId(3), window, channels };
    let head = UpdateHead { id: 1, epoch: 1, time: 2, conflated: 0, dropped: 0 };
    let (mut out, mut body, mut text) = (Vec::new(), Vec::new(), Vec::new());
    push_update(&mut out, &head, 1);
    push_window(&mut out, &window, 0);
    window.write(&mut body, 0);
    write_update(&mut text, &head, &body);
    let vector = self::vector("notes of cells");
    assert_eq!(out, vector.bytes);
    assert_eq!(serde_json::from_slice::<Json>(&text).unwrap(), vector.message);

    let numbers = gathered(&[f64::INFINITY, 900.0, -3.5].map(Value::F64));
    let buckets = vec![(6, texts(&["HOLD"])), (1000, texts(&["HOLD", "GO", "HOLD", "GO"]))];
    let series = vec![series(24, ChannelType::String, buckets), series(17, ChannelType::F64, vec![(5, numbers)])];
    let streams = vec![StreamHistory { series, gaps: Vec::new() }];
    let history_of = HistoryMessage { id: 4, rows: vec![(StreamId(3), 1200)], streams };
    let vector = self::vector("notes of buckets");
    assert_eq!(history(&history_of), vector.bytes);
    assert_eq!(serde_json::from_slice::<Json>(&history_of.json()).unwrap(), vector.message);
}

fn series(id: u32, channel_type: ChannelType, buckets: Vec<(i64, ChannelWindow)>) -> Series {
    Series {
        channel: Channel {
            id: ChannelId(id),
            name: "c".into(),
            source_name: "c".into(),
            channel_type,
            unit: String::new(),
            description: String::new(),
            interpolation: Interpolation::Hold,
            reduction: Reduction::None,
        },
        buckets,
    }
}

#[test]
fn a_history_has_the_bytes_of_the_vector_and_says_what_json_says() {
    let vector = vector("history");
    let numbers = [1.5, 0.25, -3.0].map(Value::F32);
    let history_of = HistoryMessage {
        id: -2,
        rows: vec![(StreamId(3), 1200), (StreamId(9), 0)],
        streams: vec![
            StreamHistory {
                series: vec![
                    series(17, ChannelType::F32, vec![(5, gathered(&numbers[..1])), (1000, gathered(&numbers))]),
                    series(24, ChannelType::String, vec![(6, gathered(&[Value::String("HOLD"), Value::String("GO")]))]),
                ],
                gaps: vec![(10, 20), (-7, i64::MAX)],
            },
            StreamHistory { series: vec![series(50, ChannelType::F64, Vec::new())], gaps: Vec::new() },
        ],
    };
    assert_eq!(history(&history_of), vector.bytes);
    assert_eq!(serde_json::from_slice::<Json>(&history_of.json()).unwrap(), vector.message);
}

#[test]
fn heartbeats_have_the_bytes_of_the_vectors_and_say_what_json_says() {
    let busy = Heartbeat {
        time: T + 1,
        epoch: 3,
        store: "recording",
        commit_ms: Some(12.5),
        points_per_s: 68_500.0,
        ingest_dropped: 4,
        last_data: Some(T),
        sources: vec![
            SourceBeat { name: "avionics", status: "ok", rate_hz: 25.0, lost: 0 },
            SourceBeat { name: "fti é", status: "silent", rate_hz: 0.5, lost: 12 },
        ],
    };
    let young = Heartbeat {
        time: T + 2,
        epoch: 1,
        store: "not recording",
        commit_ms: None,
        points_per_s: 0.0,
        ingest_dropped: 0,
        last_data: None,
        sources: Vec::new(),
    };
    for (heartbeat, name) in [(busy, "heartbeat"), (young, "heartbeat of a server that just started")] {
        let (vector, beat) = (vector(name), heartbeat.beat());
        assert_eq!(beat.bytes, vector.bytes, "{name}");
        assert_eq!(serde_json::from_str::<Json>(&beat.text).unwrap(), vector.message, "{name}");
    }
}

#[test]
fn heartbeats_of_playbacks_have_the_bytes_of_the_vectors_and_say_what_json_says() {
    let turning = PlaybackState {
        id: "3f9c01aa77d2".to_owned(),
        name: "attempt 2 é".to_owned(),
        from: T,
        to: T + 600_000_000_000,
        at: T + 61_500_000_000,
        speed: 2.5,
        paused: false,
        looped: true,
        ended: false,
        viewers: 3,
        behind: true,
        round: 4,
        wall_ns: T + 1_000_000_000_000_000,
    };
    let over = PlaybackState {
        id: "0".to_owned(),
        name: String::new(),
        from: -5,
        to: 0,
        at: 0,
        speed: 0.1,
        paused: true,
        looped: false,
        ended: true,
        viewers: 0,
        behind: false,
        round: 0,
        wall_ns: 0,
    };
    let beats = [
        (PlaybackBeat { epoch: 3, store: "recording", state: &turning }, "heartbeat of a playback"),
        (PlaybackBeat { epoch: 1, store: "disk full", state: &over }, "heartbeat of a playback at its end"),
    ];
    for (beat, name) in beats {
        let (vector, beat) = (vector(name), beat.beat());
        assert_eq!(beat.bytes, vector.bytes, "{name}");
        assert_eq!(serde_json::from_str::<Json>(&beat.text).unwrap(), vector.message, "{name}");
    }
}

#[test]
fn heartbeats_tell_a_client_what_it_lost() {
    for (name, dropped) in [("heartbeat", 7), ("heartbeat of a playback", u64::from(u32::MAX) + 5)] {
        let Vector { bytes, message, .. } = vector(name);
        let beat = Beat { text: message.to_string().into(), bytes: bytes.into() }.with_dropped(dropped);
        let mut expected = message;
        expected["dropped"] = json!(dropped);
        assert_eq!(serde_json::from_str::<Json>(&beat.text).unwrap(), expected);
        expected["dropped"] = json!(dropped.min(u64::from(u32::MAX)));
        assert_eq!(json_of(&read(&beat.bytes).unwrap()), expected);
        let lost = vector(&format!("{name} that tells of losses"));
        assert_eq!(beat.bytes, lost.bytes);
        assert_eq!(expected, lost.message);
    }
}

#[test]
fn the_reader_finds_in_each_vector_what_it_means() {
    let vectors = vectors();
    assert_eq!(vectors.len(), 13);
    for Vector { name, bytes, message } in vectors {
        assert_eq!(json_of(&read(&bytes).unwrap()), message, "{name}");
    }
}

#[test]
fn counts_beyond_32_bits_are_wide() {
    let mut out = Vec::new();
    push_count(&mut out, ChannelType::F64, RANGE | MEAN, 1 << 33);
    assert_eq!(out, [11, RANGE | MEAN | WIDE, 0, 0, 0, 0, 2, 0, 0, 0]);
}

#[test]
fn values_newer_than_what_is_known_of_their_channel_are_kept() {
    let cell = |channel_type, values: &[Value<'_>]| {
        let mut out = Vec::new();
        push_cell(&mut out, &gathered(values), channel_type);
        let framed = framed(&out);
        let ReadMessage::Update(update) = read(&framed).unwrap() else { panic!("no update") };
        let ReadCell { first, last, range, .. } = &update.windows[0].cells[0].1;
        let f64 = |value: &Value<'_>| (value.channel_type(), value.as_f64().unwrap());
        (f64(first), f64(last), range.map(|(min, max)| (f64(&min), f64(&max))))
    };
    let f = |v| (ChannelType::F64, v);
    let mixed = [Value::I32(7), Value::F64(2.5)];
    assert_eq!(cell(ChannelType::I32, &mixed), (f(7.0), f(2.5), Some((f(2.5), f(7.0)))));
    let i = |v| (ChannelType::I16, v);
    assert_eq!(cell(ChannelType::I8, &[Value::U8(200)]), (i(200.0), i(200.0), Some((i(200.0), i(200.0)))));
    // No type holds both values exactly, so the nearest f64 is used.
    let far = [Value::Bool(true), Value::I64(i64::MAX)];
    assert_eq!(cell(ChannelType::Bool, &far).1, f(9_223_372_036_854_775_807.0));
}

/// Encodes an update of one window with this one cell.
fn framed(cell: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    push_update(&mut out, &UpdateHead { id: 1, epoch: 1, time: 1, conflated: 0, dropped: 0 }, 1);
    let start = begin_part(&mut out);
    out.extend_from_slice(&[0; WINDOW_HEAD - 4]);
    put_size(&mut out, start + 12, 1);
    out.extend_from_slice(&[1, 0, 0, 0]);
    out.extend_from_slice(cell);
    end_part(&mut out, start);
    out
}

#[test]
fn no_bytes_make_the_reader_panic() {
    let mut random = fastrand::Rng::with_seed(7);
    for Vector { name, bytes, message } in vectors() {
        for end in 0..bytes.len() {
            // Fields that a later version adds at the end may be missing.
            let cut = read(&bytes[..end]);
            assert!(cut.is_err() || json_of(&cut.unwrap()) == message, "{name}, {end} bytes");
        }
        for _ in 0..3000 {
            let mut bytes = bytes.clone();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..bytes.len());
                bytes[at] = [random.u8(..), 0, 0xff, 0x7f, 0x80][random.usize(..5)];
            }
            let _ = read(&bytes);
        }
    }
    for _ in 0..3000 {
        let mut bytes: Vec<u8> = (0..random.usize(0..200)).map(|_| random.u8(..)).collect();
        if let Some(kind) = bytes.first_mut() {
            *kind = random.u8(0..6);
        }
        let _ = read(&bytes);
    }
    assert_eq!(read(&[]), Err(Damaged::Short));
    // A window shorter than its head.
    let mut short = framed(&[]);
    put_size(&mut short, 36, WINDOW_HEAD - 1);
    assert_eq!(read(&short), Err(Damaged::Wrong));
    let text = framed(&[12, ONE, 1, 0, 0, 0, 0xff]);
    assert_eq!(read(&text), Err(Damaged::Wrong));
}

/// Returns a decoded message as JSON.
fn json_of(message: &ReadMessage<'_>) -> Json {
    match message {
        ReadMessage::Unknown(_) => Json::Null,
        ReadMessage::Update(update) => json!({
            "type": "update",
            "id": update.id,
            "epoch": update.epoch,
            "time": update.time.to_string(),
            "streams": update.windows.iter().map(|w| with_notes(&w.notes, json!({
                "stream": w.stream,
                "from_row": w.rows.map(|r| r.0.to_string()),
                "to_row": w.rows.map(|r| r.1.to_string()),
                "committed": w.committed.to_string(),
                "recorded": w.recorded,
                "time": [w.time.0.to_string(), w.time.1.to_string()],
                "receive_time": w.receive_time.to_string(),
                "gap": w.gap,
                "channels": w.cells.iter().map(|(id, cell)| cell_json(json!(id), cell)).collect::<Vec<_>>(),
            }))).collect::<Vec<_>>(),
            "conflated": update.conflated,
            "dropped": update.dropped,
        }),
        ReadMessage::History(history) => json!({
            "type": "history",
            "id": history.id,
            "series": history.series.iter().map(|s| with_notes(&s.notes, json!({
                "channel": s.channel,
                "buckets": s.buckets.iter().map(|(t, cell)| cell_json(json!(t.to_string()), cell)).collect::<Vec<_>>(),
                "gaps": s.gaps.iter().map(|(from, to)| [from.to_string(), to.to_string()]).collect::<Vec<_>>(),
            }))).collect::<Vec<_>>(),
            "rows": history.rows.iter().map(|(s, r)| (s.to_string(), json!(r.to_string()))).collect::<Map<_, _>>(),
        }),
        ReadMessage::Playback(beat) => with_losses(
            beat.dropped,
            json!({
                "type": "heartbeat",
                "time": beat.state.at.to_string(),
                "epoch": beat.epoch,
                "store": beat.store,
                "playback": beat.state.json(),
            }),
        ),
        ReadMessage::Heartbeat(beat) => with_losses(
            beat.dropped,
            json!({
                "type": "heartbeat",
                "time": beat.time.to_string(),
                "epoch": beat.epoch,
                "store": beat.store,
                "commit_ms": beat.commit_ms,
                "points_per_s": beat.points_per_s,
                "ingest_dropped": beat.ingest_dropped,
                "last_data": beat.last_data.map(|t| t.to_string()),
                "sources": beat.sources.iter().map(|(name, status, rate_hz, lost)| {
                    json!({ "name": name, "status": status, "rate_hz": rate_hz, "lost": lost.to_string() })
                }).collect::<Vec<_>>(),
            }),
        ),
    }
}

fn with_losses(dropped: u32, mut object: Json) -> Json {
    if dropped > 0 {
        object["dropped"] = json!(dropped);
    }
    object
}

/// Adds the fields of the notes to an object.
fn with_notes(notes: &CellNotes, mut object: Json) -> Json {
    if !notes.changed.is_empty() {
        object["changed"] = json!(notes.changed);
    }
    if !notes.finite.is_empty() {
        let of = |(place, min, max): &(u32, Value<'static>, Value<'static>)| json!([place, value(*min), value(*max)]);
        object["finite"] = notes.finite.iter().map(of).collect();
    }
    object
}

/// Returns a value with the digits of its JSON form: those of an f32 differ from those of the nearest f64.
fn value(value: Value<'_>) -> Json {
    let mut out = Vec::new();
    crate::text::json::push_value(&mut out, value);
    serde_json::from_slice(&out).unwrap()
}

fn cell_json(key: Json, cell: &ReadCell<'_>) -> Json {
    let mean = match (cell.count, cell.first, cell.mean) {
        (1, Value::F32(one), Some(_)) => value(Value::F32(one)),
        (_, _, mean) => json!(mean),
    };
    let (min, max) = match cell.range {
        Some((min, max)) => (value(min), value(max)),
        None => (Json::Null, Json::Null),
    };
    json!([key, cell.count, value(cell.first), value(cell.last), min, max, mean])
}
