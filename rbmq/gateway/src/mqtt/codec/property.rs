//! Properties of MQTT 5.

use super::error::DecodeError;
use super::read::Reader;
use super::write::{put_binary, put_varint};

/// Most user properties of a packet. Each costs the receivers memory and time, and a packet of 64 KiB could hold 13,000.
pub const MAX_USER_PROPERTIES: usize = 1000;

/// A packet, or the part of one, that has properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// CONNECT.
    Connect,
    /// The will in a CONNECT.
    Will,
    /// CONNACK.
    Connack,
    /// PUBLISH.
    Publish,
    /// PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK and UNSUBACK.
    Ack,
    /// SUBSCRIBE.
    Subscribe,
    /// UNSUBSCRIBE.
    Unsubscribe,
    /// DISCONNECT.
    Disconnect,
    /// AUTH.
    Auth,
}

macro_rules! properties {
    ($($(#[$doc:meta])* $name:ident($($kind:ty),+) = $id:literal, $read:ident, [$($place:ident),+];)+) => {
        /// A property.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Property<'a> {
            $($(#[$doc])* $name($($kind),+),)+
        }

        impl<'a> Property<'a> {
            /// Its number.
            pub fn id(&self) -> u8 {
                match self { $(Self::$name(..) => $id,)+ }
            }

            fn read(id: u32, from: &mut Reader<'a>) -> Result<Self, DecodeError> {
                match id {
                    $($id => Value::$read(from).map(|value| properties!(@make $name, $read, value)),)+
                    _ => Err(DecodeError::Malformed("a property that does not exist")),
                }
            }

            /// Whether the packet may have it.
            pub fn may_be_in(&self, place: Place) -> bool {
                match self { $(Self::$name(..) => matches!(place, $(Place::$place)|+),)+ }
            }
        }
    };
    (@make $name:ident, pair, $value:ident) => { Self::$name($value.0, $value.1) };
    (@make $name:ident, $read:ident, $value:ident) => { Self::$name($value) };
}

/// Reads the value of a property.
struct Value;

impl Value {
    fn flag(from: &mut Reader<'_>) -> Result<bool, DecodeError> {
        from.flag()
    }

    fn two(from: &mut Reader<'_>) -> Result<u16, DecodeError> {
        from.u16()
    }

    fn four(from: &mut Reader<'_>) -> Result<u32, DecodeError> {
        from.u32()
    }

    fn text<'a>(from: &mut Reader<'a>) -> Result<&'a str, DecodeError> {
        from.text()
    }

    fn binary<'a>(from: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
        from.binary()
    }

    fn pair<'a>(from: &mut Reader<'a>) -> Result<(&'a str, &'a str), DecodeError> {
        Ok((from.text()?, from.text()?))
    }

    fn positive_two(from: &mut Reader<'_>) -> Result<u16, DecodeError> {
        match from.u16()? {
            0 => Err(DecodeError::Protocol("a property that must not be 0 is 0")),
            value => Ok(value),
        }
    }

    fn positive_four(from: &mut Reader<'_>) -> Result<u32, DecodeError> {
        match from.u32()? {
            0 => Err(DecodeError::Protocol("a property that must not be 0 is 0")),
            value => Ok(value),
        }
    }

    fn positive_varint(from: &mut Reader<'_>) -> Result<u32, DecodeError> {
        match from.varint()? {
            0 => Err(DecodeError::Protocol("the subscription id 0")),
            value => Ok(value),
        }
    }
}

