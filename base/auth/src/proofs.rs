//! The memory of passwords that were right a short time ago, so that clients that connect again soon need no new check.
//!
//! A proof is a keyed hash (HMAC-SHA-256) of the name, the password and the stored hash. The key is a random number of this
//! process and is never written anywhere. So the broker keeps no password, and no fast hash of a password that is useful without the
//! key. A changed password has another proof, and a proof expires after a short time. An attacker who can read the memory of the
//! process could guess fast while proofs are valid, but can also read the passwords of arriving clients there.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::token::NoRandomNumbers;

/// The most proofs. A proof costs about 150 bytes.
const MAX_PROOFS: usize = 65_536;

/// The block of SHA-256 in bytes.
const BLOCK_BYTES: usize = 64;

/// Shows that a password was right.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Proof([u8; 32]);

/// A random number of this process.
pub(crate) struct ProofKey(Zeroizing<[u8; BLOCK_BYTES]>);

impl ProofKey {
    pub(crate) fn new() -> Result<Self, NoRandomNumbers> {
        let mut key = Zeroizing::new([0; BLOCK_BYTES]);
        getrandom::fill(&mut *key).map_err(|error| NoRandomNumbers(error.to_string()))?;
        Ok(Self(key))
    }

    /// The keyed hash of some texts. Each counts with its length, so that no two lists of texts have the same bytes.
    pub(crate) fn proof(&self, texts: &[&str]) -> Proof {
        let lengths: Vec<[u8; 8]> = texts.iter().map(|text| (text.len() as u64).to_le_bytes()).collect();
        let parts = texts.iter().zip(&lengths).flat_map(|(text, length)| [&length[..], text.as_bytes()]);
        Proof(self.hmac(parts))
    }

    /// HMAC-SHA-256 (RFC 2104).
    fn hmac<'a>(&self, parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
        let padded = |pad: u8| {
            let mut block = Zeroizing::new(*self.0);
            block.iter_mut().for_each(|byte| *byte ^= pad);
            Sha256::new().chain_update(*block)
        };
        let inner = parts.into_iter().fold(padded(0x36), |hash, part| hash.chain_update(part));
        padded(0x5c).chain_update(inner.finalize()).finalize().into()
    }
}

/// The proofs that are valid.
pub(crate) struct Proofs {
    lifetime: Duration,
    ends: HashMap<Proof, Instant>,
    by_end: BTreeSet<(Instant, Proof)>,
}

impl Proofs {
    /// An empty memory. With a lifetime of zero it stays empty.
    pub(crate) fn new(lifetime: Duration) -> Self {
        Self { lifetime, ends: HashMap::new(), by_end: BTreeSet::new() }
    }

    /// Sets the lifetime of later proofs. Zero removes all proofs.
    pub(crate) fn set_lifetime(&mut self, lifetime: Duration) {
        self.lifetime = lifetime;
        if lifetime.is_zero() {
            (self.ends, self.by_end) = Default::default();
        }
    }

    pub(crate) fn contains(&self, proof: Proof, now: Instant) -> bool {
        self.ends.get(&proof).is_some_and(|end| now < *end)
    }

    /// Remembers a proof for the lifetime from now on.
    pub(crate) fn insert(&mut self, proof: Proof, now: Instant) {
        while let Some((end, old)) = self.by_end.first().copied()
            && (end <= now || self.ends.len() >= MAX_PROOFS)
        {
            self.by_end.pop_first();
            self.ends.remove(&old);
        }
        if self.lifetime.is_zero() {
            return;
        }
        let end = now + self.lifetime;
        if let Some(before) = self.ends.insert(proof, end) {
            self.by_end.remove(&(before, proof));
        }
        self.by_end.insert((end, proof));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proof_is_an_hmac() {
        // RFC 4231, test case 2, with the key padded to a block, which does not change the result.
        let mut key = [0; BLOCK_BYTES];
        key[..4].copy_from_slice(b"Jefe");
        let key = ProofKey(Zeroizing::new(key));
        let hex = data_encoding::HEXLOWER.encode(&key.hmac([&b"what do ya want for nothing?"[..]]));
        assert_eq!(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        assert!(key.proof(&["ab", "c"]) != key.proof(&["a", "bc"]));
        assert!(key.proof(&["ab", "c"]) == key.proof(&["ab", "c"]));
        assert!(key.proof(&["ab", "c"]) != ProofKey::new().unwrap().proof(&["ab", "c"]));
    }

    #[test]
    fn a_proof_ends_and_there_are_not_too_many() {
        let (key, now) = (ProofKey::new().unwrap(), Instant::now());
        let proof = |n: usize| key.proof(&[&n.to_string()]);
        let second = Duration::from_secs(1);
        let mut proofs = Proofs::new(10 * second);
        proofs.insert(proof(1), now);
        assert!(proofs.contains(proof(1), now + 9 * second) && !proofs.contains(proof(2), now));
        assert!(!proofs.contains(proof(1), now + 10 * second));
        proofs.insert(proof(1), now + 5 * second);
        assert!(proofs.contains(proof(1), now + 14 * second));
        for n in 0..MAX_PROOFS + 10 {
            proofs.insert(proof(n), now + 6 * second);
        }
        assert_eq!((proofs.ends.len(), proofs.by_end.len()), (MAX_PROOFS, MAX_PROOFS));
        proofs.insert(proof(0), now + 30 * second);
        assert_eq!((proofs.ends.len(), proofs.by_end.len()), (1, 1));
        proofs.set_lifetime(Duration::ZERO);
        proofs.insert(proof(1), now + 30 * second);
        assert!(proofs.ends.is_empty());
    }
}
