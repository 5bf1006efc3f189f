//! The targets: how each is configured, how many rows it has, and its own bulk loader.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use futures::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use strongback_archive::http::{Answer, Http, HttpOptions, parse_url};
use tokio::runtime::Runtime;

use super::{FOLLOWERS, wait};
use crate::peers::NamedPeer;

/// Rows that are read or loaded at once where the target needs a bound.
const PIECE_ROWS: u64 = 5_000;

/// Kind of target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// PostgreSQL.
    Postgres,
    /// MariaDB.
    Mariadb,
    /// QuestDB.
    Questdb,
    /// Elasticsearch.
    Elasticsearch,
    /// Kafka.
    Kafka,
}

impl Kind {
    /// All targets.
    pub(super) const ALL: [Kind; 5] = [Kind::Postgres, Kind::Mariadb, Kind::Questdb, Kind::Elasticsearch, Kind::Kafka];

    /// Returns its name in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Postgres => "PostgreSQL 15",
            Kind::Mariadb => "MariaDB 10.11",
            Kind::Questdb => "QuestDB 9.3.4",
            Kind::Elasticsearch => "Elasticsearch 7.17",
            Kind::Kafka => "Kafka 4.3.1",
        }
    }

    /// Returns the name of its recipe, which is also the name in the configuration.
    pub(super) fn recipe(self) -> &'static str {
        match self {
            Kind::Postgres => "postgres",
            Kind::Mariadb => "mariadb",
            Kind::Questdb => "questdb",
            Kind::Elasticsearch => "elasticsearch",
            Kind::Kafka => "kafka",
        }
    }

    /// Returns what its loader is.
    pub(super) fn loader(self) -> &'static str {
        match self {
            Kind::Postgres => "COPY, binary",
            Kind::Mariadb => "LOAD DATA LOCAL",
            Kind::Questdb => "CSV over /imp",
            Kind::Elasticsearch => "_bulk, 5,000 a request",
            Kind::Kafka => "kafka-producer-perf-test, acks=all",
        }
    }

    /// Returns what it is configured with beyond its recipe.
    pub(super) fn configuration(self) -> &'static str {
        match self {
            // Each of the pad's columns would take 16 MiB of disk.
            Kind::Questdb => "cairo.writer.data.append.page.size=256k\n",
            _ => "",
        }
    }

    fn port(self) -> &'static str {
        match self {
            Kind::Postgres => "postgres",
            Kind::Mariadb => "mysql",
            Kind::Questdb | Kind::Elasticsearch => "http",
            Kind::Kafka => "broker",
        }
    }
}

/// A target that runs, without data at first.
pub(super) struct RunningTarget {
    kind: Kind,
    peer: NamedPeer,
    runtime: Runtime,
    dir: PathBuf,
    /// Name of the follower whose tables are read and loaded.
    round: String,
}

