//! Memory that messages lie in where they arrived: who keeps one keeps all of it, and when nobody does any more it is used
//! again.

use std::cell::OnceCell;
use std::sync::Arc;

use bytes::Bytes;

/// Bytes that others may keep parts of.
#[derive(Debug)]
pub struct Lent {
    memory: Arc<Vec<u8>>,
    /// All of it as parts are made of it; only once one is.
    all: OnceCell<Bytes>,
}

/// What [`Bytes`] want of their owner.
struct Owner(Arc<Vec<u8>>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Lent {
    /// Nobody else has anything of these.
    pub fn new(memory: Vec<u8>) -> Lent {
        Lent { memory: Arc::new(memory), all: OnceCell::new() }
    }

    /// All of it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.memory
    }

    /// A part of it, to be kept.
    ///
    /// # Panics
    /// It is no part of it.
    pub fn part(&self, part: &[u8]) -> Bytes {
        let all = self.all.get_or_init(|| Bytes::from_owner(Owner(Arc::clone(&self.memory))));
        let start = part.as_ptr().addr() - self.memory.as_ptr().addr();
        all.slice(start..start + part.len())
    }

    /// To be written anew, if nobody keeps a part.
    pub(crate) fn free(&mut self) -> Option<&mut [u8]> {
        self.all.take();
        Arc::get_mut(&mut self.memory).map(Vec::as_mut_slice)
    }

    /// Bytes that it keeps from others.
    pub(crate) fn capacity(&self) -> usize {
        self.memory.capacity()
    }

    /// The memory, if nobody keeps a part.
    pub(crate) fn into_memory(mut self) -> Option<Vec<u8>> {
        self.all.take();
        Arc::into_inner(self.memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_with_its_last_part() {
        let mut lent = Lent::new(b"onetwo".to_vec());
        let (one, two) = (lent.part(&lent.as_bytes()[..3]), lent.part(&lent.as_bytes()[3..]));
        assert_eq!((&one[..], &two[..]), (&b"one"[..], &b"two"[..]));
        assert_eq!(one.as_ptr(), lent.as_bytes().as_ptr(), "it is not copied");
        drop(one);
        assert!(lent.free().is_none());
        drop(two);
        lent.free().expect("nobody has a part")[0] = b'0';
        let kept = lent.part(&lent.as_bytes()[..3]);
        assert_eq!((lent.into_memory(), kept), (None, Bytes::from_static(b"0ne")));
        assert_eq!(Lent::new(vec![7]).into_memory(), Some(vec![7]));
    }
}
