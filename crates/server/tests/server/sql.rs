//! SQL over the PostgreSQL wire, and exports.

use tokio_postgres::NoTls;

use crate::client::TestServer;

#[tokio::test(flavor = "multi_thread")]
async fn a_written_line_is_read_over_the_postgresql_wire() {
    let server = TestServer::start().await;
    server.write("tank,bay=1 p=31.25,t=-9223372036854775808i 1780000000000000001").await;
    let pg = server.running.as_ref().unwrap().pg.unwrap();
    let connect = format!("host={} port={} user=test dbname=strongback", pg.ip(), pg.port());
    let (client, connection) = tokio_postgres::connect(&connect, NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let row =
        client.query_one("select time_ns, bay, p, t from tank where time_ns = $1", &[&1_780_000_000_000_000_001i64]);
    let row = row.await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 1_780_000_000_000_000_001);
    assert_eq!((row.get::<_, &str>(1), row.get::<_, f64>(2), row.get::<_, i64>(3)), ("1", 31.25, i64::MIN));
    let sources = client.query("select name from strongback.sources where kind = 'ilp'", &[]).await.unwrap();
    assert_eq!(sources[0].get::<_, &str>(0), "ilp");
    // A client that stays does not keep the server from stopping.
    server.stop().await;
    let _ = connection.await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exports_hold_what_was_written() {
    let server = TestServer::start().await;
    server.write("tank,bay=1 p=31.25,n=7i 1780000000000000001\ntank,bay=1 p=31.5,n=8i 1780000000000000002").await;
    let csv = server.get("/api/export?channels=tank.*&format=csv").await;
    assert_eq!(csv.status, 200, "{}", csv.text());
    assert!(csv.head.contains("content-type: text/csv"), "{}", csv.head);
    assert!(csv.text().contains("1780000000000000002") && csv.text().contains("31.5"), "{}", csv.text());
    let part = server.get("/api/export?channels=tank.p&format=jsonl&from=1780000000000000002").await.text();
    assert!(part.contains("31.5") && !part.contains("31.25"), "{part}");
    let parquet = server.get("/api/export?channels=tank.*&format=parquet").await;
    assert_eq!((&parquet.body[..4], &parquet.body[parquet.body.len() - 4..]), (&b"PAR1"[..], &b"PAR1"[..]));
    for wrong in ["format=xls", "from=soon", "channels="] {
        assert_eq!(server.get(&format!("/api/export?{wrong}")).await.status, 400, "{wrong}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exports_are_in_the_order_of_time_however_late_frames_came() {
    const T0: i64 = 1_780_000_000_000_000_000;
    let server = TestServer::start().await;
    let mut random = fastrand::Rng::with_seed(5);
    // A stream in order, one with a few late frames, one in no order at all; some instants twice.
    let mut written: Vec<(i64, &str, i64)> = Vec::new();
    for (stream, spread) in [("a", 0), ("b", 3), ("c", 1_500)] {
        let mut order: Vec<i64> = (0..1_500).collect();
        for at in (0..order.len()).filter(|_| spread > 0) {
            let other = (at + random.usize(0..spread)).min(order.len() - 1);
            order.swap(at, other);
        }
        for chunk in order.chunks(300) {
            let line = |n: &i64| format!("late,s={stream} n={n}i {}\n", T0 + n / 2 * 1_000_000);
            server.write(&chunk.iter().map(line).collect::<String>()).await;
        }
        written.extend(order.iter().map(|n| (T0 + n / 2 * 1_000_000, stream, *n)));
    }
    // Of equal times as they are stored.
    written.sort_by_key(|(time, stream, _)| (*time, *stream));
    for (from, to) in [(0, 1_500), (3, 701)] {
        let (from, to) = (T0 + from * 1_000_000, T0 + to * 1_000_000);
        let path = format!("/api/export?channels=late.*&format=csv&from={from}&to={to}");
        let csv = server.get(&path).await.text();
        let mut found = Vec::new();
        for line in csv.lines().skip(1) {
            let cells: Vec<&str> = line.split(',').collect();
            let stream = ["a", "b", "c"].into_iter().find(|s| cells[2].contains(&format!("s={s}"))).unwrap();
            let value = cells[4..].iter().find(|cell| !cell.is_empty()).unwrap();
            found.push((cells[1].parse::<i64>().unwrap(), stream, value.parse::<i64>().unwrap()));
        }
        let want: Vec<_> = written.iter().filter(|(time, ..)| (from..to).contains(time)).copied().collect();
        assert_eq!(found, want);
    }
    server.stop().await;
}
