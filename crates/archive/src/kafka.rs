//! Kafka: a topic per table, a message per frame, each there exactly once for consumers with
//! `isolation.level=read_committed`.
//!
//! A delivery is one transaction: it sends the frames, and the positions to a compacted topic of the follower. The
//! transactional id has the name of the follower and the origin of the store, so a second follower of the name ends the
//! first one's transactions, and both tell.
//!
//! Design: KIP-98, "Exactly Once Delivery and Transactional Messaging".

mod message;
mod positions;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::executor::block_on;
use parking_lot::Mutex;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext as _, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message as _;
use rdkafka::producer::{
    BaseRecord, DeliveryResult, NoCustomPartitioner, Producer as _, ProducerContext, ThreadedProducer,
};
use strongback_store::StreamId;

use crate::delivery::{Delivery, StreamFrames};
use crate::target::{Delivered, Target, TargetError};

/// Max time of a delivery, which is also the time after which the broker ends a transaction.
const DELIVERY: Duration = Duration::from_secs(60);
/// Max time until the brokers have a message. After it the transaction is tried again, with topics that were deleted.
const MESSAGE: Duration = Duration::from_secs(20);
/// Max time of a request of the administration, and of the first contact.
const REQUEST: Duration = Duration::from_secs(10);
/// Max time of the end of a transaction that failed.
const ABORT: Duration = Duration::from_secs(5);
/// Max bytes of the name of a topic.
const TOPIC_MAX: usize = 249;

/// Options of the target.
#[derive(Clone)]
pub struct KafkaOptions {
    /// Addresses of some brokers: `host:port`, separated by commas.
    pub brokers: String,
    /// Beginning of the names of all topics.
    pub topic_prefix: String,
    /// Partitions of a new topic, or -1 for the default of the brokers.
    pub partitions: i32,
    /// Replicas of a new topic, or -1 for the default of the brokers.
    pub replicas: i32,
    /// Further properties of librdkafka.
    pub properties: BTreeMap<String, String>,
    /// Name of the follower.
    pub follower: String,
    /// Origin of the store.
    pub origin: u128,
}

/// A Kafka.
pub struct Kafka {
    options: KafkaOptions,
    producer: Option<ThreadedProducer<Reports>>,
    /// Topics that exist.
    topics: HashSet<String>,
    /// Message under construction.
    buffer: Vec<u8>,
}

/// What became of the messages of a delivery.
#[derive(Clone, Default)]
struct Reports(Arc<Mutex<Reported>>);

#[derive(Default)]
struct Reported {
    /// First error of a message, and the topic.
    failed: Option<(RDKafkaErrorCode, String)>,
    /// Newest error of the connections, in words.
    connection: Option<String>,
}

impl rdkafka::ClientContext for Reports {
    fn log(&self, level: RDKafkaLogLevel, _: &str, text: &str) {
        use RDKafkaLogLevel::{Alert, Critical, Emerg, Error};
        // Errors of connections come here first. They are repeated for each attempt, so the follower tells them.
        if matches!(level, Emerg | Alert | Critical | Error) {
            let said = text.split_once("]: ").map_or(text, |(_, said)| said);
            self.0.lock().connection = Some(said.to_owned());
        }
    }

    fn error(&self, _: KafkaError, reason: &str) {
        self.0.lock().connection.get_or_insert_with(|| reason.to_owned());
    }
}

impl ProducerContext<NoCustomPartitioner> for Reports {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        use RDKafkaErrorCode::{PurgeInflight, PurgeQueue};
        if let Err((error, message)) = result
            && let Some(code) = error.rdkafka_error_code()
            // Those that end with the transaction say nothing of its fault.
            && !matches!(code, PurgeInflight | PurgeQueue)
        {
            self.0.lock().failed.get_or_insert_with(|| (code, message.topic().to_owned()));
        }
    }
}

impl Kafka {
    /// Prepares the target. Nothing is connected before the first delivery.
    ///
    /// # Errors
    /// Returns an error in words if librdkafka refuses a property.
    pub fn new(options: KafkaOptions) -> Result<Kafka, String> {
        options.config().create_native_config().map_err(|error| words(&error))?;
        Ok(Kafka { options, producer: None, topics: HashSet::new(), buffer: Vec::new() })
    }

