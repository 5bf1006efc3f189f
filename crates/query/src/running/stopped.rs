//! Whether a statement is over: for functions that wait or work long in one call, where no yield ends them.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::error::{DataFusionError, Result};

use crate::error::QueryError;

/// Raised when nobody waits for a statement any more. Each statement is planned with its own among its options.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stopped(Arc<AtomicBool>);

impl Stopped {
    /// As a flag that others raise.
    pub(crate) fn by(flag: &Arc<AtomicBool>) -> Stopped {
        Stopped(flag.clone())
    }

    /// That of the statement with these options; one that is never raised if they have none.
    pub(crate) fn of(options: &ConfigOptions) -> Stopped {
        options.extensions.get::<Stopped>().cloned().unwrap_or_default()
    }

    /// Says that nobody waits any more.
    pub(crate) fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Goes on as long as somebody waits.
    ///
    /// # Errors
    /// If nobody does.
    pub(crate) fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(QueryError::cancelled().into_datafusion()) } else { Ok(()) }
    }
}

impl ConfigExtension for Stopped {
    const PREFIX: &'static str = "strongback";
}

impl ExtensionOptions for Stopped {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, _: &str) -> Result<()> {
        Err(DataFusionError::Configuration(format!("no option {key}")))
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        Vec::new()
    }
}
