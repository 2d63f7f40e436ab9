//! Sizes of datagrams, and numbers in them.

/// The largest payload of a UDP datagram that an Ethernet frame of 1,500 bytes carries over IPv4.
pub const MTU_PAYLOAD_BYTES: usize = 1472;
/// The bytes of a datagram that every network with IPv6 takes, where no router cuts a longer one into fragments.
pub const IPV6_PAYLOAD_BYTES: usize = 1280 - 48;

/// The largest payload of a UDP datagram over IPv4.
pub const MAX_PAYLOAD_BYTES: usize = 65_507;

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
