//! iNET-X layouts and packets to frames.

use strongback_sources::config::{ClockConfig, SourceConfig};
use strongback_sources::inetx::{DecodeError, Decoder, Packet, Stamp};
use strongback_sources::layout::{SourceLayout, compile_all};
use strongback_store::{ChannelType, Clock, FrameBatch, Value};

use crate::packets::inetx;
use crate::recording::{Kept, Recording};

const NOW: i64 = 1_700_000_000_000_000_000;

fn source(toml_text: &str) -> SourceConfig {
    toml::from_str(toml_text).unwrap_or_else(|e| panic!("{e}\n{toml_text}"))
}

fn with_channels(channels: &str) -> SourceConfig {
    source(&format!(
        "name = 'fti'\nkind = 'inetx'\nlisten = '127.0.0.1:4440'\n[[stream]]\nid = 0xDD\ntable = 'fti.bay'\n{channels}"
    ))
}

fn layout(channels: &str) -> SourceLayout {
    with_channels(channels).compile("source[0]").unwrap()
}

/// Frames that a datagram makes, and what was said of it.
fn decode(
    layout: SourceLayout,
    datagram: &[u8],
) -> (FrameBatch, Result<strongback_sources::inetx::Decoded, DecodeError>) {
    let sink = Recording::new();
    let mut decoder = Decoder::bind(layout, sink.as_ref()).unwrap();
    let mut batch = FrameBatch::new();
    let decoded = decoder.decode(datagram, NOW, &mut batch);
    (batch, decoded)
}

fn values(batch: &FrameBatch, frame: usize) -> Vec<Kept> {
    batch.frame(frame).cells().map(|(_, v)| Kept::of(v.unwrap())).collect()
}

#[test]
fn every_wire_type_is_read_from_its_bits() {
    let channels = [
        ("u8", 0, "", Value::U8(0x80)),
        ("i8", 0, "", Value::I8(-128)),
        ("u16", 0, "", Value::U16(0x8001)),
        ("u16", 0, "endian = 'little'", Value::U16(0x0180)),
        ("i16", 0, "", Value::I16(-32_767)),
        ("u16", 0, "bit = 4\nbits = 12", Value::U16(1)),
        ("i16", 0, "bits = 12", Value::I16(-2_048)),
        ("i16", 8, "bit = 4\nbits = 12", Value::I16(-1)),
        ("u32", 0, "", Value::U32(0x8001_0203)),
        ("i32", 0, "endian = 'little'", Value::I32(0x0302_0180)),
        ("u32", 0, "bit = 12\nbits = 10", Value::U32(0x8001_0203 >> 10 & 0x3FF)),
        ("u64", 0, "", Value::U64(0x8001_0203_0405_0607)),
        ("i64", 0, "", Value::I64(0x8001_0203_0405_0607_u64 as i64)),
        ("f32", 12, "", Value::F32(1.5)),
        ("f64", 16, "", Value::F64(-0.1)),
        ("f64", 24, "endian = 'little'", Value::F64(-0.1)),
        ("bool", 0, "", Value::Bool(true)),
        ("bool", 0, "bit = 15", Value::Bool(true)),
        ("bool", 1, "bit = 6", Value::Bool(false)),
    ];
    let mut payload = vec![0x80, 1, 2, 3, 4, 5, 6, 7, 0xFF, 0xFF, 0, 0];
    payload.extend_from_slice(&1.5_f32.to_be_bytes());
    payload.extend_from_slice(&(-0.1_f64).to_be_bytes());
    payload.extend_from_slice(&(-0.1_f64).to_le_bytes());
    let text: String = channels
        .iter()
        .enumerate()
        .map(|(i, (kind, offset, rest, _))| {
            format!("[[stream.channel]]\nname = 'c{i}'\noffset = {offset}\ntype = '{kind}'\n{rest}\n")
        })
        .collect();
    let (batch, decoded) = decode(layout(&text), &inetx(0xDD, 7, (1_700_000_000, 5), &payload));
    assert_eq!(decoded.unwrap().frames, 1);
    let want: Vec<Kept> = channels.iter().map(|(.., v)| Kept::Plain(*v)).collect();
    for (i, (got, want)) in values(&batch, 0).iter().zip(&want).enumerate() {
        assert_eq!(got, want, "{:?}", channels[i]);
    }
    let head = batch.frame(0).head();
    assert_eq!((head.receive_time, head.source_time, head.sequence), (NOW, Some(1_700_000_000_000_000_005), Some(7)));
}

