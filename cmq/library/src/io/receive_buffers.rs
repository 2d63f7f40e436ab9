//! The buffers that datagrams are received into.
//!
//! ```text
//!   call ──▶ ┌ buffer ─────────────────────────────────┐
//!            │ datagram │ datagram │ datagram │ …      │ ◀── messages in mailboxes may be parts of it
//!            └─────────────────────────────────────────┘
//! ```
//!
//! A buffer of which a message is kept is not reused until the message is dropped; another buffer takes its
//! place. A queue has at most [`MAX_BUFFERS`]. When messages pin all of them, received messages are copied.

use std::io::IoSliceMut;
use std::net::SocketAddr;
use std::ops::Range;

use quinn_udp::RecvMeta;

use crate::key::canonical;
use crate::proto::shared_buffer::SharedBuffer;

/// The most buffers for one call. Each is large enough for everything that the kernel coalesces.
pub(crate) const BUFFERS: usize = 8;
const BUFFER_BYTES: usize = 65_536;
/// The most buffers that messages may share.
const MAX_BUFFERS: usize = 32;
/// A buffer with fewer bytes is not shared: messages are copied out of it.
const MIN_SHARED_BYTES: usize = BUFFER_BYTES / 4;

/// The datagrams of one receive call.
pub(crate) struct ReceiveBuffers {
    /// The shareable buffers. The first ones are free when a call begins.
    buffers: Vec<SharedBuffer>,
    /// The buffer that is never shared, used while all others are held.
    unshared: SharedBuffer,
    metas: [RecvMeta; BUFFERS],
    /// How many buffers the last call filled.
    count: usize,
    /// True if the last call used the shareable buffers.
    shareable: bool,
    /// How many buffers the next call gets. A call that does not fill its buffers costs the kernel one more
    /// look in vain. The next call therefore gets several buffers only after calls that filled theirs with small
    /// datagrams; with large ones a call receives enough.
    next_count: usize,
    /// Where plain datagrams lie after [`ReceiveBuffers::open`]: their buffer, and their bytes in it.
    opened: Vec<(usize, Range<usize>)>,
}

impl ReceiveBuffers {
    pub fn new() -> ReceiveBuffers {
        ReceiveBuffers {
            buffers: Vec::new(),
            unshared: SharedBuffer::new(Vec::new()),
            metas: [RecvMeta::default(); BUFFERS],
            count: 0,
            shareable: true,
            next_count: 1,
            opened: Vec::new(),
        }
    }

    /// True if all buffers are filled: several calls in a row filled their buffers.
    pub fn is_full(&self) -> bool {
        self.count == BUFFERS
    }

    /// The datagrams with their senders, and the buffer if it may be shared.
    pub fn iter(&self) -> impl Iterator<Item = (SocketAddr, &[u8], Option<&SharedBuffer>)> {
        let buffers = if self.shareable { &self.buffers[..] } else { std::slice::from_ref(&self.unshared) };
        let filled = self.metas[..self.count].iter().zip(buffers);
        filled.flat_map(|(meta, buffer)| {
            let from = canonical(meta.addr);
            let shared = (self.shareable && meta.len >= MIN_SHARED_BYTES).then_some(buffer);
            let bytes = &buffer.as_bytes()[..meta.len];
            // An empty datagram has no chunks, and is reported all the same.
            let empty = bytes.is_empty().then_some(bytes);
            let datagrams = bytes.chunks(meta.stride.max(1)).chain(empty);
            datagrams.map(move |datagram| (from, datagram, shared))
        })
    }

    /// Opens the datagrams in place: `open` returns where the plain datagram lies in each of them, if there is one.
    pub fn open(&mut self, mut open: impl FnMut(SocketAddr, &mut [u8]) -> Option<Range<usize>>) {
        self.opened.clear();
        let buffers =
            if self.shareable { &mut self.buffers[..] } else { std::slice::from_mut(&mut self.unshared) };
        for (at, (meta, buffer)) in self.metas[..self.count].iter().zip(buffers).enumerate() {
            let bytes = &mut buffer.get_mut().expect("no message of this call is kept yet")[..meta.len];
            let stride = meta.stride.max(1);
            for (number, datagram) in bytes.chunks_mut(stride).enumerate() {
                if let Some(plain) = open(canonical(meta.addr), datagram) {
                    let begin = number * stride;
                    self.opened.push((at, begin + plain.start..begin + plain.end));
                }
            }
        }
    }

    /// The opened datagrams with their senders, and the buffer if it may be shared.
    pub fn opened(&self) -> impl Iterator<Item = (SocketAddr, &[u8], Option<&SharedBuffer>)> {
        self.opened.iter().map(|(at, plain)| {
            let (meta, buffer) =
                (&self.metas[*at], if self.shareable { &self.buffers[*at] } else { &self.unshared });
            let shared = (self.shareable && meta.len >= MIN_SHARED_BYTES).then_some(buffer);
            (canonical(meta.addr), &buffer.as_bytes()[plain.clone()], shared)
        })
    }

