//! Encryption of ring memory in place. The only file of this crate with `unsafe`.

#![allow(unsafe_code)]

use std::io::{self, Write};

use rblive::ChunkRef;
use rustls::ServerConnection;

/// Encrypts a piece of a chunk into the buffer of a TLS connection, straight from the ring. The records wait there until they are
/// written to the socket; they must not be if the writer of the ring overwrote the piece meanwhile.
///
/// # Errors
/// The piece was overwritten. The connection must be closed without writing what it has buffered.
pub(crate) fn encrypt(tls: &mut ServerConnection, piece: &ChunkRef) -> io::Result<()> {
    // SAFETY: the TLS library reads each byte once, to copy it into the record that it then encrypts, and decides nothing by it.
    let written = unsafe { piece.lend(|bytes| tls.writer().write_all(bytes)) };
    written.map_err(io::Error::other)?
}
