//! Reason codes of MQTT 5, and return codes of 3.1.1.

/// Success, normal disconnection, granted QoS 0.
pub const SUCCESS: u8 = 0x00;
/// DISCONNECT: the will is to be published.
pub const WITH_WILL: u8 = 0x04;
/// UNSUBACK: there was no such subscription.
pub const NO_SUBSCRIPTION: u8 = 0x11;
/// The reason is not told. In a SUBACK of 3.1.1 the only failure.
pub const UNSPECIFIED: u8 = 0x80;
/// The bytes cannot be parsed.
pub const MALFORMED: u8 = 0x81;
/// A packet that is not allowed here or now.
pub const PROTOCOL: u8 = 0x82;
/// The server does not accept the packet, for a reason of its own.
pub const IMPLEMENTATION: u8 = 0x83;
/// The version of the protocol is not supported.
pub const VERSION: u8 = 0x84;
/// The client id is not acceptable.
pub const CLIENT_ID: u8 = 0x85;
/// User and password are wrong.
pub const CREDENTIALS: u8 = 0x86;
/// There is no right for this.
pub const NOT_AUTHORIZED: u8 = 0x87;
/// The server ends.
pub const SHUTTING_DOWN: u8 = 0x8B;
/// The method of authentication is not supported.
pub const AUTH_METHOD: u8 = 0x8C;
/// Nothing was received for one and a half times the keep alive.
pub const KEEP_ALIVE: u8 = 0x8D;
/// Another connection has the session now.
pub const TAKEN_OVER: u8 = 0x8E;
/// The filter is well formed, and not acceptable.
pub const FILTER_INVALID: u8 = 0x8F;
/// The topic's name is well formed, and not acceptable.
pub const TOPIC_INVALID: u8 = 0x90;
/// The packet id is in use.
pub const ID_IN_USE: u8 = 0x91;
/// The packet id is not known.
pub const ID_UNKNOWN: u8 = 0x92;
/// More messages are unacknowledged than the receive maximum.
pub const RECEIVE_MAXIMUM: u8 = 0x93;
/// The topic alias is 0, above the maximum, or not defined.
pub const ALIAS_INVALID: u8 = 0x94;
/// The packet is larger than the largest.
pub const PACKET_TOO_LARGE: u8 = 0x95;
/// A limit of the server is reached.
pub const QUOTA: u8 = 0x97;
/// Shared subscriptions are not available.
pub const SHARED_UNSUPPORTED: u8 = 0x9E;

/// The return code of a CONNACK of 3.1.1 for a reason code of MQTT 5.
pub fn connack_v311(reason: u8) -> u8 {
    match reason {
        SUCCESS => 0,
        VERSION => 1,
        CLIENT_ID => 2,
        CREDENTIALS => 4,
        NOT_AUTHORIZED => 5,
        _ => 3,
    }
}
