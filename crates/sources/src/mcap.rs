//! Imports MCAP files into a sink. Topics become streams, and fields of their messages become channels.
//!
//! ```text
//!  file ─> container ─> schema ─> decoder of the topic (message, json) ─> import ─> Sink
//! ```
//! `/imu/data` becomes the table `imu.data`. Supported encodings are ROS 1 (`ros1` with `ros1msg`), ROS 2 (`cdr` with
//! `ros2msg`) and JSON; topics in other encodings are counted by name. `receive_time` is the time a message was
//! recorded. `source_time` is the timestamp of the header it begins with, or else the time it was sent.

mod container;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod import;
mod json;
mod message;
mod numbering;
mod schema;
#[cfg(test)]
mod tests;
mod value;

pub use container::{ContainerError, Damage, FileEnd, MAGIC, RecordEntry, RecordedMessage, read};
pub use import::{McapConfig, McapError, McapProgress, McapReport, TopicReport, run};
pub use json::JsonDecoder;
pub use message::{ELEMENTS_MAX, LEAVES_MAX, LeafKind, LeftOut, MessageLeaf, RosDecoder, Values};
pub use numbering::Numbering;
pub use schema::{Dialect, SchemaError};
pub use value::{FoundValue, MessageError};
