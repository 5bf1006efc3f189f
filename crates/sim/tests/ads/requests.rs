//! Requests by hand: errors, sums, writes.

use std::io::Write;

use strongback_sim::PlcOptions;

use crate::raw::{DATA, MEMORY, Raw, join, start, word};

#[test]
fn what_cannot_be_had_is_refused_with_the_code_of_the_device() {
    let plc = start(PlcOptions::default());
    let mut raw = Raw::new(plc.address());
    let [_, cycle, _] = raw.place("FAST.cycle");
    let size = word(&raw.get(2, &[0x4045, 0, 4], &[]), 0);
    let note = raw.handle("HMI.note");
    let level = raw.handle("MAIN.lox.tank.level");
    let read = |group, offset, length| (2, vec![group, offset, length], Vec::new());
    let sum = |group, count: u32, length: u32| {
        let each: Vec<u8> = (0..count).flat_map(|_| join(&[DATA, cycle, length], &[])).collect();
        (9, vec![group, count, 1 << 20, each.len() as u32], each)
    };
    let name = |group, read: u32, name: &str| (9, vec![group, 0, read, name.len() as u32], name.as_bytes().to_vec());
    let write = |group, offset, bytes: &[u8]| (3, vec![group, offset, bytes.len() as u32], bytes.to_vec());
    type Case = (u32, (u16, Vec<u32>, Vec<u8>));
    let cases: Vec<Case> = vec![
        (0x702, read(0x1234, 0, 4)),
        (0x702, read(0xF003, 0, 4)),
        (0x703, read(DATA, size, 1)),
        (0x703, read(DATA, u32::MAX, 1)),
        (0x705, read(DATA, size - 4, 5)),
        (0x705, read(DATA, 0, u32::MAX)),
        (0x703, read(0x4021, u32::MAX, 1)),
        (0x705, read(0xF00B, 0, 100)),
        (0x705, read(0xF00E, 0, 100)),
        (0x705, read(0xF00F, 0, 23)),
        (0x705, read(0xF008, 0, 0)),
        (0x703, read(0xF008, 1, 1)),
        (0x710, read(0xF005, 77, 4)),
        (0x705, read(0xF005, level, 4)),
        (0x710, name(0xF003, 4, "MAIN.nothing")),
        (0x710, name(0xF003, 4, &"x".repeat(1000))),
        (0x710, name(0xF009, 800, "MAIN.lox.tank.nothing")),
        (0x705, name(0xF003, 3, "FAST.cycle")),
        (0x705, name(0xF007, 11, "FAST.cycle")),
        (0x705, name(0xF009, 30, "FAST.cycle")),
        (0x705, name(0xF004, 3, "FAST.cycle")),
        (0x702, name(0xF123, 4, "FAST.cycle")),
        (0x70B, sum(0xF080, 501, 4)),
        (0x70B, sum(0xF083, 501, 4)),
        (0x70B, sum(0xF084, 501, 4)),
        (0x70A, sum(0xF080, 500, u32::MAX)),
        (0x70A, sum(0xF083, 500, u32::MAX)),
        (0x70A, (9, vec![0xF084, 500, u32::MAX, 6000], join(&[0xF00B, 0, u32::MAX].repeat(500), &[]))),
        (0x705, (9, vec![0xF080, 2, 100, 12], join(&[DATA, 0, 4], &[]))),
        (0x70B, (9, vec![0xF081, 501, 4000, 0], Vec::new())),
        (0x70B, (9, vec![0xF082, u32::MAX, 4000, 0], Vec::new())),
        (0x70B, (9, vec![0xF085, 501, 8000, 0], Vec::new())),
        (0x70B, (9, vec![0xF086, 501, 8000, 0], Vec::new())),
        (0x705, (9, vec![0xF086, 1, 8, 0], Vec::new())),
        (0x702, (9, vec![0xF087, 1, 8, 0], Vec::new())),
        (0x705, (9, vec![0xF003, 0, 4, 5], b"FAST.cycle".to_vec())),
        (0x705, (2, vec![DATA, 0], Vec::new())),
        (0x705, (3, vec![DATA, 0, 4], vec![1, 2])),
        (0x705, (6, vec![DATA, cycle, 4, 3], Vec::new())),
        (0x714, (7, vec![99], Vec::new())),
        (0x705, (7, Vec::new(), vec![1])),
        (0x701, (5, vec![0x0000_000F, 0], Vec::new())),
        (0x705, (5, vec![0x0000_0005, 4], Vec::new())),
        (0x702, write(0xF00F, 0, &[0; 4])),
        (0x704, write(0xF008, 0, &[1])),
        (0x705, write(0xF005, level, &[0; 4])),
        (0x705, write(0xF005, note, &[b'x'; 82])),
        (0x703, write(MEMORY, 1 << 20, &[1])),
        (0x710, write(0xF006, 0, &77u32.to_le_bytes())),
        (0x701, (5, vec![0, 0], Vec::new())),
    ];
    let count = cases.len() as u64;
    for (code, (command, words, bytes)) in cases {
        assert_eq!(raw.code(command, &words, &bytes), code, "command {command}, {words:x?}");
    }
    for (code, place, mode) in [
        (0x713, [DATA, cycle, 4], 1),
        (0x713, [DATA, cycle, 4], 0),
        (0x702, [0xF00B, 0, 4], 3),
        (0x703, [DATA, size, 4], 3),
        (0x705, [DATA, cycle, size], 3),
        (0x705, [DATA, cycle, 0], 3),
        (0x705, [0xF005, level, 9], 3),
        (0x710, [0xF005, 1, 4], 3),
    ] {
        assert_eq!(raw.watch(place, mode, 0, 0), Err(code), "{place:x?}");
    }
    // Another port than the PLC's, and commands there are not: refused in the header.
    for (port, command, error) in [(852, 2, 6), (851, 10, 8), (851, 8, 8), (851, 0, 8)] {
        let packet = raw.packet(port, command, 4, &[]);
        raw.stream.write_all(&packet).unwrap();
        assert_eq!(raw.reply(command).unwrap(), (error, Vec::new()), "port {port}, command {command}");
    }
    // A length in the AMS header that is not the packet's.
    let mut packet = raw.packet(851, 2, 4, &join(&[DATA, 0, 4], &[]));
    packet[26] = 13;
    raw.stream.write_all(&packet).unwrap();
    assert_eq!(raw.reply(2).unwrap(), (0xE, Vec::new()));
    // What is no request gets no reply, nor does one that wants none.
    for flags in [5, 0, 6] {
        let packet = raw.packet(851, 4, flags, &[]);
        raw.stream.write_all(&packet).unwrap();
    }
    assert_eq!(raw.ask(4, &[]), [0, 0, 0, 0, 5, 0, 0, 0]);
    let report = plc.stop();
    assert_eq!(report.errors, count + 8 + 5);
    assert_eq!(report.malformed, 2);
}

