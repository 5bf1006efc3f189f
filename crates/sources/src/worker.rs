//! A thread that waits on sockets until it is woken to stop.

use std::io::{PipeReader, PipeWriter, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Maximum milliseconds of one poll. Longer waits use several.
const POLL_MS_MAX: u128 = 60_000;

/// A running thread. Dropping it stops it.
#[derive(Debug)]
pub struct Worker {
    name: String,
    wake: PipeWriter,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts a thread. `work` must end once its pipe is readable ([`readable_or_woken`], [`woken_within`]). `name`
    /// becomes the thread's name.
    ///
    /// # Errors
    /// If the pipe or the thread cannot be created.
    pub fn start(name: String, work: impl FnOnce(&PipeReader) + Send + 'static) -> std::io::Result<Worker> {
        let (wait, wake) = std::io::pipe()?;
        let thread = std::thread::Builder::new().name(name.clone()).spawn(move || work(&wait))?;
        Ok(Worker { name, wake, thread: Some(thread) })
    }

    /// Asks the thread to end; [`Worker::stop`] waits for it.
    pub fn begin_stop(&mut self) {
        if self.thread.is_some() {
            // If the pipe cannot be written, its reader is gone because the thread has ended.
            let _ = self.wake.write_all(&[1]);
        }
    }

    /// Wakes the thread and returns once it has ended. A second call does nothing.
    pub fn stop(&mut self) {
        self.begin_stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(thread = self.name, "a thread of a source panicked");
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Waits until one of `sockets` is readable or `wait` is woken, for at most `time` (`None` for no limit). Returns
/// whether it was woken. An interrupted wait ends early.
pub fn readable_or_woken<'a>(
    sockets: impl IntoIterator<Item = BorrowedFd<'a>>,
    wait: &'a PipeReader,
    time: Option<Duration>,
) -> bool {
    let mut fds = vec![PollFd::new(wait.as_fd(), PollFlags::POLLIN)];
    fds.extend(sockets.into_iter().map(|socket| PollFd::new(socket, PollFlags::POLLIN)));
    let timeout = match time {
        None => PollTimeout::NONE,
        // Round up: waking shortly before the end would only mean waiting again.
        Some(time) => poll_timeout(time.as_micros().div_ceil(1_000)),
    };
    poll(&mut fds, timeout).is_ok() && fds[0].any().unwrap_or(true)
}

/// Waits for `time`. Returns early, with `true`, if woken.
pub fn woken_within(wait: &PipeReader, time: Duration) -> bool {
    let until = Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let mut fds = [PollFd::new(wait.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, poll_timeout(left.as_micros().div_ceil(1_000))) {
            Ok(0) if Instant::now() >= until => return false,
            Ok(0) | Err(Errno::EINTR) => {}
            _ => return true,
        }
    }
}

fn poll_timeout(ms: u128) -> PollTimeout {
    PollTimeout::try_from(ms.min(POLL_MS_MAX) as i32).unwrap_or(PollTimeout::ZERO)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_worker_is_woken_once_and_waited_for() {
        let (told, tell) = mpsc::channel();
        let mut worker = Worker::start("test".to_owned(), move |wait| {
            // Not woken yet.
            assert!(!woken_within(wait, Duration::ZERO));
            let _ = told.send(());
            while !readable_or_woken([], wait, None) {}
            // Stays woken.
            assert!(woken_within(wait, Duration::from_secs(60)));
            let _ = told.send(());
        })
        .unwrap();
        tell.recv_timeout(Duration::from_secs(30)).unwrap();
        worker.begin_stop();
        tell.recv_timeout(Duration::from_secs(30)).unwrap();
        worker.stop();
        worker.stop();
        assert!(worker.thread.is_none());
    }

    #[test]
    fn what_can_be_read_ends_the_wait_and_is_no_wake() {
        let (socket, mut peer) = std::io::pipe().unwrap();
        let (wait, mut wake) = std::io::pipe().unwrap();
        peer.write_all(b"x").unwrap();
        assert!(!readable_or_woken([socket.as_fd()], &wait, None));
        wake.write_all(b"x").unwrap();
        assert!(readable_or_woken([socket.as_fd()], &wait, None));
    }
}
