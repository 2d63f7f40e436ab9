//! The options of a log.

use std::time::Duration;

use crate::error::OpenError;
use crate::format::{MAX_PAYLOAD, RECORD_HEADER, SEGMENT_HEADER};

/// When appended data is made durable without being asked ([`Log::sync`](crate::Log::sync) asks). A crash of the process loses
/// nothing that was appended; a crash of the machine loses bytes that were not durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncPolicy {
    /// Each append is durable when it returns. A batch costs one `fdatasync`, so append large ones.
    EachAppend,
    /// An append syncs when this many bytes are not durable.
    Bytes(u64),
    /// Appended records are synced after this time, by threads that all logs of the process share. Appends do not wait for the sync.
    Interval(Duration),
    /// Both: whichever comes first.
    BytesOrInterval(u64, Duration),
    /// Only when a segment is complete, on [`Log::sync`](crate::Log::sync), and when the log is closed.
    Never,
}

impl SyncPolicy {
    pub(crate) fn bytes(self) -> Option<u64> {
        match self {
            Self::EachAppend => Some(1),
            Self::Bytes(bytes) | Self::BytesOrInterval(bytes, _) => Some(bytes),
            Self::Interval(_) | Self::Never => None,
        }
    }

    pub(crate) fn interval(self) -> Option<Duration> {
        match self {
            Self::Interval(interval) | Self::BytesOrInterval(_, interval) => Some(interval),
            Self::EachAppend | Self::Bytes(_) | Self::Never => None,
        }
    }
}

/// The limits of the kept history. Whole segments are removed from the front, never the one that is being written, so a log may be larger or older
/// by one segment than the limits say. Limits apply when a segment is complete and on
/// [`Log::apply_retention`](crate::Log::apply_retention).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// The most bytes of files. Default: no limit.
    pub max_bytes: Option<u64>,
    /// So many segments stay, whatever `max_bytes` says: where one batch can be larger than that, one that has just come must not make what came
    /// before it go. Default 0: only the one that is being written.
    pub min_segments: usize,
    /// The longest time that a segment stays after its last append. Default: no limit.
    pub max_age: Option<Duration>,
    /// The most segments, at least 1. Default: no limit.
    pub max_segments: Option<usize>,
}

/// How sealed segments are read. The segment that is being written is always read by system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadMode {
    /// By `pread` into memory of the reader. An unreadable disk block is an error of that read.
    Copy,
    /// Mapped: reads cost no copy and no system call. An unreadable disk block kills the process with `SIGBUS`, as does a
    /// process that cuts the file, so this is for disks that you trust, or for a process that may die.
    Map,
}

/// The options of a log.
///
/// ```
/// use std::time::Duration;
/// use seglog::{Options, Retention, SyncPolicy};
///
/// let options = Options::default()
///     .segment_bytes(64 << 20)
///     .sync(SyncPolicy::BytesOrInterval(4 << 20, Duration::from_millis(200)))
///     .retention(Retention { max_bytes: Some(10 << 30), ..Retention::default() });
/// assert_eq!(options.segment_bytes, 64 << 20);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Bytes of a segment file at which the next one begins: 4 KiB to 1 TiB. Retention and recovery work in segments: small ones are
    /// removed sooner and recover faster, large ones need fewer files. A larger batch gets a segment of its own. Default: 256 MiB.
    pub segment_bytes: u64,
    /// The age at which a segment is complete although it is not full, so that retention by age can remove it. Default: none.
    pub segment_age: Option<Duration>,
    /// The most bytes of a batch: 1 to 1 GiB. A reader holds a batch in memory. Default: 16 MiB.
    pub max_batch: u32,
    /// When data is made durable. Default: every 8 MiB or 1 s.
    pub sync: SyncPolicy,
    /// The limits of the kept history. Default: no limits, so nothing is removed.
    pub retention: Retention,
    /// How sealed segments are read. Default: [`ReadMode::Copy`].
    pub read_mode: ReadMode,
    /// The most sealed segments that are kept open for readers, at least 1. Each costs a descriptor and the memory of its index. Views
    /// that readers hold may keep more. Default: 64.
    pub open_segments: usize,
    /// Bytes of a segment between two entries of its index, at least 1. An entry costs 16 bytes of memory and of file; a read at a
    /// random position walks through this much. Default: 16 KiB.
    pub index_interval: u64,
    /// The position at which a new log starts. An existing log keeps its own. Default: 0.
    pub first_position: u64,
    /// The name of a new log. An existing log keeps its own. Default: a random one.
    pub log_id: Option<[u8; 16]>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes: 256 << 20,
            segment_age: None,
            max_batch: 16 << 20,
            sync: SyncPolicy::BytesOrInterval(8 << 20, Duration::from_secs(1)),
            retention: Retention::default(),
            read_mode: ReadMode::Copy,
            open_segments: 64,
            index_interval: 16 << 10,
            first_position: 0,
            log_id: None,
        }
    }
}

option_setters::setters! { fields of Options:
    segment_bytes: u64,
    segment_age: Option<Duration>,
    max_batch: u32,
    sync: SyncPolicy,
    retention: Retention,
    read_mode: ReadMode,
    open_segments: usize,
    index_interval: u64,
    first_position: u64,
    log_id: Option<[u8; 16]>,
}

/// The smallest and the largest size of a segment.
const SEGMENT_BYTES: std::ops::RangeInclusive<u64> = 4 << 10..=1 << 40;
const _: () = assert!(*SEGMENT_BYTES.start() > (SEGMENT_HEADER + RECORD_HEADER) as u64);

impl Options {
    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let wrong = |what: String| Err(OpenError::Options(what));
        if !SEGMENT_BYTES.contains(&self.segment_bytes) {
            return wrong(format!("segment_bytes is {}; it must be 4 KiB to 1 TiB", self.segment_bytes));
        }
        if self.max_batch == 0 || self.max_batch > MAX_PAYLOAD {
            return wrong(format!("max_batch is {}; it must be 1 to {MAX_PAYLOAD}", self.max_batch));
        }
        if self.open_segments == 0 || self.index_interval == 0 || self.retention.max_segments == Some(0) {
            return wrong("open_segments, index_interval and max_segments must be at least 1".to_owned());
        }
        if self.sync.interval().is_some_and(|interval| interval.is_zero()) || self.sync.bytes() == Some(0) {
            return wrong("a sync policy needs an interval and a number of bytes above 0".to_owned());
        }
        Ok(())
    }
}
