//! Stop flag of a statement, for functions that wait or work for long within one call, where no yield ends them.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::error::{DataFusionError, Result};

use crate::error::QueryError;

/// Flag that is raised when no one waits for a statement any more. Each statement has its own in its planning options.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stopped(Arc<AtomicBool>);

impl Stopped {
    /// Wraps a flag that others raise.
    pub(crate) fn by(flag: &Arc<AtomicBool>) -> Stopped {
        Stopped(flag.clone())
    }

    /// Returns the flag in these options, or one that is never raised if there is none.
    pub(crate) fn of(options: &ConfigOptions) -> Stopped {
        options.extensions.get::<Stopped>().cloned().unwrap_or_default()
    }

    /// Raises the flag.
    pub(crate) fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Checks that the flag is not raised.
    ///
    /// # Errors
    /// If the flag is raised.
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
