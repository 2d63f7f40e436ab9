//! The audit log: logins, refusals, changes of rights, and clients that were cut off.
//!
//! ```text
//!   broker's thread ── record: a bounded queue, never waits ──▶ thread ── a line of JSON each ──▶ file (0640) or standard error
//!                          └── full, or too many in a second: counted, and told in the log ──────────┘
//! ```
//!
//! The file is opened again by [`Audit::reopen`], after a rotation has moved it away. It may be a pipe that somebody reads, as standard
//! error may be: then the thread waits for that reader, and neither the broker's threads nor its end do.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use locks::{Condvar, Mutex};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use serde::Serialize;

/// The most lines that wait to be written: about 2 MiB.
const MAX_WAITING: usize = 4_096;

/// The most lines in a second. Clients can cause refusals without end, and the disk has one.
const MAX_PER_SECOND: u32 = 2_000;

/// So many of them are refusals, which anybody can cause: a flood of wrong passwords hides neither a login nor who was cut off.
const MAX_REFUSED_PER_SECOND: u32 = 1_500;

/// How long the end waits for a file that takes nothing.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// The longest text of a field, in bytes.
const MAX_TEXT: usize = 1_024;

/// Something to record. Fields without a value are not written.
///
/// ```
/// use access::{AuditEvent, Audit};
/// let event = AuditEvent { user: Some("anna"), topic: Some("home/door"), ..AuditEvent::new("refused") };
/// Audit::off().record(&event);
/// ```
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct AuditEvent<'a> {
    /// The event: `login`, `refused`, `rights`, `reload`, `cut`, `console`, `disconnect`.
    pub event: &'static str,
    /// The user; empty for a client without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<&'a str>,
    /// The method by which the client has shown its identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<&'a str>,
    /// The address of the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<&'a str>,
    /// The role of the client: publisher, subscriber, observer, broker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'a str>,
    /// The name that the client has given itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<&'a str>,
    /// The operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<&'a str>,
    /// The topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic: Option<&'a str>,
    /// The reason, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'a str>,
    /// A number of things.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

impl AuditEvent<'_> {
    /// An event without fields.
    pub fn new(event: &'static str) -> Self {
        Self { event, ..Self::default() }
    }

    fn cut(self) -> Self {
        let Self { event, user, method, address, role, client, operation, topic, reason, count } = self;
        let [user, method, address, role] = [user, method, address, role].map(|text| text.map(short));
        let [client, operation, topic, reason] =
            [client, operation, topic, reason].map(|text| text.map(short));
        Self { event, user, method, address, role, client, operation, topic, reason, count }
    }
}

fn short(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT)]
}

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    #[serde(flatten)]
    event: AuditEvent<'a>,
}

fn line(event: AuditEvent<'_>) -> String {
    let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
    // A structure of texts and numbers is always JSON.
    let json = serde_json::to_string(&Line { time, event }).unwrap_or_default();
    text::json(&json).into_owned() + "\n"
}

enum Job {
    Line(String),
    Reopen,
}

/// Lines of the present second.
struct Second {
    began: Instant,
    lines: u32,
    refused: u32,
}

/// The work that the thread has done. The end of the log waits for it.
#[derive(Default)]
struct Progress {
    done: Mutex<Done>,
    changed: Condvar,
}

#[derive(Default)]
struct Done {
    lines: u64,
    all: bool,
}

impl Progress {
    fn change(&self, change: impl FnOnce(&mut Done)) {
        change(&mut self.done.lock());
        self.changed.notify_all();
    }
}

struct Shared {
    /// None once the log ends.
    jobs: Option<SyncSender<Job>>,
    /// The lines that the thread has got.
    queued: AtomicU64,
    dropped: Arc<AtomicU64>,
    second: Mutex<Second>,
    progress: Arc<Progress>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The thread writes the waiting lines, and ends.
        self.jobs = None;
        let missing = self.wait_within(END_PATIENCE);
        if missing > 0 {
            self.dropped.fetch_add(missing, Ordering::Relaxed);
            tracing::warn!(missing, "events of the audit log are not written: nobody reads it");
        }
    }
}

