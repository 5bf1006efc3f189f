//! `/metrics`: Prometheus text.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{Encoder, GaugeVec, IntCounterVec, IntGaugeVec, Opts, TextEncoder};
use strongback_archive::State as FollowerState;
use strongback_query::SourceCounters;

use super::answer::Failure;
use crate::alarms::webhook::WebhookCounters;
use crate::archives::FollowerCard;
use crate::process::connections::EndReason;
use crate::process::memory;
use crate::server::Server;
use crate::sources::clocks;
use crate::sources::clocks::estimate::ClockReading;
use crate::sources::roster::{PacketCard, PlcCard, SourceCard};

/// Metric families, rebuilt for each scrape from counters kept elsewhere.
struct Families(Vec<MetricFamily>);

impl Families {
    /// Adds a family of numbers with labels. `counter` is whether they only rise.
    fn add(
        &mut self,
        counter: bool,
        name: &str,
        help: &str,
        labels: &[&str],
        values: impl IntoIterator<Item = (Vec<String>, u64)>,
    ) -> prometheus::Result<()> {
        let opts = Opts::new(name, help);
        if counter {
            let family = IntCounterVec::new(opts, labels)?;
            for (labels, value) in values {
                let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
                family.get_metric_with_label_values(&labels)?.inc_by(value);
            }
            self.0.extend(family.collect());
        } else {
            let family = IntGaugeVec::new(opts, labels)?;
            for (labels, value) in values {
                let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
                family.get_metric_with_label_values(&labels)?.set(i64::try_from(value).unwrap_or(i64::MAX));
            }
            self.0.extend(family.collect());
        }
        Ok(())
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> prometheus::Result<()> {
        self.add(true, name, help, &[], [(Vec::new(), value)])
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) -> prometheus::Result<()> {
        self.add(false, name, help, &[], [(Vec::new(), value)])
    }
}

/// Answers `GET /metrics`.
pub(super) async fn metrics(State(server): State<Arc<Server>>) -> Result<Response, Failure> {
    let families = gather(&server).map_err(Failure::internal)?;
    // The encoder fails on a family without lines, so families in which nothing was counted are left out.
    let families: Vec<MetricFamily> = families.into_iter().filter(|f| !f.get_metric().is_empty()).collect();
    let encoder = TextEncoder::new();
    let mut body = Vec::with_capacity(16 * 1024);
    encoder.encode(&families, &mut body).map_err(Failure::internal)?;
    Ok(([(header::CONTENT_TYPE, encoder.format_type().to_owned())], body).into_response())
}

/// Adds the metrics of PLC sources.
fn plcs(all: &mut Families, cards: &[SourceCard]) -> prometheus::Result<()> {
    type Get = fn(&PlcCard) -> u64;
    let of = |get: Get| {
        cards
            .iter()
            .filter_map(move |card| Some((vec![card.name.clone()], get(card.plc.as_ref()?))))
            .collect::<Vec<_>>()
    };
    let gauges: [(&str, &str, Get); 4] = [
        ("connected", "1 while the PLC answers.", |plc| u64::from(plc.connected)),
        ("symbols", "Symbols read now.", |plc| plc.symbols.0),
        ("missing_symbols", "Symbols that give no values now.", |plc| plc.missing.0),
        ("notification_handles", "Notification handles now.", |plc| plc.handles.0),
    ];
    let counters: [(&str, &str, Get); 8] = [
        ("connections", "Connections that answered.", |plc| plc.connections.0),
        ("samples", "Samples of notifications.", |plc| plc.samples.0),
        ("timeouts", "Requests without an answer in time.", |plc| plc.timeouts.0),
        ("dropped_cycles", "Cycles of notifications that did not come.", |plc| plc.dropped_cycles.0),
        ("late_notifications", "Notifications that came long after their time.", |plc| plc.late.0),
        ("clock_sets", "Times the PLC's clock was set.", |plc| plc.clock_sets.0),
        ("program_changes", "Times the program was looked at anew.", |plc| plc.program_changes.0),
        ("rate_alarms", "Groups that came more than twice as fast as asked for.", |plc| plc.rate_alarms.0),
    ];
    for (name, help, get) in gauges {
        all.add(false, &format!("strongback_plc_{name}"), help, &["source"], of(get))?;
    }
    for (name, help, get) in counters {
        all.add(true, &format!("strongback_plc_{name}_total"), help, &["source"], of(get))?;
    }
    Ok(())
}

/// Adds what packets say of themselves, by stream id.
fn packets(all: &mut Families, server: &Server, cards: &[SourceCard]) -> prometheus::Result<()> {
    type Values = Vec<(Vec<String>, u64)>;
    let mut counted: BTreeMap<(&'static str, &'static str), Values> = BTreeMap::new();
    for card in cards {
        for tally in server.roster.own(&card.name).tallies() {
            for (name, help, count) in PacketCard::of(tally).counters() {
                let labels = vec![card.name.clone(), format!("{:#010x}", tally.id)];
                counted.entry((name, help)).or_default().push((labels, count));
            }
        }
    }
    for ((name, help), values) in counted {
        all.add(true, &format!("strongback_packet_{name}_total"), help, &["source", "stream_id"], values)?;
    }
    Ok(())
}

/// Adds the clocks of the sources by stream, for those that are recorded.
fn source_clocks(all: &mut Families, server: &Server) -> prometheus::Result<()> {
    type Get = fn(&ClockReading) -> f64;
    let gauges: [(&str, &str, Get); 4] = [
        ("offset_seconds", "Source's clock less that of reception, least way included.", |r| r.offset_ns as f64 / 1e9),
        ("drift_ppm", "What the source's clock gains, millionths.", |r| r.drift_ppm),
        ("spread_seconds", "How much later than the quickest frames come typically.", |r| r.spread_ns as f64 / 1e9),
        ("jumps", "Jumps of the source's clock since start.", |r| r.jumps as f64),
    ];
    let catalog = server.ingest.store().catalog();
    let clocks: Vec<(&str, String, &str, ClockReading)> = server
        .clocks
        .readings()
        .into_iter()
        .take(clocks::RECORDED_MAX)
        .filter_map(|(id, reading)| {
            let stream = catalog.stream(id)?;
            Some((stream.source.as_str(), stream.key.to_string(), reading.state.name(), reading))
        })
        .collect();
    for (name, help, get) in gauges {
        let opts = Opts::new(format!("strongback_source_clock_{name}"), help);
        let family = GaugeVec::new(opts, &["source", "stream"])?;
        for (source, stream, _, reading) in &clocks {
            family.get_metric_with_label_values(&[*source, stream.as_str()])?.set(get(reading));
        }
        all.0.extend(family.collect());
    }
    let states = clocks
        .iter()
        .map(|(source, stream, state, _)| (vec![(*source).to_owned(), stream.clone(), (*state).to_owned()], 1));
    all.add(
        false,
        "strongback_source_clock_state",
        "1, labelled with how well the clock is known.",
        &["source", "stream", "state"],
        states,
    )
}

/// Adds the metrics of limits and alarms.
fn limits(all: &mut Families, server: &Server) -> prometheus::Result<()> {
    let counters = &server.limits.counters;
    all.gauge(
        "strongback_limit_channels",
        "Channels under limits, each limit counted.",
        counters.channels.load(Relaxed),
    )?;
    let mut alarms: BTreeMap<(&'static str, &'static str), u64> = BTreeMap::new();
    for alarm in server.limits.alarms() {
        *alarms.entry((alarm.level, alarm.state)).or_default() += 1;
    }
    let alarms = alarms.into_iter().map(|((level, state), count)| (vec![level.to_owned(), state.to_owned()], count));
    all.add(false, "strongback_alarms", "Alarms that are not over.", &["level", "state"], alarms)?;
    for (name, help, count) in [
        ("judged", "Frames that limits judged.", &counters.judged),
        ("late", "Frames judged after their turn.", &counters.late),
        ("unjudged", "Frames that found no room on their way to the limits.", &counters.unjudged),
        ("unrecorded", "Steps of alarms that the store refused for good.", &counters.unrecorded),
    ] {
        all.counter(&format!("strongback_limit_{name}_total"), help, count.load(Relaxed))?;
    }
    Ok(())
}

/// Adds the metrics of webhooks.
fn webhooks(all: &mut Families, server: &Server) -> prometheus::Result<()> {
    type Get = fn(&WebhookCounters, (u64, u64)) -> u64;
    let figures: [(bool, &str, &str, Get); 7] = [
        (true, "sent_total", "Steps of alarms that a webhook took.", |c, _| c.sent.load(Relaxed)),
        (true, "failed_total", "Posts that failed and may be tried again.", |c, _| c.failed.load(Relaxed)),
        (true, "refused_total", "Steps that a webhook refused.", |c, _| c.refused.load(Relaxed)),
        (true, "expired_total", "Steps that were tried for too long.", |c, _| c.expired.load(Relaxed)),
        (true, "dropped_total", "Steps that found no room.", |_, (_, dropped)| dropped),
        (false, "waiting", "Steps that are not sent yet.", |_, (waiting, _)| waiting),
        (false, "failing", "1 if the last post failed.", |c, _| u64::from(c.is_failing.load(Relaxed))),
    ];
    for (rises, name, help, get) in figures {
        let values = server.limits.webhooks.figures();
        let values = values.map(|(webhook, counters, queue)| (vec![webhook.to_owned()], get(counters, queue)));
        all.add(rises, &format!("strongback_webhook_{name}"), help, &["webhook"], values)?;
    }
    Ok(())
}

/// Adds the metrics of followers.
fn archives(all: &mut Families, server: &Server) -> prometheus::Result<()> {
    type Get = fn(&FollowerCard) -> u64;
    let figures: [(bool, &str, &str, Get); 9] = [
        (true, "delivered_frames_total", "Frames that are durable at the target.", |c| c.status.delivered_frames),
        (true, "sent_bytes_total", "Bytes sent.", |c| c.status.sent_bytes),
        (true, "failed_attempts_total", "Attempts that failed.", |c| c.status.failed_attempts),
        (true, "rejected_frames_total", "Frames that the target rejects.", |c| c.status.rejected_frames),
        (true, "skipped_frames_total", "Frames no longer stored when their turn came.", |c| c.status.skipped_frames),
        (true, "altered_values_total", "Values that the target cannot represent.", |c| c.status.altered_values),
        (false, "behind_frames", "Committed frames that are not delivered.", |c| c.status.behind_frames),
        (false, "lag_ms", "Age of the oldest frame that is not delivered.", |c| (c.lag_s * 1e3) as u64),
        (false, "failing", "1 if the last attempt failed.", |c| u64::from(c.status.state == FollowerState::Retrying)),
    ];
    let cards = server.archives.cards();
    for (rises, name, help, get) in figures {
        let values = cards.iter().map(|card| (vec![card.name.clone()], get(card)));
        all.add(rises, &format!("strongback_archive_{name}"), help, &["archive"], values)?;
    }
    Ok(())
}

/// Adds the metrics of HTTP connections and of the memory held for clients.
fn clients(all: &mut Families, server: &Server) -> prometheus::Result<()> {
    all.gauge("strongback_http_connections", "Connections of HTTP, live clients among them.", {
        server.connections.len() as u64
    })?;
    let ended = EndReason::ALL.map(|(why, name)| (vec![name.to_owned()], server.connections.ended(why)));
    let help = "Connections that the server ended or did not take, by reason.";
    all.add(true, "strongback_http_connections_ended_total", help, &["reason"], ended)?;
    let held = server.budget.held() as u64;
    all.gauge(
        "strongback_client_memory_bytes",
        "Memory held for clients: bodies, answers, histories, playbacks.",
        held,
    )?;
    let refused = server.budget.refused();
    all.counter("strongback_client_memory_refused_total", "Requests for memory that clients were refused.", refused)
}

/// Adds the metrics of derived channels.
fn derived(all: &mut Families, server: &Server) -> prometheus::Result<()> {
    let counters = &server.derived.counters;
    let troubles = server.derived.troubles().len() as u64;
    all.gauge("strongback_derived_failing", "Derived channels with trouble within the last minute.", troubles)?;
    let evaluations = counters.instances.load(Relaxed);
    all.gauge(
        "strongback_derived_evaluations",
        "Derived channels at work, each stream that triggers counted.",
        evaluations,
    )?;
    for (name, help, count) in [
        ("results", "Frames at which derived channels were evaluated.", &counters.results),
        ("failed", "Evaluations that failed.", &counters.failed),
        ("zero_divisors", "Divisors that were 0.", &counters.zero_divisors),
        ("left_out", "Samples that found no room in a window.", &counters.left_out),
        ("late", "Frames that came after their turn.", &counters.late),
    ] {
        all.counter(&format!("strongback_derived_{name}_total"), help, count.load(Relaxed))?;
    }
    Ok(())
}

fn gather(server: &Server) -> prometheus::Result<Vec<MetricFamily>> {
    let mut all = Families(server.ingest.commit_histogram().collect());
    clients(&mut all, server)?;
    let cards = server.roster.cards();
    for (at, (name, help)) in SourceCounters::ALL.iter().enumerate() {
        // Rejections have a family of their own, by reason.
        if *name != "rejected" {
            let values = cards.iter().map(|card| (vec![card.name.clone()], card.counters.values()[at]));
            all.add(true, &format!("strongback_source_{name}_total"), help, &["source"], values)?;
        }
    }
    let rejected = cards.iter().flat_map(|card| {
        let known: u64 = card.rejected_by.values().sum();
        let by = card.rejected_by.iter().map(|(reason, n)| (vec![card.name.clone(), (*reason).to_owned()], *n));
        let other = card.counters.rejected.saturating_sub(known);
        by.chain((other > 0).then(|| (vec![card.name.clone(), "other".to_owned()], other)))
    });
    all.add(
        true,
        "strongback_source_rejected_total",
        "Frames, datagrams and lines refused, by reason.",
        &["source", "reason"],
        rejected,
    )?;
    let unknown = cards
        .iter()
        .flat_map(|card| card.unknown_streams.iter().map(|(id, n)| (vec![card.name.clone(), id.clone()], *n)));
    all.add(
        true,
        "strongback_source_unknown_stream_total",
        "Packets without a layout, by stream id.",
        &["source", "stream_id"],
        unknown,
    )?;
    plcs(&mut all, &cards)?;
    packets(&mut all, server, &cards)?;
    source_clocks(&mut all, server)?;
    limits(&mut all, server)?;
    webhooks(&mut all, server)?;
    archives(&mut all, server)?;
    derived(&mut all, server)?;
    all.counter("strongback_gaps_total", "Gaps found since start.", server.ledger.gaps_found())?;
    all.counter(
        "strongback_events_unrecorded_total",
        "Events of the server that are in its log alone.",
        server.ledger.unrecorded(),
    )?;

    let stats = server.ingest.store().stats();
    all.counter("strongback_commits_total", "Commits since start.", stats.commits)?;
    all.counter("strongback_written_bytes_total", "Bytes written since start, log included.", stats.written_bytes)?;
    all.gauge("strongback_disk_bytes", "Bytes on disk.", stats.disk_bytes)?;
    all.gauge("strongback_segments", "Sealed and open segments.", stats.segments)?;
    all.gauge("strongback_block_bytes", "Bytes of encoded blocks.", stats.block_bytes)?;
    all.gauge("strongback_block_points", "Points in encoded blocks.", stats.block_points)?;
    all.gauge("strongback_open_bytes", "Memory of data not yet sealed into blocks.", stats.open_bytes)?;
    all.gauge("strongback_log_used_bytes", "Bytes of the commit log in use.", stats.log_used_bytes)?;
    all.gauge("strongback_log_bytes", "Bytes of the commit log's ring.", stats.log_bytes)?;
    all.gauge("strongback_streams", "Streams in the catalog.", stats.streams)?;
    all.gauge("strongback_channels", "Channels in the catalog.", stats.channels)?;
    all.counter(
        "strongback_store_reopened_total",
        "Times the store was opened again after its disk failed.",
        server.ingest.reopenings(),
    )?;
    all.gauge("strongback_epoch", "Openings of the store since it was made.", server.ingest.store().epoch().into())?;
    all.gauge(
        "strongback_recording",
        "1 while frames are recorded.",
        u64::from(server.ingest.recording() == "recording"),
    )?;

    let live = server.ingest.live();
    let counters = live.counters();
    let (not_recorded, points) = {
        let fanout = live.fanout();
        (fanout.not_recorded, fanout.points)
    };
    all.counter("strongback_points_total", "Values received since start.", points)?;
    all.counter(
        "strongback_not_recorded_total",
        "Frames that were shown live and not stored, because the store refused.",
        not_recorded,
    )?;
    all.gauge("strongback_live_clients", "Live clients.", counters.clients.load(Relaxed))?;
    all.gauge("strongback_live_subscriptions", "Live subscriptions.", counters.subscriptions.load(Relaxed))?;
    all.gauge("strongback_live_channels", "Channels over all live subscriptions.", counters.channels.load(Relaxed))?;
    all.counter("strongback_live_updates_total", "Updates sent to live clients.", counters.updates.load(Relaxed))?;
    all.counter(
        "strongback_live_conflated_total",
        "Updates merged because their client was slow.",
        counters.conflated.load(Relaxed),
    )?;
    all.counter(
        "strongback_live_dropped_total",
        "Events and gaps that a slow client lost.",
        counters.dropped.load(Relaxed),
    )?;
    let queues = [
        ("ilp_connections", server.ingress.counts().connections.load(Relaxed)),
        ("live_windows", live.windows_waiting()),
        ("log_pending_bytes", stats.log_used_bytes),
    ];
    all.add(
        false,
        "strongback_queue_depth",
        "What waits, by queue: subscriptions with windows not yet sent, and others.",
        &["queue"],
        queues.into_iter().map(|(name, n)| (vec![name.to_owned()], n)),
    )?;
    all.gauge("strongback_resident_memory_bytes", "Resident memory of the process.", memory::resident_bytes())?;
    all.gauge("strongback_uptime_seconds", "Seconds since start.", server.started.elapsed().as_secs())?;
    all.add(
        false,
        "strongback_build",
        "1, labelled with the version.",
        &["version"],
        [(vec![env!("CARGO_PKG_VERSION").to_owned()], 1)],
    )?;
    Ok(all.0)
}
