//! An archive in memory that can be down, tear batches and forget.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rbmq_broker::{Archive, ArchiveError, ArchiveLog, ArchiveRead, ArchivedLog, TopicName};
use rocketbufs::{Epoch, Position};

/// The archive of one topic or several.
#[derive(Default)]
pub struct Memory {
    logs: Mutex<HashMap<Epoch, Arc<Log>>>,
    names: Mutex<HashMap<(String, TopicName), Epoch>>,
    state: Arc<Switches>,
}

#[derive(Default)]
struct Switches {
    is_down: AtomicBool,
    is_open: AtomicBool,
    hangs: AtomicBool,
    hanging: AtomicUsize,
    tears: AtomicUsize,
    reads: AtomicUsize,
    repeated: AtomicU64,
}

struct Log {
    switches: Arc<Switches>,
    kept: Mutex<Kept>,
}

struct Kept {
    range: Range<Position>,
    batches: BTreeMap<Position, Vec<u8>>,
    note: Vec<u8>,
}

fn down() -> ArchiveError {
    ArchiveError::Down("it is down".into())
}

impl Memory {
    pub fn set_down(&self, is_down: bool) {
        self.state.is_open.store(false, Ordering::SeqCst);
        self.state.is_down.store(is_down, Ordering::SeqCst);
    }

    /// Calls do not return before this is set back.
    pub fn set_hanging(&self, hangs: bool) {
        self.state.hangs.store(hangs, Ordering::SeqCst);
    }

    /// Waits until so many calls hang.
    pub fn wait_for_hanging(&self, calls: usize, limit: Duration) {
        wait(limit, || self.state.hanging.load(Ordering::SeqCst) >= calls);
    }

    /// The next batches are stored in part, and refused.
    pub fn tear_next(&self, batches: usize) {
        self.state.tears.store(batches, Ordering::SeqCst);
    }

    /// How often something was read.
    pub fn reads(&self) -> usize {
        self.state.reads.load(Ordering::SeqCst)
    }

    /// Bytes that were offered again.
    pub fn repeated(&self) -> u64 {
        self.state.repeated.load(Ordering::SeqCst)
    }

    pub fn logs(&self) -> usize {
        self.logs.lock().unwrap().len()
    }

    /// Waits until so many logs have bytes.
    pub fn wait_for_logs(&self, logs: usize, limit: Duration) {
        let is_filled = |log: &Arc<Log>| !log.kept.lock().unwrap().batches.is_empty();
        wait(limit, || self.logs.lock().unwrap().values().filter(|log| is_filled(log)).count() == logs);
    }

    fn log(&self) -> Option<Arc<Log>> {
        self.logs.lock().unwrap().values().next().cloned()
    }

    /// The end of the only log.
    pub fn end(&self) -> Position {
        self.log().map_or(0, |log| log.kept.lock().unwrap().range.end)
    }

    /// Whether the end of the only log has a note.
    pub fn has_note(&self) -> bool {
        self.log().is_some_and(|log| !log.kept.lock().unwrap().note.is_empty())
    }

    /// The first batch behind a position.
    pub fn batch_beyond(&self, position: Position) -> Position {
        let log = self.log().unwrap();
        let kept = log.kept.lock().unwrap();
        *kept.batches.range(position..).next().unwrap().0
    }

    /// Forgets all, as a rule of a store does that removes what is old.
    pub fn forget(&self) {
        self.logs.lock().unwrap().clear();
        self.names.lock().unwrap().clear();
    }

    /// Forgets whole batches, as retention does.
    pub fn remove_below(&self, position: Position) {
        let log = self.log().unwrap();
        let mut kept = log.kept.lock().unwrap();
        kept.batches = kept.batches.split_off(&position);
        kept.range.start = *kept.batches.first_key_value().unwrap().0;
    }

    pub fn wait_for_end(&self, position: Position, limit: Duration) {
        wait(limit, || self.end() >= position);
    }

    /// Waits until it was opened since it was down.
    pub fn wait_until_open(&self, limit: Duration) {
        wait(limit, || self.state.is_open.load(Ordering::SeqCst));
    }
}

