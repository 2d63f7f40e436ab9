//! How the commands of a program end when something is in their way: a table of commands, and a list of situations for each.
//!
//! A program fails the test if a command of it has no row. Whatever the situation, a command ends after one signal, with a status and a
//! message; it does not panic, its memory has a limit, and what it was to print or to write is not lost without a word.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::{Outcome, Process, until};

/// What a command does when nothing is in its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It prints something and ends.
    Prints,
    /// It writes files and ends. What it prints is no result.
    Makes,
    /// It does something else and ends.
    Does,
    /// It fails.
    Fails,
    /// It reads lines until its input ends.
    Reads,
    /// It reads one line, and prints or writes its result.
    Asks,
    /// It prints at once, and more until it is asked to end.
    Follows,
    /// It prints what comes until it is asked to end; nothing comes.
    Waits,
    /// It serves until it is asked to end. What it prints is no result.
    Serves,
}

use Kind::{Asks, Follows, Makes, Prints, Reads, Serves, Waits};

/// A command, and what it does. In its words, `NEW` is a path where nothing is, and `FRESH` a name that no other run has.
#[derive(Debug, Clone)]
pub struct Row {
    words: String,
    kind: Kind,
}

/// A row of the table.
pub fn row(kind: Kind, words: impl Into<String>) -> Row {
    Row { words: words.into(), kind }
}

/// What is in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Situation {
    /// One signal, while the input is idle and the output is read.
    Asked(&'static str),
    /// The output is a pipe that nobody reads.
    UnreadOutput,
    /// Standard error is a pipe that nobody reads.
    UnreadErrors,
    /// `>&-`
    ClosedOutput,
    /// `<&- >&- 2>&-`
    AllClosed,
    /// `| true`
    ClosedReader,
    /// `>/dev/full`
    FullOutput,
    /// `2>/dev/full`
    FullErrors,
    /// A line without end, and little memory.
    EndlessLine,
    /// `ulimit -f 0`, and the output is a file.
    NoFileSize,
    /// `ulimit -n`
    Descriptors(u32),
    /// The command is the first process of a container.
    FirstProcess,
    /// A full disk has the output and the files of the command.
    FullDisk,
}

use Situation::{
    AllClosed, Asked, ClosedOutput, ClosedReader, Descriptors, EndlessLine, FirstProcess, FullDisk,
    FullErrors, FullOutput, NoFileSize, UnreadErrors, UnreadOutput,
};

const SITUATIONS: [Situation; 17] = [
    Asked("TERM"),
    Asked("INT"),
    UnreadOutput,
    UnreadErrors,
    ClosedOutput,
    AllClosed,
    ClosedReader,
    FullOutput,
    FullErrors,
    EndlessLine,
    NoFileSize,
    Descriptors(5),
    Descriptors(8),
    Descriptors(11),
    Descriptors(16),
    FirstProcess,
    FullDisk,
];

/// How a command ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// With status 0.
    Good,
    /// With a failure, and a message about it.
    Fails,
    /// Either.
    Any,
}

impl Situation {
    /// How a command of this kind ends; none: the situation is none for it.
    fn end(self, kind: Kind) -> Option<End> {
        let runs = matches!(kind, Reads | Follows | Waits | Serves);
        match self {
            Asked(_) if runs => Some(End::Good),
            Asked(_) => (kind == Asks).then_some(End::Any),
            UnreadOutput => match kind {
                Serves => Some(End::Good),
                _ => matches!(kind, Prints | Follows).then_some(End::Any),
            },
            UnreadErrors => runs.then_some(if kind == Serves { End::Good } else { End::Any }),
            ClosedOutput | FullOutput | NoFileSize if matches!(kind, Prints | Follows) => Some(End::Fails),
            NoFileSize => match kind {
                Makes => Some(End::Fails),
                _ => (kind == Serves).then_some(End::Any),
            },
            ClosedOutput => Some(if matches!(kind, Reads | Serves) { End::Good } else { End::Any }),
            FullOutput => (kind == Serves).then_some(End::Good),
            // Nobody has what a command prints once, and it may be a failure then.
            ClosedReader if kind == Prints => Some(End::Any),
            ClosedReader => matches!(kind, Follows | Waits | Serves).then_some(End::Good),
            FullErrors if kind != Kind::Fails => Some(if kind == Waits { End::Any } else { End::Good }),
            AllClosed | FullErrors | Descriptors(_) => Some(End::Any),
            EndlessLine => matches!(kind, Reads | Asks).then_some(End::Fails),
            FirstProcess => (runs || kind == Asks).then_some(End::Any),
            FullDisk => match kind {
                Prints | Makes | Follows => Some(End::Fails),
                _ => (kind == Serves).then_some(End::Any),
            },
        }
    }

    /// Whether the command ends by a signal.
    fn is_asked(self, kind: Kind) -> bool {
        match self {
            Asked(_) | FirstProcess | UnreadOutput | UnreadErrors => true,
            // With a reader that is gone, or an output that fails, they end by themselves.
            ClosedReader | ClosedOutput | FullOutput | NoFileSize | FullDisk => kind == Serves,
            _ => matches!(kind, Follows | Waits | Serves),
        }
    }

