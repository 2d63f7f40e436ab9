//! Records of TLS 1.3 (RFC 8446, 5.2): the keys of one direction, and the records that they seal and open.
//!
//! ```text
//!   type, version, length │ content, encrypted │ type of the content, encrypted │ tag
//!        5 bytes          │  at most 16 KiB    │             1 byte             │ 16 bytes
//! ```

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::ConnectionTrafficSecrets;
use rustls::crypto::cipher::{self, Iv, make_tls13_aad};

/// The longest content of a record.
pub const MAX_PLAIN: usize = 1 << 14;

/// Bytes before the content.
pub const HEADER: usize = 5;

const TAG: usize = 16;

/// The bytes of a record beside its content.
pub const OVERHEAD: usize = HEADER + 1 + TAG;

/// The longest record, without its header (RFC 8446, 5.2).
pub const MAX_SEALED: usize = MAX_PLAIN + 256;

/// The type of a record's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Content {
    /// The end of the connection, or of one direction.
    Alert = 21,
    /// Changes of keys, and tickets.
    Handshake = 22,
    /// Bytes of the application.
    Data = 23,
}

/// Why a connection ends, as its peer is told (RFC 8446, 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Alert {
    /// The sender sends nothing more.
    CloseNotify = 0,
    /// A record that may not come now.
    UnexpectedMessage = 10,
    /// A record that was changed on the way, or is not of this connection.
    BadRecordMac = 20,
    /// A record that is too long.
    RecordOverflow = 22,
    /// A value that is not allowed.
    IllegalParameter = 47,
    /// A message that is cut.
    DecodeError = 50,
    /// No fault of the peer.
    InternalError = 80,
    /// A peer that named no protocol, where it must (RFC 7301).
    NoApplicationProtocol = 120,
}

/// The keys of one direction, and the number of the next record.
pub struct Keys {
    key: LessSafeKey,
    iv: Iv,
    sequence: u64,
}

impl Keys {
    /// Keys that rustls derived, from the record with this number on.
    ///
    /// # Errors
    /// The cipher is none of TLS 1.3.
    pub fn new(sequence: u64, secrets: ConnectionTrafficSecrets) -> Result<Self, rustls::Error> {
        let (algorithm, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&aead::AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&aead::AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&aead::CHACHA20_POLY1305, key, iv),
            _ => return Err(rustls::Error::General("the cipher is unknown".into())),
        };
        let key = UnboundKey::new(algorithm, key.as_ref()).map_err(|_| rustls::Error::EncryptError)?;
        Ok(Self { key: LessSafeKey::new(key), iv, sequence })
    }

    /// The records that were sealed or opened.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Seals a record into `to` and returns its length. The content is read once, and not copied.
    ///
    /// # Errors
    /// The library refused, which it does for records that are too long.
    ///
    /// # Panics
    /// If `to` has less room than the content and [`OVERHEAD`].
    pub fn seal(
        &mut self,
        content: Content,
        plain: &[u8],
        to: &mut [u8],
    ) -> Result<usize, aws_lc_rs::error::Unspecified> {
        let size = plain.len() + 1 + TAG;
        let header = make_tls13_aad(size);
        let (head, rest) = to[..HEADER + size].split_at_mut(HEADER);
        head.copy_from_slice(&header);
        let (sealed, tail) = rest.split_at_mut(plain.len());
        let nonce = self.nonce();
        self.key.seal_out_of_place_scatter(
            nonce,
            Aad::from(header),
            plain,
            sealed,
            &[content as u8],
            tail,
        )?;
        Ok(HEADER + size)
    }

    /// Seals a record of the `size` bytes that lie behind the room for its header in `to`. Returns the length of the record.
    ///
    /// # Errors
    /// The library refused, which it does for records that are too long.
    ///
    /// # Panics
    /// If `to` has less room than the content and [`OVERHEAD`].
    pub fn seal_in_place(
        &mut self,
        content: Content,
        size: usize,
        to: &mut [u8],
    ) -> Result<usize, aws_lc_rs::error::Unspecified> {
        let header = make_tls13_aad(size + 1 + TAG);
        to[..HEADER].copy_from_slice(&header);
        to[HEADER + size] = content as u8;
        let (text, rest) = to[HEADER..].split_at_mut(size + 1);
        let nonce = self.nonce();
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(header), text)?;
        rest[..TAG].copy_from_slice(tag.as_ref());
        Ok(HEADER + size + 1 + TAG)
    }

    /// Opens a record without its header, in place. Returns the type of the content, and the content.
    ///
    /// # Errors
    /// The alert that the peer is owed.
    pub fn open<'a>(&mut self, sealed: &'a mut [u8]) -> Result<(u8, &'a [u8]), Alert> {
        let header = make_tls13_aad(sealed.len());
        let nonce = self.nonce();
        let inner = self.key.open_in_place(nonce, Aad::from(header), sealed);
        let inner = inner.map_err(|_| Alert::BadRecordMac)?;
        if inner.len() > MAX_PLAIN + 1 {
            return Err(Alert::RecordOverflow);
        }
        // Zeros after the type are padding.
        let at = inner.iter().rposition(|byte| *byte != 0).ok_or(Alert::UnexpectedMessage)?;
        Ok((inner[at], &inner[..at]))
    }

    /// The nonce of the next record. A number is used once.
    fn nonce(&mut self) -> Nonce {
        let nonce = cipher::Nonce::new(&self.iv, self.sequence);
        self.sequence += 1;
        Nonce::assume_unique_for_key(nonce.0)
    }
}

