//! The threads that sync in intervals: few for all logs, and ended with the last one. A test binary of its own, because the test counts
//! threads of its process.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;

use bytes::Bytes;
use seglog::storage::{File, OpenMode, Storage};
use seglog::{Log, Options, SyncPolicy};
use seglog_sim::{Fault, SimStorage};

/// More than any test takes, so that a failure ends.
const LONG: Option<Duration> = Some(Duration::from_secs(120));
/// The most threads that all logs of a process share.
const MOST: usize = 8;

/// The names of the threads that sync. Linux keeps 15 bytes of a name.
fn sync_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux lists the threads");
    tasks
        .filter_map(|task| std::fs::read_to_string(task.expect("a thread").path().join("comm")).ok())
        .filter(|name| name.trim_end() == "seglog-sync")
        .count()
}

fn options(sync: SyncPolicy) -> Options {
    Options::default().segment_bytes(4 << 10).sync(sync)
}

fn every(milliseconds: u64) -> SyncPolicy {
    SyncPolicy::Interval(Duration::from_millis(milliseconds))
}

/// A disk whose syncs wait until it is let go, as those of a network disk without a server.
#[derive(Debug, Clone)]
struct Stuck {
    disk: SimStorage,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Gate {
    fn shut(&self, shut: bool) {
        self.state.lock().expect("no panic").0 = shut;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut state = self.state.lock().expect("no panic");
        state.1 += 1;
        self.changed.notify_all();
        while state.0 {
            state = self.changed.wait(state).expect("no panic");
        }
        state.1 -= 1;
    }

    fn wait_for(&self, waiting: usize) {
        let mut state = self.state.lock().expect("no panic");
        while state.1 < waiting {
            state = self.changed.wait(state).expect("no panic");
        }
    }
}

#[derive(Debug)]
struct StuckFile(Arc<dyn File>, Arc<Gate>);

impl Storage for Stuck {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.disk.list(path)
    }
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(StuckFile(self.disk.open(path, mode)?, Arc::clone(&self.gate))))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_dir(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Option<Arc<dyn File>>> {
        self.disk.lock(path)
    }
    fn boot(&self) -> [u8; 16] {
        self.disk.boot()
    }

    fn now(&self) -> u64 {
        self.disk.now()
    }
    fn random(&self, bytes: &mut [u8]) -> io::Result<()> {
        self.disk.random(bytes)
    }
}

impl File for StuckFile {
    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }
    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.0.write_at(parts, offset)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn sync(&self) -> io::Result<()> {
        self.1.pass();
        self.0.sync()
    }
    fn map(&self, len: usize) -> io::Result<Option<Bytes>> {
        self.0.map(len)
    }
}

/// All logs of the process share their threads, so what these tests count belongs to one test.
#[test]
fn logs_share_the_threads_that_sync() {
    many_logs();
    an_error_belongs_to_its_log();
    a_stuck_log_keeps_no_other_from_syncing();
    a_hurried_sync_follows_the_one_under_way();
    assert_eq!(sync_threads(), 0, "the threads end with the last log");
}

fn many_logs() {
    let dir = tempfile::tempdir().expect("a folder");
    let open = |at: usize| Log::open(dir.path().join(at.to_string()), options(every(5))).expect("a log");
    let mut logs: Vec<Log> = (0..200).map(open).collect();
    assert!(sync_threads() <= MOST, "{} threads for 200 logs", sync_threads());
    for round in 1..=3 {
        for log in &mut logs {
            log.append(b"one shared thread makes it durable").expect("an append");
        }
        for log in &logs {
            let durable = log.reader().wait_durable(log.end(), LONG);
            assert_eq!(durable.expect("the interval's sync"), log.end(), "round {round}");
        }
        assert!(sync_threads() <= MOST, "{} threads for 200 logs", sync_threads());
    }
    // Without an interval nothing is synced that was not asked for.
    let mut never = Log::open(dir.path().join("never"), options(SyncPolicy::Never)).expect("a log");
    never.append(b"not durable").expect("an append");
    assert_eq!((never.durable(), never.stats().syncs), (0, 0));
    drop(logs);
    assert_eq!(sync_threads(), 0, "a log without an interval needs no thread");
}

