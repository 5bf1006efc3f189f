//! Clocks of sources, times between frames, and what packets say of themselves: by real packets to a real server.

use std::time::Duration;

use serde_json::Value;
use tokio::net::UdpSocket;

use crate::client::{PATIENCE, TestServer, big};

/// Two streams: one by its own clock, one whose payload is parser-aligned.
const SOURCE: &str = "[[source]]\nname = \"fti\"\nkind = \"inetx\"\nlisten = \"127.0.0.1:0\"\nCLOCK\n\
    groups = [{ address = \"239.192.7.7:0\", interface = \"lo\" }]\n\
    [[source.stream]]\nid = 1\ntable = \"fti.bay\"\nperiod_ms = 5.0\n\
    [[source.stream.channel]]\nname = \"t\"\noffset = 0\ntype = \"u32\"\n\
    [[source.stream]]\nid = 2\ntable = \"fti.packets\"\npayload = \"parser-aligned\"\n\
    [[source.stream.block]]\nbus = 3\ntable = \"fti.bus\"\nheaders = [\"error\", \"message_count\"]\n\
    [[source.stream.block.channel]]\nname = \"word\"\noffset = 0\ntype = \"u16\"\n";

fn packet(id: u32, sequence: u32, stamp_ns: u64, pif: u32, payload: &[u8]) -> Vec<u8> {
    let (s, ns) = ((stamp_ns / 1_000_000_000) as u32, (stamp_ns % 1_000_000_000) as u32);
    let head = [0x1100_0000, id, sequence, 28 + payload.len() as u32, s, ns, pif].map(u32::to_be_bytes).concat();
    [&head, payload].concat()
}

