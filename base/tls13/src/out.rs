//! Bytes that are ready for a socket.
//!
//! A connection has a buffer only while something waits in it. Buffers come from a few spare ones of the thread and return to them,
//! so that one piece after the other, of one viewer after the other, is encrypted into memory that the processor's cache still has.

use std::cell::RefCell;

use super::record::{MAX_PLAIN, OVERHEAD};

/// Records that are written at once.
const RECORDS: usize = 8;

/// Bytes that are encrypted and written at once.
pub const PIECE: usize = RECORDS * MAX_PLAIN;

/// Room for small records beside: the head of an answer, a change of keys, an alert.
const HEAD_ROOM: usize = 8 << 10;

const CAPACITY: usize = PIECE + RECORDS * OVERHEAD + HEAD_ROOM;

/// The buffers that a thread keeps for later.
const MAX_SPARE: usize = 4;

thread_local! {
    static SPARE: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer: `bytes[from..to]` waits for the socket.
#[derive(Debug)]
pub struct Out {
    bytes: Box<[u8]>,
    from: usize,
    to: usize,
}

impl Out {
    /// An empty buffer, a spare one of this thread if there is one.
    pub fn take() -> Self {
        let spare = SPARE.with_borrow_mut(Vec::pop);
        let bytes = spare.unwrap_or_else(|| vec![0; CAPACITY].into_boxed_slice());
        Self { bytes, from: 0, to: 0 }
    }

    /// The bytes that wait.
    pub fn waiting(&self) -> &[u8] {
        &self.bytes[self.from..self.to]
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.from == self.to
    }

    /// Notes that the first `count` waiting bytes were written.
    pub fn written(&mut self, count: usize) {
        self.from += count;
        if self.is_empty() {
            (self.from, self.to) = (0, 0);
        }
    }

    /// The room behind what waits. [`Out::filled`] says how much of it was filled.
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.to..]
    }

    /// Notes that the first `count` bytes of the room wait now.
    pub fn filled(&mut self, count: usize) {
        self.to += count;
        debug_assert!(self.to <= self.bytes.len(), "the room was filled");
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        // A thread that ends has no spare buffers any more.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < MAX_SPARE {
                spare.push(bytes);
            }
        });
    }
}
