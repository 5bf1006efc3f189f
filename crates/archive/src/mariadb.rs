//! MariaDB and MySQL.
//!
//! Each table of the store becomes a table with its columns as in Strongback's own SQL, and `strongback_row`. A delivery
//! is one transaction: it moves the positions in `strongback_positions`, and loads the frames. So each frame is there
//! exactly once, whatever fails. Tables are made and altered before it, because such a statement ends a transaction.
//!
//! Frames go by `LOAD DATA LOCAL`, the bulk path, which takes twice the rows of long `INSERT` statements. It alters what
//! does not fit and warns, so that any warning undoes the delivery.

mod column;
mod load;
mod table;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use column::MariadbColumns;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error, Opts, OptsBuilder, ServerError};
use strongback_store::StreamId;
use tokio::runtime::Runtime;
use ureq::http::Uri;

use crate::delivery::{Delivery, StreamFrames};
use crate::target::{Delivered, Target, TargetError};
use table::Table;

/// Max time of a delivery.
const DELIVERY: Duration = Duration::from_secs(120);
/// Max time of a connection and its preparations.
const CONNECT: Duration = Duration::from_secs(15);
const PORT: u16 = 3306;

/// Options of the target.
#[derive(Clone)]
pub struct MariadbOptions {
    /// Address, user and database.
    pub address: MariadbAddress,
    /// Password of the user.
    pub password: Option<String>,
    /// Name of the follower.
    pub follower: String,
    /// Origin of the store.
    pub origin: u128,
}

/// Address of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MariadbAddress {
    /// Name or number of the host.
    pub host: String,
    /// Port.
    pub port: u16,
    /// User.
    pub user: String,
    /// Database.
    pub database: String,
}

/// A MariaDB or MySQL database.
pub struct Mariadb {
    opts: Opts,
    follower: String,
    origin: String,
    runtime: Runtime,
    session: Option<Session>,
}

struct Session {
    conn: Conn,
    /// Positions as the database has them.
    positions: HashMap<StreamId, u64>,
    /// Tables as the database has them, by their names here.
    tables: BTreeMap<String, Table>,
}

/// Reason why a step failed.
enum Failure {
    /// The database says so, or does not answer.
    Failed(Error),
    /// Frames cannot be in this table, in words.
    Unfit(String),
    /// Frames have something that the table cannot hold, in words.
    Rejected(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Failed(error)
    }
}

impl MariadbAddress {
    /// Parses `mariadb://user@host:port/database`, also with `mysql`.
    ///
    /// # Errors
    /// Returns what is wrong, never including a possible secret.
    pub fn parse(url: &str) -> Result<MariadbAddress, String> {
        let uri: Uri = url.parse().map_err(|error| format!("{error}"))?;
        if !matches!(uri.scheme_str(), Some("mariadb" | "mysql")) {
            return Err("it must be as in mariadb://user@host:3306/database".to_owned());
        }
        let Some(authority) = uri.authority().filter(|authority| !authority.host().is_empty()) else {
            return Err("it names no host".to_owned());
        };
        let user = match authority.as_str().rsplit_once('@') {
            Some((user, _)) if user.contains(':') => return Err("the password belongs into password_file".to_owned()),
            Some((user, _)) if !user.is_empty() => user.to_owned(),
            _ => return Err("it names no user, as in mariadb://user@host/database".to_owned()),
        };
        let database = uri.path().trim_matches('/').to_owned();
        if database.is_empty() || database.contains('/') {
            return Err("it names no database, as in mariadb://user@host/database".to_owned());
        }
        if uri.query().is_some() {
            return Err("it must have no parameters".to_owned());
        }
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        Ok(MariadbAddress { host, port: authority.port_u16().unwrap_or(PORT), user, database })
    }
}

impl std::fmt::Display for MariadbAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let MariadbAddress { host, port, user, database } = self;
        write!(f, "mariadb://{user}@{host}:{port}/{database}")
    }
}

impl Mariadb {
    /// Prepares the target. Nothing is connected before the first delivery.
    ///
    /// # Errors
    /// Returns an error if the operating system has no resources left.
    pub fn new(options: MariadbOptions) -> std::io::Result<Mariadb> {
        let MariadbAddress { host, port, user, database } = options.address;
        let opts = OptsBuilder::default()
            .ip_or_hostname(host)
            .tcp_port(port)
            .user(Some(user))
            .pass(options.password)
            .db_name(Some(database))
            .prefer_socket(false)
            .tcp_keepalive(Some(Duration::from_secs(30)))
            .stmt_cache_size(0);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Mariadb {
            opts: opts.into(),
            follower: options.follower,
            origin: format!("{:032x}", options.origin),
            runtime,
            session: None,
        })
    }
}

