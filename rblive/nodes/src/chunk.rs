//! Chunks: memory of a stream's buffer, to be filled on a dissemination node and to be read on a delivery node.

use std::ops::Range;
use std::sync::{Arc, Weak};

use rocketbufs::{Lapped, OutSegment, Position, RangeRef};

use crate::content::{HEADER_BYTES, Header, HeaderError};
use crate::ids::RsId;

/// A one-shot chunk of a stream's buffer, from [`RsManager::allocate_chunk`](crate::RsManager::allocate_chunk). The
/// application owns the memory until it passes the chunk to
/// [`RsManager::disseminate_chunk`](crate::RsManager::disseminate_chunk) or drops it.
#[derive(Debug)]
pub struct RsChunk {
    pub(crate) stream: RsId,
    pub(crate) segment: OutSegment,
}

impl RsChunk {
    /// The stream of the chunk.
    pub fn stream(&self) -> RsId {
        self.stream
    }

    /// The memory to fill. The memory has the bytes that were in the buffer before.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.segment.bytes_mut()
    }

    /// The size in bytes.
    pub fn size(&self) -> usize {
        self.segment.len()
    }
}

/// A reference to a chunk of a stream on a delivery node: stream, position and size. Cloning it is cheap.
///
/// A reference does not keep the bytes: new data overwrites the oldest chunks of the stream. Each read checks that its bytes were not
/// overwritten, and fails with [`Lapped`] otherwise. The chunk was complete when it arrived: its consistency markers were checked.
///
/// A web server passes the bytes on without a copy, encrypts or sends them with [`ChunkRef::lend`], and ends the viewer's
/// response when that fails.
#[derive(Clone, Debug)]
pub struct ChunkRef {
    pub(crate) stream: RsId,
    memory: Memory,
}

/// The memory of a chunk.
#[derive(Clone, Debug)]
enum Memory {
    /// In the stream's buffer.
    Ring(RangeRef),
    /// In memory of the application, which may drop it.
    Lent { bytes: Weak<Vec<u8>>, range: Range<usize>, position: Position },
}

impl Memory {
    /// The bytes, if the application still has them.
    fn lent(bytes: &Weak<Vec<u8>>, range: &Range<usize>) -> Result<Arc<Vec<u8>>, Lapped> {
        bytes.upgrade().ok_or(Lapped { by: range.len() as u64 })
    }
}

/// Why a chunk cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// New data has overwritten the chunk.
    #[error(transparent)]
    Lapped(#[from] Lapped),
    /// The chunk has no valid header.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The chunk is shorter than its header says.
    #[error("the header of the chunk says {need} bytes of payload, there are {have}")]
    Short {
        /// Bytes of the payload, as the header says.
        need: u32,
        /// Bytes after the header.
        have: usize,
    },
}

impl ChunkRef {
    pub(crate) fn of(stream: RsId, range: RangeRef) -> Self {
        Self { stream, memory: Memory::Ring(range) }
    }

