//! Numbers of things.

use std::fmt::Display;

/// Formats a number of things: `0 rows`, `1 row`, `2 rows`.
pub fn many<N: Display + PartialEq + From<u8>>(count: N, thing: &str) -> String {
    let ending = if count == N::from(1) { "" } else { "s" };
    format!("{count} {thing}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_no_plural() {
        assert_eq!([0u64, 1, 2].map(|n| many(n, "PLC")), ["0 PLCs", "1 PLC", "2 PLCs"]);
        assert_eq!(many(1usize, "row"), "1 row");
    }
}
