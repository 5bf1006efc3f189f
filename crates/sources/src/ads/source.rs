//! A PLC as a source: its thread, which connects, reads and reconnects.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::PipeReader;
use std::sync::Arc;
use std::time::Duration;

use super::connection::{Connection, Lost};
use super::counts::AdsCounts;
use super::group::GroupPast;
use super::intake::PlcReceiver;
use super::layout::AdsLayout;
use super::program::{Halt, Surroundings};
use super::session::Session;
use crate::clock::Now;
use crate::counts::get;
use crate::sink::Sink;
use crate::start::StartError;
use crate::throttle::Throttle;
use crate::worker::{Worker, woken_within};

/// Pause before the first reconnect. It doubles up to the maximum.
const PAUSE: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Starter of sources that read PLCs.
#[derive(Debug)]
pub struct PlcSource;

impl PlcSource {
    /// Starts the thread of a PLC. A PLC that is unreachable or has no route is not an error; the thread keeps
    /// retrying.
    ///
    /// # Errors
    /// If the stream of its state cannot be resolved or the thread cannot be started.
    pub fn start(layout: AdsLayout, sink: Arc<dyn Sink>, now: Now) -> Result<RunningPlc, StartError> {
        let name = layout.name.clone();
        let address = layout.target.host.clone();
        let counts = Arc::new(AdsCounts::default());
        let intake = PlcReceiver::new(&layout, sink, Arc::clone(&counts), Arc::clone(&now))
            .map_err(|source| StartError::Stream { name: name.clone(), source })?;
        let of_thread = Arc::clone(&counts);
        let worker = Worker::start(format!("ads-{name}"), move |wait| {
            connect_until_woken(&layout, intake, &of_thread, &now, wait);
        })
        .map_err(|source| StartError::Thread { name: name.clone(), source })?;
        Ok(RunningPlc { name, address, counts, worker })
    }
}

/// A running source. Dropping it stops it.
#[derive(Debug)]
pub struct RunningPlc {
    /// Name of the source.
    pub name: String,
    /// Host of the PLC.
    pub address: String,
    /// Counters.
    pub counts: Arc<AdsCounts>,
    worker: Worker,
}

impl RunningPlc {
    /// Asks the source to stop; [`RunningPlc::stop`] waits for it.
    pub fn begin_stop(&mut self) {
        self.worker.begin_stop();
    }

    /// Deletes the PLC's notification handles, then ends the thread. Returns once it has ended.
    pub fn stop(&mut self) {
        self.worker.stop();
    }
}

/// Returns a random time between half of `pause` and `pause`, so that clients of one PLC do not all connect at once.
fn jittered(pause: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish();
    pause / 2 + (pause / 2).mul_f64((random >> 11) as f64 / (1_u64 << 53) as f64)
}

fn connect_until_woken(layout: &AdsLayout, mut intake: PlcReceiver, counts: &AdsCounts, now: &Now, wait: &PipeReader) {
    let mut past: Vec<GroupPast> = layout.groups.iter().map(GroupPast::new).collect();
    let mut pause = PAUSE;
    let mut log = Throttle::new(3, 60_000_000_000);
    let mut told = String::new();
    let mut refusals = 0_u32;
    loop {
        let before = get(&counts.connections);
        let lost = match Connection::open(&layout.target) {
            Ok(connection) => {
                let around = Surroundings { wake: Some(wait), counts, now, timeout: layout.target.timeout };
                let mut session = Session::new(layout, around, connection, &mut intake, &mut past);
                match session.run() {
                    Halt::Stopped => return,
                    Halt::Lost(lost) => {
                        session.say_lost();
                        lost
                    }
                }
            }
            Err(lost) => lost,
        };
        if get(&counts.connections) > before {
            pause = PAUSE;
        }
        refusals = if matches!(lost, Lost::Refused { .. }) { refusals.saturating_add(1) } else { 0 };
        // A starting PLC refuses connections for a moment. Report it only if the next attempt fails, too.
        if refusals != 1 {
            let text = lost.to_string();
            // Report repeated errors at a limited rate.
            if text != told {
                intake.tell("warning", text.clone());
                told = text;
            } else if let Some(held) = log.pass(now()) {
                tracing::warn!(source = layout.name, held, "{text}");
            }
        }
        if woken_within(wait, jittered(pause)) {
            return;
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
