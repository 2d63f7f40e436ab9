//! A disk that is slow, and that forgets what was not synced when its power is cut: a file system of the test's own (FUSE), in memory.

mod files;

use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use testkit::Random;

use files::{Files, Node, Number, Place};

/// The kernel asks again each time: a cut changes what it knows.
const FRESH: Duration = Duration::ZERO;
const BLOCK: usize = 4096;

/// A disk that is mounted.
pub(crate) struct Disk {
    desk: Arc<Desk>,
    /// Unmounts it.
    _session: BackgroundSession,
}

struct Desk {
    files: Mutex<Files>,
    /// Decides how long each write and each sync takes. None: no time.
    slowness: Mutex<Option<Random>>,
}

struct Mounted(Arc<Desk>);

impl Disk {
    /// An empty disk with room for so many bytes.
    ///
    /// # Errors
    /// The system does not let us.
    pub(crate) fn mount(at: &Path, room: usize) -> std::io::Result<Self> {
        let desk = Desk { files: Mutex::new(Files::new(room)), slowness: Mutex::default() };
        let desk = Arc::new(desk);
        let session = fuser::spawn_mount(Mounted(desk.clone()), at, &fuser::Config::default())?;
        Ok(Self { desk, _session: session })
    }

    /// Whether this machine lets a test mount a file system of its own.
    pub(crate) fn can_mount() -> bool {
        let folder = tempfile::tempdir().expect("a folder");
        Self::mount(folder.path(), BLOCK).is_ok()
    }

    /// From now on each write takes some time, and each sync more. None: it is as fast as it can be.
    pub(crate) fn slow_down(&self, seed: Option<u64>) {
        *self.desk.slowness.lock().expect("no panic") = seed.map(Random::new);
    }

    /// The power is cut, while nobody uses the disk.
    pub(crate) fn cut(&self, seed: u64) {
        self.desk.files().cut(&mut Random::new(seed));
    }
}

impl Desk {
    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().expect("no panic")
    }

    fn wait(&self, is_sync: bool) {
        let mut slowness = self.slowness.lock().expect("no panic");
        let time = slowness.as_mut().map(|random| match (is_sync, random.below(100)) {
            // It stands still, for longer than a broker may take for healthy.
            (true, 0..4) => random.between(1_200, 2_500),
            (true, _) => random.between(20, 200),
            (false, _) => random.between(0, 5),
        });
        drop(slowness);
        time.map(Duration::from_millis).into_iter().for_each(std::thread::sleep);
    }

    fn attributes(&self, number: Number) -> Result<FileAttr, Errno> {
        self.files().node(number).map(|node| attributes(number, node))
    }
}

fn attributes(number: Number, node: &Node) -> FileAttr {
    let size = node.bytes().len() as u64;
    FileAttr {
        ino: INodeNo(number),
        size,
        blocks: size.div_ceil(512),
        atime: node.changed,
        mtime: node.changed,
        ctime: node.changed,
        crtime: node.changed,
        kind: kind(node),
        perm: node.mode,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: BLOCK as u32,
        flags: 0,
    }
}

fn kind(node: &Node) -> FileType {
    if node.is_folder() { FileType::Directory } else { FileType::RegularFile }
}

/// Answers with an outcome, in the way of this kind of answer.
macro_rules! answer {
    ($reply:ident, $outcome:expr, $with:expr) => {
        match $outcome {
            Ok(value) => $with(value),
            Err(error) => $reply.error(error),
        }
    };
}

impl Mounted {
    fn sync(&self, number: Number, reply: ReplyEmpty) {
        self.0.wait(true);
        answer!(reply, self.0.files().sync(number), |()| reply.ok());
    }

    fn make(&self, parent: INodeNo, name: &OsStr, mode: u32, is_folder: bool) -> Result<FileAttr, Errno> {
        let number = self.0.files().make(parent.0, name, mode, is_folder)?;
        self.0.attributes(number)
    }
}

impl Filesystem for Mounted {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let number = self.0.files().find(parent.0, name);
        let found = number.and_then(|number| self.0.attributes(number));
        answer!(reply, found, |found| reply.entry(&FRESH, &found, Generation(0)));
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        answer!(reply, self.0.attributes(ino.0), |found| reply.attr(&FRESH, &found));
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = || {
            let mut files = self.0.files();
            mode.map_or(Ok(()), |mode| files.set_mode(ino.0, mode))?;
            size.map_or(Ok(()), |size| files.set_length(ino.0, size as usize))?;
            drop(files);
            self.0.attributes(ino.0)
        };
        answer!(reply, set(), |found| reply.attr(&FRESH, &found));
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, reply: ReplyEntry) {
        let made = self.make(parent, name, mode, true);
        answer!(reply, made, |made| reply.entry(&FRESH, &made, Generation(0)));
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let made = self.make(parent, name, mode, false);
        let (generation, handle, flags) = (Generation(0), FileHandle(0), FopenFlags::empty());
        answer!(reply, made, |made| reply.created(&FRESH, &made, generation, handle, flags));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.0.files().remove(parent.0, name), |()| reply.ok());
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.0.files().remove(parent.0, name), |()| reply.ok());
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !flags.is_empty() {
            return reply.error(Errno::EINVAL);
        }
        let renamed = {
            let (from, to) =
                (Place { folder: parent.0, name }, Place { folder: new_parent.0, name: new_name });
            self.0.files().rename(from, to)
        };
        answer!(reply, renamed, |()| reply.ok());
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let files = self.0.files();
        answer!(reply, files.node(ino.0), |node: &Node| {
            let rest = node.bytes().get(offset as usize..).unwrap_or_default();
            reply.data(&rest[..rest.len().min(size as usize)]);
        });
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.0.wait(false);
        let written = self.0.files().write(ino.0, offset as usize, data);
        answer!(reply, written, |()| reply.written(data.len() as u32));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.sync(ino.0, reply);
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.sync(ino.0, reply);
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let files = self.0.files();
        let names = match files.names(ino.0) {
            Ok(names) => names,
            Err(error) => return reply.error(error),
        };
        for (n, (name, number)) in names.iter().enumerate().skip(offset as usize) {
            let kind = files.node(*number).map_or(FileType::RegularFile, kind);
            if reply.add(INodeNo(*number), n as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let files = self.0.files();
        let blocks = |bytes: usize| (bytes / BLOCK) as u64;
        let free = blocks(files.room().saturating_sub(files.used()));
        reply.statfs(blocks(files.room()), free, free, 1 << 20, 1 << 20, BLOCK as u32, 255, BLOCK as u32);
    }
}