impl RunningTarget {
    /// Prepares what a follower needs there. Files go to `dir`.
    pub(super) fn new(kind: Kind, peer: NamedPeer, dir: &Path) -> anyhow::Result<RunningTarget> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let target = RunningTarget { kind, peer, runtime, dir: dir.to_owned(), round: FOLLOWERS[0].to_owned() };
        if kind == Kind::Mariadb {
            for name in [FOLLOWERS[0], FOLLOWERS[1], kind.recipe()] {
                target.mariadb(&format!("create database {name}"), None)?;
            }
        }
        Ok(target)
    }

    /// Reads and loads the tables of another follower from now on. The earlier ones go where both would have the same.
    pub(super) fn begin_round(&mut self, name: &str, counts: &BTreeMap<String, u64>) -> anyhow::Result<()> {
        if self.kind == Kind::Questdb {
            for table in counts.keys() {
                self.questdb(&format!("drop table '{table}'"))?;
            }
        }
        name.clone_into(&mut self.round);
        Ok(())
    }

    /// Returns the kind.
    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    fn address(&self) -> anyhow::Result<String> {
        Ok(format!("127.0.0.1:{}", self.peer.port(self.kind.port())?))
    }

    /// Returns the configuration of a follower.
    pub(super) fn config(&self, name: &str, interval_ms: u64) -> String {
        let address = self.address().unwrap_or_default();
        let (url, place) = match self.kind {
            Kind::Postgres => (format!("postgresql://postgres@{address}/postgres"), format!("schema = {name:?}")),
            Kind::Mariadb => (format!("mariadb://root@{address}/{name}"), String::new()),
            Kind::Questdb => (format!("http://{address}"), String::new()),
            Kind::Elasticsearch => (format!("http://{address}"), format!("index_prefix = \"{name}-\"")),
            Kind::Kafka => (format!("kafka://{address}"), format!("topic_prefix = \"{name}.\"")),
        };
        let target = self.kind.recipe();
        format!(
            "[[archive]]\nname = {name:?}\ntarget = {target:?}\nurl = {url:?}\n{place}\ninterval_ms = {interval_ms}\n\n"
        )
    }

    /// Returns the number of rows that can be read in the tables.
    pub(super) fn rows(&mut self, tables: &[String]) -> anyhow::Result<u64> {
        let mut sum = 0;
        for table in tables {
            sum += self.rows_of(&self.name_there(table))?;
        }
        Ok(sum)
    }

    /// Returns the name of a table of the store there.
    fn name_there(&self, table: &str) -> String {
        match self.kind {
            Kind::Elasticsearch => format!("{}-{table}", self.round),
            Kind::Kafka => format!("{}.{table}", self.round),
            _ => table.to_owned(),
        }
    }

    fn rows_of(&self, table: &str) -> anyhow::Result<u64> {
        let count = |text: &str| text.trim().parse().with_context(|| format!("{table}: {text}"));
        match self.kind {
            Kind::Postgres => {
                let sql = format!("select count(*) from {}", self.in_schema(table));
                let row = self.runtime.block_on(async { self.postgres().await?.query_one(&sql, &[]).await })?;
                Ok(row.get::<_, i64>(0) as u64)
            }
            Kind::Mariadb => count(&self.mariadb(&format!("select count(*) from `{table}`"), Some(&self.round))?),
            Kind::Questdb => {
                let answer = self.questdb(&format!("select count() from '{table}'"))?;
                answer["dataset"][0][0].as_u64().with_context(|| format!("{table}: {answer}"))
            }
            Kind::Elasticsearch => {
                let http = self.http()?;
                success(http.post(&format!("/{table}/_refresh"), &[], JSON, b""))?;
                let answer = success(http.get(&format!("/{table}/_count"), &[]))?;
                answer["count"].as_u64().with_context(|| format!("{table}: {answer}"))
            }
            Kind::Kafka => bail!("rows of topics are not counted"),
        }
    }

    /// Loads a copy of what is in the tables by the target's own loader, and returns the time until all can be read.
    /// The tables come with their rows.
    pub(super) fn load(&mut self, counts: &BTreeMap<String, u64>) -> anyhow::Result<f64> {
        let (tables, rows): (Vec<String>, u64) = (counts.keys().cloned().collect(), counts.values().sum());
        let tables = tables.as_slice();
        let seconds = match self.kind {
            Kind::Postgres => self.load_postgres(tables)?,
            Kind::Mariadb => self.load_mariadb(tables)?,
            Kind::Questdb => self.load_questdb(tables)?,
            Kind::Elasticsearch => self.load_elasticsearch(tables)?,
            Kind::Kafka => return self.load_kafka(counts),
        };
        let copies: Vec<String> = tables.iter().map(|table| copy_of(table)).collect();
        let loaded = self.rows(&copies)?;
        ensure!(loaded == rows, "the loader brought {loaded} of {rows} rows");
        Ok(seconds)
    }

    async fn postgres(&self) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
        let port = self.peer.port("postgres").unwrap_or(0);
        let config = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres");
        let (client, connection) = tokio_postgres::connect(&config, tokio_postgres::NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    fn load_postgres(&self, tables: &[String]) -> anyhow::Result<f64> {
        self.runtime.block_on(async {
            let client = self.postgres().await?;
            let mut dumps = Vec::new();
            for table in tables {
                let (from, to) = (self.in_schema(table), self.in_schema(&copy_of(table)));
                client.batch_execute(&format!("create table {to} (like {from} including all)")).await?;
                let dump = client.copy_out(&format!("copy {from} to stdout (format binary)")).await?;
                let pieces: Vec<_> = dump.collect::<Vec<_>>().await.into_iter().collect::<Result<_, _>>()?;
                dumps.push((to, pieces));
            }
            let begin = Instant::now();
            for (to, pieces) in dumps {
                let sink = client.copy_in(&format!("copy {to} from stdin (format binary)")).await?;
                futures::pin_mut!(sink);
                for piece in pieces {
                    sink.feed(piece).await?;
                }
                sink.finish().await?;
            }
            Ok(begin.elapsed().as_secs_f64())
        })
    }

    fn in_schema(&self, table: &str) -> String {
        format!("{}.\"{table}\"", self.round)
    }

    /// Runs statements with MariaDB's own client, and returns what it prints.
    fn mariadb(&self, sql: &str, database: Option<&str>) -> anyhow::Result<String> {
        let port = self.peer.port("mysql")?.to_string();
        let mut words =
            vec!["mariadb", "-h", "127.0.0.1", "-P", &port, "-u", "root", "-N", "--local-infile=1", "-e", sql];
        words.extend(database);
        self.peer.tool(&words)
    }

    fn load_mariadb(&self, tables: &[String]) -> anyhow::Result<f64> {
        let (mut loads, here) = (Vec::new(), Some(self.round.as_str()));
        for table in tables {
            let (file, copy) = (self.dir.join(format!("{table}.tsv")), copy_of(table));
            let file = file.display();
            self.mariadb(&format!("create table `{copy}` like `{table}`"), here)?;
            self.mariadb(&format!("select * into outfile '{file}' character set utf8mb4 from `{table}`"), here)?;
            loads.push(format!("load data local infile '{file}' into table `{copy}` character set utf8mb4"));
        }
        let begin = Instant::now();
        for load in loads {
            self.mariadb(&load, here)?;
        }
        Ok(begin.elapsed().as_secs_f64())
    }

    fn http(&self) -> anyhow::Result<Http> {
        let (url, _) = parse_url(&format!("http://{}", self.address()?)).map_err(anyhow::Error::msg)?;
        let timeout = Duration::from_secs(120);
        let options = HttpOptions { url, user: None, token: None, ca_file: None, timeout };
        Http::new(&options).map_err(anyhow::Error::msg)
    }

    fn questdb(&self, sql: &str) -> anyhow::Result<Value> {
        success(self.http()?.get("/exec", &[("query", sql)]))
    }

    fn load_questdb(&mut self, tables: &[String]) -> anyhow::Result<f64> {
        let http = self.http()?;
        let mut pieces = Vec::new();
        for table in tables {
            let copy = copy_of(table);
            self.questdb(&format!("create table '{copy}' (like '{table}')"))?;
            let rows = self.rows_of(table)?;
            for from in (0..rows).step_by(PIECE_ROWS as usize) {
                let sql = format!("select * from '{table}' limit {from}, {}", from + PIECE_ROWS);
                let answer = http.get("/exp", &[("query", &sql)]).map_err(anyhow::Error::msg)?;
                ensure!(answer.is_success(), "{sql}: {}", answer.body);
                let head = "--piece\r\nContent-Disposition: form-data; name=\"data\"; filename=\"f\"\r\n\
                            Content-Type: text/csv\r\n\r\n";
                pieces.push((copy.clone(), format!("{head}{}\r\n--piece--\r\n", answer.body)));
            }
        }
        let rows = self.rows(tables)?;
        let begin = Instant::now();
        for (copy, body) in &pieces {
            let parameters = [("name", copy.as_str()), ("forceHeader", "true"), ("fmt", "json")];
            let answer =
                success(http.post("/imp", &parameters, "multipart/form-data; boundary=piece", body.as_bytes()))?;
            ensure!(answer["rowsRejected"].as_u64() == Some(0), "{copy}: {answer}");
        }
        let copies: Vec<String> = tables.iter().map(|table| copy_of(table)).collect();
        wait(|| Ok(self.rows(&copies)? == rows))?;
        Ok(begin.elapsed().as_secs_f64())
    }

    fn load_elasticsearch(&mut self, tables: &[String]) -> anyhow::Result<f64> {
        let http = self.http()?;
        let mut bodies = Vec::new();
        for table in tables {
            let (from, to) = (self.name_there(table), self.name_there(&copy_of(table)));
            let there = success(http.get(&format!("/{from}/_mapping"), &[]))?;
            let mapping = there.as_object().and_then(|indices| indices.values().next()).context("no mapping")?;
            success(http.put(&format!("/{to}"), JSON, mapping.to_string().as_bytes()))?;
            let first = format!("{{\"size\":{PIECE_ROWS},\"sort\":[\"_doc\"]}}");
            let mut page =
                success(http.post(&format!("/{from}/_search"), &[("scroll", "1m")], JSON, first.as_bytes()))?;
            loop {
                let documents = page["hits"]["hits"].as_array().cloned().unwrap_or_default();
                if documents.is_empty() {
                    break;
                }
                let line = |hit: &Value| format!("{{\"index\":{{\"_id\":{}}}}}\n{}\n", hit["_id"], hit["_source"]);
                bodies.push((to.clone(), documents.iter().map(line).collect::<String>()));
                let next = serde_json::json!({ "scroll": "1m", "scroll_id": page["_scroll_id"] }).to_string();
                page = success(http.post("/_search/scroll", &[], JSON, next.as_bytes()))?;
            }
        }
        let begin = Instant::now();
        for (to, body) in &bodies {
            let path = format!("/{to}/_bulk");
            let parameters = [("filter_path", "errors")];
            let answer = success(http.post(&path, &parameters, "application/x-ndjson", body.as_bytes()))?;
            ensure!(answer["errors"] == false, "{to}: {answer}");
        }
        let copies: Vec<String> = tables.iter().map(|table| copy_of(table)).collect();
        self.rows(&copies)?;
        Ok(begin.elapsed().as_secs_f64())
    }

    /// Kafka's own benchmark of a producer, with the messages of each topic as its payloads.
    fn load_kafka(&self, counts: &BTreeMap<String, u64>) -> anyhow::Result<f64> {
        let (address, mut seconds) = (self.address()?, 0.0);
        for (table, count) in counts {
            let (topic, file) = (self.name_there(table), self.dir.join(format!("{table}.json")));
            let messages = self.peer.tool(&[
                "org.apache.kafka.tools.consumer.ConsoleConsumer",
                "--bootstrap-server",
                &address,
                "--topic",
                &topic,
                "--from-beginning",
                "--isolation-level",
                "read_committed",
                "--max-messages",
                &count.to_string(),
                "--timeout-ms",
                "60000",
            ])?;
            let read = messages.lines().count() as u64;
            ensure!(read == *count, "{read} of {count} messages of {topic} were read");
            std::fs::write(&file, messages)?;
            let begin = Instant::now();
            let said = self.peer.tool(&[
                "org.apache.kafka.tools.ProducerPerformance",
                "--topic",
                &copy_of(table),
                "--num-records",
                &count.to_string(),
                "--throughput",
                "-1",
                "--payload-file",
                &file.display().to_string(),
                "--producer-props",
                &format!("bootstrap.servers={address}"),
                "acks=all",
                "enable.idempotence=true",
                "compression.type=zstd",
            ])?;
            // Its own figure, without the start of Java: `N records sent, R records/sec (…)`.
            let rate = said
                .lines()
                .rev()
                .find_map(|line| line.split(" records/sec").next()?.rsplit(' ').next()?.parse::<f64>().ok());
            seconds += rate.map_or(begin.elapsed().as_secs_f64(), |rate| *count as f64 / rate);
        }
        Ok(seconds)
    }
}

const JSON: &str = "application/json";

fn copy_of(table: &str) -> String {
    format!("copy_of_{table}")
}

/// Returns the JSON of an answer that must be a success.
fn success(answer: Result<Answer, String>) -> anyhow::Result<Value> {
    let answer = answer.map_err(anyhow::Error::msg)?;
    ensure!(answer.is_success(), "{}: {:.500}", answer.status, answer.body);
    Ok(serde_json::from_str(&answer.body).unwrap_or_default())
}
