//! Live: updates, exactness of snapshot and tail, slow clients, channels that come later.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use strongback_server::Server;
use strongback_server::binary as read;
use strongback_sources::Sink;
use strongback_store::{ChannelSpec, ChannelType, Clock, FrameBatch, FrameHead, StreamKey, StreamSpec, Value as Cell};
use tokio_tungstenite::tungstenite::Message;

use crate::client::{LiveClient, PATIENCE, TestServer, big};
use crate::faults::until;

#[tokio::test(flavor = "multi_thread")]
async fn a_written_line_is_on_the_screen_in_sql_in_history_and_in_state() {
    let server = TestServer::start().await;
    let mut live = server.live().await;
    let hello = live.next_of("hello").await;
    assert_eq!(hello["epoch"], 1);
    live.send(json!({ "type": "subscribe", "id": 7, "channels": ["tank.*", "nothing.here"] })).await;
    let subscribed = live.next_of("subscribed").await;
    assert_eq!((&subscribed["id"], &subscribed["channels"]), (&json!(7), &json!([])));
    assert_eq!(subscribed["unmatched"], json!(["tank.*", "nothing.here"]));

    server.write("tank,bay=1 p=31.25,t=90i,big=18446744073709551615u,go=true,mode=\"HOLD\" 1700000000000000001").await;

    let channels = live.next_of("channels").await["channels"].as_array().unwrap().clone();
    assert_eq!(channels.len(), 5);
    assert_eq!(channels[0]["name"], "tank.p{bay=1}");
    let id = |name: &str| channels.iter().find(|c| c["channel"] == name).unwrap()["id"].clone();
    // The frame came before its channels were matched: it must not be missing.
    let update = live.next_of("update").await;
    let stream = &update["streams"][0];
    assert_eq!((&stream["from_row"], &stream["to_row"]), (&json!("0"), &json!("1")));
    assert_eq!(stream["recorded"], json!(true));
    assert_eq!(stream["time"], json!(["1700000000000000001", "1700000000000000001"]));
    let cell = |name: &str| {
        let cells = stream["channels"].as_array().unwrap();
        cells.iter().find(|c| c[0] == id(name)).unwrap_or_else(|| panic!("{name}: {stream}")).clone()
    };
    assert_eq!(cell("p"), json!([id("p"), 1, 31.25, 31.25, 31.25, 31.25, 31.25]));
    assert_eq!(cell("t"), json!([id("t"), 1, "90", "90", "90", "90", 90.0]));
    assert_eq!(cell("big")[3], "18446744073709551615");
    assert_eq!(cell("go"), json!([id("go"), 1, true, true, true, true, 1.0]));
    assert_eq!(cell("mode"), json!([id("mode"), 1, "HOLD", "HOLD", null, null, null]));

    // A second frame, now matched: row 1, and nothing twice.
    server.write("tank,bay=1 p=31.5 1700000000000000002").await;
    let update = live.next_of("update").await;
    assert_eq!((&update["streams"][0]["from_row"], &update["streams"][0]["to_row"]), (&json!("1"), &json!("2")));

    let answer = server.sql("select time_ns, p, t, big from tank order by time_ns").await;
    assert_eq!(answer["rows"][0], json!(["1700000000000000001", 31.25, "90", "18446744073709551615"]));
    assert_eq!(answer["rows"][1], json!(["1700000000000000002", 31.5, null, null]));
    let history = server.json("/api/history?channels=tank.p&from=1700000000000000000&to=1700000000000000010").await;
    assert_eq!(history["series"][0]["buckets"].as_array().unwrap().len(), 2);
    let state = server.json("/api/state?channels=tank.mode").await;
    assert_eq!((&state["state"][0]["value"], &state["state"][0]["status"]), (&json!("HOLD"), &json!("fresh")));
    server.stop().await;
}

/// A time within the last 31 years: the longest history there is.
const BASE: u64 = 1_780_000_000_000_000_000;

/// Counts what a client was told of the channel `ramp.n`, whose values are 0, 1, 2, …: each once.
#[derive(Default)]
struct Tally {
    count: u64,
    sum: f64,
    next_row: u64,
    last: f64,
}

impl Tally {
    fn history(&mut self, message: &Value) {
        for bucket in message["series"][0]["buckets"].as_array().unwrap() {
            self.count += bucket[1].as_u64().unwrap();
            self.sum += bucket[6].as_f64().unwrap() * bucket[1].as_f64().unwrap();
            self.last = bucket[3].as_f64().unwrap();
        }
        let rows = message["rows"].as_object().unwrap();
        self.next_row = big(rows.values().next().unwrap());
        assert_eq!(self.count, self.next_row, "history holds every row before the tail");
    }

