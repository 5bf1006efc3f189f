//! A channel in the form the interface describes it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;
use strongback_store::{Channel, Interpolation, Stream};

use crate::text::json::Big;

/// The channel object of docs/api/data.md.
#[derive(Debug, Serialize)]
pub struct ChannelCard<'a> {
    id: u32,
    name: String,
    table: &'a str,
    channel: &'a str,
    tags: BTreeMap<&'a str, &'a str>,
    stream: u32,
    #[serde(rename = "type")]
    channel_type: Cow<'static, str>,
    unit: &'a str,
    description: &'a str,
    source: &'a str,
    expected_period_ns: Option<Big<i64>>,
    interpolation: &'static str,
}

impl<'a> ChannelCard<'a> {
    /// Describes a channel of a stream.
    pub fn new(stream: &'a Stream, channel: &'a Channel) -> Self {
        ChannelCard {
            id: channel.id.0,
            name: stream.key.channel_name(&channel.name),
            table: &stream.key.table,
            channel: &channel.name,
            tags: stream.key.tags.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect(),
            stream: stream.id.0,
            channel_type: channel.channel_type.name(),
            unit: &channel.unit,
            description: &channel.description,
            source: &stream.source,
            expected_period_ns: stream.expected_period_ns.map(Big),
            interpolation: match channel.interpolation {
                Interpolation::Hold => "hold",
                Interpolation::Linear => "linear",
            },
        }
    }
}
