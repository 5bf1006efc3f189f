//! A full disk and a failing one, as clients see them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use strongback_server::Opening;
use strongback_server::commands::outcome::code;
use strongback_store::{FaultDisk, Keep, RetentionGroup, StoreOptions};
use tokio::io::AsyncWriteExt;
use tokio_postgres::NoTls;

use crate::client::{Answer, LiveClient, PATIENCE, TestServer, big};

const BASE: u64 = 1_780_000_000_000_000_000;

/// An iNET-X source whose packets hold one number.
const PACKETS: &str = "[[source]]\nname = \"fti\"\nkind = \"inetx\"\nlisten = \"127.0.0.1:0\"\n\
    [[source.stream]]\nid = 221\ntable = \"fti.bay\"\nperiod_ms = 20.0\n\
    [[source.stream.channel]]\nname = \"t\"\noffset = 0\ntype = \"u32\"\n";

fn packet(sequence: u32) -> Vec<u8> {
    [0x1000_0000, 221, sequence, 28, 1_780_000_000 + sequence, 0, sequence].map(u32::to_be_bytes).concat()
}

fn options() -> StoreOptions {
    StoreOptions {
        log_bytes: 4 << 20,
        // The spare is soon full, too.
        segment_bytes: 64 << 10,
        max_bytes: Some(1 << 40),
        // Nothing may go to make space.
        retention: vec![RetentionGroup { name: "data".into(), streams: None, keep: Keep::Share(0.9), max_age: None }],
        ..StoreOptions::default()
    }
}

pub(crate) fn opening(disk: &FaultDisk) -> Opening {
    let disk = disk.clone();
    let mut opening = Opening::new(move |now| disk.open_store(options(), now));
    opening.reopen_waits = vec![Duration::from_millis(1); 3];
    opening
}

