//! A storage in memory that fails as disks and machines do, from a seed.
//!
//! The storage keeps two states of each file and directory: the one that programs see, and the one on the disk. A write
//! changes the first only. A sync moves everything of one file, or one directory, to the second. [`SimStorage::crash`]
//! stops the machine. Each sector of 512 bytes and each change of a name that was not synced survives or not, by chance
//! and independently of the others, so writes are reordered, lost and torn. A failed sync behaves as Linux does: the
//! pages that it did not write are taken for clean, and no later sync writes them.
//!
//! ```
//! use std::sync::Arc;
//! use seglog::{Log, Options, SyncPolicy};
//! use seglog_sim::SimStorage;
//!
//! let disk = SimStorage::new(7);
//! let mut log = Log::open_on(Arc::new(disk.clone()), "log", Options::default().sync(SyncPolicy::EachAppend))?;
//! log.append(b"durable")?;
//! disk.crash();
//! assert!(log.append(b"the machine is off").is_err());
//! drop(log);
//! let log = Log::open_on(Arc::new(disk), "log", Options::default())?;
//! assert_eq!(log.end(), 7);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use locks::Mutex;
use rustix::io::Errno;

use seglog::storage::{File, OpenMode, Storage};

/// The bytes that a disk writes whole or not at all.
const SECTOR: usize = 512;

/// The operations that can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// `EIO` from reads.
    Read,
    /// `EIO` from writes, after a part was written.
    Write,
    /// `EIO` from syncs of files.
    Sync,
    /// `EIO` from syncs of directories.
    SyncDir,
    /// `EIO` when files are created, renamed or removed.
    Name,
}

/// The disk and the machine. Clones are the same machine.
#[derive(Debug, Clone)]
pub struct SimStorage(Arc<Mutex<Disk>>);

#[derive(Debug)]
struct Disk {
    random: u64,
    now: u64,
    /// How often the machine was started. Files and locks of an earlier life are dead.
    life: u64,
    /// After how many more operations the power goes off.
    power: Option<u32>,
    /// Bytes that all files together may have.
    capacity: u64,
    /// The faults from now on: the operation, the number of successes before, and the number of failures.
    faults: Vec<(Fault, u32, u32)>,
    files: BTreeMap<u64, Content>,
    next_file: u64,
    /// The names that programs see, and those on the disk.
    names: BTreeMap<PathBuf, u64>,
    durable_names: BTreeMap<PathBuf, u64>,
    dirs: BTreeSet<PathBuf>,
    locks: BTreeSet<PathBuf>,
}

/// A file.
#[derive(Debug, Default)]
struct Content {
    seen: Vec<u8>,
    disk: Vec<u8>,
    /// Sectors that were written since the last sync, successful or not.
    dirty: BTreeSet<usize>,
    /// Whether the length changed since then.
    resized: bool,
}

