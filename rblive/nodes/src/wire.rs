//! The protocol of nodes: the hello of a connection, and messages from the sending to the receiving node.
//!
//! ```text
//!   sender                                   receiver
//!     │── hello: node, proof ──────────────────▶│ (the proof where nodes have a token)
//!     │◀───────────────────────────────── PROOF │ (the answer to it)
//!     │── ANNOUNCE stream, buffer, capacity ───▶│ subscribes to the buffer
//!     │── ANNOUNCE … ──────────────────────────▶│
//!     │── COMPLETE ────────────────────────────▶│ ends the streams that were not announced again
//!     │── WITHDRAW stream ─────────────────────▶│ unsubscribes
//! ```
//!
//! Chunks travel as deliveries of the buffer.

use rocketbufs::Bid;
use rocketbufs::fields::{FieldError, Reader};

use crate::content::{MAX_NAME_BYTES, check_name};
use crate::ids::{NodeId, RsId};

const MAGIC: &[u8; 4] = b"RBLV";
const VERSION: u8 = 1;
const ANNOUNCE: u8 = 1;
const WITHDRAW: u8 = 2;
const COMPLETE: u8 = 3;
const PROOF: u8 = 4;
/// The hello has a proof.
const PROVEN: u8 = 1;
/// The bytes of a nonce and of a proof.
pub const PROOF_BYTES: usize = 32;

/// Why the bytes of a peer are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The peer is no node of RBLive.
    #[error("the peer is no node of RBLive")]
    NotRbLive,
    /// The peer is of another version.
    #[error("the peer speaks version {0}, this node speaks 1: use the same version on all nodes")]
    Version(u8),
    /// The hello has flags that are unknown.
    #[error("the hello has the flags {0}, and this node knows 1: use the same version on all nodes")]
    Flags(u8),
    /// A message is unknown.
    #[error("{0} is no message of RBLive")]
    Message(u8),
    /// The name of a stream is not allowed.
    #[error("a stream has a name that is not allowed")]
    Name,
    /// A field is missing or damaged.
    #[error(transparent)]
    Field(#[from] FieldError),
}

/// The hello of a node that connects: `"RBLV"`, version, flags, the node; with flag 1 the proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The node that connects.
    pub node: NodeId,
    /// The proof that it knows the token of the nodes.
    pub proof: Option<HelloProof>,
}

/// The proof of a hello.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelloProof {
    /// When it was made: seconds since 1970.
    pub time_s: u64,
    /// Random bytes.
    pub nonce: [u8; PROOF_BYTES],
    /// The message authentication code.
    pub mac: [u8; PROOF_BYTES],
}

impl Hello {
    /// The bytes of the hello.
    pub fn encode(&self) -> Vec<u8> {
        let [low, high] = self.node.to_le_bytes();
        let flags = if self.proof.is_some() { PROVEN } else { 0 };
        let mut bytes = [MAGIC.as_slice(), &[VERSION, flags, low, high]].concat();
        if let Some(HelloProof { time_s, nonce, mac }) = &self.proof {
            bytes.extend_from_slice(&time_s.to_le_bytes());
            bytes.extend_from_slice(nonce);
            bytes.extend_from_slice(mac);
        }
        bytes
    }

    /// Decodes the bytes of a peer.
    ///
    /// # Errors
    /// The peer is no node, or is of another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(bytes);
        if reader.take(MAGIC.len()).ok() != Some(MAGIC) {
            return Err(WireError::NotRbLive);
        }
        let version = reader.u8()?;
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        let flags = reader.u8()?;
        if flags & !PROVEN != 0 {
            return Err(WireError::Flags(flags));
        }
        let node = reader.u16()?;
        let proof = match flags {
            0 => None,
            _ => Some(HelloProof {
                time_s: reader.u64()?,
                nonce: proof_bytes(&mut reader)?,
                mac: proof_bytes(&mut reader)?,
            }),
        };
        reader.end()?;
        Ok(Self { node, proof })
    }
}

fn proof_bytes(reader: &mut Reader<'_>) -> Result<[u8; PROOF_BYTES], FieldError> {
    let mut bytes = [0; PROOF_BYTES];
    bytes.copy_from_slice(reader.take(PROOF_BYTES)?);
    Ok(bytes)
}

