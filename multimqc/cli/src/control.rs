//! The control socket: a connection gets one JSON object in one line.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use commands::Failure;
use serde_json::Value;

/// How long a client may take to read its line, and a server to send it.
const PATIENCE: Duration = Duration::from_secs(5);
/// Larger than the report of a server with the most topics.
const MAX_REPORT_BYTES: u64 = 64 << 20;
/// The most clients that have not taken their lines yet, of which the server keeps the rest. The oldest one makes room.
const MAX_CLIENTS: usize = 8;

/// The server's end. The file of the socket is removed when this is dropped.
pub struct Control {
    listener: UnixListener,
    path: PathBuf,
    /// The device and number of the file.
    file: (u64, u64),
    /// Clients that have not taken their lines yet, the oldest first.
    clients: VecDeque<Client>,
    /// How long each may take.
    patience: Duration,
}

/// A client that gets its line.
struct Client {
    socket: UnixStream,
    line: Vec<u8>,
    sent: usize,
    /// When it has to have it.
    until: Instant,
}

impl Client {
    /// Sends what the client takes now. False if it needs no more.
    fn send(&mut self) -> bool {
        while self.sent < self.line.len() {
            match self.socket.write(&self.line[self.sent..]) {
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        false
    }
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
        let clients = VecDeque::with_capacity(MAX_CLIENTS);
        Ok(Control { listener, path, file: (file.dev(), file.ino()), clients, patience: PATIENCE })
    }

    /// Readable when a client has connected.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// The clients that have not taken their lines yet.
    pub fn outputs(&self) -> Vec<BorrowedFd<'_>> {
        self.clients.iter().map(|client| client.socket.as_fd()).collect()
    }

    /// When a client has to have its line.
    pub fn due(&self) -> Option<Instant> {
        self.clients.front().map(|client| client.until)
    }

    /// Answers the clients that have connected, as far as they read. Never waits.
    pub fn answer(&mut self, report: impl Fn() -> Value) {
        for _ in 0..MAX_CLIENTS {
            let Ok((socket, _)) = self.listener.accept() else { break };
            if socket.set_nonblocking(true).is_err() {
                continue;
            }
            if self.clients.len() == MAX_CLIENTS {
                self.clients.pop_front();
            }
            let (line, until) = (format!("{}\n", report()).into_bytes(), Instant::now() + self.patience);
            self.clients.push_back(Client { socket, line, sent: 0, until });
        }
        let now = Instant::now();
        self.clients.retain_mut(|client| client.send() && client.until > now);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// All that a client gets while the server answers.
    fn take(client: &mut UnixStream, control: &mut Control, report: impl Fn() -> Value + Copy) -> Vec<u8> {
        client.set_nonblocking(true).unwrap();
        let (mut got, mut bytes) = (Vec::new(), vec![0; 1 << 16]);
        loop {
            match client.read(&mut bytes) {
                Ok(0) => return got,
                Ok(n) => got.extend_from_slice(&bytes[..n]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => control.answer(report),
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn a_client_that_reads_nothing_holds_up_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let mut control = Control::listen(path.clone()).unwrap();
        control.patience = Duration::from_secs(600);
        let report = || Value::from("x".repeat(1 << 20));
        let whole = format!("{}\n", report()).into_bytes();
        let mut idle = UnixStream::connect(&path).unwrap();
        let mut reader = UnixStream::connect(&path).unwrap();
        control.answer(report);
        assert_eq!(control.outputs().len(), 2);
        assert!(control.due().is_some());
        assert!(take(&mut reader, &mut control, report) == whole);
        assert!(take(&mut idle, &mut control, report) == whole, "it was waited for all the time");
        assert!(control.outputs().is_empty() && control.due().is_none());

        let _silent: Vec<_> = (0..=MAX_CLIENTS).map(|_| UnixStream::connect(&path).unwrap()).collect();
        control.answer(report);
        control.answer(report);
        assert_eq!(control.outputs().len(), MAX_CLIENTS);
    }
}