    /// Makes topics that do not exist.
    fn make_topics(&mut self, names: &BTreeSet<String>) -> Result<(), (String, String)> {
        let missing: Vec<&String> = names.iter().filter(|name| !self.topics.contains(*name)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let first = missing[0].clone();
        let failed = |error: KafkaError| (first.clone(), words(&error));
        let admin: AdminClient<DefaultClientContext> =
            AdminClient::from_config_and_context(&self.options.config(), DefaultClientContext).map_err(failed)?;
        let topics: Vec<NewTopic<'_>> = missing
            .iter()
            .map(|name| {
                let replication = TopicReplication::Fixed(self.options.replicas);
                match **name == self.options.positions_topic() {
                    false => NewTopic::new(name, self.options.partitions, replication),
                    true => positions::CONFIG
                        .iter()
                        .fold(NewTopic::new(name, 1, replication), |topic, (key, value)| topic.set(key, value)),
                }
            })
            .collect();
        let options = AdminOptions::new().request_timeout(Some(REQUEST)).operation_timeout(Some(REQUEST));
        let made = block_on(admin.create_topics(&topics, &options)).map_err(failed)?;
        for result in made {
            match result {
                Ok(name) | Err((name, RDKafkaErrorCode::TopicAlreadyExists)) => {
                    self.topics.insert(name);
                }
                Err((name, code)) => return Err((name, format!("the topic cannot be made: {code}"))),
            }
        }
        Ok(())
    }

    /// Sends the frames and positions of a delivery, and returns the bytes sent.
    fn send(&mut self, delivery: &Delivery) -> Result<u64, KafkaError> {
        let Some(producer) = &self.producer else { return Err(KafkaError::Canceled) };
        let mut bytes = 0;
        let mut next: BTreeMap<u32, (&StreamFrames, u64)> = BTreeMap::new();
        for part in &delivery.parts {
            next.insert(part.id().0, (part, part.rows().end));
            let topic = self.options.topic(&part.stream.key.table);
            let key = part.stream.key.to_string();
            let mut writer = message::Writer::new(part);
            for at in 0..part.batch.len() {
                self.buffer.clear();
                writer.write(&mut self.buffer, at);
                let time_ms = part.batch.time(at).div_euclid(1_000_000);
                send(producer, &topic, &key, &self.buffer, Some(time_ms))?;
                bytes += (key.len() + self.buffer.len()) as u64;
            }
        }
        let topic = self.options.positions_topic();
        for (part, row) in next.into_values() {
            let (key, value) = positions::record(part, row);
            send(producer, &topic, &key, value.as_bytes(), None)?;
            bytes += (key.len() + value.len()) as u64;
        }
        producer.commit_transaction(DELIVERY)?;
        Ok(bytes)
    }

    /// Ends the transaction that failed, and returns what its error means.
    fn abort(&mut self, error: &KafkaError, delivery: &Delivery) -> TargetError {
        let Some(producer) = &self.producer else { return TargetError::Unavailable(words(error)) };
        let aborted = producer.abort_transaction(ABORT);
        let reported = std::mem::take(&mut *producer.context().0.lock());
        if aborted.is_err() {
            // Whether the transaction took place is said by the positions.
            self.producer = None;
        }
        if is_fenced(error) || reported.failed.as_ref().is_some_and(|(code, _)| is_fence(*code)) {
            let name = &self.options.follower;
            let text = format!("another follower named {name:?} delivers frames of this store into this Kafka");
            return TargetError::Moved(text);
        }
        let refused = matches!(error, KafkaError::MessageProduction(_)).then(|| error.rdkafka_error_code()).flatten();
        let reported_code = reported.failed.as_ref().map(|(code, _)| *code);
        let code = refused.or(reported_code).or_else(|| error.rdkafka_error_code());
        let topic = reported.failed.map(|(_, topic)| topic);
        match code {
            Some(RDKafkaErrorCode::MessageSizeTooLarge | RDKafkaErrorCode::InvalidMessageSize) if aborted.is_ok() => {
                TargetError::Rejected("it is larger than a message may be, message.max.bytes".to_owned())
            }
            Some(
                code @ (RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::UnknownTopicOrPartition
                | RDKafkaErrorCode::UnknownTopic
                | RDKafkaErrorCode::PolicyViolation
                | RDKafkaErrorCode::InvalidTopic),
            ) if aborted.is_ok() && topic.as_ref().is_some_and(|topic| *topic != self.options.positions_topic()) => {
                let topic = topic.unwrap_or_default();
                self.topics.remove(&topic);
                self.of_topic(delivery, &topic, code.to_string())
            }
            Some(code) => {
                self.topics.clear();
                let connection = reported.connection.map(|said| format!(" ({said})")).unwrap_or_default();
                TargetError::Unavailable(format!("{code}{connection}"))
            }
            None => TargetError::Unavailable(words(error)),
        }
    }

    fn of_topic(&self, delivery: &Delivery, topic: &str, reason: String) -> TargetError {
        let is_there = |part: &&StreamFrames| self.options.topic(&part.stream.key.table) == topic;
        let streams: Vec<StreamId> = delivery.parts.iter().filter(is_there).map(StreamFrames::id).collect();
        let reason = format!("topic {topic:?}: {reason}");
        match streams.is_empty() {
            true => TargetError::Unavailable(reason),
            false => TargetError::Streams { streams, reason },
        }
    }
}

impl Target for Kafka {
    fn open(&mut self) -> Result<Option<HashMap<StreamId, u64>>, TargetError> {
        self.producer = None;
        self.topics.clear();
        let reports = Reports::default();
        let unavailable = |error: KafkaError, reports: &Reports| {
            let connection = reports.0.lock().connection.take();
            TargetError::Unavailable(connection.unwrap_or_else(|| words(&error)))
        };
        let producer = ThreadedProducer::from_config_and_context(&self.options.config(), reports.clone())
            .map_err(|error| unavailable(error, &reports))?;
        // Ends a transaction that was under way, and those of others with the name.
        producer.init_transactions(REQUEST).map_err(|error| unavailable(error, &reports))?;
        let topic = self.options.positions_topic();
        self.make_topics(&BTreeSet::from([topic.clone()]))
            .map_err(|(topic, reason)| TargetError::Unavailable(format!("topic {topic:?}: {reason}")))?;
        let positions = positions::read(&self.options).map_err(TargetError::Unavailable)?;
        self.producer = Some(producer);
        Ok(Some(positions))
    }

