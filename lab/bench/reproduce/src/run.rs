//! A bench as a child process, with its rows in a file.

use std::{
    fs,
    io::{self, ErrorKind},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use benchkit::sys;
use commands::Stop;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, kill_process_group, set_child_subreaper, waitpid,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::list::{Quick, Run};

/// How often the child is looked after.
const STEP: Duration = Duration::from_millis(200);
/// How long a child that was asked to end may take.
const GRACE: Duration = Duration::from_secs(20);
/// How many times the time that a run is listed with it may take, and the least limit.
const PATIENCE: f64 = 3.0;
const LEAST_LIMIT: Duration = Duration::from_secs(120);

/// What is kept of a run beside its rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// The command line
    pub command: String,
    /// When it began, in seconds since 1970
    pub at: u64,
    /// How long it took
    pub seconds: f64,
    /// Whether it was the short form, whose figures are void
    pub is_short: bool,
    /// Why it did not end well
    pub failed: Option<String>,
    /// The version of the measured programs
    pub commit: String,
    /// The processor
    pub cpu: String,
    /// The kernel
    pub kernel: String,
}

impl Kept {
    /// Where and of what the rows were measured.
    pub fn source(&self) -> String {
        format!("{}, {}, commit {}", self.cpu, self.kernel, self.commit)
    }
}

/// Where runs find their programs, and leave their rows.
#[derive(Debug)]
pub struct Place {
    /// The folder of rows and page
    pub folder: PathBuf,
    target: PathBuf,
    commit: String,
    quick: Option<Quick>,
}

impl Place {
    /// A place with a folder for rows and page, cargo's folder of built programs, and the version of these. A short form has a folder of
    /// its own in it, so that its rows never replace measured ones.
    pub fn new(folder: &Path, target: &Path, commit: String, quick: Option<Quick>) -> Place {
        let folder = if quick.is_some() { folder.join("quick") } else { folder.to_owned() };
        Place { folder, target: target.to_owned(), commit, quick }
    }

    /// The file of a run's rows.
    fn rows_file(&self, run: &str) -> PathBuf {
        self.folder.join(format!("{run}.json"))
    }

    fn kept_file(&self, run: &str) -> PathBuf {
        self.folder.join(format!("{run}.run.json"))
    }

    /// What is kept of a run; none if it has not been measured.
    pub fn kept(&self, run: &str) -> Option<Kept> {
        serde_json::from_slice(&fs::read(self.kept_file(run)).ok()?).ok()
    }

