//! Faults between a client and the PLC: samples that arrive are those of the report.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;

use clap::{Args, FromArgMatches};
use strongback_sim::{FaultsArgs, PlcOptions, run_faults_until};

use crate::raw::{PATIENCE, Raw, start, word};

#[test]
fn samples_that_arrive_are_those_of_the_report() {
    let plc = start(PlcOptions::default());
    let line = format!("faults --ads 127.0.0.1:0={} --loss 0.02 --jitter 2ms --clock-jump 5s/300ms", plc.address());
    let command = FaultsArgs::augment_args(clap::Command::new("faults"));
    let args = FaultsArgs::from_arg_matches(&command.get_matches_from(line.split(' '))).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (tell, told) = channel();
    let stopped = stop.clone();
    let relay = std::thread::spawn(move || {
        run_faults_until(&args, &stopped, |listening| tell.send(listening[0].listen).unwrap()).unwrap()
    });
    let mut raw = Raw::new(told.recv_timeout(PATIENCE).unwrap());
    let place = raw.place("FAST.cycle");
    let handle = raw.watch(place, 3, 0, 10_000).unwrap();
    let mut stamps = Vec::new();
    for _ in 0..1_000 {
        stamps.extend(raw.notification());
    }
    // What was taken before the end of the notification came before its reply.
    assert_eq!(raw.code(7, &[handle], &[]), 0);
    while !raw.notified.is_empty() {
        stamps.extend(raw.notification());
    }
    stop.store(true, Ordering::Relaxed);
    let report = relay.join().unwrap().relays.remove(0);

    assert_eq!(report.kind, "ads");
    let flow = report.flows[&format!("connection 1 handle {handle} (4 bytes)")];
    assert_eq!(report.all, flow);
    assert_eq!(flow.taken, flow.delivered + flow.lost);
    assert!(flow.lost > 0 && report.clock_jumps > 0, "{report:?}");
    // The newest one goes out at the end if it was lost.
    let came = stamps.len() as u64;
    assert!((came..=came + 1).contains(&flow.delivered), "{came} {flow}");
    // Each cycle at most once, its stamp 1 ms a cycle, ahead by the jump or not.
    let mut ahead: HashMap<u64, u64> = HashMap::new();
    let cycles: Vec<u32> = stamps.iter().map(|(_, samples)| word(&samples[0].1, 0)).collect();
    assert!(cycles.windows(2).all(|pair| pair[0] < pair[1]));
    for ((time, _), cycle) in stamps.iter().zip(&cycles) {
        *ahead.entry(time - u64::from(*cycle) * 10_000).or_default() += 1;
    }
    let mut offsets: Vec<u64> = ahead.keys().copied().collect();
    offsets.sort_unstable();
    assert_eq!(offsets.len(), 2);
    assert_eq!(offsets[1] - offsets[0], 50_000_000);
}
