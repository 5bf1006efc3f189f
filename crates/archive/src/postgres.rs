//! PostgreSQL, and databases with its protocol and COPY, such as TimescaleDB.
//!
//! Each table of the store becomes a table with its columns as in Strongback's own SQL, and `strongback_row`. A delivery
//! is one transaction: it moves the positions in `strongback_positions`, and copies the frames. So each frame is there
//! exactly once, whatever fails, and however often it is delivered. There is no unique index, which would slow writes
//! down; two followers with one name notice each other by their positions.

mod column;
mod copy;
mod table;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use column::PostgresColumns;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use strongback_store::StreamId;
use tokio::runtime::Runtime;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls, Transaction};

pub use tokio_postgres::Config;

use crate::delivery::{Delivery, StreamFrames};
use crate::target::{Delivered, Target, TargetError};
use table::Table;

/// Max time of a delivery.
const DELIVERY: Duration = Duration::from_secs(120);
/// Max time of a connection and its preparations.
const CONNECT: Duration = Duration::from_secs(15);

/// Options of the target.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// Address, user and database.
    pub config: Config,
    /// Schema of the tables, created if missing.
    pub schema: String,
    /// Name of the follower.
    pub follower: String,
    /// Origin of the store.
    pub origin: u128,
}

/// A PostgreSQL database.
pub struct Postgres {
    options: PostgresOptions,
    runtime: Runtime,
    session: Option<Session>,
}

struct Session {
    client: Client,
    /// Positions as the database has them.
    positions: HashMap<StreamId, u64>,
    /// Tables as the database has them, by name.
    tables: BTreeMap<String, Table>,
}

/// Error of a statement, and the streams that it concerns if others may go on.
struct Failure {
    error: tokio_postgres::Error,
    streams: Vec<StreamId>,
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Failure {
        Failure { error, streams: Vec::new() }
    }
}

impl Failure {
    fn of(part: &[&StreamFrames]) -> impl Fn(tokio_postgres::Error) -> Failure {
        let streams: Vec<StreamId> = part.iter().map(|frames| frames.id()).collect();
        move |error| Failure { error, streams: streams.clone() }
    }
}

impl PostgresOptions {
    /// Parses the address of a database: `postgresql://user@host:port/database`, or `host=… user=… dbname=…`.
    ///
    /// # Errors
    /// Returns what is wrong, never including a possible secret.
    pub fn parse(url: &str) -> Result<Config, String> {
        let config: Config = url.parse().map_err(|error: tokio_postgres::Error| words(&error))?;
        if config.get_password().is_some() {
            return Err("the password belongs into password_file".to_owned());
        }
        if config.get_hosts().is_empty() {
            return Err("it names no host".to_owned());
        }
        if config.get_user().is_none() {
            return Err("it names no user, as in postgresql://user@host/database".to_owned());
        }
        if config.get_ssl_mode() == SslMode::Require {
            return Err("sslmode=require is not supported yet".to_owned());
        }
        Ok(config)
    }

    /// Returns an address for people, without a password.
    pub fn shown(config: &Config, schema: &str) -> String {
        let hosts = config.get_hosts().iter().enumerate().map(|(at, host)| {
            let port = config.get_ports().get(at).or(config.get_ports().first()).copied().unwrap_or(5432);
            match host {
                Host::Tcp(name) => format!("{name}:{port}"),
                Host::Unix(path) => format!("{}:{port}", path.display()),
            }
        });
        let (user, hosts) = (config.get_user().unwrap_or_default(), hosts.collect::<Vec<_>>().join(","));
        format!("postgresql://{user}@{hosts}/{} schema {schema}", config.get_dbname().unwrap_or(user))
    }
}

impl Postgres {
    /// Prepares the target. Nothing is connected before the first delivery.
    ///
    /// # Errors
    /// Returns an error if the operating system has no resources left.
    pub fn new(mut options: PostgresOptions) -> std::io::Result<Postgres> {
        let config = &mut options.config;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT);
        }
        config.tcp_user_timeout(Duration::from_secs(30)).application_name("strongback");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Postgres { options, runtime, session: None })
    }
}

