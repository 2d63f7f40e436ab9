//! Settings.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use multimqc::wire::{MTU_PAYLOAD_BYTES, PULL_PORT, PUSH_PORT};
use multimqc::{OVERLAP_BYTES, Sizing};

use crate::error::KernelError;
use crate::layout::MAX_MESSAGE_BYTES;
use crate::sys;

/// The largest ring. The verifier allows offsets below 512 MiB, and ranges reach behind the end of a ring.
pub const MAX_RING_BYTES: u64 = 1 << 28;

/// The most topics.
pub const MAX_TOPICS: u32 = 4096;

/// Where the programs are attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Mode {
    /// XDP in the driver if it can, otherwise generic XDP. The default.
    #[default]
    Auto,
    /// XDP in the driver. The fastest; the loopback interface has none.
    XdpNative,
    /// XDP behind the driver. Works with every interface.
    XdpGeneric,
    /// The ingress of traffic control (tcx).
    Tcx,
    /// Netfilter's PREROUTING, as in the paper. Sees all interfaces of the network namespace, and cannot reply.
    Netfilter,
}

/// Settings of the kernel level.
#[derive(Debug, Clone)]
pub struct Config {
    /// Bytes of each topic's ring: a power of two, at least a page, at most [`MAX_RING_BYTES`]. Memory of the kernel, which is
    /// allocated at once. Default: 16 MiB.
    pub ring_bytes: u64,
    /// Topics that can be opened. Each has a ring. Default: 1. At most [`MAX_TOPICS`].
    pub max_topics: u32,
    /// How much a topic grows until the reader is woken. Larger batches cost fewer wake-ups, and leave the reader less time
    /// before bytes are overwritten. Default: 32 KiB, as in the paper. At most a quarter of the ring.
    pub batch_bytes: u64,
    /// The longest message that is stored; longer ones go up to the network stack. Default and limit: [`MAX_MESSAGE_BYTES`].
    pub max_message_bytes: u32,
    /// The longest payload of a reply. Default and limit: 1,472, which is what an Ethernet frame carries.
    pub max_reply_bytes: u32,
    /// Whether datagrams with wrong checksums are recognised, and left to the network stack. Off only where the network card
    /// drops them. Default: true.
    pub verify_checksums: bool,
    /// Takes only datagrams to this address. Default: all unicast addresses.
    pub address: Option<Ipv4Addr>,
    /// A network, as address and length of its prefix, whose requests may get replies that are longer than themselves. Anybody
    /// in it can send such replies to anybody else in it by forging a source address. Default: none.
    pub trusted: Option<(Ipv4Addr, u8)>,
    /// Whether each message is stored behind its length, a little-endian `u32` ([`Record`](multimqc::functions::Record)). Then the
    /// log keeps where messages end, for 4 bytes of a message. A ring that was kept with the other value is refused. Default: false.
    pub records: bool,
    /// Where the programs are attached.
    pub mode: Mode,
    /// An object file with an eBPF function for each message before it is stored. Default: none.
    pub input_function: Option<Vec<u8>>,
    /// An object file with an eBPF function for the bytes of each reply. Default: none.
    pub output_function: Option<Vec<u8>>,
    /// A folder in a bpf file system under which rings and attachments are kept when the process ends; see
    /// [`detach`](crate::detach). The level creates the folder. Default: none: everything ends with the process.
    pub keep: Option<PathBuf>,
    /// The rate for which equation 1 of the paper is checked, in bytes per second and topic; 0 does not check. Default: 0.
    pub bytes_per_second: u64,
    /// How long the next level takes for a batch, for the same check. Default: 100 ms.
    pub next_level_latency: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            ring_bytes: 16 << 20,
            max_topics: 1,
            batch_bytes: 32 << 10,
            max_message_bytes: MAX_MESSAGE_BYTES as u32,
            max_reply_bytes: MTU_PAYLOAD_BYTES as u32,
            verify_checksums: true,
            address: None,
            trusted: None,
            records: false,
            mode: Mode::Auto,
            input_function: None,
            output_function: None,
            keep: None,
            bytes_per_second: 0,
            next_level_latency: Duration::from_millis(100),
        }
    }
}

option_setters::setters! { fields of Config:
    ring_bytes: u64,
    max_topics: u32,
    batch_bytes: u64,
    max_message_bytes: u32,
    max_reply_bytes: u32,
    verify_checksums: bool,
    address: Option<Ipv4Addr>,
    trusted: Option<(Ipv4Addr, u8)>,
    records: bool,
    mode: Mode,
    input_function: Option<Vec<u8>>,
    output_function: Option<Vec<u8>>,
    keep: Option<PathBuf>,
    bytes_per_second: u64,
    next_level_latency: Duration,
}

fn limit(name: &'static str, value: u64, good: bool, why: &'static str) -> Result<(), KernelError> {
    if good { Ok(()) } else { Err(KernelError::Config { name, value, why }) }
}

impl Config {
    /// Checks the ranges, and equation 1.
    ///
    /// # Errors
    /// [`KernelError::Config`] or [`KernelError::TooSmall`].
    pub fn check(&self) -> Result<(), KernelError> {
        let ring = self.ring_bytes;
        let page = sys::page_bytes() as u64;
        limit("ring_bytes", ring, ring.is_power_of_two(), "must be a power of two")?;
        limit(
            "ring_bytes",
            ring,
            (page..=MAX_RING_BYTES).contains(&ring),
            "must be between a page and 256 MiB",
        )?;
        let topics = self.max_topics;
        let good = (1..=MAX_TOPICS).contains(&topics);
        limit("max_topics", topics.into(), good, "must be between 1 and 4,096")?;
        let batch = self.batch_bytes;
        limit(
            "batch_bytes",
            batch,
            (1..=ring / 4).contains(&batch),
            "must be between 1 and a quarter of ring_bytes",
        )?;
        let message = self.max_message_bytes;
        let good = (1..=MAX_MESSAGE_BYTES as u32).contains(&message);
        limit("max_message_bytes", message.into(), good, "must be between 1 and 2,047")?;
        let reply = self.max_reply_bytes;
        limit("max_reply_bytes", reply.into(), (1..=1472).contains(&reply), "must be between 1 and 1,472")?;
        if let Some((_, prefix)) = self.trusted {
            limit("trusted", prefix.into(), prefix <= 32, "a prefix has at most 32 bits")?;
        }
        if self.bytes_per_second > 0 {
            self.sizing().check(self.next_level_latency)?;
        }
        Ok(())
    }

    /// The sizes for equation 1.
    fn sizing(&self) -> Sizing {
        Sizing {
            capacity_bytes: self.ring_bytes,
            batch_bytes: self.batch_bytes,
            overlap_bytes: OVERLAP_BYTES,
            bytes_per_second: self.bytes_per_second,
        }
    }
}

/// The UDP ports of a topic. A port that is 0 is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    /// For pushes in the plain form.
    pub push: u16,
    /// For pulls in the plain form.
    pub pull: u16,
    /// For all datagrams in the header form. Topics may share it.
    pub header: u16,
}

impl Default for Ports {
    /// The paper's ports, and none for the header form.
    fn default() -> Ports {
        Ports { push: PUSH_PORT, pull: PULL_PORT, header: 0 }
    }
}
