//! The hello of a client: its role and identity.

use rocketbufs::fields::Reader;

use super::DecodeError;

const MAGIC: &[u8; 4] = b"RBMQ";
const VERSION: u8 = 1;

/// The longest name of a client in bytes.
pub const MAX_CLIENT_NAME_BYTES: usize = 255;

/// The role of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The client sends: its end of the connection is an rOut.
    Publisher,
    /// The client receives: its end of the connection is an rIn.
    Subscriber,
    /// The client observes the broker: its end of the connection is an rIn that gets only control messages.
    Observer,
    /// The client is another broker. It receives as a subscriber does and forwards the data. Its `client` number is the identity
    /// of the broker.
    Broker,
}

/// The first message of a client, in the application's part of the handshake.
///
/// ```
/// use rbmq_wire::{Hello, Role};
/// let hello = Hello { role: Role::Publisher, client: 7, name: "camera".into() };
/// assert_eq!(Hello::decode(&hello.encode()).unwrap(), hello);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The role of the client.
    pub role: Role,
    /// The random number that identifies this client, also after a reconnect.
    pub client: u128,
    /// The name for logs and tables. May be empty. Names of more than 255 bytes are cut when encoded.
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

    /// Decodes the bytes of a peer.
    ///
    /// # Errors
    /// The bytes are not a valid hello. Refuse the connection with the error as the reason.
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
    fn names_the_fault() {
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
