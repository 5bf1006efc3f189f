//! Authentication: trust (on loopback), or the token as a password, proven by SCRAM-SHA-256 (RFC 5802, RFC 7677), so
//! that it never crosses the wire.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::error::{QueryError, sqlstate};

/// Name of the SASL mechanism.
pub(crate) const MECHANISM: &str = "SCRAM-SHA-256";
/// Iterations of the key derivation, PostgreSQL's default.
const ITERATIONS: u32 = 4096;

/// Authentication of PostgreSQL connections.
#[derive(Clone)]
pub enum PgAuth {
    /// Any user without a password, for listeners on loopback.
    Trust,
    /// Any user with the right password.
    Password(ScramKeys),
}

impl PgAuth {
    /// Uses the token as the password of every user. It should be ASCII, because clients normalise other characters.
    ///
    /// # Errors
    /// If the system cannot provide random bytes.
    pub fn password(token: &str) -> std::io::Result<PgAuth> {
        Ok(PgAuth::Password(ScramKeys::new(token)?))
    }
}

impl std::fmt::Debug for PgAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            PgAuth::Trust => "Trust",
            PgAuth::Password(_) => "Password",
        })
    }
}

/// Keys derived from a password: enough to check a proof, but not to make one.
#[derive(Clone)]
pub struct ScramKeys {
    salt: [u8; 16],
    stored_key: [u8; 32],
    server_key: [u8; 32],
}

fn random<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(bytes)
}

/// Returns a random number for a connection's cancel key.
pub(crate) fn random_i32() -> std::io::Result<i32> {
    Ok(i32::from_ne_bytes(random()?))
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    // HMAC accepts keys of any length.
    let mut mac = match Hmac::<Sha256>::new_from_slice(key) {
        Ok(mac) => mac,
        Err(_) => unreachable!("HMAC takes keys of any length"),
    };
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

impl ScramKeys {
    fn new(password: &str) -> std::io::Result<ScramKeys> {
        Ok(Self::with_salt(password, random()?))
    }

    fn with_salt(password: &str, salt: [u8; 16]) -> ScramKeys {
        // Hi() of RFC 5802: PBKDF2 with one block.
        let mut round = hmac(password.as_bytes(), &[&salt, &1u32.to_be_bytes()]);
        let mut salted = round;
        for _ in 1..ITERATIONS {
            round = hmac(password.as_bytes(), &[&round]);
            salted.iter_mut().zip(round).for_each(|(s, r)| *s ^= r);
        }
        let client_key = hmac(&salted, &[b"Client Key"]);
        let server_key = hmac(&salted, &[b"Server Key"]);
        ScramKeys { salt, stored_key: Sha256::digest(client_key).into(), server_key }
    }
}

/// A SCRAM exchange after the server's first message.
pub(crate) struct Exchange {
    keys: ScramKeys,
    /// Client's first message without its header.
    client_first: String,
    /// Client's header, which it must repeat.
    header: String,
    server_first: String,
    nonce: String,
}

fn violation(what: &str) -> QueryError {
    QueryError::new(sqlstate::PROTOCOL_VIOLATION, format!("SCRAM: {what}"))
}

impl Exchange {
    /// Answers the client's first message.
    ///
    /// # Errors
    /// If it is malformed or requests channel binding.
    pub(crate) fn begin(keys: &ScramKeys, message: &[u8]) -> Result<(Exchange, String), QueryError> {
        let nonce: [u8; 18] =
            random().map_err(|e| QueryError::new(sqlstate::INTERNAL_ERROR, format!("no randomness: {e}")))?;
        Self::begin_with(keys, message, &STANDARD.encode(nonce))
    }

    fn begin_with(keys: &ScramKeys, message: &[u8], server_nonce: &str) -> Result<(Exchange, String), QueryError> {
        let message = std::str::from_utf8(message).map_err(|_| violation("a message is not UTF-8"))?;
        // gs2-cbind-flag "," [authzid] "," client-first-message-bare
        let mut commas = message.match_indices(',').map(|(at, _)| at);
        let (Some(_), Some(second)) = (commas.next(), commas.next()) else {
            return Err(violation("the first message has no header"));
        };
        let (header, bare) = message.split_at(second + 1);
        if !(header.starts_with("n,") || header.starts_with("y,")) {
            return Err(violation("channel binding is not offered"));
        }
        let client_nonce = bare
            .split(',')
            .find_map(|field| field.strip_prefix("r="))
            .filter(|nonce| !nonce.is_empty())
            .ok_or_else(|| violation("the first message has no nonce"))?;
        let nonce = format!("{client_nonce}{server_nonce}");
        let server_first = format!("r={nonce},s={},i={ITERATIONS}", STANDARD.encode(keys.salt));
        let exchange = Exchange {
            keys: keys.clone(),
            client_first: bare.to_owned(),
            header: header.to_owned(),
            server_first: server_first.clone(),
            nonce,
        };
        Ok((exchange, server_first))
    }

    /// Checks the client's final message and returns the server's.
    ///
    /// # Errors
    /// If it is malformed, or the proof is wrong for the password.
    pub(crate) fn finish(self, message: &[u8]) -> Result<String, QueryError> {
        let message = std::str::from_utf8(message).map_err(|_| violation("a message is not UTF-8"))?;
        let (without_proof, proof) =
            message.rsplit_once(",p=").ok_or_else(|| violation("the final message has no proof"))?;
        let field = |name: &str| without_proof.split(',').find_map(|field| field.strip_prefix(name));
        if field("c=") != Some(STANDARD.encode(&self.header).as_str()) || field("r=") != Some(self.nonce.as_str()) {
            return Err(violation("the final message does not go with the first"));
        }
        let wrong = || QueryError::new(sqlstate::INVALID_PASSWORD, "password authentication failed");
        let proof: [u8; 32] =
            STANDARD.decode(proof).ok().and_then(|p| p.try_into().ok()).ok_or_else(|| violation("no proof"))?;
        let signed = [
            self.client_first.as_bytes(),
            b",".as_slice(),
            self.server_first.as_bytes(),
            b",",
            without_proof.as_bytes(),
        ];
        let mut client_key = hmac(&self.keys.stored_key, &signed);
        client_key.iter_mut().zip(proof).for_each(|(k, p)| *k ^= p);
        let stored: [u8; 32] = Sha256::digest(client_key).into();
        if !bool::from(stored.ct_eq(&self.keys.stored_key)) {
            return Err(wrong());
        }
        Ok(format!("v={}", STANDARD.encode(hmac(&self.keys.server_key, &signed))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test vector of RFC 7677, section 3.
    #[test]
    fn the_rfc_example_is_accepted_and_a_wrong_proof_is_not() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap().try_into().unwrap();
        let keys = ScramKeys::with_salt("pencil", salt);
        let first = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
        let begin = || Exchange::begin_with(&keys, first, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0").unwrap();
        let (exchange, server_first) = begin();
        assert_eq!(
            server_first,
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        );
        let last = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                    p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert_eq!(exchange.finish(last.as_bytes()).unwrap(), "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
        let wrong = last.replace("dHzb", "dHzc");
        assert_eq!(begin().0.finish(wrong.as_bytes()).unwrap_err().sqlstate, "28P01");
        let replayed = last.replace("r=rOpr", "r=xOpr");
        assert_eq!(begin().0.finish(replayed.as_bytes()).unwrap_err().sqlstate, "08P01");
    }
}
