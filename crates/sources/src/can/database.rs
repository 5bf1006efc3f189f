//! DBC databases, which map bits of messages to signals.

use std::collections::HashMap;

use can_dbc::{AttributeValue, ByteOrder, Dbc, MessageId, MultiplexIndicator, SignalExtendedValueType, ValueType};
use strongback_store::{ChannelType, Value};

use super::CanId;
use crate::rows::Cell;

/// Maximum size of a database, in bytes.
const DATABASE_BYTES_MAX: usize = 16 << 20;

/// Name of the pseudo-message under which tools keep signals that belong to no message.
const NO_MESSAGE: &str = "VECTOR__INDEPENDENT_SIG_MSG";

/// Error in a database.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {reason}")]
pub struct DatabaseError {
    /// File name.
    pub file: String,
    /// Cause.
    pub reason: String,
}

/// Messages of a database, indexed by identifier.
#[derive(Clone, Debug, Default)]
pub struct Database {
    messages: Vec<BusMessage>,
    by_id: HashMap<CanId, usize>,
    j1939: Groups,
}

/// J1939 messages. A frame belongs to the message with its sender and receiver, or else to the only one with its
/// parameter group and sender. Failing that, it belongs to the only one of its group, or to the only one of its group
/// that states no sender.
#[derive(Clone, Debug, Default)]
struct Groups {
    /// Index by the identifier without its priority.
    by_identifier: HashMap<u32, usize>,
    /// Index by group and sender address; `None` if several messages have both.
    by_sender: HashMap<(u32, u8), Option<usize>>,
    /// Index by group; `None` if several messages have it.
    by_group: HashMap<u32, Option<usize>>,
}

impl Groups {
    /// Mask of an identifier without its priority.
    const WITHOUT_PRIORITY: u32 = 0x03FF_FFFF;
    /// Sender address of a device without one, which databases use for any sender.
    const ANY_SENDER: u8 = 0xFE;

    /// Adds a message. Returns the message that it replaces, if any.
    fn insert(&mut self, id: u32, index: usize) -> Option<usize> {
        let earlier = self.by_identifier.insert(id & Groups::WITHOUT_PRIORITY, index);
        let only = |known: &mut Option<usize>| *known = (*known == earlier && earlier.is_some()).then_some(index);
        let group = parameter_group(id);
        self.by_sender.entry((group, id as u8)).and_modify(only).or_insert(Some(index));
        self.by_group.entry(group).and_modify(only).or_insert(Some(index));
        earlier
    }