fn an_error_belongs_to_its_log() {
    let (good, bad) = (SimStorage::new(1), SimStorage::new(2));
    let open = |disk: &SimStorage| Log::open_on(Arc::new(disk.clone()), "log", options(every(5)));
    let (mut well, mut ill) = (open(&good).expect("a log"), open(&bad).expect("a log"));
    bad.fail(Fault::Sync, 0, 1);
    ill.append(b"lost").expect("an append");
    while ill.stats().failed_syncs == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(ill.durable(), 0);
    for round in 1..=20 {
        well.append(b"kept").expect("an append");
        assert_eq!(well.reader().wait_durable(4 * round, LONG).expect("a sync"), 4 * round);
    }
    assert_eq!((well.stats().failed_syncs, ill.stats().failed_syncs), (0, 1));
    // The log repairs itself with the next append, which a thread then makes durable.
    ill.append(b"more").expect("an append");
    assert_eq!(ill.reader().wait_durable(8, LONG).expect("a sync"), 8);
    assert_eq!(ill.stats().repairs, 1);
}

fn a_stuck_log_keeps_no_other_from_syncing() {
    let gate = Arc::<Gate>::default();
    let stuck = Stuck { disk: SimStorage::new(3), gate: Arc::clone(&gate) };
    let mut hangs = Log::open_on(Arc::new(stuck), "log", options(every(1))).expect("a log");
    let disk = Arc::new(SimStorage::new(4));
    let mut goes = Log::open_on(disk, "log", options(every(1))).expect("a log");
    gate.shut(true);
    hangs.append(b"a").expect("an append");
    gate.wait_for(1);
    for round in 1..=50 {
        // This log stays due all the time, and holds one thread, not one more each time.
        hangs.append(b"a").expect("an append");
        goes.append(b"b").expect("an append");
        assert_eq!(goes.reader().wait_durable(round, LONG).expect("a sync"), round);
    }
    assert_eq!(hangs.durable(), 0);
    gate.shut(false);
    assert_eq!(hangs.reader().wait_durable(51, LONG).expect("a sync"), 51);
}

fn a_hurried_sync_follows_the_one_under_way() {
    const HOUR: u64 = 3_600_000;
    let (gate, disk) = (Arc::<Gate>::default(), SimStorage::new(5));
    let stuck = Stuck { disk: disk.clone(), gate: Arc::clone(&gate) };
    let mut log = Log::open_on(Arc::new(stuck), "log", options(every(HOUR))).expect("a log");
    let (synced, wait) = mpsc::sync_channel(9);
    log.after_sync(move || synced.send(()).expect("the test waits"));
    let next = || wait.recv_timeout(LONG.expect("a limit")).expect("a sync");
    gate.shut(true);
    log.append(b"a").expect("an append");
    log.sync_soon();
    gate.wait_for(1);
    log.append(b"b").expect("an append");
    log.sync_soon();
    log.append(b"c").expect("an append");
    gate.shut(false);
    next();
    next();
    assert_eq!((log.durable(), log.sync_failed()), (3, false));
    // Nothing is left to sync, and the function is called all the same: nobody has to know that before asking.
    log.sync_soon();
    next();
    disk.fail(Fault::Sync, 0, 1);
    log.append(b"d").expect("an append");
    log.sync_soon();
    next();
    assert_eq!((log.durable(), log.sync_failed()), (3, true));
    assert_eq!(log.sync().expect("the segment is written anew"), 4);
    assert_eq!((log.sync_failed(), log.stats().lost_bytes), (false, 0), "the system still had it");
}
