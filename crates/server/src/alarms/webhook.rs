//! Alarms over HTTP: each reported step is posted to the receivers of `[[webhook]]`, one after the other.
//!
//! ```text
//! limits ─ offer ─> queue, one per receiver    bounded; drops and counts the oldest; never blocks
//!                ─> one thread per receiver    posts, retrying with growing pauses  [this file]
//! ```
//!
//! A receiver gets steps in order, each at least once while the server runs; retries have the same `id`. A slow, dead
//! or hostile receiver only delays itself and its thread. Only live results of limits are offered; results over the
//! past are reported elsewhere.

pub mod message;
pub mod post;
pub mod queue;
pub mod table;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use strongback_store::let_run;

use crate::alarms::limits::book::{Alarm, AlarmStep};
use crate::alarms::limits::rule::Level;
use crate::ingest::Ingest;
use crate::sources::ledger::Ledger;
use crate::sources::report::report;

use message::WebhookMessage;
use post::{PostError, Poster};
use queue::{Queue, QueuedStep};
use table::Receiver;

/// Max time between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Max time that a stop waits for a step being sent.
const STOP: Duration = Duration::from_secs(2);
/// Max unsent steps named in the log.
const NAMED_MAX: usize = 20;

/// All receivers.
#[derive(Debug, Default)]
pub struct Webhooks {
    /// Prefix of step ids, unique to this start of this store.
    prefix: String,
    told: AtomicU64,
    all: Vec<Arc<Webhook>>,
}

/// One receiver.
#[derive(Debug)]
pub struct Webhook {
    receiver: Receiver,
    poster: Poster,
    queue: Queue<WebhookMessage>,
    /// Counters.
    pub counters: WebhookCounters,
}

/// Counters of a receiver since start.
#[derive(Debug, Default)]
pub struct WebhookCounters {
    /// Steps sent.
    pub sent: AtomicU64,
    /// Failed attempts, which may have been retried.
    pub failed: AtomicU64,
    /// Steps that the receiver refused.
    pub refused: AtomicU64,
    /// Steps given up because they were retried for too long.
    pub expired: AtomicU64,
    /// Whether the last attempt failed.
    pub is_failing: AtomicBool,
}

impl Webhooks {
    /// Prepares the receivers. Nothing is sent before [`Webhooks::start`].
    ///
    /// # Errors
    /// Returns an error in words if a file cannot be read.
    pub fn new(receivers: Vec<Receiver>, origin: u128, epoch: u32) -> Result<Self, String> {
        let all = receivers
            .into_iter()
            .map(|receiver| {
                let (poster, queue) = (Poster::new(&receiver)?, Queue::new(receiver.queue));
                Ok(Arc::new(Webhook { receiver, poster, queue, counters: WebhookCounters::default() }))
            })
            .collect::<Result<_, String>>()?;
        Ok(Webhooks { prefix: format!("{origin:032x}-{epoch}"), told: AtomicU64::new(0), all })
    }

    /// Starts a thread for each receiver.
    ///
    /// # Errors
    /// Returns an error if a thread cannot be started.
    pub fn start(&self, ingest: &Arc<Ingest>, ledger: &Arc<Ledger>) -> std::io::Result<()> {
        for webhook in &self.all {
            let (webhook, ingest, ledger) = (webhook.clone(), ingest.clone(), ledger.clone());
            // Not joined: a receiver that does not respond must not delay a stop.
            let_run(std::thread::Builder::new().name("webhook".into()).spawn(move || webhook.run(&ingest, &ledger))?);
        }
        Ok(())
    }

