//! `strongback export`: stored data to standard output or a file, from a folder or from a running server.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use strongback_query::{EventRow, ExportFormat, ExportRequest, GapRow, Query, QueryOptions, SourceRow, SystemRows};
use strongback_store::Store;

use crate::cli::{self, ExportArgs};
use crate::clock::now_ns;
use crate::config::Config;
use crate::http::{range, split_patterns};
use crate::ledger::{Ledger, ROWS_MAX};
use crate::outcome::Outcome;
use crate::serve::runtime;

/// A server that sends nothing for so long is given up.
const PATIENCE: Duration = Duration::from_secs(120);

/// Exports.
///
/// # Errors
/// What keeps the data from being read or written.
pub fn run(args: &ExportArgs) -> anyhow::Result<Outcome> {
    let mut output: Box<dyn Write> = match &args.output {
        Some(path) => Box::new(BufWriter::new(File::create(path).with_context(|| path.display().to_string())?)),
        None => Box::new(BufWriter::new(std::io::stdout().lock())),
    };
    let done = match &args.server {
        Some(server) => from_server(server, args, &mut output),
        None => from_folder(args, &mut output),
    };
    done?;
    output.flush().context("the end of the export cannot be written")?;
    Ok(Outcome::Done)
}

/// Gaps and events of a store without a server.
struct Rows(Ledger);

impl SystemRows for Rows {
    fn sources(&self) -> Vec<SourceRow> {
        Vec::new()
    }

    fn gaps(&self, time: std::ops::Range<i64>) -> Vec<GapRow> {
        self.0.gaps(&time, ROWS_MAX)
    }

    fn events(&self, time: std::ops::Range<i64>) -> Vec<EventRow> {
        self.0.events(&time, ROWS_MAX)
    }
}

fn from_folder(args: &ExportArgs, output: &mut dyn Write) -> anyhow::Result<()> {
    let mut config = match &args.config {
        Some(file) => Config::read(file)?,
        None => Config::default(),
    };
    if let Some(dir) = &args.data {
        config.data_dir.clone_from(dir);
    }
    if !config.data_dir.is_dir() {
        bail!("{}: no such folder", config.data_dir.display());
    }
    let failed = |failure: crate::http::answer::Failure| anyhow::anyhow!(failure.message);
    let request = ExportRequest {
        time: range(args.from.as_deref(), args.to.as_deref(), i64::MIN).map_err(failed)?,
        patterns: split_patterns(&args.channels).map_err(failed)?,
        format: match args.format {
            cli::ExportFormat::Csv => ExportFormat::Csv,
            cli::ExportFormat::Jsonl => ExportFormat::Jsonl,
            cli::ExportFormat::Parquet => ExportFormat::Parquet,
        },
    };
    let store = Store::open(&config.data_dir, config.store_options(), now_ns())?;
    let ledger = Ledger::default();
    if let Err(error) = ledger.load(&store) {
        tracing::error!(%error, "gaps cannot all be read");
    }
    let done = runtime()?.block_on(async {
        let options = QueryOptions { memory_bytes: config.query.memory_mib << 20, ..QueryOptions::default() };
        let engine = Query::new(store.clone(), Arc::new(Rows(ledger)), options)?;
        let mut stream = engine.export(request)?;
        while let Some(chunk) = stream.next().await {
            output.write_all(&chunk?).context("the export cannot be written")?;
        }
        anyhow::Ok(())
    });
    store.close(now_ns()).context("the store did not close")?;
    done
}

fn from_server(server: &str, args: &ExportArgs, output: &mut dyn Write) -> anyhow::Result<()> {
    let address = server.trim_start_matches("http://").trim_end_matches('/');
    let stream = TcpStream::connect(address).with_context(|| address.to_owned())?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let format = match args.format {
        cli::ExportFormat::Csv => "csv",
        cli::ExportFormat::Jsonl => "jsonl",
        cli::ExportFormat::Parquet => "parquet",
    };
    let mut path = format!("/api/export?format={format}&channels={}", percent_encoded(&args.channels));
    for (key, value) in [("from", &args.from), ("to", &args.to)] {
        if let Some(value) = value {
            path.push_str(&format!("&{key}={}", percent_encoded(value)));
        }
    }
    let mut head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    if let Some(file) = &args.auth_token_file {
        let token = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        head.push_str(&format!("Authorization: Bearer {}\r\n", token.trim()));
    }
    head.push_str("\r\n");
    (&stream).write_all(head.as_bytes())?;
    receive(BufReader::new(stream), output).with_context(|| format!("{address} broke the export off"))
}

/// Reads an answer and copies its body.
fn receive(mut input: impl BufRead, output: &mut dyn Write) -> anyhow::Result<()> {
    let status = line(&mut input)?;
    let (mut chunked, mut length) = (false, None);
    loop {
        let header = line(&mut input)?.to_ascii_lowercase();
        match header.split_once(':').map(|(key, value)| (key, value.trim())) {
            None => break,
            Some(("transfer-encoding", "chunked")) => chunked = true,
            Some(("content-length", n)) => length = n.parse::<u64>().ok(),
            _ => {}
        }
    }
    if status.split(' ').nth(1) != Some("200") {
        let mut body = String::new();
        // Errors are short.
        let _ = input.take(length.unwrap_or(4096).min(4096)).read_to_string(&mut body);
        bail!("{status}: {body}");
    }
    if !chunked {
        let length = length.context("an answer without a length")?;
        let copied = std::io::copy(&mut input.take(length), output)?;
        if copied < length {
            bail!("{copied} of {length} bytes came");
        }
        return Ok(());
    }
    loop {
        let size = line(&mut input)?;
        let size = u64::from_str_radix(size.split(';').next().unwrap_or_default().trim(), 16)
            .with_context(|| format!("{size:?} is no size of a chunk"))?;
        if std::io::copy(&mut input.by_ref().take(size), output)? < size {
            bail!("the connection ended within a chunk");
        }
        line(&mut input)?;
        if size == 0 {
            return Ok(());
        }
    }
}

fn line(input: &mut impl BufRead) -> anyhow::Result<String> {
    let mut line = String::new();
    if input.by_ref().take(64 << 10).read_line(&mut line)? == 0 {
        bail!("the connection ended");
    }
    Ok(line.trim_end().to_owned())
}

fn percent_encoded(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    text.bytes().map(|b| if plain(b) { (b as char).to_string() } else { format!("%{b:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(answer: &str) -> anyhow::Result<String> {
        let mut out = Vec::new();
        receive(answer.as_bytes(), &mut out)?;
        Ok(String::from_utf8(out)?)
    }

    #[test]
    fn a_part_is_never_taken_for_the_whole() {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(received(&format!("{head}3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")).unwrap(), "abcde");
        assert!(received(&format!("{head}3\r\nabc\r\n2\r\nde\r\n")).is_err());
        assert!(received(&format!("{head}3\r\nab")).is_err());
        assert_eq!(received("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab").unwrap(), "ab");
        assert!(received("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab").is_err());
        let refused = received("HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno").unwrap_err().to_string();
        assert!(refused.contains("400") && refused.ends_with("no"), "{refused}");
    }

    #[test]
    fn patterns_survive_the_address() {
        assert_eq!(percent_encoded("a.*{k=1,l=ü}"), "a.%2A%7Bk%3D1%2Cl%3D%C3%BC%7D");
    }
}