/// Asks again until the answer is right, or says what it was.
pub(crate) async fn until<T: std::fmt::Debug>(mut ask: impl AsyncFnMut() -> Result<T, String>) -> T {
    let end = tokio::time::Instant::now() + PATIENCE;
    loop {
        match ask().await {
            Ok(right) => return right,
            Err(wrong) => assert!(tokio::time::Instant::now() < end, "{wrong}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn refused(answer: &Answer, why: &str) {
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(answer.head.contains("retry-after: 1"), "{}", answer.head);
    let body = answer.json();
    assert_eq!(body["code"], "unavailable");
    let message = body["message"].as_str().unwrap();
    assert!(message.contains("try again") && message.contains(why), "{message}");
}

/// Lines of `count` frames from `from` on.
fn ramp(from: u64, count: u64) -> String {
    (from..from + count).map(|n| format!("ramp n={n}i {}\n", BASE + n)).collect()
}

async fn metric(server: &TestServer, line: &str) -> u64 {
    let text = server.get("/metrics").await.text();
    let found = text.lines().find_map(|l| l.strip_prefix(line)?.strip_prefix(' ')?.parse::<f64>().ok());
    found.unwrap_or(0.0) as u64
}

/// Received is what became of it, for every source.
async fn check_identity(server: &TestServer) -> Value {
    let sources = server.json("/api/sources").await["sources"].clone();
    for source in sources.as_array().unwrap() {
        let of = |name: &str| big(&source[name]);
        assert_eq!(of("received"), of("stored") + of("duplicate") + of("rejected"), "{source}");
    }
    sources
}

async fn gap_counts(server: &TestServer, cause: &str) -> Vec<(String, u64, u64)> {
    let gaps = server.json("/api/gaps?from=0&to=now%2B1h").await;
    let mut counts: Vec<_> = gaps["gaps"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|g| g["cause"] == cause)
        .map(|g| (g["stream_name"].as_str().unwrap().to_owned(), big(&g["count"]), big(&g["open"])))
        .collect();
    counts.sort();
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_says_so_and_resumes_alone() {
    let disk = FaultDisk::new(1);
    let server = TestServer::on_disk(opening(&disk), PACKETS).await;
    let running = server.running.as_ref().unwrap();
    let (ilp, udp) = (running.ilp.unwrap(), running.packets[0].1);
    let mut wire = tokio::net::TcpStream::connect(ilp).await.unwrap();
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    wire.write_all(b"wire n=0i 1\n").await.unwrap();
    socket.send_to(&packet(0), udp).await.unwrap();
    let mut live = server.live().await;
    until(async || {
        let total = &server.json("/api/channels?pattern=wire.n").await["total"];
        if total == 1 { Ok(()) } else { Err(format!("{total} channels")) }
    })
    .await;
    live.send(json!({ "type": "subscribe", "id": 1, "channels": ["wire.n", "fti.bay.t"] })).await;
    live.next_of("subscribed").await;

    // Room for what is there, not for a segment.
    disk.set_capacity_bytes(disk.used_bytes());
    let mut acknowledged = 0;
    let refusal = loop {
        let answer = server.post("/write", ramp(acknowledged, 500)).await;
        if answer.status != 204 {
            break answer;
        }
        acknowledged += 500;
        assert!(acknowledged < 200_000, "never full");
    };
    refused(&refusal, "disk full");
    let health = server.get("/api/health").await;
    let body = health.json();
    assert_eq!((health.status, &body["status"]), (503, &json!("fail")));
    assert_eq!((&body["store"]["refusal"], &body["store"]["recording"]), (&json!("disk full"), &json!(false)));
    until(async || {
        let beat = live.next_of("heartbeat").await;
        if beat["store"] == "disk full" { Ok(()) } else { Err(beat.to_string()) }
    })
    .await;
    let event = server.post("/api/events", r#"{"text":"Hold"}"#).await;
    assert_eq!(event.status, 503, "{}", event.text());

    // What cannot be sent again is shown, and counted with its reason.
    for n in 1..=10 {
        wire.write_all(format!("wire n={n}i {}\n", 1 + n).as_bytes()).await.unwrap();
    }
    for sequence in 1..=5 {
        socket.send_to(&packet(sequence), udp).await.unwrap();
    }
    let (mut shown, mut last) = (0, Vec::new());
    while shown < 15 {
        for stream in live.next_of("update").await["streams"].as_array().unwrap() {
            if stream["recorded"] == false {
                assert_eq!((&stream["from_row"], &stream["to_row"]), (&Value::Null, &Value::Null));
                shown += stream["channels"][0][1].as_u64().unwrap();
                last.push(stream["channels"][0][3].to_string());
            }
        }
    }
    assert!(last.contains(&"\"10\"".to_owned()) && last.contains(&"5".to_owned()), "{last:?}");
    until(async || {
        let lines = metric(&server, "strongback_source_rejected_total{reason=\"disk_full\",source=\"ilp\"}").await;
        let packets = metric(&server, "strongback_source_rejected_total{reason=\"disk_full\",source=\"fti\"}").await;
        if lines >= 510 && packets == 5 { Ok(()) } else { Err(format!("{lines} lines, {packets} packets refused")) }
    })
    .await;
    assert_eq!(metric(&server, "strongback_recording").await, 0);
    assert!(metric(&server, "strongback_not_recorded_total").await >= 515);
    check_identity(&server).await;

    // Space comes back: what was refused and is sent again is taken, without a restart.
    disk.set_capacity_bytes(u64::MAX);
    until(async || {
        let answer = server.post("/write", ramp(acknowledged, 500)).await;
        if answer.status == 204 { Ok(()) } else { Err(answer.text()) }
    })
    .await;
    acknowledged += 500;
    // An answer that was lost: the client sends it again.
    server.write(&ramp(acknowledged - 500, 500)).await;
    assert_eq!(server.json("/api/health").await["status"], "pass");
    let counted = server.sql("select count(*), count(distinct n), max(n) from ramp").await;
    let n = acknowledged.to_string();
    assert_eq!(counted["rows"][0], json!([n, n, (acknowledged - 1).to_string()]));
    socket.send_to(&packet(6), udp).await.unwrap();
    wire.write_all(b"wire n=11i 12\n").await.unwrap();
    until(async || {
        let rows = server
            .sql("select (select count(*) from wire) as lines, (select count(*) from \"fti.bay\") as packets")
            .await;
        if rows["rows"][0] == json!(["2", "2"]) { Ok(()) } else { Err(rows.to_string()) }
    })
    .await;
    // Each lost frame is a gap once; those of a client that was told are none.
    until(async || {
        let (lost, told) = (gap_counts(&server, "not recorded").await, gap_counts(&server, "refused").await);
        let right = lost == [("fti.bay".to_owned(), 5, 5), ("wire".to_owned(), 10, 10)]
            && told.len() == 1
            && (told[0].0.as_str(), told[0].2) == ("ramp", 0)
            && told[0].1 >= 500;
        if right { Ok(()) } else { Err(format!("{lost:?} {told:?}")) }
    })
    .await;
    assert_eq!(gap_counts(&server, "sequence").await, []);
    until(async || {
        let sources = check_identity(&server).await;
        let fti = sources.as_array().unwrap().iter().find(|s| s["name"] == "fti").unwrap().clone();
        if (big(&fti["stored"]), big(&fti["lost"])) == (2, 5) { Ok(()) } else { Err(fti.to_string()) }
    })
    .await;
    server.stop().await;
}

/// How often the store may still be opened.
#[derive(Default)]
struct Gate {
    left: Mutex<u32>,
    more: Condvar,
}

impl Gate {
    fn pass(&self) {
        let mut left = self.more.wait_while(self.left.lock().unwrap(), |left| *left == 0).unwrap();
        *left -= 1;
    }

    fn let_pass(&self) {
        *self.left.lock().unwrap() += 1;
        self.more.notify_one();
    }
}

/// Lets the store be opened once, and again when the test says so.
fn gated(disk: &FaultDisk) -> (Opening, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    gate.let_pass();
    let (disk, before) = (disk.clone(), gate.clone());
    let mut opening = Opening::new(move |now| {
        before.pass();
        disk.open_store(options(), now)
    });
    opening.reopen_waits = vec![Duration::from_millis(1); 3];
    (opening, gate)
}

/// What a client knows of a stream with one channel, row by row.
#[derive(Default)]
struct Rows {
    known: std::collections::BTreeMap<u64, Value>,
    /// Values that were shown and have no row.
    unrecorded: Vec<Value>,
    epoch: u64,
}

impl Rows {
    /// Takes messages until one of them shows this value.
    async fn follow(&mut self, live: &mut LiveClient, value: u64) {
        loop {
            let message = live.next().await;
            match message["type"].as_str().unwrap() {
                "rewound" => self.rewind(&message),
                "update" => {
                    self.epoch = message["epoch"].as_u64().unwrap();
                    let stream = &message["streams"][0];
                    let cell = &stream["channels"][0];
                    if self.update(stream) && cell[3] == json!(value.to_string()) {
                        return;
                    }
                }
                "error" => panic!("{message}"),
                _ => {}
            }
        }
    }

    fn rewind(&mut self, message: &Value) {
        self.epoch = message["epoch"].as_u64().unwrap();
        self.known.split_off(&big(&message["row"]));
    }

    fn update(&mut self, stream: &Value) -> bool {
        let cell = &stream["channels"][0];
        if stream["from_row"].is_null() {
            assert_eq!(stream["recorded"], false);
            self.unrecorded.push(cell[3].clone());
            return true;
        }
        let rows = big(&stream["from_row"])..big(&stream["to_row"]);
        assert_eq!((rows.end - rows.start, &cell[1]), (1, &json!(1)), "one frame at a time: {stream}");
        assert!(self.known.insert(rows.start, cell[3].clone()).is_none(), "row {} twice", rows.start);
        true
    }
}

async fn pg_count(server: &TestServer) -> Result<i64, String> {
    let pg = server.running.as_ref().unwrap().pg.unwrap();
    let connect = format!("host={} port={} user=test dbname=strongback", pg.ip(), pg.port());
    let (client, connection) = tokio_postgres::connect(&connect, NoTls).await.map_err(|e| e.to_string())?;
    let connection = tokio::spawn(connection);
    let row = client.query_one("select count(*) from ramp", &[]).await.map_err(|e| e.to_string())?;
    drop(client);
    let _ = connection.await;
    Ok(row.get(0))
}

/// A failing disk, from its first failed call to the recorded frame after it.
async fn fail_and_go_on(fail: impl Fn(&FaultDisk)) {
    let disk = FaultDisk::new(2);
    let (opening, gate) = gated(&disk);
    let server = TestServer::on_disk(opening, "").await;
    let mut live = server.live().await;
    let hello = live.next_of("hello").await;
    server.write(&ramp(0, 1)).await;
    live.send(json!({ "type": "subscribe", "id": 1, "channels": ["ramp.*"] })).await;
    live.next_of("subscribed").await;
    let mut rows = Rows::default();
    rows.known.insert(0, json!("0"));
    for n in 1..10 {
        server.write(&ramp(n, 1)).await;
        rows.follow(&mut live, n).await;
    }
    assert_eq!(pg_count(&server).await, Ok(10));

    fail(&disk);
    // Never acknowledged: the row that was shown as provisional goes back.
    refused(&server.post("/write", ramp(10, 1)).await, "");
    rows.follow(&mut live, 10).await;
    let health = server.get("/api/health").await;
    assert_eq!(health.status, 503);
    let message = health.json()["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("not recording: the disk failed"), "{message}");
    assert_eq!(metric(&server, "strongback_recording").await, 0);
    // The disk being reopened darkens no screen.
    refused(&server.post("/write", ramp(11, 1)).await, "the disk failed");
    rows.follow(&mut live, 11).await;
    assert_eq!(rows.unrecorded, [json!("11")]);

    gate.let_pass();
    let rewound = live.next_of("rewound").await;
    assert_eq!((&rewound["id"], &rewound["epoch"], &rewound["row"]), (&json!(1), &json!(2), &json!("10")));
    rows.rewind(&rewound);
    for n in 10..20 {
        server.write(&ramp(n, 1)).await;
        rows.follow(&mut live, n).await;
    }
    assert_eq!(rows.epoch, 2);
    let stored = server.sql("select n from ramp order by time_ns").await;
    let stored: Vec<Value> = stored["rows"].as_array().unwrap().iter().map(|r| r[0].clone()).collect();
    let known: Vec<Value> = rows.known.values().cloned().collect();
    assert_eq!((known.len(), known == stored), (20, true), "{known:?} {stored:?}");
    assert!(rows.known.keys().copied().eq(0..20));

    // A channel that comes now is announced, whatever the old catalog's version was.
    server.write(&format!("ramp n=20i,m=1i {}", BASE + 20)).await;
    assert_eq!(live.next_of("channels").await["channels"][0]["channel"], "m");
    let health = server.json("/api/health").await;
    assert_eq!((&health["status"], &health["epoch"]), (&json!("pass"), &json!(2)));
    assert_eq!(metric(&server, "strongback_store_reopened_total").await, 1);
    assert_eq!(metric(&server, "strongback_epoch").await, 2);
    assert_eq!(
        until(async || pg_count(&server).await.and_then(|n| if n == 21 { Ok(n) } else { Err(n.to_string()) })).await,
        21
    );
    until(async || {
        let (lost, told) = (gap_counts(&server, "not recorded").await, gap_counts(&server, "refused").await);
        let right = lost == [("ramp".to_owned(), 1, 1)] && told == [("ramp".to_owned(), 1, 0)];
        if right { Ok(()) } else { Err(format!("{lost:?} {told:?}")) }
    })
    .await;
    until(async || {
        let sources = check_identity(&server).await;
        let ilp = sources.as_array().unwrap().iter().find(|s| s["name"] == "ilp").unwrap().clone();
        let counts = (big(&ilp["received"]), big(&ilp["stored"]), big(&ilp["rejected"]));
        if counts == (23, 21, 2) { Ok(()) } else { Err(ilp.to_string()) }
    })
    .await;

    // Tokens: what an epoch did not commit is void; what it did holds.
    let token = |epoch: u64, row: &str, committed: &str| json!({ "origin": hello["origin"], "epoch": epoch, "rows": { "0": [row, committed] } });
    for (resume, answer) in [
        (token(1, "11", "10"), Some("10")),
        (token(1, "10", "9"), None),
        (token(2, "21", "15"), None),
        (token(2, "22", "15"), Some("21")),
        (token(3, "5", "5"), Some("0")),
        (json!({ "origin": "00", "epoch": 2, "rows": { "0": ["21", "21"] } }), Some("0")),
    ] {
        let row = answer.unwrap_or(resume["rows"]["0"][0].as_str().unwrap()).parse::<u64>().unwrap();
        let mut back = server.live().await;
        back.send(json!({ "type": "subscribe", "id": 5, "channels": ["ramp.n"], "resume": resume })).await;
        back.next_of("subscribed").await;
        if let Some(answer) = answer {
            let rewound = back.next_of("rewound").await;
            assert_eq!((&rewound["row"], &rewound["epoch"], &rewound["id"]), (&json!(answer), &json!(2), &json!(5)));
        }
        // What came meanwhile follows, each row once.
        if row < 21 {
            let message = loop {
                let message = back.next().await;
                assert_ne!(message["type"], "rewound", "{resume}: {message}");
                if message["type"] == "update" {
                    break message;
                }
            };
            let stream = &message["streams"][0];
            assert_eq!((big(&stream["from_row"]), big(&stream["to_row"])), (row, 21), "{resume}");
            assert_eq!(stream["channels"][0][1].as_u64(), Some(21 - row));
        }
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failed_sync_the_server_goes_on_in_a_new_epoch() {
    fail_and_go_on(|disk| disk.fail_syncs("log", 1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failed_write_the_server_goes_on_in_a_new_epoch() {
    fail_and_go_on(|disk| disk.fail_writes("log", 1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_older_epochs_called_durable_holds() {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::on(folder.path(), "").await;
    server.write(&ramp(0, 8)).await;
    let origin = server.live().await.next_of("hello").await["origin"].clone();
    server.stop().await;
    TestServer::on(folder.path(), "").await.stop().await;
    let server = TestServer::on(folder.path(), "").await;
    for (epoch, row, answer) in [(1, "7", Some("6")), (1, "6", None), (2, "8", None), (2, "9", Some("8"))] {
        let mut live = server.live().await;
        let resume = json!({ "origin": origin, "epoch": epoch, "rows": { "0": [row, "6"] } });
        live.send(json!({ "type": "subscribe", "id": 1, "channels": ["ramp.n"], "resume": resume })).await;
        live.next_of("subscribed").await;
        let message = loop {
            let message = live.next().await;
            if matches!(message["type"].as_str(), Some("rewound" | "heartbeat")) {
                break message;
            }
        };
        let told = message["row"].as_str();
        assert!(told == answer, "epoch {epoch}, row {row}: {message}");
    }
    server.stop().await;
}

/// Runs a server on a disk that fails for good; how often the store was opened, and how it ended.
async fn end_of(disk: &FaultDisk, after_open: impl Fn(&FaultDisk) + Send + Sync + 'static) -> (u64, u8, String) {
    let opened = Arc::new(AtomicU64::new(0));
    let (count, on) = (opened.clone(), disk.clone());
    let mut opening = Opening::new(move |now| {
        count.fetch_add(1, Ordering::Relaxed);
        let store = on.open_store(options(), now);
        after_open(&on);
        store
    });
    opening.reopen_waits = vec![Duration::from_millis(1); 3];
    let mut server = TestServer::on_disk(opening, "").await;
    refused(&server.post("/write", ramp(0, 1)).await, "");
    let running = server.running.take().unwrap();
    let ended = tokio::time::timeout(PATIENCE, running.until_ended(std::future::pending())).await.expect("it goes on");
    let message = ended.as_ref().err().map_or_else(String::new, |e| format!("{e:#}"));
    (opened.load(Ordering::Relaxed), code(&ended), message)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_cannot_be_opened_again_ends_the_server_with_its_own_code() {
    let disk = FaultDisk::new(3);
    let (opened, code, message) = end_of(&disk, |disk| disk.fail_syncs("log", u64::MAX)).await;
    assert_eq!((opened, code), (4, 4), "{message}");
    assert!(message.contains("could not be reopened") && message.contains("log"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_opens_and_never_commits_ends_the_server_too() {
    let disk = FaultDisk::new(4);
    // Only what opening itself writes succeeds.
    let (opened, code, message) = end_of(&disk, |disk| disk.fail_syncs("log", 1)).await;
    assert_eq!((opened, code), (4, 4), "{message}");
    assert!(message.contains("could not be reopened"), "{message}");
}