    /// Queues a step for the receivers that want it. `worst` is the worst level of its alarm since it was raised.
    pub fn offer(&self, step: &AlarmStep, worst: Level, alarm: Option<&Alarm>) {
        let wants = |webhook: &&Arc<Webhook>| {
            let receiver = &webhook.receiver;
            worst >= receiver.level && receiver.steps.iter().any(|name| name == step.kind.name())
        };
        let mut message = None;
        for webhook in self.all.iter().filter(wants) {
            let message = message.get_or_insert_with(|| {
                let number = self.told.fetch_add(1, Relaxed) + 1;
                WebhookMessage::new(format!("{}-{number}", self.prefix), step, alarm)
            });
            if let Some(dropped) = webhook.queue.push(message.clone()) {
                let (id, name) = (&dropped.id, &webhook.receiver.name);
                tracing::error!("webhook {name:?}: no room, not sent: {} ({id})", dropped.summary());
            }
        }
    }

    /// Stops all threads: pending steps are attempted once more, and steps left over are named in the log.
    pub fn stop(&self) {
        self.all.iter().for_each(|webhook| webhook.queue.stop());
        let until = Instant::now() + STOP;
        for webhook in &self.all {
            webhook.leave(until);
        }
    }

    /// Returns the name of each receiver, its counters, and its numbers of pending and dropped steps.
    pub fn figures(&self) -> impl Iterator<Item = (&str, &WebhookCounters, (u64, u64))> {
        self.all.iter().map(|webhook| (webhook.receiver.name.as_str(), &webhook.counters, webhook.queue.counts()))
    }
}

impl Webhook {
    fn run(&self, ingest: &Ingest, ledger: &Ledger) {
        while let Some(next) = self.queue.take() {
            if let Some(next) = self.send(next, ingest, ledger) {
                self.queue.put_back(next);
                break;
            }
        }
        self.queue.end();
    }

    /// Sends a step, or gives it up. Returns the step if it did neither because of a stop.
    fn send(
        &self,
        next: QueuedStep<WebhookMessage>,
        ingest: &Ingest,
        ledger: &Ledger,
    ) -> Option<QueuedStep<WebhookMessage>> {
        let name = &self.receiver.name;
        let mut pause = self.receiver.retry;
        loop {
            let (_, dropped) = self.queue.counts();
            let body = next.item.body(name, next.number, dropped);
            let reason = match self.poster.post(&next.item.id, &body) {
                Ok(()) => {
                    self.counters.sent.fetch_add(1, Relaxed);
                    if self.counters.is_failing.swap(false, Relaxed) {
                        self.tell(ingest, ledger, "info", "takes alarms again".into());
                    }
                    return None;
                }
                Err(PostError::Refused(reason)) => {
                    self.counters.refused.fetch_add(1, Relaxed);
                    tracing::error!("webhook {name:?} refused {}: {reason}", next.item.summary());
                    if !self.counters.is_failing.swap(true, Relaxed) {
                        self.tell(ingest, ledger, "warning", format!("refuses alarms: {reason}"));
                    }
                    return None;
                }
                Err(PostError::Again(reason)) => reason,
            };
            self.counters.failed.fetch_add(1, Relaxed);
            if !self.counters.is_failing.swap(true, Relaxed) {
                self.tell(ingest, ledger, "warning", format!("does not take alarms: {reason}"));
            }
            if next.since.elapsed() + pause > self.receiver.retry_for {
                self.counters.expired.fetch_add(1, Relaxed);
                tracing::error!("webhook {name:?}: given up, not sent: {}: {reason}", next.item.summary());
                return None;
            }
            if self.queue.pause(pause) {
                return Some(next);
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Reports to the log and as an event.
    fn tell(&self, ingest: &Ingest, ledger: &Ledger, level: &str, what: String) {
        report(ingest, ledger, "webhook", level, format!("webhook {:?} {what}", self.receiver.name));
    }

    fn leave(&self, until: Instant) {
        let (left, is_sending) = self.queue.leave(until);
        let name = &self.receiver.name;
        if is_sending {
            tracing::warn!("webhook {name:?}: one step was being sent; whether it arrived is not known");
        }
        if left.is_empty() {
            return;
        }
        tracing::error!("webhook {name:?}: steps not sent before the stop: {}", left.len());
        for waiting in left.iter().take(NAMED_MAX) {
            tracing::error!("webhook {name:?}: not sent: {} ({})", waiting.item.summary(), waiting.item.id);
        }
    }
}