#[test]
fn sums_answer_each_part_for_itself() {
    let plc = start(PlcOptions::default());
    let mut raw = Raw::new(plc.address());
    let [_, first, _] = raw.place("FAST.cycle");
    let [_, last, _] = raw.place("FAST.cycle_end");
    let parts = join(&[DATA, first, 4, 0x1234, 0, 6, DATA, last, 4], &[]);
    let ask = |raw: &mut Raw, group, count| raw.get(9, &[group, count, 100, 36], &parts);
    let read = ask(&mut raw, 0xF080, 3);
    assert_eq!([0, 4, 8].map(|at| word(&read, at)), [0, 0x702, 0]);
    assert_eq!((read.len(), &read[12..16], &read[16..22]), (12 + 14, &read[22..26], &[0; 6][..]));
    assert!(word(&read, 12) >= 100);
    let bare = ask(&mut raw, 0xF080, 0);
    assert_eq!((bare.len(), &bare[..4]), (14, &bare[10..]));
    let with_lengths = ask(&mut raw, 0xF083, 3);
    assert_eq!([0, 4, 8, 12, 16, 20].map(|at| word(&with_lengths, at)), [0, 4, 0x702, 0, 0, 4]);
    assert_eq!((with_lengths.len(), &with_lengths[24..28]), (24 + 14, &with_lengths[34..]));
    let short = ask(&mut raw, 0xF084, 3);
    assert_eq!([0, 4, 8, 12, 16, 20].map(|at| word(&short, at)), [0, 4, 0x702, 0, 0, 4]);
    assert_eq!((short.len(), &short[24..28]), (24 + 8, &short[28..]));
    // Names to handles, and one that is none.
    let mut names = join(&[0xF003, 0, 4, 10, 0xF003, 0, 4, 4, 0xF009, 0, 255, 8], &[]);
    names.extend_from_slice(b"FAST.cyclenoneHMI.note");
    let found = raw.get(9, &[0xF082, 3, 300, names.len() as u32], &names);
    assert_eq!([0, 4, 8, 12, 16].map(|at| word(&found, at)), [0, 4, 0x710, 0, 0]);
    let handle = word(&found, 24);
    assert_eq!(word(&found, 28), word(&found, 20), "an entry begins with its length");
    assert_eq!(&found[28 + 30..28 + 38], b"HMI.note");
    assert!(word(&raw.get(2, &[0xF005, handle, 4], &[]), 0) >= 100);
    // Writes.
    let rate = raw.place("HMI.rate");
    let mut writes = join(&[rate[0], rate[1], 4, 0x1234, 0, 2, 0xF006, 0, 4], &[]);
    writes.extend_from_slice(&join(&[1.5f32.to_bits()], &[0, 0]));
    writes.extend_from_slice(&handle.to_le_bytes());
    let written = raw.get(9, &[0xF081, 3, 12, writes.len() as u32], &writes);
    assert_eq!([0, 4, 8].map(|at| word(&written, at)), [0, 0x702, 0]);
    assert_eq!(raw.get(2, &rate, &[]), 1.5f32.to_le_bytes());
    assert_eq!(raw.code(2, &[0xF005, handle, 4], &[]), 0x710, "released");
    // Notifications.
    let mut adds = join(&[DATA, first, 4, 3, 0, 10_000], &[0; 16]);
    adds.extend(join(&[DATA, first, 4, 9, 0, 0], &[0; 16]));
    let added = raw.get(9, &[0xF085, 2, 16, 80], &adds);
    assert_eq!([0, 8].map(|at| word(&added, at)), [0, 0x713]);
    let handle = word(&added, 4);
    assert_eq!(raw.notification()[0].1[0].0, handle);
    let deleted = raw.get(9, &[0xF086, 2, 8, 8], &join(&[handle, handle], &[]));
    assert_eq!([0, 4].map(|at| word(&deleted, at)), [0, 0x714]);
    let requests = plc.stop().requests;
    let sums = ["sum_read", "sum_write", "sum_read_write", "sum_add_notification", "sum_delete_notification"];
    assert_eq!(sums.map(|kind| requests[kind]), [4, 1, 1, 1, 1]);
}

