//! Writing of ring memory in place. The only file of this crate with `unsafe`.

#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Write};

use rblive::{ChunkRef, Lapped};

/// Why a part of a segment was not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    #[error(transparent)]
    Overtaken(#[from] Lapped),
    #[error(transparent)]
    Disk(#[from] io::Error),
}

/// Appends a chunk to a file, straight from the ring.
///
/// # Errors
/// The chunk was overwritten, so that the file may have mixed bytes and must not be used; or the disk failed.
pub(crate) fn write(mut file: &File, chunk: &ChunkRef) -> Result<(), WriteError> {
    // SAFETY: the system call reads each byte once, and decides nothing by it.
    let written = unsafe { chunk.lend(|bytes| file.write_all(bytes)) };
    Ok(written??)
}
