//! The pad as a generator: frames in sending order, without sockets or clocks.

use crate::channel::{Cell, PadSource, PadStream};
use crate::countdown::PadEvent;
use crate::noise::Random;
use crate::plant::{Plant, STEP_MS};
use crate::{avionics, fti, plc};

/// Nanoseconds per step of the pad: 200 steps a second.
pub const STEP_NS: i64 = STEP_MS * 1_000_000;
/// Number of packets before the first loss, so that a receiver knows the sequence.
const FIRST_LOSS_PACKETS: f64 = 150.0;
/// Min number of packets between two losses of a stream: 3 s, so that each is a separate gap.
const APART_PACKETS: u64 = 150;
/// Mean seconds between spikes.
const SPIKES_S: f64 = 60.0;

/// Options of a pad.
#[derive(Clone, Copy, Debug)]
pub struct PadOptions {
    /// Seed of the values; the same seed gives the same values.
    pub seed: u64,
    /// Chance that a loss begins at an iNET-X packet; 0 for no loss.
    pub loss: f64,
    /// Milliseconds from the start to lift-off, not counting holds.
    pub t0_ms: i64,
}

impl Default for PadOptions {
    fn default() -> Self {
        PadOptions { seed: 1, loss: 5e-4, t0_ms: 130_000 }
    }
}

/// Frame of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PadFrame {
    /// Index into [`Pad::streams`].
    pub stream: usize,
    /// Sampling time according to its source, nanoseconds since the pad's start.
    pub time_ns: i64,
    /// Number of earlier frames of the stream: the wire's sequence for iNET-X streams without sub-frame samples.
    pub sequence: u64,
    /// Whether it is withheld: its packet is lost on the way.
    pub lost: bool,
    first_cell: usize,
    cells: usize,
}

/// Spike of one millisecond in a fast channel.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Spike {
    /// Name of the channel, `table.channel`.
    pub channel: String,
    /// Nanoseconds since the pad's start.
    pub time_ns: i64,
    /// Value that was sent.
    pub value: f32,
}

/// Output of one step of 5 ms. Reused between steps.
#[derive(Clone, Debug, Default)]
pub struct PadStep {
    /// End of the step, nanoseconds since the pad's start.
    pub time_ns: i64,
    /// Frames in sending order; those of one iNET-X packet are neighbours.
    pub frames: Vec<PadFrame>,
    /// Events of the countdown.
    pub events: Vec<PadEvent>,
    /// Spikes inserted into fast channels.
    pub spikes: Vec<Spike>,
    cells: Vec<Cell>,
}

impl PadStep {
    /// Returns the cells of a frame of this step, one for each channel of its stream.
    pub fn cells(&self, frame: &PadFrame) -> &[Cell] {
        &self.cells[frame.first_cell..frame.first_cell + frame.cells]
    }
}

/// Losses of one iNET-X stream.
#[derive(Clone, Debug)]
struct Loss {
    mean_packets: f64,
    until_next: u64,
    left: u64,
    random: Random,
}

impl Loss {
    fn new(seed: u64, stream: u64, loss: f64) -> Self {
        let mut random = Random::new(seed, 0x1055 + stream);
        let mean_packets = if loss > 0.0 { 1.0 / loss.min(0.01) } else { f64::INFINITY };
        let first = FIRST_LOSS_PACKETS * random.between(1.0, 3.0);
        let until_next = if loss > 0.0 { first as u64 } else { u64::MAX };
        Loss { mean_packets, until_next, left: 0, random }
    }

    /// Decides whether the next packet is lost.
    fn next(&mut self) -> bool {
        if self.left > 0 {
            self.left -= 1;
            return true;
        }
        if self.until_next > 0 {
            self.until_next -= 1;
            return false;
        }
        // One to five packets.
        self.left = self.random.bits() % 5;
        self.until_next = APART_PACKETS + self.random.exponential(self.mean_packets) as u64;
        true
    }
}

/// Generator of the pad's frames. The same options give the same frames, cell by cell.
#[derive(Clone, Debug)]
pub struct Pad {
    plant: Plant,
    streams: Vec<PadStream>,
    losses: Vec<Loss>,
    steps: u64,
    random: Random,
    spike_left_ms: f64,
}

