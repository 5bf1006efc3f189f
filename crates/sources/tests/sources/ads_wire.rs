//! The bytes of ADS against those of Beckhoff's AdsLib and of another client, as they were captured; and whatever else
//! may come from a network.

use std::time::Duration;

use strongback_sources::ads::error::AdsError;
use strongback_sources::ads::table::{DataTypes, Symbol, Symbols, UploadInfo};
use strongback_sources::ads::wire::{self, *};
use strongback_sources::ads::{AmsAddress, NetId};

const REQUESTS: &[u8] = include_bytes!("../data/ads/adslib-requests.ams");
const ANSWERS: &[u8] = include_bytes!("../data/ads/adslib-answers.ams");
const OTHER_REQUEST: &[u8] = include_bytes!("../data/ads/rust-ads-sum-read.ams");
const OTHER_ANSWERS: &[u8] = include_bytes!("../data/ads/rust-ads-answers.ams");

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Messages by the length that stands at their beginning.
fn messages(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let (message, rest) = bytes.split_at(6 + word(bytes, 2) as usize);
        found.push(message);
        bytes = rest;
    }
    found
}

fn address(bytes: &[u8]) -> AmsAddress {
    AmsAddress { net_id: NetId(bytes[..6].try_into().unwrap()), port: u16::from_le_bytes([bytes[6], bytes[7]]) }
}

/// Encodes a request with the addresses and the invoke id of a captured one.
fn as_captured(captured: &[u8], request: &Request<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    request.encode(address(&captured[6..]), address(&captured[14..]), word(captured, 34), &mut out);
    out
}

#[test]
fn requests_are_byte_for_byte_those_of_adslib() {
    let mut compared = [0; 10];
    for captured in messages(REQUESTS) {
        let command = captured[22] as usize;
        let data = &captured[38..];
        let place = || PlcPlace { group: word(data, 0), offset: word(data, 4), size: word(data, 8) };
        let name;
        let request = match command {
            1 => Request::DeviceInfo,
            4 => Request::State,
            2 => Request::Read(place()),
            6 => Request::AddNotification {
                place: place(),
                transmission: Transmission::Cyclic,
                cycle: Duration::from_millis(1),
            },
            7 => Request::DeleteNotification(word(data, 0)),
            9 if word(data, 0) == 0xF009 => {
                name = std::str::from_utf8(&data[16..data.len() - 1]).unwrap().to_owned();
                Request::SymbolByName(&name)
            }
            // What this client never sends: writes, handles by name, the sum read without lengths.
            _ => continue,
        };
        assert_eq!(as_captured(captured, &request), captured, "{request:?}");
        compared[command] += 1;
    }
    assert_eq!(compared, [0, 1, 3, 0, 1, 0, 10, 10, 0, 10]);
}

#[test]
fn a_millisecond_is_ten_thousand() {
    assert_eq!(ads_time(Duration::from_millis(1)), 10_000);
    assert_eq!(ads_time(Duration::from_micros(250)), 2_500);
    assert_eq!(ads_time(Duration::from_secs(100_000)), u32::MAX);
}

#[test]
fn a_sum_read_is_that_of_another_client() {
    let subs = &OTHER_REQUEST[38 + 16..];
    let place = |sub: &[u8]| PlcPlace { group: word(sub, 0), offset: word(sub, 4), size: word(sub, 8) };
    let places: Vec<PlcPlace> = subs.chunks_exact(12).map(place).collect();
    assert_eq!(places.len(), 400);
    assert_eq!(as_captured(OTHER_REQUEST, &Request::SumRead(&places)), OTHER_REQUEST);
    let answers: Vec<Message<'_>> = messages(OTHER_ANSWERS)
        .into_iter()
        .filter(|m| m[22] == 9 && word(m, 26) > 1_000)
        .map(|m| cut(m).unwrap().unwrap().message.unwrap())
        .collect();
    assert!(!answers.is_empty());
    for answer in answers {
        let bytes = read_bytes(answer.answer().unwrap()).unwrap();
        let values: Vec<f64> = sum_results(bytes, &places)
            .unwrap()
            .map(|result| f64::from_le_bytes(result.unwrap().try_into().unwrap()))
            .collect();
        assert_eq!(values.len(), 400);
        // A counter, then sines, one of them overwritten with 1.5.
        assert!(values[0] > 1e3 && values[1..].iter().all(|v| v.abs() <= 1.5), "{values:?}");
    }
}

