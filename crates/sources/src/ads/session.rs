//! Session with a PLC. Looks at the program first, then reads and subscribes until the program changes or disappears,
//! or the source stops. Deletes its notification handles at the end of each.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use super::connection::{Arrival, Connection, Lost, Turn};
use super::counts::Trouble;
use super::error::AdsError;
use super::group::{BlockPart, Group, GroupPast};
use super::intake::{Flight, GroupReading, PlcReceiver, STATE_PERIOD, Tag};
use super::layout::{AdsLayout, READ_CYCLE_MS_MIN};
use super::plan::{self, NotificationRequest};
use super::program::{self, Asking, Halt, Surroundings, VERSION_PLACE};
use super::select::{self, Selection};
use super::wire::{AnswerError, Request, Transmission};
use crate::config::ReadMode;
use crate::counts::add;

/// AMS port of a PLC's system service. It answers even without a program and knows whether the PLC is in Config.
const SYSTEM_PORT: u16 = 10_000;
/// Maximum requests of one kind in flight, if there are many to send.
const WINDOW: usize = 8;
/// Maximum cyclic reads of one group in flight, for answers that take longer than a cycle.
const FLIGHTS_MAX: usize = 4;
/// Consecutive timeouts that end a connection.
const TIMEOUTS_MAX: u32 = 3;
/// Pause before a PLC without a program is asked again.
const NO_PROGRAM_PAUSE: Duration = Duration::from_secs(2);
/// Minimum time between two looks at a changing program.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// Maximum time for deleting handles when the source stops.
const FAREWELL: Duration = Duration::from_secs(1);
/// Interval at which the PLC checks the program's symbol version.
const VERSION_CYCLE: Duration = Duration::from_millis(1);

/// Clock of a group's cyclic reads.
#[derive(Debug)]
struct Ticks {
    period: Duration,
    start: Instant,
    first_number: u64,
    /// Number of ticks from `start` to the next reading.
    next: u64,
}

impl Ticks {
    fn due(&self) -> Instant {
        self.due_of(self.next)
    }

    fn due_of(&self, tick: u64) -> Instant {
        let after = self.period.as_nanos() as u64;
        self.start + Duration::from_nanos(after.saturating_mul(tick))
    }
}

/// Returns the number of cycles in a time, rounded to nearest.
fn cycles_in(time: Duration, cycle: Duration) -> u64 {
    let cycle = cycle.as_nanos().max(1);
    u64::try_from((time.as_nanos() + cycle / 2) / cycle).unwrap_or(u64::MAX)
}

impl Asking<Tag> for (&mut PlcReceiver, u32) {
    fn tag(&mut self) -> Tag {
        self.1 = self.1.wrapping_add(1);
        Tag::Ask(self.1)
    }

    fn take(&mut self, arrival: Arrival<'_, Tag>, receive_time: i64) {
        self.0.take(arrival, receive_time);
    }

    fn outcome(&mut self) -> Option<Result<Vec<u8>, AnswerError>> {
        let (id, outcome) = self.0.wanted.answer.take()?;
        (id == self.1).then_some(outcome)
    }
}

/// Returns the AMS ports without duplicates, ascending.
fn distinct(ports: impl Iterator<Item = u16>) -> BTreeSet<u16> {
    ports.collect()
}

