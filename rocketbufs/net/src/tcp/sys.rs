//! The two system calls that touch ring memory by address, behind safe functions. The only `unsafe` of TCP.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use rocketring::{Position, Ring, RingReceiver};

/// iovecs of one `sendmsg`, the kernel's own limit (UIO_MAXIOV).
const MAX_IOV: usize = 1024;

/// The result of one read.
pub(super) struct Landed {
    /// Bytes written at the head of the ring. The caller lands them.
    pub in_ring: usize,
    /// Bytes written to the staging buffer, which follow those in the stream.
    pub staged: usize,
    /// Whether the read was cut short, because no more had arrived.
    pub drained: bool,
}

/// Reads at most `max` of the `rest` bytes of a range to the head of the receiver's ring and, only if that is the whole rest (or
/// the ring has no room), the bytes behind it into `staging`. Zero bytes in total are the end of the stream.
pub(super) fn read_to_ring(
    fd: BorrowedFd<'_>,
    receiver: &mut RingReceiver,
    rest: usize,
    max: usize,
    staging: &mut [u8],
) -> io::Result<Landed> {
    let (at, free) = receiver.spare(rest.min(max));
    let free = free.min(rest).min(max);
    let staging_len = if free == rest || free == 0 { staging.len() } else { 0 };
    let iov = [
        libc::iovec { iov_base: at.cast(), iov_len: free },
        libc::iovec { iov_base: staging.as_mut_ptr().cast(), iov_len: staging_len },
    ];
    // SAFETY: the first part is memory that `spare` returned for writing, which is exclusive while the one receiver of the
    // ring is borrowed mutably; the second lies in an exclusive slice.
    let n = unsafe { libc::readv(fd.as_raw_fd(), iov.as_ptr(), iov.len() as i32) };
    let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
    Ok(Landed { in_ring: n.min(free), staged: n.saturating_sub(free), drained: n < free + staging_len })
}

/// Bytes to be sent in place.
pub(super) enum Part<'a> {
    /// Private memory.
    Bytes(&'a [u8]),
    /// `len` bytes of a ring from a position on; at most its capacity.
    Range { ring: &'a Ring, from: Position, len: usize },
}

#[cfg(feature = "tls")]
impl<'a> Part<'a> {
    /// The bytes left.
    pub fn len(&self) -> usize {
        match self {
            Part::Bytes(bytes) => bytes.len(),
            Part::Range { len, .. } => *len,
        }
    }

    /// Leaves the first `count` bytes out.
    pub fn skip(&mut self, count: usize) {
        match self {
            Part::Bytes(bytes) => *bytes = &bytes[count..],
            Part::Range { from, len, .. } => {
                assert!(count <= *len, "no more than is left");
                *from += count as u64;
                *len -= count;
            }
        }
    }

    /// The first `count` bytes where they lie, if there are as many and nothing can change them.
    pub fn stable(&self, count: usize) -> Option<&'a [u8]> {
        match self {
            Part::Bytes(bytes) => bytes.get(..count),
            Part::Range { ring, from, len }
                if count <= *len && ring.flow_control() && !ring.is_peer_written() =>
            {
                let at = ring.raw(*from, count);
                // SAFETY: `raw` checks that the range is at most the ring's capacity, and the ring, which is borrowed for 'a, is
                // mapped twice: the range is one piece of memory. Only this process writes it, through the ring's one writer, which
                // with flow control does not reuse the range of a queued write (the contract of `Transport::write`).
                Some(unsafe { std::slice::from_raw_parts(at, count) })
            }
            Part::Range { .. } => None,
        }
    }

    /// Copies the first bytes to the whole of `to`, which is at most as long. Bytes that their writer overwrites meanwhile are
    /// copied as they are then.
    pub fn copy_to(&self, to: &mut [u8]) {
        match (self.stable(to.len()), self) {
            (Some(bytes), _) => to.copy_from_slice(bytes),
            (None, Part::Range { ring, from, .. }) => {
                // As with `Outgoing::detach`, the receiver verifies deliveries of rings without flow control.
                let _lapped = ring.view(*from, *from + to.len() as u64).copy_to(0, to);
            }
            (None, Part::Bytes(_)) => unreachable!("a part is at least as long as its copy"),
        }
    }
}

/// Sends the parts in order, as many as one system call takes. Returns how many bytes the kernel took and how many were
/// passed. A dead peer is an error and never a signal.
pub(super) fn send_parts<'a>(
    fd: BorrowedFd<'_>,
    parts: impl Iterator<Item = Part<'a>>,
) -> io::Result<(usize, usize)> {
    let mut iov = [const { MaybeUninit::<libc::iovec>::uninit() }; MAX_IOV];
    let (mut count, mut offered) = (0, 0);
    // The iterators run the loop: a loop around them would go through each of their layers again for each part.
    parts.take(MAX_IOV).for_each(|part| {
        let (base, len) = match part {
            Part::Bytes(bytes) => (bytes.as_ptr(), bytes.len()),
            Part::Range { ring, from, len } => {
                assert!(len as u64 <= ring.capacity(), "a range is at most its ring's capacity");
                (ring.raw(from, len), len)
            }
        };
        iov[count].write(libc::iovec { iov_base: base.cast_mut().cast(), iov_len: len });
        count += 1;
        offered += len;
    });
    // SAFETY: all zeroes is a valid msghdr (null pointers with length 0).
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = iov.as_mut_ptr().cast();
    message.msg_iovlen = count as _;
    // SAFETY: the first `count` iovecs were written. Each names memory that stays mapped for 'a, which outlives the
    // call: a borrowed slice, or a range of a borrowed ring (mapped twice, so that up to its capacity is contiguous).
    // The kernel only reads it; a ring that its writer changes during the call yields other bytes, no unsoundness here.
    let n = unsafe { libc::sendmsg(fd.as_raw_fd(), &message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) };
    let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
    Ok((n, offered))
}
