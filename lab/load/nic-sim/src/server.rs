//! The server behind the NIC: `multimqc serve`.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use commands::{Failure, Stop};

use crate::control;
use crate::devices::Device;

/// The port of the header form, to which the NIC sends its batches.
pub const HEADER_PORT: u16 = 19997;
/// The ports of the topic that the NIC knows.
const PUSH_PORT: u16 = 19999;
const PULL_PORT: u16 = 19998;
/// The time between two questions to the server's control socket.
const INTERVAL: Duration = Duration::from_millis(50);

/// A topic's log, as the server has it.
pub struct Log {
    pub topic: u16,
    pub epoch: u64,
    pub head: u64,
}

/// The server, which ends with its handle.
pub struct Server {
    child: Child,
    control: PathBuf,
    /// Its configuration, in a file without a name.
    _config: File,
}

impl Server {
    /// Starts the server, which is the command `multimqc`, with a topic on an interface. `args` are further arguments of `multimqc serve`.
    pub fn start(
        multimqc: &Path,
        card: Device<'_>,
        topic: u16,
        args: &[String],
        control: PathBuf,
    ) -> Result<Server, Failure> {
        if control::ask(&control).is_ok() {
            let message = format!("another server has {}; use --control", control.display());
            return Err(Failure::Failed(message));
        }
        let config = configuration(topic)?;
        let file = format!("/proc/{}/fd/{}", std::process::id(), config.as_raw_fd());
        let mut command = Command::new(multimqc);
        command.args(["serve", "--interface", card.name, "--address", &card.address.to_string()]);
        command.arg("--control").arg(&control);
        if !args.iter().any(|arg| arg == "--config" || arg.starts_with("--config=")) {
            command.args(["--config", &file]);
        }
        // Standard output is for the lines of this command.
        let output = std::io::stderr().as_fd().try_clone_to_owned()?;
        let child = command.args(args).stdin(Stdio::null()).stdout(output).process_group(0).spawn();
        let child = child.map_err(|error| Failure::Failed(format!("{}: {error}", multimqc.display())))?;
        Ok(Server { child, control, _config: config })
    }

    /// Waits until the server answers, and returns the topic's log. `None`: the command was asked to end.
    pub fn wait_for_log(&mut self, topic: u16, stop: &Stop) -> Result<Option<Log>, Failure> {
        while !stop.wait(Some(INTERVAL)) {
            self.check()?;
            if control::ask(&self.control).is_ok() {
                return self.log(topic).map(Some);
            }
        }
        Ok(None)
    }

    /// The log of the topic as it is now.
    pub fn log(&self, topic: u16) -> Result<Log, Failure> {
        let report = control::ask(&self.control)?;
        let topics = report["topics"].as_array().map_or(&[][..], Vec::as_slice);
        let log = topics
            .iter()
            .find(|one| one["id"] == topic)
            .and_then(|one| Some(Log { topic, epoch: one["epoch"].as_u64()?, head: one["head"].as_u64()? }));
        log.ok_or_else(|| Failure::Failed(format!("the server has no topic {topic}; see --topic")))
    }

    /// # Errors
    /// The server has ended.
    pub fn check(&mut self) -> Result<(), Failure> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => {
                Err(Failure::Failed(format!("the server has ended: {status}; its message is above")))
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        if let Ok(None) = self.child.try_wait() {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

/// A small server: its rings overflow soon, so that every level is seen at work.
fn configuration(topic: u16) -> Result<File, Failure> {
    let text = format!(
        "levels = ['kernel', 'user']
accept_batches = true
batch_bytes = 16384
expected_bytes_per_second = 1000000
expected_latency_ms = 10
[kernel]
ring_bytes = 131072
[user]
capacity_bytes = 524288
[[topics]]
id = {topic}
push_port = {PUSH_PORT}
pull_port = {PULL_PORT}
"
    );
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let mut file =
        rustix::fs::memfd_create("multimqc.toml", flags).map(File::from).map_err(Failure::failed)?;
    file.write_all(text.as_bytes())?;
    Ok(file)
}
