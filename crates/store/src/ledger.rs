//! The ledger: what sequences say of loss.

/// Follows the wire sequence of one stream and unwraps it.
#[derive(Clone, Debug)]
pub(crate) struct SequenceTracker {
    /// Wire sequences count modulo this.
    pub(crate) modulus: u64,
    session: u32,
    /// Highest unwrapped sequence of the session.
    highest: Option<i64>,
}

impl SequenceTracker {
    pub(crate) fn new(modulus: u64) -> Self {
        SequenceTracker { modulus: modulus.clamp(2, 1 << 62), session: 0, highest: None }
    }

    /// Goes on after a frame of the log.
    pub(crate) fn restore(&mut self, sequence: i64, session: u32) {
        if sequence == crate::row::NONE {
            return;
        }
        if session != self.session || self.highest.is_none_or(|h| sequence > h) {
            self.highest = Some(sequence);
        }
        self.session = session;
    }

    /// The unwrapped sequence and session of a frame.
    pub(crate) fn unwrap(&mut self, wire: u64, _receive_time: i64, _source_time: Option<i64>) -> (i64, u32) {
        let modulus = self.modulus as i64;
        let wire = (wire % self.modulus) as i64;
        let sequence = match self.highest {
            None => wire,
            Some(highest) => {
                let mut step = (wire - highest.rem_euclid(modulus)).rem_euclid(modulus);
                if step > modulus / 2 {
                    step -= modulus;
                }
                highest + step
            }
        };
        self.highest = Some(self.highest.map_or(sequence, |h| h.max(sequence)));
        (sequence, self.session)
    }
}
