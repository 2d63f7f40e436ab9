//! What a connection still has to send: ranges of the log of frames, and bytes of its own, in order.

use std::collections::VecDeque;
use std::io::IoSlice;

use super::frames::Frames;
use crate::protocol::Range;

/// The most pieces that one call of the system takes.
pub(crate) const MAX_SLICES: usize = 64;

/// Memory of an empty outbox beyond this is given back.
const KEPT_BYTES: usize = 4 << 10;

#[derive(Debug, Clone, Copy)]
enum Piece {
    /// Bytes of the log of frames.
    Shared(Range),
    /// The next bytes of this connection's own: replies.
    Own(usize),
    /// The same, of frames that were copied out of the log.
    Kept(usize),
}

impl Piece {
    fn len(self) -> usize {
        match self {
            Self::Shared(range) => range.len as usize,
            Self::Own(len) | Self::Kept(len) => len,
        }
    }
}

/// The queue of a connection. See the module.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pieces: VecDeque<Piece>,
    own: Vec<u8>,
    /// So many bytes of `own` have been sent.
    own_sent: usize,
    bytes: u64,
    replies: usize,
}

impl Outbox {
    /// The number of bytes to send.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The number of those that are replies.
    pub(crate) fn reply_bytes(&self) -> usize {
        self.replies
    }

    /// The number of pieces, each of which costs memory.
    pub(crate) fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// The memory in use, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.own.len() + self.pieces.len() * size_of::<Piece>()
    }

    /// Whether everything is sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Appends bytes of the connection's own.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.own.extend_from_slice(bytes);
        self.bytes += bytes.len() as u64;
        self.replies += bytes.len();
        match self.pieces.back_mut() {
            Some(Piece::Own(len)) => *len += bytes.len(),
            _ => self.pieces.push_back(Piece::Own(bytes.len())),
        }
    }

    /// Appends a copy of frames.
    fn copy(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.own.extend_from_slice(bytes);
        self.bytes += bytes.len() as u64;
        match self.pieces.back_mut() {
            Some(Piece::Kept(len)) => *len += bytes.len(),
            _ => self.pieces.push_back(Piece::Kept(bytes.len())),
        }
    }

    /// Appends a range of the log of frames.
    pub(crate) fn push(&mut self, range: Range, frames: &Frames) {
        if range.len == 0 {
            return;
        }
        self.bytes += u64::from(range.len);
        if let Some(Piece::Shared(last)) = self.pieces.back_mut()
            && frames.are_adjacent(*last, range)
            && let Some(len) = last.len.checked_add(range.len)
        {
            last.len = len;
            return;
        }
        self.pieces.push_back(Piece::Shared(range));
    }

    /// The position of the oldest byte of the log of frames that is needed.
    pub(crate) fn oldest(&self) -> Option<u64> {
        let position = |piece: &Piece| match piece {
            Piece::Shared(range) => Some(range.position),
            Piece::Own(_) | Piece::Kept(_) => None,
        };
        // A head may have been framed after the payload that follows it.
        self.pieces.iter().filter_map(position).min()
    }

    /// The number of bytes that [`Outbox::keep`] would copy.
    pub(crate) fn shared_below(&self, tail: u64) -> usize {
        self.pieces.iter().map(|piece| piece.below(tail)).sum()
    }

    /// Copies everything below a position out of the log of frames, which is about to overwrite it.
    pub(crate) fn keep(&mut self, tail: u64, frames: &Frames) {
        let mut kept = Self::default();
        let mut at = self.own_sent;
        for piece in std::mem::take(&mut self.pieces) {
            match piece {
                Piece::Shared(range) => {
                    let copied = u32::try_from(piece.below(tail)).expect("at most the range");
                    kept.copy(frames.get(Range { len: copied, ..range }));
                    let position = range.position + u64::from(copied);
                    kept.push(Range { position, len: range.len - copied }, frames);
                }
                Piece::Own(len) => {
                    kept.send(&self.own[at..at + len]);
                    at += len;
                }
                Piece::Kept(len) => {
                    kept.copy(&self.own[at..at + len]);
                    at += len;
                }
            }
        }
        *self = kept;
    }

    /// Points to the next pieces to send, of at most so many bytes. Returns their number.
    pub(crate) fn slices<'a>(
        &'a self,
        frames: &'a Frames,
        most: usize,
        slices: &mut [IoSlice<'a>; MAX_SLICES],
    ) -> usize {
        let (mut at, mut left, mut used) = (self.own_sent, most, 0);
        for (piece, slice) in self.pieces.iter().zip(slices) {
            let bytes = match *piece {
                Piece::Shared(range) => frames.get(range),
                Piece::Own(len) | Piece::Kept(len) => {
                    at += len;
                    &self.own[at - len..at]
                }
            };
            if left == 0 {
                break;
            }
            *slice = IoSlice::new(&bytes[..bytes.len().min(left)]);
            left -= slice.len();
            used += 1;
        }
        used
    }

    /// So many bytes were sent.
    pub(crate) fn sent(&mut self, mut count: usize) {
        self.bytes -= count as u64;
        while count > 0 {
            let Some(piece) = self.pieces.front_mut() else { break };
            let step = piece.len().min(count);
            count -= step;
            match piece {
                Piece::Shared(range) => {
                    range.position += step as u64;
                    range.len -= u32::try_from(step).expect("at most the range");
                }
                Piece::Own(len) => {
                    *len -= step;
                    self.own_sent += step;
                    self.replies -= step;
                }
                Piece::Kept(len) => {
                    *len -= step;
                    self.own_sent += step;
                }
            }
            if piece.len() == 0 {
                self.pieces.pop_front();
            }
        }
        self.tidy();
    }

    /// Gives memory back that has been sent.
    fn tidy(&mut self) {
        if self.own_sent == self.own.len() {
            self.own.clear();
            self.own_sent = 0;
            if self.own.capacity() > KEPT_BYTES {
                self.own = Vec::new();
            }
        } else if self.own_sent > self.own.len() / 2 && self.own_sent > KEPT_BYTES {
            self.own.drain(..self.own_sent);
            self.own_sent = 0;
        }
        if self.pieces.is_empty() && self.pieces.capacity() * size_of::<Piece>() > KEPT_BYTES {
            self.pieces = VecDeque::new();
        }
    }
}

