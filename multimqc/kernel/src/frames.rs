//! A generator of packets, for measurements: the kernel sends copies of a frame, without a system call or a socket buffer for each.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};

use aya_obj::generated::bpf_attach_type::BPF_XDP;
use aya_obj::generated::bpf_prog_type::{BPF_PROG_TYPE_SCHED_CLS, BPF_PROG_TYPE_XDP};

use crate::attach::{attach_native, attach_tcx};
use crate::error::KernelError;
use crate::object::{self, Globals};
use crate::sys;

static SEND: &[u8] = include_bytes!("../../bpf/objects/send.bpf.o");

/// Returns XDP_TX: a frame that seems to have arrived at an interface leaves through it.
const SEND_BACK: [[u8; 8]; 2] = returns(3);

/// Returns XDP_DROP.
const DROP: [[u8; 8]; 2] = returns(1);

/// Returns TC_ACT_SHOT.
const SHOT: [[u8; 8]; 2] = returns(2);

/// A program of two instructions.
const fn returns(verdict: u8) -> [[u8; 8]; 2] {
    [[0xb7, 0, 0, 0, verdict, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]]
}

/// Bytes of a frame that a rewriting sender writes each time: the headers, and the first 22 bytes of the payload.
const BEGINNING: usize = 64;

/// Headers of a frame, and the payload of a numbered message.
const HEADERS: usize = 42;
const MESSAGE: usize = 32;

/// Sends frames through an interface whose driver can send those of XDP. The other end of a veth pair must have a native XDP program,
/// for example a [`Kernel`](crate::Kernel) with other ports.
#[derive(Debug)]
pub struct FrameSender {
    program: OwnedFd,
    interface: u32,
}

impl FrameSender {
    /// A sender through an interface of this thread's network namespace.
    ///
    /// # Errors
    /// [`KernelError::Interface`], or [`KernelError::Call`].
    pub fn new(interface: &str) -> Result<FrameSender, KernelError> {
        let interface = index(interface)?;
        let program = sys::load_small(XDP, &SEND_BACK).map_err(KernelError::call("load the generator"))?;
        Ok(FrameSender { program, interface })
    }

    /// The same for frames that receivers change and send back, such as pulls: the kernel uses their memory again, so the
    /// first 64 bytes of `frame` are written for each frame. `frame` has at least 64 bytes. The bytes behind them are the
    /// ones that a receiver has left there, so the frame has no UDP checksum (0).
    ///
    /// # Errors
    /// As with [`FrameSender::new`]; [`KernelError::Object`] if `frame` is shorter.
    pub fn rewriting(interface: &str, frame: &[u8]) -> Result<FrameSender, KernelError> {
        FrameSender::load(interface, frame, None)
    }

    /// The same for pushes whose messages differ: each has 32 bytes, as [`numbered_message`] makes them, with numbers that count up
    /// from `first`. `frame` has the headers of such a push, with no UDP checksum either.
    ///
    /// # Errors
    /// As with [`FrameSender::rewriting`].
    pub fn numbering(interface: &str, frame: &[u8], first: u64) -> Result<FrameSender, KernelError> {
        FrameSender::load(interface, frame, Some(first))
    }

    fn load(interface: &str, frame: &[u8], first: Option<u64>) -> Result<FrameSender, KernelError> {
        let least = if first.is_some() { HEADERS + MESSAGE } else { BEGINNING };
        if frame.len() < least {
            let why = format!("a frame of {} bytes, and at least {least} are rewritten", frame.len());
            return Err(KernelError::Object(why));
        }
        let interface = index(interface)?;
        let (numbered, number) = (u32::from(first.is_some()).to_ne_bytes(), first.unwrap_or(0).to_ne_bytes());
        let globals = Globals::from([
            ("beginning", (&frame[..BEGINNING], true)),
            ("numbered", (&numbered[..], true)),
            ("number", (&number[..], true)),
        ]);
        let program = object::prepare(SEND, globals, &HashMap::new(), &[])?.load(XDP, BPF_XDP as u32)?;
        Ok(FrameSender { program, interface })
    }

    /// Sends `count` copies of an Ethernet frame of at most 1,514 bytes. A frame that the receiving end drops is lost. A
    /// frame whose bytes the receiver changes may be sent again as changed, but for those that the sender rewrites.
    ///
    /// # Errors
    /// [`KernelError::Call`].
    pub fn send(&self, frame: &[u8], count: u32) -> Result<(), KernelError> {
        let sent = sys::run_live(self.program.as_fd(), self.interface, frame, count);
        sent.map_err(KernelError::call("send frames"))
    }
}

/// The message with a number, as [`FrameSender::numbering`] sends it: each eight bytes depend on the number, so that no mixture of two
/// messages looks like one. Little endian, as the machines of eBPF are here.
pub fn numbered_message(number: u64) -> [u8; MESSAGE] {
    let words = [number, !number, number.wrapping_mul(0x9e37_79b9_7f4a_7c15), number ^ 0x5a5a_5a5a_5a5a_5a5a];
    let mut message = [0; MESSAGE];
    for (to, word) in message.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    message
}

const XDP: u32 = BPF_PROG_TYPE_XDP as u32;

fn index(interface: &str) -> Result<u32, KernelError> {
    sys::interface_index(interface)
        .map_err(|error| KernelError::Interface { name: interface.to_owned(), error })
}

/// Drops every frame that arrives at an interface, until the handle is dropped. It measures the cost and the rate of a generator
/// without a receiver, or receives replies. The interface counts the frames.
#[derive(Debug)]
pub struct FrameSink {
    _link: OwnedFd,
}

impl FrameSink {
    /// A sink in the driver of an interface of this thread's network namespace.
    ///
    /// # Errors
    /// [`KernelError::Interface`], or [`KernelError::Call`] if the driver takes no programs, or has one.
    pub fn new(interface: &str) -> Result<FrameSink, KernelError> {
        let index = index(interface)?;
        let program = sys::load_small(XDP, &DROP).map_err(KernelError::call("load the sink"))?;
        let link = attach_native(program.as_fd(), index).map_err(KernelError::call("attach the sink"))?;
        Ok(FrameSink { _link: link })
    }

    /// A sink in traffic control, for packets that a network stack has sent: the driver need not turn them into frames first.
    ///
    /// # Errors
    /// As with [`FrameSink::new`].
    pub fn behind_driver(interface: &str) -> Result<FrameSink, KernelError> {
        let index = index(interface)?;
        let program = sys::load_small(BPF_PROG_TYPE_SCHED_CLS as u32, &SHOT);
        let program = program.map_err(KernelError::call("load the sink"))?;
        let link = attach_tcx(program.as_fd(), index).map_err(KernelError::call("attach the sink"))?;
        Ok(FrameSink { _link: link })
    }
}
