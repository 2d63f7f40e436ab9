//! Waking a reader in another process without a broker in between: a page that says whether the reader sleeps, and a pipe
//! that wakes it.
//!
//! ```text
//!   reader's process                                              writer's process
//!   Doorbell: page (writes) ──── sealed, handed over ───────────────▶ PeerDoorbell: page (reads)
//!         pipe, read end ◀── one byte, once for each sleep ─────── the same pipe, opened anew
//! ```
//!
//! The reader follows the head pages of rings that it maps ([`RingReceiver::follow`](crate::RingReceiver::follow)). A writer
//! that publishes loads the word in the reader's page, and makes a system call only if the reader sleeps. No process in
//! between can hold up the writer: it opens the pipe for itself, so that it never blocks and gets no signal, in any state
//! of the reader's own end. A reader that writes nonsense costs its writers a system call for each delivery, and wakes itself.
//!
//! Opening a file anew asks for the rights of the process that opens it, and the reader chooses the file. So the reader's descriptor must
//! be open for reading and writing itself: the writer then gets nothing that the reader did not have.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, fcntl_add_seals, fcntl_get_seals, fcntl_getfl, fstat, open};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::barrier::{self, Light};
use crate::error::MapError;
use crate::memory::{Access, Reservation, Words, page_bytes};
use crate::quota::MapCharge;
use crate::region;
use crate::sleep_word::{self, LastWake};
use crate::sync::{AtomicU64, Ordering};

/// The first word of every page.
const MAGIC: u64 = u64::from_le_bytes(*b"RKTBELL1");
/// Counts the reader's sleeps; odd while it sleeps.
const SLEEPS: usize = 16;
/// 1: the reader makes the barrier for its writers too before it sleeps.
const HEAVY: usize = 1;

/// A reader's doorbell: the writers of the rings that the reader maps wake it by this.
#[derive(Debug)]
pub struct Doorbell {
    file: Reservation,
    page: Words,
    read_end: OwnedFd,
    /// The pipe, open for reading and writing: the writers' descriptor. Its flags are theirs too.
    handed_over: OwnedFd,
    heavy: bool,
}

impl Doorbell {
    /// A doorbell of a reader that is awake. `heavy`: the reader seldom sleeps, and saves its writers a fence for each message
    /// by an interrupt to each of them before it sleeps.
    ///
    /// # Errors
    /// The system has no memory or no descriptors.
    pub fn new(heavy: bool) -> io::Result<Self> {
        let heavy = heavy && barrier::can_send_global();
        let file = Reservation::sealable(page_bytes())?;
        let page = Words::new(&file, page_bytes(), Access::Write)?;
        page.word(0).store(MAGIC, Ordering::Relaxed);
        page.word(HEAVY).store(heavy.into(), Ordering::Relaxed);
        fcntl_add_seals(file.fd(), region::SEALS)?;
        let (read_end, _) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let handed_over = open_again(&read_end)?;
        Ok(Self { file, page, read_end, handed_over, heavy })
    }

    /// The files that a writer needs for its [`PeerDoorbell`]: the page and the pipe.
    pub fn files(&self) -> [BorrowedFd<'_>; 2] {
        [self.file.fd().as_fd(), self.handed_over.as_fd()]
    }

    /// Readable once a writer rang and [`Doorbell::clear`] was not called since.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.read_end.as_fd()
    }

    /// The reader is about to sleep: it must look at the rings that it follows once more after this, and sleep only if there
    /// is nothing new.
    pub fn set_asleep(&self) {
        sleep_word::set_asleep(self.sleeps());
        if self.heavy {
            barrier::heavy_for_all();
        }
    }

    /// The reader is awake, and will look at the rings that it follows.
    pub fn set_awake(&self) {
        sleep_word::set_awake(self.sleeps());
    }

    /// Empties the pipe, when [`Doorbell::fd`] is readable.
    pub fn clear(&self) {
        // A writer writes one byte for each sleep. More bytes come only from a writer that breaks this rule; the next
        // call reads them.
        let _ = rustix::io::read(&self.read_end, &mut [0_u8; 512]);
    }

    fn sleeps(&self) -> &AtomicU64 {
        self.page.word(SLEEPS)
    }
}

/// The doorbell of a reader in another process.
#[derive(Debug)]
pub struct PeerDoorbell {
    page: Words,
    pipe: OwnedFd,
    last_wake: LastWake,
    heavy: bool,
    /// The descriptors by which it can be handed on.
    files: [OwnedFd; 2],
    _charge: MapCharge,
}

impl PeerDoorbell {
    /// Checks the two descriptors of another process's doorbell.
    pub(crate) fn new(page: OwnedFd, pipe: OwnedFd, charge: MapCharge) -> Result<Self, MapError> {
        let seals = fcntl_get_seals(&page).map_err(|_| MapError::NotMemory)?;
        if !seals.contains(region::SEALS) {
            return Err(MapError::NotSealed);
        }
        region::check_kind(&page)?;
        let size = u64::try_from(fstat(&page).map_err(io::Error::from)?.st_size).unwrap_or(0);
        if size != page_bytes() {
            return Err(MapError::Size(size));
        }
        let file = Reservation::of(page.try_clone()?);
        let words = Words::new(&file, page_bytes(), Access::Read)?;
        if words.word(0).load(Ordering::Relaxed) != MAGIC {
            return Err(MapError::NotARing);
        }
        let opened = open_pipe(&pipe)?;
        let heavy = words.word(HEAVY).load(Ordering::Relaxed) == 1;
        Ok(Self {
            page: words,
            pipe: opened,
            last_wake: LastWake::default(),
            heavy,
            files: [page, pipe],
            _charge: charge,
        })
    }

    /// The descriptors by which it can be handed on: the page, and the pipe.
    pub fn files(&self) -> [BorrowedFd<'_>; 2] {
        [self.files[0].as_fd(), self.files[1].as_fd()]
    }

    /// Whether a light barrier is enough before [`PeerDoorbell::ring`], in a process that heavy barriers of others reach.
    pub(crate) fn is_heavy(&self) -> bool {
        self.heavy
    }

    /// Wakes the reader for data that was published before the barrier, if it sleeps.
    #[inline]
    pub(crate) fn ring(&self, after: Light) {
        if self.last_wake.must_wake(self.page.word(SLEEPS), after) {
            // A full pipe is readable anyway.
            let _ = rustix::io::write(&self.pipe, &[1]);
        }
    }
}

/// Opens another process's pipe anew, so that it does not matter what that process does with its descriptor's flags. A descriptor
/// that is not open for both (write-only, or O_PATH, which needs no rights at all) is refused: this process might have more rights
/// to the file than the one that it came from.
fn open_pipe(pipe: &OwnedFd) -> Result<OwnedFd, MapError> {
    let kind = FileType::from_raw_mode(fstat(pipe).map_err(io::Error::from)?.st_mode);
    let flags = fcntl_getfl(pipe).map_err(io::Error::from)?;
    if kind != FileType::Fifo || flags & (OFlags::ACCMODE | OFlags::PATH) != OFlags::RDWR {
        return Err(MapError::NotAPipe);
    }
    Ok(open_again(pipe)?)
}

/// For reading too: with a reader there is no SIGPIPE.
fn open_again(pipe: &OwnedFd) -> io::Result<OwnedFd> {
    let name = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(open(name, flags, Mode::empty())?)
}