    fn find(&self, id: u32) -> Option<usize> {
        let group = parameter_group(id);
        let of = |sender: u8| self.by_sender.get(&(group, sender));
        match (self.by_identifier.get(&(id & Groups::WITHOUT_PRIORITY)), of(id as u8)) {
            (Some(index), _) => Some(*index),
            (None, Some(only)) => *only,
            (None, None) => {
                self.by_group.get(&group).copied().flatten().or_else(|| of(Groups::ANY_SENDER).copied().flatten())
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct BusMessage {
    pub(super) name: String,
    pub(super) is_j1939: bool,
    pub(super) signals: Vec<Signal>,
}

#[derive(Clone, Debug)]
pub(super) struct Signal {
    pub(super) name: String,
    pub(super) kind: ChannelType,
    pub(super) unit: String,
    pub(super) description: String,
    start_bit: usize,
    bits: usize,
    little_endian: bool,
    coding: Coding,
    factor: f64,
    offset: f64,
    /// Multiplexing condition, if any.
    only_at: Option<OnlyAt>,
}

/// Multiplexing condition: the signal is present only if its multiplexor is present with one of these values.
#[derive(Clone, Debug)]
struct OnlyAt {
    /// Index of the multiplexor; `None` if the message has none.
    multiplexor: Option<usize>,
    /// First and last value of each range.
    values: Vec<(u64, u64)>,
}

/// Encoding of a signal's bits as a number.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Coding {
    Unsigned,
    Signed,
    F32,
    F64,
}

/// Returns the parameter group of a J1939 identifier: data page, format, and, for a broadcast, the group extension.
fn parameter_group(id: u32) -> u32 {
    let group = id >> 8 & 0x3_FFFF;
    // For formats below 240, the low byte is the destination address.
    if group >> 8 & 0xFF < 240 { group & 0x3_FF00 } else { group }
}

impl Database {
    /// Parses a database in UTF-8, or in Windows-1252 as most tools write it. `file` names it in errors.
    ///
    /// # Errors
    /// If the text is not DBC, or a signal has bits that no frame has.
    pub fn parse(bytes: &[u8], file: &str) -> Result<Database, DatabaseError> {
        let error = |reason: String| DatabaseError { file: file.to_owned(), reason };
        if bytes.len() > DATABASE_BYTES_MAX {
            return Err(error(format!("{} bytes, at most {DATABASE_BYTES_MAX} are read", bytes.len())));
        }
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => bytes.iter().map(|byte| *byte as char).collect(),
        };
        let dbc = Dbc::try_from(text.as_str()).map_err(|refused| error(format!("no DBC: {refused}")))?;
        let mut database = Database::default();
        for message in &dbc.messages {
            let signals: Result<Vec<Signal>, String> =
                message.signals.iter().map(|signal| Signal::new(&dbc, message.id, signal)).collect();
            let signals = signals.map_err(|reason| error(format!("message {}: {reason}", message.name)))?;
            let signals = multiplexed(&dbc, message, signals)
                .map_err(|reason| error(format!("message {}: {reason}", message.name)))?;
            let index = database.messages.len();
            let is_j1939 = is_j1939(&dbc, message.id);
            let (earlier, what) = match message.id {
                // Signals of no message: the identifier would match that of a group.
                _ if is_j1939 && message.name == NO_MESSAGE => (None, ""),
                MessageId::Extended(id) if is_j1939 => {
                    (database.j1939.insert(id, index), "parameter group, sender and receiver")
                }
                MessageId::Standard(id) => (database.by_id.insert(CanId::Standard(id.into()), index), "identifier"),
                MessageId::Extended(id) => (database.by_id.insert(CanId::Extended(id), index), "identifier"),
            };
            let earlier = earlier.map(|earlier| &database.messages[earlier]);
            if let Some(earlier) = earlier.filter(|earlier| !are_read_alike(&earlier.signals, &signals)) {
                let names = format!("messages {} and {}", earlier.name, message.name);
                return Err(error(format!("{names}: one {what}, and different signals")));
            }
            database.messages.push(BusMessage { name: message.name.clone(), is_j1939, signals });
        }
        Ok(database)
    }

    /// Counts the messages.
    pub fn messages(&self) -> usize {
        self.messages.len()
    }

    pub(super) fn find(&self, id: CanId) -> Option<usize> {
        let by_group = || match id {
            CanId::Extended(id) => self.j1939.find(id),
            CanId::Standard(_) => None,
        };
        self.by_id.get(&id).copied().or_else(by_group)
    }

    pub(super) fn message(&self, index: usize) -> &BusMessage {
        &self.messages[index]
    }
}

/// Reports whether the signals of two messages decode frames identically, regardless of their order and metadata.
fn are_read_alike(a: &[Signal], b: &[Signal]) -> bool {
    fn by_name(signals: &[Signal]) -> Vec<&Signal> {
        let mut sorted: Vec<&Signal> = signals.iter().collect();
        sorted.sort_by(|a, b| a.name.cmp(&b.name));
        sorted
    }
    // Compare multiplexors by name, because their indexes depend on the order.
    let only_at = |signal: &'_ Signal, all: &[Signal]| {
        let of = |of: &OnlyAt| (of.multiplexor.map(|at| all[at].name.clone()), of.values.clone());
        signal.only_at.as_ref().map(of)
    };
    let number = |s: &Signal| (s.name.clone(), s.start_bit, s.bits, s.little_endian, s.coding, s.factor, s.offset);
    let mut pairs = by_name(a).into_iter().zip(by_name(b));
    a.len() == b.len() && pairs.all(|(x, y)| number(x) == number(y) && only_at(x, a) == only_at(y, b))
}

/// Reports whether a message is a J1939 message, by its own attribute, the database's default or its protocol.
fn is_j1939(dbc: &Dbc, id: MessageId) -> bool {
    if !matches!(id, MessageId::Extended(_)) {
        return false;
    }
    let says = |value: &AttributeValue| match value {
        AttributeValue::String(text) => text.to_ascii_uppercase().contains("J1939"),
        AttributeValue::Uint(3) | AttributeValue::Int(3) => true,
        AttributeValue::Double(number) => *number == 3.0,
        _ => false,
    };
    if let Some(own) = dbc.resolved_message_attribute(id, "VFrameFormat") {
        return says(own);
    }
    let protocol = dbc.attribute_values_database.iter().find(|a| a.name == "ProtocolType");
    protocol.is_some_and(|attribute| matches!(&attribute.value, AttributeValue::String(text) if text.contains("J1939")))
}

/// Determines the multiplexing condition of each signal of a message. `SG_MUL_VAL_` may name several multiplexors, each
/// present only at values of another; otherwise the message has a single multiplexor.
fn multiplexed(dbc: &Dbc, message: &can_dbc::Message, mut signals: Vec<Signal>) -> Result<Vec<Signal>, String> {
    use MultiplexIndicator::{MultiplexedSignal, Multiplexor, MultiplexorAndMultiplexedSignal};
    let multiplexors: Vec<usize> = (0..signals.len())
        .filter(|at| {
            let indicator = &message.signals[*at].multiplexer_indicator;
            matches!(indicator, Multiplexor | MultiplexorAndMultiplexedSignal(_))
        })
        .collect();
    for at in 0..signals.len() {
        let name = &signals[at].name;
        let extended: Vec<&can_dbc::ExtendedMultiplex> =
            dbc.extended_multiplex.iter().filter(|of| of.message_id == message.id && of.signal_name == *name).collect();
        let only_at = match (&message.signals[at].multiplexer_indicator, extended.as_slice()) {
            (_, [of]) => {
                let by = &of.multiplexor_signal_name;
                let multiplexor = multiplexors.iter().copied().find(|at| signals[*at].name == *by);
                if multiplexor.is_none() {
                    return Err(format!("signal {name}: SG_MUL_VAL_ names the multiplexor {by}, which is none of it"));
                }
                let values = of.mappings.iter().map(|range| (range.min_value, range.max_value)).collect();
                Some(OnlyAt { multiplexor, values })
            }
            (_, [_, _, ..]) => return Err(format!("signal {name}: more than one SG_MUL_VAL_")),
            (MultiplexedSignal(value) | MultiplexorAndMultiplexedSignal(value), []) => {
                if multiplexors.len() > 1 {
                    return Err(format!("signal {name}: no SG_MUL_VAL_ says which of its multiplexors it belongs to"));
                }
                let multiplexor = multiplexors.first().copied();
                Some(OnlyAt { multiplexor, values: vec![(*value, *value)] })
            }
            (_, []) => None,
        };
        signals[at].only_at = only_at;
    }
    for signal in &signals {
        // As many steps up as there are signals end at the top, unless there is a cycle.
        let mut above = signal.only_at.as_ref().and_then(|of| of.multiplexor);
        for _ in 0..signals.len() {
            above = above.and_then(|at| signals[at].only_at.as_ref()?.multiplexor);
        }
        if above.is_some() {
            return Err(format!("signal {}: its multiplexors depend on each other", signal.name));
        }
    }
    Ok(signals)
}

impl Signal {
    fn new(dbc: &Dbc, id: MessageId, signal: &can_dbc::Signal) -> Result<Signal, String> {
        let name = &signal.name;
        let bits = usize::try_from(signal.size).ok().filter(|bits| (1..=64).contains(bits));
        let bits = bits.ok_or_else(|| format!("signal {name} has {} bits, not 1 to 64", signal.size))?;
        let start_bit = usize::try_from(signal.start_bit).ok().filter(|bit| *bit < 512);
        let start_bit = start_bit.ok_or_else(|| format!("signal {name} begins at bit {}", signal.start_bit))?;
        let coding = match dbc.extended_value_type_for_signal(id, name) {
            Some(SignalExtendedValueType::IEEEfloat32Bit) if bits == 32 => Coding::F32,
            Some(SignalExtendedValueType::IEEEdouble64bit) if bits == 64 => Coding::F64,
            _ if signal.value_type == ValueType::Signed => Coding::Signed,
            _ => Coding::Unsigned,
        };
        let whole = signal.factor == 1.0 && signal.offset == 0.0;
        let sized = |kinds: [ChannelType; 4]| kinds[bits.next_power_of_two().max(8).trailing_zeros() as usize - 3];
        use ChannelType::*;
        let kind = match coding {
            Coding::Unsigned if whole => sized([U8, U16, U32, U64]),
            Coding::Signed if whole => sized([I8, I16, I32, I64]),
            Coding::F32 if whole => F32,
            _ => F64,
        };
        Ok(Signal {
            name: name.clone(),
            kind,
            unit: signal.unit.clone(),
            description: dbc.signal_comment(id, name).unwrap_or_default().to_owned(),
            start_bit,
            bits,
            little_endian: signal.byte_order == ByteOrder::LittleEndian,
            coding,
            factor: signal.factor,
            offset: signal.offset,
            only_at: None,
        })
    }

