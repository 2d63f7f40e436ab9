//! The control socket of `multimqc serve`.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use commands::Failure;
use serde_json::Value;

/// The longest time that a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// More than the report of a server with the most topics has.
const MAX_REPORT_BYTES: u64 = 64 << 20;

/// The report of the server that listens at the path: an object in one line.
pub fn ask(path: &Path) -> Result<Value, Failure> {
    let fail = |error: &dyn std::fmt::Display| Failure::Failed(format!("{}: {error}", path.display()));
    let server = UnixStream::connect(path).map_err(|error| fail(&error))?;
    server.set_read_timeout(Some(PATIENCE)).map_err(|error| fail(&error))?;
    serde_json::from_reader(server.take(MAX_REPORT_BYTES)).map_err(|error| fail(&error))
}
