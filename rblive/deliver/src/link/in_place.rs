//! Encryption of ring memory in place. The only file of this crate with `unsafe`.

#![allow(unsafe_code)]

use std::io;

use rblive::ChunkRef;
use tls13::{Content, Out, Session};

/// Seals a piece of a chunk into records for a socket, straight from the ring. They must not be written if the writer of the ring
/// overwrote the piece meanwhile.
///
/// # Errors
/// The piece was overwritten. The connection must be closed without writing the buffered bytes.
pub(super) fn seal(session: &mut Session, piece: &ChunkRef, out: &mut Out) -> io::Result<()> {
    // SAFETY: the cipher reads each byte once, out of the ring into a record that belongs to this connection, and nothing is decided
    // by it. The slice ends with the call.
    let sealed = unsafe { piece.lend(|bytes| session.send(Content::Data, bytes, out)) };
    sealed.map_err(io::Error::other)?.map_err(io::Error::other)
}
