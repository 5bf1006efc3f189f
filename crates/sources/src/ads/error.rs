//! Error codes of PLCs and routers.

use std::fmt;

/// An error code of ADS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AdsError(pub u32);

impl AdsError {
    /// No program at the AMS port.
    pub const PORT_NOT_FOUND: AdsError = AdsError(0x6);
    /// NetId of the target unknown to the router.
    pub const MACHINE_NOT_FOUND: AdsError = AdsError(0x7);
    /// Command or index group unknown to the server.
    pub const SERVICE_NOT_SUPPORTED: AdsError = AdsError(0x701);
    /// No symbol of that name.
    pub const SYMBOL_NOT_FOUND: AdsError = AdsError(0x710);

    /// Returns Beckhoff's description of the error.
    pub fn words(self) -> &'static str {
        match self.0 {
            0x1 => "internal error",
            0x5 => "the mailbox of the target is full",
            0x6 => "no program at that AMS port",
            0x7 => "the router does not know the target's NetId",
            0x8 => "unknown command",
            0xD => "the port is not connected",
            0x12 => "the port is disabled",
            0x18 => "invalid AMS port",
            0x19 => "no memory",
            0x1A => "TCP send error",
            0x1B => "host unreachable",
            0x1E => "access denied: secure ADS only",
            0x500..=0x50D => "the router has no room or does not run",
            0x700 => "general device error",
            0x701 => "service not supported",
            0x702 => "invalid index group",
            0x703 => "invalid index offset",
            0x704 => "reading is not permitted",
            0x705 => "wrong size",
            0x706 | 0x70B => "invalid parameter",
            0x707 => "device not ready",
            0x708 => "device busy",
            0x709 => "invalid context",
            0x70A => "out of memory",
            0x70C => "not found",
            0x710 => "symbol not found",
            0x711 => "symbol version invalid: the program changed",
            0x712 => "the server is in an invalid state",
            0x713 => "transmission mode not supported",
            0x714 => "notification handle invalid",
            0x715 => "notification client not registered",
            0x716 => "no more notification handles",
            0x717 => "notification too large",
            0x718 => "device not initialised",
            0x719 => "device timeout",
            0x71E => "request pending",
            0x71F => "request aborted",
            0x721 => "invalid array index",
            0x722 => "symbol not active",
            0x723 => "access denied",
            0x724..=0x729 => "licence missing or expired",
            0x745 => "timeout: is the route there?",
            _ => "unknown error",
        }
    }
}

impl fmt::Display for AdsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ADS error {:#x} ({})", self.0, self.words())
    }
}

impl std::error::Error for AdsError {}
