//! The object store in which logs go on: the S3 of moto, a program in Python, on the machine of the clients.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use testkit::{Process, Random, until};

use crate::network::{End, Net, address};

const PORT: u16 = 9_000;

/// The longest time for which a slow store stands still, and the longest one for which it then works, in milliseconds.
const SLOW_MS: [u64; 2] = [400, 60];

/// The program that `S3_SERVER` names. None: no store.
pub fn store_program() -> Option<PathBuf> {
    std::env::var_os("S3_SERVER").map(PathBuf::from)
}

/// A store with a bucket. The objects are in its memory alone.
pub(crate) struct Store {
    process: Arc<Process>,
    slow: Option<Slow>,
}

/// A thread that stops the store again and again.
struct Slow {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Store {
    /// Starts a store.
    ///
    /// # Panics
    /// `S3_SERVER` names no program, or the program does not start.
    pub(crate) fn start() -> Self {
        let mut command = Command::new(store_program().expect("S3_SERVER"));
        let host = address(End::Clients, Net::Store);
        command.args(["-H", &host, "-p", &PORT.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = Arc::new(Process::start(command));
        until("the store has a bucket", || make_bucket(&host).is_some());
        Self { process, slow: None }
    }

    /// The sections of a broker's file for it.
    pub(crate) fn settings(folder: &Path) -> String {
        let key = folder.join("key");
        // The store asks nobody for a key.
        std::fs::write(&key, "AKID\nsecret\n").expect("a file");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&key, mode).expect("a file");
        format!(
            "[s3]\nendpoint = 'http://{}:{PORT}'\nbucket = 'bucket'\naccess_key_file = '{}'\nbatch_ms = 200\ntimeout_ms = 1000\nreplay_wait_ms = 5000\n",
            address(End::Clients, Net::Store),
            key.display()
        )
    }

    /// Sends the store a signal: STOP or CONT.
    pub(crate) fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// Makes the store slow from now on.
    pub(crate) fn slow_down(&mut self, seed: u64) {
        self.go_on();
        let (is_over, process) = (Arc::<AtomicBool>::default(), self.process.clone());
        let over = is_over.clone();
        let thread = std::thread::spawn(move || {
            let mut random = Random::new(seed);
            while !over.load(Ordering::Acquire) {
                for (signal, most) in ["STOP", "CONT"].into_iter().zip(SLOW_MS) {
                    process.signal(signal);
                    std::thread::sleep(Duration::from_millis(random.between(5, most)));
                }
            }
        });
        self.slow = Some(Slow { is_over, thread });
    }

    /// Makes the store fast again.
    pub(crate) fn go_on(&mut self) {
        if let Some(Slow { is_over, thread }) = self.slow.take() {
            is_over.store(true, Ordering::Release);
            thread.join().expect("no panic");
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.go_on();
    }
}

/// Makes the bucket. None: the store does not answer yet.
fn make_bucket(host: &str) -> Option<()> {
    let mut stream = TcpStream::connect((host, PORT)).ok()?;
    let ask = format!(
        "PUT /bucket HTTP/1.1\r\nHost: {host}:{PORT}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    );
    stream.write_all(ask.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.starts_with("HTTP/1.1 200").then_some(())
}
