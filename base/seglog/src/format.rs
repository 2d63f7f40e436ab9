//! The bytes of a segment file.
//!
//! ```text
//!   ┌────────────────┬─────────────────────────────────────┬───┬──────────────────┬─────────┐
//!   │ segment header │ record: header │ payload │ zeros to 8│ … │ seal: the index  │ trailer │
//!   │ 64 bytes       │ 48 bytes       │         │           │   │ (a record)       │ 16 bytes│
//!   └────────────────┴─────────────────────────────────────┴───┴──────────────────┴─────────┘
//!                                                              └─ only in a sealed segment ─┘
//! ```
//!
//! All numbers are little endian. The checksum of a record's header starts from the base, the log id and the salt of the segment, so
//! that bytes of another file, of an earlier life of the same blocks, or of a payload, are no record. The header has a checksum of its own, so that the
//! length is known to be right before the payload is looked at.

/// Bytes of the header of a segment.
pub const SEGMENT_HEADER: usize = 64;
/// Bytes of the header of a record.
pub const RECORD_HEADER: usize = 48;
/// Bytes of the trailer that ends a sealed segment.
pub const TRAILER: usize = 16;
/// The version that this crate writes, and the only one that it reads.
pub const VERSION: u16 = 1;
/// The most payload bytes of one record.
pub const MAX_PAYLOAD: u32 = 1 << 30;

const SEGMENT_MAGIC: [u8; 8] = *b"SEGLOG\r\n";
const RECORD_MAGIC: [u8; 4] = *b"SLr1";
const TRAILER_MAGIC: [u8; 4] = *b"SLt1";
/// Bytes of a seal's payload before the entries of the index.
const SEAL_HEAD: usize = 40;
const SEAL_ENTRY: usize = 16;

/// Rounds up to the alignment of records.
pub fn aligned(bytes: u64) -> u64 {
    bytes.next_multiple_of(8)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The start of a segment file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The position of the first byte of the segment.
    pub base: u64,
    /// The name of the log; the same in all of its segments.
    pub log_id: [u8; 16],
    /// When the segment was created, in milliseconds since 1970.
    pub created: u64,
    /// A random number that nobody outside of the file knows: no payload can be made to look like a record.
    pub salt: u64,
}

/// Why bytes are no header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotASegment {
    /// The first bytes are not those of a segment.
    Magic,
    /// The format is of another version.
    Version(u16),
    /// The checksum or a reserved field is wrong.
    Damaged,
}

impl SegmentHeader {
    /// The bytes of the header.
    pub fn encode(&self) -> [u8; SEGMENT_HEADER] {
        let mut out = [0; SEGMENT_HEADER];
        out[..8].copy_from_slice(&SEGMENT_MAGIC);
        out[8..10].copy_from_slice(&VERSION.to_le_bytes());
        out[10..12].copy_from_slice(&(SEGMENT_HEADER as u16).to_le_bytes());
        out[16..24].copy_from_slice(&self.base.to_le_bytes());
        out[24..40].copy_from_slice(&self.log_id);
        out[40..48].copy_from_slice(&self.created.to_le_bytes());
        out[48..56].copy_from_slice(&self.salt.to_le_bytes());
        let crc = crc32c::crc32c(&out[..60]);
        out[60..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a header.
    pub fn decode(bytes: &[u8; SEGMENT_HEADER]) -> Result<Self, NotASegment> {
        if bytes[..8] != SEGMENT_MAGIC {
            return Err(NotASegment::Magic);
        }
        if u32_at(bytes, 60) != crc32c::crc32c(&bytes[..60]) {
            return Err(NotASegment::Damaged);
        }
        if u16_at(bytes, 8) != VERSION {
            return Err(NotASegment::Version(u16_at(bytes, 8)));
        }
        let reserved_is_zero = u32_at(bytes, 12) == 0 && u32_at(bytes, 56) == 0;
        if usize::from(u16_at(bytes, 10)) != SEGMENT_HEADER || !reserved_is_zero {
            return Err(NotASegment::Damaged);
        }
        let log_id = bytes[24..40].try_into().expect("sixteen bytes");
        Ok(Self { base: u64_at(bytes, 16), log_id, created: u64_at(bytes, 40), salt: u64_at(bytes, 48) })
    }

    /// The start value of the checksums of the segment's records.
    pub fn seed(&self) -> u32 {
        let base = crc32c::crc32c(&self.base.to_le_bytes());
        crc32c::crc32c_append(crc32c::crc32c_append(base, &self.log_id), &self.salt.to_le_bytes())
    }
}

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The payload is a batch.
    Data,
    /// The payload is the position at which a hole ends that the writer left.
    Hole,
    /// The payload is the position at which a range ends whose data did not reach the disk.
    Lost,
    /// The payload is the index; the segment is complete.
    Seal,
}

impl Kind {
    fn code(self) -> u8 {
        match self {
            Self::Data => 1,
            Self::Hole => 2,
            Self::Seal => 3,
            Self::Lost => 4,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Data,
            2 => Self::Hole,
            3 => Self::Seal,
            4 => Self::Lost,
            _ => return None,
        })
    }
}

