//! The measured systems with shared memory, the start of their processes, and the folder where the processes meet.

use std::{
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use benchkit::{direct::Role, named::Named, server, sys};
use clap::ValueEnum;
use serde::Serialize;

use crate::error::BenchError;

/// The setting that lets a process poll for a while before it sleeps.
const SPIN: (&str, &str) = ("shm.busy_poll_us", "ROCKETBUFS_SHM_BUSY_POLL_US");
const TRUST: &str = "ROCKETBUFS_SHM_TRUST_WRITERS";

/// Where shared memory is files.
const MEMORY: &str = "/dev/shm";
/// The prefix of a bench's names in shared memory; the bench's process id follows.
const OURS: &str = "rbmq-direct-";

/// The JVM options of Aeron's own scripts, and the option that touches memory before its use.
const JVM: [&str; 6] = [
    "-XX:+UseParallelGC",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "-Dagrona.disable.bounds.checks=true",
    "-Daeron.pre.touch.mapped.memory=true",
    "-Daeron.threading.mode=SHARED",
];

/// A system that carries messages between the two processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// RocketBufs as it comes: what another process writes is copied out before it is looked at
    Rocketbufs,
    /// RocketBufs with shm.trust_writers: messages are read where they were written, as by all others
    RocketbufsTrusting,
    /// Aeron's IPC, in Java
    Aeron,
    /// iceoryx2's publish and subscribe
    Iceoryx2,
}

impl System {
    /// Whether it is RocketBufs in one of its settings.
    pub fn is_ours(self) -> bool {
        matches!(self, System::Rocketbufs | System::RocketbufsTrusting)
    }

    /// The program of the system's processes, without their arguments; the error names the missing part.
    fn program(self) -> Result<Command, &'static str> {
        match self {
            System::Rocketbufs | System::RocketbufsTrusting => {
                let mut command = sys::worker().map_err(|_| "this program")?;
                command.arg("direct");
                command.env(TRUST, (self == System::RocketbufsTrusting).to_string());
                Ok(command)
            }
            System::Iceoryx2 => {
                server::find("direct-peers").map(Command::new).ok_or("its program in target/peers")
            }
            System::Aeron => {
                let jar = server::find("aeron/aeron-peer.jar").ok_or("its program in target/peers")?;
                let mut command = Command::new(server::find("java").ok_or("java")?);
                command.args(JVM).arg("-cp").arg(jar.with_file_name("*")).arg("AeronPeer");
                Ok(command)
            }
        }
    }

    /// The installed ones of these systems. Reports the others on standard error.
    pub fn installed(systems: impl IntoIterator<Item = System>) -> Vec<System> {
        let mut there = Vec::new();
        for system in systems {
            match system.program() {
                Err(what) => eprintln!(
                    "SKIPPED: {}: {what} is missing (scripts/bench-peers direct installs it)",
                    system.name()
                ),
                Ok(_) if there.contains(&system) => {}
                Ok(_) => there.push(system),
            }
        }
        there
    }
}

/// A system, and how long both of its ends spin before they sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Runner {
    /// The system.
    pub system: System,
    /// How long a process polls before it sleeps, in microseconds; 0 keeps the default.
    pub spin_us: u32,
}

impl Runner {
    /// Whether ours can; says aloud if not.
    pub fn can_spin() -> bool {
        let can = rocketbufs::config::knobs().iter().any(|knob| knob.name == SPIN.0);
        if !can {
            eprintln!("SKIPPED: spinning: this build has no {}", SPIN.0);
        }
        can
    }

    /// As in tables.
    pub fn name(self) -> String {
        match self.spin_us {
            0 => self.system.name(),
            spin_us => format!("{} spinning {spin_us} us", self.system.name()),
        }
    }

    /// The command that starts one of its processes.
    ///
    /// # Errors
    /// Something of it is missing.
    pub fn command(self, role: Role, at: &str) -> Result<Command, BenchError> {
        let peer = self.system.name();
        let mut command = self.system.program().map_err(|_| BenchError::NotInstalled { peer })?;
        command.args([&role.name(), "--at", at]);
        if self.spin_us > 0 {
            command.env(SPIN.1, self.spin_us.to_string());
        }
        Ok(command)
    }
}

/// A folder in shared memory where two processes meet. Dropping it removes the folder, and all files beside it whose names
/// begin with the folder's name, because the ends are killed and remove nothing.
pub struct Meeting {
    folder: PathBuf,
}

impl Meeting {
    /// A new one.
    ///
    /// # Errors
    /// There can be none.
    pub fn new() -> io::Result<Meeting> {
        let name = format!("{OURS}{}-{}", std::process::id(), sys::unique_number());
        let folder = Path::new(MEMORY).join(name);
        fs::create_dir(&folder)?;
        Ok(Meeting { folder })
    }

    /// The folder's path, an argument of both ends.
    pub fn place(&self) -> &str {
        self.folder.to_str().unwrap_or_default()
    }

    /// Removes files of benches that were killed themselves.
    pub fn sweep() {
        remove(|name| {
            let number = name.strip_prefix(OURS).and_then(|rest| rest.split('-').next());
            number.is_some_and(|number| !Path::new("/proc").join(number).exists())
        });
    }
}

impl Drop for Meeting {
    fn drop(&mut self) {
        let own = self.folder.file_name().and_then(OsStr::to_str).unwrap_or_default();
        remove(|name| name.strip_prefix(own).is_some_and(|rest| !rest.starts_with(char::is_numeric)));
    }
}

/// Removes files and folders with such names. The next bench removes the remaining ones.
fn remove(which: impl Fn(&str) -> bool) {
    for entry in fs::read_dir(MEMORY).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(&which) {
            let path = entry.path();
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meeting_takes_its_own_with_it_and_nothing_else() {
        let (one, other) = (Meeting::new().unwrap(), Meeting::new().unwrap());
        let beside = PathBuf::from(format!("{}_beside", one.place()));
        let longer = PathBuf::from(format!("{}0", one.place()));
        let inside = one.folder.join("inside");
        for file in [&beside, &longer, &inside] {
            fs::write(file, "x").unwrap();
        }
        let place = one.folder.clone();
        Meeting::sweep();
        assert!(inside.exists() && other.folder.exists(), "their process is here");
        drop(one);
        assert!(!place.exists() && !beside.exists() && longer.exists() && other.folder.exists());
        fs::remove_file(longer).unwrap();
    }
}
