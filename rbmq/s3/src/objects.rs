//! The objects that were read last, of all logs. A subscriber gets an object in pieces.

use std::collections::VecDeque;
use std::sync::Arc;

use locks::Mutex;
use rocketbufs::{Epoch, Position};

use super::object::{HEADER_BYTES, Object};

/// The most objects. Each thread that reads archives reads one at a time; there are two.
const MOST: usize = 4;

/// The objects, the last used one in front.
pub(crate) struct Objects {
    kept: Mutex<VecDeque<Arc<Object>>>,
    /// The most bytes. The last object is kept however large it is.
    most_bytes: usize,
}

impl Objects {
    /// Room for the objects of batches of so many bytes.
    pub(crate) fn new(batch_bytes: u64) -> Self {
        let batch_bytes = usize::try_from(batch_bytes).unwrap_or(usize::MAX);
        let most_bytes = batch_bytes.saturating_add(HEADER_BYTES).saturating_mul(MOST);
        Self { kept: Mutex::default(), most_bytes }
    }

    /// The object of a log with this position.
    pub(crate) fn get(&self, epoch: Epoch, position: Position) -> Option<Arc<Object>> {
        let mut objects = self.kept.lock();
        let is_it = |object: &Arc<Object>| object.header.epoch == epoch && object.range().contains(&position);
        let found = objects.iter().position(is_it)?;
        let object = objects.remove(found)?;
        objects.push_front(object.clone());
        Some(object)
    }

    /// Whether an object is known that ends here: the next one is called after its end.
    pub(crate) fn ends_at(&self, epoch: Epoch, position: Position) -> bool {
        self.kept.lock().iter().any(|object| object.header.epoch == epoch && object.range().end == position)
    }

    pub(crate) fn put(&self, object: Arc<Object>) {
        let mut objects = self.kept.lock();
        objects.push_front(object);
        objects.truncate(MOST);
        let bytes =
            |objects: &VecDeque<Arc<Object>>| -> usize { objects.iter().map(|object| object.size()).sum() };
        while objects.len() > 1 && bytes(&objects) > self.most_bytes {
            objects.pop_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::object::{Header, decode, encode};
    use super::*;

    #[test]
    fn large_objects_leave_no_room_for_others() {
        let objects = Objects::new(100);
        let put = |position: Position, len: usize| {
            let header = Header { epoch: Epoch(1), writer: 0, term: 0, position, begin: position };
            let object = decode(encode(&header, &[], &vec![0; len]), Epoch(1), position).unwrap();
            objects.put(Arc::new(object));
        };
        let there = |at: [Position; 5]| at.map(|at| objects.get(Epoch(1), at).is_some());
        for at in 0..5 {
            put(at * 100, 100);
        }
        assert_eq!(there([0, 100, 200, 300, 400]), [false, true, true, true, true]);
        put(500, 1_000);
        assert_eq!(there([100, 200, 300, 400, 500]), [false, false, false, false, true]);
    }
}
