//! A bridge to NATS: each datagram is a message, in NATS' own protocol of text.

use std::io::Write;
use std::net::{IpAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use benchkit::fleet::Process;
use benchkit::lines::{CONNECT, Lines, request};
use benchkit::server::wait_listening;
use commands::{Failure, Stop};
use testkit::own_port;

use crate::count::Count;
use crate::datagrams::Datagrams;

const PATIENCE: Duration = Duration::from_millis(10);
const START: Duration = Duration::from_secs(10);

/// A stream of the subject, in files, without a confirmation for each message.
const STREAM: &str =
    r#"{"name":"M","subjects":["m"],"storage":"file","max_bytes":268435456,"discard":"old","no_ack":true}"#;

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
    let mut command = Command::new(&args.server);
    command.args(["-a", "127.0.0.1", "-p", &port.to_string()]);
    if let Some(folder) = &args.stream {
        command.arg("-js").arg("-sd").arg(folder);
    }
    let mut server = Process::quiet(command)?;
    let mut connection = wait_listening(&format!("127.0.0.1:{port}"), START, || server.has_ended())?;
    connection.set_nodelay(true)?;
    let mut lines = Lines::new(8 << 10, connection.try_clone()?);
    connection.write_all((CONNECT.to_owned() + "PING\r\n").as_bytes())?;
    lines.line_with("PONG")?;
    if args.stream.is_some() {
        connection.write_all(request("$JS.API.STREAM.CREATE.M", STREAM).as_bytes())?;
        lines.answer()?;
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

/// Reads what the server answers, until the connection ends.
fn follow(lines: &mut Lines<TcpStream>, progress: &Progress) {
    while lines.line_with("PONG").is_ok() {
        progress.taken.store(progress.asked.load(Ordering::Acquire), Ordering::Relaxed);
        progress.asked.store(0, Ordering::Release);
    }
}
