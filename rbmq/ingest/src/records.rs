//! The records of a log: each message behind its length.

use multimqc::functions::RECORD_HEADER_BYTES;
use multimqc::wire::MAX_PAYLOAD_BYTES;

/// The whole records at the beginning of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Whole {
    pub messages: u64,
    pub bytes: usize,
}

/// Counts the whole records at the beginning of `bytes`. None if a length is larger than every datagram: these are no records.
pub(crate) fn whole(bytes: &[u8]) -> Option<Whole> {
    let mut found = Whole { messages: 0, bytes: 0 };
    while let Some(header) = bytes[found.bytes..].first_chunk::<RECORD_HEADER_BYTES>() {
        let length = u32::from_le_bytes(*header) as usize;
        if length > MAX_PAYLOAD_BYTES {
            return None;
        }
        let end = found.bytes + RECORD_HEADER_BYTES + length;
        if end > bytes.len() {
            break;
        }
        found = Whole { messages: found.messages + 1, bytes: end };
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use multimqc::functions::{InputFunction, Record};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn cut_records_are_left(messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20), cut in any::<prop::sample::Index>()) {
            let mut bytes = Vec::new();
            let mut ends = vec![0];
            for message in &messages {
                Record.store(message, &mut bytes);
                ends.push(bytes.len());
            }
            let cut = cut.index(bytes.len() + 1);
            let fit = ends.iter().filter(|end| **end <= cut).count() - 1;
            prop_assert_eq!(whole(&bytes[..cut]), Some(Whole { messages: fit as u64, bytes: ends[fit] }));
        }

        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(found) = whole(&bytes) {
                prop_assert!(found.bytes <= bytes.len());
            }
        }
    }
}
