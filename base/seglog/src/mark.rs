//! The mark of a log: how far it goes, known without looking at its segments.
//!
//! A record is known to be whole by what follows it: a later record says that it was durable. Nothing follows the last one. So the
//! writer notes the end of the log in the file that it locks, after each append, and the durable end after each sync.

use std::io::{self, IoSlice};
use std::sync::Arc;

use locks::Mutex;

use crate::format::{MARK, MARK_OFFSETS, Mark};
use crate::storage::File;

/// Milliseconds between two syncs of the file. A machine that stops forgets later marks, unless the system has written them by itself.
const SYNC_INTERVAL_MS: u64 = 1000;

/// The end of a log as its marks say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Known {
    /// All bytes below this position are in the files. If not, they are damaged.
    pub(crate) kept: u64,
    /// All bytes below this position were appended, and may have been read.
    pub(crate) appended: u64,
}

/// The marks that the last writer left.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    marks: Vec<Mark>,
    /// This run of the machine.
    boot: [u8; 16],
}

impl Marks {
    /// Reads the marks of a file. Other bytes are those of an older version, or of a write that a machine did not finish.
    pub(crate) fn read(file: &dyn File, boot: [u8; 16]) -> io::Result<Self> {
        let mut marks = Vec::new();
        for offset in MARK_OFFSETS {
            let mut bytes = [0; MARK];
            if file.read_full(&mut bytes, offset)? == MARK {
                marks.extend(Mark::decode(&bytes));
            }
        }
        Ok(Self { marks, boot })
    }

    /// The end of this log as the marks say it.
    pub(crate) fn known(&self, log_id: [u8; 16]) -> Known {
        let mut known = Known::default();
        for mark in self.marks.iter().filter(|mark| mark.log_id == log_id) {
            // The files of another run have lost what was not on the disk.
            let same_run = mark.boot == self.boot && self.boot != [0; 16];
            known.kept = known.kept.max(if same_run { mark.end } else { mark.durable });
            known.appended = known.appended.max(mark.end);
        }
        known
    }
}

/// The writer of the marks. Readers that outlive the writer of the log have it too, so it gives the file back.
#[derive(Debug)]
pub(crate) struct MarkWriter {
    log_id: [u8; 16],
    boot: [u8; 16],
    written: Mutex<Written>,
}

#[derive(Debug)]
struct Written {
    /// The file, which is locked. None after the log was closed.
    file: Option<Arc<dyn File>>,
    /// Whether the log has what the marks of the last writer say. They stay until then.
    begun: bool,
    end: u64,
    durable: u64,
    /// The mark that is written next. The other one is whole.
    next: usize,
    /// When the file was synced.
    synced: u64,
}

impl MarkWriter {
    pub(crate) fn new(file: Arc<dyn File>, log_id: [u8; 16], boot: [u8; 16]) -> Self {
        let written = Written { file: Some(file), begun: false, end: 0, durable: 0, next: 0, synced: 0 };
        Self { log_id, boot, written: Mutex::new(written) }
    }

    /// Notes the ends of the log. A mark that cannot be written leaves an older one, which is still true.
    pub(crate) fn note(&self, end: u64, durable: u64) {
        let mut written = self.written.lock();
        written.end = written.end.max(end);
        written.durable = written.durable.max(durable);
        self.write(&mut written);
    }

    fn write(&self, written: &mut Written) {
        let (log_id, boot) = (self.log_id, self.boot);
        let bytes = Mark { log_id, boot, end: written.end, durable: written.durable }.encode();
        let offset = MARK_OFFSETS[written.next];
        let file = written.file.as_ref().filter(|_| written.begun);
        if file.is_some_and(|file| file.write_all(&mut [IoSlice::new(&bytes)], offset).is_ok()) {
            written.next = 1 - written.next;
        }
    }

    /// Notes that bytes are durable, and makes that durable if it was not for a while.
    pub(crate) fn note_durable(&self, durable: u64, now: u64) {
        self.note(durable, durable);
        let file = {
            let mut written = self.written.lock();
            let due = now.abs_diff(written.synced) >= SYNC_INTERVAL_MS;
            written.synced = if due { now } else { written.synced };
            written.file.clone().filter(|_| due)
        };
        if let Some(file) = file {
            // The log keeps its promises without the mark. Only damage is not noticed then.
            let _ = file.sync();
        }
    }

    /// Replaces the marks of the last writer, when all that they say is in the files, as data or as holes.
    pub(crate) fn begin(&self, end: u64, durable: u64) {
        self.written.lock().begun = true;
        self.settle(end, durable);
    }

    /// Writes both marks, and makes them durable.
    pub(crate) fn settle(&self, end: u64, durable: u64) {
        self.note(end, durable);
        let mut written = self.written.lock();
        self.write(&mut written);
        let _ = written.file.as_ref().filter(|_| written.begun).map(|file| file.sync());
    }

    /// Unlocks the file: the log is closed.
    pub(crate) fn close(&self) {
        self.written.lock().file = None;
    }
}