    /// The rows of a run; none if it has not been measured.
    pub fn rows(&self, run: &str) -> Vec<Value> {
        let text = fs::read(self.rows_file(run)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// The program and the arguments of a run with this file for its rows.
    fn command(&self, run: &Run, rows: &Path) -> Vec<String> {
        let own = self.target.join("release").join(&run.program);
        let program = if own.is_file() { own.display().to_string() } else { run.program.clone() };
        let fill = |word: &String| {
            word.replace("{rows}", &rows.display().to_string())
                .replace("{target}", &self.target.display().to_string())
        };
        [program].into_iter().chain(run.words(self.quick.as_ref()).iter().map(fill)).collect()
    }

    /// Whether the rows of this call are there already, of whichever commit and machine: see [`Place::is_stale`].
    pub fn has(&self, run: &Run) -> bool {
        let command = self.command(run, &self.rows_file(&run.name)).join(" ");
        self.kept(&run.name).is_some_and(|kept| kept.failed.is_none() && kept.command == command)
    }

    /// Whether the rows are there, but of another commit, processor or kernel.
    pub fn is_stale(&self, run: &Run) -> bool {
        let here = (self.commit.as_str(), sys::cpu(), sys::kernel());
        self.kept(&run.name).is_some_and(|kept| (kept.commit.as_str(), kept.cpu, kept.kernel) != here)
    }

    /// Measures, and says how the bench ended. Its rows replace older ones at the end, unless it failed and those are whole. None if this
    /// program was asked to end: the older ones stay.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn measure(&self, run: &Run, stop: &Stop) -> io::Result<Option<Kept>> {
        fs::create_dir_all(&self.folder)?;
        set_child_subreaper(Some(getpid()))?;
        let fresh = self.folder.join(format!("{}.new", run.name));
        remove(&fresh)?;
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let began = Instant::now();
        let command = self.command(run, &fresh);
        let failed = match child(&command, run).spawn() {
            Ok(child) => watch(child, limit(run), stop)?,
            Err(error) => Some(format!("{}: {error}", command[0])),
        };
        if stop.asked() {
            return remove(&fresh).map(|()| None);
        }
        let kept = Kept {
            command: self.command(run, &self.rows_file(&run.name)).join(" "),
            at,
            seconds: began.elapsed().as_secs_f64(),
            is_short: self.quick.is_some(),
            failed,
            commit: self.commit.clone(),
            cpu: sys::cpu(),
            kernel: sys::kernel(),
        };
        self.keep(&run.name, &kept, &fresh)?;
        Ok(Some(kept))
    }

    /// Puts fresh rows in the place of older ones; those of a bench that failed do not replace whole ones.
    fn keep(&self, run: &str, kept: &Kept, fresh: &Path) -> io::Result<()> {
        if kept.failed.is_some() && self.kept(run).is_some_and(|old| old.failed.is_none()) {
            return remove(fresh);
        }
        // Rows without this file are measured again.
        remove(&self.kept_file(run))?;
        remove(&self.rows_file(run))?;
        if fresh.exists() {
            fs::rename(fresh, self.rows_file(run))?;
        }
        fs::write(self.kept_file(run), serde_json::to_string_pretty(kept)? + "\n")
    }
}

/// How long a run may take.
fn limit(run: &Run) -> Duration {
    Duration::from_secs_f64(run.minutes * 60.0 * PATIENCE).max(LEAST_LIMIT)
}

/// Removes a file, if it is there.
fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The command, in a process group of its own, so that all its processes can be ended.
fn child(command: &[String], run: &Run) -> Command {
    let mut child = Command::new(&command[0]);
    child.args(&command[1..]).envs(&run.env).stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
    child
}

/// Waits for the end, and ends what the child leaves behind. A child that takes longer than the limit is ended, and so is one when this
/// program is asked to end.
fn watch(mut child: Child, limit: Duration, stop: &Stop) -> io::Result<Option<String>> {
    let began = Instant::now();
    let failed = loop {
        if let Some(status) = child.try_wait()? {
            break (!status.success()).then(|| format!("the bench ended with {status}"));
        }
        let is_late = began.elapsed() > limit;
        if is_late || stop.asked() {
            end(&mut child)?;
            break Some(format!("the bench was ended after {} s", began.elapsed().as_secs()));
        }
        stop.wait(Some(STEP));
    };
    end_orphans();
    Ok(failed)
}

/// Asks all processes of the child's group to end, and ends the child after a while.
fn end(child: &mut Child) -> io::Result<()> {
    // Without such a group, the processes have ended already.
    let _ = kill_process_group(Pid::from_child(child), Signal::TERM);
    let asked = Instant::now();
    while child.try_wait()?.is_none() && asked.elapsed() < GRACE {
        std::thread::sleep(STEP);
    }
    child.kill()?;
    child.wait().map(drop)
}

/// Ends all processes that a bench left behind, of whichever group and session: this program is their reaper, so that what loses its
/// parent becomes its child. A child keeps its id until it is waited for.
fn end_orphans() {
    let end = |pid: &Pid| {
        kill_process(*pid, Signal::KILL).is_ok() && waitpid(Some(*pid), WaitOptions::empty()).is_ok()
    };
    let orphans =
        || sys::children(std::process::id()).into_iter().filter_map(|pid| Pid::from_raw(pid.cast_signed()));
    // What an ended one had started is a child in the next turn.
    while orphans().filter(end).count() > 0 {}
}

/// The commit of the tree in this folder, if git knows one.
pub fn commit(folder: &Path) -> String {
    let described =
        Command::new("git").args(["describe", "--always", "--dirty"]).current_dir(folder).output();
    let text = described.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    String::from_utf8_lossy(&text.unwrap_or_else(|| b"unknown".to_vec())).trim().to_owned()
}
