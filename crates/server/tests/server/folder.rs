//! The folder of the store, removed or replaced while the server runs.

use strongback_store::{Store, StoreOptions};

use crate::client::TestServer;
use crate::faults::until;

const READY: &str = "ready for queries and writes";

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_removed_is_told_not_made_again_and_taken_up_when_it_is_back() {
    let parent = tempfile::tempdir().unwrap();
    let (dir, aside) = (parent.path().join("data"), parent.path().join("aside"));
    let server = TestServer::on(&dir, "").await;
    server.write("t a=1 1780000000000000001").await;
    std::fs::rename(&dir, &aside).unwrap();
    until(async || {
        let answer = server.post("/write", "t a=2 1780000000000000002").await;
        if answer.status == 503 { Ok(()) } else { Err(format!("{}: {}", answer.status, answer.text())) }
    })
    .await;
    // Longer than all the attempts that a failed disk has.
    let health = until(async || {
        let answer = server.get("/api/health").await;
        let health = answer.json();
        let is_told = health["message"].as_str().unwrap().contains("removed while it was open");
        if answer.status == 503 && is_told { Ok(health) } else { Err(health.to_string()) }
    })
    .await;
    assert_eq!((health["status"].as_str(), health["store"]["recording"].as_bool()), (Some("fail"), Some(false)));
    assert!(!dir.exists(), "a store was made in the place of the one that was removed");
    // Another store in its place is none of this server.
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("superblock"), "another").unwrap();
    until(async || {
        let health = server.get("/api/health").await.json();
        let is_told = health["message"].as_str().unwrap().contains("not the store that was open");
        if is_told { Ok(()) } else { Err(health.to_string()) }
    })
    .await;
    assert_eq!(std::fs::read(dir.join("superblock")).unwrap(), b"another");
    std::fs::remove_dir_all(&dir).unwrap();
    let other = Store::open(&dir, StoreOptions { log_bytes: 1 << 20, ..StoreOptions::default() }, 1).unwrap();
    let (origin, epoch) = (other.origin(), other.epoch());
    other.close(2).unwrap();
    drop(other);
    until(async || {
        let health = server.get("/api/health").await.json();
        let message = health["message"].as_str().unwrap();
        let is_told =
            message.starts_with("not recording: the disk cannot be written: ") && message.contains("another store");
        if is_told { Ok(()) } else { Err(health.to_string()) }
    })
    .await;
    let other = Store::open(&dir, StoreOptions::default(), 3).unwrap();
    assert_eq!((other.origin(), other.epoch()), (origin, epoch + 1), "it was opened meanwhile");
    other.close(4).unwrap();
    drop(other);
    std::fs::remove_dir_all(&dir).unwrap();
    std::fs::rename(&aside, &dir).unwrap();
    until(async || {
        let answer = server.post("/write", "t a=3 1780000000000000003").await;
        if answer.status == 204 { Ok(()) } else { Err(format!("{}: {}", answer.status, answer.text())) }
    })
    .await;
    let rows = server.sql("select a from t order by time").await["rows"].clone();
    assert!(rows.as_array().unwrap().len() >= 2 && rows[0][0] == 1.0, "{rows}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn health_names_what_an_opening_found_missing() {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::on(folder.path(), "").await;
    let health = server.json("/api/health").await;
    assert_eq!((health["store"]["damaged_places"].as_u64(), health["message"].as_str()), (Some(0), Some(READY)));
    server
        .write(&(0..2000).map(|n| format!("t a={n} {}\n", 1_780_000_000_000_000_000_u64 + n)).collect::<String>())
        .await;
    server.stop().await;
    let mut removed = Vec::new();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if name.ends_with(".sbs") {
            std::fs::remove_file(entry.path()).unwrap();
            removed.push(name);
        }
    }
    assert!(!removed.is_empty());
    let server = TestServer::on(folder.path(), "").await;
    let health = server.json("/api/health").await;
    let damaged = health["store"]["damaged"].as_array().unwrap();
    assert!(
        health["store"]["damaged_places"].as_u64() == Some(damaged.len() as u64) && !damaged.is_empty(),
        "{health}"
    );
    assert!(damaged.iter().all(|d| removed.contains(&d["file"].as_str().unwrap().to_owned())), "{health}");
    let message = health["message"].as_str().unwrap();
    assert!(message.starts_with(READY) && message.contains("strongback store verify"), "{message}");
    server.stop().await;
}
