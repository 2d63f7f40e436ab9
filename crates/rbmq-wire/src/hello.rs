//! Who connects, and as what.

use rocketbufs::fields::Reader;

use super::DecodeError;

const MAGIC: &[u8; 4] = b"RBMQ";
const VERSION: u8 = 1;

/// Most bytes of a client's name.
pub const MAX_CLIENT_NAME_BYTES: usize = 255;

/// What a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// It sends: its end of the connection is an rOut.
    Publisher,
    /// It receives: its end of the connection is an rIn.
    Subscriber,
    /// It looks at the broker: its end of the connection is an rIn that gets only control messages.
    Observer,
    /// It receives as a subscriber does, and passes on what it receives: another broker, whose identity its `client`
    /// number is.
    Broker,
}

/// First words of a client, in the application's part of the handshake.
///
/// ```
/// use rbmq_wire::{Hello, Role};
/// let hello = Hello { role: Role::Publisher, client: 7, name: "camera".into() };
/// assert_eq!(Hello::decode(&hello.encode()).unwrap(), hello);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// What the client does.
    pub role: Role,
    /// Random number of this publisher or subscriber, the same on every reconnect.
    pub client: u128,
    /// What people call it; shown in logs and tables. At most 255 bytes, cut when encoded; may be empty.
    pub name: String,
}

impl Hello {
    /// The bytes: `"RBMQ"`, version, role, two zero octets, client, length of the name (one octet), the name.
    pub fn encode(&self) -> Vec<u8> {
        let name = &self.name.as_bytes()[..self.name.floor_char_boundary(MAX_CLIENT_NAME_BYTES)];
        let mut bytes = Vec::with_capacity(25 + name.len());
        bytes.extend_from_slice(MAGIC);
        let role = match self.role {
            Role::Publisher => 1,
            Role::Subscriber => 2,
            Role::Observer => 3,
            Role::Broker => 4,
        };
        bytes.extend_from_slice(&[VERSION, role, 0, 0]);
        bytes.extend_from_slice(&self.client.to_le_bytes());
        bytes.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
        bytes.extend_from_slice(name);
        bytes
    }

    /// Reads the bytes of a peer.
    ///
    /// # Errors
    /// What the peer did wrong; its connection should be refused with it.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        if r.take(MAGIC.len()).ok() != Some(MAGIC) {
            return Err(DecodeError::NotRbmq);
        }
        let version = r.u8()?;
        if version != VERSION {
            return Err(DecodeError::Version { theirs: version, ours: VERSION });
        }
        let role = match r.u8()? {
            1 => Role::Publisher,
            2 => Role::Subscriber,
            3 => Role::Observer,
            4 => Role::Broker,
            other => return Err(DecodeError::value("role", other)),
        };
        match r.u16()? {
            0 => {}
            other => return Err(DecodeError::value("reserved field", other)),
        }
        let client = r.u128()?;
        let len = usize::from(r.u8()?);
        let name = r.text(len, "client's name")?.to_owned();
        r.end()?;
        Ok(Self { role, client, name })
    }
}

#[cfg(test)]
mod tests {
    use rocketbufs::fields::FieldError;

    use super::*;

    #[test]
    fn bytes_are_as_documented() {
        let hello = Hello { role: Role::Subscriber, client: 0x0102, name: "ab".into() };
        let bytes = hello.encode();
        assert_eq!(&bytes[..8], b"RBMQ\x01\x02\x00\x00");
        assert_eq!(&bytes[8..24], &0x0102_u128.to_le_bytes());
        assert_eq!(&bytes[24..], b"\x02ab");
    }

    #[test]
    fn says_what_is_wrong() {
        assert_eq!(Hello::decode(b"GET / HTTP/1.1"), Err(DecodeError::NotRbmq));
        assert_eq!(Hello::decode(b""), Err(DecodeError::NotRbmq));
        assert_eq!(Hello::decode(b"RBMQ\x09\x01"), Err(DecodeError::Version { theirs: 9, ours: 1 }));
        assert!(matches!(
            Hello::decode(b"RBMQ\x01\x07"),
            Err(DecodeError::Field(FieldError::Value { field: "role", .. }))
        ));
        let mut long = Hello { role: Role::Publisher, client: 0, name: String::new() }.encode();
        long.push(0);
        assert_eq!(Hello::decode(&long), Err(FieldError::Long { extra: 1 }.into()));
    }

    #[test]
    fn long_names_are_cut_at_a_character() {
        let hello = Hello { role: Role::Publisher, client: 0, name: "é".repeat(200) };
        assert_eq!(Hello::decode(&hello.encode()).unwrap().name, "é".repeat(127));
    }
}
