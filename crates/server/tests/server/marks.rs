//! Marks: made and listed over REST, kept over a restart, and applied by every way to read stored values.

use serde_json::{Value, json};

use crate::client::TestServer;
use crate::faults::until;

/// Times and values of a channel, over REST.
async fn history(server: &TestServer, more: &str) -> Vec<(String, f64)> {
    let path = format!("/api/history?channels=tank.p&from=0&to=100{more}");
    let series = server.json(&path).await["series"][0].clone();
    let bucket = |bucket: &Value| (bucket[0].as_str().unwrap().to_owned(), bucket[2].as_f64().unwrap());
    series["buckets"].as_array().unwrap().iter().map(bucket).collect()
}

fn times(found: &[(String, f64)]) -> Vec<&str> {
    found.iter().map(|(time, _)| time.as_str()).collect()
}

/// A server with `tank.p` and `tank.t` at 10, 20, … 90.
async fn filled(folder: &std::path::Path) -> TestServer {
    let server = TestServer::on(folder, "").await;
    let lines: Vec<String> = (1..10).map(|n| format!("tank p={n}.5,t={n}i {}", n * 10)).collect();
    server.write(&lines.join("\n")).await;
    server
}

async fn mark(server: &TestServer, quality: &str, from: i64, to: i64) -> Value {
    let body = json!({
        "channels": ["tank.p"], "from": from, "to": to, "quality": quality, "by": "ada", "reason": "loose cable",
    });
    let answer = server.post("/api/marks", body.to_string()).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_values_are_left_out_until_they_are_good_again() {
    let folder = tempfile::tempdir().unwrap();
    let server = filled(folder.path()).await;
    let marked = mark(&server, "bad", 30, 61).await["marks"][0].clone();
    assert_eq!(
        (&marked["id"], &marked["channel"], &marked["from"], &marked["to"], &marked["quality"], &marked["by"]),
        (&json!("1"), &json!("tank.p"), &json!("30"), &json!("61"), &json!("bad"), &json!("ada"))
    );
    assert_eq!(times(&history(&server, "").await), ["10", "20", "70", "80", "90"]);
    assert_eq!(history(&server, "&marks=ignore").await.len(), 9);
    let rows = server.sql("select count(*), count(p), sum(t), max(p) from tank where time_ns < 65").await;
    assert_eq!(rows["rows"], json!([["6", "2", "21", 2.5]]));
    let state = |more: &str| format!("/api/state?at=65&channels=tank.p{more}");
    assert_eq!(server.json(&state("")).await["state"][0]["time"], "20");
    assert_eq!(server.json(&state("&marks=ignore")).await["state"][0]["time"], "60");
    let body = json!({ "sql": "select count(p) from tank", "marks": "ignore" }).to_string();
    assert_eq!(server.post("/api/sql", body).await.json()["rows"], json!([["9"]]));
    mark(&server, "good", 40, 50).await;
    mark(&server, "uncertain", 85, 95).await;
    assert_eq!(times(&history(&server, "").await), ["10", "20", "40", "70", "80", "90"]);
    let spans = |list: &Value| -> Vec<(String, String, String)> {
        let text = |mark: &Value, key: &str| mark[key].as_str().unwrap().to_owned();
        let marks = list["marks"].as_array().unwrap();
        marks.iter().map(|mark| (text(mark, "from"), text(mark, "to"), text(mark, "quality"))).collect()
    };
    let span = |from: &str, to: &str, quality: &str| (from.to_owned(), to.to_owned(), quality.to_owned());
    let counting =
        vec![span("30", "40", "bad"), span("40", "50", "good"), span("50", "61", "bad"), span("85", "95", "uncertain")];
    assert_eq!(spans(&server.json("/api/marks").await), counting);
    assert_eq!(spans(&server.json("/api/marks?channels=tank.*&from=45&to=55").await), counting[1..3]);
    assert_eq!(spans(&server.json("/api/marks?channels=tank.t").await), []);
    let all = server.json("/api/marks?all=true&limit=2").await;
    assert_eq!((spans(&all), &all["truncated"]), (vec![counting[3].clone(), counting[1].clone()], &json!(true)));
    server.stop().await;
    // The store keeps the marks, and all values.
    let server = TestServer::on(folder.path(), "").await;
    assert_eq!(times(&history(&server, "").await), ["10", "20", "40", "70", "80", "90"]);
    assert_eq!(history(&server, "&marks=ignore").await.len(), 9);
    assert_eq!(spans(&server.json("/api/marks").await), counting);
    let rows =
        server.sql("select id, quality, by, reason, from_time_ns, to_time_ns from strongback.marks order by id").await;
    assert_eq!(rows["rows"][2], json!(["3", "uncertain", "ada", "loose cable", "85", "95"]));
    let sql = "select m.from_time_ns, m.quality from marks('tank.*', '1970-01-01', '1971-01-01') m order by 1";
    assert_eq!(
        server.sql(sql).await["rows"],
        json!([["30", "bad"], ["40", "good"], ["50", "bad"], ["85", "uncertain"]])
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exports_carry_qualities_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let server = filled(folder.path()).await;
    mark(&server, "bad", 30, 41).await;
    mark(&server, "uncertain", 50, 51).await;
    let export =
        async |more: &str| server.get(&format!("/api/export?channels=tank.*&from=25&to=55{more}")).await.text();
    let values =
        |text: &str| -> Vec<String> { text.lines().map(|line| line.split_once(',').unwrap().1.to_owned()).collect() };
    assert_eq!(
        values(&export("").await),
        ["time_ns,stream,gap,tank.p,tank.t", "30,tank,,,3", "40,tank,,,4", "50,tank,,5.5,5"]
    );
    assert_eq!(values(&export("&marks=ignore").await)[1..], ["30,tank,,3.5,3", "40,tank,,4.5,4", "50,tank,,5.5,5"]);
    assert_eq!(
        values(&export("&marks=show").await),
        [
            "time_ns,stream,gap,tank.p,tank.t,tank.p_quality",
            "30,tank,,3.5,3,bad",
            "40,tank,,4.5,4,bad",
            "50,tank,,5.5,5,uncertain"
        ]
    );
    let lines = export("&marks=show&format=jsonl").await;
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[1]["quality"], json!({ "tank.p": "bad" }));
    assert_eq!(lines[3]["quality"], json!({ "tank.p": "uncertain" }));
    assert!(lines[1]["values"]["tank.p"].as_f64() == Some(3.5) && lines.len() == 4, "{lines:?}");
    let refused = server.get("/api/export?channels=tank.*&marks=yes").await;
    assert!(refused.status == 400 && refused.text().contains("none of apply, ignore, show"), "{}", refused.text());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn marks_that_cannot_be_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let server = filled(folder.path()).await;
    let right = json!({ "channels": "tank.p", "from": 10, "to": 20, "quality": "bad", "by": "ada", "reason": "cable" });
    for (key, value, why) in [
        ("channels", json!("tank.q"), "no channel matches tank.q; the nearest: tank.p, tank.t"),
        ("channels", json!(["tank.p", "pump.*"]), "no channel matches pump.*"),
        ("channels", json!([]), "channels is empty"),
        ("channels", json!("strongback.events.text"), "no channel matches strongback.events.text"),
        ("to", json!(5), "from is after to"),
        ("to", json!("10"), "from is to, which is exclusive"),
        ("to", json!("tomorrow"), "tomorrow"),
        ("to", json!(null), "from and to are needed"),
        ("at", json!(5), "at is one instant"),
        ("quality", json!("fine"), "quality \\\"fine\\\" is none of bad, uncertain, good"),
        ("by", json!(""), "by, who marks"),
        ("reason", json!(" "), "reason has 1 to 4096 bytes without control characters"),
        ("color", json!("red"), "unknown field"),
    ] {
        let mut body = right.clone();
        body[key] = value;
        let answer = server.post("/api/marks", body.to_string()).await;
        assert!(answer.status == 400 && answer.text().contains(why), "{body}: {} {}", answer.status, answer.text());
    }
    assert_eq!(server.json("/api/marks?all=true").await["marks"], json!([]));
    let mut body = right.clone();
    body.as_object_mut().unwrap().retain(|key, _| !["from", "to"].contains(&key.as_str()));
    body["at"] = json!(40);
    assert_eq!(server.post("/api/marks", body.to_string()).await.status, 201);
    assert_eq!(server.sql("select count(p) from tank").await["rows"], json!([["8"]]));
    for path in ["/api/history?channels=tank.p&marks=no", "/api/state?marks=no", "/api/marks?from=20&to=10"] {
        assert_eq!(server.get(path).await.status, 400, "{path}");
    }
    // Events are read by a follower of the store.
    until(async || {
        let events = server.json("/api/events").await["events"].clone();
        let texts = events.as_array().unwrap().iter().filter_map(|event| event["text"].as_str());
        let is_told = |text: &str| text.starts_with("tank.p: bad at 1970") && text.ends_with("by ada: cable");
        if texts.into_iter().any(is_told) { Ok(()) } else { Err(events.to_string()) }
    })
    .await;
    server.stop().await;
}
