//! The application's callbacks.

use std::sync::Arc;

use locks::{Mutex, RwLock};

use super::stream_event::StreamEvent;
use crate::chunk::ChunkRef;
use crate::ids::RsId;

/// One callback, which one thread at a time calls.
type Slot<F> = RwLock<Option<Arc<Mutex<F>>>>;

/// All callbacks of a manager. A callback may set callbacks, its own included: nothing here is locked during a call but the
/// callback itself.
#[derive(Default)]
pub struct Callbacks {
    chunk: Slot<Box<dyn FnMut(ChunkRef) + Send>>,
    event: Slot<Box<dyn FnMut(RsId, StreamEvent) + Send>>,
    outbound: Slot<Box<dyn FnMut(RsId, u64) + Send>>,
}

impl Callbacks {
    pub fn set_chunk(&self, callback: Box<dyn FnMut(ChunkRef) + Send>) {
        *self.chunk.write() = Some(Arc::new(Mutex::new(callback)));
    }

    pub fn set_event(&self, callback: Box<dyn FnMut(RsId, StreamEvent) + Send>) {
        *self.event.write() = Some(Arc::new(Mutex::new(callback)));
    }

    pub fn set_outbound(&self, callback: Box<dyn FnMut(RsId, u64) + Send>) {
        *self.outbound.write() = Some(Arc::new(Mutex::new(callback)));
    }

    pub fn chunk(&self, chunk: ChunkRef) {
        let callback = self.chunk.read().clone();
        if let Some(callback) = callback {
            callback.lock()(chunk);
        }
    }

    pub fn event(&self, id: RsId, event: StreamEvent) {
        let callback = self.event.read().clone();
        if let Some(callback) = callback {
            callback.lock()(id, event);
        }
    }

    pub fn outbound(&self, id: RsId, context: u64) {
        let callback = self.outbound.read().clone();
        if let Some(callback) = callback {
            callback.lock()(id, context);
        }
    }
}