impl Target for Mariadb {
    fn open(&mut self) -> Result<Option<HashMap<StreamId, u64>>, TargetError> {
        self.session = None;
        let connect = connect(self.opts.clone(), &self.follower, &self.origin);
        let session = match self.runtime.block_on(async { tokio::time::timeout(CONNECT, connect).await }) {
            Ok(session) => session.map_err(|error| TargetError::Unavailable(words(&error)))?,
            Err(_) => return Err(TargetError::Unavailable("the database does not answer".to_owned())),
        };
        let positions = session.positions.clone();
        self.session = Some(session);
        Ok(Some(positions))
    }

    fn deliver(&mut self, delivery: &Delivery) -> Result<Delivered, TargetError> {
        let Some(mut session) = self.session.take() else {
            return Err(TargetError::Unavailable("there is no connection".to_owned()));
        };
        let delivered = self.runtime.block_on(async {
            let both = async {
                let are_known = !session.tables.is_empty();
                let delivered = session.deliver(&self.follower, &self.origin, delivery).await;
                match delivered {
                    // Somebody may have changed a table since it was read.
                    Err(TargetError::Rejected(_) | TargetError::Streams { .. }) if are_known => {
                        session.tables.clear();
                        session.deliver(&self.follower, &self.origin, delivery).await
                    }
                    delivered => delivered,
                }
            };
            let late = || TargetError::Unavailable(format!("no answer within {} seconds", DELIVERY.as_secs()));
            tokio::time::timeout(DELIVERY, both).await.unwrap_or_else(|_| Err(late()))
        });
        match &delivered {
            // Whether the transaction took place is not known.
            Err(TargetError::Unavailable(_) | TargetError::Moved(_)) => return delivered,
            Err(_) => session.tables.clear(),
            Ok(_) => {}
        }
        self.session = Some(session);
        delivered
    }
}

async fn connect(opts: Opts, follower: &str, origin: &str) -> Result<Session, Error> {
    let mut conn = Conn::new(opts).await?;
    // What does not fit is an error or a warning, whatever the server is set to.
    conn.query_drop("set session sql_mode = 'STRICT_ALL_TABLES', time_zone = '+00:00', autocommit = 1").await?;
    conn.query_drop(
        "create table if not exists strongback_positions (follower varchar(64) character set ascii, \
         origin char(32) character set ascii, stream bigint, name mediumtext, next_row bigint not null, \
         primary key (follower, origin, stream)) engine = InnoDB, character set utf8mb4, collate utf8mb4_bin",
    )
    .await?;
    let sql = "select stream, next_row from strongback_positions where follower = ? and origin = ?";
    let rows: Vec<(u32, u64)> = conn.exec(sql, (follower, origin)).await?;
    let positions = rows.into_iter().map(|(stream, row)| (StreamId(stream), row)).collect();
    Ok(Session { conn, positions, tables: BTreeMap::new() })
}

impl Session {
    async fn deliver(&mut self, follower: &str, origin: &str, delivery: &Delivery) -> Result<Delivered, TargetError> {
        let groups = delivery.by_table(str::to_owned);
        let mut loads = Vec::with_capacity(groups.len());
        for (name, parts) in &groups {
            let failed = |failure: Failure| classify(failure, parts, name);
            let mut table = match self.tables.remove(name) {
                Some(table) => table,
                None => Table::read(&mut self.conn, name).await.map_err(failed)?,
            };
            loads.push((name, table.fit(&mut self.conn, parts).await.map_err(failed)?));
            self.tables.insert(name.clone(), table);
        }
        let unavailable = |error: Error| TargetError::Unavailable(words(&error));
        self.conn.query_drop("start transaction").await.map_err(unavailable)?;
        let delivered = self.fill(follower, origin, delivery, &loads).await;
        match &delivered {
            Ok(_) => self.conn.query_drop("commit").await.map_err(unavailable)?,
            Err(TargetError::Unavailable(_) | TargetError::Moved(_)) => {}
            Err(_) => self.conn.query_drop("rollback").await.map_err(unavailable)?,
        }
        let delivered = delivered?;
        for part in &delivery.parts {
            self.positions.insert(part.id(), part.rows().end);
        }
        Ok(delivered)
    }