#[cfg(test)]
mod tests {
    use rustls::crypto::cipher::AeadKey;

    use super::*;

    fn keys() -> [Keys; 2] {
        let secrets =
            || ConnectionTrafficSecrets::Aes256Gcm { key: AeadKey::from([7; 32]), iv: Iv::from([9; 12]) };
        [Keys::new(3, secrets()).unwrap(), Keys::new(3, secrets()).unwrap()]
    }

    #[test]
    fn what_is_sealed_opens_in_order_and_nothing_else_does() {
        let [mut seal, mut open] = keys();
        let plain: Vec<u8> = (0..MAX_PLAIN).map(|at| at as u8).collect();
        let mut to = vec![0; MAX_PLAIN + OVERHEAD];
        for size in [0, 1, 15, 16, 17, 1000, MAX_PLAIN] {
            assert_eq!(seal.seal(Content::Data, &plain[..size], &mut to).unwrap(), size + OVERHEAD);
            assert_eq!(&to[..HEADER], make_tls13_aad(size + OVERHEAD - HEADER));
            let got = open.open(&mut to[HEADER..size + OVERHEAD]);
            assert_eq!(got, Ok((Content::Data as u8, &plain[..size])), "{size}");
        }
        let size = seal.seal(Content::Alert, &[1, 0], &mut to).unwrap();
        let mut changed = to[HEADER..size].to_vec();
        changed[0] ^= 1;
        assert_eq!(open.open(&mut changed), Err(Alert::BadRecordMac));
        assert_eq!(open.open(&mut to[HEADER..size]), Err(Alert::BadRecordMac), "its number is used");
        assert_eq!(open.open(&mut []), Err(Alert::BadRecordMac));
    }

    #[test]
    fn what_is_sealed_in_place_is_the_same_record() {
        let [mut one, mut other] = keys();
        let plain: Vec<u8> = (0..MAX_PLAIN).map(|at| (at * 7) as u8).collect();
        for size in [0, 1, 16, 1000, MAX_PLAIN] {
            let (mut apart, mut placed) = (vec![0; MAX_PLAIN + OVERHEAD], vec![9; MAX_PLAIN + OVERHEAD]);
            placed[HEADER..HEADER + size].copy_from_slice(&plain[..size]);
            let sealed = one.seal(Content::Data, &plain[..size], &mut apart).unwrap();
            assert_eq!(other.seal_in_place(Content::Data, size, &mut placed).unwrap(), sealed);
            assert_eq!(apart[..sealed], placed[..sealed], "{size}");
        }
    }

    #[test]
    fn padding_is_taken_off_and_a_record_of_padding_is_refused() {
        let [mut seal, mut open] = keys();
        let mut to = vec![0; 100];
        // The last byte of the content stands in for the type, and the type for padding.
        let sealed = |seal: &mut Keys, plain: &[u8], to: &mut [u8]| {
            let (size, header) = (plain.len() + TAG, make_tls13_aad(plain.len() + TAG));
            let (text, tag) = to[..size].split_at_mut(plain.len());
            let nonce = seal.nonce();
            seal.key.seal_out_of_place_scatter(nonce, Aad::from(header), plain, text, &[], tag).unwrap();
            size
        };
        let size = sealed(&mut seal, &[1, 2, 0, 23, 0, 0, 0], &mut to);
        assert_eq!(open.open(&mut to[..size]), Ok((23, &[1, 2, 0][..])));
        let size = sealed(&mut seal, &[0; 8], &mut to);
        assert_eq!(open.open(&mut to[..size]), Err(Alert::UnexpectedMessage));
    }
}
