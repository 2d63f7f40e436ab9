//! How a writer wakes a reader in another process without anybody between them: a page that says whether the reader
//! sleeps, and a pipe to wake it by.
//!
//! ```text
//!   reader's process                                              writer's process
//!   Doorbell: page (writes) ──── sealed, handed over ───────────────▶ PeerDoorbell: page (reads)
//!         pipe, read end ◀── one byte, once for each sleep ─────── pipe, opened anew
//! ```
//!
//! The reader follows the head pages of rings that it maps ([`RingReceiver::follow`](crate::RingReceiver::follow)); who publishes
//! looks at its page, and makes a system call only if it sleeps. Nobody between them can hold up the writer: it opens the
//! pipe for itself, so that it never blocks and never ends with a signal, whatever is done with the reader's own end. A
//! reader that says nonsense costs its writers a system call for a delivery, and wakes itself.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, open};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::barrier::{self, Light};
use crate::error::MapError;
use crate::memory::{Access, Reservation, Words, page_bytes};
use crate::quota::MapCharge;
use crate::region;
use crate::sleep_word::{self, Rung};
use crate::sync::{AtomicU64, Ordering};

/// The first word of every page.
const MAGIC: u64 = u64::from_le_bytes(*b"RKTBELL1");
/// Which sleep it is; odd while it lasts.
const SLEEPS: usize = 16;
/// 1: the reader makes the barrier for its writers too, before it sleeps.
const HEAVY: usize = 1;

/// A reader's doorbell, by which the writers of the rings that it maps wake it.
#[derive(Debug)]
pub struct Doorbell {
    file: Reservation,
    page: Words,
    hears: OwnedFd,
    button: OwnedFd,
    heavy: bool,
}

impl Doorbell {
    /// A doorbell of a reader that is awake. `heavy`: of one that seldom sleeps, and spares its writers a fence for each message
    /// by an interrupt to each of them before.
    ///
    /// # Errors
    /// The system gave no memory or no descriptors.
    pub fn new(heavy: bool) -> io::Result<Self> {
        let heavy = heavy && barrier::can_tell_others();
        let file = Reservation::sealable(page_bytes())?;
        let page = Words::new(&file, page_bytes(), Access::Write)?;
        page.word(0).store(MAGIC, Ordering::Relaxed);
        page.word(HEAVY).store(heavy.into(), Ordering::Relaxed);
        fcntl_add_seals(file.fd(), region::SEALS)?;
        let (hears, button) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self { file, page, hears, button, heavy })
    }

    /// What a writer needs for its [`PeerDoorbell`]: the page, and the pipe.
    pub fn files(&self) -> [BorrowedFd<'_>; 2] {
        [self.file.fd().as_fd(), self.button.as_fd()]
    }

    /// Readable once somebody rang and [`Doorbell::clear`] was not called since.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.hears.as_fd()
    }

    /// The reader is about to sleep: it must look at what it follows once more after this, and sleep only if nothing is new.
    pub fn set_asleep(&self) {
        sleep_word::fall_asleep(self.sleeps());
        if self.heavy {
            barrier::heavy_for_all();
        }
    }

    /// The reader is awake, and will look at what it follows.
    pub fn set_awake(&self) {
        sleep_word::wake_up(self.sleeps());
    }

    /// Takes what was rung, when [`Doorbell::fd`] is readable.
    pub fn clear(&self) {
        // More than that is there only if somebody does not keep to one byte for each sleep; the next look takes it.
        let _ = rustix::io::read(&self.hears, &mut [0_u8; 512]);
    }

    fn sleeps(&self) -> &AtomicU64 {
        self.page.word(SLEEPS)
    }
}

/// The doorbell of a reader in another process.
#[derive(Debug)]
pub struct PeerDoorbell {
    page: Words,
    button: OwnedFd,
    rung: Rung,
    heavy: bool,
    /// What it can be handed on by.
    files: [OwnedFd; 2],
    _charge: MapCharge,
}

impl PeerDoorbell {
    /// Checks what another process gave for its doorbell.
    pub(crate) fn new(page: OwnedFd, button: OwnedFd, charge: MapCharge) -> Result<Self, MapError> {
        let seals = fcntl_get_seals(&page).map_err(|_| MapError::NotMemory)?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::SEAL) {
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
        let opened = open_pipe(&button)?;
        let heavy = words.word(HEAVY).load(Ordering::Relaxed) == 1;
        Ok(Self {
            page: words,
            button: opened,
            rung: Rung::default(),
            heavy,
            files: [page, button],
            _charge: charge,
        })
    }

    /// What it can be handed on by: the page, and the pipe.
    pub fn files(&self) -> [BorrowedFd<'_>; 2] {
        [self.files[0].as_fd(), self.files[1].as_fd()]
    }

    /// Whether no fence is needed before [`PeerDoorbell::ring`], in a process that hears others' barriers.
    pub(crate) fn is_heavy(&self) -> bool {
        self.heavy
    }

    /// Wakes the reader if it sleeps, for what was published before the barrier.
    #[inline]
    pub(crate) fn ring(&self, after: Light) {
        if self.rung.must_ring(self.page.word(SLEEPS), after) {
            // A full pipe is readable anyway.
            let _ = rustix::io::write(&self.button, &[1]);
        }
    }
}

/// Opens somebody else's pipe anew: how that one opened it, and what becomes of its ends, is of no consequence then.
fn open_pipe(pipe: &OwnedFd) -> Result<OwnedFd, MapError> {
    let kind = FileType::from_raw_mode(fstat(pipe).map_err(io::Error::from)?.st_mode);
    if kind != FileType::Fifo {
        return Err(MapError::NotMemory);
    }
    let name = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    // For reading too: with a reader there is no SIGPIPE.
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(open(name, flags, Mode::empty()).map_err(io::Error::from)?)
}
