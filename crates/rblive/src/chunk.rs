//! Chunks: memory of a stream's buffer, to be filled on a dissemination node and to be read on a delivery node.

use std::ops::Range;

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

    /// The memory to fill. It has what was in the buffer before.
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
/// A reference holds nothing: new data overwrites the oldest chunks of the stream. Each read finds out whether its bytes were
/// still there, and fails with [`Lapped`] if not. The chunk was whole when it arrived: its consistency markers were checked.
///
/// A web server passes the bytes on without a copy, encrypts or sends them with [`ChunkRef::lend`], and ends the viewer's
/// response when that fails.
#[derive(Clone, Debug)]
pub struct ChunkRef {
    pub(crate) stream: RsId,
    pub(crate) range: RangeRef,
}

/// Why a chunk cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// New data has taken the place of the chunk.
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
    /// The stream of the chunk.
    pub fn stream(&self) -> RsId {
        self.stream
    }

    /// The position of the first byte in the stream.
    pub fn position(&self) -> Position {
        self.range.position()
    }

    /// The size in bytes.
    pub fn size(&self) -> usize {
        self.range.len()
    }

    /// A part of the chunk, in bytes from its beginning.
    ///
    /// # Panics
    /// If the part is not within the chunk.
    pub fn part(&self, range: Range<usize>) -> Self {
        Self { stream: self.stream, range: self.range.part(range) }
    }

    /// The header of the chunk, and a reference to the payload alone.
    ///
    /// # Errors
    /// [`ReadError`]: the chunk was overwritten, or has no header of [`content`](crate::content).
    pub fn content(&self) -> Result<(Header, Self), ReadError> {
        let mut bytes = [0; HEADER_BYTES];
        let have = self.size().min(HEADER_BYTES);
        self.range.copy_to(0, &mut bytes[..have])?;
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
        self.range.check()
    }

    /// Copies bytes from `offset` on, and then checks that they were not overwritten during the copy.
    ///
    /// # Errors
    /// [`Lapped`]: the copied bytes are invalid.
    ///
    /// # Panics
    /// If the bytes are not within the chunk.
    pub fn copy_to(&self, offset: usize, dst: &mut [u8]) -> Result<(), Lapped> {
        self.range.copy_to(offset, dst)
    }

    /// A copy of all bytes.
    ///
    /// # Errors
    /// As [`ChunkRef::copy_to`].
    pub fn to_vec(&self) -> Result<Vec<u8>, Lapped> {
        self.range.to_vec()
    }

    /// Lends the bytes in place to `read`, and then checks that they were not overwritten meanwhile. If they were before, `read`
    /// is not called.
    ///
    /// # Errors
    /// [`Lapped`]: what `read` made of the bytes must not be used. Bytes that it already sent may be mixed: the response that they
    /// belong to must end with an error.
    ///
    /// # Safety
    /// The bytes may change while `read` runs. `read` must give the slice only to code that reads each byte once and decides
    /// nothing by it, such as a system call, a cipher or a checksum, and must not keep it.
    #[allow(unsafe_code)]
    pub unsafe fn lend<R>(&self, read: impl FnOnce(&[u8]) -> R) -> Result<R, Lapped> {
        // SAFETY: the caller's promise is the one that is asked for.
        unsafe { self.range.lend(read) }
    }
}
