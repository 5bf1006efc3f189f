//! Request of a subscription, with its limits.

use std::net::IpAddr;
use std::time::Duration;

use crate::error::{QueryError, sqlstate};

/// Default, minimum and maximum time between two steps.
pub const SUBSCRIBE_INTERVAL: Duration = Duration::from_millis(100);
const INTERVAL_MIN: Duration = Duration::from_millis(10);
const INTERVAL_MAX: Duration = Duration::from_secs(3_600);
/// Default and maximum time for which windows wait for late frames.
pub const SUBSCRIBE_LATENESS: Duration = Duration::from_secs(1);
const LATENESS_MAX: Duration = Duration::from_secs(7 * 86_400);
/// Maximum size of a position, in bytes.
const POSITION_BYTES_MAX: usize = 32 << 10;

/// Request of a subscription.
#[derive(Clone, Debug)]
pub struct SubscribeRequest {
    /// Statement whose result is followed.
    pub sql: String,
    /// Minimum time between two steps.
    pub interval: Duration,
    /// Time for which a window waits for late frames, by the time of the frames.
    pub lateness: Duration,
    /// Time without new rows after which all windows are closed; `None` to keep the newest open.
    pub idle: Option<Duration>,
    /// Position of an earlier subscription to the same statement, at which to continue.
    pub resume: Option<String>,
    /// Maximum time for the work of a step.
    pub timeout: Duration,
    /// Address of the client.
    pub address: IpAddr,
}

impl SubscribeRequest {
    /// Checks the request.
    ///
    /// # Errors
    /// If a value is out of its range.
    pub(crate) fn check(&self) -> Result<(), QueryError> {
        let within = |name: &str, value: Duration, min: Duration, max: Duration| {
            if (min..=max).contains(&value) {
                return Ok(());
            }
            let text =
                format!("{name} is {} ms, must be {} to {}", value.as_millis(), min.as_millis(), max.as_millis());
            Err(QueryError::new(sqlstate::INVALID_PARAMETER, text))
        };
        within("the interval", self.interval, INTERVAL_MIN, INTERVAL_MAX)?;
        within("the lateness", self.lateness, Duration::ZERO, LATENESS_MAX)?;
        if let Some(idle) = self.idle {
            within("the idle time", idle, INTERVAL_MIN, LATENESS_MAX)?;
        }
        if self.resume.as_ref().is_some_and(|position| position.len() > POSITION_BYTES_MAX) {
            let text = format!("the position has more than {POSITION_BYTES_MAX} bytes");
            return Err(QueryError::new(sqlstate::INVALID_PARAMETER, text));
        }
        Ok(())
    }
}
