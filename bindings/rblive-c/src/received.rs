//! Received chunks that the application has not returned: their memory stays mapped.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use rblive::{ChunkRef, RsId};

/// The chunks of each stream, the oldest first, with the addresses of their bytes.
#[derive(Default)]
pub struct Received(Mutex<HashMap<RsId, VecDeque<(usize, ChunkRef)>>>);

impl Received {
    /// Keeps a chunk, and returns where its bytes are. None if it was overwritten already.
    pub fn keep(&self, chunk: ChunkRef) -> Option<*const c_void> {
        // SAFETY: no byte is read.
        let data = unsafe { chunk.lend(|bytes| bytes.as_ptr()) }.ok()?;
        let mut streams = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        streams.entry(chunk.stream()).or_default().push_back((data.addr(), chunk));
        Some(data.cast())
    }

    /// Whether the chunk at `data` was not overwritten.
    pub fn is_intact(&self, id: RsId, data: *const c_void) -> bool {
        let streams = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The same memory is used again and again: the newest chunk there is the one that is meant, unless it was overwritten.
        let chunks = streams.get(&id).into_iter().flatten().rev();
        let mut at = chunks.filter(|(address, _)| *address == data.addr());
        at.next().is_some_and(|(_, chunk)| chunk.check().is_ok())
    }

    /// Drops the oldest chunks of `size` bytes in all.
    pub fn consume(&self, id: RsId, mut size: usize) {
        let mut streams = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(chunks) = streams.get_mut(&id) else { return };
        while let Some((_, chunk)) = chunks.front()
            && chunk.size() <= size
        {
            size -= chunk.size();
            chunks.pop_front();
        }
        if chunks.is_empty() {
            streams.remove(&id);
        }
    }
}
