//! A file that a person has named, such as a configuration, a key or a token. Its path can lead to anything, also when the file is read
//! again. Therefore no file makes a program wait for ever, or fills its memory.
//!
//! ```text
//!   regular file, device                 read without waiting
//!   terminal                             read as long as somebody types
//!   pipe of the process's own            read to its end: <(…) of a shell is /dev/fd/63, and /dev/stdin has somebody who types
//!   other pipe     nobody writes to it   refused
//!                  somebody does         read to its end, within PATIENCE
//! ```
//!
//! A program that reads many files while others wait for it, as in a reload, has one time for all of them: [`with_patience`].

use std::cell::Cell;
use std::fs::{File, Metadata};
use std::io::{self, IsTerminal, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl, open};

/// How long the writer of a pipe may take until its end.
const PATIENCE: Duration = Duration::from_secs(10);
/// The memory for a file of unknown size at first. Secrets are shorter, so that no copy of them is left behind.
const FIRST_BYTES: u64 = 16 << 10;

thread_local! {
    /// The end of the patience of [`with_patience`].
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Calls a function in which all pipes together that this thread reads may take so long until their ends.
///
/// ```
/// use std::{path::Path, time::Duration};
/// use private_files::{GivenFile, with_patience};
/// let text = with_patience(Duration::from_secs(2), || GivenFile::open(Path::new("/dev/null"))?.text(99))?;
/// assert_eq!(text, "");
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn with_patience<T>(patience: Duration, read: impl FnOnce() -> T) -> T {
    /// Puts the deadline back also when `read` panics.
    struct Before(Option<Instant>);
    impl Drop for Before {
        fn drop(&mut self) {
            DEADLINE.set(self.0);
        }
    }
    let _before = Before(DEADLINE.replace(Some(Instant::now() + patience)));
    read()
}

/// A file that a person has named, opened to be read once.
pub struct GivenFile {
    file: File,
    metadata: Metadata,
    /// When the end of a pipe must be reached. None: the call never waits, or as long as it takes.
    until: Option<Instant>,
    /// Whether something was read.
    has_bytes: bool,
}

impl GivenFile {
    /// Opens a file. Nothing makes the call wait.
    ///
    /// # Errors
    /// The error of the system.
    pub fn open(path: &Path) -> io::Result<Self> {
        let own = is_own_descriptor(path);
        // Opening a pipe would wait for a writer.
        let how = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let file = File::from(open(path, how, Mode::empty())?);
        let waits = own || file.is_terminal();
        if waits {
            fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
        }
        let metadata = file.metadata()?;
        let until = (!waits && metadata.file_type().is_fifo()).then(|| {
            let until = Instant::now() + PATIENCE;
            DEADLINE.get().map_or(until, |deadline| deadline.min(until))
        });
        Ok(Self { file, metadata, until, has_bytes: false })
    }

    /// The metadata of what was opened.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The mode of what was opened.
    pub fn mode(&self) -> u32 {
        self.metadata.mode()
    }

    /// Reads all bytes, of which there may be `most`.
    ///
    /// # Errors
    /// The error of the system; there are more bytes; nobody writes to the pipe, or too slowly.
    pub fn bytes(self, most: u64) -> io::Result<Vec<u8>> {
        let expected = if self.metadata.is_file() { self.metadata.len() } else { FIRST_BYTES };
        let mut bytes = Vec::with_capacity(expected.min(most) as usize + 1);
        self.take(most + 1).read_to_end(&mut bytes)?;
        match bytes.len() as u64 > most {
            true => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("it has more than {most} bytes, the limit"),
            )),
            false => Ok(bytes),
        }
    }

    /// Reads all text, which may have `most` bytes.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes); the text is not UTF-8.
    pub fn text(self, most: u64) -> io::Result<String> {
        let text = String::from_utf8(self.bytes(most)?);
        text.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
    }

    /// Waits until the pipe has bytes, or its end.
    fn wait(&self) -> io::Result<()> {
        let Some(until) = self.until else {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "nothing can be read from it now"));
        };
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&left)) {
            Ok(0) => Err(io::Error::new(io::ErrorKind::TimedOut, "it is a pipe that does not end in time")),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Read for GivenFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.file.read(buffer) {
                Ok(0) if self.until.is_some() && !self.has_bytes && !buffer.is_empty() => {
                    return Err(io::Error::other("it is a pipe that nobody writes to"));
                }
                Ok(n) => {
                    self.has_bytes |= n > 0;
                    return Ok(n);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait()?,
                Err(error) => return Err(error),
            }
        }
    }
}

