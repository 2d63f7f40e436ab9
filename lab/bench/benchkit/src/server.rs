//! Third-party programs, started for one measurement and never left behind.

use std::{
    fs, io,
    net::TcpStream,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group, set_parent_process_death_signal};

use crate::sys;

/// How a program is started.
#[derive(Debug)]
pub struct Start {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Additions to its environment.
    pub env: Vec<(String, String)>,
}

/// Finds a program: beside the folder of this program (`target/peers`), in PATH, or where packages install
/// it.
pub fn find(name: &str) -> Option<PathBuf> {
    let mut folders = Vec::new();
    if let Ok(program) = std::env::current_exe() {
        folders.extend(program.ancestors().skip(1).take(3).map(|folder| folder.join("peers")));
    }
    folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    folders.extend(["/usr/bin".into(), "/usr/sbin".into()]);
    folders.into_iter().map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Waits until something listens at an address, and connects to it.
///
/// # Errors
/// Nothing does in time, or its program has ended.
pub fn wait_listening(
    address: &str,
    limit: Duration,
    mut has_ended: impl FnMut() -> bool,
) -> io::Result<TcpStream> {
    let begun = Instant::now();
    loop {
        match TcpStream::connect(address) {
            Ok(socket) => return Ok(socket),
            Err(error) if has_ended() || begun.elapsed() > limit => {
                return Err(io::Error::new(error.kind(), format!("nothing listens at {address}: {error}")));
            }
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// A program and the processes that it started, in a process group of its own. Dropping it kills them all.
/// The kernel does so too when the starting thread ends: [`become_server`] requests that.
#[derive(Debug)]
pub struct Group {
    child: Child,
}

impl Group {
    /// Starts the program in a folder, with its output in the file `log`.
    ///
    /// # Errors
    /// The folder cannot be written to, or this program cannot be started.
    pub fn start(start: &Start, folder: &Path, log: &str) -> io::Result<Group> {
        let log = fs::File::create(folder.join(log))?;
        let mut command = sys::worker()?;
        command.args(["become-server", "--"]).arg(&start.program).args(&start.args);
        command.envs(start.env.iter().map(|(name, value)| (name, value))).current_dir(folder);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        Ok(Group { child: command.spawn()? })
    }

    /// The id of the process and of its group.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// True if the program has ended by itself.
    ///
    /// # Errors
    /// The system call failed.
    pub fn has_ended(&mut self) -> io::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let group = Pid::from_raw(self.child.id().cast_signed());
        // The kill fails only if no process is left.
        let _ = group.map(|group| kill_process_group(group, Signal::KILL));
        let _ = self.child.wait();
    }
}

/// Replaces this process by a program that dies with its parent. Returns only on failure.
///
/// # Errors
/// The program cannot be started.
pub fn become_server(program: &Path, args: &[String]) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    Err(Command::new(program).args(args).exec())
}
