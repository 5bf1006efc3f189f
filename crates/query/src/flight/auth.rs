//! Authentication of calls: none (on loopback), or the token in the header `authorization`.

use std::sync::Arc;

use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, Engine, GeneralPurpose, GeneralPurposeConfig};
use subtle::ConstantTimeEq;

/// Base64 of Basic authentication. Flight clients in Go leave the padding out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Authentication of Flight SQL clients.
#[derive(Clone)]
pub enum FlightAuth {
    /// Any call, for listeners on loopback.
    Trust,
    /// Calls that show this token.
    Token(Arc<str>),
}

impl std::fmt::Debug for FlightAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            FlightAuth::Trust => "Trust",
            FlightAuth::Token(_) => "Token",
        })
    }
}

/// Reports whether the value of a header `Authorization` shows the token: as `Bearer …` or `Token …`, or as the
/// password of Basic authentication.
pub fn shows_token(authorization: &str, token: &str) -> bool {
    let same = |shown: &str| bool::from(shown.as_bytes().ct_eq(token.as_bytes()));
    let (scheme, rest) = authorization.split_once(' ').unwrap_or((authorization, ""));
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") || scheme.eq_ignore_ascii_case("token") {
        // InfluxDB 1 clients may send `Token user:password`.
        return same(rest) || rest.split_once(':').is_some_and(|(_, password)| same(password));
    }
    let decoded = if scheme.eq_ignore_ascii_case("basic") { BASE64.decode(rest) } else { return false };
    let decoded = String::from_utf8(decoded.unwrap_or_default()).unwrap_or_default();
    decoded.split_once(':').is_some_and(|(_, password)| same(password))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_shown_in_every_way_that_clients_have() {
        let shows = |authorization: &str| shows_token(authorization, "0123456789abcdef");
        for right in [
            "Bearer 0123456789abcdef",
            "bearer 0123456789abcdef",
            "Token 0123456789abcdef",
            "Token me:0123456789abcdef",
            "Basic bWU6MDEyMzQ1Njc4OWFiY2RlZg==",
            "Basic bWU6MDEyMzQ1Njc4OWFiY2RlZg",
        ] {
            assert!(shows(right), "{right}");
        }
        for wrong in ["Bearer 0123456789abcdeg", "Bearer", "", "0123456789abcdef", "Basic MDEyMw==", "Basic %"] {
            assert!(!shows(wrong), "{wrong}");
        }
    }
}