/// The header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    /// The record's kind.
    pub kind: Kind,
    /// The position of its first byte.
    pub position: u64,
    /// Bytes of its payload.
    pub len: u32,
    /// The checksum of its payload.
    pub payload_crc: u32,
    /// When the record was written, in milliseconds since 1970.
    pub time: u64,
    /// The bytes below this position were on the disk when the record was written.
    pub durable: u64,
}

impl RecordHeader {
    /// The bytes of the header.
    pub fn encode(&self, seed: u32) -> [u8; RECORD_HEADER] {
        let mut out = [0; RECORD_HEADER];
        out[..4].copy_from_slice(&RECORD_MAGIC);
        out[4] = self.kind.code();
        out[8..16].copy_from_slice(&self.position.to_le_bytes());
        out[16..20].copy_from_slice(&self.len.to_le_bytes());
        out[20..24].copy_from_slice(&self.payload_crc.to_le_bytes());
        out[24..32].copy_from_slice(&self.time.to_le_bytes());
        out[32..40].copy_from_slice(&self.durable.to_le_bytes());
        let crc = crc32c::crc32c_append(seed, &out[..44]);
        out[44..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a header; `None` if the bytes are none.
    pub fn decode(seed: u32, bytes: &[u8; RECORD_HEADER]) -> Option<Self> {
        if bytes[..4] != RECORD_MAGIC || u32_at(bytes, 44) != crc32c::crc32c_append(seed, &bytes[..44]) {
            return None;
        }
        let header = Self {
            kind: Kind::from_code(bytes[4])?,
            position: u64_at(bytes, 8),
            len: u32_at(bytes, 16),
            payload_crc: u32_at(bytes, 20),
            time: u64_at(bytes, 24),
            durable: u64_at(bytes, 32),
        };
        let reserved_is_zero = bytes[5..8] == [0; 3] && bytes[40..44] == [0; 4];
        let length_fits = match header.kind {
            Kind::Data => header.len > 0 && header.len <= MAX_PAYLOAD,
            Kind::Hole | Kind::Lost => header.len == 8,
            Kind::Seal => header.len as usize >= SEAL_HEAD && header.len <= MAX_PAYLOAD,
        };
        let end_fits = header.position.checked_add(u64::from(header.len)).is_some();
        (reserved_is_zero && length_fits && end_fits).then_some(header)
    }

    /// Bytes of the whole record in the file.
    pub fn stored(&self) -> u64 {
        RECORD_HEADER as u64 + aligned(u64::from(self.len))
    }

    /// Whether this is the record's payload.
    pub fn matches(&self, payload: &[u8]) -> bool {
        payload.len() == self.len as usize && crc32c::crc32c(payload) == self.payload_crc
    }

    /// The position after the record. `payload` is that of a hole, and is not looked at otherwise.
    pub fn end(&self, payload: &[u8]) -> u64 {
        match self.kind {
            Kind::Data => self.position + u64::from(self.len),
            Kind::Hole | Kind::Lost => u64_at(payload, 0),
            Kind::Seal => self.position,
        }
    }
}

/// The payload of a hole record: where the hole ends.
pub fn encode_hole(end: u64) -> [u8; 8] {
    end.to_le_bytes()
}

/// An entry of a segment's index: a record starts there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEntry {
    /// The record's first position.
    pub position: u64,
    /// The record's first byte in the file.
    pub offset: u64,
}

/// The payload of the seal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seal {
    /// When the first record was written, in milliseconds since 1970.
    pub first_time: u64,
    /// When the last record was written.
    pub last_time: u64,
    /// How many records lie before the seal.
    pub records: u64,
    /// How many positions of the segment are holes.
    pub hole_bytes: u64,
    /// Where records start, in order.
    pub index: Vec<IndexEntry>,
}