#[test]
fn polynomials_give_engineering_units() {
    let channels = "
        [[stream.channel]]\nname = 'line'\noffset = 0\ntype = 'u16'\npolynomial = [-200.0, 0.0076]\nunit = '°C'
        [[stream.channel]]\nname = 'curve'\noffset = 0\ntype = 'i16'\npolynomial = [1.0, 2.0, 0.5]
        [[stream.channel]]\nname = 'narrow'\noffset = 0\ntype = 'u16'\npolynomial = [0.0, 0.1]\nstore = 'f32'
        [[stream.channel]]\nname = 'constant'\noffset = 0\ntype = 'u8'\npolynomial = [3.0]";
    let layout = layout(channels);
    let types: Vec<ChannelType> = layout.streams[0].tables[0].spec.channels.iter().map(|c| c.channel_type).collect();
    assert_eq!(types, [ChannelType::F64, ChannelType::F64, ChannelType::F32, ChannelType::F64]);
    assert_eq!(layout.streams[0].tables[0].spec.channels[0].unit, "°C");
    let (batch, _) = decode(layout, &inetx(0xDD, 0, (1, 0), &0xFF38_u16.to_be_bytes()));
    let x = 0xFF38 as f64;
    assert_eq!(
        values(&batch, 0),
        [
            Kept::f64(-200.0 + 0.0076 * x),
            Kept::f64(1.0 + 2.0 * -200.0 + 0.5 * 40_000.0),
            Kept::Plain(Value::F32((0.1 * x) as f32)),
            Kept::f64(3.0),
        ]
    );
}

#[test]
fn samples_make_a_stream_of_their_own() {
    let channels = "
        period_ms = 20
        tags = { bay = '1' }
        [[stream.channel]]\nname = 'slow'\noffset = 0\ntype = 'u8'
        [[stream.channel]]\nname = 'fast'\noffset = 1\ntype = 'u8'\nsamples = 4\nperiod_us = 5000\nstride_bytes = 2
        [[stream.channel]]\nname = 'also'\noffset = 2\ntype = 'i8'\nsamples = 4\nperiod_us = 5000\nstride_bytes = 2";
    let layout = layout(channels);
    let specs: Vec<_> = layout.streams[0].tables.iter().map(|t| t.spec.clone()).collect();
    assert_eq!(specs[0].key.to_string(), "fti.bay{bay=1}");
    assert_eq!(specs[1].key.to_string(), "fti.bay.x4{bay=1}");
    assert_eq!((specs[0].expected_period_ns, specs[1].expected_period_ns), (Some(20_000_000), Some(5_000_000)));
    assert_eq!((specs[0].sequence_modulus, specs[1].sequence_modulus), (Some(1 << 32), Some(4 << 32)));
    let payload = [9, 10, 0xFF, 11, 0xFE, 12, 0xFD, 13, 0xFC];
    let (batch, decoded) = decode(layout, &inetx(0xDD, u32::MAX, (100, 0), &payload));
    assert_eq!(decoded.unwrap().frames, 5);
    assert_eq!(batch.len(), 5);
    assert_eq!(values(&batch, 0), [Kept::Plain(Value::U8(9))]);
    for i in 0..4 {
        let head = batch.frame(1 + i).head();
        assert_eq!(values(&batch, 1 + i), [Kept::Plain(Value::U8(10 + i as u8)), Kept::Plain(Value::I8(-1 - i as i8))]);
        assert_eq!(head.sequence, Some(u32::MAX as u64 * 4 + i as u64));
        assert_eq!(head.source_time, Some(100_000_000_000 + i as i64 * 5_000_000));
        assert_eq!(head.receive_time, NOW - (3 - i as i64) * 5_000_000);
    }
}

#[test]
fn ptp_times_are_tai_or_utc_as_configured_and_nonsense_is_no_time() {
    let channel = "[[stream.channel]]\nname = 'c'\noffset = 0\ntype = 'u8'";
    let mut config = with_channels(channel);
    let time = |config: &SourceConfig, ptp| {
        let (batch, decoded) = decode(config.compile("s").unwrap(), &inetx(0xDD, 0, ptp, &[1]));
        (batch.frame(0).head().source_time, decoded.unwrap().stamp == Stamp::Bad)
    };
    assert_eq!(time(&config, (1_700_000_000, 1)), (Some(1_700_000_000_000_000_001), false));
    assert_eq!(time(&config, (755, 749_999_500)), (Some(755_749_999_500), false));
    assert_eq!(time(&config, (u32::MAX, 999_999_999)), (Some(4_294_967_295_999_999_999), false));
    assert_eq!(time(&config, (1, 1_000_000_000)), (None, true));
    config = SourceConfig { ptp_scale: strongback_sources::config::PtpScale::Tai, ..config };
    assert_eq!(time(&config, (1_700_000_037, 1)), (Some(1_700_000_000_000_000_001), false));
    assert_eq!(time(&config, (0, 0)), (Some(-10_000_000_000), false));
}

