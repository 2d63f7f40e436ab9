//! Silence of AAC, for a track whose sound does not come.
//!
//! A frame without spectral lines (`max_sfb` is 0) has nothing but the fields that cannot be left out, for each element of the channels.

use bytes::Bytes;

use super::aac::layout;
use crate::unit::{AudioCodec, AudioConfig};

/// `ID_SCE`, `ID_CPE`, `ID_LFE` and `ID_END` of a raw data block.
const SINGLE: u32 = 0;
const PAIR: u32 = 1;
const LOW: u32 = 3;
const END: u32 = 7;

#[derive(Default)]
struct BitWriter {
    bytes: Vec<u8>,
    bits: usize,
}

impl BitWriter {
    fn put(&mut self, value: u32, width: usize) {
        for at in (0..width).rev() {
            if self.bits.is_multiple_of(8) {
                self.bytes.push(0);
            }
            if let Some(last) = self.bytes.last_mut() {
                *last |= ((value >> at & 1) as u8) << (7 - self.bits % 8);
            }
            self.bits += 1;
        }
    }

    /// A reserved bit, one long window of the usual shape, no band, and no prediction.
    fn window(&mut self) {
        self.put(0, 1 + 2 + 1 + 6 + 1);
    }

    /// The gain, and no pulses, noise shaping or gain control.
    fn channel(&mut self, is_alone: bool) {
        self.put(0, 8);
        if is_alone {
            self.window();
        }
        self.put(0, 3);
    }
}

/// A frame of silence. `None`: there is none for this codec, or its channels are not known.
pub(crate) fn silence(config: &AudioConfig) -> Option<Bytes> {
    if config.codec != AudioCodec::Aac {
        return None;
    }
    let elements: &[u32] = match layout(&config.record)? {
        1 => &[SINGLE],
        2 => &[PAIR],
        3 => &[SINGLE, PAIR],
        4 => &[SINGLE, PAIR, SINGLE],
        5 => &[SINGLE, PAIR, PAIR],
        6 => &[SINGLE, PAIR, PAIR, LOW],
        7 => &[SINGLE, PAIR, PAIR, PAIR, LOW],
        _ => return None,
    };
    let mut to = BitWriter::default();
    for (at, &element) in elements.iter().enumerate() {
        // Elements of one kind are told apart by a number.
        let tag = elements[..at].iter().filter(|before| **before == element).count() as u32;
        to.put(element, 3);
        to.put(tag, 4);
        if element == PAIR {
            // One window for both channels, and no middle and side.
            to.put(1, 1);
            to.window();
            to.put(0, 2);
            to.channel(false);
            to.channel(false);
        } else {
            to.channel(true);
        }
    }
    to.put(END, 3);
    Some(to.bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::aac;

    fn of(record: &'static [u8]) -> Option<Bytes> {
        silence(&aac::from_record(Bytes::from_static(record)).unwrap())
    }

    #[test]
    fn one_and_two_channels_take_four_and_six_bytes() {
        // 48 kHz, AAC-LC; and 44.1 kHz.
        assert_eq!(of(&[0x11, 0x88]).unwrap()[..], [0, 0, 0, 7]);
        assert_eq!(of(&[0x12, 0x10]).unwrap()[..], [0x21, 0, 0, 0, 0, 0x1C]);
        assert!(of(&[0x11, 0xB0]).unwrap().len() < 32, "six channels");
        // The channels are in the program configuration that follows.
        assert_eq!(of(&[0x11, 0x80]), None);
    }
}
