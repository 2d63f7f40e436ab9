//! Passwords: hashed with argon2id, and written in the PHC string format, as other programs do.
//!
//! ```text
//!   $argon2id$v=19$m=19456,t=2,p=1$<salt, base64>$<hash, base64>
//! ```
//!
//! A check costs what the parameters say: about 50 ms and 19 MiB by default. Parameters beyond the limits are refused when the
//! text is read, so a file of users cannot ask for all memory.

use argon2::{Algorithm, Argon2, Block, Params, Version};
use data_encoding::BASE64_NOPAD;
use peers::Secret;
use subtle::ConstantTimeEq;
use zeroize::Zeroize;

/// The memory of a check by default, in KiB.
const MEMORY_KIB: u32 = 19_456;

/// The passes over the memory by default.
const PASSES: u32 = 2;

/// The least memory of a check, in KiB. Less is cheap to guess.
const MIN_MEMORY_KIB: u32 = 8_192;

/// The most memory of a check, in KiB. The pool of a broker needs as much for each of its threads.
pub const MAX_MEMORY_KIB: u32 = 65_536;

/// The most passes over the memory.
const MAX_PASSES: u32 = 8;

/// The most lanes. Lanes run one after the other here.
const MAX_LANES: u32 = 4;

const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = 32;

/// The longest text of a hash in bytes.
const MAX_TEXT_BYTES: usize = 256;

/// A password cannot be hashed, or a text is no hash of a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PasswordError {
    /// The text is no PHC string of argon2id. Its author is at fault.
    #[error("it is not written $argon2id$v=19$m=…,t=…,p=…$SALT$HASH, as 'rbmq passwd' does")]
    Form,
    /// A parameter is out of its range. The author of the text is at fault.
    #[error("{name} = {value}: it must be {least} to {most}")]
    Parameter {
        /// The parameter: m, t or p.
        name: &'static str,
        /// Its value.
        value: u32,
        /// The least value.
        least: u32,
        /// The largest value.
        most: u32,
    },
    /// The system has no random numbers or no memory.
    #[error("the password cannot be hashed: {0}")]
    System(String),
}

/// The hash of a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PasswordHash {
    params: Params,
    salt: Vec<u8>,
    hash: Vec<u8>,
}

impl PasswordHash {
    /// Hashes a password with a random salt.
    ///
    /// ```
    /// use access::PasswordHash;
    /// use peers::Secret;
    /// let hash = PasswordHash::of(&Secret::from("hunter2".to_owned()))?;
    /// let read: PasswordHash = hash.to_string().parse()?;
    /// assert!(read.verify(&Secret::from("hunter2".to_owned())));
    /// assert!(!read.verify(&Secret::from("hunter3".to_owned())));
    /// # Ok::<(), access::PasswordError>(())
    /// ```
    ///
    /// # Errors
    /// The system has no random numbers or no memory.
    pub fn of(password: &Secret) -> Result<Self, PasswordError> {
        let mut salt = vec![0; SALT_BYTES];
        getrandom::fill(&mut salt).map_err(|error| PasswordError::System(error.to_string()))?;
        let params = Params::new(MEMORY_KIB, PASSES, 1, Some(HASH_BYTES));
        let params = params.map_err(|error| PasswordError::System(error.to_string()))?;
        let mut of = Self { params, salt, hash: vec![0; HASH_BYTES] };
        of.hash = of.compute(password)?;
        Ok(of)
    }

    /// A hash that costs as much as this one and that no password has, for users who do not exist.
    pub(crate) fn decoy(&self) -> Self {
        Self { params: self.params.clone(), salt: vec![0; SALT_BYTES], hash: Vec::new() }
    }

    /// A hash with the default parameters that no password has.
    pub(crate) fn default_decoy() -> Self {
        let params = Params::new(MEMORY_KIB, PASSES, 1, Some(HASH_BYTES)).expect("the defaults are valid");
        Self { params, salt: vec![0; SALT_BYTES], hash: Vec::new() }
    }

    /// Whether this is the password. Takes the time that the parameters say, on the calling thread.
    pub fn verify(&self, password: &Secret) -> bool {
        let Ok(mut hash) = self.compute(password) else { return false };
        let same = bool::from(hash.ct_eq(&self.hash));
        hash.zeroize();
        same
    }

    /// The relative cost of a check.
    pub(crate) fn cost(&self) -> u64 {
        u64::from(self.params.m_cost()) * u64::from(self.params.t_cost())
    }

    fn compute(&self, password: &Secret) -> Result<Vec<u8>, PasswordError> {
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, self.params.clone());
        let mut hash = vec![0; self.params.output_len().unwrap_or(HASH_BYTES)];
        let mut memory = vec![Block::default(); self.params.block_count()];
        let (password, salt) = (password.expose().as_bytes(), &self.salt);
        let computed = argon2.hash_password_into_with_memory(password, salt, &mut hash, &mut memory);
        // From its last blocks the hash could be computed.
        memory.iter_mut().for_each(Zeroize::zeroize);
        computed.map_err(|error| PasswordError::System(error.to_string()))?;
        Ok(hash)
    }
}