/// A handle of the audit log. Clones share one log. Dropping the last handle waits until all lines are written, as long as the file
/// takes at least one line in each second.
#[derive(Clone, Default)]
pub struct Audit(Option<Arc<Shared>>);

impl std::fmt::Debug for Audit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Audit").field("on", &self.0.is_some()).finish()
    }
}

impl Audit {
    /// Without a log: nothing is recorded.
    pub fn off() -> Self {
        Self::default()
    }

    /// Opens a log: a file, which is made with mode 0640 and appended to; `stderr`, for the journal; or nothing, if `target` is
    /// empty.
    ///
    /// # Errors
    /// The file cannot be opened, or the system refuses a thread.
    pub fn open(target: &str) -> io::Result<Self> {
        let output = match target {
            "" => return Ok(Self::off()),
            "stderr" => Output::Stderr,
            path => Output::File { file: Some(open(Path::new(path))?), path: path.into() },
        };
        Self::start(output)
    }

    fn start(output: Output) -> io::Result<Self> {
        let (jobs, waiting) = sync_channel(MAX_WAITING);
        let (dropped, progress) = <(Arc<AtomicU64>, Arc<Progress>)>::default();
        let (lost, own) = (dropped.clone(), progress.clone());
        // Nobody joins the thread: what reads its lines may never go on.
        threads::spawn("rbmq-audit", move || {
            write(&waiting, output, &lost, &own);
            own.change(|done| done.all = true);
        })?;
        let second = Mutex::new(Second { began: Instant::now(), lines: 0, refused: 0 });
        let (jobs, queued) = (Some(jobs), AtomicU64::new(0));
        Ok(Self(Some(Arc::new(Shared { jobs, queued, dropped, second, progress }))))
    }

    /// Records an event. The call never waits: an event for which the log has no room is counted.
    pub fn record(&self, event: &AuditEvent<'_>) {
        let _ = self.try_record(event);
    }

    /// The same, before something that must not happen without its line. False: the log has no room for it.
    #[must_use]
    pub fn try_record(&self, event: &AuditEvent<'_>) -> bool {
        let Some(shared) = &self.0 else { return true };
        let is_sent = shared.allows(event.event == "refused", Instant::now())
            && shared.send(Job::Line(line(event.cut())));
        let count = if is_sent { &shared.queued } else { &*shared.dropped };
        count.fetch_add(1, Ordering::Relaxed);
        is_sent
    }

    /// Opens the file again, because a rotation has moved it away.
    pub fn reopen(&self) {
        if let Some(shared) = &self.0 {
            // With a full queue, the next reload opens it.
            shared.send(Job::Reopen);
        }
    }

    /// The number of events that were not written.
    pub fn dropped(&self) -> u64 {
        self.0.as_ref().map_or(0, |shared| shared.dropped.load(Ordering::Relaxed))
    }
}

impl Shared {
    fn send(&self, job: Job) -> bool {
        self.jobs.as_ref().is_some_and(|jobs| jobs.try_send(job).is_ok())
    }

    /// Waits until the thread has ended, or has written nothing for this time. Returns how many lines are not written.
    fn wait_within(&self, patience: Duration) -> u64 {
        let mut done = self.progress.done.lock();
        while !done.all {
            let before = done.lines;
            let still = |now: &mut Done| now.lines == before && !now.all;
            self.progress.changed.wait_while_for(&mut done, still, patience);
            if still(&mut done) {
                return self.queued.load(Ordering::Relaxed).saturating_sub(before);
            }
        }
        0
    }

