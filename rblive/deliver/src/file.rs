//! Parts of files, read in pieces.
//!
//! A piece that is in the page cache is read at once, on the thread that serves viewers. Any other piece is read by a thread that may
//! wait for the disk. With `sendfile`, live viewers would wait for the disk; with a mapping, the process would end when a file is cut.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::io::{Errno, ReadWriteFlags, preadv2};

/// A part of a file that does not change.
#[derive(Debug, Clone)]
pub(crate) struct FilePart {
    file: Arc<File>,
    from: u64,
    to: u64,
}

impl FilePart {
    /// The first `bytes` bytes of a file.
    pub fn new(file: File, bytes: u64) -> Self {
        Self { file: Arc::new(file), from: 0, to: bytes }
    }

    pub fn len(&self) -> usize {
        usize::try_from(self.to - self.from).unwrap_or(usize::MAX)
    }

    /// The bytes `from..to` of this part.
    pub fn cut(&self, from: usize, to: usize) -> Self {
        Self {
            file: self.file.clone(),
            from: self.from + from as u64,
            to: self.to.min(self.from + to as u64),
        }
    }

    /// Reads the next bytes into the beginning of `to`, and removes them from this part. 0: the part is empty.
    ///
    /// # Errors
    /// The disk fails, or the file is shorter than it was.
    pub async fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.len().min(to.len());
        let to = &mut to[..count];
        if count == 0 {
            return Ok(0);
        }
        let read = preadv2(&*self.file, &mut [IoSliceMut::new(to)], self.from, ReadWriteFlags::NOWAIT);
        let count = match read {
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::INTR) => self.wait(to).await?,
            Err(error) => return Err(error.into()),
        };
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.from += count as u64;
        Ok(count)
    }

    /// Reads on a thread that may wait for the disk.
    async fn wait(&self, to: &mut [u8]) -> io::Result<usize> {
        let (file, from, count) = (self.file.clone(), self.from, to.len());
        let read = move || {
            let mut bytes = vec![0; count];
            let count = file.read_at(&mut bytes, from)?;
            bytes.truncate(count);
            Ok::<_, io::Error>(bytes)
        };
        let bytes = tokio::task::spawn_blocking(read).await.map_err(io::Error::other)??;
        to[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut part: FilePart, piece: usize) -> io::Result<Vec<u8>> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (mut bytes, mut buffer) = (Vec::new(), vec![0; piece]);
            loop {
                match part.read(&mut buffer).await? {
                    0 => return Ok(bytes),
                    count => bytes.extend_from_slice(&buffer[..count]),
                }
            }
        })
    }

    #[test]
    fn a_part_has_its_bytes_and_a_shorter_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let bytes: Vec<u8> = (0..200_000u32).map(|at| at as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let part = FilePart::new(File::open(&path).unwrap(), bytes.len() as u64);
        assert_eq!(all(part.clone(), 64 << 10).unwrap(), bytes);
        assert_eq!(all(part.cut(10, 150_000), 1000).unwrap(), &bytes[10..150_000]);
        assert_eq!(all(part.cut(10, 150_000).cut(5, 7), 1000).unwrap(), &bytes[15..17]);
        let cut = File::options().write(true).open(&path).unwrap();
        cut.set_len(100_000).unwrap();
        assert!(all(part, 1000).is_err());
    }
}