#[test]
fn the_stamps_of_a_clock_that_was_never_set_are_no_time() {
    let channel = "[[stream.channel]]\nname = 'c'\noffset = 0\ntype = 'u8'";
    let config = with_channels(channel);
    let look = |config: &SourceConfig, ptp| {
        let (batch, decoded) = decode(config.compile("s").unwrap(), &inetx(0xDD, 0, ptp, &[1]));
        let decoded = decoded.unwrap();
        (decoded.stamp, decoded.stamp_ns, batch.frame(0).head().source_time)
    };
    // Those of real captures, the end of 1999, and a year ahead of the reception.
    for ptp in [(755, 749_999_500), (74_070, 0), (946_684_799, 999_999_999), (1_700_000_000 + 366 * 86_400, 1)] {
        let stamp = i64::from(ptp.0) * 1_000_000_000 + i64::from(ptp.1);
        // Kept as it is where nothing depends on it.
        assert_eq!(look(&config, ptp), (Stamp::NeverSet, stamp, Some(stamp)));
        let by_source = SourceConfig { clock: ClockConfig::Source, ..config.clone() };
        assert_eq!(look(&by_source, ptp), (Stamp::NeverSet, stamp, None));
    }
    for ptp in [(946_684_800, 0), (1_405_511_470, 0), (1_700_000_000 + 366 * 86_400, 0)] {
        let by_source = SourceConfig { clock: ClockConfig::Source, ..config.clone() };
        let stamp = i64::from(ptp.0) * 1_000_000_000;
        assert_eq!(look(&by_source, ptp), (Stamp::Set, stamp, Some(stamp)));
    }
    // A receiver whose own clock was not set cannot tell.
    let sink = Recording::new();
    let by_source = SourceConfig { clock: ClockConfig::Source, ..config };
    let mut decoder = Decoder::bind(by_source.compile("s").unwrap(), sink.as_ref()).unwrap();
    let mut batch = FrameBatch::new();
    decoder.decode(&inetx(0xDD, 0, (755, 0), &[1]), 9_000_000_000, &mut batch).unwrap();
    assert_eq!(batch.frame(0).head().source_time, Some(755_000_000_000));
}

#[test]
fn the_clock_is_the_configured_one() {
    let channel = "[[stream.channel]]\nname = 'c'\noffset = 0\ntype = 'u8'";
    assert_eq!(layout(channel).streams[0].tables[0].spec.clock, Clock::Receive);
    let config = SourceConfig { clock: ClockConfig::Source, ..with_channels(channel) };
    assert_eq!(config.compile("s").unwrap().streams[0].tables[0].spec.clock, Clock::Source);
}

#[test]
fn bad_packets_are_named_and_leave_no_frame() {
    let channels = "[[stream.channel]]\nname = 'c'\noffset = 2\ntype = 'u16'";
    for (datagram, want) in [
        (inetx(0xBEEF, 0, (0, 0), &[0; 4]), "stream 0x0000beef, offset 4: stream id is not configured"),
        (inetx(0xDD, 0, (0, 0), &[0; 3]), "stream 0x000000dd, offset 31: the payload has 3 bytes, its layout needs 4"),
        (vec![0x11, 0, 0, 0], "truncated: 4 bytes at offset 4, the iNET-X header needs 24"),
        (vec![0xFF; 64], "offset 0: iNET-X version 15 (control word 0xffffffff), only version 1 is supported"),
    ] {
        let (batch, decoded) = decode(layout(channels), &datagram);
        assert_eq!(decoded.unwrap_err().to_string(), want);
        assert!(batch.is_empty());
    }
}

