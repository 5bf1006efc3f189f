//! Positions in a topic: the newest message of a key is the next row of a stream.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::{Offset, TopicPartitionList};
use serde_json::{Value as Json, json};
use strongback_store::StreamId;

use super::{KafkaOptions, REQUEST, words};
use crate::delivery::StreamFrames;

/// Configuration of the topic: old positions are removed, in small steps.
pub(super) const CONFIG: [(&str, &str); 4] = [
    ("cleanup.policy", "compact"),
    ("segment.bytes", "16777216"),
    ("segment.ms", "3600000"),
    ("min.cleanable.dirty.ratio", "0.1"),
];
/// Max time without an answer.
const SILENCE: Duration = Duration::from_secs(30);

/// Returns the key and the value for a position.
pub(super) fn record(frames: &StreamFrames, row: u64) -> (String, String) {
    let value = json!({ "next_row": row, "stream": frames.stream.key.to_string() });
    (frames.id().0.to_string(), value.to_string())
}

/// Returns the stream and the next row of a message, if it is a position.
pub(super) fn parse(key: &[u8], value: &[u8]) -> Option<(StreamId, u64)> {
    let stream = std::str::from_utf8(key).ok()?.parse().ok()?;
    let value: Json = serde_json::from_slice(value).ok()?;
    Some((StreamId(stream), value["next_row"].as_u64()?))
}

/// Reads the positions of all streams.
///
/// # Errors
/// Returns an error in words if the topic cannot be read to its end.
pub(super) fn read(options: &KafkaOptions) -> Result<HashMap<StreamId, u64>, String> {
    let mut config = ClientConfig::new();
    for (key, value) in &options.properties {
        // Those of producers alone have no effect here, and would be told as mistakes.
        if !matches!(key.as_str(), "compression.type" | "linger.ms" | "partitioner" | "message.timeout.ms" | "acks") {
            config.set(key, value);
        }
    }
    config
        .set("bootstrap.servers", &options.brokers)
        .set("client.id", "strongback")
        .set("group.id", format!("strongback-{}", options.id()))
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("isolation.level", "read_committed")
        .set("auto.offset.reset", "earliest");
    let failed = |error: KafkaError| format!("the positions cannot be read: {}", words(&error));
    let consumer: BaseConsumer = config.create().map_err(failed)?;
    let topic = options.positions_topic();
    // A topic that was just made is known by all brokers soon after.
    consumer.fetch_metadata(Some(&topic), REQUEST).map_err(failed)?;
    let mut partitions = TopicPartitionList::new();
    partitions.add_partition_offset(&topic, 0, Offset::Beginning).map_err(failed)?;
    consumer.assign(&partitions).map_err(failed)?;
    let mut positions = HashMap::new();
    let mut heard = Instant::now();
    loop {
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => {
                heard = Instant::now();
                let parsed = parse(message.key().unwrap_or(&[]), message.payload().unwrap_or(&[]));
                positions.extend(parsed);
            }
            Some(Err(KafkaError::PartitionEOF(_))) => return Ok(positions),
            Some(Err(error)) if heard.elapsed() > SILENCE => return Err(failed(error)),
            None if heard.elapsed() > SILENCE => {
                return Err("the positions cannot be read: no answer within 30 s".to_owned());
            }
            _ => {}
        }
    }
}
