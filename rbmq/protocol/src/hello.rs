//! The hello of a client: its role and identity, and its credentials.
//!
//! Version 1 has no credentials. Version 2 is version 1 with credentials at the end, so a broker that knows no credentials
//! refuses it, and a client never falls back to a hello without them.

use peers::{Credentials, MAX_PASSWORD_BYTES, MAX_TOKEN_BYTES, MAX_USER_BYTES, Secret};
use rocketbufs::fields::{FieldError, Reader};
use zeroize::Zeroizing;

use super::DecodeError;

const MAGIC: &[u8; 4] = b"RBMQ";
const VERSION: u8 = 1;
const VERSION_WITH_CREDENTIALS: u8 = 2;

/// The kinds of credentials.
const PASSWORD: u8 = 1;
const TOKEN: u8 = 2;

/// The longest name of a client in bytes.
pub const MAX_CLIENT_NAME_BYTES: usize = 255;

/// The longest hello: everything but credentials, the name of a user, a token, and their lengths.
const MAX_BYTES: usize = 25 + MAX_CLIENT_NAME_BYTES + 1 + MAX_USER_BYTES + 2 + MAX_TOKEN_BYTES;

const _: () =
    assert!(MAX_PASSWORD_BYTES <= MAX_TOKEN_BYTES && MAX_BYTES <= rocketbufs::proto::MAX_HELLO_BYTES);

/// The role of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The client sends: its end of the connection is an rOut.
    Publisher,
    /// The client receives: its end of the connection is an rIn.
    Subscriber,
    /// The client observes the broker: its end of the connection is an rIn that gets only control messages.
    Observer,
    /// The client is another broker. The broker receives as a subscriber does and forwards the data. Its `client` number is
    /// the identity of the broker.
    Broker,
}

/// The first message of a client, in the application's part of the handshake.
///
/// ```
/// use rbmq_wire::{Credentials, Hello, Role};
/// let hello = Hello { role: Role::Publisher, client: 7, name: "camera".into() };
/// assert_eq!(Hello::decode(&hello.encode()).unwrap(), hello);
///
/// let token = Credentials::token("rbmq_secret".to_owned().into())?;
/// assert_eq!(Hello::decode_with(&hello.encode_with(&token)).unwrap(), (hello, token));
/// # Ok::<(), rbmq_wire::CredentialsError>(())
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
    /// The bytes without credentials: `"RBMQ"`, version, role, two zero octets, client, length of the name (one octet), the name.
    pub fn encode(&self) -> Vec<u8> {
        self.begin(VERSION, 0, 0)
    }

    /// The bytes with credentials: as [`encode`](Self::encode) with the kind of the credentials instead of the first zero octet,
    /// and at the end the name of the user (one octet of length; passwords only) and the secret (two octets of length). Without
    /// credentials they are those of [`encode`](Self::encode). Text beyond the limits is cut.
    ///
    /// The memory is overwritten when it is dropped.
    pub fn encode_with(&self, credentials: &Credentials) -> Zeroizing<Vec<u8>> {
        let (kind, user, secret, max) = match credentials {
            Credentials::None => return Zeroizing::new(self.encode()),
            Credentials::Password { user, password } => (PASSWORD, &**user, password, MAX_PASSWORD_BYTES),
            Credentials::Token(token) => (TOKEN, "", token, MAX_TOKEN_BYTES),
        };
        // A vector that grows would leave a copy of the secret in the memory that it gives back.
        let mut bytes = Zeroizing::new(self.begin(VERSION_WITH_CREDENTIALS, kind, MAX_BYTES));
        if kind == PASSWORD {
            let user = cut(user, MAX_USER_BYTES);
            bytes.push(u8::try_from(user.len()).unwrap_or(u8::MAX));
            bytes.extend_from_slice(user);
        }
        let secret = cut(secret.expose(), max);
        bytes.extend_from_slice(&u16::try_from(secret.len()).unwrap_or(u16::MAX).to_le_bytes());
        bytes.extend_from_slice(secret);
        bytes
    }

    fn begin(&self, version: u8, kind: u8, capacity: usize) -> Vec<u8> {
        let name = cut(&self.name, MAX_CLIENT_NAME_BYTES);
        let mut bytes = Vec::with_capacity(capacity.max(25 + name.len()));
        bytes.extend_from_slice(MAGIC);
        let role = match self.role {
            Role::Publisher => 1,
            Role::Subscriber => 2,
            Role::Observer => 3,
            Role::Broker => 4,
        };
        bytes.extend_from_slice(&[version, role, kind, 0]);
        bytes.extend_from_slice(&self.client.to_le_bytes());
        bytes.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
        bytes.extend_from_slice(name);
        bytes
    }

    /// Decodes the bytes of a peer. Credentials are checked and dropped.
    ///
    /// # Errors
    /// The bytes are not a valid hello. Refuse the connection with the error as the reason.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::decode_with(bytes).map(|(hello, _)| hello)
    }

    /// Decodes the bytes of a peer, with its credentials.
    ///
    /// # Errors
    /// As [`decode`](Self::decode). No error contains a part of the credentials.
    pub fn decode_with(bytes: &[u8]) -> Result<(Self, Credentials), DecodeError> {
        let mut r = Reader::new(bytes);
        if r.take(MAGIC.len()).ok() != Some(MAGIC) {
            return Err(DecodeError::NotRbmq);
        }
        let version = r.u8()?;
        if !(VERSION..=VERSION_WITH_CREDENTIALS).contains(&version) {
            return Err(DecodeError::Version { theirs: version, ours: VERSION_WITH_CREDENTIALS });
        }
        let role = match r.u8()? {
            1 => Role::Publisher,
            2 => Role::Subscriber,
            3 => Role::Observer,
            4 => Role::Broker,
            other => return Err(DecodeError::value("role", other)),
        };
        let kind = r.u8()?;
        if version == VERSION && kind != 0 {
            return Err(DecodeError::value("reserved field", kind));
        }
        match r.u8()? {
            0 => {}
            other => return Err(DecodeError::value("reserved field", other)),
        }
        let client = r.u128()?;
        let len = usize::from(r.u8()?);
        let name = r.text(len, "client's name")?.to_owned();
        let credentials = match version {
            VERSION => Credentials::None,
            _ => credentials(kind, &mut r)?,
        };
        r.end()?;
        Ok((Self { role, client, name }, credentials))
    }
}