/// A session on one connection.
pub(crate) struct Session<'a> {
    pub(crate) layout: &'a AdsLayout,
    pub(crate) around: Surroundings<'a>,
    pub(crate) connection: Connection<Tag>,
    pub(crate) intake: &'a mut PlcReceiver,
    /// State of each group of the layout that outlasts this connection.
    pub(crate) past: &'a mut Vec<GroupPast>,
    asked: u32,
    ticks: BTreeMap<usize, Ticks>,
    /// Notifications to add, as group and part.
    to_add: VecDeque<(usize, usize)>,
    to_delete: VecDeque<(u16, u32)>,
    next_flight: u32,
    /// AMS ports of groups that have no program.
    absent: Vec<u16>,
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        layout: &'a AdsLayout,
        around: Surroundings<'a>,
        connection: Connection<Tag>,
        intake: &'a mut PlcReceiver,
        past: &'a mut Vec<GroupPast>,
    ) -> Self {
        intake.begin_again(true);
        Session {
            layout,
            around,
            connection,
            intake,
            past,
            asked: 0,
            ticks: BTreeMap::new(),
            to_add: VecDeque::new(),
            to_delete: VecDeque::new(),
            next_flight: 0,
            absent: Vec::new(),
        }
    }

    /// Reads the PLC until the source stops or the connection is lost.
    pub(crate) fn run(&mut self) -> Halt {
        let halt = self.run_until_halted();
        self.intake.flush_all();
        self.keep_past();
        if matches!(halt, Halt::Stopped) {
            self.take_leave();
        }
        halt
    }

    fn run_until_halted(&mut self) -> Halt {
        let mut answered = false;
        loop {
            let outcome = self.look().and_then(|ready| {
                if ready && !std::mem::replace(&mut answered, true) {
                    add(&self.around.counts.connections, 1);
                }
                match ready {
                    true => self.serve(),
                    false => self.pause(NO_PROGRAM_PAUSE),
                }
            });
            if let Err(halt) = outcome {
                return halt;
            }
            self.intake.flush_all();
            self.keep_past();
            if let Err(halt) = self.give_back().and_then(|()| self.pause(LOOK_PAUSE)) {
                return halt;
            }
            self.intake.begin_again(false);
        }
    }

    fn turn(&mut self, until: Instant) -> Result<(), Halt> {
        let Session { connection, intake, around, .. } = self;
        let mut take = |arrival: Arrival<'_, Tag>, at: i64| intake.take(arrival, at);
        match connection.turn(until, around.wake, around.counts, around.now, &mut take)? {
            Turn::Woken => Err(Halt::Stopped),
            Turn::Done if intake.wanted.timeouts >= TIMEOUTS_MAX => {
                Err(Lost::Silent { host: connection.host().to_owned() }.into())
            }
            Turn::Done => Ok(()),
        }
    }

    fn pause(&mut self, time: Duration) -> Result<(), Halt> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.turn(until)?;
            self.intake.hand_over();
        }
        Ok(())
    }

    fn ask(&mut self, port: u16, request: &Request<'_>) -> Result<Result<Vec<u8>, AnswerError>, Halt> {
        let mut asking = (&mut *self.intake, self.asked);
        let answer = program::ask(&mut self.connection, &self.around, &mut asking, port, request);
        self.asked = asking.1;
        answer
    }

    /// Looks at the program: its state, its tables, and the selection of each group. Returns whether there is a
    /// program.
    fn look(&mut self) -> Result<bool, Halt> {
        let port = self.layout.target.port;
        let mut asking = (&mut *self.intake, self.asked);
        let greeted = program::greet(&mut self.connection, &self.around, &mut asking, port);
        self.asked = asking.1;
        match greeted? {
            Ok(device) => {
                let (major, minor, build) = device.version;
                tracing::info!(
                    source = self.layout.name,
                    host = self.connection.host(),
                    net_id = %self.connection.net_id(),
                    "connected: {} {major}.{minor}.{build}",
                    device.name
                );
            }
            Err(error) => {
                self.without_program(port, error)?;
                return Ok(false);
            }
        }
        self.connection.send(port, &Request::State, Tag::State)?;
        self.absent.clear();
        let mut selections: Vec<Selection> = vec![Selection::default(); self.layout.groups.len()];
        let mut troubles: Vec<Trouble> = Vec::new();
        for port in distinct(self.layout.groups.iter().map(|group| group.port)) {
            let indices: Vec<usize> =
                (0..self.layout.groups.len()).filter(|g| self.layout.groups[*g].port == port).collect();
            for (index, selection) in indices.iter().zip(self.look_at(port, &indices)?) {
                selections[*index] = selection;
            }
        }
        let mut groups = Vec::new();
        let mut symbols = 0;
        for (index, (layout, selection)) in self.layout.groups.iter().zip(selections).enumerate() {
            troubles.extend(selection.troubles);
            symbols += selection.leaves.len();
            if selection.leaves.is_empty() {
                continue;
            }
            let past = self.past[index].clone();
            let of = (self.layout.name.as_str(), self.layout.clock);
            match Group::bind(index, layout, of, selection.leaves, past, self.intake.sink()) {
                Ok(group) => groups.push(group),
                Err(reject) => troubles.push(Trouble {
                    stream: layout.key.to_string(),
                    symbol: layout.symbols[0].clone(),
                    why: format!("the store refuses the stream: {reject}"),
                }),
            }
        }
        self.intake.groups = groups;
        self.intake.troubles = troubles;
        self.around.counts.symbols.store(symbols as u64, std::sync::atomic::Ordering::Relaxed);
        self.plan()?;
        self.intake.say_troubles();
        Ok(true)
    }

    /// Records that the port has no program, with the state from the system service.
    fn without_program(&mut self, port: u16, error: AdsError) -> Result<(), Halt> {
        tracing::warn!(source = self.layout.name, "AMS port {port}: {error}; asked again every few seconds");
        let state = self.ask(SYSTEM_PORT, &Request::State)?;
        let state = state.ok().and_then(|answer| super::wire::state(&answer).ok());
        let now = (self.around.now)();
        self.intake.state_frame(state, now);
        let why = format!("AMS port {port}: {error}");
        let trouble = |group: &super::GroupLayout| Trouble {
            stream: group.key.to_string(),
            symbol: group.symbols[0].clone(),
            why: why.clone(),
        };
        self.intake.groups.clear();
        self.intake.troubles = self.layout.groups.iter().map(trouble).collect();
        self.intake.say_troubles();
        self.intake.hand_over();
        Ok(())
    }

    fn look_at(&mut self, port: u16, indices: &[usize]) -> Result<Vec<Selection>, Halt> {
        let groups: Vec<_> = indices.iter().map(|g| &self.layout.groups[*g]).collect();
        let mut asking = (&mut *self.intake, self.asked);
        let uploaded = program::upload(&mut self.connection, &self.around, &mut asking, port);
        self.asked = asking.1;
        match uploaded? {
            Ok(program) => {
                if let Some(version) = program.version {
                    self.intake.set_version(port, version);
                }
                let (selections, damage) = select::select(&groups, &program.symbols, &program.types);
                if let Some(damage) = damage {
                    tracing::warn!(source = self.layout.name, port, "{damage}; what comes after it is not found");
                }
                Ok(selections)
            }
            Err(none) => {
                tracing::warn!(source = self.layout.name, port, "the symbols cannot be uploaded: {}", none.why);
                if let Some(version) = none.version {
                    self.intake.set_version(port, version);
                }
                if none.is_absent {
                    self.absent.push(port);
                }
                let mut entries = Vec::new();
                for name in groups.iter().flat_map(|group| &group.symbols).filter(|p| super::pattern::is_name(p)) {
                    if let Ok(answer) = self.ask(port, &Request::SymbolByName(name))?
                        && let Ok(entry) = super::wire::read_bytes(&answer)
                    {
                        entries.push(entry.to_vec());
                    }
                }
                Ok(select::select_named(&groups, &entries, &none.why))
            }
        }
    }

    /// Plans the subscriptions and reads of each group, and starts reading.
    fn plan(&mut self) -> Result<(), Halt> {
        self.ticks.clear();
        self.to_add.clear();
        let ports = distinct(self.intake.groups.iter().map(|group| group.port));
        let notified: Vec<usize> =
            (0..self.intake.groups.len()).filter(|g| self.intake.groups[*g].mode != ReadMode::CyclicRead).collect();
        let wanted: Vec<NotificationRequest<'_>> = notified
            .iter()
            .map(|g| &self.intake.groups[*g])
            .map(|group| NotificationRequest {
                leaves: &group.leaves,
                on_change: group.mode == ReadMode::OnChangeNotification,
            })
            .collect();
        let planned = plan::notifications(&wanted, plan::HANDLES_MAX.saturating_sub(ports.len()));
        for (g, blocks) in notified.into_iter().zip(planned) {
            match blocks {
                Some(blocks) => {
                    let parts = self.intake.groups[g].add_parts(blocks);
                    let count = self.intake.groups[g].parts.len();
                    self.to_add.extend((parts..count).map(|part| (g, part)));
                }
                None => self.read_instead(g, "there are not enough notification handles")?,
            }
        }
        for g in 0..self.intake.groups.len() {
            if self.intake.groups[g].mode == ReadMode::CyclicRead && !self.ticks.contains_key(&g) {
                self.begin_reading(g);
            }
        }
        for port in ports {
            if self.intake.version(port).is_some() {
                self.intake.wanted.adding += 1;
                let request = Request::AddNotification {
                    place: VERSION_PLACE,
                    transmission: Transmission::OnChange,
                    cycle: VERSION_CYCLE,
                };
                self.connection.send(port, &request, Tag::AddVersion(port))?;
            }
        }
        Ok(())
    }

    /// Switches a group from notifications to cyclic reads.
    fn read_instead(&mut self, g: usize, why: &str) -> Result<(), Halt> {
        self.to_add.retain(|(group, _)| *group != g);
        self.to_delete.extend(self.intake.take_handles(Some(g)));
        self.intake.end_frames(g, None);
        let group = &mut self.intake.groups[g];
        group.mode = ReadMode::CyclicRead;
        group.clear_parts();
        let text = format!("{}: {why}; it is read with sum reads instead", group.name);
        self.intake.tell("warning", text);
        self.begin_reading(g);
        Ok(())
    }

    fn begin_reading(&mut self, g: usize) {
        let group = &mut self.intake.groups[g];
        let layout = &self.layout.groups[group.index];
        let least = Duration::from_micros((READ_CYCLE_MS_MIN * 1e3) as u64);
        let period = layout.cycle.max(least);
        let period_ns = period.as_nanos() as u64;
        group.clear_parts();
        let blocks = plan::blocks(&group.leaves, Some(plan::GAP_BYTES));
        group.add_parts(blocks);
        let start = Instant::now();
        let first_number = match group.past.newest {
            // The number came from the PLC's clock, or from ours before it was set. Only the elapsed time is reliable.
            Some((number, at)) => number + cycles_in(start.saturating_duration_since(at), period).max(1),
            None => u64::try_from((self.around.now)()).unwrap_or(0) / period_ns,
        };
        self.ticks.insert(g, Ticks { period, start, first_number, next: 0 });
        self.cut_requests(g);
    }

    /// Makes the requests of a cyclic read from the group's parts.
    fn cut_requests(&mut self, g: usize) {
        let group = &self.intake.groups[g];
        // Parts that were split precede their replacements.
        let parts: Vec<plan::MemoryBlock> = group.parts.iter().map(BlockPart::block).collect();
        let first = group.parts.iter().position(|part| part.active).unwrap_or(0);
        let requests: Vec<_> = plan::requests(&parts[first..], 1)
            .into_iter()
            .map(|range| range.start + first..range.end + first)
            .collect();
        let places = requests
            .iter()
            .map(|range| std::iter::once(VERSION_PLACE).chain(parts[range.clone()].iter().map(|p| p.place)).collect())
            .collect();
        self.intake.readings.insert(g, GroupReading { requests, places, ..GroupReading::default() });
    }

    /// Reads and takes notifications until the program has to be looked at again.
    fn serve(&mut self) -> Result<(), Halt> {
        let mut look_at_state = Instant::now() + STATE_PERIOD;
        loop {
            self.send_more()?;
            let now = Instant::now();
            for g in self.ticks.keys().copied().collect::<Vec<_>>() {
                self.tick(g, now)?;
            }
            if now >= look_at_state {
                look_at_state = now + STATE_PERIOD;
                self.connection.send(self.layout.target.port, &Request::State, Tag::State)?;
                for port in distinct(self.intake.groups.iter().map(|group| group.port)) {
                    if self.intake.version(port).is_some() {
                        self.connection.send(port, &Request::Read(VERSION_PLACE), Tag::Version(port))?;
                    }
                }
                for port in self.absent.iter().copied() {
                    self.connection.send(port, &Request::State, Tag::Appeared(port))?;
                }
                self.intake.look_for_silence(now);
                self.intake.say_changed_troubles();
            }
            let due = self.ticks.values().map(Ticks::due).min();
            let until = [due, self.intake.first_held()].into_iter().flatten().fold(look_at_state, Instant::min);
            let turned = self.turn(until);
            self.intake.flush_held(Instant::now());
            self.intake.hand_over();
            turned?;
            if let Some(why) = self.intake.wanted.look_again.take() {
                add(&self.around.counts.program_changes, 1);
                self.intake.tell("info", format!("{why}; symbols are looked up anew"));
                return Ok(());
            }
            self.react()?;
        }
    }

    /// Sends a limited number of additions and deletions of notifications.
    fn send_more(&mut self) -> Result<(), Halt> {
        self.to_delete.append(&mut std::mem::take(&mut self.intake.wanted.unwanted).into());
        while self.intake.wanted.deleting < WINDOW
            && let Some((port, handle)) = self.to_delete.pop_front()
        {
            self.intake.wanted.deleting += 1;
            self.connection.send(port, &Request::DeleteNotification(handle), Tag::Delete)?;
        }
        while self.intake.wanted.adding < WINDOW
            && let Some((g, part)) = self.to_add.pop_front()
        {
            let group = &self.intake.groups[g];
            let transmission = match group.mode {
                ReadMode::OnChangeNotification => Transmission::OnChange,
                _ => Transmission::Cyclic,
            };
            let cycle = self.layout.groups[group.index].cycle;
            let request = Request::AddNotification { place: group.parts[part].place, transmission, cycle };
            let port = group.port;
            self.intake.wanted.adding += 1;
            self.connection.send(port, &request, Tag::Add { group: g, part })?;
        }
        Ok(())
    }

    /// Starts a cyclic read of a group if it is due.
    fn tick(&mut self, g: usize, now: Instant) -> Result<(), Halt> {
        let (Some(ticks), Some(reading)) = (self.ticks.get_mut(&g), self.intake.readings.get_mut(&g)) else {
            return Ok(());
        };
        if now < ticks.due() {
            return Ok(());
        }
        let elapsed = now.saturating_duration_since(ticks.start).as_nanos() as u64;
        let tick = elapsed / ticks.period.as_nanos() as u64;
        ticks.next = tick + 1;
        if reading.flights.len() >= FLIGHTS_MAX || !reading.refused.is_empty() {
            // Skipped: the gap in numbers shows it.
            return Ok(());
        }
        let number = ticks.first_number + tick;
        let group = &mut self.intake.groups[g];
        group.past.newest = Some((number, ticks.due_of(tick)));
        let id = self.next_flight;
        self.next_flight = id.wrapping_add(1);
        let image = reading.spare.pop().unwrap_or_else(|| group.new_image());
        let open = reading.requests.len();
        reading.flights.push(Flight { id, number, image, open, receive_time: 0 });
        for (request, places) in reading.places.iter().enumerate() {
            let tag = Tag::Read { group: g, flight: id, request };
            self.connection.send(group.port, &Request::SumRead(places), tag)?;
        }
        Ok(())
    }

    /// Acts on the requests that arrivals left.
    fn react(&mut self) -> Result<(), Halt> {
        for (g, rate) in std::mem::take(&mut self.intake.wanted.too_fast) {
            let group = &mut self.intake.groups[g];
            if group.mode == ReadMode::CyclicRead {
                continue;
            }
            group.past.is_read = true;
            add(&self.around.counts.rate_alarms, 1);
            let asked = 1.0 / self.layout.groups[group.index].cycle.as_secs_f64();
            let why = format!("the PLC sends {rate:.0} notifications a second, and {asked:.0} were asked for");
            self.read_instead(g, &why)?;
        }
        for (g, part, error) in std::mem::take(&mut self.intake.wanted.refused) {
            if self.intake.groups[g].mode != ReadMode::CyclicRead {
                self.refused(g, part, error)?;
            }
        }
        let ready = |reading: &GroupReading| !reading.refused.is_empty() && reading.flights.is_empty();
        let split: Vec<usize> = self.intake.readings.iter().filter(|(_, r)| ready(r)).map(|(g, _)| *g).collect();
        for g in split {
            self.split_reading(g);
        }
        Ok(())
    }

    /// Handles a refused notification: splits its values, reads the group instead, or gives up the symbol.
    fn refused(&mut self, g: usize, part: usize, error: AdsError) -> Result<(), Halt> {
        const NO_MORE_HANDLES: u32 = 0x716;
        let values = self.intake.groups[g].parts[part].leaves.len();
        let room = plan::HANDLES_MAX.saturating_sub(self.intake.handle_count() + self.to_add.len());
        if error.0 == NO_MORE_HANDLES || values > 1 && values > room {
            return self.read_instead(g, &format!("a notification was refused: {error}"));
        }
        if values > 1 {
            let first = self.intake.groups[g].split(part);
            let count = self.intake.groups[g].parts.len();
            self.to_add.extend((first..count).map(|part| (g, part)));
        } else {
            self.intake.groups[g].give_up(part, error);
            self.intake.note_troubles_changed();
        }
        Ok(())
    }

    /// Reads the values of refused blocks one by one, so that one bad value does not affect its neighbours.
    fn split_reading(&mut self, g: usize) {
        let Some(reading) = self.intake.readings.remove(&g) else { return };
        let group = &mut self.intake.groups[g];
        let mut blocks = Vec::new();
        for (at, part) in group.parts.iter().enumerate() {
            if reading.refused.contains(&at) {
                let leaves = &group.leaves;
                blocks.extend(
                    part.leaves.clone().map(|i| plan::MemoryBlock { place: leaves[i].place, leaves: i..i + 1 }),
                );
            } else {
                blocks.push(part.block());
            }
        }
        group.clear_parts();
        group.add_parts(blocks);
        self.cut_requests(g);
    }

    fn keep_past(&mut self) {
        for group in &mut self.intake.groups {
            group.past.cycles.ask_again();
            self.past[group.index] = group.past.clone();
        }
    }

    /// Deletes all handles and waits until nothing is in flight, so that late answers are not mistaken for others.
    fn give_back(&mut self) -> Result<(), Halt> {
        self.to_add.clear();
        self.ticks.clear();
        self.intake.readings.clear();
        loop {
            // Answers received meanwhile may bring new handles.
            self.to_delete.extend(self.intake.take_handles(None));
            self.send_more()?;
            if self.to_delete.is_empty() && self.connection.pending() == 0 {
                return Ok(());
            }
            self.turn(Instant::now() + self.around.timeout)?;
            self.intake.hand_over();
        }
    }

    /// Deletes handles when the source stops. The wake pipe is no longer checked.
    fn take_leave(&mut self) {
        self.around.wake = None;
        let until = Instant::now() + FAREWELL;
        self.to_add.clear();
        self.intake.readings.clear();
        loop {
            self.to_delete.extend(self.intake.take_handles(None));
            if self.send_more().is_err() || self.to_delete.is_empty() && self.connection.pending() == 0 {
                break;
            }
            if Instant::now() >= until || self.turn(until).is_err() {
                break;
            }
        }
        self.intake.hand_over();
    }

    /// Writes a state frame to say that the connection is lost.
    pub(crate) fn say_lost(&mut self) {
        let now = (self.around.now)();
        self.intake.state_frame(None, now);
        self.intake.hand_over();
    }
}