#[test]
fn layout_faults_name_their_key() {
    let channel = |text: &str| with_channels(&format!("[[stream.channel]]\nname = 'c'\noffset = 0\n{text}"));
    for (config, path, reason) in [
        (channel("type = 'u16'\nbits = 17"), "stream[0].channel[0].bits", "bits 0 to 17 are not within the 16 of u16"),
        (channel("type = 'u16'\nbit = 10\nbits = 7"), "stream[0].channel[0].bits", "bits 10 to 17"),
        (channel("type = 'u16'\nbit = 4"), "stream[0].channel[0].bits", "bits 4 to 20"),
        (channel("type = 'u16'\nbits = 0"), "stream[0].channel[0].bits", "bits 0 to 0"),
        (channel("type = 'f32'\nbits = 16"), "stream[0].channel[0].bits", "f32 is read whole"),
        (channel("type = 'bool'\nbits = 2"), "stream[0].channel[0].bits", "a bool has 1 bit"),
        (channel("type = 'bool'\npolynomial = [1.0]"), "stream[0].channel[0].polynomial", "a bool has no polynomial"),
        (channel("type = 'u8'\npolynomial = []"), "stream[0].channel[0].polynomial", "1 to 16 coefficients"),
        (channel("type = 'u8'\npolynomial = [nan]"), "stream[0].channel[0].polynomial", "not finite"),
        (channel("type = 'u8'\nstore = 'f32'"), "stream[0].channel[0].store", "only beside a polynomial"),
        (channel("type = 'u8'\nsamples = 0"), "stream[0].channel[0].samples", "0 is not between"),
        (channel("type = 'u8'\nsamples = 5"), "stream[0].channel[0].period_us", "missing"),
        (channel("type = 'u8'\nperiod_us = 5"), "stream[0].channel[0].period_us", "only with samples"),
        (channel("type = 'u8'\nstride_bytes = 5"), "stream[0].channel[0].stride_bytes", "only with samples"),
        (
            channel("type = 'u8'\n[[stream.channel]]\nname = 'c'\noffset = 1\ntype = 'u8'"),
            "stream[0].channel[1].name",
            "names another channel",
        ),
        (
            channel(
                "type = 'u8'\nsamples = 2\nperiod_us = 5\n[[stream.channel]]\nname = 'd'\noffset = 1\ntype = 'u8'\nsamples = 2\nperiod_us = 6",
            ),
            "stream[0].channel[1].period_us",
            "share one period",
        ),
        (
            with_channels("[[stream.channel]]\nname = ''\noffset = 0\ntype = 'u8'"),
            "stream[0].channel[0].name",
            "is empty",
        ),
        (
            with_channels("[[stream.channel]]\nname = 'c'\noffset = 65507\ntype = 'u8'"),
            "stream[0].channel[0].offset",
            "beyond 65507",
        ),
        (with_channels(""), "stream[0].channel", "at least one channel"),
        (
            with_channels(
                "[[stream.channel]]\nname = 'c'\noffset = 0\ntype = 'u8'\n[[stream]]\nid = 0xDD\ntable = 'x'",
            ),
            "stream[1].id",
            "0x000000dd has another layout",
        ),
        (source("name = 'a'\nkind = 'inetx'\nlisten = 'localhost'"), "listen", "not an address and port"),
        (
            source("name = 'a'\nkind = 'inetx'\nlisten = '127.0.0.1:1'\ninterface = 'eth0'"),
            "interface",
            "only a multicast group",
        ),
        (
            source("name = 'a'\nkind = 'inetx'\ninterface = 'eth0'\ngroups = [{ address = '239.1.2.3:1' }]"),
            "interface",
            "belongs to `listen`",
        ),
        (
            source("name = 'a'\nkind = 'inetx'\ngroups = [{ address = '239.1.2.3:1' }, { address = '239.1.2.3' }]"),
            "groups[1].address",
            "not an address and port",
        ),
        (
            source("name = 'a'\nkind = 'inetx'\nlisten = '239.1.2.3:1'\ngroups = [{ address = '239.1.2.3:1' }]"),
            "groups[0].address",
            "stands here twice",
        ),
        (
            source("name = 'a'\nkind = 'inetx'\ngroups = [{ address = '127.0.0.1:1', interface = 'lo' }]"),
            "groups[0].interface",
            "only a multicast group",
        ),
        (
            source("name = 'a'\nkind = 'inetx'\nlisten = '127.0.0.1:1'\nreceive_buffer_bytes = 1"),
            "receive_buffer_bytes",
            "not between",
        ),
    ] {
        let error = config.compile("source[0]").unwrap_err();
        assert_eq!(error.path, format!("source[0].{path}"), "{error}");
        assert!(error.reason.contains(reason), "{error}");
    }
    let unknown = toml::from_str::<SourceConfig>("name = 'a'\nkind = 'inetx'\nlisten = 'x'\nlissen = 1").unwrap_err();
    assert!(unknown.to_string().contains("unknown field `lissen`"), "{unknown}");
}