impl Pad {
    /// Returns a pad at `t0_ms` before lift-off.
    pub fn new(options: PadOptions) -> Self {
        Self::of(options, &PadSource::ALL)
    }

    /// Returns a pad with the streams of some sources only; their frames equal those of the whole pad.
    pub fn of(options: PadOptions, sources: &[PadSource]) -> Self {
        let seed = options.seed;
        let mut plant = Plant::new(seed, -options.t0_ms);
        let mut streams = fti::streams(seed);
        let mut losses: Vec<Loss> = (0..streams.len() as u64).map(|i| Loss::new(seed, i, options.loss)).collect();
        streams.extend(avionics::streams(seed));
        streams.extend(plc::streams(seed, &mut plant));
        // Only the first streams, those of flight test instrumentation, have losses.
        if !sources.contains(&PadSource::Fti) {
            losses.clear();
        }
        streams.retain(|s| sources.contains(&s.source));
        let mut random = Random::new(seed, 0x5_91ce);
        let spike_left_ms = random.between(8_000.0, 20_000.0);
        Pad { plant, streams, losses, steps: 0, random, spike_left_ms }
    }

    /// Returns its streams; frames refer to them by index.
    pub fn streams(&self) -> &[PadStream] {
        &self.streams
    }

    /// Returns the countdown clock in seconds, negative before lift-off.
    pub fn clock_s(&self) -> f64 {
        self.plant.countdown.clock_s()
    }

    /// Returns the process behind the streams.
    pub(crate) fn plant(&self) -> &Plant {
        &self.plant
    }

    /// Runs the next 5 ms.
    pub fn step(&mut self, out: &mut PadStep) {
        out.frames.clear();
        out.cells.clear();
        out.events.clear();
        out.spikes.clear();
        let step = self.steps;
        self.steps += 1;
        let end_ns = self.steps as i64 * STEP_NS;
        out.time_ns = end_ns;
        let events = &mut out.events;
        self.plant.step(|text, level| events.push(PadEvent { time_ns: end_ns, text, level }));
        for index in 0..self.streams.len() {
            let stream = &mut self.streams[index];
            if step % stream.every != stream.phase {
                continue;
            }
            let lost = self.losses.get_mut(index).is_some_and(Loss::next);
            let burst = stream.burst;
            for i in 0..burst {
                // Sub-frame samples are in the cycle that ends with this step.
                let back_ns = i64::from(burst - 1 - i) * stream.period_ns;
                let part = (1.0 - back_ns as f64 / STEP_NS as f64).max(0.0);
                let push = match stream.source {
                    PadSource::PlcFast => spike(&mut self.random, &mut self.spike_left_ms, stream.channels.len()),
                    _ => None,
                };
                let first_cell = out.cells.len();
                let sequence = stream.frames;
                stream.frame(&self.plant, part, push, &mut out.cells);
                let late_ns = match stream.jitter_ns {
                    0 => 0,
                    // Controllers stamp in microseconds.
                    jitter => (stream.random.uniform() * jitter as f64 / 1000.0) as i64 * 1000,
                };
                let time_ns = end_ns - back_ns - late_ns;
                let cells = out.cells.len() - first_cell;
                if let Some((channel, _)) = push
                    && let Cell::Quantised { value, .. } = out.cells[first_cell + channel]
                {
                    let channel = format!("{}.{}", stream.table, stream.channels[channel].name);
                    out.spikes.push(Spike { channel, time_ns, value });
                }
                out.frames.push(PadFrame { stream: index, time_ns, sequence, lost, first_cell, cells });
            }
        }
    }

    /// Calls `each` for every frame of `seconds` that is not lost, for benchmarks that prepare data in advance.
    pub fn frames(&mut self, seconds: f64, mut each: impl FnMut(&PadFrame, &PadStream, &[Cell])) {
        let mut out = PadStep::default();
        for _ in 0..(seconds * 1e9 / STEP_NS as f64).round() as u64 {
            self.step(&mut out);
            for frame in out.frames.iter().filter(|f| !f.lost) {
                each(frame, &self.streams[frame.stream], out.cells(frame));
            }
        }
    }
}