impl Target for Postgres {
    fn open(&mut self) -> Result<Option<HashMap<StreamId, u64>>, TargetError> {
        self.session = None;
        let opened = self.runtime.block_on(async { tokio::time::timeout(CONNECT, connect(&self.options)).await });
        let session = match opened {
            Ok(session) => session.map_err(|error| TargetError::Unavailable(words(&error)))?,
            Err(_) => return Err(TargetError::Unavailable("the database does not answer".to_owned())),
        };
        let positions = session.positions.clone();
        self.session = Some(session);
        Ok(Some(positions))
    }

    fn deliver(&mut self, delivery: &Delivery) -> Result<Delivered, TargetError> {
        let Some(session) = &mut self.session else {
            return Err(TargetError::Unavailable("there is no connection".to_owned()));
        };
        let deliver = |session: &mut Session| {
            let delivered = async { tokio::time::timeout(DELIVERY, session.deliver(&self.options, delivery)).await };
            let late = || TargetError::Unavailable(format!("no answer within {} seconds", DELIVERY.as_secs()));
            self.runtime.block_on(delivered).unwrap_or_else(|_| Err(late()))
        };
        let are_known = !session.tables.is_empty();
        let mut delivered = deliver(session);
        if are_known && matches!(delivered, Err(TargetError::Rejected(_) | TargetError::Streams { .. })) {
            // Somebody may have changed a table since it was read.
            session.tables.clear();
            delivered = deliver(session);
        }
        match &delivered {
            // Whether the transaction took place is not known.
            Err(TargetError::Unavailable(_) | TargetError::Moved(_)) => self.session = None,
            Err(_) => session.tables.clear(),
            Ok(_) => {}
        }
        delivered
    }
}

async fn connect(options: &PostgresOptions) -> Result<Session, tokio_postgres::Error> {
    let (mut client, connection) = options.config.connect(NoTls).await?;
    // It ends with the client, and its errors are those of the client's calls.
    tokio::spawn(connection);
    let schema = quoted(&options.schema);
    // Bounds of a clean end, also while nobody is there to notice.
    client.batch_execute("set idle_in_transaction_session_timeout = '150s'").await?;
    let transaction = client.transaction().await?;
    let have = "select 1 from pg_catalog.pg_namespace where nspname = $1";
    if transaction.query_opt(have, &[&options.schema]).await?.is_none() {
        transaction.batch_execute(&format!("create schema if not exists {schema}")).await?;
    }
    transaction
        .batch_execute(&format!(
            "create table if not exists {schema}.strongback_positions (follower text, origin text, stream bigint, \
             name text, previous_row bigint not null, next_row bigint not null, \
             primary key (follower, origin, stream))"
        ))
        .await?;
    transaction.commit().await?;
    let positions = positions(&client, options).await?;
    Ok(Session { client, positions, tables: BTreeMap::new() })
}

async fn positions(
    client: &Client,
    options: &PostgresOptions,
) -> Result<HashMap<StreamId, u64>, tokio_postgres::Error> {
    let schema = quoted(&options.schema);
    let sql = format!("select stream, next_row from {schema}.strongback_positions where follower = $1 and origin = $2");
    let rows = client.query(&sql, &[&options.follower, &origin_text(options)]).await?;
    Ok(rows.iter().map(|row| (StreamId(row.get::<_, i64>(0) as u32), row.get::<_, i64>(1) as u64)).collect())
}

fn origin_text(options: &PostgresOptions) -> String {
    format!("{:032x}", options.origin)
}

