//! Fields of the rows that an observer gets, and how they are encoded.

use rocketbufs::Policy;
use rocketbufs::fields::Reader;

use crate::DecodeError;

/// Most bytes of a name or an address in a row; longer ones are cut when encoded.
const MAX_NAME_BYTES: usize = 255;

/// A row of a list.
pub trait Row: Sized {
    /// Appends the fields.
    fn put(&self, b: &mut Vec<u8>);
    /// Reads the fields.
    fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

pub(super) fn put_name(b: &mut Vec<u8>, text: &str) {
    let text = &text.as_bytes()[..text.floor_char_boundary(MAX_NAME_BYTES)];
    b.push(text.len() as u8);
    b.extend_from_slice(text);
}

pub(super) fn get_name(r: &mut Reader<'_>) -> Result<String, DecodeError> {
    let len = usize::from(r.u8()?);
    Ok(r.text(len, "name")?.to_owned())
}

pub(super) fn put_u32s<const N: usize>(b: &mut Vec<u8>, values: [u32; N]) {
    values.iter().for_each(|value| b.extend_from_slice(&value.to_le_bytes()));
}

pub(super) fn put_u64s<const N: usize>(b: &mut Vec<u8>, values: [u64; N]) {
    values.iter().for_each(|value| b.extend_from_slice(&value.to_le_bytes()));
}

/// Writes flags as one octet, the first flag in the lowest bit.
pub(super) fn put_bits<const N: usize>(b: &mut Vec<u8>, bits: [bool; N]) {
    b.push(bits.iter().enumerate().fold(0, |octet, (n, bit)| octet | (u8::from(*bit) << n)));
}

pub(super) fn get_bits<const N: usize>(r: &mut Reader<'_>) -> Result<[bool; N], DecodeError> {
    let octet = r.u8()?;
    if u32::from(octet) >> N != 0 {
        return Err(DecodeError::value("flags", octet));
    }
    Ok(std::array::from_fn(|n| octet & (1 << n) != 0))
}

pub(super) fn get_policy(r: &mut Reader<'_>) -> Result<Policy, DecodeError> {
    let code = r.u8()?;
    [Policy::Block, Policy::Drop, Policy::Disconnect, Policy::Overwrite]
        .into_iter()
        .find(|known| *known as u8 == code)
        .ok_or(DecodeError::value("policy", code))
}

/// Reads a value only if its flag is set. An absent value takes no bytes.
pub(super) fn optional<T>(
    present: bool,
    get: impl FnOnce() -> Result<T, DecodeError>,
) -> Result<Option<T>, DecodeError> {
    present.then(get).transpose()
}
