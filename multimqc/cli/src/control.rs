//! The control socket: a connection gets one JSON object in one line.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use commands::Failure;
use serde_json::Value;

/// How long a client may take to read its line, and a server to send it.
const PATIENCE: Duration = Duration::from_secs(5);
/// Larger than the report of a server with the most topics.
const MAX_REPORT_BYTES: u64 = 64 << 20;

/// The server's end. The file of the socket is removed when this is dropped.
pub struct Control {
    listener: UnixListener,
    path: PathBuf,
    /// The device and number of the file.
    file: (u64, u64),
}

/// The text of an error. That of a long path names a constant of C.
fn told(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::InvalidInput => "the path of a socket has at most 107 bytes".into(),
        _ => error.to_string(),
    }
}

/// Removes a socket at which nobody listens.
fn remove_abandoned(path: &Path) -> Result<(), Failure> {
    let refuse = |why: String| Err(Failure::Failed(format!("{}: {why}; use --control", path.display())));
    let fail = |error: io::Error| Failure::Failed(format!("{}: {error}", path.display()));
    if !std::fs::symlink_metadata(path).map_err(fail)?.file_type().is_socket() {
        return refuse("the file is no socket of a server, and stays".into());
    }
    match UnixStream::connect(path) {
        Ok(_) => refuse("another server has it".into()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(fail)
        }
        Err(error) => refuse(format!("the socket may be in use: {error}")),
    }
}

impl Control {
    /// Listens at the path. A file that an earlier server has left is replaced.
    pub fn listen(path: PathBuf) -> Result<Control, Failure> {
        let fail = |error: io::Error| Failure::Failed(format!("{}: {}", path.display(), told(&error)));
        let listener = match UnixListener::bind(&path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                remove_abandoned(&path)?;
                UnixListener::bind(&path).map_err(fail)?
            }
            other => other.map_err(fail)?,
        };
        listener.set_nonblocking(true).map_err(fail)?;
        let file = std::fs::symlink_metadata(&path).map_err(fail)?;
        Ok(Control { listener, path, file: (file.dev(), file.ino()) })
    }

    /// Readable when a client has connected.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Answers the clients that have connected.
    pub fn answer(&self, report: impl Fn() -> Value) {
        while let Ok((mut client, _)) = self.listener.accept() {
            let line = format!("{}\n", report());
            // A client that does not read its line gets none.
            let _ = client.set_write_timeout(Some(PATIENCE)).and_then(|()| client.write_all(line.as_bytes()));
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // Another server may have made its own meanwhile.
        let own = |file: std::fs::Metadata| (file.dev(), file.ino()) == self.file;
        if std::fs::symlink_metadata(&self.path).is_ok_and(own) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The report of the server that listens at the path.
pub fn ask(path: &Path) -> Result<Value, Failure> {
    let server = UnixStream::connect(path).map_err(|error| {
        let hint = "is `multimqc serve` running, with this --control?";
        Failure::Failed(format!("{}: {}; {hint}", path.display(), told(&error)))
    })?;
    let fail = |error: io::Error| Failure::Failed(format!("{}: {error}", path.display()));
    server.set_read_timeout(Some(PATIENCE)).map_err(fail)?;
    let mut line = String::new();
    server.take(MAX_REPORT_BYTES).read_to_string(&mut line).map_err(fail)?;
    serde_json::from_str(&line).map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))
}