impl Piece {
    /// How many of its bytes lie below a position of the log of frames.
    fn below(self, tail: u64) -> usize {
        match self {
            Self::Shared(range) => usize::try_from(tail.saturating_sub(range.position).min(range.len.into()))
                .expect("at most the range"),
            Self::Own(_) | Self::Kept(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::strategy::Strategy as _;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Send(usize),
        Push(usize),
        Again,
        Sent(usize),
    }

    fn contents(outbox: &Outbox, frames: &Frames) -> Vec<u8> {
        first(usize::MAX, outbox, frames)
    }

    fn first(most: usize, outbox: &Outbox, frames: &Frames) -> Vec<u8> {
        let mut slices = [IoSlice::new(&[]); MAX_SLICES];
        let used = outbox.slices(frames, most, &mut slices);
        slices[..used].iter().flat_map(|slice| slice.to_vec()).collect()
    }

    proptest::proptest! {
        /// Against a plain vector of bytes.
        #[test]
        fn an_outbox_is_a_queue_of_bytes(steps in proptest::collection::vec(proptest::prop_oneof![
            (0..40_usize).prop_map(Step::Send),
            (0..60_usize).prop_map(Step::Push),
            proptest::strategy::Just(Step::Again),
            (0..100_usize).prop_map(Step::Sent),
        ], 1..60)) {
            let (mut outbox, mut frames, mut model) = (Outbox::default(), Frames::new(256), Vec::new());
            let (mut next, mut last) = (0_u8, None);
            let mut fresh = |len: usize| -> Vec<u8> { (0..len).map(|_| { next = next.wrapping_add(1); next }).collect() };
            for step in steps {
                match step {
                    Step::Send(len) => {
                        let bytes = fresh(len);
                        outbox.send(&bytes);
                        model.extend_from_slice(&bytes);
                    }
                    Step::Push(len) => {
                        let bytes = fresh(len);
                        let tail = frames.tail_after(len);
                        if outbox.oldest().is_some_and(|oldest| oldest < tail) {
                            let before = outbox.reply_bytes();
                            outbox.keep(tail, &frames);
                            proptest::prop_assert_eq!(outbox.reply_bytes(), before);
                            proptest::prop_assert_eq!(outbox.shared_below(tail), 0);
                        }
                        let range = frames.append(&[&bytes]);
                        outbox.push(range, &frames);
                        model.extend_from_slice(&bytes);
                        last = Some((range, bytes));
                    }
                    Step::Again => if let Some((range, bytes)) = &last
                        && range.position >= frames.tail_after(0)
                    {
                        outbox.push(*range, &frames);
                        model.extend_from_slice(bytes);
                    },
                    Step::Sent(len) => {
                        let len = len.min(contents(&outbox, &frames).len());
                        outbox.sent(len);
                        model.drain(..len);
                    }
                }
                let shown = contents(&outbox, &frames);
                proptest::prop_assert_eq!(first(shown.len() / 2, &outbox, &frames), &shown[..shown.len() / 2]);
                proptest::prop_assert_eq!(&model[..shown.len()], &shown[..]);
                proptest::prop_assert!(shown.len() == model.len() || outbox.pieces() > MAX_SLICES);
                proptest::prop_assert_eq!(outbox.bytes(), model.len() as u64);
                proptest::prop_assert_eq!(outbox.is_empty(), model.is_empty());
            }
        }
    }
}
