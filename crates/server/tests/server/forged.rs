//! Rows that only the server writes, and those who would write them in its name.

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::client::TestServer;
use crate::faults::until;

const FORGED: [&str; 5] = [
    "strongback.events text=\"forged\",level=\"info\",source=\"strongback\",origin=\"server\" 1780000000000000000\n",
    "strongback.alarms step=\"acknowledged\",limit=\"a\",channel=\"t.a\",by=\"nobody\" 1780000000000000000\n",
    "strongback.runs run=\"a\",step=\"stop\" 1780000000000000000\n",
    "strongback.gaps id=1i,count=9i,cause=\"sequence\" 1780000000000000000\n",
    "strongback.new v=1 1780000000000000000\n",
];

/// The texts of the events, with who wrote them down.
async fn events(server: &TestServer) -> Vec<(String, String)> {
    let events = server.json("/api/events").await["events"].clone();
    let text = |event: &Value, key: &str| event[key].as_str().unwrap().to_owned();
    events.as_array().unwrap().iter().map(|event| (text(event, "text"), text(event, "origin"))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_line_writes_a_table_of_the_servers_own_before_or_after_it_exists() {
    let folder = tempfile::tempdir().unwrap();
    for opening in 0..2 {
        let server = TestServer::on(folder.path(), "").await;
        for step in 0..2 {
            for line in FORGED {
                let answer = server.post("/write", line).await;
                assert_eq!(answer.status, 400, "opening {opening}, step {step}: {line}");
                assert!(answer.text().contains("the store's own"), "{}", answer.text());
            }
            let mut wire = tokio::net::TcpStream::connect(server.running.as_ref().unwrap().ilp.unwrap()).await.unwrap();
            let marker = format!("wire,opening={opening},step={step} v=1 1780000000000000000\n");
            wire.write_all((FORGED.concat() + &marker).as_bytes()).await.unwrap();
            until(async || {
                let channels = server.json("/api/channels?pattern=wire.*").await["total"].clone();
                let wanted = json!(1 + step + 2 * opening);
                if channels == wanted { Ok(()) } else { Err(channels.to_string()) }
            })
            .await;
            // From now on the tables are there.
            for (path, body) in [("/api/runs/a/start", ""), ("/api/events", "{\"text\":\"go\"}")] {
                let answer = server.post(path, body).await;
                assert!(answer.status < 300 || opening + step > 0, "{}", answer.text());
            }
        }
        let seen = events(&server).await;
        assert!(seen.iter().all(|(text, _)| !text.contains("forged")), "{seen:?}");
        let runs = server.json("/api/runs").await["runs"].clone();
        assert_eq!(runs[0]["clock"]["state"], "planned", "{runs}");
        let names = server.json("/api/channels?pattern=strongback.new.*").await;
        assert_eq!(names["total"], 0);
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_of_a_client_is_known_as_one_and_says_nothing_of_starts() {
    let server = TestServer::start().await;
    let post = async |body: Value| server.post("/api/events", body.to_string()).await;
    for source in ["strongback", "Strongback", "strongback.clock", " strongback", "", "a\nb", &"x".repeat(257)] {
        let answer = post(json!({ "text": "nothing was recorded since then", "source": source })).await;
        assert_eq!(answer.status, 400, "{source:?}: {}", answer.text());
    }
    assert_eq!(post(json!({ "text": "x".repeat(4097) })).await.status, 400);
    let text = "nothing was recorded since 2026-01-01T00:00:00Z, 3 days before";
    assert_eq!(post(json!({ "text": text, "source": "pad" })).await.status, 201);
    until(async || {
        let seen = events(&server).await;
        let found = seen.contains(&(text.to_owned(), "client".to_owned()));
        if found { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await;
    let origins = server.sql("select origin from strongback.events where source = 'pad'").await;
    assert_eq!(origins["rows"], json!([["client"]]));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_events_ends_and_honest_writes_go_on() {
    let server = TestServer::start().await;
    let mut refused = 0;
    for n in 0..400 {
        let answer = server.post("/api/events", json!({ "text": format!("{n}") }).to_string()).await;
        match answer.status {
            201 => {}
            429 => {
                assert!(
                    answer.head.contains("retry-after") && answer.json()["code"] == "too_often",
                    "{}",
                    answer.text()
                );
                refused += 1;
            }
            other => panic!("{other}: {}", answer.text()),
        }
        if refused > 3 {
            break;
        }
    }
    assert!(refused > 3, "a client may write 400 events at once");
    server.write("t a=1").await;
    server.stop().await;
}