    /// Receives into free buffers: `call` returns how many it filled.
    pub fn fill<E>(
        &mut self,
        call: impl FnOnce(&mut [IoSliceMut<'_>], &mut [RecvMeta]) -> Result<usize, E>,
    ) -> Result<(), E> {
        self.count = 0;
        let mut count = self.prepare();
        self.shareable = count > 0;
        let buffers = if self.shareable {
            &mut self.buffers[..count]
        } else {
            count = 1;
            std::slice::from_mut(&mut self.unshared)
        };
        let mut slices: [IoSliceMut<'_>; BUFFERS] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
        for (slice, buffer) in slices.iter_mut().zip(buffers) {
            *slice = IoSliceMut::new(buffer.get_mut().expect("the buffer was just found free"));
        }
        self.count = call(&mut slices[..count], &mut self.metas)?;
        let bytes: usize = self.metas[..self.count].iter().map(|meta| meta.len).sum();
        let more = self.count == self.next_count && bytes < BUFFER_BYTES;
        self.next_count = if more { BUFFERS.min(2 * self.next_count) } else { 1 };
        Ok(())
    }

    /// True if the last call received datagrams.
    pub fn has_datagrams(&self) -> bool {
        self.count > 0
    }

    /// Moves free buffers to the front, at most `next_count`. Returns how many there are. With none, the
    /// unshared buffer is ready.
    fn prepare(&mut self) -> usize {
        for at in 0..self.next_count {
            let free = (at..self.buffers.len()).find(|&at| self.buffers[at].get_mut().is_some());
            match free {
                Some(free) => self.buffers.swap(at, free),
                None if self.buffers.len() < MAX_BUFFERS => {
                    self.buffers.push(SharedBuffer::new(vec![0; BUFFER_BYTES]));
                    let last = self.buffers.len() - 1;
                    self.buffers.swap(at, last);
                }
                None => {
                    if at == 0 && self.unshared.as_bytes().is_empty() {
                        self.unshared = SharedBuffer::new(vec![0; BUFFER_BYTES]);
                    }
                    return at;
                }
            }
        }
        self.next_count
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// Receives one datagram of this size. Returns a part of it, and whether the part lies in a shared
    /// buffer.
    fn come(buffers: &mut ReceiveBuffers, bytes: usize) -> (Bytes, bool) {
        let call = |slices: &mut [IoSliceMut<'_>], metas: &mut [RecvMeta]| {
            slices[0][..bytes].fill(7);
            (metas[0].len, metas[0].stride) = (bytes, bytes);
            Ok::<_, ()>(1)
        };
        buffers.fill(call).expect("the call receives a datagram");
        assert!(buffers.has_datagrams() && !buffers.is_full());
        let (_, datagram, buffer) = buffers.iter().next().expect("one");
        let part = &datagram[..9];
        (buffer.map_or_else(|| Bytes::copy_from_slice(part), |buffer| buffer.slice(part)), buffer.is_some())
    }

    /// A queue reports it, as every other foreign datagram.
    #[test]
    fn an_empty_datagram_is_a_datagram() {
        let mut buffers = ReceiveBuffers::new();
        let call = |_: &mut [IoSliceMut<'_>], metas: &mut [RecvMeta]| {
            (metas[0].len, metas[0].stride) = (0, 0);
            Ok::<_, ()>(1)
        };
        buffers.fill(call).expect("the call receives a datagram");
        assert_eq!(buffers.iter().map(|(_, datagram, _)| datagram).collect::<Vec<_>>(), [b""]);
    }

    /// Kept parts do not change, and pin at most [`MAX_BUFFERS`] buffers. Released buffers are used again.
    #[test]
    fn buffers_are_shared_and_reused() {
        let mut buffers = ReceiveBuffers::new();
        assert!(!come(&mut buffers, 100).1, "of little a copy is kept");
        let mut kept: Vec<_> = (0..100).map(|_| come(&mut buffers, MIN_SHARED_BYTES)).collect();
        assert_eq!(kept.iter().filter(|(_, buffer)| *buffer).count(), MAX_BUFFERS);
        assert!(kept.iter().all(|(part, _)| *part == [7; 9][..]));
        assert_eq!(buffers.buffers.len(), MAX_BUFFERS);
        kept.clear();
        let first = come(&mut buffers, MIN_SHARED_BYTES).0.as_ptr();
        assert!(come(&mut buffers, MIN_SHARED_BYTES) == (Bytes::from_static(&[7; 9]), true));
        assert_eq!(
            come(&mut buffers, MIN_SHARED_BYTES).0.as_ptr(),
            first,
            "the newest buffer is in the cache"
        );
    }
}