    /// Moves the positions and loads the frames, within a transaction.
    async fn fill(
        &mut self,
        follower: &str,
        origin: &str,
        delivery: &Delivery,
        loads: &[(&String, table::Load<'_>)],
    ) -> Result<Delivered, TargetError> {
        let moved = self.move_positions(follower, origin, delivery).await;
        if !moved.map_err(|error| TargetError::Unavailable(words(&error)))? {
            let text = format!("another follower named {follower:?} delivers frames of this store into this database");
            return Err(TargetError::Moved(text));
        }
        let mut sum = Delivered::default();
        for (name, load) in loads {
            let loaded = load.run(&mut self.conn).await;
            sum += loaded.map_err(|failure| classify(failure, load.parts(), name))?;
        }
        Ok(sum)
    }

    /// Moves the positions of streams, and returns whether they were the expected ones. The rows stay locked until the
    /// end of the transaction.
    async fn move_positions(&mut self, follower: &str, origin: &str, delivery: &Delivery) -> Result<bool, Error> {
        let mut next: BTreeMap<u32, &StreamFrames> = BTreeMap::new();
        for part in &delivery.parts {
            next.insert(part.id().0, part);
        }
        let streams: Vec<String> = next.keys().map(u32::to_string).collect();
        let sql = format!(
            "select stream, next_row from strongback_positions where follower = ? and origin = ? and stream in ({}) \
             for update",
            streams.join(",")
        );
        let rows: Vec<(u32, u64)> = self.conn.exec(sql, (follower, origin)).await?;
        let there: HashMap<u32, u64> = rows.into_iter().collect();
        if next.keys().any(|stream| there.get(stream) != self.positions.get(&StreamId(*stream))) {
            return Ok(false);
        }
        let (known, new): (Vec<_>, Vec<_>) = next.into_iter().partition(|(stream, _)| there.contains_key(stream));
        // Of two followers that both take a stream for new, one is refused.
        for (streams, on_known) in [(known, " on duplicate key update next_row = values(next_row)"), (new, "")] {
            for some in streams.chunks(1_000) {
                let row = |(stream, part): &(u32, &StreamFrames)| {
                    let name = part.stream.key.to_string();
                    let name: String = name.bytes().map(|byte| format!("{byte:02x}")).collect();
                    format!("(?, ?, {stream}, _utf8mb4 x'{name}', {})", part.rows().end)
                };
                let rows: Vec<String> = some.iter().map(row).collect();
                let sql = format!(
                    "insert into strongback_positions (follower, origin, stream, name, next_row) values {}{on_known}",
                    rows.join(", ")
                );
                let values: Vec<&str> = some.iter().flat_map(|_| [follower, origin]).collect();
                match self.conn.exec_drop(sql, values).await {
                    Err(Error::Server(ServerError { code: 1062, .. })) => return Ok(false),
                    moved => moved?,
                }
            }
        }
        Ok(true)
    }
}

/// Returns what a failure means for the frames of a table.
fn classify(failure: Failure, parts: &[&StreamFrames], table: &str) -> TargetError {
    match failure {
        Failure::Rejected(reason) => TargetError::Rejected(reason),
        Failure::Unfit(reason) => TargetError::of(parts, format!("table {table:?}: {reason}")),
        Failure::Failed(Error::Server(error)) if is_of_table(error.code) => TargetError::of(parts, in_words(&error)),
        Failure::Failed(error) => TargetError::Unavailable(words(&error)),
    }
}

/// Returns whether an error is about a table alone, and others may go on.
///
/// Codes: MariaDB documentation, "MariaDB Error Code Reference".
fn is_of_table(code: u16) -> bool {
    matches!(
        code,
        // Table that cannot be made or altered, read-only table, duplicate or unknown column, NULL, syntax
        1005 | 1025 | 1036 | 1054 | 1060 | 1048 | 1064
        // Names and numbers of columns, row sizes
        | 1059 | 1103 | 1117 | 1118 | 1166 | 1167
        // No right for a table or column, missing table, view that cannot be written, wrong kind of object
        | 1142 | 1143 | 1146 | 1288 | 1347 | 1471 | 1370
        // Generated column, trigger, constraint, partition
        | 1364 | 1526 | 1644 | 1705 | 1748 | 1906 | 3105 | 3819 | 4025
    )
}

/// Returns an error with what the server said.
fn words(error: &Error) -> String {
    match error {
        Error::Server(error) => in_words(error),
        error => error.to_string(),
    }
}

fn in_words(error: &ServerError) -> String {
    let hint = match error.code {
        1148 | 3948 | 4166 => "; set local_infile = ON there",
        _ => "",
    };
    format!("{}: {}{hint}", error.code, error.message)
}

/// Returns an identifier in quotes.
fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}