    /// A chunk in memory of the application, for applications that get chunks by other ways than from a dissemination node.
    /// `position` is the position of the first byte in the stream. The reference does not keep the memory: after the application has
    /// dropped it, reads fail with [`Lapped`], as those of an overwritten chunk do.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use rblive::{ChunkRef, RsId};
    /// let memory = Arc::new(b"chunk".to_vec());
    /// let chunk = ChunkRef::lent(RsId::from_u64(1), 0, &memory);
    /// assert_eq!(chunk.to_vec()?, b"chunk");
    /// drop(memory);
    /// assert!(chunk.to_vec().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lent(stream: RsId, position: Position, bytes: &Arc<Vec<u8>>) -> Self {
        let range = 0..bytes.len();
        Self { stream, memory: Memory::Lent { bytes: Arc::downgrade(bytes), range, position } }
    }

    /// The stream of the chunk.
    pub fn stream(&self) -> RsId {
        self.stream
    }

    /// The position of the first byte in the stream.
    pub fn position(&self) -> Position {
        match &self.memory {
            Memory::Ring(range) => range.position(),
            Memory::Lent { position, .. } => *position,
        }
    }

    /// The size in bytes.
    pub fn size(&self) -> usize {
        match &self.memory {
            Memory::Ring(range) => range.len(),
            Memory::Lent { range, .. } => range.len(),
        }
    }

    /// A part of the chunk, in bytes from its beginning.
    ///
    /// # Panics
    /// If the part is not within the chunk.
    pub fn part(&self, range: Range<usize>) -> Self {
        let memory = match &self.memory {
            Memory::Ring(ring) => Memory::Ring(ring.part(range)),
            Memory::Lent { bytes, range: own, position } => {
                assert!(range.start <= range.end && range.end <= own.len(), "the part is within the chunk");
                let position = position + range.start as u64;
                let range = own.start + range.start..own.start + range.end;
                Memory::Lent { bytes: bytes.clone(), range, position }
            }
        };
        Self { stream: self.stream, memory }
    }

    /// The header of the chunk, and a reference to the payload alone.
    ///
    /// # Errors
    /// [`ReadError`]: the chunk was overwritten, or has no header of [`content`](crate::content).
    pub fn content(&self) -> Result<(Header, Self), ReadError> {
        let mut bytes = [0; HEADER_BYTES];
        let have = self.size().min(HEADER_BYTES);
        self.copy_to(0, &mut bytes[..have])?;
        let header = Header::decode(&bytes[..have])?;
        let have = self.size() - HEADER_BYTES;
        if header.payload_bytes as usize > have {
            return Err(ReadError::Short { need: header.payload_bytes, have });
        }
        Ok((header, self.part(HEADER_BYTES..HEADER_BYTES + header.payload_bytes as usize)))
    }

    /// Checks that the chunk was not overwritten.
    ///
    /// # Errors
    /// [`Lapped`]: bytes were overwritten, or are about to be.
    pub fn check(&self) -> Result<(), Lapped> {
        match &self.memory {
            Memory::Ring(range) => range.check(),
            Memory::Lent { bytes, range, .. } => Memory::lent(bytes, range).map(drop),
        }
    }

    /// The bytes that the stream wrote from this chunk on, as a share of its buffer: 0 when the chunk arrives. The chunk is overwritten
    /// when the share reaches 1, or up to an eighth earlier. A chunk in memory of the application has 0.
    pub fn age(&self) -> f64 {
        match &self.memory {
            Memory::Ring(range) => range.age(),
            Memory::Lent { .. } => 0.0,
        }
    }

    /// Copies bytes from `offset` on, and then checks that they were not overwritten during the copy.
    ///
    /// # Errors
    /// [`Lapped`]: the copied bytes are invalid.
    ///
    /// # Panics
    /// If the bytes are not within the chunk.
    pub fn copy_to(&self, offset: usize, dst: &mut [u8]) -> Result<(), Lapped> {
        match &self.memory {
            Memory::Ring(range) => range.copy_to(offset, dst),
            Memory::Lent { bytes, range, .. } => {
                let bytes = Memory::lent(bytes, range)?;
                dst.copy_from_slice(&bytes[range.clone()][offset..offset + dst.len()]);
                Ok(())
            }
        }
    }

    /// A copy of all bytes.
    ///
    /// # Errors
    /// As [`ChunkRef::copy_to`].
    pub fn to_vec(&self) -> Result<Vec<u8>, Lapped> {
        match &self.memory {
            Memory::Ring(range) => range.to_vec(),
            Memory::Lent { bytes, range, .. } => Ok(Memory::lent(bytes, range)?[range.clone()].to_vec()),
        }
    }

    /// Lends the bytes in place to `read`, and then checks that they were not overwritten meanwhile. If they were before, `read`
    /// is not called.
    ///
    /// # Errors
    /// [`Lapped`]: the result of `read` must not be used. Bytes that it already sent may be mixed, so the response that they belong to
    /// must end with an error.
    ///
    /// # Safety
    /// The bytes may change while `read` runs. `read` must give the slice only to code that reads each byte once and decides
    /// nothing by it, such as a system call, a cipher or a checksum, and must not keep it.
    #[allow(unsafe_code)]
    pub unsafe fn lend<R>(&self, read: impl FnOnce(&[u8]) -> R) -> Result<R, Lapped> {
        match &self.memory {
            // SAFETY: the caller's promise is the one that is asked for.
            Memory::Ring(range) => unsafe { range.lend(read) },
            Memory::Lent { bytes, range, .. } => Ok(read(&Memory::lent(bytes, range)?[range.clone()])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Kind;

    #[test]
    fn a_chunk_in_memory_of_the_application_is_read_as_one_of_a_ring() {
        let header = Header { payload_bytes: 5, ..Header::new(Kind::Media) };
        let memory = Arc::new([&header.encode()[..], b"hello!"].concat());
        let chunk = ChunkRef::lent(RsId::from_u64(1), 100, &memory);
        let (read, payload) = chunk.content().unwrap();
        assert_eq!((read, payload.position(), payload.size()), (header, 164, 5));
        assert_eq!((payload.to_vec(), payload.check()), (Ok(b"hello".to_vec()), Ok(())));
        assert_eq!(payload.age(), 0.0);
        assert_eq!(payload.part(1..3).to_vec().unwrap(), b"el");
        let mut two = [0; 2];
        payload.part(2..5).copy_to(1, &mut two).unwrap();
        assert_eq!(&two, b"lo");
        assert!(std::panic::catch_unwind(|| payload.part(4..6)).is_err());
        drop(memory);
        assert!(
            payload.check().is_err() && payload.copy_to(0, &mut two).is_err() && chunk.content().is_err()
        );
    }
}
