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
