//! Every reader gives one interval in one order: `time`, stream, row.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::client::{LiveClient, TestServer, big};

const T0: i64 = 1_780_000_000_000_000_000;
const MS: i64 = 1_000_000;
const STREAMS: [&str; 3] = ["a", "b", "c"];

/// A frame: its `time`, the tag of its stream, its value. No two have the same value within a stream.
type Frame = (i64, &'static str, i64);

fn stream(text: &str) -> &'static str {
    STREAMS.into_iter().find(|s| text.contains(&format!("s={s}")) || text == *s).unwrap()
}

/// Writes a stream in order, one with a few late frames, one in no order at all; every instant twice. Returns the frames
/// as they are to be read.
async fn write(server: &TestServer) -> Vec<Frame> {
    let mut random = fastrand::Rng::with_seed(5);
    let mut written: Vec<Frame> = Vec::new();
    for (stream, spread) in STREAMS.into_iter().zip([0, 3, 1_500]) {
        let mut order: Vec<i64> = (0..1_500).collect();
        for at in (0..order.len()).filter(|_| spread > 0) {
            let other = (at + random.usize(0..spread)).min(order.len() - 1);
            order.swap(at, other);
        }
        for chunk in order.chunks(300) {
            let line = |n: &i64| format!("late,s={stream} n={n}i {}\n", T0 + n / 2 * MS);
            server.write(&chunk.iter().map(line).collect::<String>()).await;
        }
        written.extend(order.iter().map(|n| (T0 + n / 2 * MS, stream, *n)));
    }
    // Stable: of equal times and streams in the order in which they were stored.
    written.sort_by_key(|(time, stream, _)| (*time, *stream));
    written
}

/// Reads CSV whose values begin behind some columns.
fn of_csv(csv: &str, (time, name, values): (usize, usize, usize)) -> Vec<Frame> {
    let frame = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        let value = cells[values..].iter().find(|cell| !cell.is_empty()).unwrap();
        (cells[time].parse().unwrap(), stream(cells[name]), value.parse().unwrap())
    };
    csv.lines().skip(1).map(frame).collect()
}

async fn of_sql(server: &TestServer, sql: &str) -> Vec<Frame> {
    let answer = server.sql(sql).await;
    let number = |value: &Value| value.as_i64().unwrap_or_else(|| value.as_str().unwrap().parse().unwrap());
    let frame = |row: &Value| (number(&row[0]), stream(row[1].as_str().unwrap()), number(&row[2]));
    answer["rows"].as_array().unwrap().iter().map(frame).collect()
}

/// `time`, stream and number of the frames that one step plays.
type Step = (i64, &'static str, u64);

/// Adds frames to the last step if they are of its `time` and stream, or else as a step of their own.
fn add(steps: &mut Vec<Step>, frames: Step) {
    match steps.last_mut() {
        Some(step) if (step.0, step.1) == (frames.0, frames.1) => step.2 += frames.2,
        _ => steps.push(frames),
    }
}

/// Plays an interval of `total` frames step by step. Returns the steps.
async fn of_playback(server: &TestServer, (from, to): (i64, i64), total: u64) -> Vec<Step> {
    let wanted = json!({ "from": from.to_string(), "to": to.to_string(), "paused": true });
    let session = server.post("/api/playbacks", wanted.to_string()).await.json();
    let url = format!("ws://{}/api/live?playback={}", server.http, session["id"].as_str().unwrap());
    let (socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
    let mut viewer = LiveClient { socket, protocol: None };
    viewer.send(json!({ "type": "subscribe", "id": 1, "channels": ["late.n"] })).await;
    let subscribed = viewer.next_of("subscribed").await;
    let names: BTreeMap<u64, &'static str> = subscribed["channels"]
        .as_array()
        .unwrap()
        .iter()
        .map(|channel| (channel["stream"].as_u64().unwrap(), stream(channel["tags"]["s"].as_str().unwrap())))
        .collect();
    viewer.next_of("snapshot").await;
    let mut steps: Vec<Step> = Vec::new();
    let (mut received, mut ended) = (0, false);
    while received < total || !ended {
        let mut step = json!({ "do": "step", "frames": 1 });
        step["director"] = session["director"].clone();
        let path = format!("/api/playbacks/{}", session["id"].as_str().unwrap());
        let state = server.post(&path, step.to_string()).await.json();
        ended = state["ended"] == json!(true);
        if received == total {
            continue;
        }
        let update = viewer.next_of("update").await;
        let window = |window: &Value| {
            let frames = window["channels"][0][1].as_u64().unwrap();
            (big(&window["time"][0]) as i64, names[&window["stream"].as_u64().unwrap()], frames)
        };
        let mut windows: Vec<Step> = update["streams"].as_array().unwrap().iter().map(window).collect();
        // The frames of a step may come in two updates, the second with those of the next step.
        windows.sort_unstable();
        for window in windows {
            received += window.2;
            add(&mut steps, window);
        }
    }
    steps
}

fn of_store(folder: &Path, flags: &[&str]) -> Vec<Frame> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strongback"));
    command.args(["store", "read", "--time", "ns", "--channels", "late.*"]).args(flags).arg(folder);
    let read = command.output().unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    of_csv(std::str::from_utf8(&read.stdout).unwrap(), (0, 1, 2))
}

#[tokio::test(flavor = "multi_thread")]
async fn exports_printed_frames_playbacks_and_sql_have_one_order() {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::on(folder.path(), "").await;
    let all = write(&server).await;
    let within = |from: i64, to: i64| -> Vec<Frame> {
        all.iter().filter(|(time, ..)| (from..to).contains(time)).copied().collect()
    };
    let (from, to) = (T0 + 3 * MS, T0 + 103 * MS);
    for (from, to) in [(T0, T0 + 1_500 * MS), (from, to)] {
        let path = format!("/api/export?channels=late.*&format=csv&from={from}&to={to}");
        assert_eq!(of_csv(&server.get(&path).await.text(), (1, 2, 4)), within(from, to));
    }
    let select = format!("select time_ns, s, n from late where time_ns >= {from} and time_ns < {to} order by time");
    let forward = within(from, to);
    let backward: Vec<Frame> = forward.iter().rev().copied().collect();
    assert_eq!(of_sql(&server, &select).await, forward);
    assert_eq!(of_sql(&server, &format!("{select} limit 251")).await, forward[..251]);
    assert_eq!(of_sql(&server, &format!("{select} desc")).await, backward);
    assert_eq!(of_sql(&server, &format!("{select} desc limit 251")).await, backward[..251]);

    let (first, last) = (T0 + 40 * MS, T0 + 60 * MS);
    let mut steps: Vec<Step> = Vec::new();
    for (time, stream, _) in within(first, last) {
        add(&mut steps, (time, stream, 1));
    }
    let total = steps.iter().map(|step| step.2).sum();
    assert_eq!(of_playback(&server, (first, last), total).await, steps);
    server.stop().await;

    let span = [from.to_string(), to.to_string()];
    let span = ["--from", span[0].as_str(), "--to", span[1].as_str()];
    let with = |more: &[&str]| of_store(folder.path(), &[&span, more].concat());
    assert_eq!(with(&[]), forward);
    assert_eq!(with(&["--newest-first"]), backward);
    assert_eq!(with(&["--first", "251"]), forward[..251]);
    assert_eq!(with(&["--last", "251"]), forward[forward.len() - 251..]);
    assert_eq!(with(&["--last", "251", "--newest-first"]), backward[..251]);
}
