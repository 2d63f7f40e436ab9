//! Tables of a transport stream: which programs there are, and which streams a program has.

/// The longest section of these tables.
const MAX_SECTION_BYTES: usize = 1024;

/// A stream that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamType {
    /// H.264.
    H264,
    /// HEVC.
    Hevc,
    /// AAC with ADTS headers.
    Aac,
    /// AC-3 or E-AC-3: the header of each frame distinguishes them.
    Ac3,
}

/// Assembles the sections of one packet id. A section is given once it is complete and its check sum is right.
#[derive(Debug, Default)]
pub(super) struct Sections {
    partial: Vec<u8>,
}

impl Sections {
    pub(super) fn push(&mut self, payload: &[u8], begins: bool) -> Option<Vec<u8>> {
        if begins {
            let pointer = usize::from(*payload.first()?);
            self.partial.clear();
            self.partial.extend_from_slice(payload.get(1 + pointer..)?);
        } else if self.partial.is_empty() {
            return None;
        } else {
            self.partial.extend_from_slice(payload);
        }
        let total = match *self.partial {
            [_, high, low, ..] => 3 + (usize::from(high & 15) << 8 | usize::from(low)),
            _ => return None,
        };
        if total > MAX_SECTION_BYTES {
            self.partial.clear();
            return None;
        }
        if self.partial.len() < total {
            return None;
        }
        let mut section = std::mem::take(&mut self.partial);
        section.truncate(total);
        let end = total.checked_sub(4)?;
        (crc32(&section) == 0).then(|| {
            section.truncate(end);
            section
        })
    }
}

/// The packet id of the first program's table.
pub(super) fn first_program(section: &[u8]) -> Option<u16> {
    let programs = section.get(8..).filter(|_| section[0] == 0)?;
    let (entries, _) = programs.as_chunks::<4>();
    let program = entries.iter().find(|entry| entry[0] != 0 || entry[1] != 0)?;
    Some(u16::from_be_bytes([program[2] & 0x1F, program[3]]))
}

/// The streams of a program's table that can be read, with their packet ids.
pub(super) fn streams(section: &[u8]) -> Option<Vec<(StreamType, u16)>> {
    let head = section.get(..12).filter(|head| head[0] == 2)?;
    let skipped = usize::from(head[10] & 15) << 8 | usize::from(head[11]);
    let mut rest = section.get(12 + skipped..)?;
    let mut found = Vec::new();
    while let [kind, pid_high, pid_low, info_high, info_low, after @ ..] = rest {
        let pid = u16::from_be_bytes([pid_high & 0x1F, *pid_low]);
        let (info, next) =
            after.split_at_checked(usize::from(info_high & 15) << 8 | usize::from(*info_low))?;
        rest = next;
        match kind {
            0x1B => found.push((StreamType::H264, pid)),
            0x24 => found.push((StreamType::Hevc, pid)),
            0x0F => found.push((StreamType::Aac, pid)),
            0x81 | 0x87 => found.push((StreamType::Ac3, pid)),
            0x06 if is_ac3(info) => found.push((StreamType::Ac3, pid)),
            _ => {}
        }
    }
    Some(found)
}

/// Whether the descriptors of a private stream identify it as AC-3 or E-AC-3, as in DVB (ETSI EN 300 468).
fn is_ac3(mut descriptors: &[u8]) -> bool {
    while let [tag, length, rest @ ..] = descriptors {
        if matches!(tag, 0x6A | 0x7A) {
            return true;
        }
        descriptors = rest.get(usize::from(*length)..).unwrap_or_default();
    }
    false
}

/// The check sum of sections: 0 over a section with its sum.
fn crc32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte) << 24, |crc, _| {
            crc << 1 ^ if crc >> 31 == 1 { 0x04C1_1DB7 } else { 0 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_streams_are_ac3_if_a_descriptor_says_so() {
        let mut table = vec![2, 0, 0, 0, 1, 0xC1, 0, 0, 0xE1, 0, 0xF0, 0];
        table.extend([0x1B, 0xE1, 0, 0xF0, 0]);
        table.extend([0x06, 0xE1, 1, 0xF0, 6, 0x0A, 1, 0, 0x59, 1, 0]);
        table.extend([0x06, 0xE1, 2, 0xF0, 6, 0x0A, 1, 0, 0x7A, 1, 0]);
        table.extend([0x81, 0xE1, 3, 0xF0, 0]);
        let found = [(StreamType::H264, 0x100), (StreamType::Ac3, 0x102), (StreamType::Ac3, 0x103)];
        assert_eq!(streams(&table).unwrap(), found);
        table.extend([0x06, 0xE1, 4, 0xF0, 1]);
        assert_eq!(streams(&table), None, "the table is cut");
    }

    #[test]
    fn a_section_is_taken_with_a_right_sum_only() {
        let mut section = vec![0, 0xB0, 13, 0, 1, 0xC1, 0, 0, 0, 1, 0xF0, 0x00];
        section.extend(crc32(&section).to_be_bytes());
        let mut payload = vec![0];
        payload.extend(&section);
        let mut sections = Sections::default();
        assert!(sections.push(&payload[..9], true).is_none());
        let complete = sections.push(&payload[9..], false).unwrap();
        assert_eq!(first_program(&complete), Some(0x1000));
        payload[9] ^= 1;
        assert!(sections.push(&payload, true).is_none());
    }
}