fn credentials(kind: u8, r: &mut Reader<'_>) -> Result<Credentials, DecodeError> {
    let user = match kind {
        PASSWORD => {
            let len = usize::from(r.u8()?);
            Some(r.text(length("length of the user's name", len, MAX_USER_BYTES)?, "user's name")?)
        }
        TOKEN => None,
        other => return Err(DecodeError::value("kind of credentials", other)),
    };
    let max = user.map_or(MAX_TOKEN_BYTES, |_| MAX_PASSWORD_BYTES);
    let len = length("length of the credentials", r.u16()?.into(), max)?;
    let secret = Secret::from(r.text(len, "credentials")?.to_owned());
    Ok(match user {
        Some(user) => Credentials::Password { user: user.to_owned(), password: secret },
        None => Credentials::Token(secret),
    })
}

fn length(field: &'static str, len: usize, max: usize) -> Result<usize, FieldError> {
    match (1..=max).contains(&len) {
        true => Ok(len),
        false => Err(FieldError::value(field, len as u64)),
    }
}

/// At most `max` bytes of a text, whole characters.
fn cut(text: &str, max: usize) -> &[u8] {
    &text.as_bytes()[..text.floor_char_boundary(max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_as_documented() {
        let hello = Hello { role: Role::Subscriber, client: 0x0102, name: "ab".into() };
        let bytes = hello.encode();
        assert_eq!(&bytes[..8], b"RBMQ\x01\x02\x00\x00");
        assert_eq!(&bytes[8..24], &0x0102_u128.to_le_bytes());
        assert_eq!(&bytes[24..], b"\x02ab");
        assert_eq!(*hello.encode_with(&Credentials::None), bytes);
    }

    #[test]
    fn bytes_with_credentials_are_as_documented() {
        let hello = Hello { role: Role::Publisher, client: 0x0102, name: "ab".into() };
        let password = Credentials::password("eve", "pass".to_owned().into()).unwrap();
        let bytes = hello.encode_with(&password);
        assert_eq!(&bytes[..8], b"RBMQ\x02\x01\x01\x00");
        assert_eq!(&bytes[24..], b"\x02ab\x03eve\x04\x00pass");
        assert_eq!(Hello::decode_with(&bytes).unwrap(), (hello.clone(), password));
        let token = Credentials::token("tok".to_owned().into()).unwrap();
        let bytes = hello.encode_with(&token);
        assert_eq!(&bytes[..8], b"RBMQ\x02\x01\x02\x00");
        assert_eq!(&bytes[24..], b"\x02ab\x03\x00tok");
        assert_eq!(Hello::decode_with(&bytes).unwrap(), (hello, token));
    }

    #[test]
    fn names_the_fault() {
        assert_eq!(Hello::decode(b"GET / HTTP/1.1"), Err(DecodeError::NotRbmq));
        assert_eq!(Hello::decode(b""), Err(DecodeError::NotRbmq));
        assert_eq!(Hello::decode(b"RBMQ\x09\x01"), Err(DecodeError::Version { theirs: 9, ours: 2 }));
        assert_eq!(Hello::decode(b"RBMQ\x00\x01"), Err(DecodeError::Version { theirs: 0, ours: 2 }));
        let value = |bytes: &[u8]| match Hello::decode(bytes) {
            Err(DecodeError::Field(FieldError::Value { field, .. })) => field,
            other => panic!("{other:?}"),
        };
        assert_eq!(value(b"RBMQ\x01\x07"), "role");
        assert_eq!(value(b"RBMQ\x01\x01\x01\x00"), "reserved field");
        let mut long = Hello { role: Role::Publisher, client: 0, name: String::new() }.encode();
        long.push(0);
        assert_eq!(Hello::decode(&long), Err(FieldError::Long { extra: 1 }.into()));
    }

    #[test]
    fn a_hello_with_credentials_has_one_form() {
        let hello = Hello { role: Role::Publisher, client: 0, name: String::new() };
        let with = |kind: u8, rest: &[u8]| {
            let mut bytes = hello.encode();
            (bytes[4], bytes[6]) = (VERSION_WITH_CREDENTIALS, kind);
            bytes.extend_from_slice(rest);
            Hello::decode_with(&bytes).unwrap_err().to_string()
        };
        assert!(with(0, b"").contains("kind of credentials"));
        assert!(with(3, b"").contains("kind of credentials"));
        assert!(with(TOKEN, b"\x00\x00").contains("length of the credentials"));
        assert!(with(TOKEN, b"\x01\x0c").contains("length of the credentials"));
        assert!(with(PASSWORD, b"\x00\x01\x00a").contains("length of the user's name"));
        assert!(with(PASSWORD, b"\x81").contains("length of the user's name"));
        assert!(with(PASSWORD, b"\x01u\x01\x02").contains("length of the credentials"));
        assert!(with(TOKEN, b"\x01\x00\xff").contains("the credentials is not UTF-8"));
        assert!(with(TOKEN, b"\x02\x00a").contains("too early"));
        assert!(with(TOKEN, b"\x01\x00ab").contains("too many"));
    }

    #[test]
    fn long_names_are_cut_at_a_character() {
        let hello = Hello { role: Role::Publisher, client: 0, name: "é".repeat(200) };
        assert_eq!(Hello::decode(&hello.encode()).unwrap().name, "é".repeat(127));
    }

    #[test]
    fn the_longest_hello_fits_into_the_handshake() {
        let hello = Hello { role: Role::Publisher, client: 0, name: "n".repeat(300) };
        let token = Credentials::token("t".repeat(MAX_TOKEN_BYTES).into()).unwrap();
        assert!(hello.encode_with(&token).len() <= rocketbufs::proto::MAX_HELLO_BYTES);
        assert!(Credentials::token("t".repeat(MAX_TOKEN_BYTES + 1).into()).is_err());
        assert!(Credentials::password("", "p".to_owned().into()).is_err());
        let error = Credentials::password("u", String::new().into()).unwrap_err().to_string();
        assert_eq!(error, "the password has 0 bytes; it must have 1 to 512");
    }
}
