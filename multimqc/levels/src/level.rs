//! The contract of a level (section III-E of the paper: write, transfer, read and forward).
//!
//! | paper | here |
//! |---|---|
//! | write: store the payload of a push | [`Level::append`] in the first level, which gives each byte its offset; [`Level::write`] in the others, at the offset that a batch carries |
//! | transfer: hand messages to the next level | [`Level::wait_batch`], then [`Level::transfer`] from the next level's head on |
//! | read: answer a pull from this level | [`Level::read`], if it returns [`Stop::Filled`] |
//! | forward: pass a pull to the next level | [`Level::read`], if it returns any other [`Stop`] |
//!
//! A level that acts on packets by itself (a NIC, a kernel program) does all four on the wire as well. It stores pushes, answers the
//! pulls whose whole range it holds, passes all other packets up untouched, and may send batches up as datagrams of the kind
//! [`Kind::Batch`](crate::wire::Kind::Batch). The methods here are its side in user space. They read the memory that the level shares;
//! a level that shares no memory returns [`LevelError::NotShared`].
//!
//! Offsets are the same in all levels, and each level would send a reply with the same bytes. If a level is removed from the stack, only
//! its window is missing.

use std::io;
use std::time::Duration;

use crate::log::{Batch, Hole, Offset, Window};
use crate::sessions::Sessions;
use crate::topic::{Epoch, TopicId};

/// The place of a level, in the numbering of the paper's table I, continued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[repr(u8)]
pub enum LevelKind {
    /// Block RAM of a NIC.
    NicBram = 1,
    /// DRAM of a NIC.
    NicDram = 2,
    /// Memory of the kernel, written by an eBPF program.
    Kernel = 3,
    /// A ring in this process.
    User = 4,
    /// Segment files.
    Disk = 5,
    /// Apache Kafka.
    Kafka = 6,
}

impl LevelKind {
    /// All kinds, the first level first.
    pub const ALL: [LevelKind; 6] = [
        LevelKind::NicBram,
        LevelKind::NicDram,
        LevelKind::Kernel,
        LevelKind::User,
        LevelKind::Disk,
        LevelKind::Kafka,
    ];

    /// The name in configurations and reports.
    pub fn name(self) -> &'static str {
        match self {
            LevelKind::NicBram => "nic-bram",
            LevelKind::NicDram => "nic-dram",
            LevelKind::Kernel => "kernel",
            LevelKind::User => "user",
            LevelKind::Disk => "disk",
            LevelKind::Kafka => "kafka",
        }
    }

    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<LevelKind> {
        LevelKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A log that a level has from before the stack was opened, for example from before a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// The bytes that the level has.
    pub window: Window,
    /// How many bytes after the head readers may have seen although the level never got them, because its process was killed. The stack
    /// leaves a hole of this size, unless a level nearer to the network has kept its window and so has these bytes.
    pub unsure_bytes: u64,
}

/// Appended messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// The offset of the first byte.
    pub offset: Offset,
    /// The number of bytes of all messages.
    pub bytes: u64,
    /// The number of messages.
    pub messages: u64,
    /// Messages that were larger than the level's limit. No part of them is in the log.
    pub oversize: u64,
}

/// The effect of a batch on a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    /// The hole that the batch left before it.
    pub hole: Option<Hole>,
    /// The bytes that were added.
    pub bytes: u64,
    /// The bytes that lay below the head and were dropped.
    pub repeated: u64,
}

/// Why a read returned no more bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The buffer is full: the level has answered.
    Filled,
    /// The next byte was not written yet, or not to this level.
    Head,
    /// The next byte is in a hole.
    Hole(Hole),
    /// The level does not keep the next byte any more. Its window began at this offset when the read ended, or shortly before.
    Gone(Offset),
}

/// The result of a read: bytes from the asked offset on, and the reason why there are no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// How many bytes at the beginning of the buffer are of the log.
    pub bytes: usize,
    /// The reason why no more bytes follow.
    pub stop: Stop,
}

/// The counters of a level for a topic since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages that were appended. 0 in a level that gets batches.
    pub messages: u64,
    /// Batches that were written. 0 in a level that gets messages.
    pub batches: u64,
    /// Bytes that were stored.
    pub bytes: u64,
    /// Reads that the level has answered.
    pub hits: u64,
    /// Reads that the level has forwarded.
    pub misses: u64,
    /// Bytes that can no longer be read from the level, because newer bytes or retention took their place.
    pub overwritten_bytes: u64,
    /// Holes.
    pub holes: u64,
    /// Bytes in holes.
    pub hole_bytes: u64,
    /// Bytes of batches that were in the log already.
    pub repeated_bytes: u64,
    /// Messages or batches that were refused: oversize, damaged, or without room.
    pub refused: u64,
    /// Damage of the level's storage: ranges that were found when it was opened, and reads that met some. Damaged ranges
    /// are read as holes.
    pub damaged: u64,
}

/// Why a level failed. Nothing of the call's bytes is in the log unless the variant says so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LevelError {
    /// The caller's: the topic was not opened.
    #[error("topic {0} is not open in this level")]
    UnknownTopic(TopicId),
    /// The configuration's: there are as many topics as the level can have.
    #[error("no room for another topic: the level has {0}, its limit")]
    TooManyTopics(usize),
    /// The caller's: the offset is beyond [`MAX_OFFSET`](crate::MAX_OFFSET).
    #[error("offset {0} is beyond the end of every log")]
    Offset(Offset),
    /// The level gets messages only from its own hardware or programs, not from this process.
    #[error("the level takes no messages from this process")]
    NotWritable,
    /// The level shares no memory with this process. Its batches arrive as datagrams.
    #[error("the level shares no memory with this process")]
    NotShared,
    /// The machine's: no space on the device. The level accepts batches again once there is space.
    #[error("no space left for the level: {0}")]
    Full(io::Error),
    /// A server that the level consists of does not answer. The level accepts batches again once it does.
    #[error("the level is down: {0}")]
    Down(String),
    /// The machine's.
    #[error("the level failed: {0}")]
    Io(#[from] io::Error),
}

