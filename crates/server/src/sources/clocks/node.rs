//! The clock of this machine, as reported by chrony or systemd-timesyncd.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Max time to wait for `chronyc`.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time between two checks whether it has exited.
const LOOK: Duration = Duration::from_millis(10);
/// Max bytes read of its answer; a line has some hundred.
const ANSWER_BYTES_MAX: u64 = 4_096;
/// File that exists once systemd-timesyncd has set the clock.
const TIMESYNC: &str = "/run/systemd/timesync/synchronized";

/// State of this machine's clock.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeClock {
    /// `synchronised`, `not synchronised`, `not known`.
    pub state: &'static str,
    /// Program that reports it: `chrony` or `systemd-timesyncd`; empty if there is none.
    pub by: &'static str,
    /// Details, if chrony reports them.
    pub tracking: Option<Tracking>,
}

/// Answer of `chronyc -c tracking`.
#[derive(Clone, Debug, PartialEq)]
pub struct Tracking {
    /// Reference of the clock: an address, or a name such as `PPS` or `PHC0`.
    pub reference: String,
    /// Distance from a reference clock in hops; 0 if there is none.
    pub stratum: u8,
    /// Clock minus true time, nanoseconds.
    pub offset_ns: i64,
    /// Max error of the clock, nanoseconds: its offset, half the root delay and the root dispersion.
    pub bound_ns: i64,
    /// Rate at which the clock would gain if left uncorrected, parts per million.
    pub frequency_ppm: f64,
    /// Uncertainty of that rate, parts per million.
    pub skew_ppm: f64,
    /// Leap status: `Normal`, `Insert second`, `Delete second` or `Not synchronised`.
    pub leap: String,
}

/// Parses a line of `chronyc -c tracking`. Returns `None` if it is malformed.
///
/// Fields: reference id in hexadecimal, reference, stratum, seconds since 1970 of the last update, clock less true
/// time *negated* (seconds true time is ahead: "slow" is positive), last offset, RMS offset, frequency (ppm), residual
/// frequency, skew (ppm), root delay, root dispersion, update interval (all seconds), leap status.
pub fn parse(line: &str) -> Option<Tracking> {
    let fields: Vec<&str> = line.trim().split(',').collect();
    let [_, reference, stratum, _, system, _, _, frequency, _, skew, delay, dispersion, _, leap] = fields[..] else {
        return None;
    };
    let seconds = |text: &str| text.parse::<f64>().ok().filter(|s| s.is_finite());
    let ns = |seconds: f64| (seconds * 1e9).round() as i64;
    let (system, delay, dispersion) = (seconds(system)?, seconds(delay)?, seconds(dispersion)?);
    Some(Tracking {
        reference: reference.to_owned(),
        stratum: stratum.parse().ok()?,
        offset_ns: ns(-system),
        bound_ns: ns(system.abs() + delay / 2.0 + dispersion),
        frequency_ppm: seconds(frequency)?,
        skew_ppm: seconds(skew)?,
        leap: leap.to_owned(),
    })
}

/// Reads the state of the clock. Runs `chronyc` once, if it is installed, and waits at most two seconds for it.
pub fn look() -> NodeClock {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if let Some(chronyc) = find(std::env::split_paths(&path), "chronyc")
        && let Some(tracking) = ask(Command::new(chronyc).args(["-c", "tracking"]), PATIENCE).as_deref().and_then(parse)
    {
        let follows = tracking.leap != "Not synchronised" && tracking.stratum > 0;
        let state = if follows { "synchronised" } else { "not synchronised" };
        return NodeClock { state, by: "chrony", tracking: Some(tracking) };
    }
    match Path::new(TIMESYNC).exists() {
        true => NodeClock { state: "synchronised", by: "systemd-timesyncd", tracking: None },
        false => NodeClock { state: "not known", by: "", tracking: None },
    }
}

fn find(folders: impl Iterator<Item = PathBuf>, program: &str) -> Option<PathBuf> {
    folders.filter(|folder| folder.is_absolute()).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Returns the output of a program, or `None` if it fails or takes too long.
fn ask(command: &mut Command, patience: Duration) -> Option<String> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let until = Instant::now() + patience;
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status.success(),
            Ok(None) if Instant::now() < until => std::thread::sleep(LOOK),
            _ => {
                // Kill and reap a program that hangs.
                let _ = child.kill();
                let _ = child.wait();
                break false;
            }
        }
    };
    let mut answer = String::new();
    child.stdout.take()?.take(ANSWER_BYTES_MAX).read_to_string(&mut answer).ok()?;
    ended.then_some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_chronyc_are_parsed() {
        let good = "A29FC87B,162.159.200.123,4,1700000123.594236715,-0.000021419,0.000012345,0.000034567,-18.613,0.002,0.052,0.011233456,0.000612345,64.4,Normal\n";
        let tracking = parse(good).unwrap();
        assert_eq!(
            (tracking.reference.as_str(), tracking.stratum, tracking.leap.as_str()),
            ("162.159.200.123", 4, "Normal")
        );
        assert_eq!((tracking.offset_ns, tracking.bound_ns), (21_419, 21_419 + 5_616_728 + 612_345));
        assert_eq!((tracking.frequency_ppm, tracking.skew_ppm), (-18.613, 0.052));
        let none = "00000000,,0,0.000000000,0.000000000,0.000000000,0.000000000,0.000,0.000,0.000,1.000000000,1.000000000,0.0,Not synchronised";
        let tracking = parse(none).unwrap();
        assert_eq!(
            (tracking.stratum, tracking.leap.as_str(), tracking.bound_ns),
            (0, "Not synchronised", 1_500_000_000)
        );
        let clock = "50484330,PHC0,1,1700000123.000000000,0.000000004,-0.000000001,0.000000007,3.117,0.000,0.004,0.000000001,0.000001012,1.0,Normal";
        assert_eq!(parse(clock).unwrap().offset_ns, -4);
        for bad in
            ["", "506 Cannot talk to daemon", "a,b", &good.replace("-18.613", "nan"), &good.replace(",4,", ",four,")]
        {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_program_is_found_where_the_path_says() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("chronyc");
        std::fs::write(&file, "").unwrap();
        let nowhere = || [PathBuf::from("."), PathBuf::from("/nowhere")].into_iter();
        assert_eq!(find(nowhere(), "chronyc"), None);
        assert_eq!(find(nowhere().chain([folder.path().to_owned()]), "chronyc"), Some(file));
    }

    #[test]
    fn a_program_that_fails_or_hangs_says_nothing() {
        let sh = |script: &str, patience| ask(Command::new("/bin/sh").args(["-c", script]), patience);
        let long = Duration::from_secs(60);
        assert_eq!(sh("echo 1,2", long).as_deref(), Some("1,2\n"));
        assert_eq!(sh("echo no; exit 1", long), None);
        assert_eq!(sh("exec sleep 600", Duration::from_millis(50)), None);
        assert_eq!(ask(&mut Command::new("/nowhere/chronyc"), long), None);
    }
}
