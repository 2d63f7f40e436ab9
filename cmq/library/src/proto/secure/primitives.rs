//! The primitives of Noise from aws-lc-rs, which the project's TLS uses too: X25519, AES-256-GCM and SHA-256.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use aws_lc_rs::digest::{Context, SHA256};
use snow::Error;
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::CryptoResolver;
use snow::types::{Cipher, Dh, Hash, Random};
use zeroize::Zeroizing;

use crate::wire::secured::TAG_BYTES;

/// The nonce of a number, as Noise defines it for AES-GCM.
pub(crate) fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// A key of AES-256-GCM.
pub(crate) fn aead_key(bytes: &[u8; 32]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, bytes).expect("a key has 32 bytes"))
}

/// Gives Noise its primitives, and random bytes that the caller chose.
pub(crate) struct Primitives {
    /// The secret part of the ephemeral key.
    pub ephemeral: Zeroizing<[u8; 32]>,
}

impl CryptoResolver for Primitives {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Given(self.ephemeral.clone())))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        let dh = X25519Keys { secret: Zeroizing::new([0; 32]), public: [0; 32] };
        matches!(choice, DHChoice::Curve25519).then(|| Box::new(dh) as Box<dyn Dh>)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        matches!(choice, HashChoice::SHA256).then(|| Box::new(Sha256(Context::new(&SHA256))) as Box<dyn Hash>)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        matches!(choice, CipherChoice::AESGCM)
            .then(|| Box::new(AesGcm(aead_key(&[0; 32]))) as Box<dyn Cipher>)
    }
}

/// The bytes of one ephemeral key: each end of a handshake asks once.
struct Given(Zeroizing<[u8; 32]>);

impl Random for Given {
    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Error> {
        if out.len() != self.0.len() {
            return Err(Error::Rng);
        }
        out.copy_from_slice(&*self.0);
        Ok(())
    }
}

struct X25519Keys {
    secret: Zeroizing<[u8; 32]>,
    public: [u8; 32],
}

impl X25519Keys {
    fn private(&self) -> Option<PrivateKey> {
        PrivateKey::from_private_key(&X25519, &*self.secret).ok()
    }

    fn derive(&mut self) {
        let public = self.private().and_then(|key| key.compute_public_key().ok());
        let public = public.and_then(|public| public.as_ref().try_into().ok());
        self.public = public.expect("every 32 bytes are a key of X25519");
    }
}

impl Dh for X25519Keys {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        32
    }

    fn priv_len(&self) -> usize {
        32
    }

    fn set(&mut self, secret: &[u8]) {
        self.secret.copy_from_slice(&secret[..32]);
        self.derive();
    }

    fn generate(&mut self, random: &mut dyn Random) -> Result<(), Error> {
        random.try_fill_bytes(&mut *self.secret)?;
        self.derive();
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        &*self.secret
    }

    /// A key of a small order, with which the result would be no secret, is refused.
    fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let public = UnparsedPublicKey::new(&X25519, &public[..32]);
        agree(&self.private().ok_or(Error::Dh)?, public, Error::Dh, |shared| {
            out[..32].copy_from_slice(shared);
            Ok(())
        })
    }
}

struct Sha256(Context);

impl Hash for Sha256 {
    fn name(&self) -> &'static str {
        "SHA256"
    }

    fn block_len(&self) -> usize {
        64
    }

    fn hash_len(&self) -> usize {
        32
    }

    fn reset(&mut self) {
        self.0 = Context::new(&SHA256);
    }

    fn input(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn result(&mut self, out: &mut [u8]) {
        let context = std::mem::replace(&mut self.0, Context::new(&SHA256));
        out[..32].copy_from_slice(context.finish().as_ref());
    }
}

struct AesGcm(LessSafeKey);

impl Cipher for AesGcm {
    fn name(&self) -> &'static str {
        "AESGCM"
    }

    fn set(&mut self, key: &[u8; 32]) {
        self.0 = aead_key(key);
    }

    fn encrypt(&self, number: u64, authtext: &[u8], plaintext: &[u8], out: &mut [u8]) -> usize {
        let (text, rest) = out.split_at_mut(plaintext.len());
        text.copy_from_slice(plaintext);
        let tag = self.0.seal_in_place_separate_tag(nonce(number), Aad::from(authtext), text);
        rest[..TAG_BYTES].copy_from_slice(tag.expect("a handshake is short").as_ref());
        plaintext.len() + TAG_BYTES
    }

    fn decrypt(
        &self,
        number: u64,
        authtext: &[u8],
        ciphertext: &[u8],
        out: &mut [u8],
    ) -> Result<usize, Error> {
        let length = ciphertext.len().checked_sub(TAG_BYTES).ok_or(Error::Decrypt)?;
        let (text, tag) = ciphertext.split_at(length);
        let opened = self.0.open_separate_gather(
            nonce(number),
            Aad::from(authtext),
            text,
            tag,
            out.get_mut(..length).ok_or(Error::Decrypt)?,
        );
        opened.map(|()| length).map_err(|_| Error::Decrypt)
    }
}