/// Advances by a millisecond; occasionally returns a channel and the size of a spike, as a fraction of full scale.
fn spike(random: &mut Random, left_ms: &mut f64, channels: usize) -> Option<(usize, f64)> {
    *left_ms -= 1.0;
    if *left_ms > 0.0 {
        return None;
    }
    *left_ms = 5_000.0 + random.exponential(SPIKES_S * 1000.0);
    // Every second one is in the channel that the launch view shows: the LOX tank.
    let channel = if random.bits() & 1 == 0 { 0 } else { (random.bits() % channels as u64) as usize };
    Some((channel, random.between(0.06, 0.22)))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::plc::SLOW_CHANNELS;

    fn pad(seed: u64) -> Pad {
        Pad::new(PadOptions { seed, ..PadOptions::default() })
    }

    #[test]
    fn channels_and_rates_are_the_mission_s() {
        let mut pad = pad(1);
        let channels =
            |source| -> usize { pad.streams().iter().filter(|s| s.source == source).map(|s| s.channels.len()).sum() };
        assert_eq!(channels(PadSource::Avionics), 240);
        assert_eq!(channels(PadSource::Plc), SLOW_CHANNELS);
        assert_eq!(channels(PadSource::PlcFast), 50);
        let mut points: HashMap<PadSource, usize> = HashMap::new();
        let mut out = PadStep::default();
        for _ in 0..10 * 200 {
            pad.step(&mut out);
            for frame in &out.frames {
                *points.entry(pad.streams()[frame.stream].source).or_default() += out.cells(frame).len();
            }
        }
        assert_eq!(points[&PadSource::Fti], 10 * 2_500);
        assert_eq!(points[&PadSource::Avionics], 10 * 6_000);
        assert_eq!(points[&PadSource::Plc], 10 * 10_000);
        assert_eq!(points[&PadSource::PlcFast], 10 * 50_000);
    }

    #[test]
    fn a_seed_gives_the_same_frames_and_another_gives_others() {
        let run = |seed| {
            let mut all = Vec::new();
            pad(seed).frames(2.0, |frame, _, cells| all.push((*frame, cells.to_vec())));
            all
        };
        let first = run(11);
        assert!(first == run(11), "the same seed gave other frames");
        assert!(first != run(12));
    }

    #[test]
    fn a_part_of_the_pad_sends_what_it_sends_in_the_whole() {
        let run = |sources: &[PadSource]| {
            let mut all = Vec::new();
            Pad::of(PadOptions { seed: 11, ..PadOptions::default() }, sources).frames(12.0, |frame, stream, cells| {
                if matches!(stream.source, PadSource::Plc | PadSource::PlcFast) {
                    all.push((stream.table.clone(), frame.time_ns, cells.to_vec()));
                }
            });
            all
        };
        assert!(run(&PadSource::ALL) == run(&[PadSource::Plc, PadSource::PlcFast]));
    }

    #[test]
    fn every_sensor_is_quantised_with_two_steps_of_noise_and_never_repeats() {
        let mut pad = pad(5);
        let mut codes: HashMap<(usize, usize), Vec<u32>> = HashMap::new();
        let streams = pad.streams().to_vec();
        let mut out = PadStep::default();
        for _ in 0..20 * 200 {
            pad.step(&mut out);
            for frame in &out.frames {
                for (index, cell) in out.cells(frame).iter().enumerate() {
                    if let Cell::Quantised { code, value } = cell {
                        let (bits, [offset, lsb]) = streams[frame.stream].channels[index].converter().unwrap();
                        assert!(bits == 12 || bits == 16);
                        assert!(*code < 1 << bits);
                        let exact = f64::from(*code) * lsb + offset;
                        assert!(*value == exact as f32 || exact.abs() < lsb * 1e-6);
                        codes.entry((frame.stream, index)).or_default().push(*code);
                    }
                }
            }
        }
        for ((stream, channel), codes) in codes {
            let name = format!("{}.{}", streams[stream].table, streams[stream].channels[channel].name);
            let square: f64 = codes.windows(2).map(|w| (f64::from(w[1]) - f64::from(w[0])).powi(2)).sum();
            let rms = (square / (codes.len() - 1) as f64 / 2.0).sqrt();
            // An estimate from few samples scatters; the noise is at least 2.1 steps.
            let least = 2.1 * (1.0 - 2.5 / (codes.len() as f64).sqrt());
            assert!(rms >= least, "{name}: {rms} of {} samples", codes.len());
            // No sequence of 25 samples occurs twice.
            let mut seen = std::collections::HashSet::new();
            assert!(codes.chunks_exact(25).all(|c| seen.insert(c.to_vec())), "{name} repeats");
        }
    }

    #[test]
    fn losses_come_apart_and_are_marked_by_whole_packets() {
        let mut pad = Pad::new(PadOptions { loss: 0.01, ..PadOptions::default() });
        let mut out = PadStep::default();
        let mut lost: HashMap<usize, Vec<u64>> = HashMap::new();
        for _ in 0..60 * 200 {
            pad.step(&mut out);
            for frame in out.frames.iter().filter(|f| f.lost) {
                assert_eq!(pad.streams()[frame.stream].source, PadSource::Fti);
                lost.entry(frame.stream).or_default().push(frame.sequence);
            }
        }
        assert_eq!(lost.len(), 3, "every iNET-X stream loses packets at 1 %");
        for (stream, sequences) in lost {
            let burst = u64::from(pad.streams()[stream].burst);
            assert_eq!(sequences.len() as u64 % burst, 0);
            let packets: Vec<u64> = sequences.iter().step_by(burst as usize).map(|s| s / burst).collect();
            assert!(packets[0] >= 150);
            let breaks = packets.windows(2).filter(|w| w[1] != w[0] + 1).map(|w| w[1] - w[0]);
            assert!(breaks.into_iter().all(|apart| apart >= APART_PACKETS));
        }
    }

    #[test]
    fn a_spike_is_logged_and_stands_out_for_one_millisecond() {
        let mut pad = pad(1);
        let mut out = PadStep::default();
        let mut spikes = Vec::new();
        let mut tank = Vec::new();
        for _ in 0..40 * 200 {
            pad.step(&mut out);
            spikes.append(&mut out.spikes);
            for frame in &out.frames {
                if pad.streams()[frame.stream].table == "plc.fast" {
                    tank.push((frame.time_ns, out.cells(frame).to_vec()));
                }
            }
        }
        assert!(!spikes.is_empty());
        for spike in &spikes {
            let name = spike.channel.strip_prefix("plc.fast.").unwrap();
            let stream = pad.streams().iter().find(|s| s.table == "plc.fast").unwrap();
            let index = stream.channels.iter().position(|c| c.name == name).unwrap();
            let at = tank.iter().position(|(t, _)| *t == spike.time_ns).unwrap();
            let value = |i: usize| match tank[i].1[index] {
                Cell::Quantised { value, .. } => value,
                _ => unreachable!(),
            };
            assert_eq!(value(at), spike.value);
            let (_, [_, lsb]) = stream.channels[index].converter().unwrap();
            let height = 40.0 * lsb as f32;
            assert!(value(at) - value(at - 1) > height && value(at) - value(at + 1) > height, "{spike:?}");
        }
    }

    #[test]
    fn times_never_lie_in_the_future_and_ascend_within_a_stream() {
        let mut pad = pad(2);
        let mut out = PadStep::default();
        let mut last: HashMap<usize, i64> = HashMap::new();
        for _ in 0..5 * 200 {
            pad.step(&mut out);
            for frame in &out.frames {
                assert!(frame.time_ns <= out.time_ns && frame.time_ns > out.time_ns - 25_000_000);
                let before = last.insert(frame.stream, frame.time_ns);
                assert!(before.is_none_or(|b| b < frame.time_ns), "{}", pad.streams()[frame.stream].table);
            }
        }
    }
}
