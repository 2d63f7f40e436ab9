//! NAL units: split at start codes, joined with lengths.

use bytes::Bytes;

/// The NAL units of a byte stream (annex B).
pub(crate) fn split(stream: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = after_start_code(stream);
    std::iter::from_fn(move || {
        let bytes = rest?;
        let end = start_code(bytes).unwrap_or(bytes.len());
        rest = after_start_code(&bytes[end..]);
        let mut nal = &bytes[..end];
        while let [front @ .., 0] = nal {
            nal = front;
        }
        Some(nal)
    })
    .filter(|nal| !nal.is_empty())
}

/// Where the next 00 00 01 is.
fn start_code(bytes: &[u8]) -> Option<usize> {
    let mut at = 2;
    while at < bytes.len() {
        match bytes[at] {
            1 if bytes[at - 1] == 0 && bytes[at - 2] == 0 => return Some(at - 2),
            0 => at += 1,
            _ => at += 3,
        }
        // After a byte above 1, no start code ends within the next two bytes; a 1 that ends none is passed in the same way.
    }
    None
}

fn after_start_code(bytes: &[u8]) -> Option<&[u8]> {
    start_code(bytes).map(|at| &bytes[at + 3..])
}

/// NAL units as MP4 stores them: each with a length of four bytes before it.
pub(crate) fn with_lengths(nals: &[&[u8]]) -> Bytes {
    let total = nals.iter().map(|nal| nal.len() + 4).sum();
    let mut joined = Vec::with_capacity(total);
    for nal in nals {
        joined.extend_from_slice(&(nal.len() as u32).to_be_bytes());
        joined.extend_from_slice(nal);
    }
    joined.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_codes_of_three_and_four_bytes_split() {
        let stream = [9, 0, 0, 0, 1, 0x67, 1, 0, 0, 1, 0x68, 0, 0, 3, 1, 0, 0, 0, 1, 0x65, 0, 0, 1, 0, 0, 1];
        let nals: Vec<&[u8]> = split(&stream).collect();
        assert_eq!(nals, [&[0x67, 1][..], &[0x68, 0, 0, 3, 1], &[0x65]]);
        assert_eq!(&with_lengths(&nals)[..6], [0, 0, 0, 2, 0x67, 1]);
        assert_eq!(split(&[]).count(), 0);
    }
}