    /// What a shell does before the command; `$0` is a folder of its own.
    fn script(self) -> String {
        match self {
            ClosedOutput => "exec \"$@\" >&-".into(),
            AllClosed => "exec \"$@\" <&- >&- 2>&-".into(),
            EndlessLine => "ulimit -c 0; ulimit -d 1000000; exec \"$@\" </dev/zero".into(),
            NoFileSize => "ulimit -c 0; : >\"$0/out\"; ulimit -f 0; exec \"$@\" >\"$0/out\"".into(),
            Descriptors(most) => format!("ulimit -n {most}; exec \"$@\""),
            FirstProcess => "exec unshare --pid --fork --kill-child \"$@\"".into(),
            FullDisk => "exec unshare --mount sh -c 'mount -t tmpfs -o size=4k none \"$0\" && \
                 { cat /dev/zero >\"$0/fill\" 2>&-; exec \"$@\" >\"$0/out\"; }' \"$0\" \"$@\""
                .into(),
            _ => "exec \"$@\"".into(),
        }
    }

    /// Whether the situation needs rights that the process may not have.
    fn needs_root(self) -> bool {
        matches!(self, FirstProcess | FullDisk)
    }
}

/// Runs each row in each situation.
///
/// # Panics
/// A command has no row; or one ends otherwise than it should, or not within [`LONG`](crate::LONG).
pub fn check_ends(program: &'static str, rows: &[Row], folder: &Path) {
    check_complete(program, rows, folder);
    let may = Command::new("unshare").args(["--mount", "--pid", "--fork", "true"]).output();
    let is_root = may.is_ok_and(|may| may.status.success());
    if !is_root {
        eprintln!("skipped without root: first processes of containers, full disks");
    }
    let mut jobs: Vec<(&Row, Situation, End)> = Vec::new();
    for situation in SITUATIONS.into_iter().filter(|situation| is_root || !situation.needs_root()) {
        jobs.extend(rows.iter().filter_map(|row| Some((row, situation, situation.end(row.kind)?))));
    }
    let (jobs, wrong) = (Mutex::new(jobs.into_iter()), Mutex::new(Vec::new()));
    let next = || jobs.lock().expect("no panic").next();
    let work = || {
        while let Some((row, situation, end)) = next() {
            let run = Run { program, row, situation, folder: fresh(folder) };
            if let Err(why) = run.check(end) {
                wrong.lock().expect("no panic").push(format!("{} in {situation:?}: {why}", row.words));
            }
        }
    };
    thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(work))));
    let wrong = wrong.into_inner().expect("no panic");
    assert!(wrong.is_empty(), "{program}:\n{}", wrong.join("\n"));
}

/// The rows name each command of which the program has a manual page, and no other.
fn check_complete(program: &str, rows: &[Row], folder: &Path) {
    let version = Command::new(program).arg("--version").output().expect("the program");
    assert_eq!(String::from_utf8_lossy(&version.stdout).lines().count(), 1, "{version:?}");
    let pages = fresh(folder);
    assert!(Command::new(program).arg("man").arg(&pages).status().expect("the program").success());
    let names = std::fs::read_dir(&pages).expect("pages").map(|page| page.expect("a page").path());
    let names: Vec<String> =
        names.map(|page| page.file_stem().expect("a name").to_string_lossy().into_owned()).collect();
    let has_more = |name: &str| names.iter().any(|other| other.starts_with(&format!("{name}-")));
    let (leaves, base): (Vec<_>, _) =
        (names.iter().filter(|name| !has_more(name)).collect(), Path::new(program).file_name());
    let base = base.expect("a name").to_string_lossy();
    for leaf in leaves {
        let words: Vec<&str> = leaf.split('-').skip(1).collect();
        let is_of = |row: &&Row| row.words.split_whitespace().zip(&words).all(|(a, b)| a == *b);
        assert!(rows.iter().any(|row| is_of(&row)), "{base} {}: the command has no row", words.join(" "));
    }
}

