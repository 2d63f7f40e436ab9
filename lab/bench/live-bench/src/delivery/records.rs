//! Records of TLS 1.3, as short as they can be: for the bare loop, which never changes its keys.

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use commands::Failure;
use rustls::ConnectionTrafficSecrets;
use rustls::crypto::cipher::{self, Iv, make_tls13_aad};

/// The content of a record, and what it takes more.
pub const PLAIN: usize = 16 << 10;
pub const OVERHEAD: usize = 22;

pub struct Sealer {
    key: LessSafeKey,
    iv: Iv,
    sequence: u64,
}

impl Sealer {
    pub fn new(sequence: u64, secrets: ConnectionTrafficSecrets) -> Result<Self, Failure> {
        let (algorithm, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return Err(Failure::Failed("the cipher is unknown".into())),
        };
        Ok(Self { key: LessSafeKey::new(UnboundKey::new(algorithm, key.as_ref())?), iv, sequence })
    }

    /// Seals `bytes` into `to`, and returns the length of the records.
    pub fn seal(&mut self, bytes: &[u8], to: &mut [u8]) -> Result<usize, Failure> {
        let mut at = 0;
        for plain in bytes.chunks(PLAIN) {
            let header = make_tls13_aad(plain.len() + 17);
            to[at..at + 5].copy_from_slice(&header);
            let (sealed, tail) = to[at + 5..at + plain.len() + OVERHEAD].split_at_mut(plain.len());
            let nonce = cipher::Nonce::new(&self.iv, self.sequence);
            self.sequence += 1;
            let nonce = Nonce::assume_unique_for_key(nonce.0);
            self.key.seal_out_of_place_scatter(nonce, Aad::from(header), plain, sealed, &[23], tail)?;
            at += plain.len() + OVERHEAD;
        }
        Ok(at)
    }
}
