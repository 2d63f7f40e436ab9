//! Memory that received messages lie in: it lives while a message keeps a part of it, and is reused
//! afterwards.

use std::cell::OnceCell;
use std::sync::Arc;

use bytes::Bytes;

/// A buffer of which others may keep parts.
#[derive(Debug)]
pub struct SharedBuffer {
    memory: Arc<Vec<u8>>,
    /// The whole buffer as `Bytes`, made on first use.
    all: OnceCell<Bytes>,
}

/// The owner of the memory behind [`Bytes`].
struct Owner(Arc<Vec<u8>>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl SharedBuffer {
    /// A buffer with one holder.
    pub fn new(memory: Vec<u8>) -> SharedBuffer {
        SharedBuffer { memory: Arc::new(memory), all: OnceCell::new() }
    }

    /// The whole buffer.
    pub fn as_bytes(&self) -> &[u8] {
        &self.memory
    }

    /// A part of the buffer, which keeps the buffer alive.
    ///
    /// # Panics
    /// If `part` does not lie in this buffer.
    pub fn slice(&self, part: &[u8]) -> Bytes {
        let all = self.all.get_or_init(|| Bytes::from_owner(Owner(Arc::clone(&self.memory))));
        let start = part.as_ptr().addr() - self.memory.as_ptr().addr();
        all.slice(start..start + part.len())
    }

    /// The buffer for writing, if no part of it is held.
    pub(crate) fn get_mut(&mut self) -> Option<&mut [u8]> {
        self.all.take();
        Arc::get_mut(&mut self.memory).map(Vec::as_mut_slice)
    }

    /// The capacity of the buffer.
    pub(crate) fn capacity(&self) -> usize {
        self.memory.capacity()
    }

    /// The memory, if no part of it is held.
    pub(crate) fn into_vec(mut self) -> Option<Vec<u8>> {
        self.all.take();
        Arc::into_inner(self.memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_released_with_its_last_part() {
        let mut buffer = SharedBuffer::new(b"onetwo".to_vec());
        let (one, two) = (buffer.slice(&buffer.as_bytes()[..3]), buffer.slice(&buffer.as_bytes()[3..]));
        assert_eq!((&one[..], &two[..]), (&b"one"[..], &b"two"[..]));
        assert_eq!(one.as_ptr(), buffer.as_bytes().as_ptr(), "the slice is not copied");
        drop(one);
        assert!(buffer.get_mut().is_none());
        drop(two);
        buffer.get_mut().expect("no part is held")[0] = b'0';
        let kept = buffer.slice(&buffer.as_bytes()[..3]);
        assert_eq!((buffer.into_vec(), kept), (None, Bytes::from_static(b"0ne")));
        assert_eq!(SharedBuffer::new(vec![7]).into_vec(), Some(vec![7]));
    }
}