    fn deliver(&mut self, delivery: &Delivery) -> Result<Delivered, TargetError> {
        let topics = delivery.parts.iter().map(|part| self.options.topic(&part.stream.key.table)).collect();
        if let Err((topic, reason)) = self.make_topics(&topics) {
            return Err(self.of_topic(delivery, &topic, reason));
        }
        let Some(producer) = &self.producer else {
            return Err(TargetError::Unavailable("there is no connection".to_owned()));
        };
        *producer.context().0.lock() = Reported::default();
        if let Err(error) = producer.begin_transaction() {
            return Err(self.abort(&error, delivery));
        }
        match self.send(delivery) {
            Ok(bytes) => Ok(Delivered { bytes, altered_values: 0 }),
            Err(error) => Err(self.abort(&error, delivery)),
        }
    }
}

/// Adds a message to those on their way, once there is room for it.
fn send(
    producer: &ThreadedProducer<Reports>,
    topic: &str,
    key: &str,
    payload: &[u8],
    time_ms: Option<i64>,
) -> Result<(), KafkaError> {
    let until = Instant::now() + DELIVERY;
    loop {
        let mut record = BaseRecord::to(topic).key(key).payload(payload);
        if let Some(time_ms) = time_ms {
            record = record.timestamp(time_ms.max(0));
        }
        match producer.send(record) {
            Ok(()) => return Ok(()),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) if Instant::now() < until => {
                producer.poll(Duration::from_millis(100));
            }
            Err((error, _)) => return Err(error),
        }
    }
}

impl KafkaOptions {
    /// Returns the name of the topic of a table. A name that is altered ends with a checksum.
    fn topic(&self, table: &str) -> String {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let name = format!("{}{table}", self.topic_prefix);
        if name.len() <= TOPIC_MAX && name.chars().all(plain) && !name.is_empty() && name != "." && name != ".." {
            return name;
        }
        let altered: String = name.chars().map(|c| if plain(c) { c } else { '_' }).collect();
        crate::columns::with_checksum(&altered, &name, TOPIC_MAX)
    }

    /// Returns the name of the topic with the positions of the follower. It has the origin of the store, so that nobody
    /// else's open transaction hides the end of the topic from this follower.
    fn positions_topic(&self) -> String {
        format!("strongback-positions-{}", self.id())
    }

    /// Returns what tells this follower apart from all others.
    fn id(&self) -> String {
        format!("{}-{:032x}", self.follower, self.origin)
    }

    /// Returns the properties of all clients.
    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set_log_level(RDKafkaLogLevel::Error);
        config
            .set("client.id", "strongback")
            .set("compression.type", "zstd")
            .set("linger.ms", "1")
            // The follower has pauses of its own: a broker that is back is found within a second.
            .set("reconnect.backoff.max.ms", "1000")
            // The one that Kafka's own clients have.
            .set("partitioner", "murmur2_random")
            .set("queue.buffering.max.messages", "1000000")
            .set("message.timeout.ms", MESSAGE.as_millis().to_string());
        for (key, value) in &self.properties {
            config.set(key, value);
        }
        config
            .set("bootstrap.servers", &self.brokers)
            .set("transactional.id", format!("strongback-{}", self.id()))
            .set("transaction.timeout.ms", DELIVERY.as_millis().to_string());
        config
    }
}

fn is_fence(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode::{Fenced, InvalidProducerEpoch, ProducerFenced};
    matches!(code, Fenced | ProducerFenced | InvalidProducerEpoch)
}

fn is_fenced(error: &KafkaError) -> bool {
    error.rdkafka_error_code().is_some_and(is_fence)
}

/// Returns an error in words.
fn words(error: &KafkaError) -> String {
    match error {
        KafkaError::Transaction(said) => said.string(),
        KafkaError::ClientConfig(_, said, key, _) => format!("property {key:?}: {said}"),
        error => match error.rdkafka_error_code() {
            Some(code) => code.to_string(),
            None => error.to_string(),
        },
    }
}