    /// Returns the bits of the signal as a number, or `None` if the frame is too short.
    fn raw(&self, data: &[u8]) -> Option<u64> {
        let mut raw: u64 = 0;
        if self.little_endian {
            if self.start_bit + self.bits > data.len() * 8 {
                return None;
            }
            for bit in (self.start_bit..self.start_bit + self.bits).rev() {
                raw = raw << 1 | u64::from(data[bit / 8] >> (bit % 8) & 1);
            }
            return Some(raw);
        }
        // The most significant bit comes first: down in its byte, then from the top of the next byte.
        let first = self.start_bit / 8 * 8 + (7 - self.start_bit % 8);
        if first + self.bits > data.len() * 8 {
            return None;
        }
        for bit in first..first + self.bits {
            raw = raw << 1 | u64::from(data[bit / 8] >> (7 - bit % 8) & 1);
        }
        Some(raw)
    }

    /// Reports whether J1939 reserves this number for "no value": for whole bytes, a most significant byte above 0xFA;
    /// otherwise one of the two highest codes.
    fn is_not_there(&self, raw: u64) -> bool {
        match (self.coding, self.bits) {
            (Coding::F32 | Coding::F64, _) | (_, 1) => false,
            (_, 8 | 16 | 24 | 32 | 40 | 48 | 56 | 64) => raw >> (self.bits - 8) >= 0xFB,
            // The two highest codes: error, not available.
            (_, bits) => raw >= (u64::MAX >> (64 - bits)) - 1,
        }
    }