properties! {
    /// The payload is UTF-8.
    PayloadIsText(bool) = 0x01, flag, [Publish, Will];
    /// Seconds until the message is worthless.
    MessageExpiry(u32) = 0x02, four, [Publish, Will];
    /// What the payload is.
    ContentType(&'a str) = 0x03, text, [Publish, Will];
    /// The topic where an answer is expected.
    ResponseTopic(&'a str) = 0x08, text, [Publish, Will];
    /// The bytes that an answer repeats.
    CorrelationData(&'a [u8]) = 0x09, binary, [Publish, Will];
    /// The number that a subscriber gave its subscription.
    SubscriptionId(u32) = 0x0B, positive_varint, [Publish, Subscribe];
    /// Seconds that a session lives without a connection; `u32::MAX`: it does not end.
    SessionExpiry(u32) = 0x11, four, [Connect, Connack, Disconnect];
    /// The client id that the server chose.
    AssignedClientId(&'a str) = 0x12, text, [Connack];
    /// The keep alive that the server wants, in seconds.
    ServerKeepAlive(u16) = 0x13, two, [Connack];
    /// The method of an authentication in several steps.
    AuthMethod(&'a str) = 0x15, text, [Connect, Connack, Auth];
    /// Data of the method.
    AuthData(&'a [u8]) = 0x16, binary, [Connect, Connack, Auth];
    /// Whether the client wants reason strings.
    RequestProblem(bool) = 0x17, flag, [Connect];
    /// Seconds between the end of a connection and its will.
    WillDelay(u32) = 0x18, four, [Will];
    /// Whether the client wants response information.
    RequestResponse(bool) = 0x19, flag, [Connect];
    /// A prefix for response topics.
    ResponseInformation(&'a str) = 0x1A, text, [Connack];
    /// Another server.
    ServerReference(&'a str) = 0x1C, text, [Connack, Disconnect];
    /// What happened, for people.
    ReasonString(&'a str) = 0x1F, text, [Connack, Ack, Disconnect, Auth];
    /// Most messages of QoS 1 and 2 without acknowledgement.
    ReceiveMaximum(u16) = 0x21, positive_two, [Connect, Connack];
    /// The highest topic alias.
    TopicAliasMaximum(u16) = 0x22, two, [Connect, Connack];
    /// A number that stands for the topic.
    TopicAlias(u16) = 0x23, two, [Publish];
    /// The highest QoS if it is not 2: false is 0, true is 1.
    MaximumQos(bool) = 0x24, flag, [Connack];
    /// Whether there are retained messages.
    RetainAvailable(bool) = 0x25, flag, [Connack];
    /// A name and a value of the application.
    User(&'a str, &'a str) = 0x26, pair, [Connect, Will, Connack, Publish, Ack, Subscribe, Unsubscribe, Disconnect, Auth];
    /// The largest packet.
    MaximumPacketSize(u32) = 0x27, positive_four, [Connect, Connack];
    /// Whether filters may have wildcards.
    WildcardAvailable(bool) = 0x28, flag, [Connack];
    /// Whether subscriptions may have numbers.
    SubscriptionIdAvailable(bool) = 0x29, flag, [Connack];
    /// Whether there are shared subscriptions.
    SharedAvailable(bool) = 0x2A, flag, [Connack];
}

impl Property<'_> {
    /// Appends the property.
    pub fn put(&self, to: &mut Vec<u8>) {
        to.push(self.id());
        match *self {
            Self::PayloadIsText(flag)
            | Self::RequestProblem(flag)
            | Self::RequestResponse(flag)
            | Self::MaximumQos(flag)
            | Self::RetainAvailable(flag)
            | Self::WildcardAvailable(flag)
            | Self::SubscriptionIdAvailable(flag)
            | Self::SharedAvailable(flag) => to.push(flag.into()),
            Self::ServerKeepAlive(value)
            | Self::ReceiveMaximum(value)
            | Self::TopicAliasMaximum(value)
            | Self::TopicAlias(value) => to.extend_from_slice(&value.to_be_bytes()),
            Self::MessageExpiry(value)
            | Self::SessionExpiry(value)
            | Self::WillDelay(value)
            | Self::MaximumPacketSize(value) => to.extend_from_slice(&value.to_be_bytes()),
            Self::SubscriptionId(value) => put_varint(to, value),
            Self::ContentType(text)
            | Self::ResponseTopic(text)
            | Self::AssignedClientId(text)
            | Self::AuthMethod(text)
            | Self::ResponseInformation(text)
            | Self::ServerReference(text)
            | Self::ReasonString(text) => put_binary(to, text.as_bytes()),
            Self::CorrelationData(bytes) | Self::AuthData(bytes) => put_binary(to, bytes),
            Self::User(key, value) => {
                put_binary(to, key.as_bytes());
                put_binary(to, value.as_bytes());
            }
        }
    }
}

/// The properties of a packet, all checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Properties<'a>(pub(super) &'a [u8]);

impl<'a> Properties<'a> {
    /// Properties that were written with [`Property::put`].
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The properties, in order.
    pub fn iter(&self) -> impl Iterator<Item = Property<'a>> + use<'a> {
        let mut rest = Reader::new(self.0);
        // They were checked: an error is their end.
        std::iter::from_fn(move || rest.varint().and_then(|id| Property::read(id, &mut rest)).ok())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn read(from: &mut Reader<'a>, place: Place) -> Result<Self, DecodeError> {
        let len = from.varint()?;
        let bytes = from.take(len as usize)?;
        let (mut rest, mut seen, mut users) = (Reader::new(bytes), 0_u64, 0);
        while !rest.is_empty() {
            let id = rest.varint()?;
            let property = Property::read(id, &mut rest)?;
            if !property.may_be_in(place) {
                return Err(DecodeError::Protocol("a property that this packet cannot have"));
            }
            match property {
                Property::User(..) => users += 1,
                // Several match one message.
                Property::SubscriptionId(_) if place == Place::Publish => users += 1,
                _ if seen & 1 << property.id() != 0 => return Err(DecodeError::Protocol("a property twice")),
                _ => seen |= 1 << property.id(),
            }
            if users > MAX_USER_PROPERTIES {
                return Err(DecodeError::TooMany("user properties"));
            }
        }
        if seen & 1 << 0x16 != 0 && seen & 1 << 0x15 == 0 {
            return Err(DecodeError::Protocol("data of an authentication without its method"));
        }
        Ok(Self(bytes))
    }
}
