//! The settings of a queue.

use cmq::{Config, Delivery, OverflowPolicy, Oversize};

use crate::cmq_api::reliable_options::{cmq_reliable, reliable};
use crate::cmq_api::security::{cmq_security, security};
use crate::raw::{Versioned, duration, options, rb_bool, set};
use crate::status::Failure;
use crate::status::rb_status::RB_ERR_ARGUMENT;

/// Large batches, at most 5 ms old.
pub const CMQ_PRESET_DEFAULT: u32 = 0;
/// The paper's settings: batches of 512 bytes or 200 ms.
pub const CMQ_PRESET_PAPER: u32 = 1;
/// Every message is sent at once.
pub const CMQ_PRESET_IMMEDIATE: u32 = 2;

/// The settings of a queue, which docs/CMQ.md explains. Zeros are those of the preset: `cmq_options options = {.size = sizeof
/// options};`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct cmq_options {
    /// `sizeof(cmq_options)`.
    pub size: usize,
    /// `CMQ_PRESET_…`: the meaning of zeros below.
    pub preset: u32,
    /// Bytes at which a batch leaves.
    pub qthresh: usize,
    /// Messages at which a batch leaves; `SIZE_MAX`: no limit.
    pub qmessages: usize,
    /// The age in nanoseconds at which a batch leaves.
    pub timeout_ns: i64,
    /// Does not send pending messages when a thread begins to wait for a message.
    pub no_flush_on_wait: rb_bool,
    /// How long a thread that waits polls the socket before it sleeps, in nanoseconds.
    pub spin_ns: i64,
    /// Bytes that may wait to be sent.
    pub pending_bytes: usize,
    /// Messages that each mailbox may hold.
    pub mailbox_messages: usize,
    /// Bytes that each mailbox may hold.
    pub mailbox_bytes: usize,
    /// A full mailbox drops the message that has waited longest, and not the arriving one.
    pub drop_oldest: rb_bool,
    /// Messages are popped as they arrive, and not in the order in which they were pushed.
    pub unordered: rb_bool,
    /// Whether `wait_ns` is set.
    pub has_wait: rb_bool,
    /// The longest time in nanoseconds in which a missing message may still arrive.
    pub wait_ns: i64,
    /// The datagrams that may arrive before it.
    pub window: usize,
    /// Memory for messages that arrived before a missing one.
    pub reorder_bytes: usize,
    /// Refuses messages that do not fit into a datagram, instead of sending them in fragments.
    pub reject_oversize: rb_bool,
    /// Sends a parity fragment for each 16 or fewer fragments.
    pub parity_fragments: rb_bool,
    /// The largest message in bytes.
    pub max_message: usize,
    /// Memory for incomplete messages.
    pub fragment_bytes: usize,
    /// How long a message may stay incomplete, in nanoseconds.
    pub fragment_timeout_ns: i64,
    /// The largest datagram in bytes; 0: the path's.
    pub max_datagram: usize,
    /// Sends the datagrams of a batch with `sendmmsg`, and does not let the kernel cut it.
    pub no_segmentation_offload: rb_bool,
    /// Streams of senders that are remembered.
    pub max_senders: usize,
    /// Destination addresses that are remembered.
    pub max_destinations: usize,
    /// Events that wait to be read.
    pub max_events: usize,
    /// The socket's receive buffer in bytes.
    pub receive_buffer: usize,
    /// The socket's send buffer in bytes.
    pub send_buffer: usize,
    /// Lets several sockets share the address, as receivers of one multicast group on one machine do.
    pub reuse_address: rb_bool,
    /// Encrypts and authenticates every datagram; NULL: the queue sends and takes plain datagrams only.
    pub security: *const cmq_security,
    /// Turns the reliable mode on (`cmq_push_reliable`); NULL: it is off.
    pub reliable: *const cmq_reliable,
}

// SAFETY: integers, pointers and `rb_bool`s, and the first field is the size.
unsafe impl Versioned for cmq_options {}

/// The settings of the caller; NULL is the defaults.
pub(crate) fn config(given: *const cmq_options) -> Result<Config, Failure> {
    let given = options(given, "the queue's options")?;
    let mut config = match given.preset {
        CMQ_PRESET_DEFAULT => Config::default(),
        CMQ_PRESET_PAPER => Config::paper(),
        CMQ_PRESET_IMMEDIATE => Config::immediate(),
        other => return Err(Failure::of(RB_ERR_ARGUMENT, format!("{other} is no preset"))),
    };
    set!(config, given: qthresh, pending_bytes, mailbox_messages, mailbox_bytes, reorder_bytes, max_message, fragment_bytes,
        max_senders, max_destinations, max_events, max_datagram, receive_buffer, send_buffer;
        timeout = timeout_ns, spin = spin_ns, fragment_timeout = fragment_timeout_ns);
    if given.qmessages != 0 {
        config.qmessages = (given.qmessages != usize::MAX).then_some(given.qmessages);
    }
    config.flush_on_wait &= !given.no_flush_on_wait.is_set();
    config.segmentation_offload &= !given.no_segmentation_offload.is_set();
    config.parity_fragments |= given.parity_fragments.is_set();
    config.reuse_address |= given.reuse_address.is_set();
    if given.drop_oldest.is_set() {
        config.overflow = OverflowPolicy::DropOldest;
    }
    if given.reject_oversize.is_set() {
        config.oversize = Oversize::Reject;
    }
    config.delivery = delivery(config.delivery, &given)?;
    Ok(config.security(security(given.security)?).reliable(reliable(given.reliable)?))
}

fn delivery(preset: Delivery, given: &cmq_options) -> Result<Delivery, Failure> {
    let (Delivery::Ordered { mut wait, mut window } | Delivery::Unordered { mut wait, mut window }) = preset;
    if given.has_wait.is_set() {
        wait = duration(given.wait_ns, "wait_ns")?;
    }
    if given.window != 0 {
        window = given.window;
    }
    Ok(if given.unordered.is_set() {
        Delivery::Unordered { wait, window }
    } else {
        Delivery::Ordered { wait, window }
    })
}
