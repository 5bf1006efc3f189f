//! A subscription that a fan-out knows.

use std::sync::Arc;

use super::Live;
use super::subscription::Subscription;

/// A subscription that a fan-out hands frames to, until it is dropped.
///
/// A client holds it for as long as it is there, a job for as long as it adds streams: what a job finds for a client
/// that has left in the meantime goes with the job.
#[derive(Debug)]
pub struct Listed {
    live: Arc<Live>,
    subscription: Arc<Subscription>,
}

impl Listed {
    /// Makes a subscription known to a fan-out.
    pub fn new(live: Arc<Live>, subscription: Arc<Subscription>) -> Listed {
        live.add(subscription.clone());
        Listed { live, subscription }
    }

    /// It.
    pub fn subscription(&self) -> &Arc<Subscription> {
        &self.subscription
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.live.remove(&self.subscription);
    }
}