/// A path in the folder that no other run has.
fn fresh(folder: &Path) -> PathBuf {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let path = folder.join(format!("run{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
    std::fs::create_dir(&path).expect("a folder");
    path
}

/// A command in a situation.
struct Run<'a> {
    program: &'static str,
    row: &'a Row,
    situation: Situation,
    folder: PathBuf,
}

impl Run<'_> {
    fn check(&self, end: End) -> Result<(), String> {
        let (kind, situation) = (self.row.kind, self.situation);
        let (mut process, _ends) = self.start();
        if matches!(kind, Reads | Asks) && !situation.is_asked(kind) && situation != EndlessLine {
            process.feed(b"password1\n");
        }
        let signal = if let Asked(name) = situation { name } else { "TERM" };
        let mut caught = true;
        if situation.is_asked(kind) {
            caught = self.ask(&mut process, signal);
        }
        let outcome = process.finish();
        self.compare(&outcome, end, caught)
    }

    /// Starts the command. Returns what has to live as long as it does.
    fn start(&self) -> (Process, Vec<OwnedFd>) {
        let mut command = Command::new("sh");
        command.args(["-c", &self.situation.script()]).arg(&self.folder).arg(self.program);
        for word in self.row.words.split_whitespace() {
            let (path, name) = (self.folder.join("new"), self.folder.file_name().expect("a name"));
            command
                .arg(word.replace("NEW", &path.to_string_lossy()).replace("FRESH", &name.to_string_lossy()));
        }
        let reads = matches!(self.row.kind, Reads | Asks);
        command.stdin(if reads { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let full = || File::options().write(true).open("/dev/full").expect("a device");
        let mut ends = Vec::new();
        match self.situation {
            UnreadOutput | UnreadErrors => {
                let (reader, writer) = full_pipe();
                let of = if self.situation == UnreadOutput { Command::stdout } else { Command::stderr };
                of(&mut command, writer);
                ends.push(reader);
            }
            ClosedReader => {
                let (reader, writer) = std::io::pipe().expect("a pipe");
                drop(reader);
                command.stdout(writer);
            }
            FullOutput => drop(command.stdout(full())),
            FullErrors => drop(command.stderr(full())),
            _ => {}
        }
        (Process::start(command), ends)
    }

    /// Sends a signal once the process waits for something. Whether the process catches it; a process that has ended meanwhile gets none.
    fn ask(&self, process: &mut Process, signal: &str) -> bool {
        let must_catch = self.situation == FirstProcess || !matches!(self.row.kind, Asks | Prints);
        let (mut waits, mut pauses, mut pid) = (0, 0, None);
        until("the command waits", || {
            pid = pid.or_else(|| self.pid(process));
            let state = pid.and_then(|pid| state(pid, signal));
            let is_ready = state.is_some_and(|(sleeps, catches)| sleeps && (catches || !must_catch));
            waits = if is_ready { waits + 1 } else { 0 };
            // One with work every millisecond sleeps seldom on a busy machine.
            pauses += u32::from(is_ready);
            thread::sleep(Duration::from_millis(10));
            waits == 5 || pauses == 30 || !process.is_running()
        });
        let Some(pid) = pid.filter(|_| waits == 5 || pauses == 30) else { return true };
        let catches = state(pid, signal).is_some_and(|(_, catches)| catches);
        // It may have ended just now.
        let _ = Command::new("kill").args(["-s", signal, &pid.to_string()]).stderr(Stdio::null()).status();
        catches
    }

    /// The number of the command's process, once it runs.
    fn pid(&self, process: &Process) -> Option<u32> {
        let pid = match self.situation {
            FirstProcess => {
                let children = format!("/proc/{0}/task/{0}/children", process.id());
                std::fs::read_to_string(children).ok()?.split_whitespace().next()?.parse().ok()?
            }
            _ => process.id(),
        };
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        command.starts_with(self.program.as_bytes()).then_some(pid)
    }

    fn compare(&self, outcome: &Outcome, end: End, caught: bool) -> Result<(), String> {
        let (status, said) = (outcome.status, outcome.stderr.trim());
        let hides = matches!(self.situation, AllClosed | UnreadErrors | FullErrors);
        let is_right = match (end, status.code()) {
            (End::Good, code) => code == Some(0),
            (End::Fails, code) => code == Some(1) || code == Some(2),
            // A command without handlers ends by the signal.
            (End::Any, None) => !caught && status.signal().is_some(),
            (End::Any, Some(code)) => {
                matches!(code, 0..=3) || (self.situation == FirstProcess && matches!(code, 130 | 143))
            }
        };
        let tells = hides || !matches!(status.code(), Some(1..=3)) || !said.is_empty();
        match is_right && tells && !said.contains("panicked") {
            true => Ok(()),
            false => Err(format!("not {end:?}, but {status}; it said: {said}")),
        }
    }
}

/// Whether the first thread of a process sleeps, and whether the process catches a signal.
fn state(pid: u32, signal: &str) -> Option<(bool, bool)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let sleeps = stat.rsplit(')').next()?.trim_start().starts_with('S');
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
    let bit = if signal == "INT" { 1 } else { 14 };
    Some((sleeps, u64::from_str_radix(caught.trim(), 16).ok()? >> bit & 1 == 1))
}

/// A pipe that takes nothing more, for a process that would wait.
fn full_pipe() -> (OwnedFd, OwnedFd) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let flags = fcntl_getfl(writer.as_fd()).expect("flags");
    fcntl_setfl(writer.as_fd(), flags | OFlags::NONBLOCK).expect("flags");
    for size in [4096, 1] {
        while writer.write(&[b'x'; 4096][..size]).is_ok() {}
    }
    fcntl_setfl(writer.as_fd(), flags).expect("flags");
    (reader.into(), writer.into())
}
