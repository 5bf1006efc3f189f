//! Threads that nobody waits for. None is detached: the C library may read the memory of a thread after it has ended
//! while it detaches it (glibc bug 19951), which ends the process. So they are joined once they have ended, by a thread
//! that does nothing else.

use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Time between two looks for threads that have ended; so long they keep their stacks.
const LOOK: Duration = Duration::from_millis(20);

static RUNNING: Mutex<Running> = Mutex::new(Running { has_reaper: false, threads: Vec::new() });
static MORE: Condvar = Condvar::new();

struct Running {
    has_reaper: bool,
    threads: Vec<JoinHandle<()>>,
}

/// Lets a thread run until it ends by itself. What it panicked with is told by the hook for panics alone.
pub fn let_run(thread: JoinHandle<()>) {
    let mut running = RUNNING.lock();
    running.threads.push(thread);
    MORE.notify_one();
    if !running.has_reaper {
        // Without one they wait for the next, and keep their stacks.
        match std::thread::Builder::new().name("reaper".to_owned()).spawn(reap) {
            // It never ends, and so needs no one.
            Ok(reaper) => running.threads.push(reaper),
            Err(_) => return,
        }
        running.has_reaper = true;
    }
}

fn reap() {
    loop {
        let mut running = RUNNING.lock();
        // Itself is one of them.
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