    fn allows(&self, is_refused: bool, now: Instant) -> bool {
        let mut second = self.second.lock();
        if now.duration_since(second.began) >= Duration::from_secs(1) {
            *second = Second { began: now, lines: 0, refused: 0 };
        }
        let has_room =
            second.lines < MAX_PER_SECOND && !(is_refused && second.refused >= MAX_REFUSED_PER_SECOND);
        second.lines += u32::from(has_room);
        second.refused += u32::from(has_room && is_refused);
        has_room
    }
}

enum Output {
    Stderr,
    File { path: PathBuf, file: Option<File> },
}

/// Opens the file, or makes it. A pipe that nobody reads is an error; one with a reader that is slow makes the thread wait.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o640).custom_flags(OFlags::NONBLOCK.bits() as i32);
    let file =
        options.open(path).map_err(|error| match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NXIO) => io::Error::new(
                error.kind(),
                "it is a pipe or socket that nobody reads; start its reader first",
            ),
            _ => error,
        })?;
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

impl Output {
    fn write(&mut self, line: &str) -> io::Result<()> {
        match self {
            Self::Stderr => io::stderr().write_all(line.as_bytes()),
            Self::File { path, file } => {
                let open = match file.take() {
                    Some(open) => open,
                    // The last line failed: the disk may have room again, or the folder be back.
                    None => open(path)?,
                };
                file.insert(open).write_all(line.as_bytes()).inspect_err(|_| *file = None)
            }
        }
    }

    fn reopen(&mut self) {
        if let Self::File { file, .. } = self {
            *file = None;
        }
    }
}

/// How often the thread reports dropped lines.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// The count of unwritten events that the thread has reported.
struct Told {
    events: u64,
    at: Instant,
}

impl Told {
    /// Writes how many are missing since the last time, at most once in a second: also while a flood goes on.
    fn tell(&mut self, dropped: &AtomicU64, output: &mut Output) {
        let lost = dropped.load(Ordering::Relaxed);
        if lost == self.events || self.at.elapsed() < TELL_EVERY {
            return;
        }
        let event = AuditEvent { count: Some(lost - self.events), ..AuditEvent::new("dropped") };
        self.at = Instant::now();
        if output.write(&line(event)).is_ok() {
            self.events = lost;
        }
    }
}

