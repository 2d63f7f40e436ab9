//! Reads single bits, and the codes of the video standards.

/// Bits of a slice, the most significant first. A read past the end gives `None`.
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Bits<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// At most 32 bits.
    pub(super) fn take(&mut self, count: u32) -> Option<u32> {
        let mut value = 0u64;
        for _ in 0..count {
            let byte = *self.bytes.get(self.at / 8)?;
            value = value << 1 | u64::from(byte >> (7 - self.at % 8) & 1);
            self.at += 1;
        }
        Some(value as u32)
    }

    pub(super) fn flag(&mut self) -> Option<bool> {
        Some(self.take(1)? == 1)
    }

    pub(super) fn skip(&mut self, count: usize) -> Option<()> {
        let at = self.at.checked_add(count)?;
        (at <= self.bytes.len() * 8).then(|| self.at = at)
    }

    /// An unsigned Exp-Golomb code: `ue(v)`.
    pub(super) fn golomb(&mut self) -> Option<u32> {
        let mut zeros = 0;
        while !self.flag()? {
            zeros += 1;
            if zeros > 31 {
                return None;
            }
        }
        let rest = self.take(zeros)?;
        Some(((1u64 << zeros) - 1 + u64::from(rest)) as u32)
    }

    /// A signed Exp-Golomb code: `se(v)`.
    pub(super) fn signed_golomb(&mut self) -> Option<i64> {
        let code = i64::from(self.golomb()?);
        Some(if code & 1 == 1 { code / 2 + 1 } else { -(code / 2) })
    }
}

/// A NAL unit without the bytes that prevent start codes in it.
pub(super) fn without_emulation(nal: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(nal.len());
    let mut zeros = 0;
    for &byte in nal {
        if zeros >= 2 && byte == 3 {
            zeros = 0;
            continue;
        }
        zeros = if byte == 0 { zeros + 1 } else { 0 };
        plain.push(byte);
    }
    plain
}
