//! The clock of this machine: what chrony says of it, or systemd-timesyncd.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long `chronyc` may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time between two looks whether it has ended.
const LOOK: Duration = Duration::from_millis(10);
/// Bytes of its answer at most: a line is some hundred.
const ANSWER_BYTES_MAX: u64 = 4_096;
/// There while systemd-timesyncd has set the clock.
const TIMESYNC: &str = "/run/systemd/timesync/synchronized";

/// What is known of the clock of this machine.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeClock {
    /// `synchronised`, `not synchronised`, `not known`.
    pub state: &'static str,
    /// Who says so: `chrony`, `systemd-timesyncd`; empty where nobody does.
    pub by: &'static str,
    /// More of it, where chrony says so.
    pub tracking: Option<Tracking>,
}

/// What `chronyc -c tracking` says.
#[derive(Clone, Debug, PartialEq)]
pub struct Tracking {
    /// What the clock follows: an address, or a name as `PPS` or `PHC0`.
    pub reference: String,
    /// Its distance from a reference clock; 0 for none.
    pub stratum: u8,
    /// The clock less true time, nanoseconds.
    pub offset_ns: i64,
    /// Most that the clock can be off: half the way to the reference, and what is unsure on it; nanoseconds.
    pub bound_ns: i64,
    /// What the clock would gain if it were left alone, millionths.
    pub frequency_ppm: f64,
    /// How unsure that is, millionths.
    pub skew_ppm: f64,
    /// `Normal`, `Insert second`, `Delete second`, `Not synchronised`.
    pub leap: String,
}

/// Parses the line of `chronyc -c tracking`; none if it is not one.
///
/// Its fields: reference id in hexadecimal, reference, stratum, seconds since 1970 of the last update, clock less true
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

/// Looks at the clock. Starts `chronyc` once, if it is there, and waits for it for two seconds at most.
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

/// What a program says; none if it fails or takes too long.
fn ask(command: &mut Command, patience: Duration) -> Option<String> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let until = Instant::now() + patience;
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status.success(),
            Ok(None) if Instant::now() < until => std::thread::sleep(LOOK),
            _ => {
                // What hangs is ended and collected.
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
