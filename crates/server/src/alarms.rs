//! Limits on channels, the alarms they raise, and the webhooks that are called for them.

pub mod limits;
pub mod webhook;