impl Session {
    async fn deliver(&mut self, options: &PostgresOptions, delivery: &Delivery) -> Result<Delivered, TargetError> {
        let mut next: BTreeMap<u32, (&StreamFrames, u64)> = BTreeMap::new();
        for part in &delivery.parts {
            next.insert(part.id().0, (part, part.rows().end));
        }
        let mut bytes = 0;
        let transaction = self.client.transaction().await.map_err(|error| classify(error.into()))?;
        let moved = move_positions(&transaction, options, &next, &self.positions).await;
        if !moved.map_err(|error| classify(error.into()))? {
            let name = &options.follower;
            let text = format!("another follower named {name:?} delivers frames of this store into this database");
            return Err(TargetError::Moved(text));
        }
        for (table, parts) in delivery.by_table(str::to_owned) {
            let known = match self.tables.remove(&table) {
                Some(known) => known,
                None => Table::read(&transaction, &options.schema, &table).await.map_err(|e| classify(e.into()))?,
            };
            let copied = known.copy(&transaction, &parts).await;
            let (known, sent) = match copied {
                Ok(copied) => copied,
                Err(table::CopyError::Failed(error)) => return Err(classify(Failure::of(&parts)(error))),
                Err(table::CopyError::Unfit(reason)) => {
                    return Err(TargetError::of(&parts, format!("table {table:?}: {reason}")));
                }
            };
            bytes += sent;
            self.tables.insert(table, known);
        }
        transaction.commit().await.map_err(|error| classify(error.into()))?;
        self.positions.extend(next.into_iter().map(|(stream, (_, row))| (StreamId(stream), row)));
        Ok(Delivered { bytes, altered_values: 0 })
    }
}

/// Moves the positions of streams, and returns whether they were the expected ones. The rows stay locked until the end
/// of the transaction.
async fn move_positions(
    transaction: &Transaction<'_>,
    options: &PostgresOptions,
    next: &BTreeMap<u32, (&StreamFrames, u64)>,
    before: &HashMap<StreamId, u64>,
) -> Result<bool, tokio_postgres::Error> {
    let (mut streams, mut names, mut rows, mut expected) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (stream, (part, row)) in next {
        streams.push(i64::from(*stream));
        names.push(part.stream.key.to_string());
        rows.push(*row as i64);
        expected.push(before.get(&StreamId(*stream)).map_or(-1, |row| *row as i64));
    }
    let schema = quoted(&options.schema);
    let sql = format!(
        "insert into {schema}.strongback_positions as p (follower, origin, stream, name, previous_row, next_row) \
         select $1, $2, s, n, e, r from unnest($3::bigint[], $4::text[], $5::bigint[], $6::bigint[]) as u(s, n, r, e) \
         on conflict (follower, origin, stream) do update \
         set name = excluded.name, previous_row = excluded.previous_row, next_row = excluded.next_row \
         where p.next_row = excluded.previous_row"
    );
    let moved = transaction
        .execute(&sql, &[&options.follower, &origin_text(options), &streams, &names, &rows, &expected])
        .await?;
    Ok(moved == streams.len() as u64)
}

/// Returns what an error means for the delivery.
fn classify(failure: Failure) -> TargetError {
    let Failure { error, streams } = failure;
    let text = words(&error);
    let Some(state) = error.code() else { return TargetError::Unavailable(text) };
    match &state.code()[..2] {
        // More columns than a table can have.
        _ if *state == SqlState::TOO_MANY_COLUMNS && !streams.is_empty() => {
            TargetError::Streams { streams, reason: text }
        }
        // Data exceptions, such as a zero byte in a text, and limits of a row.
        "22" | "54" if !streams.is_empty() => TargetError::Rejected(text),
        // Somebody's constraint.
        "23" if !streams.is_empty() => TargetError::Rejected(text),
        // A table, a column or a permission.
        "42" | "0A" | "P0" if !streams.is_empty() => TargetError::Streams { streams, reason: text },
        _ if *state == SqlState::T_R_DEADLOCK_DETECTED || *state == SqlState::T_R_SERIALIZATION_FAILURE => {
            TargetError::Unavailable(text)
        }
        _ => TargetError::Unavailable(text),
    }
}

/// Returns an error with what the server said.
fn words(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(said) => {
            let detail = said.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
            format!("{}: {}{detail}", said.code().code(), said.message())
        }
        None => {
            let mut text = error.to_string();
            let mut cause = std::error::Error::source(error);
            while let Some(error) = cause {
                text = format!("{text}: {error}");
                cause = error.source();
            }
            text
        }
    }
}

/// Returns an identifier in quotes.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
