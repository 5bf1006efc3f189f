//! Layouts of parser-aligned payloads: the mapping of blocks to tables.

use hashbrown::HashSet;
use strongback_store::{ChannelSpec, ChannelType, Clock, StreamKey, StreamSpec};

use super::{CHANNELS_MAX, SEQUENCE_MODULUS, StreamLayout, TableLayout, check_table, check_tags, compile_field};
use crate::config::{BlockConfig, BlockHeader, KeyError, StreamConfig};

/// Mapping of the blocks of a parser-aligned payload to tables.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockLayout {
    /// For each bus id, the index of its table in [`StreamLayout::tables`], if it has one. The first table is that of
    /// the packet.
    pub table_of_bus: Box<[Option<usize>; 256]>,
    /// For each table, the header fields to store. Their channels follow those of its fields.
    pub headers: Vec<Vec<BlockHeader>>,
}

impl BlockHeader {
    fn channel(self) -> ChannelSpec {
        let (name, kind, unit, description) = match self {
            BlockHeader::Error => ("error", ChannelType::Bool, "", "the message has an error"),
            BlockHeader::ErrorCode => ("error_code", ChannelType::U8, "", "which error"),
            BlockHeader::MessageCount => ("message_count", ChannelType::U8, "", "number of the message, modulo 256"),
            BlockHeader::BusId => ("bus_id", ChannelType::U8, "", "bus that the message was seen on"),
            BlockHeader::ElapsedNs => ("elapsed_ns", ChannelType::U32, "ns", "since the packet's stamp"),
            BlockHeader::SizeBytes => ("size_bytes", ChannelType::U16, "B", "bytes of the message"),
        };
        ChannelSpec { unit: unit.to_owned(), description: description.to_owned(), ..ChannelSpec::new(name, kind) }
    }
}

/// Makes the layout of a stream with a parser-aligned payload: a table for its packets, then one for each block entry.
pub(super) fn compile(
    stream: &StreamConfig,
    source: &str,
    clock: Clock,
    period_ns: Option<i64>,
    path: &str,
) -> Result<StreamLayout, KeyError> {
    if !stream.channel.is_empty() {
        let why = "channels of a parser-aligned payload belong to a block of it: [[source.stream.block.channel]]";
        return Err(KeyError::new(format!("{path}.channel"), why));
    }
    if stream.block.is_empty() {
        let why = "missing: a parser-aligned payload needs at least one [[source.stream.block]]";
        return Err(KeyError::new(format!("{path}.block"), why));
    }
    let count = |name, description: &str| ChannelSpec {
        description: description.to_owned(),
        ..ChannelSpec::new(name, ChannelType::U16)
    };
    // Blocks have no sequence numbers that continue across packets, so loss is detected by packets.
    let packets = TableLayout {
        spec: StreamSpec {
            key: StreamKey::new(stream.table.as_str(), stream.tags.clone()),
            source: source.to_owned(),
            clock,
            expected_period_ns: period_ns,
            sequence_modulus: Some(SEQUENCE_MODULUS),
            channels: vec![count("blocks", "blocks in the packet"), count("block_errors", "blocks with an error")],
        },
        samples: 1,
        sample_period_ns: 0,
        fields: Vec::new(),
    };
    let mut keys: HashSet<StreamKey> = HashSet::new();
    keys.insert(packets.spec.key.clone());
    let mut layout =
        BlockLayout { table_of_bus: Box::new([None; 256]), headers: vec![Vec::new(); stream.block.len() + 1] };
    let mut tables = vec![packets];
    let mut others = None;
    for (i, block) in stream.block.iter().enumerate() {
        let path = format!("{path}.block[{i}]");
        let taken = match block.bus {
            Some(bus) => layout.table_of_bus[usize::from(bus)].replace(tables.len()).is_some(),
            None => others.replace(tables.len()).is_some(),
        };
        if taken {
            let why = match block.bus {
                Some(bus) => format!("another block has bus {bus} too"),
                None => "missing: another block without it takes all other buses already".to_owned(),
            };
            return Err(KeyError::new(format!("{path}.bus"), why));
        }
        let table = compile_table(block, source, clock, &path)?;
        if !keys.insert(table.spec.key.clone()) {
            let why = format!("{} is fed by this stream already: give one of them a tag", table.spec.key);
            return Err(KeyError::new(format!("{path}.table"), why));
        }
        layout.headers[i + 1].clone_from(&block.headers);
        tables.push(table);
    }
    for table in layout.table_of_bus.iter_mut() {
        *table = table.or(others);
    }
    Ok(StreamLayout { id: stream.id, payload_bytes: 0, tables, blocks: Some(layout) })
}

fn compile_table(block: &BlockConfig, source: &str, clock: Clock, path: &str) -> Result<TableLayout, KeyError> {
    check_table(&block.table, &format!("{path}.table"))?;
    check_tags(&block.tags, path)?;
    let (mut fields, mut channels) = (Vec::new(), Vec::new());
    let headers: Vec<ChannelSpec> = block.headers.iter().map(|header| header.channel()).collect();
    let mut names: HashSet<&str> = HashSet::new();
    for (i, channel) in block.channel.iter().enumerate() {
        let path = format!("{path}.channel[{i}]");
        if channel.samples.is_some() || channel.period_us.is_some() {
            let why = "a message is one frame: its channels have one sample each";
            return Err(KeyError::new(format!("{path}.samples"), why));
        }
        let (field, stored) = compile_field(channel, 1, &path)?;
        if !names.insert(&channel.name) {
            let why = format!("{:?} names another channel of this block too", channel.name);
            return Err(KeyError::new(format!("{path}.name"), why));
        }
        channels.push(channel.spec(stored));
        fields.push(field);
    }
    for header in &headers {
        if !names.insert(&header.name) {
            let why = format!("{:?} names another channel of this block too", header.name);
            return Err(KeyError::new(format!("{path}.headers"), why));
        }
    }
    channels.extend(headers.iter().cloned());
    if channels.is_empty() || channels.len() > CHANNELS_MAX {
        let why = format!("a block needs 1 to {CHANNELS_MAX} channels, not {}", channels.len());
        return Err(KeyError::new(format!("{path}.channel"), why));
    }
    let spec = StreamSpec {
        key: StreamKey::new(block.table.as_str(), block.tags.clone()),
        source: source.to_owned(),
        clock,
        expected_period_ns: None,
        sequence_modulus: None,
        channels,
    };
    Ok(TableLayout { spec, samples: 1, sample_period_ns: 0, fields })
}
