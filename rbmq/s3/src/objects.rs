//! The objects that were read last, of all logs. A subscriber gets an object in pieces.

use std::collections::VecDeque;
use std::sync::Arc;

use locks::Mutex;
use rocketbufs::{Epoch, Position};

use super::object::Object;

/// The most objects. Each thread that reads archives reads one at a time; there are two.
const MOST: usize = 4;

/// The objects, the last used one in front.
#[derive(Default)]
pub(crate) struct Objects(Mutex<VecDeque<Arc<Object>>>);

impl Objects {
    /// The object of a log with this position.
    pub(crate) fn get(&self, epoch: Epoch, position: Position) -> Option<Arc<Object>> {
        let mut objects = self.0.lock();
        let is_it = |object: &Arc<Object>| object.header.epoch == epoch && object.range().contains(&position);
        let found = objects.iter().position(is_it)?;
        let object = objects.remove(found)?;
        objects.push_front(object.clone());
        Some(object)
    }

    /// Whether an object is known that ends here: the next one is called after its end.
    pub(crate) fn ends_at(&self, epoch: Epoch, position: Position) -> bool {
        self.0.lock().iter().any(|object| object.header.epoch == epoch && object.range().end == position)
    }

    pub(crate) fn put(&self, object: Arc<Object>) {
        let mut objects = self.0.lock();
        objects.push_front(object);
        objects.truncate(MOST);
    }
}