    fn value(&self, raw: u64) -> Value<'static> {
        let extended = ((raw << (64 - self.bits)) as i64) >> (64 - self.bits);
        let number = match self.coding {
            Coding::Unsigned if self.kind != ChannelType::F64 => return Value::from_bits(self.kind, raw),
            Coding::Signed if self.kind != ChannelType::F64 => return Value::from_bits(self.kind, extended as u64),
            Coding::F32 if self.kind != ChannelType::F64 => return Value::F32(f32::from_bits(raw as u32)),
            Coding::Unsigned => raw as f64,
            Coding::Signed => extended as f64,
            Coding::F32 => f32::from_bits(raw as u32).into(),
            Coding::F64 => f64::from_bits(raw),
        };
        Value::F64(number * self.factor + self.offset)
    }
}

impl BusMessage {
    /// Reports whether a frame has a signal, by its multiplexing conditions.
    fn is_there<'m>(&'m self, mut signal: &'m Signal, data: &[u8]) -> bool {
        while let Some(OnlyAt { multiplexor, values }) = &signal.only_at {
            let Some(above) = multiplexor.and_then(|at| self.signals.get(at)) else { return false };
            let Some(raw) = above.raw(data) else { return false };
            if !values.iter().any(|(first, last)| (*first..=*last).contains(&raw)) {
                return false;
            }
            signal = above;
        }
        true
    }

    /// Decodes the signals present in a frame: appends the index of each, with its value or `Unknown`.
    pub(super) fn decode(&self, data: &[u8], out: &mut Vec<(usize, Cell<'static>)>) {
        for (index, signal) in self.signals.iter().enumerate() {
            if !self.is_there(signal, data) {
                continue;
            }
            let Some(raw) = signal.raw(data) else { continue };
            let unknown = self.is_j1939 && signal.is_not_there(raw);
            out.push((index, if unknown { Cell::Unknown } else { Cell::Value(signal.value(raw)) }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DBC: &str = "VERSION \"\"\n\nNS_ :\n\nBS_:\n\nBU_: A\n\n\
        BO_ 291 Mixed: 8 A\n \
        SG_ Switch M : 0|4@1+ (1,0) [0|15] \"\" A\n \
        SG_ Low m0 : 8|12@1- (1,0) [0|0] \"\" A\n \
        SG_ High m1 : 15|16@0+ (0.5,-10) [0|0] \"bar\" A\n \
        SG_ Odd : 39|9@0- (1,0) [0|0] \"\" A\n\n\
        BO_ 292 Floats: 8 A\n \
        SG_ Single : 0|32@1- (1,0) [0|0] \"\" A\n\n\
        BO_ 2364540158 EEC1: 8 A\n \
        SG_ EngineSpeed : 24|16@1+ (0.125,0) [0|8031.875] \"rpm\" A\n \
        SG_ Mode : 0|2@1+ (1,0) [0|3] \"\" A\n\n\
        CM_ SG_ 2364540158 EngineSpeed \"how fast\";\n\
        BA_DEF_ BO_ \"VFrameFormat\" ENUM \"StandardCAN\",\"ExtendedCAN\",\"reserved\",\"J1939PG\";\n\
        BA_DEF_DEF_ \"VFrameFormat\" \"J1939PG\";\n\
        BA_ \"VFrameFormat\" BO_ 2364540158 3;\n\
        SIG_VALTYPE_ 292 Single : 1;\n";

    fn decoded(database: &Database, id: CanId, data: &[u8]) -> Vec<(String, Cell<'static>)> {
        let message = database.message(database.find(id).unwrap());
        let mut out = Vec::new();
        message.decode(data, &mut out);
        out.into_iter().map(|(signal, cell)| (message.signals[signal].name.clone(), cell)).collect()
    }

    #[test]
    fn signals_come_out_of_their_bits() {
        let database = Database::parse(DBC.as_bytes(), "t.dbc").unwrap();
        assert_eq!(database.messages(), 3);
        let mixed = CanId::Standard(291);
        let cell = |value| Cell::Value(value);
        // Odd: bit 39 is the top of byte 4. Nine bits: all of byte 4, and the top of byte 5.
        let data = [0xF0, 0x34, 0xF8, 0, 0x80, 0x7F, 0, 0];
        let want = [("Switch", Value::U8(0)), ("Low", Value::I16(-0x7CC)), ("Odd", Value::I16(-256))];
        assert_eq!(decoded(&database, mixed, &data), want.map(|(n, v)| (n.to_owned(), cell(v))));
        let data = [0x01, 0x12, 0x34, 0, 0x00, 0x80, 0, 0];
        let want =
            [("Switch", Value::U8(1)), ("High", Value::F64(f64::from(0x1234) * 0.5 - 10.0)), ("Odd", Value::I16(1))];
        assert_eq!(decoded(&database, mixed, &data), want.map(|(n, v)| (n.to_owned(), cell(v))));
        // A short frame has only the signals that fit.
        assert_eq!(decoded(&database, mixed, &[0x05]), [("Switch".to_owned(), cell(Value::U8(5)))]);
        let single = decoded(&database, CanId::Standard(292), &1.5f32.to_le_bytes());
        assert_eq!(single, [("Single".to_owned(), cell(Value::F32(1.5)))]);
    }

    /// Two levels with ranges: `B` is present if `A` is 1 or from 4 to 5, and selects `C` or `D`.
    const NESTED: &str = "VERSION \"\"\n\nNS_ :\n\nBS_:\n\nBU_: A\n\n\
        BO_ 5 Nested: 8 A\n \
        SG_ A M : 0|8@1+ (1,0) [0|0] \"\" A\n \
        SG_ B m1M : 8|8@1+ (1,0) [0|0] \"\" A\n \
        SG_ C m0 : 16|8@1+ (1,0) [0|0] \"\" A\n \
        SG_ D m2 : 16|8@1+ (1,0) [0|0] \"\" A\n \
        SG_ E m2 : 8|8@1+ (1,0) [0|0] \"\" A\n\n";

    #[test]
    fn multiplexors_of_multiplexors_and_ranges_say_what_is_there() {
        let said = "SG_MUL_VAL_ 5 B A 1-1, 4-5;\nSG_MUL_VAL_ 5 C B 0-1;\nSG_MUL_VAL_ 5 D B 2-255;\n\
                    SG_MUL_VAL_ 5 E A 2-2;\n";
        let database = Database::parse(format!("{NESTED}{said}").as_bytes(), "t.dbc").unwrap();
        for (data, want) in [
            ([1, 0, 9], "A B C"),
            ([5, 1, 9], "A B C"),
            ([4, 2, 9], "A B D"),
            ([2, 2, 9], "A E"),
            ([3, 0, 9], "A"),
            // The value of the whole without SG_MUL_VAL_.
            ([0, 0, 9], "A"),
        ] {
            let names: Vec<String> =
                decoded(&database, CanId::Standard(5), &data).into_iter().map(|(name, _)| name).collect();
            assert_eq!(names.join(" "), want, "{data:?}");
        }
    }

    #[test]
    fn multiplexing_that_cannot_be_meant_is_refused_with_message_and_signal() {
        for (said, reason) in [
            ("", "signal B: no SG_MUL_VAL_ says which of its multiplexors it belongs to"),
            ("SG_MUL_VAL_ 5 B C 1-1;\n", "signal B: SG_MUL_VAL_ names the multiplexor C, which is none of it"),
            (
                "SG_MUL_VAL_ 5 A B 1-1;\nSG_MUL_VAL_ 5 B A 1-1;\nSG_MUL_VAL_ 5 C B 0-0;\nSG_MUL_VAL_ 5 D B 2-2;\n\
                 SG_MUL_VAL_ 5 E A 2-2;\n",
                "signal A: its multiplexors depend on each other",
            ),
        ] {
            let error = Database::parse(format!("{NESTED}{said}").as_bytes(), "t.dbc").unwrap_err().to_string();
            assert_eq!(error, format!("t.dbc: message Nested: {reason}"));
        }
    }

    #[test]
    fn parameter_groups_are_found_from_whomever_they_come() {
        let database = Database::parse(DBC.as_bytes(), "t.dbc").unwrap();
        let speed = |id, low: u8, high: u8| decoded(&database, CanId::Extended(id), &[3, 0, 0, low, high, 0, 0, 0]);
        let named = |cell| vec![("EngineSpeed".to_owned(), cell), ("Mode".to_owned(), Cell::Unknown)];
        assert_eq!(speed(0x0CF0_0400, 0x48, 0x14), named(Cell::Value(Value::F64(649.0))));
        assert_eq!(speed(0x18F0_0421, 0xFF, 0xFA), named(Cell::Value(Value::F64(8_031.875))));
        for high in [0xFB, 0xFE, 0xFF] {
            assert_eq!(speed(0x0CF0_0400, 0xFF, high), named(Cell::Unknown), "{high:x}");
        }
        for other in [CanId::Extended(0x0CF0_0300), CanId::Standard(0x400), CanId::Extended(291)] {
            assert_eq!(database.find(other), None, "{other:?}");
        }
        let message = database.message(2);
        assert_eq!((message.signals[0].unit.as_str(), message.signals[0].description.as_str()), ("rpm", "how fast"));
        // Addressed to a single device, so the address is not part of the group.
        assert_eq!(parameter_group(0x18EA_2103), 0xEA00);
    }

    /// Builds a J1939 database whose messages have one signal each, from identifier, name and the signal's first bit.
    fn groups(messages: &[(u32, &str, u8)]) -> Result<Database, DatabaseError> {
        let mut text = "VERSION \"\"\n\nNS_ :\n\nBS_:\n\nBU_: A\n\n".to_owned();
        for (id, name, bit) in messages {
            text += &format!("BO_ {} {name}: 8 A\n SG_ S : {bit}|8@1+ (1,0) [0|0] \"\" A\n\n", id | 1 << 31);
        }
        text += "BA_DEF_ BO_ \"VFrameFormat\" ENUM \"StandardCAN\",\"ExtendedCAN\",\"reserved\",\"J1939PG\";\n\
                 BA_DEF_DEF_ \"VFrameFormat\" \"J1939PG\";\n";
        Database::parse(text.as_bytes(), "t.dbc")
    }

    /// Returns the name of the message that matches a frame.
    fn found(database: &Database, id: u32) -> Option<&str> {
        database.find(CanId::Extended(id)).map(|index| database.messages[index].name.as_str())
    }

    #[test]
    fn messages_of_one_parameter_group_are_told_apart_by_their_sender() {
        for order in [[0, 1], [1, 0]] {
            let both = [(0x18FF_0003, "OfThree", 0), (0x0CFF_0021, "OfOthers", 8)];
            let database = groups(&order.map(|at| both[at])).unwrap();
            // The priority does not matter.
            assert_eq!(found(&database, 0x1CFF_0003), Some("OfThree"));
            assert_eq!(found(&database, 0x18FF_0021), Some("OfOthers"));
            // No message states what other senders send.
            assert_eq!(found(&database, 0x18FF_0044), None);
            let any = [(0x18FF_0003, "OfThree", 0), (0x18FF_00FE, "OfAny", 8)];
            let database = groups(&order.map(|at| any[at])).unwrap();
            assert_eq!([0x18FF_0003, 0x18FF_0044].map(|id| found(&database, id)), [Some("OfThree"), Some("OfAny")]);
            // Addressed to a single device: the receiver decides if the sender is the same.
            let to = [(0x18EF_0403, "ToFour", 0), (0x18EF_0503, "ToFive", 8)];
            let database = groups(&order.map(|at| to[at])).unwrap();
            assert_eq!([0x18EF_0403, 0x18EF_0503].map(|id| found(&database, id)), [Some("ToFour"), Some("ToFive")]);
            assert_eq!([0x18EF_0603, 0x18EF_0404].map(|id| found(&database, id)), [None, None]);
        }
        let one = groups(&[(0x18EF_0403, "One", 0)]).unwrap();
        assert_eq!([0x18EF_0603, 0x18EF_0404].map(|id| found(&one, id)), [Some("One"), Some("One")]);
        // Signals of no message do not conflict with group 0.
        let torque = groups(&[(0x0C00_0003, "Torque", 0), (0x4000_0000, NO_MESSAGE, 8)]).unwrap();
        assert_eq!(found(&torque, 0x0C00_0027), Some("Torque"));
    }

    #[test]
    fn messages_with_one_identifier_and_different_signals_are_refused_with_both_names() {
        let error = groups(&[(0x18FF_0003, "Old", 0), (0x0CFF_0003, "New", 8)]).unwrap_err().to_string();
        let reason = "one parameter group, sender and receiver, and different signals";
        assert_eq!(error, format!("t.dbc: messages Old and New: {reason}"));
        let plain = |bit: u8| {
            let message =
                |name: &str, bit: u8| format!("BO_ 7 {name}: 8 A\n SG_ S : {bit}|8@1+ (1,0) [0|0] \"\" A\n\n");
            let text =
                format!("VERSION \"\"\n\nNS_ :\n\nBS_:\n\nBU_: A\n\n{}{}", message("Old", 0), message("New", bit));
            Database::parse(text.as_bytes(), "t.dbc")
        };
        let error = plain(8).unwrap_err().to_string();
        assert_eq!(error, "t.dbc: messages Old and New: one identifier, and different signals");
        assert!(plain(0).is_ok());
        let same = groups(&[(0x18FF_0003, "Old", 0), (0x0CFF_0003, "New", 0)]).unwrap();
        assert_eq!([0x18FF_0003, 0x18FF_0044].map(|id| found(&same, id)), [Some("New"), Some("New")]);
    }

    /// Builds a database with two messages of one sender: the signal lines of each, and further lines on the first.
    fn twice(old: &str, new: &str, said: &str) -> Result<Database, DatabaseError> {
        let (old_id, new_id) = (0x18FF_0003_u32 | 1 << 31, 0x0CFF_0003_u32 | 1 << 31);
        let text = format!(
            "VERSION \"\"\n\nNS_ :\n\nBS_:\n\nBU_: A\n\nBO_ {old_id} Old: 8 A\n{old}\nBO_ {new_id} New: 8 A\n{new}\n\
             {said}BA_DEF_ BO_ \"VFrameFormat\" ENUM \"StandardCAN\",\"ExtendedCAN\",\"reserved\",\"J1939PG\";\n\
             BA_DEF_DEF_ \"VFrameFormat\" \"J1939PG\";\n"
        );
        Database::parse(text.as_bytes(), "t.dbc")
    }

    #[test]
    fn messages_with_one_identifier_may_differ_in_what_no_frame_shows() {
        let signal = |name: &str, mux: &str, bit: u8, unit: &str| {
            format!(" SG_ {name}{mux} : {bit}|8@1+ (1,0) [0|0] \"{unit}\" A\n")
        };
        let (a, b, c) = (signal("A", " M", 0, ""), signal("B", " m1", 8, "rpm"), signal("C", " m2", 8, ""));
        let all = [&*a, &*b, &*c].concat();
        let said = format!("CM_ SG_ {} B \"how fast\";\n", 0x18FF_0003_u32 | 1 << 31);
        assert_eq!(twice(&all, &all, &said).unwrap().messages(), 2);
        let reordered = [&*c, &*signal("B", " m1", 8, "1/min"), &*a].concat();
        let database = twice(&all, &reordered, "").unwrap();
        assert_eq!(found(&database, 0x18FF_0003), Some("New"));
        for other in [
            [&*a, &*b].concat(),
            [&*a, &*b, &*signal("D", " m2", 8, "")].concat(),
            [&*a, &*b, &*signal("C", " m3", 8, "")].concat(),
            [&*a, &*b, &*signal("C", " m2", 16, "")].concat(),
            [&*a, &*b, &*c.replace("(1,0)", "(2,0)")].concat(),
            [&*a, &*b, &*c.replace("1+", "1-")].concat(),
        ] {
            assert!(twice(&all, &other, "").is_err(), "{other}");
        }
    }

    #[test]
    fn what_is_no_database_is_said() {
        let error = Database::parse(b"BO_ what", "t.dbc").unwrap_err().to_string();
        assert!(error.starts_with("t.dbc: no DBC"), "{error}");
        let wide = "VERSION \"\"\nNS_ :\nBS_:\nBU_: A\nBO_ 1 M: 8 A\n SG_ S : 0|65@1+ (1,0) [0|0] \"\" A\n";
        let error = Database::parse(wide.as_bytes(), "t.dbc").unwrap_err().to_string();
        assert_eq!(error, "t.dbc: message M: signal S has 65 bits, not 1 to 64");
        // Windows-1252: a degree sign.
        let degrees = b"VERSION \"\"\nNS_ :\nBS_:\nBU_: A\nBO_ 1 M: 8 A\n SG_ S : 0|8@1+ (1,0) [0|0] \"\xB0C\" A\n";
        let database = Database::parse(degrees, "t.dbc").unwrap();
        assert_eq!(database.message(0).signals[0].unit, "°C");
    }

    proptest! {
        /// Checks against single bits taken from the definition of both byte orders.
        #[test]
        fn bits_agree_with_a_slow_reader(
            data in proptest::array::uniform8(any::<u8>()), start_bit in 0..64_usize, bits in 1..=64_usize,
            little_endian: bool,
        ) {
            let signal = Signal {
                name: String::new(), kind: ChannelType::U64, unit: String::new(), description: String::new(),
                start_bit, bits, little_endian, coding: Coding::Unsigned, factor: 1.0, offset: 0.0, only_at: None,
            };
            // Positions of its bits from most to least significant, as byte and bit of the byte.
            let mut at = (start_bit / 8, start_bit % 8);
            let mut places = vec![at];
            for _ in 1..bits {
                at = match (little_endian, at.1) {
                    (true, 7) => (at.0 + 1, 0),
                    (true, bit) => (at.0, bit + 1),
                    (false, 0) => (at.0 + 1, 7),
                    (false, bit) => (at.0, bit - 1),
                };
                places.push(at);
            }
            if little_endian {
                places.reverse();
            }
            let there = places.iter().all(|(byte, _)| *byte < 8);
            let slow = places.iter().filter(|(byte, _)| *byte < 8)
                .fold(0u64, |raw, (byte, bit)| raw << 1 | u64::from(data[*byte] >> bit & 1));
            prop_assert_eq!(signal.raw(&data), there.then_some(slow));
        }

        #[test]
        fn no_database_is_too_odd(cut in 0..DBC.len(), put in any::<u8>()) {
            let mut bytes = DBC.as_bytes().to_vec();
            bytes[cut] = put;
            if let Ok(database) = Database::parse(&bytes, "odd") {
                for message in &database.messages {
                    message.decode(&[0xA5; 8], &mut Vec::new());
                }
            }
        }
    }
}