impl std::fmt::Display for PasswordHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (m, t, p) = (self.params.m_cost(), self.params.t_cost(), self.params.p_cost());
        let (salt, hash) = (BASE64_NOPAD.encode(&self.salt), BASE64_NOPAD.encode(&self.hash));
        write!(f, "$argon2id$v=19$m={m},t={t},p={p}${salt}${hash}")
    }
}

impl std::str::FromStr for PasswordHash {
    type Err = PasswordError;

    fn from_str(text: &str) -> Result<Self, PasswordError> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(PasswordError::Form);
        }
        let parts: Vec<&str> = text.split('$').collect();
        let ["", "argon2id", "v=19", costs, salt, hash] = parts[..] else { return Err(PasswordError::Form) };
        let decode = |text: &str, sizes: std::ops::RangeInclusive<usize>| {
            let bytes = BASE64_NOPAD.decode(text.as_bytes()).map_err(|_| PasswordError::Form)?;
            if sizes.contains(&bytes.len()) { Ok(bytes) } else { Err(PasswordError::Form) }
        };
        let (salt, hash) = (decode(salt, 8..=64)?, decode(hash, 16..=64)?);
        let params = params(costs, hash.len())?;
        Ok(Self { params, salt, hash })
    }
}

fn params(costs: &str, hash_bytes: usize) -> Result<Params, PasswordError> {
    let costs: Vec<&str> = costs.split(',').collect();
    let [m, t, p] = costs[..] else { return Err(PasswordError::Form) };
    let number = |text: &str, name: &'static str, least: u32, most: u32| {
        let digits = text.strip_prefix(name).and_then(|rest| rest.strip_prefix('='));
        let digits = digits.filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
        let value: u32 = digits.and_then(|digits| digits.parse().ok()).ok_or(PasswordError::Form)?;
        match (least..=most).contains(&value) {
            true => Ok(value),
            false => Err(PasswordError::Parameter { name, value, least, most }),
        }
    };
    let (m, t) = (number(m, "m", MIN_MEMORY_KIB, MAX_MEMORY_KIB)?, number(t, "t", 1, MAX_PASSES)?);
    let p = number(p, "p", 1, MAX_LANES)?;
    Params::new(m, t, p, Some(hash_bytes)).map_err(|error| PasswordError::System(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret {
        Secret::from(text.to_owned())
    }

    #[test]
    fn a_hash_of_another_program_is_verified() {
        // printf '%s' pass | argon2 somesalt12345678 -id -m 13 -t 1 -p 1 -l 32
        let hash = Argon2::new(
            Algorithm::Argon2id,
            Version::V0x13,
            Params::new(8192, 1, 1, Some(32)).expect("valid"),
        );
        let mut expected = [0; 32];
        hash.hash_password_into(b"pass", b"somesalt12345678", &mut expected).unwrap();
        let text = format!(
            "$argon2id$v=19$m=8192,t=1,p=1${}${}",
            BASE64_NOPAD.encode(b"somesalt12345678"),
            BASE64_NOPAD.encode(&expected)
        );
        let hash: PasswordHash = text.parse().unwrap();
        assert_eq!(hash.to_string(), text);
        assert!(hash.verify(&secret("pass")));
        for wrong in ["", "Pass", "pass ", "pas"] {
            assert!(!hash.verify(&secret(wrong)));
        }
        assert!(!hash.decoy().verify(&secret("pass")));
    }

    #[test]
    fn no_text_asks_for_more_than_the_limits() {
        let parse = |costs: &str| {
            format!("$argon2id$v=19${costs}$c29tZXNhbHQ$c29tZWhhc2hzb21laGFzaA").parse::<PasswordHash>()
        };
        parse("m=65536,t=8,p=4").unwrap();
        parse("m=8192,t=1,p=1").unwrap();
        let message = parse("m=4194304,t=1,p=1").unwrap_err().to_string();
        assert_eq!(message, "m = 4194304: it must be 8192 to 65536");
        for wrong in ["m=8191,t=1,p=1", "m=65536,t=9,p=1", "m=65536,t=0,p=1", "m=65536,t=1,p=5"] {
            assert!(matches!(parse(wrong), Err(PasswordError::Parameter { .. })), "{wrong}");
        }
        for wrong in
            ["m=+8192,t=1,p=1", "t=1,m=8192,p=1", "m=8192,t=1", "m=99999999999,t=1,p=1", "", "m=,t=,p="]
        {
            assert_eq!(parse(wrong), Err(PasswordError::Form), "{wrong}");
        }
        for wrong in [
            "",
            "secret",
            "$argon2i$v=19$m=8192,t=1,p=1$c29tZXNhbHQ$c29tZWhhc2hzb21laGFzaA",
            "$argon2id$v=16$m=8192,t=1,p=1$c29tZXNhbHQ$c29tZWhhc2hzb21laGFzaA",
            "$argon2id$v=19$m=8192,t=1,p=1$c29tZXNhbHQ$",
            "$argon2id$v=19$m=8192,t=1,p=1$c29tZXNhbHQ$c29tZWhhc2hzb21laGFzaA$",
            "$2y$05$c4WoMPo3SXsafkva.HHa6uXQZWr7oboPiC2bT/r7q1BB8I2s0BRqC",
        ] {
            assert_eq!(wrong.parse::<PasswordHash>(), Err(PasswordError::Form), "{wrong}");
        }
    }
}
