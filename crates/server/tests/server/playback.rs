//! Playback over a disk that fails: what was recorded is played on in the new epoch.

use serde_json::{Value, json};
use strongback_store::FaultDisk;

use crate::client::{LiveClient, TestServer, big};
use crate::faults::{opening, until};

const BASE: u64 = 1_780_000_000_000_000_000;

async fn control(server: &TestServer, session: &Value, command: Value) -> Value {
    let mut body = command;
    body["director"] = session["director"].clone();
    let answer = server.post(&format!("/api/playbacks/{}", session["id"].as_str().unwrap()), body.to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// Reads on until so many frames more were told; the epoch of the last.
async fn follow(viewer: &mut LiveClient, frames: u64) -> u64 {
    let mut rows = 0;
    loop {
        let update = viewer.next_of("update").await;
        for stream in update["streams"].as_array().unwrap() {
            rows += stream["channels"][0][1].as_u64().unwrap();
            assert_eq!(big(&stream["to_row"]) - big(&stream["from_row"]), stream["channels"][0][1].as_u64().unwrap());
        }
        assert!(rows <= frames, "{rows} of {frames} frames");
        if rows == frames {
            return update["epoch"].as_u64().unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_disk_failed_it_goes_on_where_it_was() {
    let disk = FaultDisk::new(7);
    let server = TestServer::on_disk(opening(&disk), "").await;
    let lines: String = (0..200).map(|n| format!("ramp n={n}i {}\n", BASE + n * 10_000_000)).collect();
    server.write(&lines).await;
    let wanted = json!({ "from": BASE.to_string(), "to": (BASE + 2_000_000_000).to_string(), "paused": true });
    let started = server.post("/api/playbacks", wanted.to_string()).await;
    assert_eq!(started.status, 201, "{}", started.text());
    let session = started.json();
    let url = format!("ws://{}/api/live?playback={}", server.http, session["id"].as_str().unwrap());
    let (socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
    let mut viewer = LiveClient { socket, protocol: None };
    viewer.send(json!({ "type": "subscribe", "id": 1, "channels": ["ramp.n"] })).await;
    viewer.next_of("snapshot").await;
    let state = control(&server, &session, json!({ "do": "step", "frames": 80 })).await;
    assert_eq!(big(&state["at"]), BASE + 79 * 10_000_000);
    assert_eq!(follow(&mut viewer, 80).await, 1);

    disk.fail_syncs("log", 1);
    assert_eq!(server.post("/write", "other n=1i").await.status, 503);
    until(async || {
        let health = server.get("/api/health").await.json();
        if health["epoch"] == 2 && health["status"] == "pass" { Ok(()) } else { Err(health.to_string()) }
    })
    .await;
    let state = control(&server, &session, json!({ "do": "step", "frames": 10_000 })).await;
    assert_eq!((&state["ended"], &state["behind"]), (&json!(true), &json!(false)));
    assert_eq!(follow(&mut viewer, 120).await, 2);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_client_may_have_all_the_playbacks_that_there_may_be() {
    let server = TestServer::start().await;
    let wanted = json!({ "from": BASE.to_string(), "to": (BASE + 2_000_000_000).to_string() }).to_string();
    for n in 0..32 {
        let answer = server.post("/api/playbacks", &wanted).await;
        assert_eq!(answer.status, 201, "{n}: {}", answer.text());
    }
    let answer = server.post("/api/playbacks", &wanted).await;
    assert!(answer.status == 503 && answer.text().contains("32 playbacks"), "{}", answer.text());
    server.stop().await;
}
