//! Processes of the tests.

use std::path::Path;
use std::process::{Command, Stdio};

use testkit::Process;

/// The command, without what the environment of the test says to it.
pub fn rblive() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rblive"));
    command.env_remove("RBLIVE_CONFIG").env_remove("RBLIVE_LOG");
    command
}

/// `rblive serve` with a configuration.
pub fn serve(config: &Path) -> Command {
    let mut command = rblive();
    command.arg("serve").arg("--config").arg(config);
    command
}

/// A node that runs, and what it has said about its listeners.
pub struct Serving {
    pub process: Process,
    pub said: String,
}

impl Serving {
    pub fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped());
        let mut process = Process::start(command);
        let said = process.line();
        Self { process, said }
    }

    /// The address, or the page, that follows `before` in what it has said.
    pub fn after(&self, before: &str) -> String {
        let rest = self.said.split_once(before).unwrap_or_else(|| panic!("{before}: {}", self.said)).1;
        rest.split([';', '\n']).next().unwrap().to_owned()
    }

    /// As [`Serving::after`], without a path.
    pub fn address(&self, before: &str) -> String {
        self.after(before).split('/').next().unwrap().to_owned()
    }
}

pub fn ffmpeg() -> Command {
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error"]);
    command
}

/// Ends an encoder as Ctrl-C does.
pub fn end(mut encoder: Process) {
    assert!(encoder.is_running(), "the encoder pushes as long as somebody looks");
    encoder.signal("INT");
    encoder.finish();
}

/// Makes a certificate and its key, as `chain.pem` and `key.pem` in a folder.
pub fn certify(folder: &Path) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("chain.pem"), made.cert.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
}

/// Writes a file that only its user can read, as one with secrets must be.
pub fn write_own(file: &Path, text: &str) {
    std::fs::write(file, text).unwrap();
    std::fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
}
