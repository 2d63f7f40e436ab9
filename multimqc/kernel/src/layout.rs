//! The memory that user space and the eBPF programs share: the structs of multimqc/bpf/ring.h.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use multimqc::MAX_SESSIONS;

/// `MULTIMQC_MAX_MESSAGE`: the longest message that the programs store, and the longest range that they reply with.
pub const MAX_MESSAGE_BYTES: usize = 2047;

/// `MIRROR`: how many of a ring's first bytes are behind its end again.
pub(crate) const MIRROR_BYTES: usize = MAX_MESSAGE_BYTES + 1;

/// Bytes behind each ring: its mirror and the room for a copy that begins in the mirror.
pub(crate) const SLACK_BYTES: usize = 2 * MIRROR_BYTES;

/// The value of a slot without a write under way, and of a wake-up for which no thread waits.
pub(crate) const IDLE: u64 = u64::MAX;

/// `MAX_CPUS`.
pub(crate) const MAX_CPUS: u32 = 1024;

/// UDP ports, and topic ids.
pub(crate) const PORTS: u32 = 65_536;

/// Notes of a reader.
pub(crate) const MARKS: usize = 4;

/// State of a topic that the programs do not use, for the next process that takes over a kept ring. In a new ring it is zero: no
/// session.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct TopicNotes {
    /// The index of the valid list. A change writes the other list, and then this index.
    pub(crate) current: AtomicU64,
    /// Names and starts of sessions; a name of 0 ends the list.
    pub(crate) sessions: [[[AtomicU64; 2]; MAX_SESSIONS]; 2],
}

/// `struct topic`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct TopicState {
    pub(crate) head: AtomicU64,
    pad0: [u64; 7],
    pub(crate) floor: AtomicU64,
    pub(crate) stable: AtomicU64,
    pub(crate) epoch: AtomicU32,
    pub(crate) id: AtomicU16,
    pub(crate) open: AtomicU16,
    /// Where messages end, as a reader has noted it; the programs do not use this. 0: nothing was noted.
    pub(crate) marks: [AtomicU64; MARKS],
    pad1: [u64; 1],
    pub(crate) wake_at: AtomicU64,
    pad2: [u64; 7],
}

/// `struct cpu`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct CpuState {
    pub(crate) slot: AtomicU64,
    pub(crate) counters: [AtomicU64; COUNTERS],
    pad: [u64; 2],
}

/// The counters of a CPU, in their order.
pub(crate) const COUNTERS: usize = 13;

const _: () = assert!(std::mem::size_of::<TopicState>() == 192);
const _: () = assert!(std::mem::offset_of!(TopicState, wake_at) == 128);
const _: () = assert!(std::mem::size_of::<CpuState>() == 128);
const _: () = assert!(std::mem::offset_of!(CpuState, pad) == 112);

/// The use of a UDP port: `enum port_kind`. 0 is a port that no topic has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum PortKind {
    Push = 1,
    Pull = 2,
    Header = 3,
}

/// `struct port`.
pub(crate) fn port_entry(kind: PortKind, topic: u16) -> [u8; 4] {
    let mut entry = [0; 4];
    entry[..2].copy_from_slice(&(kind as u16).to_ne_bytes());
    entry[2..].copy_from_slice(&topic.to_ne_bytes());
    entry
}
