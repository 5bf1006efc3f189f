//! Registration of a subscription with a fan-out.

use std::sync::Arc;

use super::Live;
use super::subscription::Subscription;

/// Subscription registered with a fan-out until dropped.
///
/// A client holds it while connected, a job while it adds streams. What a job finds for a client that has left in the
/// meantime is dropped with the job.
#[derive(Debug)]
pub struct Listed {
    live: Arc<Live>,
    subscription: Arc<Subscription>,
}

impl Listed {
    /// Registers a subscription with a fan-out.
    pub fn new(live: Arc<Live>, subscription: Arc<Subscription>) -> Listed {
        live.add(subscription.clone());
        Listed { live, subscription }
    }

    /// Returns the subscription.
    pub fn subscription(&self) -> &Arc<Subscription> {
        &self.subscription
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.live.remove(&self.subscription);
    }
}
