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
use rustix::process::{Pid, Signal, kill_process_group};
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

/// Where runs find their programs, and leave their rows.
#[derive(Debug)]
pub struct Place {
    /// The folder of rows and page
    pub folder: PathBuf,
    /// Cargo's folder of built programs
    pub target: PathBuf,
    /// The version of the programs
    pub commit: String,
}

impl Place {
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

    /// The program and the arguments of a run.
    fn command(&self, run: &Run, words: &[String]) -> Vec<String> {
        let own = self.target.join("release").join(&run.program);
        let program = if own.is_file() { own.display().to_string() } else { run.program.clone() };
        let fill = |word: &String| {
            word.replace("{rows}", &self.rows_file(&run.name).display().to_string())
                .replace("{target}", &self.target.display().to_string())
        };
        [program].into_iter().chain(words.iter().map(fill)).collect()
    }

    /// Whether the rows of this call are there already.
    pub fn has(&self, run: &Run, quick: Option<&Quick>) -> bool {
        let command = self.command(run, &run.words(quick)).join(" ");
        self.kept(&run.name).is_some_and(|kept| kept.failed.is_none() && kept.command == command)
    }

    /// Measures: old rows go, and what is kept says how the bench ended. None if this program was asked to end.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn measure(&self, run: &Run, quick: Option<&Quick>, stop: &Stop) -> io::Result<Option<Kept>> {
        fs::create_dir_all(&self.folder)?;
        for file in [self.rows_file(&run.name), self.kept_file(&run.name)] {
            match fs::remove_file(file) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let command = self.command(run, &run.words(quick));
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let began = Instant::now();
        let limit = Duration::from_secs_f64(run.minutes * 60.0 * PATIENCE).max(LEAST_LIMIT);
        let failed = match child(&command, run).spawn() {
            Ok(child) => watch(child, limit, stop)?,
            Err(error) => Some(format!("{}: {error}", command[0])),
        };
        if stop.asked() {
            return Ok(None);
        }
        let kept = Kept {
            command: command.join(" "),
            at,
            seconds: began.elapsed().as_secs_f64(),
            is_short: quick.is_some(),
            failed,
            commit: self.commit.clone(),
            cpu: sys::cpu(),
            kernel: sys::kernel(),
        };
        fs::write(self.kept_file(&run.name), serde_json::to_string_pretty(&kept)? + "\n")?;
        Ok(Some(kept))
    }
}

/// The command, in a process group of its own, so that all its processes can be ended.
fn child(command: &[String], run: &Run) -> Command {
    let mut child = Command::new(&command[0]);
    child.args(&command[1..]).envs(&run.env).stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
    child
}

/// Waits for the end. A child that takes longer than the limit is ended, and so is one when this program is asked to end.
fn watch(mut child: Child, limit: Duration, stop: &Stop) -> io::Result<Option<String>> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((!status.success()).then(|| format!("the bench ended with {status}")));
        }
        let is_late = began.elapsed() > limit;
        if is_late || stop.asked() {
            end(&mut child)?;
            return Ok(Some(format!("the bench was ended after {} s", began.elapsed().as_secs())));
        }
        stop.wait(Some(STEP));
    }
}

/// Asks all processes of the child's group to end, and ends them after a while.
fn end(child: &mut Child) -> io::Result<()> {
    let group = Pid::from_child(child);
    // Without such a group, the processes have ended already.
    let _ = kill_process_group(group, Signal::TERM);
    let asked = Instant::now();
    while child.try_wait()?.is_none() && asked.elapsed() < GRACE {
        std::thread::sleep(STEP);
    }
    let _ = kill_process_group(group, Signal::KILL);
    child.wait().map(drop)
}

/// The commit of the tree in this folder, if git knows one.
pub fn commit(folder: &Path) -> String {
    let described =
        Command::new("git").args(["describe", "--always", "--dirty"]).current_dir(folder).output();
    let text = described.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    String::from_utf8_lossy(&text.unwrap_or_else(|| b"unknown".to_vec())).trim().to_owned()
}
