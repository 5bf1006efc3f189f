//! The 1 ms task: runs the program, publishes its result as one state, and collects notifications.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::image::{Image, Snapshot};
use super::program::Program;
use super::report::{Counts, PlcReport, add};
use super::server::{ClientConnections, lock};
use super::wire::{error, group, state};

/// Period of the task.
const CYCLE: Duration = Duration::from_millis(1);
/// Period in 100 ns units.
const CYCLE_FILE_TIME: u64 = 10_000;
/// Delay beyond which the task no longer catches up with its clock.
const FAR_BEHIND: Duration = Duration::from_secs(10);
/// 100 ns from 1601 to 1970.
pub(crate) const UNIX_FILE_TIME: u64 = 116_444_736_000_000_000;

/// State that the program works on.
struct Machine {
    program: Box<dyn Program>,
    image: Image,
    state: u16,
    tick: u64,
    file_time: u64,
}

/// PLC: its program, and the clients' view of it.
pub(crate) struct Plc {
    machine: Mutex<Machine>,
    published: Mutex<Arc<Snapshot>>,
    pub(crate) counts: Counts,
}

impl Plc {
    /// Returns a PLC whose program has run for some cycles, up to now.
    pub(crate) fn new(mut program: Box<dyn Program>, warm_up: u32) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Align cycles to whole milliseconds.
        let now = UNIX_FILE_TIME + now.as_millis() as u64 * CYCLE_FILE_TIME;
        let mut image = Image::new(&program.table());
        for left in (0..warm_up).rev() {
            program.cycle(now - u64::from(left) * CYCLE_FILE_TIME, &mut image);
        }
        let machine = Machine { program, image, state: state::RUN, tick: 0, file_time: now };
        let published = Mutex::new(Arc::new(machine.snapshot()));
        Plc { machine: Mutex::new(machine), published, counts: Counts::default() }
    }

    /// Returns the state of the last cycle.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        lock(&self.published).clone()
    }

    fn publish(&self, machine: &Machine) -> Arc<Snapshot> {
        let snapshot = Arc::new(machine.snapshot());
        *lock(&self.published) = snapshot.clone();
        snapshot
    }

    /// Runs one cycle. Returns the resulting state.
    pub(crate) fn cycle(&self) -> Arc<Snapshot> {
        let mut machine = lock(&self.machine);
        let machine = &mut *machine;
        machine.tick += 1;
        machine.file_time += CYCLE_FILE_TIME;
        if machine.state == state::RUN {
            machine.program.cycle(machine.file_time, &mut machine.image);
        }
        add(&self.counts.cycles, 1);
        self.publish(machine)
    }

    /// Writes a client's value, visible to every later read.
    ///
    /// # Errors
    /// An ADS error code.
    pub(crate) fn write(&self, group: u32, offset: u32, bytes: &[u8]) -> Result<(), u32> {
        let mut machine = lock(&self.machine);
        machine.write(group, offset, bytes)?;
        self.publish(&machine);
        Ok(())
    }

    /// Writes one bit of the flags for a client.
    ///
    /// # Errors
    /// As for [`Plc::write`].
    pub(crate) fn write_bit(&self, bit: u32, on: bool) -> Result<(), u32> {
        let mut machine = lock(&self.machine);
        let byte = *machine.image.read(group::MEMORY, bit / 8, 1)?.first().ok_or(error::OFFSET)?;
        let mask = 1 << (bit % 8);
        machine.write(group::MEMORY, bit / 8, &[if on { byte | mask } else { byte & !mask }])?;
        self.publish(&machine);
        Ok(())
    }

    /// Starts or stops the program.
    pub(crate) fn control(&self, state: u16) {
        let mut machine = lock(&self.machine);
        machine.state = state;
        self.publish(&machine);
    }

    /// Loads the next version of the program.
    pub(crate) fn change_program(&self) {
        let mut machine = lock(&self.machine);
        machine.image = machine.program.change();
        self.publish(&machine);
    }

    /// Returns the report so far.
    pub(crate) fn report(&self) -> PlcReport {
        let snapshot = self.snapshot();
        PlcReport {
            symbols: snapshot.table.symbols.len() as u64,
            symbol_version: snapshot.table.version,
            running: snapshot.running(),
            ..self.counts.report()
        }
    }

    /// Runs cycles until `stop`. Late cycles are caught up at once: none is skipped.
    pub(crate) fn run(&self, connections: &ClientConnections, change_after: Option<Duration>, stop: &AtomicBool) {
        let mut due = Instant::now();
        let mut change_at = change_after.map(|after| due + after);
        while !stop.load(Ordering::Relaxed) {
            due += CYCLE;
            let now = Instant::now();
            if let Some(left) = due.checked_duration_since(now) {
                std::thread::sleep(left);
            } else if now - due > FAR_BEHIND {
                let behind = now - due;
                due = now;
                lock(&self.machine).file_time += behind.as_nanos() as u64 / 100;
                add(&self.counts.clock_jumps, 1);
            } else if now - due > CYCLE {
                add(&self.counts.late_cycles, 1);
            }
            if change_at.is_some_and(|at| at <= due) {
                change_at = None;
                self.change_program();
            }
            let snapshot = self.cycle();
            connections.notify(&snapshot, &self.counts);
        }
    }
}

impl Machine {
    fn write(&mut self, group: u32, offset: u32, bytes: &[u8]) -> Result<(), u32> {
        self.image.write(group, offset, bytes)?;
        self.program.written(group, offset, bytes.len() as u32);
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            image: self.image.clone(),
            table: self.program.table(),
            tick: self.tick,
            file_time: self.file_time,
            state: self.state,
        }
    }
}
