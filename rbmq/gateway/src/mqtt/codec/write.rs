//! Writing integers and texts of the protocol.

/// The largest number of four bytes of seven bits.
const MAX_VARINT: u32 = (1 << 28) - 1;

/// Appends a number in as few bytes of seven bits as possible.
///
/// # Panics
/// The number has more than 28 bits. The sizes of all packets are bounded far below.
pub(super) fn put_varint(to: &mut Vec<u8>, mut value: u32) {
    assert!(value <= MAX_VARINT);
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// Appends a length of two bytes and the bytes.
///
/// # Panics
/// There are more than 65,535 bytes.
pub(super) fn put_binary(to: &mut Vec<u8>, bytes: &[u8]) {
    let len = u16::try_from(bytes.len()).expect("texts come from fields with a length of two bytes");
    to.extend_from_slice(&len.to_be_bytes());
    to.extend_from_slice(bytes);
}

/// The bytes of a number.
pub(super) fn varint_bytes(value: usize) -> usize {
    match value {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        _ => 4,
    }
}