/// The receiver's answer to the proof of a hello.
pub fn encode_answer(answer: &[u8; PROOF_BYTES]) -> Vec<u8> {
    [&[PROOF][..], answer].concat()
}

/// The answer in a message of a receiver; none if it is another message.
pub fn decode_answer(bytes: &[u8]) -> Option<[u8; PROOF_BYTES]> {
    bytes.strip_prefix(&[PROOF])?.try_into().ok()
}

/// A message of the sending node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// Announces a stream to the receiver.
    Announce(Announce),
    /// Withdraws a stream from the receiver.
    Withdraw(RsId),
    /// All streams of the receiver were announced on this connection.
    Complete,
}

/// A stream for the receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announce {
    /// The stream.
    pub id: RsId,
    /// Its buffer at the sender.
    pub bid: Bid,
    /// The capacity of the buffer in bytes.
    pub capacity: u64,
    /// The name of the stream.
    pub name: String,
}

impl Message {
    /// The bytes of the message.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Announce(announce) => {
                let name = announce.name.as_bytes();
                let mut bytes = vec![ANNOUNCE];
                bytes.extend_from_slice(&announce.id.to_u64().to_le_bytes());
                bytes.extend_from_slice(&announce.bid.to_le_bytes());
                bytes.extend_from_slice(&announce.capacity.to_le_bytes());
                bytes.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
                bytes.extend_from_slice(&name[..name.len().min(MAX_NAME_BYTES)]);
                bytes
            }
            Self::Withdraw(id) => [&[WITHDRAW][..], &id.to_u64().to_le_bytes()].concat(),
            Self::Complete => vec![COMPLETE],
        }
    }

    /// Decodes the bytes of a peer.
    ///
    /// # Errors
    /// The bytes are no message.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(bytes);
        let message = match reader.u8()? {
            ANNOUNCE => {
                let (id, bid) = (RsId::from_u64(reader.u64()?), reader.u32()?);
                let capacity = reader.u64()?;
                let name = std::str::from_utf8(reader.bytes8()?).map_err(|_| WireError::Name)?;
                if !check_name(name) {
                    return Err(WireError::Name);
                }
                Self::Announce(Announce { id, bid, capacity, name: name.to_owned() })
            }
            WITHDRAW => Self::Withdraw(RsId::from_u64(reader.u64()?)),
            COMPLETE => Self::Complete,
            other => return Err(WireError::Message(other)),
        };
        reader.end()?;
        Ok(message)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_message_is_what_was_encoded(id: u64, bid: u32, capacity: u64, name in "[a-z0-9._-]{0,20}[a-z]") {
            let id = RsId::from_u64(id);
            for message in [
                Message::Announce(Announce { id, bid, capacity, name: name.clone() }),
                Message::Withdraw(id),
                Message::Complete,
            ] {
                prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
            }
        }

        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes: Vec<u8>) {
            if let Ok(message) = Message::decode(&bytes) {
                prop_assert_eq!(message.encode(), bytes.clone());
            }
        }

        #[test]
        fn a_hello_is_what_was_encoded(node: u16, proof: Option<(u64, [u8; 32], [u8; 32])>, cut in 0..80_usize) {
            let proof = proof.map(|(time_s, nonce, mac)| HelloProof { time_s, nonce, mac });
            let hello = Hello { node, proof };
            let bytes = hello.encode();
            prop_assert_eq!(Hello::decode(&bytes), Ok(hello));
            if cut < bytes.len() {
                prop_assert!(Hello::decode(&bytes[..cut]).is_err());
            }
        }
    }

    #[test]
    fn a_hello_names_the_node() {
        let plain = Hello { node: 700, proof: None };
        assert_eq!(Hello::decode(b"RBLV\x01\x00\xbc\x02"), Ok(plain));
        assert_eq!(Hello::decode(b"GET / HTTP/1.1"), Err(WireError::NotRbLive));
        assert_eq!(Hello::decode(b"RBLV\x02\x00\x00\x00"), Err(WireError::Version(2)));
        assert_eq!(Hello::decode(b"RBLV\x01\x02\x00\x00"), Err(WireError::Flags(2)));
        assert_eq!(decode_answer(&encode_answer(&[7; PROOF_BYTES])), Some([7; PROOF_BYTES]));
        assert_eq!(decode_answer(&encode_answer(&[7; PROOF_BYTES])[..32]), None);
    }
}
