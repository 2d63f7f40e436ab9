//! A bridge to NATS: each datagram is a message, in NATS' own protocol of text.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use commands::{Failure, Stop};
use testkit::own_port;

use crate::count::Count;
use crate::datagrams::Datagrams;

const PATIENCE: Duration = Duration::from_millis(10);
const START: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(long)]
    address: IpAddr,
    #[arg(long)]
    port: u16,
    /// The program nats-server
    #[arg(long)]
    server: PathBuf,
    #[arg(long)]
    count: PathBuf,
    /// Keep the messages in a stream (JetStream), with files in this folder. Otherwise the server takes and forgets them
    #[arg(long)]
    stream: Option<PathBuf>,
}

/// A server that ends with its handle.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How far the server has come. The server answers a PING behind everything that came before it, and one is under way at a
/// time.
#[derive(Default)]
struct Progress {
    /// Messages before the PING under way; 0: there is none.
    asked: AtomicU64,
    /// Messages that the server has taken.
    taken: AtomicU64,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let stop = Stop::install()?;
    let port = own_port();
    let _server = start(&args.server, port, args.stream.as_deref())?;
    let mut connection = connect(port)?;
    connection.set_nodelay(true)?;
    let mut lines = BufReader::new(connection.try_clone()?);
    connection.write_all(b"CONNECT {\"verbose\":false,\"pedantic\":false}\r\nPING\r\n")?;
    wait_for(&mut lines, "PONG")?;
    if args.stream.is_some() {
        make_stream(&mut connection, &mut lines)?;
    }
    let progress = Arc::new(Progress::default());
    let of_reader = Arc::clone(&progress);
    std::thread::spawn(move || follow(&mut lines, &of_reader));
    let count = Count::create(&args.count)?;
    let mut datagrams = Datagrams::bind(args.address, args.port)?;
    println!("listening");
    let (mut sent, mut text) = (0_u64, Vec::new());
    while !stop.asked() {
        text.clear();
        let some = datagrams.receive(PATIENCE, |datagram| {
            text.extend_from_slice(format!("PUB m {}\r\n", datagram.len()).as_bytes());
            text.extend_from_slice(datagram);
            text.extend_from_slice(b"\r\n");
        })?;
        sent += some as u64;
        let is_behind = sent > progress.taken.load(Ordering::Relaxed);
        if is_behind && progress.asked.load(Ordering::Acquire) == 0 {
            progress.asked.store(sent, Ordering::Release);
            text.extend_from_slice(b"PING\r\n");
        }
        connection.write_all(&text)?;
        count.set(progress.taken.load(Ordering::Relaxed))?;
    }
    Ok(())
}

fn start(program: &Path, port: u16, stream: Option<&Path>) -> Result<Server, Failure> {
    let mut command = Command::new(program);
    command.args(["-a", "127.0.0.1", "-p", &port.to_string()]);
    if let Some(folder) = stream {
        command.arg("-js").arg("-sd").arg(folder);
    }
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let child = child.map_err(|error| Failure::Failed(format!("{}: {error}", program.display())))?;
    Ok(Server(child))
}

fn connect(port: u16) -> Result<TcpStream, Failure> {
    let deadline = Instant::now() + START;
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(connection) => return Ok(connection),
            Err(error) if Instant::now() >= deadline => {
                return Err(Failure::Failed(format!("nats-server: {error}")));
            }
            Err(_) => std::thread::sleep(PATIENCE),
        }
    }
}

fn wait_for(lines: &mut impl BufRead, what: &str) -> Result<String, Failure> {
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line)? == 0 || line.starts_with("-ERR") {
            return Err(Failure::Failed(format!("nats-server: {line}")));
        }
        if line.contains(what) {
            return Ok(line);
        }
    }
}

/// A stream of the subject, in files, without a confirmation for each message.
fn make_stream(connection: &mut TcpStream, lines: &mut impl BufRead) -> Result<(), Failure> {
    let request = r#"{"name":"M","subjects":["m"],"storage":"file","max_bytes":268435456,"discard":"old","no_ack":true}"#;
    let text = format!("SUB reply 1\r\nPUB $JS.API.STREAM.CREATE.M reply {}\r\n{request}\r\n", request.len());
    connection.write_all(text.as_bytes())?;
    wait_for(lines, "MSG reply")?;
    let mut reply = String::new();
    lines.read_line(&mut reply)?;
    if reply.contains("\"error\"") { Err(Failure::Failed(format!("nats-server: {reply}"))) } else { Ok(()) }
}

/// Reads what the server answers, until the connection ends.
fn follow(lines: &mut impl BufRead, progress: &Progress) {
    while wait_for(lines, "PONG").is_ok() {
        progress.taken.store(progress.asked.load(Ordering::Acquire), Ordering::Relaxed);
        progress.asked.store(0, Ordering::Release);
    }
}