impl LevelError {
    /// Whether the same call may succeed later although the caller and the configuration change nothing.
    pub fn is_temporary(&self) -> bool {
        matches!(self, LevelError::Full(_) | LevelError::Down(_))
    }
}

/// A level: a window of the log of each topic, in memory or on a device of one kind.
///
/// All methods may be called from any thread. One thread at a time calls [`Level::write`] for a topic, and one waits for
/// batches. Readers never stop a writer, and a read is never torn: bytes that were overwritten while they were copied are not
/// returned.
pub trait Level: Send + Sync {
    /// The place of the level.
    fn kind(&self) -> LevelKind;

    /// The bytes that the level keeps of each topic. `None`: only retention or the device limits them.
    fn capacity_bytes(&self) -> Option<u64>;

    /// The log of a topic that the level has before [`Level::open`] is called. `None`: the level has no log, and will begin at the offset
    /// that `open` gets. A level that keeps nothing over a restart has the log that was opened.
    ///
    /// # Errors
    /// [`LevelError`], if the level's storage cannot be read.
    fn kept(&self, topic: TopicId) -> Result<Option<Kept>, LevelError> {
        Ok(self.window(topic).map(|window| Kept { window, unsure_bytes: 0 }))
    }

    /// The sessions that have written the log of [`Level::kept`], in a level that outlives its process. Empty if no log is kept, or if it
    /// was kept before there were sessions. `None`: the level keeps no sessions, and its log counts as that of the other levels with the
    /// same epoch.
    ///
    /// # Errors
    /// [`LevelError`], if the level's storage cannot be read.
    fn sessions(&self, _topic: TopicId) -> Result<Option<Sessions>, LevelError> {
        Ok(None)
    }

    /// Keeps the sessions of an open topic, instead of those that were kept before.
    ///
    /// # Errors
    /// [`LevelError`], if they cannot be kept.
    fn keep_sessions(&self, _topic: TopicId, _sessions: &Sessions) -> Result<(), LevelError> {
        Ok(())
    }

    /// Gives the bytes of an open topic from `from` on new offsets, because the stack's log has other bytes at their offsets. The bytes
    /// keep their order, and get offsets of at least `to`, which is not below `from`. Bytes below `from` can no longer be read. Returns
    /// the window, which begins with the first of the moved bytes. Messages that arrive meanwhile follow them.
    ///
    /// # Errors
    /// [`LevelError::NotWritable`], if the level cannot give its bytes other offsets.
    fn rebase(&self, _topic: TopicId, _from: Offset, _to: Offset) -> Result<Window, LevelError> {
        Err(LevelError::NotWritable)
    }

    /// Opens a topic, and returns the window that the level has of its log, for example from before a restart. If the level has no log,
    /// the window is empty and begins at `start`, with the epoch `epoch`. An open topic stays as it is.
    ///
    /// # Errors
    /// [`LevelError`], if there is no room for the topic or its storage cannot be opened.
    fn open(&self, topic: TopicId, start: Offset, epoch: Epoch) -> Result<Window, LevelError>;

    /// The bytes that the level holds now. None if the topic is not open.
    fn window(&self, topic: TopicId) -> Option<Window>;

    /// Write, in the first level: appends messages, each of them whole and in the order of the iterator, which gives them their offsets.
    /// The messages of one call are not mixed with those of another call.
    ///
    /// # Errors
    /// [`LevelError::NotWritable`] for a level that is never first, or is fed on the wire only.
    fn append(
        &self,
        topic: TopicId,
        messages: &mut dyn Iterator<Item = &[u8]>,
    ) -> Result<Appended, LevelError>;

    /// Write, in the other levels: places a batch at its offset, by the rule of [`Batch::place`]. Only whole batches become
    /// visible. A temporary error leaves the log as it was, and the caller offers the same bytes again.
    ///
    /// # Errors
    /// [`LevelError`].
    fn write(&self, topic: TopicId, batch: Batch<'_>) -> Result<Written, LevelError>;

    /// Waits at most for `timeout` until a topic has grown by the level's batch size since the last call that returned true for it. True
    /// if a topic has grown. May return early.
    fn wait_batch(&self, timeout: Duration) -> bool;

    /// Ends the wait of another thread.
    fn wake(&self);

    /// Transfer: copies bytes from `from` on, for the next level. As [`Level::read`], but counted neither as hit nor as miss.
    /// [`Stop::Gone`] means that the next level was too late: the bytes below the offset become a hole there.
    ///
    /// # Errors
    /// [`LevelError`].
    fn transfer(&self, topic: TopicId, from: Offset, out: &mut [u8]) -> Result<Found, LevelError>;

    /// Read: copies bytes from `from` on, as many as fit into `out` and lie before the next hole and the head. A caller that
    /// gets another [`Stop`] than [`Stop::Filled`] forwards the request to the next level.
    ///
    /// # Errors
    /// [`LevelError`]. The caller forwards the request too.
    fn read(&self, topic: TopicId, from: Offset, out: &mut [u8]) -> Result<Found, LevelError>;

    /// Makes the written bytes durable, in a level that survives the process.
    ///
    /// # Errors
    /// [`LevelError`].
    fn sync(&self) -> Result<(), LevelError> {
        Ok(())
    }

    /// The counters of a topic; zeros if it is not open.
    fn counters(&self, topic: TopicId) -> Counters;
}