#[test]
fn sources_do_not_share_what_is_theirs() {
    let channel = "[[stream.channel]]\nname = 'c'\noffset = 0\ntype = 'u8'";
    let one = with_channels(channel);
    let named = SourceConfig { listen: "127.0.0.1:4441".into(), ..one.clone() };
    assert_eq!(compile_all(&[one.clone(), named]).unwrap_err().path, "source[1].name");
    let addressed = SourceConfig { name: "b".into(), ..one.clone() };
    assert_eq!(compile_all(&[one.clone(), addressed]).unwrap_err().path, "source[1].listen");
    let fed = SourceConfig { name: "b".into(), listen: "127.0.0.1:4441".into(), ..one.clone() };
    assert_eq!(compile_all(&[one.clone(), fed.clone()]).unwrap_err().path, "source[1].stream[0].table");
    let mut tagged = fed;
    tagged.stream[0].tags.insert("bay".into(), "2".into());
    assert_eq!(compile_all(&[one, tagged]).unwrap().packets.len(), 2);
}

#[test]
fn configurations_come_back_as_written() {
    let config = with_channels(
        "[[stream.channel]]\nname = 'c'\noffset = 0\ntype = 'i16'\nbits = 12\nsamples = 2\nperiod_us = 1.5",
    );
    assert_eq!(source(&toml::to_string(&config).unwrap()), config);
}

mod generated {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// Anything at all: no panic, and a frame only of a packet that is whole.
        #[test]
        fn any_datagram_is_survived(mut bytes in proptest::collection::vec(any::<u8>(), 0..120), like in any::<bool>()) {
            if like && bytes.len() >= 16 {
                bytes[0] = 0x11;
                let n = bytes.len() as u32;
                bytes[4..8].copy_from_slice(&0xDD_u32.to_be_bytes());
                bytes[12..16].copy_from_slice(&n.to_be_bytes());
            }
            let channels = "[[stream.channel]]\nname = 'c'\noffset = 3\ntype = 'u64'\nbit = 3\nbits = 50\nsamples = 3\nperiod_us = 1";
            let (batch, decoded) = decode(layout(channels), &bytes);
            prop_assert_eq!(decoded.is_ok(), batch.len() == 3);
            prop_assert_eq!(decoded.is_err(), batch.is_empty());
        }

        /// A good packet with a byte changed or cut short never makes a frame of another length.
        #[test]
        fn changed_packets_are_survived(at in 0_usize..60, byte in any::<u8>(), cut in 0_usize..61) {
            let mut bytes = inetx(0xDD, 5, (1, 2), &[7; 32]);
            let good = bytes.clone();
            bytes[at] = byte;
            bytes.truncate(cut);
            let (batch, decoded) = decode(layout("[[stream.channel]]\nname = 'c'\noffset = 0\ntype = 'u8'"), &bytes);
            if cut < good.len() && decoded.is_ok() {
                prop_assert_eq!(Packet::parse(&bytes).unwrap().packet_bytes as usize, bytes.len());
            }
            prop_assert_eq!(batch.len(), decoded.is_ok() as usize);
        }

        /// Bits are those a plain big integer gives.
        #[test]
        fn bit_fields_equal_those_of_a_big_integer(word in any::<u64>(), (bit, bits) in (0_u32..64).prop_flat_map(|bit| (Just(bit), 1..=64 - bit)), signed in any::<bool>()) {
            let kind = if signed { "i64" } else { "u64" };
            let text = format!("[[stream.channel]]\nname = 'c'\noffset = 0\ntype = '{kind}'\nbit = {bit}\nbits = {bits}");
            let (batch, _) = decode(layout(&text), &inetx(0xDD, 0, (0, 0), &word.to_be_bytes()));
            let raw = (word as u128 >> (64 - bit - bits)) & ((1_u128 << bits) - 1);
            let want = if signed {
                let value = if raw >> (bits - 1) & 1 == 1 { raw as i128 - (1_i128 << bits) } else { raw as i128 };
                Value::I64(value as i64)
            } else {
                Value::U64(raw as u64)
            };
            prop_assert_eq!(values(&batch, 0), [Kept::Plain(want)]);
        }
    }
}
