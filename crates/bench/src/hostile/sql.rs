//! Delivery of hostile SQL: over HTTP, over the wire, as many statements at once, prepared, cancelled, left unread.
//!
//! Errors are expected; the well-behaved clients tell whether the server and others survive it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use fastrand::Rng;
use futures::future::join_all;
use serde_json::json;
use tokio_postgres::NoTls;

use super::grammar::Grammar;
use super::target::Target;
use crate::http::HttpConnection;

/// Max time that a hostile client waits before it strikes again.
const PATIENCE: Duration = Duration::from_secs(10);

/// Makes one strike.
pub(super) fn strike(target: &Target, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let way = rng.u32(..10);
    let sql = Grammar::new(&mut rng).statement();
    target.strike("sql", seed, &format!("way {way}: {sql}"), || match way {
        0..=3 => http(target.http, &sql),
        4 => unread(target, &sql, &mut rng),
        5 => many(target, &sql, &mut rng),
        _ => wire(target, sql, way, &mut rng),
    });
}

fn http(address: SocketAddr, sql: &str) {
    // Any outcome is allowed: refused, cut or slow.
    let asked = HttpConnection::open(address, PATIENCE)
        .and_then(|mut http| http.post("/api/sql", json!({ "sql": sql, "limit": 100_000 }).to_string().as_bytes()));
    drop(asked);
}

/// Sends a query and does not read the answer.
fn unread(target: &Target, sql: &str, rng: &mut Rng) {
    let body = json!({ "sql": sql, "limit": 100_000 }).to_string();
    let head = format!("POST /api/sql HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n", target.http, body.len());
    let sockets: Vec<TcpStream> = (0..rng.usize(1..20))
        .filter_map(|_| {
            let mut socket = TcpStream::connect_timeout(&target.http, PATIENCE).ok()?;
            socket.set_write_timeout(Some(PATIENCE)).ok()?;
            socket.write_all(head.as_bytes()).ok()?;
            socket.write_all(body.as_bytes()).ok()?;
            Some(socket)
        })
        .collect();
    std::thread::park_timeout(Duration::from_millis(rng.u64(..3_000)));
    drop(sockets);
}

/// Sends thousands of statements in one message.
fn many(target: &Target, sql: &str, rng: &mut Rng) {
    let sql = if sql.len() < 200 && rng.bool() { sql } else { "select 1" };
    let count = (1e5f64.powf(rng.f64()) as usize).min((4 << 20) / (sql.len() + 1));
    let statements = format!("{sql};").repeat(count);
    let startup = b"\0\0\0\x27\0\x03\0\0user\0evil\0database\0strongback\0\0";
    debug_assert_eq!(startup.len(), 0x27);
    let ask = || -> std::io::Result<()> {
        let mut socket = TcpStream::connect_timeout(&target.pg, PATIENCE)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        socket.write_all(startup)?;
        let mut message = vec![b'Q'];
        message.extend_from_slice(&(statements.len() as u32 + 5).to_be_bytes());
        message.extend_from_slice(statements.as_bytes());
        message.push(0);
        socket.write_all(&message)?;
        let mut part = [0; 64 << 10];
        for _ in 0..64 {
            if socket.read(&mut part)? == 0 {
                break;
            }
        }
        Ok(())
    };
    drop(ask());
}

/// Sends a statement over the wire: simple, prepared many times, or cancelled.
fn wire(target: &Target, sql: String, way: u32, rng: &mut Rng) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    let port = target.pg.port();
    let (wait, prepared) = (Duration::from_millis(rng.u64(..2_000)), rng.usize(1..200));
    runtime.block_on(async {
        let work = async {
            let config = format!("host=127.0.0.1 port={port} user=evil dbname=strongback");
            let Ok((client, connection)) = tokio_postgres::connect(&config, NoTls).await else { return };
            tokio::spawn(connection);
            match way {
                6 => {
                    drop(client.simple_query("set statement_timeout = 0").await);
                    drop(tokio::time::timeout(wait, client.simple_query(&sql)).await);
                }
                7 => {
                    // Keep all until the end: their combined cost matters.
                    let statements = join_all((0..prepared).map(|_| client.prepare(&sql))).await;
                    tokio::time::sleep(wait).await;
                    drop(statements);
                }
                _ => {
                    let token = client.cancel_token();
                    let cancel = async {
                        tokio::time::sleep(wait).await;
                        drop(token.cancel_query(NoTls).await);
                    };
                    drop(futures::future::join(client.simple_query(&sql), cancel).await);
                }
            }
        };
        drop(tokio::time::timeout(PATIENCE, work).await);
    });
}
