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
    // One of several patterns that is wrong is as wrong as a single one.
    for wrong in ["tank.q", "tank.p,tank.q", "tank.q,tank.*"] {
        let answer = server.get(&format!("/api/export?channels={wrong}")).await;
        assert!(answer.status >= 400 && answer.text().contains("no channel matches"), "{wrong}: {}", answer.text());
        assert!(!wrong.contains(',') || answer.text().contains("no channel matches tank.q"), "{}", answer.text());
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_records_of_a_new_server_are_tables_without_rows() {
    let server = TestServer::start().await;
    let times = "time time_ns receive_time receive_time_ns source_time source_time_ns sequence";
    for (table, wanted) in [
        ("alarms", "channel limit step level before why value text bound by note until number"),
        ("late", "stream row judged_ns derived"),
        ("judged", "since_ns"),
        ("derived", "evaluation run stream row seen memory at_ns from_row"),
        ("clocks", "source stream offset_ns drift_ppm spread_ns state jumps"),
        ("node_clock", "state by offset_ns bound_ns frequency_ppm skew_ppm stratum reference leap"),
    ] {
        let answer = server.sql(&format!("select * from strongback.{table} where time < '2001-01-01'")).await;
        let columns: Vec<&str> =
            answer["columns"].as_array().unwrap().iter().map(|column| column["name"].as_str().unwrap()).collect();
        assert_eq!(columns.join(" "), format!("{times} {wanted}"), "{table}");
        assert_eq!(answer["rows"].as_array().map(Vec::len), Some(0), "{table}");
    }
    let listed = "select count(*) from information_schema.tables where table_schema = 'strongback'";
    assert_eq!(server.sql(listed).await["rows"][0][0], "14");
    server.stop().await;
}
