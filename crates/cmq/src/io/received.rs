//! What one call to the socket brings, and the buffers it is brought in.
//!
//! ```text
//!   call ──▶ ┌ buffer ─────────────────────────────────┐
//!            │ datagram │ datagram │ datagram │ …      │ ◀── messages in mailboxes are parts of it, where it is worth it
//!            └─────────────────────────────────────────┘
//! ```
//!
//! A buffer of which somebody keeps a part is left alone until nobody does, and another one takes its place: up to
//! [`LENT`] of them, whatever is kept. After that what comes is copied.

use std::io::IoSliceMut;
use std::net::SocketAddr;

use quinn_udp::RecvMeta;

use crate::key::canonical;
use crate::proto::lent::Lent;

/// Buffers for one call, each large enough for whatever the kernel puts together.
pub(crate) const BUFFERS: usize = 8;
const BUFFER_BYTES: usize = 65_536;
/// Buffers that parts of may be kept.
const LENT: usize = 32;
/// What a buffer has to have in it to be lent: of less a copy is kept.
const WORTH: usize = BUFFER_BYTES / 4;

/// What one call received.
pub(crate) struct Received {
    /// The first ones are free when a call begins.
    buffers: Vec<Lent>,
    /// The one that is never lent.
    own: Lent,
    metas: [RecvMeta; BUFFERS],
    /// Buffers that the last call filled.
    count: usize,
    /// These are the buffers, and not the one that is never lent.
    lends: bool,
    /// Buffers for the next call: the kernel looks once more in vain for each call that does not fill them, so there
    /// are more only after calls that did, of small datagrams: of large ones a call brings enough.
    offered: usize,
}

impl Received {
    pub fn new() -> Received {
        Received {
            buffers: Vec::new(),
            own: Lent::new(Vec::new()),
            metas: [RecvMeta::default(); BUFFERS],
            count: 0,
            lends: true,
            offered: 1,
        }
    }

    /// Whether all buffers are filled: several calls in a row brought as many datagrams as they had room for.
    pub fn is_all(&self) -> bool {
        self.count == BUFFERS
    }

    /// Each datagram with its sender, and what it lies in, if that may be kept.
    pub fn iter(&self) -> impl Iterator<Item = (SocketAddr, &[u8], Option<&Lent>)> {
        let buffers = if self.lends { &self.buffers[..] } else { std::slice::from_ref(&self.own) };
        let filled = self.metas[..self.count].iter().zip(buffers);
        filled.flat_map(|(meta, buffer)| {
            let from = canonical(meta.addr);
            let lent = (self.lends && meta.len >= WORTH).then_some(buffer);
            let datagrams = buffer.as_bytes()[..meta.len].chunks(meta.stride.max(1));
            datagrams.map(move |datagram| (from, datagram, lent))
        })
    }

    /// What `call` does with buffers that nobody keeps a part of; it says how many it filled.
    pub fn fill<E>(
        &mut self,
        call: impl FnOnce(&mut [IoSliceMut<'_>], &mut [RecvMeta]) -> Result<usize, E>,
    ) -> Result<(), E> {
        self.count = 0;
        let mut free = self.free();
        self.lends = free > 0;
        let buffers = if self.lends {
            &mut self.buffers[..free]
        } else {
            free = 1;
            std::slice::from_mut(&mut self.own)
        };
        let mut slices: [IoSliceMut<'_>; BUFFERS] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
        for (slice, buffer) in slices.iter_mut().zip(buffers) {
            *slice =
                IoSliceMut::new(buffer.free().expect("it was free just now, and nobody else can lend it"));
        }
        self.count = call(&mut slices[..free], &mut self.metas)?;
        let bytes: usize = self.metas[..self.count].iter().map(|meta| meta.len).sum();
        let more = self.count == self.offered && bytes < BUFFER_BYTES;
        self.offered = if more { BUFFERS.min(2 * self.offered) } else { 1 };
        Ok(())
    }

    /// Whether the last call brought anything.
    pub fn is_some(&self) -> bool {
        self.count > 0
    }

    /// Puts free buffers to the front, as many as are wanted, if there are; how many. If there is none, the other one is ready.
    fn free(&mut self) -> usize {
        for at in 0..self.offered {
            let free = (at..self.buffers.len()).find(|&at| self.buffers[at].free().is_some());
            match free {
                Some(free) => self.buffers.swap(at, free),
                None if self.buffers.len() < LENT => {
                    self.buffers.push(Lent::new(vec![0; BUFFER_BYTES]));
                    let last = self.buffers.len() - 1;
                    self.buffers.swap(at, last);
                }
                None => {
                    if at == 0 && self.own.as_bytes().is_empty() {
                        self.own = Lent::new(vec![0; BUFFER_BYTES]);
                    }
                    return at;
                }
            }
        }
        self.offered
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// A call that brings one datagram of so many bytes; the part of it that is kept, and whether it lies in the buffer.
    fn come(received: &mut Received, bytes: usize) -> (Bytes, bool) {
        let call = |slices: &mut [IoSliceMut<'_>], metas: &mut [RecvMeta]| {
            slices[0][..bytes].fill(7);
            (metas[0].len, metas[0].stride) = (bytes, bytes);
            Ok::<_, ()>(1)
        };
        received.fill(call).expect("it brings something");
        assert!(received.is_some() && !received.is_all());
        let (_, datagram, lent) = received.iter().next().expect("one");
        let part = &datagram[..9];
        (lent.map_or_else(|| Bytes::copy_from_slice(part), |lent| lent.part(part)), lent.is_some())
    }

    /// What is kept stays as it came, whatever comes then, and keeps no more than so many buffers; given back, they are used
    /// again.
    #[test]
    fn buffers_are_lent_and_come_back() {
        let mut received = Received::new();
        assert!(!come(&mut received, 100).1, "of little a copy is kept");
        let mut kept: Vec<_> = (0..100).map(|_| come(&mut received, WORTH)).collect();
        assert_eq!(kept.iter().filter(|(_, lent)| *lent).count(), LENT);
        assert!(kept.iter().all(|(part, _)| *part == [7; 9][..]));
        assert_eq!(received.buffers.len(), LENT);
        kept.clear();
        let first = come(&mut received, WORTH).0.as_ptr();
        assert!(come(&mut received, WORTH) == (Bytes::from_static(&[7; 9]), true));
        assert_eq!(come(&mut received, WORTH).0.as_ptr(), first, "it is in the cache");
    }
}