fn now_ns() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// Asks again until the answer is right, while `send` sends.
async fn until<T>(what: &str, mut send: impl AsyncFnMut(), mut ask: impl AsyncFnMut() -> Result<T, Value>) -> T {
    let end = tokio::time::Instant::now() + PATIENCE;
    loop {
        send().await;
        match ask().await {
            Ok(right) => return right,
            Err(wrong) => assert!(tokio::time::Instant::now() < end, "{what}: {wrong}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A stream of the source, by its name.
async fn stream(server: &TestServer, name: &str) -> Value {
    let source = server.json("/api/sources/fti").await;
    let streams = source["streams"].as_array().unwrap();
    streams.iter().find(|stream| stream["name"] == name).cloned().unwrap_or_default()
}

async fn event(server: &TestServer, part: &str) -> Result<Value, Value> {
    let events = server.json("/api/events?from=now-1h").await;
    let found = events["events"].as_array().unwrap().iter().find(|e| e["text"].as_str().unwrap().contains(part));
    found.cloned().ok_or(events)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_is_measured_from_the_first_seconds_on() {
    let server = TestServer::with(&SOURCE.replace("CLOCK", "")).await;
    let address = server.running.as_ref().unwrap().packets[0].1;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut sequence = 0;
    let send = async || {
        sequence += 1;
        // Three seconds behind.
        let packet = packet(1, sequence, now_ns() - 3_000_000_000, 0, &sequence.to_be_bytes());
        socket.send_to(&packet, address).await.unwrap();
    };
    let card = until("a clock, and times between frames", send, async || {
        let card = stream(&server, "fti.bay").await;
        if card["clock"].is_null() || card["inter_arrival"].is_null() { Err(card) } else { Ok(card) }
    })
    .await;
    let clock = &card["clock"];
    assert_eq!((&clock["state"], &clock["jumps"]), (&Value::from("learning"), &Value::from("0")), "{clock}");
    let offset: i64 = clock["offset_ns"].as_str().unwrap().parse().unwrap();
    // The way on loopback is short, however busy the machine is.
    assert!((-3_500_000_000..=-3_000_000_000).contains(&offset), "{clock}");
    assert_eq!(card["inter_arrival"]["nominal_ns"], "5000000", "{card}");
    let counted: u64 = card["inter_arrival"]["counts"].as_array().unwrap().iter().map(big).sum();
    assert!(counted > 0 && counted < big(&card["received"]), "{card}");
    let metrics = server.get("/metrics").await.text();
    assert!(metrics.contains("strongback_source_clock_state{source=\"fti\",state=\"learning\",stream=\"fti.bay\"} 1"));
    assert!(
        metrics.contains("strongback_source_clock_offset_seconds{source=\"fti\",stream=\"fti.bay\"} -3."),
        "{metrics}"
    );
    // A stream without frames has neither.
    let packets = stream(&server, "fti.packets").await;
    assert_eq!((&packets["clock"], &packets["inter_arrival"]), (&Value::Null, &Value::Null));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_was_never_set_is_not_believed_until_it_is() {
    let server = TestServer::with(&SOURCE.replace("CLOCK", "clock = \"source\"")).await;
    let address = server.running.as_ref().unwrap().packets[0].1;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(&packet(1, 0, 755_749_999_500, 0, &[0; 4]), address).await.unwrap();
    let told = until("an event", async || {}, async || event(&server, "was never set").await).await;
    assert_eq!((&told["level"], &told["source"]), (&Value::from("warning"), &Value::from("fti")));
    assert!(
        told["text"]
            .as_str()
            .unwrap()
            .starts_with("fti.bay (stream 0x00000001): its clock was never set: its stamp is 755.750 s")
    );
    let card = stream(&server, "fti.bay").await;
    assert_eq!(card["clock"]["state"], "never set", "{card}");
    let offset: i64 = card["clock"]["offset_ns"].as_str().unwrap().parse().unwrap();
    assert!(offset < -1_500_000_000 * 1_000_000_000, "{card}");
    assert_eq!(card["packets"]["never_set"], "1", "{card}");
    socket.send_to(&packet(1, 1, now_ns(), 0, &[0; 4]), address).await.unwrap();
    until("an event", async || {}, async || event(&server, "its clock is set now").await).await;
    let rows =
        server.sql("select time_ns = receive_time_ns, source_time is null from \"fti.bay\" order by sequence").await;
    assert_eq!(rows["rows"], serde_json::json!([[true, true], [false, false]]));
    assert_ne!(stream(&server, "fti.bay").await["clock"]["state"], "never set");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_are_rows_and_what_the_chassis_says_is_counted_and_told() {
    let server = TestServer::with(&SOURCE.replace("CLOCK", "")).await;
    let addresses: Vec<_> = server.running.as_ref().unwrap().packets.iter().map(|p| p.1).collect();
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let block = |error: u8, count: u8, bus: u8, elapsed_ns: u32, word: u16| {
        [&[error << 7, 3, count, bus][..], &elapsed_ns.to_be_bytes(), &word.to_be_bytes(), &[0; 2]].concat()
    };
    let payload = [block(0, 1, 3, 1_000, 500), block(1, 2, 3, 2_000, 600), block(0, 3, 9, 3_000, 700)].concat();
    let stamp = now_ns() / 1_000 * 1_000;
    // An error, three messages lost, a timeout; over both ways.
    let pif = 1 << 31 | 3 << 27 | 1 << 26;
    for address in &addresses {
        socket.send_to(&packet(2, 7, stamp, pif, &payload), address).await.unwrap();
    }
    socket.send_to(&packet(2, 8, stamp + 1, 0, &payload[..20]), addresses[0]).await.unwrap();
    let card = until(
        "both packets",
        async || {},
        async || {
            let card = stream(&server, "fti.packets").await;
            let all = card["received"] == "3" && card["packets"]["payload_errors"] == "2";
            if all { Ok(card) } else { Err(card) }
        },
    )
    .await;
    let of = |name: &str| big(&card["packets"][name]);
    assert_eq!((of("chassis_lost"), of("timeouts"), of("never_set")), (6, 2, 0), "{card}");
    assert_eq!((of("blocks"), of("block_errors"), of("unmapped_blocks")), (6, 2, 2), "{card}");
    assert_eq!(
        (&card["stored"], &card["duplicate"], &card["rejected"]),
        (&"1".into(), &"1".into(), &"1".into()),
        "{card}"
    );
    let rows =
        server.sql("select source_time_ns, word, error, message_count from \"fti.bus\" order by source_time_ns").await;
    let time = |after: u64| (stamp + after).to_string();
    assert_eq!(rows["rows"], serde_json::json!([[time(1_000), 500, false, 1], [time(2_000), 600, true, 2]]));
    let rows = server.sql("select blocks, block_errors from \"fti.packets\"").await;
    assert_eq!(rows["rows"], serde_json::json!([[3, 1]]));
    for part in ["marks payloads as erroneous", "lost 3 messages", "their time is over", "marks messages as erroneous"]
    {
        until("an event", async || {}, async || event(&server, part).await).await;
    }
    // The rejected packet is counted once, by the store, and not by the source again.
    until(
        "the books of the source",
        async || {},
        async || {
            let cards = server.json("/api/sources").await["sources"].clone();
            let card = cards.as_array().unwrap().iter().find(|card| card["name"] == "fti").cloned().unwrap_or_default();
            let books = ["received", "stored", "duplicate", "rejected"].map(|name| card[name].clone());
            if books == ["5", "3", "1", "1"] { Ok(()) } else { Err(card) }
        },
    )
    .await;
    let source = server.json("/api/sources/fti").await;
    assert_eq!(source["rejected"][0]["reason"], "bad_block", "{source}");
    let metrics = server.get("/metrics").await.text();
    assert!(
        metrics.contains("strongback_packet_chassis_lost_total{source=\"fti\",stream_id=\"0x00000002\"} 6"),
        "{metrics}"
    );
    server.stop().await;
}
