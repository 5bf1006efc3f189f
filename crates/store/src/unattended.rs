//! Threads that no caller waits for. They are not detached: the C library may read the memory of a thread after it
//! has ended while it detaches it (glibc bug 19951), which ends the process. Instead, a thread of its own joins them
//! once they have ended.

use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Interval at which ended threads are joined; they keep their stacks until then.
const LOOK: Duration = Duration::from_millis(20);

static RUNNING: Mutex<Running> = Mutex::new(Running { has_reaper: false, threads: Vec::new() });
static MORE: Condvar = Condvar::new();

struct Running {
    has_reaper: bool,
    threads: Vec<JoinHandle<()>>,
}

/// Lets a thread run until it ends. If it panics, only the panic hook reports it.
pub fn let_run(thread: JoinHandle<()>) {
    let mut running = RUNNING.lock();
    running.threads.push(thread);
    MORE.notify_one();
    if !running.has_reaper {
        // Without a reaper, threads wait for the next call and keep their stacks.
        match std::thread::Builder::new().name("reaper".to_owned()).spawn(reap) {
            // The reaper never ends, so no thread has to join it.
            Ok(reaper) => running.threads.push(reaper),
            Err(_) => return,
        }
        running.has_reaper = true;
    }
}

fn reap() {
    loop {
        let mut running = RUNNING.lock();
        // The reaper itself is one of them.
        while running.threads.len() <= 1 {
            MORE.wait(&mut running);
        }
        let ended: Vec<_> = running.threads.extract_if(.., |thread| thread.is_finished()).collect();
        drop(running);
        for thread in ended {
            let _ = thread.join();
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn threads_are_joined_once_they_have_ended() {
        let (end, ends) = channel::<()>();
        let waiting = std::thread::spawn(move || _ = ends.recv());
        let panicking = std::thread::spawn(|| panic!("as it shall"));
        let ids = [waiting.thread().id(), panicking.thread().id()];
        let there = || {
            let running = RUNNING.lock();
            ids.map(|id| running.threads.iter().any(|thread| thread.thread().id() == id))
        };
        let_run(waiting);
        let_run(panicking);
        while there()[1] {
            std::thread::yield_now();
        }
        assert!(there()[0]);
        drop(end);
        while there()[0] {
            std::thread::yield_now();
        }
    }
}