/// Whether the path leads to a descriptor that the process inherited.
fn is_own_descriptor(path: &Path) -> bool {
    path == Path::new("/dev/stdin")
        || ["/dev/fd", "/proc/self/fd"].iter().any(|folder| path.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::fd::AsRawFd;
    use std::path::PathBuf;

    use rustix::pty::OpenptFlags;

    use super::*;

    fn text(path: &Path, most: u64) -> Result<String, String> {
        GivenFile::open(path).and_then(|file| file.text(most)).map_err(|error| error.to_string())
    }

    fn pipe(folder: &Path) -> PathBuf {
        let path = folder.join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, Mode::RWXU).unwrap();
        path
    }

    #[test]
    fn files_and_devices_are_read_up_to_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "12345678").unwrap();
        assert_eq!(text(&path, 8).as_deref(), Ok("12345678"));
        assert_eq!(text(&path, 7), Err("it has more than 7 bytes, the limit".into()));
        assert_eq!(text("/dev/zero".as_ref(), 9), Err("it has more than 9 bytes, the limit".into()));
        assert_eq!(text("/dev/null".as_ref(), 9).as_deref(), Ok(""));
        assert!(text(folder.path(), 9).unwrap_err().contains("directory"));
        std::fs::write(&path, b"\xff").unwrap();
        assert_eq!(text(&path, 9), Err("it is not UTF-8".into()));
        assert_eq!(GivenFile::open(&path).unwrap().bytes(9).unwrap(), b"\xff");
    }

    #[test]
    fn a_pipe_is_read_if_somebody_writes_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = pipe(folder.path());
        assert_eq!(text(&path, 9), Err("it is a pipe that nobody writes to".into()));

        let reader = GivenFile::open(&path).unwrap();
        let mut writer = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        let read = std::thread::spawn(move || reader.text(99));
        writer.write_all(b"one ").unwrap();
        writer.write_all(b"two").unwrap();
        drop(writer);
        assert_eq!(read.join().unwrap().unwrap(), "one two");
    }

    #[test]
    fn a_pipe_without_an_end_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = pipe(folder.path());
        let mut reader = GivenFile::open(&path).unwrap();
        let mut writer = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        let other = GivenFile::open(&path).unwrap();
        writer.write_all(b"a line\nand half").unwrap();
        reader.until = Some(Instant::now());
        assert_eq!(reader.text(99).unwrap_err().kind(), io::ErrorKind::TimedOut);

        writer.write_all(b" a line\n").unwrap();
        let mut line = String::new();
        BufReader::new(other).read_line(&mut line).unwrap();
        assert_eq!(line, " a line\n", "the first line needs no end");
    }

    #[test]
    fn all_pipes_of_a_call_have_one_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = pipe(folder.path());
        let before = GivenFile::open(&path).unwrap();
        let _writer = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        for until in with_patience(Duration::ZERO, || [(); 2].map(|()| GivenFile::open(&path).unwrap().until))
        {
            assert!(until.unwrap() < before.until.unwrap());
        }
        let read = with_patience(Duration::ZERO, || text(&path, 9));
        assert_eq!(read, Err("it is a pipe that does not end in time".into()));
        assert!(GivenFile::open(&path).unwrap().until >= before.until);
    }

    #[test]
    fn a_terminal_is_read_as_long_as_somebody_types() {
        let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        rustix::pty::grantpt(&master).unwrap();
        rustix::pty::unlockpt(&master).unwrap();
        let name = rustix::pty::ptsname(&master, Vec::new()).unwrap();
        let given = GivenFile::open(Path::new(name.to_str().unwrap())).unwrap();
        assert!(!fcntl_getfl(&given.file).unwrap().contains(OFlags::NONBLOCK));
        File::from(master.try_clone().unwrap()).write_all(b"typed\n").unwrap();
        let mut line = String::new();
        BufReader::new(given).read_line(&mut line).unwrap();
        assert_eq!(line, "typed\n");
    }

    #[test]
    fn the_writer_of_an_own_descriptor_has_time() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"substituted").unwrap();
        let path = PathBuf::from(format!("/dev/fd/{}", reader.as_raw_fd()));
        let given = GivenFile::open(&path).unwrap();
        assert!(given.until.is_none(), "it is waited for");
        drop(writer);
        assert_eq!(given.text(99).unwrap(), "substituted");
    }
}