    fn update(&mut self, message: &Value) {
        for stream in message["streams"].as_array().unwrap() {
            assert_eq!(big(&stream["from_row"]), self.next_row, "the tail goes on where the last window ended");
            self.next_row = big(&stream["to_row"]);
            let cell = &stream["channels"][0];
            let count = cell[1].as_u64().unwrap();
            self.count += count;
            self.sum += cell[6].as_f64().unwrap() * count as f64;
            assert_eq!(cell[2].as_f64().unwrap(), self.last + 1.0);
            self.last = cell[3].as_f64().unwrap();
            assert_eq!(cell[4], cell[2], "the least of a rising ramp is its first");
            assert_eq!(cell[5], cell[3]);
        }
    }

    /// Every value once, none twice.
    fn check(&self) {
        assert_eq!(self.count, self.next_row);
        let n = self.count as f64;
        assert!((self.sum - n * (n - 1.0) / 2.0).abs() < n, "{} values add up to {}", n, self.sum);
    }
}

/// Writes the ramp until told to stop; `written` values are acknowledged.
async fn ramp(server: Arc<TestServer>, stop: Arc<AtomicBool>, written: Arc<AtomicU64>) {
    while !stop.load(Ordering::Relaxed) {
        let from = written.load(Ordering::Relaxed);
        let lines: Vec<String> = (from..from + 20).map(|n| format!("ramp n={n}.0 {}", BASE + n)).collect();
        server.write(&lines.join("\n")).await;
        written.store(from + 20, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshot_and_tail_hold_each_row_once_under_load() {
    let server = Arc::new(TestServer::start().await);
    server.write(&format!("ramp n=0.0 {BASE}")).await;
    let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(1)));
    let writer = tokio::spawn(ramp(server.clone(), stop.clone(), written.clone()));
    let mut clients = Vec::new();
    for i in 0..8u64 {
        let server = server.clone();
        let written = written.clone();
        clients.push(tokio::spawn(async move {
            let mut live = server.live().await;
            let mut subscribe = json!({
                "type": "subscribe", "id": 1, "channels": ["ramp.n"], "history_s": 1e9,
                "history_points": if i % 2 == 0 { 20_000 } else { 7 },
            });
            if i % 4 == 3 {
                subscribe["max_rate_hz"] = json!(20);
            }
            live.send(subscribe).await;
            let mut tally = Tally::default();
            tally.history(&live.next_of("history").await);
            let end = written.load(Ordering::Relaxed) + 400;
            while tally.next_row < end {
                tally.update(&live.next_of("update").await);
            }
            tally.check();
        }));
    }
    for client in clients {
        client.await.unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    writer.await.unwrap();
    let all = written.load(Ordering::Relaxed);
    let counted = server.sql("select count(*) from ramp").await;
    assert_eq!(counted["rows"][0][0], json!(all.to_string()));
    Arc::into_inner(server).unwrap().stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_reads_harms_nobody_and_is_told_what_it_missed() {
    let server = TestServer::start().await;
    let wide = |i: u64| {
        let fields: Vec<String> = (0..400).map(|c| format!("channel_number_{c}={}.125", i + c)).collect();
        format!("wide {}", fields.join(","))
    };
    server.write(&wide(0)).await;
    let mut asleep = LiveClient::with_small_buffer(server.http).await;
    asleep.send(json!({ "type": "subscribe", "id": 1, "channels": ["wide.*"] })).await;
    asleep.next_of("subscribed").await;
    let mut awake = server.live().await;
    awake.send(json!({ "type": "subscribe", "id": 1, "channels": ["wide.channel_number_0"] })).await;
    awake.next_of("subscribed").await;
    // The sleeper's socket is full after some hundred kilobytes; then its windows merge. A hundred frames are
    // some megabytes.
    let mut sent = 0u64;
    let start = tokio::time::Instant::now();
    while sent < 100 || start.elapsed() < Duration::from_secs(1) {
        sent += 1;
        server.write(&wide(sent)).await;
        let update = awake.next_of("update").await;
        assert_eq!(update["streams"][0]["channels"][0][3].as_f64().unwrap(), sent as f64 + 0.125);
    }
    // It wakes: everything is there, merged, and it is told so.
    let (mut frames, mut conflated, mut next_row) = (0, 0, 1);
    while frames < sent {
        let update = asleep.next_of("update").await;
        conflated += update["conflated"].as_u64().unwrap();
        let stream = &update["streams"][0];
        assert_eq!(big(&stream["from_row"]), next_row);
        next_row = big(&stream["to_row"]);
        frames += stream["channels"][0][1].as_u64().unwrap();
    }
    assert_eq!(frames, sent);
    assert!(conflated > 0, "{sent} frames came in full");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limit_merges_and_keeps_the_spike() {
    let server = TestServer::start().await;
    server.write("fast v=1").await;
    let mut live = server.live().await;
    live.send(json!({ "type": "subscribe", "id": 3, "channels": ["fast.v"], "max_rate_hz": 2 })).await;
    live.next_of("subscribed").await;
    let (mut updates, mut count, mut highest) = (0, 0, 0.0f64);
    for i in 0..60 {
        server.write(&format!("fast v={}", if i == 31 { 999.0 } else { f64::from(i) / 100.0 })).await;
    }
    while count < 60 {
        let update = live.next_of("update").await;
        let cell = &update["streams"][0]["channels"][0];
        updates += 1;
        count += cell[1].as_u64().unwrap();
        highest = highest.max(cell[5].as_f64().unwrap());
    }
    assert_eq!((count, highest), (60, 999.0));
    assert!(updates < 30, "{updates} updates of a subscription limited to 2 Hz");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_request_is_answered_and_bounds_hold() {
    let server = TestServer::start().await;
    server.write("t a=1,b=2").await;
    let mut live = server.live().await;
    for (message, words) in [
        (json!({ "type": "dance" }), "invalid message"),
        (json!("x"), "invalid message"),
        (json!({ "type": "unsubscribe", "id": 9 }), "no such subscription"),
        (json!({ "type": "subscribe", "id": 1, "channels": [""] }), "empty channel pattern"),
        (json!({ "type": "subscribe", "id": 1, "channels": ["a"], "max_rate_hz": -1 }), "max_rate_hz"),
        (json!({ "type": "subscribe", "id": 1, "channels": ["a"], "history_s": -1 }), "history_s"),
        (json!({ "type": "subscribe", "id": 1, "channels": vec!["a"; 10_001] }), "at most 10000"),
        (json!({ "type": "subscribe", "id": 1 }), "invalid message"),
        (json!({ "type": "subscribe", "id": 1e40, "channels": ["a"] }), "invalid message"),
        (json!({ "type": "subscribe", "id": 1, "channels": "a" }), "invalid message"),
        (json!({ "type": "subscribe", "id": 1, "channels": [["a"]] }), "invalid message"),
        (json!({ "type": "subscribe", "id": 1, "channels": ["a"], "history_points": -1 }), "invalid message"),
        (json!({ "type": "subscribe", "id": 1, "channels": ["a"], "resume": {} }), "invalid message"),
        (json!({ "type": "subscribe", "id": 1, "channels": ["a{b}"] }), "is not tag=value"),
        (json!({ "type": "subscribe", "id": 1, "channels": ["a".repeat(4097)] }), "at most 4096"),
    ] {
        live.send(message).await;
        let error = live.next_of("error").await;
        assert!(error["message"].as_str().unwrap().contains(words), "{error}");
    }
    for text in ["", "{", "null", &"[".repeat(100_000)] {
        live.socket.send(Message::text(text)).await.unwrap();
        assert!(live.next_of("error").await["message"].as_str().unwrap().contains("invalid message"), "{text:.20}");
    }
    live.socket.send(Message::binary(vec![1, 2, 3])).await.unwrap();
    assert_eq!(live.next_of("error").await["message"], "messages are JSON text");
    // Ten thousand patterns are fine, and each that matches nothing is named.
    let mut patterns: Vec<String> = (0..9_999).map(|i| format!("none.{i}")).collect();
    patterns.push("t.b".to_owned());
    live.send(json!({ "type": "subscribe", "id": 1, "channels": patterns })).await;
    let subscribed = live.next_of("subscribed").await;
    assert_eq!(subscribed["channels"].as_array().unwrap().len(), 1);
    assert_eq!(subscribed["unmatched"].as_array().unwrap().len(), 9_999);
    // The same id again replaces the subscription; an unsubscribed one is silent.
    live.send(json!({ "type": "subscribe", "id": 1, "channels": ["t.a"] })).await;
    live.next_of("subscribed").await;
    let counters = server.running.as_ref().unwrap().server.ingest.live().counters();
    assert_eq!(counters.subscriptions.load(Ordering::Relaxed), 1);
    live.send(json!({ "type": "unsubscribe", "id": 1 })).await;
    live.send(json!({ "type": "dance" })).await;
    live.next_of("error").await;
    assert_eq!(counters.subscriptions.load(Ordering::Relaxed), 0);
    drop(live);
    let until = tokio::time::Instant::now() + PATIENCE;
    while counters.clients.load(Ordering::Relaxed) > 0 {
        assert!(tokio::time::Instant::now() < until, "a client that left is still counted");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_that_comes_later_is_announced_and_complete() {
    let server = TestServer::start().await;
    server.write("t a=1 1").await;
    let mut live = server.live().await;
    live.send(json!({ "type": "subscribe", "id": 1, "channels": ["t.*"] })).await;
    assert_eq!(live.next_of("subscribed").await["channels"].as_array().unwrap().len(), 1);
    server.write("t a=2,b=77 2").await;
    let announced = live.next_of("channels").await;
    let b = announced["channels"][0]["id"].clone();
    assert_eq!(announced["channels"][0]["name"], "t.b");
    loop {
        let update = live.next_of("update").await;
        let cells = update["streams"][0]["channels"].as_array().unwrap().clone();
        if let Some(cell) = cells.iter().find(|c| c[0] == b) {
            assert_eq!((&cell[1], &cell[3]), (&json!(1), &json!(77.0)));
            break;
        }
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_for_which_there_is_no_room_is_announced_when_there_is() {
    let server = TestServer::start().await;
    let mut live = server.live().await;
    live.send(json!({ "type": "subscribe", "id": 9, "channels": ["later.*"] })).await;
    live.next_of("subscribed").await;
    // Another client of this address holds all that it may.
    let budget = server.running.as_ref().unwrap().server.budget.clone();
    let mut held = budget.take(server.http.ip(), 0).unwrap();
    let mut step = budget.max_per_client();
    while step > 0 {
        if held.grow(step).is_err() {
            step /= 2;
        }
    }
    server.write(&format!("later x=1 {BASE}")).await;
    assert!(live.next_of("error").await["message"].as_str().unwrap().contains("client_memory"));
    drop(held);
    // Told once, until it is there with what it had.
    assert_eq!(live.next_of("channels").await["channels"][0]["name"], "later.x");
    let update = live.next_of("update").await;
    assert_eq!((big(&update["streams"][0]["from_row"]), &update["streams"][0]["channels"][0][3]), (0, &json!(1.0)));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fits_is_announced_behind_what_does_not() {
    let server = TestServer::start().await;
    let mut live = server.live().await;
    live.send(json!({ "type": "subscribe", "id": 9, "channels": ["wide*.*", "narrow.*"] })).await;
    live.next_of("subscribed").await;
    // Another client of this address leaves room for a few channels.
    let budget = server.running.as_ref().unwrap().server.budget.clone();
    let mut held = budget.take(server.http.ip(), 0).unwrap();
    let mut step = budget.max_per_client();
    while step > 0 {
        if held.grow(step).is_err() {
            step /= 2;
        }
    }
    held.resize(held.bytes() - 4096).unwrap();
    let wide: Vec<String> = (0..100).map(|n| format!("c{n}={n}")).collect();
    server.write(&format!("wide {} {BASE}", wide.join(","))).await;
    assert!(live.next_of("error").await["message"].as_str().unwrap().contains("client_memory"));
    server.write(&format!("narrow x=1 {BASE}")).await;
    assert_eq!(live.next_of("channels").await["channels"][0]["name"], "narrow.x");
    // Of others it is told as well.
    server.write(&format!("wide_too {} {BASE}", wide.join(","))).await;
    assert!(live.next_of("error").await["message"].as_str().unwrap().contains("client_memory"));
    drop(held);
    let mut announced = 0;
    while announced < 200 {
        announced += live.next_of("channels").await["channels"].as_array().unwrap().len();
    }
    assert_eq!(announced, 200);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn heartbeats_and_events_reach_every_client() {
    let server = TestServer::start().await;
    let mut live = server.live().await;
    let beat = live.next_of("heartbeat").await;
    assert_eq!((&beat["store"], &beat["epoch"]), (&json!("recording"), &json!(1)));
    let answer = server.post("/api/events", r#"{"text":"Hold released","level":"watch"}"#).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let event = live.next_of("event").await;
    assert_eq!((&event["text"], &event["level"]), (&json!("Hold released"), &json!("watch")));
    let events = server.json("/api/events?from=now-1m").await;
    assert_eq!(events["events"][0]["text"], "Hold released");
    assert_eq!(server.sql("select text from strongback.events").await["rows"], json!([["Hold released"]]));
    for wrong in [r#"{"text":""}"#, r#"{"text":"x","level":"loud"}"#, r#"{"text":"x","time":"soon"}"#, "x"] {
        assert_eq!(server.post("/api/events", wrong).await.status, 400, "{wrong}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_written_an_event_reads_it_at_once_and_everyone_is_told() {
    const EVENTS: usize = 20;
    let server = TestServer::start().await;
    let mut live = server.live().await;
    live.next_of("hello").await;
    for n in 0..EVENTS {
        let answer = server.post("/api/events", json!({ "text": format!("step {n}") }).to_string()).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        let events = server.json("/api/events").await;
        assert_eq!(events["events"][n]["text"], format!("step {n}"));
        let rows = server.sql("select count(*) from strongback.events where text like 'step%'").await;
        assert_eq!(rows["rows"][0][0], (n + 1).to_string());
    }
    for n in 0..EVENTS {
        assert_eq!(live.next_of("event").await["text"], format!("step {n}"));
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_updates_is_told_of_the_notices_that_it_lost() {
    const NOTICES: u64 = 1000;
    let server = TestServer::start().await;
    let mut asleep = LiveClient::with_small_buffer(server.http).await;
    asleep.next_of("hello").await;
    // More than its socket and what waits for it hold.
    let notice = json!({ "type": "event", "text": "x".repeat(64 << 10) }).to_string();
    let live = server.running.as_ref().unwrap().server.ingest.live().clone();
    (0..NOTICES).for_each(|_| live.notify(notice.clone()));
    let (mut came, mut lost) = (0, 0);
    while came + lost < NOTICES {
        let message = asleep.next().await;
        came += u64::from(message["type"] == "event");
        if message["type"] == "heartbeat" {
            // In all, in every heartbeat from then on.
            let in_all = message["dropped"].as_u64().unwrap_or(0);
            assert!(in_all >= lost, "{in_all} after {lost}");
            lost = in_all;
        }
    }
    assert!(lost > 0, "all {came} came");
    // The next update says it, too: not every client looks for it in heartbeats.
    asleep.send(json!({ "type": "subscribe", "id": 1, "channels": ["later.*"] })).await;
    asleep.next_of("subscribed").await;
    server.write(&format!("later x=1 {BASE}")).await;
    let update = asleep.next_of("update").await;
    assert!(update["dropped"].as_u64().unwrap() >= lost, "{update}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_the_epoch_is_new_and_everything_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::on(folder.path(), "").await;
    server.write(&format!("ramp n=0 {BASE}\nramp n=1 {}", BASE + 1)).await;
    let answer = server.post("/api/events", r#"{"text":"kept"}"#).await;
    assert_eq!(answer.status, 201);
    server.stop().await;
    let server = TestServer::on(folder.path(), "").await;
    let mut live = LiveClient::connect(server.http, None).await.unwrap();
    assert_eq!(live.next_of("hello").await["epoch"], 2);
    live.send(json!({ "type": "subscribe", "id": 1, "channels": ["ramp.*"], "history_s": 1e9 })).await;
    let history = live.next_of("history").await;
    assert_eq!(history["series"][0]["buckets"].as_array().unwrap().len(), 2);
    assert_eq!(server.json("/api/events").await["events"][0]["text"], "kept");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_for_binary_gets_windows_history_and_heartbeats_as_bytes_and_the_rest_as_text() {
    let server = TestServer::start().await;
    server.write(&format!("tank p=1.5,n=7i,mode=\"HOLD\" {BASE}")).await;
    let asked = ("sec-websocket-protocol", "other.protocol, strongback.live.1");
    let mut live = LiveClient::connect(server.http, Some(asked)).await.unwrap();
    assert_eq!(live.protocol.as_deref(), Some("strongback.live.1"));
    assert_eq!(live.next_of("hello").await["epoch"], 1);
    live.send(json!({ "type": "subscribe", "id": -3, "channels": ["tank.*"], "history_s": 1e9 })).await;
    let subscribed = live.next_of("subscribed").await;
    let id = |name: &str| {
        let channels = subscribed["channels"].as_array().unwrap();
        channels.iter().find(|c| c["channel"] == name).unwrap()["id"].as_u64().unwrap() as u32
    };
    let bytes = live.next_bytes(2).await;
    let read::ReadMessage::History(history) = read::read(&bytes).unwrap() else { panic!("no history") };
    assert_eq!((history.id, history.rows.len(), history.rows[0].1), (-3, 1, 1));
    let series = history.series.iter().find(|s| s.channel == id("p")).unwrap();
    assert_eq!((series.buckets[0].0, series.buckets[0].1.first), (BASE as i64, Cell::F64(1.5)));
    server.write(&format!("tank p=2.5,n=8i,mode=\"GO\" {}", BASE + 1)).await;
    let bytes = live.next_bytes(1).await;
    let read::ReadMessage::Update(update) = read::read(&bytes).unwrap() else { panic!("no update") };
    assert_eq!((update.id, update.epoch, update.conflated, update.dropped), (-3, 1, 0, 0));
    let window = &update.windows[0];
    assert_eq!((window.rows, window.recorded, window.gap), (Some((1, 2)), true, false));
    assert_eq!(window.time, (BASE as i64 + 1, BASE as i64 + 1));
    let last = |name: &str| window.cells.iter().find(|(channel, _)| *channel == id(name)).unwrap().1.last;
    assert_eq!((last("p"), last("n"), last("mode")), (Cell::F64(2.5), Cell::I64(8), Cell::String("GO")));
    let bytes = live.next_bytes(3).await;
    let read::ReadMessage::Heartbeat(beat) = read::read(&bytes).unwrap() else { panic!("no heartbeat") };
    assert_eq!((beat.store, beat.epoch), ("recording", 1));
    // What is rare stays text, for clients of either form.
    assert_eq!(server.post("/api/events", r#"{"text":"Hold released"}"#).await.status, 201);
    assert_eq!(live.next_of("event").await["text"], "Hold released");
    live.send(json!({ "type": "dance" })).await;
    assert!(live.next_of("error").await["message"].as_str().unwrap().contains("invalid message"));
    // Of protocols that the server does not know it chooses none, and a client that must have one gives up.
    let refused = LiveClient::connect(server.http, Some(("sec-websocket-protocol", "strongback.live.99"))).await;
    assert!(refused.err().is_some_and(|error| error.to_lowercase().contains("subprotocol")));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn patterns_that_cost_too_much_are_refused_before_they_do() {
    let server = TestServer::start().await;
    let fields: Vec<String> = (0..2400).map(|c| format!("aaaaaaaa{c}=1")).collect();
    server.write(&format!("wide {}", fields.join(","))).await;
    let mut live = server.live().await;
    // Fewer than ten thousand, and within a message; half a megabyte that match anything but at their ends.
    let patterns: Vec<String> = (0..125).map(|n| format!("{}{n}b", "*a".repeat(2000))).collect();
    live.send(json!({ "type": "subscribe", "id": 1, "channels": patterns })).await;
    let error = live.next_of("error").await;
    assert!(error["message"].as_str().unwrap().contains("are too many"), "{error}");
    live.send(json!({ "type": "subscribe", "id": 1, "channels": ["wide.*7"] })).await;
    assert_eq!(live.next_of("subscribed").await["channels"].as_array().unwrap().len(), 240);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_subscriptions_wait_to_be_made_all_else_goes_on() {
    let server = TestServer::start().await;
    server.write(&format!("t a=1 {BASE}")).await;
    let mut early = server.live().await;
    early.send(json!({ "type": "subscribe", "id": 1, "channels": ["t.a"] })).await;
    early.next_of("subscribed").await;
    let inner = server.running.as_ref().unwrap().server.clone();
    let blocked = Blocked::new(&inner);
    let mut late = server.live().await;
    late.send(json!({ "type": "subscribe", "id": 1, "channels": ["t.a"] })).await;
    late.next_of("heartbeat").await;
    let before = big(&early.next_of("heartbeat").await["time"]);
    while big(&early.next_of("heartbeat").await["time"]) < before + 2_000_000_000 {}
    let history = server.json("/api/history?channels=t.a&from=0&to=now").await;
    assert_eq!(history["series"][0]["buckets"].as_array().unwrap().len(), 1);
    assert_eq!(server.post("/api/events", r#"{"text":"Hold released"}"#).await.status, 201);
    assert_eq!(early.next_of("event").await["text"], "Hold released");
    server.write(&format!("t a=2 {}", BASE + 1)).await;
    assert_eq!(early.next_of("update").await["streams"][0]["channels"][0][3], json!(2.0));
    blocked.release(&inner).await;
    late.next_of("subscribed").await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_clients_asked_for_goes_with_them_whatever_waits_to_be_made() {
    let server = TestServer::start().await;
    server.write(&format!("t a=1 {BASE}")).await;
    let inner = server.running.as_ref().unwrap().server.clone();
    let live = inner.ingest.live();
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let counts = || {
        let counters = live.counters();
        (count(&counters.clients), count(&counters.subscriptions), count(&counters.channels))
    };
    // One has a subscription that is to be matched with new channels, others have some that are to be made.
    let mut grown = server.live().await;
    grown.send(json!({ "type": "subscribe", "id": 1, "channels": ["t.*"] })).await;
    grown.next_of("subscribed").await;
    let blocked = Blocked::new(&inner);
    server.write(&format!("t a=1,b=2 {}", BASE + 1)).await;
    let mut clients = vec![grown];
    for history_s in [None, Some(1e9), Some(1e9)] {
        let mut client = server.live().await;
        client.send(json!({ "type": "subscribe", "id": 1, "channels": ["t.*"], "history_s": history_s })).await;
        clients.push(client);
    }
    for client in &mut clients {
        client.next_of("heartbeat").await;
        client.next_of("heartbeat").await;
    }
    assert_eq!(counts(), (4, 1, 1));
    drop(clients);
    until(async || if counts().0 == 0 { Ok(()) } else { Err(format!("{:?}", counts())) }).await;
    blocked.release(&inner).await;
    // A job that was under way ends by itself, and takes along what it had.
    let left = || (counts(), live.fanout().subscriptions().len());
    until(async || if left() == ((0, 0, 0), 0) { Ok(()) } else { Err(format!("for nobody: {:?}", left())) }).await;
    drop(inner);
    server.stop().await;
}

/// The threads that make subscriptions, each of them held up.
struct Blocked {
    hold: std::sync::mpsc::Sender<()>,
}

impl Blocked {
    /// More jobs than there are threads.
    const JOBS: usize = 8;

    fn new(server: &Server) -> Blocked {
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let held = Arc::new(std::sync::Mutex::new(held));
        for _ in 0..Blocked::JOBS {
            let held = held.clone();
            server.matchers.spawn(move || {
                let _ = held.lock().unwrap().recv();
            });
        }
        Blocked { hold }
    }

    /// Lets them go, and waits until what had waited behind them is done.
    async fn release(self, server: &Server) {
        drop(self.hold);
        let behind = Blocked::new(server);
        let last = server.matchers.spawn(|| ());
        drop(behind.hold);
        last.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_messages_is_its_senders_own_problem() {
    let server = TestServer::start().await;
    server.write(&format!("t a=0 {BASE}")).await;
    let mut other = server.live().await;
    other.send(json!({ "type": "subscribe", "id": 1, "channels": ["t.a"] })).await;
    other.next_of("subscribed").await;
    // One reads its answers, one never does; both say as much as they can, sense and nonsense.
    let flood = |mut client: LiveClient, reads: bool| async move {
        for i in 0.. {
            let text = match i % 4 {
                0 => json!({ "type": "subscribe", "id": i % 100, "channels": ["t.*"], "history_s": 1e9 }).to_string(),
                1 => json!({ "type": "unsubscribe", "id": i % 100 }).to_string(),
                2 => "{".repeat(1000),
                _ => json!({ "type": "dance" }).to_string(),
            };
            if client.socket.send(Message::text(text)).await.is_err() {
                return;
            }
            if reads && i % 4 == 3 {
                // Of the last three of four.
                for _ in 0..3 {
                    client.next_of("error").await;
                }
            }
        }
    };
    let floods = [
        tokio::spawn(flood(server.live().await, true)),
        tokio::spawn(flood(LiveClient::with_small_buffer(server.http).await, false)),
    ];
    for i in 1..200u64 {
        server.write(&format!("t a={i} {}", BASE + i)).await;
        let update = other.next_of("update").await;
        assert_eq!(update["streams"][0]["channels"][0][3].as_f64(), Some(i as f64));
        assert_eq!(update["dropped"], json!(0));
    }
    assert!(floods.iter().all(|flood| !flood.is_finished()), "a flood has ended");
    for flood in floods {
        flood.abort();
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_opens_a_thousand_sockets_is_refused_in_words_and_nobody_else_is() {
    let server = TestServer::with("[live]\nmax_clients = 30\nmax_clients_per_address = 20").await;
    let refused = async |status: u16, words: &str| {
        let error = LiveClient::connect(server.http, None).await.err().expect("one more client than may be");
        assert!(error.contains(&status.to_string()), "{error}");
        let answer = server.request("GET", "/api/live?channels=t.*", "", b"").await;
        assert_eq!((answer.status, answer.head.contains("retry-after")), (status, true));
        assert!(answer.text().contains(words), "{}", answer.text());
    };
    let mut clients = Vec::new();
    for _ in 0..20 {
        clients.push(server.live().await);
    }
    for _ in 0..1000 {
        assert!(LiveClient::connect(server.http, None).await.is_err());
    }
    refused(429, "too many live clients from 127.0.0.1: 20 are connected (live.max_clients_per_address)").await;
    // Another address has places until all are taken.
    let from = |last: u8| {
        let http = server.http;
        async move {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind(([127, 0, 0, last], 0).into()).unwrap();
            LiveClient::on(socket.connect(http).await.unwrap(), http).await
        }
    };
    for _ in 0..10 {
        clients.push(from(2).await.unwrap());
    }
    let full = from(3).await.err().expect("a client too many");
    assert!(full.contains("503"), "{full}");
    let mut last = clients.pop().unwrap();
    server.write("t a=1").await;
    last.send(json!({ "type": "subscribe", "id": 1, "channels": ["t.a"] })).await;
    assert_eq!(last.next_of("subscribed").await["channels"].as_array().unwrap().len(), 1);
    // Places come free.
    drop(clients);
    let until = tokio::time::Instant::now() + PATIENCE;
    while LiveClient::connect(server.http, None).await.is_err() {
        assert!(tokio::time::Instant::now() < until, "places of clients that left are still taken");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_too_long_ends_its_connection_and_no_other() {
    let server = TestServer::start().await;
    let mut other = server.live().await;
    let mut live = server.live().await;
    live.next_of("hello").await;
    // The server may close before it has read all of it.
    let _ = live.socket.send(Message::text("x".repeat((1 << 20) + 1))).await;
    loop {
        match tokio::time::timeout(PATIENCE, live.socket.next()).await.expect("it stays open") {
            None | Some(Err(_) | Ok(Message::Close(_))) => break,
            Some(Ok(_)) => {}
        }
    }
    other.next_of("heartbeat").await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_comes_back_is_told_of_what_was_lost_meanwhile() {
    let server = TestServer::start().await;
    let inner = server.running.as_ref().unwrap().server.clone();
    let spec = StreamSpec {
        key: StreamKey::new("bay", []),
        source: "test".to_owned(),
        clock: Clock::Receive,
        expected_period_ns: None,
        sequence_modulus: Some(1 << 32),
        channels: vec![ChannelSpec::new("n", ChannelType::U64)],
    };
    let (stream, channels) = inner.ingest.resolve(&spec).unwrap();
    let frame = |sequence: u64| {
        let receive_time = (BASE + sequence * 1_000_000) as i64;
        let mut batch = FrameBatch::new();
        batch.begin(FrameHead { stream: stream.id, receive_time, source_time: None, sequence: Some(sequence) });
        batch.push(channels[0], Cell::U64(sequence));
        batch.end();
        inner.ingest.accept(&batch);
    };
    // Rows 0 to 4; rows 5 to 8, before which 50 are missing.
    (0..5).chain(55..59).for_each(frame);
    until(async || match inner.ledger.gaps(&(0..i64::MAX), 9).first().map(|gap| gap.open) {
        Some(50) => Ok(()),
        other => Err(format!("{other:?} are missing")),
    })
    .await;
    let origin = server.live().await.next_of("hello").await["origin"].clone();
    for (row, gap) in [(0, true), (5, true), (6, false)] {
        let row = row.to_string();
        let rows = json!({ (stream.id.0.to_string()): [row, row] });
        let resume = json!({ "origin": origin, "epoch": 1, "rows": rows });
        let mut live = server.live().await;
        live.send(json!({ "type": "subscribe", "id": 1, "channels": ["bay.*"], "resume": resume })).await;
        let update = live.next_of("update").await;
        let window = &update["streams"][0];
        assert_eq!((&window["from_row"], &window["to_row"]), (&json!(row), &json!("9")));
        assert_eq!(window["gap"], json!(gap), "from row {row}: {update}");
    }
    drop(inner);
    server.stop().await;
}