impl Seal {
    /// The bytes of the payload.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SEAL_HEAD + self.index.len() * SEAL_ENTRY);
        for number in [self.first_time, self.last_time, self.records, self.hole_bytes] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&(self.index.len() as u64).to_le_bytes());
        for entry in &self.index {
            out.extend_from_slice(&entry.position.to_le_bytes());
            out.extend_from_slice(&entry.offset.to_le_bytes());
        }
        out
    }

    /// Reads a payload whose checksum was right; `None` if the entries are not in order or do not fit.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let (head, entries) = payload.split_at_checked(SEAL_HEAD)?;
        if u64_at(head, 32) != (entries.len() / SEAL_ENTRY) as u64
            || !entries.len().is_multiple_of(SEAL_ENTRY)
        {
            return None;
        }
        let index: Vec<IndexEntry> = entries
            .chunks_exact(SEAL_ENTRY)
            .map(|entry| IndexEntry { position: u64_at(entry, 0), offset: u64_at(entry, 8) })
            .collect();
        let in_order = index.is_sorted_by(|a, b| a.position < b.position && a.offset < b.offset);
        in_order.then_some(Self {
            first_time: u64_at(head, 0),
            last_time: u64_at(head, 8),
            records: u64_at(head, 16),
            hole_bytes: u64_at(head, 24),
            index,
        })
    }
}

/// The end of a sealed segment: where its seal starts.
pub fn encode_trailer(seed: u32, seal_offset: u64) -> [u8; TRAILER] {
    let mut out = [0; TRAILER];
    out[..8].copy_from_slice(&seal_offset.to_le_bytes());
    out[8..12].copy_from_slice(&TRAILER_MAGIC);
    let crc = crc32c::crc32c_append(seed, &out[..12]);
    out[12..].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Where the seal starts; `None` if the bytes are no trailer.
pub fn decode_trailer(seed: u32, bytes: &[u8; TRAILER]) -> Option<u64> {
    let right =
        bytes[8..12] == TRAILER_MAGIC && u32_at(bytes, 12) == crc32c::crc32c_append(seed, &bytes[..12]);
    right.then(|| u64_at(bytes, 0))
}

/// How far a log goes, noted outside of its segments: so data that is missing at the end, where nothing follows it, is missed.
///
/// The file `lock` has two of them, each in a sector of its own, which are written in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The name of the log.
    pub log_id: [u8; 16],
    /// The run of the machine in which the mark was written; zeros if it is not known.
    pub boot: [u8; 16],
    /// The end of the log: all below was appended. The same run of the machine finds it in the files.
    pub end: u64,
    /// The bytes below this position are on the disk.
    pub durable: u64,
}

/// The name of the file with the marks, which the writer locks.
pub const LOCK_FILE: &str = "lock";
/// Bytes of a mark.
pub const MARK: usize = 64;
/// Where the two marks begin in their file.
pub const MARK_OFFSETS: [u64; 2] = [0, 512];

const MARK_MAGIC: [u8; 8] = *b"SEGMARK\n";

impl Mark {
    /// The bytes of the mark.
    pub fn encode(&self) -> [u8; MARK] {
        let mut out = [0; MARK];
        out[..8].copy_from_slice(&MARK_MAGIC);
        out[8..24].copy_from_slice(&self.log_id);
        out[24..40].copy_from_slice(&self.boot);
        out[40..48].copy_from_slice(&self.end.to_le_bytes());
        out[48..56].copy_from_slice(&self.durable.to_le_bytes());
        let crc = crc32c::crc32c(&out[..60]);
        out[60..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a mark; `None` if the bytes are none.
    pub fn decode(bytes: &[u8; MARK]) -> Option<Self> {
        let right = bytes[..8] == MARK_MAGIC && u32_at(bytes, 60) == crc32c::crc32c(&bytes[..60]);
        let log_id = bytes[8..24].try_into().expect("sixteen bytes");
        let boot = bytes[24..40].try_into().expect("sixteen bytes");
        (right && u32_at(bytes, 56) == 0).then_some(Self {
            log_id,
            boot,
            end: u64_at(bytes, 40),
            durable: u64_at(bytes, 48),
        })
    }
}

/// The name of a segment's file: the base in 20 digits, so that names sort as positions do.
pub fn file_name(base: u64) -> String {
    format!("{base:020}.seg")
}

/// The base in a file's name; `None` if the file is no segment.
pub fn base_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".seg")?;
    let base = digits.parse().ok()?;
    (file_name(base) == name).then_some(base)
}
