//! `/api/sources/{name}`: one source, its streams, and samples of its rejected data.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use serde::Serialize;
use strongback_sources::counts::Rejected;
use strongback_sources::inetx::Tally;
use strongback_store::{Counts, Stream, StreamKey};

use super::answer::{self, Failure};
use crate::live::NewestFrame;
use crate::reception::arrival::Histogram;
use crate::server::Server;
use crate::sources::clocks::estimate::ClockReading;
use crate::sources::clocks::{ArrivalCard, ClockCard};
use crate::sources::expectation::{Expectation, RateOrigin, StreamStatus};
use crate::sources::roster::PacketCard;
use crate::text::json::Big;

/// Number of streams whose histograms are copied under one lock of the fan-out.
const LOCKED_STREAMS: usize = 256;

/// A stream of a source in the form the interface shows.
#[derive(Debug, Serialize)]
struct StreamCard {
    stream: u32,
    name: String,
    received: Big<u64>,
    stored: Big<u64>,
    duplicate: Big<u64>,
    reduced: Big<u64>,
    rejected: Big<u64>,
    lost: Big<u64>,
    filled: Big<u64>,
    late: Big<u64>,
    restarts: Big<u64>,
    rate_hz: f64,
    expected_rate_hz: Option<f64>,
    expected: RateOrigin,
    loss: &'static str,
    last_receive_time: Option<Big<i64>>,
    last_source_time: Option<Big<i64>>,
    status: StreamStatus,
    status_since: Big<i64>,
    clock: Option<ClockCard>,
    inter_arrival: Option<ArrivalCard>,
    #[serde(skip_serializing_if = "Option::is_none")]
    packets: Option<PacketCard>,
}

impl StreamCard {
    fn new(stream: &Stream, counts: &Counts, newest: Option<NewestFrame>, of: &Expectation) -> StreamCard {
        StreamCard {
            stream: stream.id.0,
            name: stream.key.to_string(),
            received: Big(counts.received),
            stored: Big(counts.stored),
            duplicate: Big(counts.duplicate),
            reduced: Big(counts.reduced),
            rejected: Big(counts.rejected),
            lost: Big(counts.lost),
            filled: Big(counts.filled),
            late: Big(counts.late),
            restarts: Big(counts.restarts),
            rate_hz: rounded(of.rate_hz()),
            expected_rate_hz: of.expected_rate_hz().map(rounded),
            expected: of.expected(),
            loss: match (stream.sequence_modulus, of.expected()) {
                (Some(_), _) => "by sequence",
                (None, RateOrigin::Given) => "by period",
                (None, _) => "not knowable",
            },
            last_receive_time: newest.map(|n| Big(n.receive_time)),
            last_source_time: newest.and_then(|n| n.source_time).map(Big),
            status: match of.status() {
                // Internal streams have no expected rate, and a frame may have arrived since the last poll.
                StreamStatus::Never if newest.is_some() => StreamStatus::Ok,
                status => status,
            },
            status_since: Big(of.since()),
            clock: None,
            inter_arrival: None,
            packets: None,
        }
    }

    /// Adds the readings of its clock, the times between its frames, and what its packets say of themselves.
    fn with_times(
        self,
        clock: Option<ClockReading>,
        counts: Option<Histogram>,
        period_ns: Option<i64>,
        tally: Option<&Tally>,
    ) -> Self {
        // Stamps of a clock that was never set give no `source_time`, so only the packet counters know them.
        let never_set = tally.and_then(|tally| ClockCard::never_set(tally, clock.as_ref()));
        StreamCard {
            clock: never_set.or(clock.map(ClockCard::from)),
            inter_arrival: counts.map(|counts| ArrivalCard::new(&counts, period_ns)),
            packets: tally.map(PacketCard::of),
            ..self
        }
    }
}

/// Rejected data of a source for one reason.
#[derive(Debug, Serialize)]
struct RejectedCard {
    reason: &'static str,
    count: Big<u64>,
    last_time: Big<i64>,
    from: Option<String>,
    text: String,
    bytes: String,
}

impl From<Rejected> for RejectedCard {
    fn from(rejected: Rejected) -> RejectedCard {
        RejectedCard {
            reason: rejected.reason,
            count: Big(rejected.count),
            last_time: Big(rejected.last_time),
            from: rejected.sample.from.map(|peer| peer.to_string()),
            bytes: rejected.sample.hex(),
            text: rejected.sample.text,
        }
    }
}

/// Rounds a rate to four digits.
fn rounded(hz: f64) -> f64 {
    if hz <= 0.0 || !hz.is_finite() {
        return 0.0;
    }
    let step = 10_f64.powi(3 - hz.log10().floor() as i32);
    (hz * step).round() / step
}

/// Answers `GET /api/sources/{name}`.
pub(super) async fn source(State(server): State<Arc<Server>>, Path(name): Path<String>) -> Result<Response, Failure> {
    let reading = server.clone();
    let read = move || {
        let cards = reading.roster.cards();
        let card = cards.iter().find(|card| card.name == name)?;
        let store = reading.ingest.store();
        let catalog = store.catalog();
        let streams: Vec<&Arc<Stream>> = catalog.streams.iter().filter(|s| s.source == name).collect();
        let newest: Vec<_> = {
            let fanout = reading.ingest.live().fanout();
            streams.iter().map(|s| fanout.newest_of(s.id)).collect()
        };
        let expectations = reading.roster.expectations(streams.iter().map(|s| s.id));
        let cards = streams.iter().zip(newest).zip(&expectations);
        let cards = cards.map(|((s, newest), of)| StreamCard::new(s, &store.counts(s.id), newest, of));
        let own = reading.roster.own(&name);
        let tallies: HashMap<&StreamKey, &Tally> =
            own.tallies().iter().flat_map(|tally| tally.keys.iter().map(move |key| (key, tally))).collect();
        let mut arrivals: Vec<Option<Histogram>> = Vec::with_capacity(streams.len());
        for some in streams.chunks(LOCKED_STREAMS) {
            let fanout = reading.ingest.live().fanout();
            arrivals.extend(some.iter().map(|s| fanout.arrivals.histogram(s.id)));
        }
        let cards: Vec<StreamCard> = cards
            .zip(&streams)
            .zip(arrivals)
            .map(|((card, stream), arrivals)| {
                let (clock, tally) = (reading.clocks.reading(stream.id), tallies.get(&stream.key).copied());
                card.with_times(clock, arrivals, stream.expected_period_ns, tally)
            })
            .collect();
        let rejected: Vec<RejectedCard> = own.rejected().into_iter().map(RejectedCard::from).collect();
        Some(answer::json(&serde_json::json!({
            "name": card.name,
            "kind": card.kind,
            "address": card.address,
            "status": card.status,
            "streams": cards,
            "rejected": rejected,
            "unknown_streams": own.unknown_streams(),
            "kernel_drops": Big(card.counters.kernel_drops),
        })))
    };
    let found = server.readers.spawn(read).await.map_err(Failure::internal)?;
    found.ok_or_else(|| Failure::not_found("no such source; /api/sources lists those there are"))
}