impl Switches {
    fn pass(&self) -> Result<(), ArchiveError> {
        self.hanging.fetch_add(1, Ordering::SeqCst);
        while self.hangs.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.hanging.fetch_sub(1, Ordering::SeqCst);
        if self.is_down.load(Ordering::SeqCst) { Err(down()) } else { Ok(()) }
    }
}

fn wait(limit: Duration, done: impl Fn() -> bool) {
    let deadline = Instant::now() + limit;
    while !done() {
        assert!(Instant::now() < deadline, "the archive does not come so far");
        std::thread::sleep(Duration::from_millis(2));
    }
}

impl Archive for Memory {
    fn open(&self, log: &ArchivedLog, _: &dyn Fn() -> bool) -> Result<Arc<dyn ArchiveLog>, ArchiveError> {
        self.state.pass()?;
        let switches = self.state.clone();
        let kept =
            Mutex::new(Kept { range: log.first..log.first, batches: BTreeMap::new(), note: Vec::new() });
        let mut logs = self.logs.lock().unwrap();
        let log = logs.entry(log.epoch).or_insert_with(|| Arc::new(Log { switches, kept })).clone();
        self.state.is_open.store(true, Ordering::SeqCst);
        Ok(log)
    }

    fn name_of(&self, cluster: &str, topic: &TopicName, new: Epoch) -> Result<Epoch, ArchiveError> {
        self.state.pass()?;
        Ok(*self.names.lock().unwrap().entry((cluster.to_owned(), topic.clone())).or_insert(new))
    }
}

impl ArchiveLog for Log {
    fn kept(&self) -> Range<Position> {
        self.kept.lock().unwrap().range.clone()
    }

    fn append(&self, position: Position, bytes: &[u8]) -> Result<(), ArchiveError> {
        self.append_with(position, bytes, &[])
    }

    fn note(&self) -> Vec<u8> {
        self.kept.lock().unwrap().note.clone()
    }

    fn note_end(&self, note: &[u8]) -> Result<(), ArchiveError> {
        let mut kept = self.kept.lock().unwrap();
        if kept.note.is_empty() {
            kept.note = note.to_vec();
        }
        Ok(())
    }

    fn append_with(&self, position: Position, bytes: &[u8], note: &[u8]) -> Result<(), ArchiveError> {
        self.switches.pass()?;
        let mut kept = self.kept.lock().unwrap();
        let repeated = (kept.range.end.saturating_sub(position) as usize).min(bytes.len());
        let bytes = &bytes[repeated..];
        let one_less = |tears: usize| tears.checked_sub(1);
        let torn = self.switches.tears.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok();
        let bytes = if torn { &bytes[..bytes.len() / 2] } else { bytes };
        let begin = position.max(kept.range.end);
        if begin + bytes.len() as u64 > kept.range.end {
            kept.note = note.to_vec();
        }
        kept.range.end = begin + bytes.len() as u64;
        if !bytes.is_empty() {
            kept.batches.insert(begin, bytes.to_vec());
        }
        if torn {
            return Err(down());
        }
        self.switches.repeated.fetch_add(repeated as u64, Ordering::SeqCst);
        Ok(())
    }

    fn read(&self, position: Position, out: &mut [u8]) -> Result<ArchiveRead, ArchiveError> {
        self.switches.pass()?;
        self.switches.reads.fetch_add(1, Ordering::SeqCst);
        let kept = self.kept.lock().unwrap();
        if position < kept.range.start {
            return Ok(ArchiveRead::Removed { first: kept.range.start });
        }
        if let Some((begin, bytes)) = kept.batches.range(..=position).next_back()
            && let Some(rest) = bytes.get((position - begin) as usize..).filter(|rest| !rest.is_empty())
        {
            // Some of the bytes, so that runs come in pieces.
            let count = rest.len().min(out.len()).min(1 + position as usize % 5_000);
            out[..count].copy_from_slice(&rest[..count]);
            return Ok(ArchiveRead::Bytes(count));
        }
        let next = kept.batches.range(position..).next().map(|(begin, _)| *begin);
        let end = Some(kept.range.end).filter(|end| *end > position);
        Ok(next.or(end).map_or(ArchiveRead::End, |to| ArchiveRead::Hole { to }))
    }
}