#[test]
fn what_a_client_writes_stays_where_the_program_only_presets() {
    let plc = start(PlcOptions::default());
    let mut raw = Raw::new(plc.address());
    let preset = raw.place("MAIN.lox.sp_03");
    let next = raw.place("MAIN.lox.sp_04");
    let sensor = raw.place("FAST.p_lox_tank");
    let cycle = raw.place("FAST.cycle");
    let now = |raw: &mut Raw| word(&raw.get(2, &cycle, &[]), 0);
    assert_eq!(raw.code(3, &preset, &7.25f32.to_le_bytes()), 0);
    assert_eq!(raw.get(2, &preset, &[]), 7.25f32.to_le_bytes());
    assert_eq!(raw.code(3, &sensor, &1e9f32.to_le_bytes()), 0);
    let written = now(&mut raw);
    while now(&mut raw) < written + 150 {}
    assert_eq!(raw.get(2, &preset, &[]), 7.25f32.to_le_bytes(), "the program took the set-point back");
    assert!(raw.get(2, &next, &[]) != 7.25f32.to_le_bytes());
    assert!(raw.get(2, &sensor, &[]) != 1e9f32.to_le_bytes(), "the program reads its sensor every cycle");
    // A text may be shorter than its room; a bit is one of a byte.
    let note = raw.handle("HMI.note");
    assert_eq!(raw.code(3, &[0xF005, note, 6], b"hello\0"), 0);
    assert_eq!(&raw.get(2, &[0xF005, note, 1024], &[])[..6], b"hello\0");
    let [_, enable, _] = raw.place("HMI.enable");
    assert_eq!(raw.code(3, &[0x4021, enable * 8 + 2, 1], &[1]), 0);
    assert_eq!(raw.get(2, &[MEMORY, enable, 1], &[]), [4]);
    assert_eq!(raw.get(2, &[0x4021, enable * 8 + 2, 1], &[]), [1]);
    assert_eq!(raw.get(2, &[0x4021, enable * 8 + 1, 1], &[]), [0]);
    assert_eq!(plc.stop().requests["write"], 4);
}