fn write(jobs: &Receiver<Job>, mut output: Output, dropped: &AtomicU64, progress: &Progress) {
    let mut told = Told { events: 0, at: Instant::now() };
    loop {
        match jobs.recv_timeout(TELL_EVERY) {
            Ok(Job::Line(line)) => {
                if output.write(&line).is_err() {
                    dropped.fetch_add(1, Ordering::Relaxed);
                }
                progress.change(|done| done.lines += 1);
            }
            Ok(Job::Reopen) => output.reopen(),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        told.tell(dropped, &mut output);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// The whole lines of a file that may be written meanwhile: a reader can see a part of the last one.
    fn lines(path: &std::path::Path) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn events_are_lines_of_json_in_a_file_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let audit = Audit::open(path.to_str().unwrap()).unwrap();
        let long = "ä".repeat(9_000);
        let event = AuditEvent { user: Some("anna\n"), reason: Some(&long), ..AuditEvent::new("refused") };
        audit.record(&event);
        drop(audit);
        let [line] = &lines(&path)[..] else { panic!("one line") };
        assert_eq!((line["event"].as_str(), line["user"].as_str()), (Some("refused"), Some("anna\n")));
        assert_eq!(line["reason"].as_str().unwrap().len(), MAX_TEXT);
        assert!(line["time"].as_str().unwrap().ends_with('Z') && line.get("topic").is_none());
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o137,
            0,
            "nobody else may read it"
        );
    }

    #[test]
    fn a_rotated_file_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let (path, moved) = (dir.path().join("audit.log"), dir.path().join("audit.log.1"));
        let audit = Audit::open(path.to_str().unwrap()).unwrap();
        audit.record(&AuditEvent::new("login"));
        let begin = Instant::now();
        while lines(&path).is_empty() {
            assert!(begin.elapsed() < Duration::from_secs(60), "the line is written");
            std::thread::yield_now();
        }
        std::fs::rename(&path, &moved).unwrap();
        audit.reopen();
        audit.record(&AuditEvent::new("cut"));
        drop(audit);
        assert_eq!((lines(&moved).len(), lines(&path).len()), (1, 1));
        assert!(Audit::open("/nowhere/at/all").is_err());
    }

    /// A field stays on its line and moves nothing on a terminal, and JSON has it unchanged.
    #[test]
    fn marks_of_a_name_are_escaped() {
        let name = "a\u{9b}31mRED\u{85}{\u{2028}\u{202e}\u{200b}";
        let line = line(AuditEvent { client: Some(name), ..AuditEvent::new("refused") });
        assert!(line.trim_end().is_ascii() && line.lines().count() == 1, "{line}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&line).unwrap()["client"], name);
    }

    #[test]
    fn a_pipe_that_nobody_reads_stops_neither_the_start_nor_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
        let nobody = Audit::open(path.to_str().unwrap()).unwrap_err();
        assert!(nobody.to_string().contains("nobody reads"), "{nobody}");

        // A reader that reads nothing: more than a pipe holds waits.
        let mut reader = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let audit = Audit::open(path.to_str().unwrap()).unwrap();
        let long = "r".repeat(MAX_TEXT);
        for _ in 0..200 {
            audit.record(&AuditEvent { reason: Some(&long), ..AuditEvent::new("refused") });
        }
        let shared = audit.0.clone().unwrap();
        let missing = shared.wait_within(Duration::from_millis(1));
        assert!(missing > 0, "the pipe is full");
        drop((audit, shared));

        // A reader that goes on gets all lines.
        let audit = Audit::open(path.to_str().unwrap()).unwrap();
        audit.record(&AuditEvent::new("last"));
        let end = std::thread::spawn(move || drop(audit));
        let (mut text, mut bytes) = (Vec::new(), [0; 4096]);
        while !String::from_utf8_lossy(&text).contains("last") {
            let n = std::io::Read::read(&mut reader, &mut bytes).unwrap();
            text.extend_from_slice(&bytes[..n]);
        }
        end.join().unwrap();
    }

    /// A flood of refusals leaves room for other events, and the log reports the number of missing events during the flood.
    #[test]
    fn a_flood_of_refusals_hides_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let audit = Audit::open(path.to_str().unwrap()).unwrap();
        let (begin, mut rounds, mut logins) = (Instant::now(), 0, 0);
        let told = || lines(&path).iter().any(|line| line["event"] == "dropped");
        while !told() {
            assert!(begin.elapsed() < Duration::from_secs(60), "it is told");
            // The thread that writes has its turns.
            while audit.0.as_ref().unwrap().wait_within(Duration::ZERO) > 1_000 {
                std::thread::yield_now();
            }
            for _ in 0..2_000 {
                audit.record(&AuditEvent::new("refused"));
            }
            rounds += 1;
            if logins < 100 {
                audit.record(&AuditEvent::new("login"));
                logins += 1;
            }
        }
        let dropped = audit.dropped();
        drop(audit);
        let written = lines(&path);
        let of = |event: &str| written.iter().filter(|line| line["event"] == event).count() as u64;
        assert_eq!((of("login"), of("refused") + dropped), (logins, 2_000 * rounds));
        assert!(written.iter().filter_map(|line| line["count"].as_u64()).sum::<u64>() <= dropped);
    }

    #[test]
    fn a_flood_is_counted_and_takes_no_room() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let audit = Audit::open(path.to_str().unwrap()).unwrap();
        for _ in 0..20_000 {
            audit.record(&AuditEvent::new("refused"));
        }
        let dropped = audit.dropped();
        drop(audit);
        assert_eq!(lines(&path).len() as u64 + dropped, 20_000);
        assert!(dropped > 0);
        Audit::off().record(&AuditEvent::new("login"));
    }
}
