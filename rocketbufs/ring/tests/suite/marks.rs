//! Consistency marks: written bytes verify, all other bytes fail.

use proptest::prelude::*;
use rocketring::{MARK_HEAD_BYTES, MARK_TAIL_BYTES, MarkError, RingConfig, View, verify, write_marks};

use crate::common::{content, ring, starts};

const MARKS: usize = MARK_HEAD_BYTES + MARK_TAIL_BYTES;

fn marked(at: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; payload.len() + MARKS];
    bytes[MARK_HEAD_BYTES..MARK_HEAD_BYTES + payload.len()].copy_from_slice(payload);
    write_marks(&mut bytes, at);
    bytes
}

/// The bytes in a new ring, from `start` on.
fn view_of(start: u64, bytes: &[u8]) -> View {
    let config = RingConfig { capacity_bytes: 32 << 10, flow_control: false, start, ..RingConfig::default() };
    let ring = ring(config);
    assert_eq!(ring.receiver().unwrap().copy_in(bytes), bytes.len());
    ring.view(start, start + bytes.len() as u64)
}

proptest! {
    #[test]
    fn marked_bytes_verify(start in starts(), len in 0..9000usize, more in 0..50usize) {
        let payload = content(start, len);
        let mut bytes = marked(start, &payload);
        bytes.extend(content(1, more));
        let view = view_of(start, &bytes);
        let found = verify(&view).unwrap();
        prop_assert_eq!((found.offset, found.len, found.total), (MARK_HEAD_BYTES, len, len + MARKS));
        let mut copy = vec![0; found.len];
        view.copy_to(found.offset, &mut copy).unwrap();
        prop_assert_eq!(copy, payload);
    }

    #[test]
    fn a_changed_byte_is_found(start in starts(), len in 0..300usize, at in any::<u64>(), change in 1..=255u8) {
        let mut bytes = marked(start, &content(start, len));
        let at = (at % bytes.len() as u64) as usize;
        bytes[at] ^= change;
        prop_assert!(verify(&view_of(start, &bytes)).is_err(), "byte {} changed by {}", at, change);
    }

    #[test]
    fn any_bytes_do_no_harm(start in starts(), bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(verify(&view_of(start, &bytes)).is_err());
    }

    /// The position is right, so the check reads as many bytes as the size says, bounded by the ring.
    #[test]
    fn any_size_does_no_harm(
        start in starts(),
        size in prop_oneof![any::<u64>(), 0..300u64, u64::MAX - 40..=u64::MAX],
        rest in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let bytes = [&start.to_le_bytes(), &size.to_le_bytes(), &rest[..]].concat();
        prop_assert!(verify(&view_of(start, &bytes)).is_err());
    }
}

#[test]
fn a_part_of_a_delivery_says_how_much_is_missing() {
    let bytes = marked(0, &[5; 100]);
    assert_eq!(verify(&view_of(0, &bytes[..31])), Err(MarkError::Short { need: 32, have: 31 }));
    assert_eq!(verify(&view_of(0, &bytes[..131])), Err(MarkError::Short { need: 132, have: 131 }));
    assert_eq!(verify(&view_of(1, &bytes)), Err(MarkError::Torn { at: 1 }));
}

#[test]
fn the_format_is_as_documented() {
    let bytes = marked(0x0102, b"rocket");
    assert_eq!(bytes[..16], [2, 1, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[22..30], [2, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[30..34], crc32c::crc32c(&bytes[..22]).to_le_bytes());
    assert_eq!(bytes[34..], [0; 4]);
}
