//! The definition of a store, kept in `strongback.definitions` of that store, one row per statement.
//!
//! A later definition has a higher version; the highest one applies.

use anyhow::{Context, bail};
use strongback_store::rdl::StoreDefinition;
use strongback_store::{
    ChannelSpec, ChannelType, Clock, FrameBatch, FrameHead, Outcome, Scan, Store, StreamKey, StreamSpec, Value,
};

use crate::process::clock::now_ns;

const TABLE: &str = "strongback.definitions";

/// Writes a definition into the store and creates its streams; durable when it returns.
pub(super) fn write(store: &Store, definition: &StoreDefinition) -> anyhow::Result<()> {
    let now = now_ns();
    for stream in &definition.streams {
        store.resolve(&stream.spec("definition"), now).with_context(|| format!("stream {}", stream.name))?;
    }
    let spec = StreamSpec {
        key: StreamKey::new(TABLE, []),
        source: "internal".to_owned(),
        clock: Clock::Receive,
        expected_period_ns: None,
        sequence_modulus: None,
        channels: vec![
            ChannelSpec::new("version", ChannelType::U32),
            ChannelSpec::new("statement", ChannelType::String),
        ],
    };
    let version = newest(store)?.map_or(1, |(version, _)| version + 1);
    let (stream, channels) = store.resolve_own(&spec, now)?;
    let mut batch = FrameBatch::new();
    let settings = StoreDefinition { streams: Vec::new(), ..definition.clone() }.to_string();
    for statement in std::iter::once(settings).chain(definition.streams.iter().map(ToString::to_string)) {
        batch.begin(FrameHead { stream: stream.id, receive_time: now, source_time: None, sequence: None });
        batch.push(channels[0], Value::U32(version));
        batch.push(channels[1], Value::String(&statement));
        batch.end();
    }
    for outcome in store.append(&batch, now).outcomes {
        if let Outcome::Rejected(reject) = outcome {
            bail!("the definition is not written down: {reject}");
        }
    }
    store.commit(now_ns()).context("the definition is not written down")?;
    Ok(())
}

/// Returns the current definition, or `None` if the store was made without one.
pub(super) fn read(store: &Store) -> anyhow::Result<Option<StoreDefinition>> {
    let Some((_, text)) = newest(store)? else { return Ok(None) };
    let definition = StoreDefinition::parse(&text, TABLE).context("the store's own definition")?;
    Ok(Some(definition))
}

/// Returns the highest version and its statements.
fn newest(store: &Store) -> anyhow::Result<Option<(u32, String)>> {
    let catalog = store.catalog();
    let Some(stream) = catalog.streams.iter().find(|stream| stream.key.table == TABLE) else { return Ok(None) };
    let (Some(version), Some(statement)) = (stream.layout.index("version"), stream.layout.index("statement")) else {
        return Ok(None);
    };
    let mut found: Option<(u32, String)> = None;
    for batch in store.view().scan(Scan::all(stream.id, vec![version, statement])) {
        let batch = batch.context("the store's own definition")?;
        for row in 0..batch.len() {
            let (Ok(Value::U32(version)), Ok(Value::String(statement))) =
                (batch.columns[0].cell(row), batch.columns[1].cell(row))
            else {
                continue;
            };
            match &mut found {
                Some((newest, _)) if *newest > version => {}
                Some((newest, text)) if *newest == version => text.push_str(statement),
                _ => found = Some((version, statement.to_owned())),
            }
        }
    }
    Ok(found)
}