impl Disk {
    fn random(&mut self) -> u64 {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn chance(&mut self) -> bool {
        self.random() & 1 == 1
    }

    /// Fails if this is to fail now.
    fn check(&mut self, fault: Fault) -> io::Result<()> {
        match &mut self.power {
            Some(0) => return Err(Errno::IO.into()),
            Some(left) => *left -= 1,
            None => {}
        }
        let Some(at) = self.faults.iter().position(|(kind, _, _)| *kind == fault) else { return Ok(()) };
        let (_, after, times) = &mut self.faults[at];
        if *after > 0 {
            *after -= 1;
            return Ok(());
        }
        *times -= 1;
        if *times == 0 {
            self.faults.remove(at);
        }
        Err(Errno::IO.into())
    }

    fn used(&self) -> u64 {
        self.names.values().map(|file| self.files[file].seen.len() as u64).sum()
    }

    fn file(&mut self, file: u64) -> &mut Content {
        self.files.entry(file).or_default()
    }

    /// The file of this name, made if it does not exist.
    fn named(&mut self, path: &Path) -> u64 {
        if let Some(file) = self.names.get(path) {
            return *file;
        }
        let file = self.next_file;
        self.next_file += 1;
        self.file(file);
        self.names.insert(path.to_owned(), file);
        file
    }

    fn crash(&mut self) {
        self.life += 1;
        self.power = None;
        self.faults.clear();
        self.locks.clear();
        let names: BTreeSet<PathBuf> = self.names.keys().chain(self.durable_names.keys()).cloned().collect();
        for name in names {
            if self.names.get(&name) != self.durable_names.get(&name) && self.chance() {
                match self.names.get(&name) {
                    Some(file) => drop(self.durable_names.insert(name, *file)),
                    None => drop(self.durable_names.remove(&name)),
                }
            }
        }
        self.names = self.durable_names.clone();
        let ids: Vec<u64> = self.files.keys().copied().collect();
        for id in ids {
            let mut content = self.files.remove(&id).unwrap_or_default();
            self.settle(&mut content);
            self.files.insert(id, content);
        }
    }

    /// Writes some sectors to the disk by itself, as kernels do.
    fn write_back(&mut self, file: u64) {
        if !self.random().is_multiple_of(8) {
            return;
        }
        let mut content = self.files.remove(&file).unwrap_or_default();
        let dirty: Vec<usize> = content.dirty.iter().copied().collect();
        for sector in dirty.into_iter().filter(|_| self.chance()) {
            let end = ((sector + 1) * SECTOR).min(content.seen.len());
            content.disk.resize(content.disk.len().max(end), 0);
            copy_sector(&content.seen, &mut content.disk, sector);
            content.dirty.remove(&sector);
        }
        self.files.insert(file, content);
    }

    /// Decides which parts of a file survive.
    fn settle(&mut self, content: &mut Content) {
        if content.resized && self.chance() {
            content.disk.resize(content.seen.len(), 0);
        } else if content.resized && content.seen.len() > content.disk.len() {
            // A length between the two.
            let grown = content.seen.len() - content.disk.len();
            let len = content.disk.len() + (self.random() % (grown as u64 + 1)) as usize;
            content.disk.resize(len, 0);
        }
        for sector in std::mem::take(&mut content.dirty) {
            if self.chance() {
                copy_sector(&content.seen, &mut content.disk, sector);
            }
        }
        content.resized = false;
        content.seen = content.disk.clone();
    }
}

/// Copies a sector as far as both have it.
fn copy_sector(from: &[u8], to: &mut [u8], sector: usize) {
    let start = sector * SECTOR;
    let end = (start + SECTOR).min(from.len()).min(to.len());
    if start < end {
        to[start..end].copy_from_slice(&from[start..end]);
    }
}

impl SimStorage {
    /// An empty disk without a limit. The same seed and calls give the same results.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Disk {
            random: seed,
            now: 1_000_000,
            life: 0,
            power: None,
            capacity: u64::MAX,
            faults: Vec::new(),
            files: BTreeMap::new(),
            next_file: 0,
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            dirs: BTreeSet::new(),
            locks: BTreeSet::new(),
        })))
    }

    /// Stops the machine and starts it again. Open files and locks are dead; their users get errors.
    pub fn crash(&self) {
        self.0.lock().crash();
    }

    /// Takes the power away after this many more operations: all later ones fail and change nothing, until [`crash`](Self::crash)
    /// starts the machine again.
    pub fn power_off_after(&self, operations: u32) {
        self.0.lock().power = Some(operations);
    }

    /// How many more operations there is power for; `None` without a limit.
    pub fn power_left(&self) -> Option<u32> {
        self.0.lock().power
    }

    /// Makes operations of a kind fail: after `after` more successes, `times` times.
    pub fn fail(&self, fault: Fault, after: u32, times: u32) {
        if times > 0 {
            self.0.lock().faults.push((fault, after, times));
        }
    }

    /// Nothing fails any more.
    pub fn heal(&self) {
        self.0.lock().faults.clear();
    }

    /// Limits the bytes of all files together. A write that goes beyond writes the part that fits, and then fails with
    /// `ENOSPC`.
    pub fn set_capacity(&self, bytes: u64) {
        self.0.lock().capacity = bytes;
    }

    /// Bytes of all files together.
    pub fn used(&self) -> u64 {
        self.0.lock().used()
    }

    /// Moves the clock.
    pub fn advance(&self, milliseconds: u64) {
        self.0.lock().now += milliseconds;
    }

    /// Sets the clock to a time, in milliseconds since 1970.
    pub fn set_clock(&self, milliseconds: u64) {
        self.0.lock().now = milliseconds;
    }

    /// Makes the memory of the machine lose what it takes for clean: programs see what is on the disk, except for what was written
    /// since the last sync.
    pub fn drop_caches(&self) {
        for content in self.0.lock().files.values_mut() {
            let mut fresh = content.disk.clone();
            fresh.resize(content.seen.len(), 0);
            for sector in &content.dirty {
                copy_sector(&content.seen, &mut fresh, *sector);
            }
            content.seen = fresh;
        }
    }

    /// The bytes of a file, as programs see them.
    pub fn contents(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let disk = self.0.lock();
        disk.names.get(path.as_ref()).map(|file| disk.files[file].seen.clone())
    }

    /// Replaces the bytes of a file, durably: damage, or a file from elsewhere.
    pub fn set_contents(&self, path: impl AsRef<Path>, bytes: Vec<u8>) {
        let mut disk = self.0.lock();
        let next = disk.next_file;
        let file = *disk.names.entry(path.as_ref().to_owned()).or_insert(next);
        disk.next_file += u64::from(file == next);
        disk.durable_names.insert(path.as_ref().to_owned(), file);
        disk.dirs.extend(path.as_ref().parent().map(Path::to_owned));
        disk.files.insert(file, Content { seen: bytes.clone(), disk: bytes, ..Content::default() });
    }
}