#[test]
fn answers_of_a_plc_are_understood() {
    let (mut states, mut infos, mut handles, mut symbols, mut samples, mut by_name) = (0, 0, Vec::new(), 0, 0, 0);
    for captured in messages(ANSWERS) {
        let message = cut(captured).unwrap().unwrap();
        assert_eq!(message.size_bytes, captured.len());
        let message = message.message.unwrap();
        if message.kind == MessageKind::Notification {
            for sample in Notification::parse(message.data).unwrap().samples() {
                let value = f64::from_le_bytes(sample.data.try_into().unwrap());
                assert!(value.is_finite() && (1..=10).contains(&sample.handle), "{sample:?}");
                assert!(unix_ns(sample.filetime).unwrap() > 1_700_000_000_000_000_000);
                samples += 1;
            }
            continue;
        }
        let MessageKind::Answer { command, .. } = message.kind else { unreachable!() };
        let answer = message.answer().unwrap();
        match command {
            1 => {
                let info = device_info(answer).unwrap();
                assert_eq!((info.name.as_str(), info.version), ("sim", (3, 1, 4024)));
                infos += 1;
            }
            4 => {
                assert_eq!(wire::state(answer).map(|(ads, device)| (state_name(ads), device)), Ok(("Run", 0)));
                states += 1;
            }
            6 => handles.push(wire::handle(answer).unwrap()),
            2 if answer.len() > 1_000 => {
                for (i, symbol) in Symbols::new(read_bytes(answer).unwrap()).enumerate() {
                    let symbol = symbol.unwrap();
                    let at = (symbol.group, symbol.offset, symbol.size, symbol.base);
                    assert_eq!(symbol.name, format!("MAIN.ch{i:04}"));
                    assert_eq!((at, symbol.type_name.as_ref()), ((0x4040, 8 * i as u32, 8, 5), "LREAL"));
                    symbols += 1;
                }
            }
            9 if answer.len() > 8 => {
                let bytes = read_bytes(answer).unwrap();
                // The others are handles, and sum reads of a kind that is not used here.
                if bytes.len() > 30 && word(bytes, 0) as usize == bytes.len() {
                    assert!(Symbol::parse(bytes).unwrap().name.starts_with("MAIN.ch"));
                    by_name += 1;
                }
            }
            _ => {}
        }
    }
    assert_eq!((states, infos, symbols, by_name), (1, 1, 400, 10));
    assert_eq!(handles, (1..=10).collect::<Vec<u32>>());
    assert!(samples >= 20, "{samples}");
}

#[test]
fn upload_info_and_types_of_another_client() {
    let answers: Vec<&[u8]> = messages(OTHER_ANSWERS);
    let reads: Vec<&[u8]> = answers
        .iter()
        .filter(|m| m[22] == 2)
        .map(|m| read_bytes(cut(m).unwrap().unwrap().message.unwrap().answer().unwrap()).unwrap())
        .collect();
    let info = UploadInfo::parse(reads[0]).unwrap();
    assert_eq!(info, UploadInfo { symbols: 400, symbols_bytes: 19_600, types: 1, types_bytes: 50 });
    let (types, error) = DataTypes::read(reads[1]);
    assert_eq!((types.len(), error), (1, None));
    let lreal = types.get("LREAL").unwrap();
    assert_eq!((lreal.size, lreal.base, lreal.is_array(), lreal.is_structure()), (8, 5, false, false));
}

#[test]
fn refusals_are_errors_with_their_words() {
    let mut message = messages(ANSWERS)[0].to_vec();
    message[30] = 6;
    let refused = cut(&message).unwrap().unwrap().message.unwrap().answer().unwrap_err();
    assert_eq!(refused.to_string(), "ADS error 0x6 (no program at that AMS port)");
    message[30] = 0;
    message[38..42].copy_from_slice(&0x710_u32.to_le_bytes());
    let refused = cut(&message).unwrap().unwrap().message.unwrap().answer().unwrap_err();
    assert_eq!(refused, AnswerError::Ads(AdsError::SYMBOL_NOT_FOUND));
}

#[test]
fn lengths_that_lie_are_errors() {
    let whole = messages(ANSWERS).into_iter().find(|m| m[22] == 8).unwrap();
    for end in 0..whole.len() {
        assert_eq!(cut(&whole[..end]), Ok(None), "{end} bytes");
    }
    let changed = |at: usize, value: u32| {
        let mut bytes = whole.to_vec();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        bytes
    };
    assert!(matches!(cut(&changed(0, 1)), Err(WireError::Reserved { found: 1 })));
    for length in [0, 31, u32::MAX, (64 << 20) + 59] {
        assert_eq!(cut(&changed(2, length)), Err(WireError::MessageLength { found: length }));
    }
    let bad = changed(26, 3);
    assert!(matches!(cut(&bad).unwrap().unwrap().message, Err(WireError::DataLength { found: 3, .. })));
    let data = |bytes: Vec<u8>| bytes[38..].to_vec();
    assert!(Notification::parse(&data(whole.to_vec())).is_ok());
    // Its length, the number of stamps, of samples, the size of one.
    for (at, value) in
        [(38, 7), (38, u32::MAX), (42, 2), (42, 0), (42, u32::MAX), (54, u32::MAX), (54, 0), (62, 9), (62, u32::MAX)]
    {
        let error = Notification::parse(&data(changed(at, value))).unwrap_err();
        assert_eq!(error.reason(), "wrong_length", "{at} {value}: {error}");
    }
    assert_eq!(unix_ns(0), None);
    assert_eq!(unix_ns(u64::MAX), None);
    assert_eq!(unix_ns(116_444_736_000_000_001), Some(100));
}
