//! Bulk writes of Flight SQL: their rows take the same path as lines of line protocol, and are counted like them.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Once};

use futures::future::BoxFuture;
use strongback_query::{BulkCounts, BulkSink, BulkWrite};
use strongback_sources::Sink;
use strongback_sources::counts::RejectedSample;
use strongback_sources::ilp::IlpCounts;
use strongback_store::{
    Appended, ChannelIndex, ChannelSpec, Clock, CommitNumber, FrameBatch, Refusal, Reject, StreamId, StreamKey,
    StreamSpec,
};

use crate::ingest::{Generation, Ingest};
use crate::process::clock::now_ns;
use crate::sources::roster::{Own, Roster};

/// Name of the source to which the rows belong.
const SOURCE: &str = "flight";

/// Entry point of bulk writes into the store.
#[derive(Clone)]
pub struct Bulk {
    ingest: Arc<Ingest>,
    counts: Arc<IlpCounts>,
    roster: Arc<Roster>,
    address: SocketAddr,
    /// Whether the source is listed, which it is from its first write on.
    listed: Arc<Once>,
}

impl Bulk {
    /// Creates the entry point of a listener.
    pub fn new(ingest: Arc<Ingest>, roster: Arc<Roster>, address: SocketAddr) -> Bulk {
        Bulk { ingest, counts: Arc::default(), roster, address, listed: Arc::new(Once::new()) }
    }
}

impl BulkSink for Bulk {
    fn begin(&self) -> Box<dyn BulkWrite> {
        self.listed.call_once(|| {
            self.roster.add(SOURCE, "flight", self.address.to_string(), Own::Lines(self.counts.clone()));
        });
        Box::new(Write { bulk: self.clone(), generation: self.ingest.generation_now() })
    }
}

/// A write into one opening of the store.
struct Write {
    bulk: Bulk,
    generation: Generation,
}

impl Write {
    fn check(&self) -> Result<(), Refusal> {
        match self.bulk.ingest.generation_now() == self.generation {
            true => Ok(()),
            false => Err(Refusal::Poisoned("the store was reopened during the write".to_owned())),
        }
    }
}

impl BulkWrite for Write {
    fn resolve(&mut self, key: StreamKey, channels: Vec<ChannelSpec>) -> Result<(StreamId, Vec<ChannelIndex>), Reject> {
        self.check().map_err(Reject::Refused)?;
        let spec = StreamSpec {
            source: SOURCE.to_owned(),
            key,
            clock: Clock::Source,
            expected_period_ns: None,
            sequence_modulus: None,
            channels,
        };
        let (stream, channels) = Sink::resolve(self.bulk.ingest.as_ref(), &spec)?;
        Ok((stream.id, channels))
    }

    fn accept(&mut self, frames: &FrameBatch) -> Result<Appended, Refusal> {
        self.check()?;
        Ok(self.bulk.ingest.accept_waiting(frames))
    }

    fn durable(&self, commit: CommitNumber) -> BoxFuture<'static, Result<(), Refusal>> {
        let (ingest, ticket) = (self.bulk.ingest.clone(), self.generation.ticket(commit));
        Box::pin(async move { ingest.durable(ticket).await })
    }

    fn count(&self, counted: &BulkCounts) {
        let (counts, now) = (&self.bulk.counts, now_ns());
        let rejected: u64 = counted.rejected.iter().map(|(_, rows, _)| rows).sum();
        for (count, more) in [
            (&counts.bytes, counted.bytes),
            (&counts.received, counted.stored + counted.duplicate + rejected),
            (&counts.stored, counted.stored),
            (&counts.duplicate, counted.duplicate),
        ] {
            count.fetch_add(more, Relaxed);
        }
        for (reason, rows, message) in &counted.rejected {
            counts.rejected.add(reason, *rows, now, || RejectedSample::new(message, &[]));
        }
        counts.last_receive_time.store(now, Relaxed);
    }
}