#[derive(Debug)]
struct SimFile {
    disk: SimStorage,
    file: u64,
    life: u64,
    writable: bool,
    /// The name that it locks.
    locked: Option<PathBuf>,
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut disk = self.disk.0.lock();
        if let Some(path) = self.locked.take_if(|_| disk.life == self.life) {
            disk.locks.remove(&path);
        }
    }
}

impl Storage for SimStorage {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.0.lock().dirs.insert(path.to_owned());
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let disk = self.0.lock();
        if !disk.dirs.contains(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let inside = disk.names.keys().filter(|name| name.parent() == Some(path));
        Ok(inside.filter_map(|name| Some(name.file_name()?.to_str()?.to_owned())).collect())
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut disk = self.0.lock();
        let file = match disk.names.get(path).copied() {
            Some(file) if mode == OpenMode::Create => {
                disk.check(Fault::Name)?;
                disk.file(file).truncate(0);
                file
            }
            Some(file) => file,
            None if mode == OpenMode::Create => {
                disk.check(Fault::Name)?;
                disk.named(path)
            }
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        let (life, writable) = (disk.life, mode != OpenMode::Read);
        Ok(Arc::new(SimFile { disk: self.clone(), file, life, writable, locked: None }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut disk = self.0.lock();
        disk.check(Fault::Name)?;
        let file = disk.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        disk.names.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.0.lock();
        disk.check(Fault::Name)?;
        disk.names.remove(path).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.0.lock();
        disk.check(Fault::SyncDir)?;
        disk.durable_names.retain(|name, _| name.parent() != Some(path));
        let inside: Vec<_> = disk
            .names
            .iter()
            .filter(|(name, _)| name.parent() == Some(path))
            .map(|(name, file)| (name.clone(), *file))
            .collect();
        disk.durable_names.extend(inside);
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Arc<dyn File>>> {
        let mut disk = self.0.lock();
        if !disk.locks.insert(path.to_owned()) {
            return Ok(None);
        }
        let file = disk.named(path);
        let (life, locked) = (disk.life, Some(path.to_owned()));
        Ok(Some(Arc::new(SimFile { disk: self.clone(), file, life, writable: true, locked })))
    }

    fn boot(&self) -> [u8; 16] {
        // Zeros would be a machine that does not say.
        u128::from(self.0.lock().life + 1).to_be_bytes()
    }

    fn now(&self) -> u64 {
        self.0.lock().now
    }

    fn random(&self, bytes: &mut [u8]) -> io::Result<()> {
        let mut disk = self.0.lock();
        bytes.fill_with(|| disk.random() as u8);
        Ok(())
    }
}

impl Content {
    fn truncate(&mut self, len: usize) {
        self.resized |= len != self.seen.len();
        if len > self.seen.len() {
            self.dirty.extend(self.seen.len() / SECTOR..=len / SECTOR);
        }
        self.seen.resize(len, 0);
    }

    fn write(&mut self, bytes: &[u8], offset: usize) {
        let end = offset + bytes.len();
        if end > self.seen.len() {
            self.truncate(end);
        }
        self.seen[offset..end].copy_from_slice(bytes);
        self.dirty.extend(offset / SECTOR..=(end.max(1) - 1) / SECTOR);
    }
}

impl SimFile {
    /// Does something with the file, if the machine has not stopped since it was opened.
    fn with<R>(&self, act: impl FnOnce(&mut Disk, u64) -> io::Result<R>) -> io::Result<R> {
        let mut disk = self.disk.0.lock();
        if disk.life != self.life || disk.power == Some(0) {
            return Err(Errno::IO.into());
        }
        act(&mut disk, self.file)
    }

    fn written<R>(&self, act: impl FnOnce(&mut Disk, u64) -> io::Result<R>) -> io::Result<R> {
        if self.writable { self.with(act) } else { Err(Errno::BADF.into()) }
    }
}

impl File for SimFile {
    fn size(&self) -> io::Result<u64> {
        self.with(|disk, file| Ok(disk.file(file).seen.len() as u64))
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.with(|disk, file| {
            disk.check(Fault::Read)?;
            // A read may return less than it could.
            let most = if disk.random().is_multiple_of(8) { buf.len().div_ceil(2) } else { buf.len() };
            let seen = &disk.file(file).seen;
            let start = seen.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
            let count = most.min(seen.len() - start);
            buf[..count].copy_from_slice(&seen[start..start + count]);
            Ok(count)
        })
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.written(|disk, file| {
            let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
            let room = disk.capacity.saturating_sub(disk.used());
            let inside = (disk.file(file).seen.len() as u64).saturating_sub(offset);
            let mut fits =
                bytes.len().min(usize::try_from(inside.saturating_add(room)).unwrap_or(usize::MAX));
            let checked = disk.check(Fault::Write);
            // A write may do less than it could, and does some of it before it fails.
            if checked.is_err() || disk.random().is_multiple_of(8) {
                fits = fits.div_ceil(2);
            }
            let start = usize::try_from(offset).map_err(|_| Errno::FBIG)?;
            disk.file(file).write(&bytes[..fits], start);
            disk.write_back(file);
            checked?;
            if fits == 0 && !bytes.is_empty() { Err(Errno::NOSPC.into()) } else { Ok(fits) }
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.written(|disk, file| {
            disk.check(Fault::Write)?;
            disk.file(file).truncate(usize::try_from(len).map_err(|_| Errno::FBIG)?);
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|disk, file| {
            if let Err(error) = disk.check(Fault::Sync) {
                let mut content = disk.files.remove(&file).unwrap_or_default();
                // Some of it reached the disk. The rest counts as clean, and is what `drop_caches` makes vanish.
                let seen = std::mem::take(&mut content.seen);
                content.seen.clone_from(&seen);
                disk.settle(&mut content);
                content.seen = seen;
                disk.files.insert(file, content);
                return Err(error);
            }
            let content = disk.file(file);
            content.disk.resize(content.seen.len(), 0);
            for sector in std::mem::take(&mut content.dirty) {
                copy_sector(&content.seen, &mut content.disk, sector);
            }
            content.resized = false;
            Ok(())
        })
    }

    fn map(&self, len: usize) -> io::Result<Option<Bytes>> {
        self.with(|disk, file| Ok(disk.file(file).seen.get(..len).map(Bytes::copy_from_slice)))
    }
}
