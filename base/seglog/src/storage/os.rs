//! The operating system's files.

use std::fmt;
use std::fs;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use locks::FileLock;

use super::{File, OpenMode, Storage, map};

/// Files of the operating system, by `pread`, `pwritev`, `fdatasync` and `mmap`.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsStorage;

#[derive(Debug)]
struct OsFile<F>(F);

impl Storage for OsStorage {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        if path.is_dir() {
            return Ok(());
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        self.create_dir(parent)?;
        match private_files::create_new_folder(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => self.sync_dir(parent),
        }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        // A name that is no UTF-8 is none of the log's.
        fs::read_dir(path)?
            .filter_map(|entry| entry.map(|entry| entry.file_name().into_string().ok()).transpose())
            .collect()
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(mode != OpenMode::Read);
        if mode == OpenMode::Create {
            options = private_files::to_write();
            options.read(true).truncate(true);
        }
        Ok(Arc::new(OsFile(options.open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        fs::File::open(path)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Arc<dyn File>>> {
        let file = private_files::to_write().read(true).truncate(false).open(path)?;
        Ok(FileLock::try_exclusive(file)?.map(|lock| Arc::new(OsFile(lock)) as Arc<dyn File>))
    }

    fn boot(&self) -> [u8; 16] {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        u128::from_str_radix(&digits, 16).unwrap_or_default().to_be_bytes()
    }

    fn now(&self) -> u64 {
        // A clock before 1970 is a clock that is not set.
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
    }

    fn steady(&self) -> u64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
    }

    fn random(&self, bytes: &mut [u8]) -> io::Result<()> {
        getrandom::fill(bytes).map_err(io::Error::other)
    }
}

impl<F: AsFd + fmt::Debug + Send + Sync> File for OsFile<F> {
    fn size(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.0)?.st_size as u64)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pread(&self.0, buf, offset)?)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pwritev(&self.0, parts, offset)?)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        Ok(rustix::fs::ftruncate(&self.0, len)?)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fdatasync(&self.0)?)
    }

    fn map(&self, len: usize) -> io::Result<Option<Bytes>> {
        map::map(&self.0, len).map(Some)
    }
}
