//! Processes of the tests.

use std::process::{Child, Command};

/// The command, without what the environment of the test says to it.
pub fn rblive() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rblive"));
    command.env_remove("RBLIVE_CONFIG").env_remove("RBLIVE_LOG");
    command
}

/// A process that is killed with the test.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
