//! Many streams into a system, at the rate of production: the dissemination node of the measurements.

use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use benchkit::lines::{Lines, command};
use rblive::{Config, RsId, RsManager};
use rblive_load::stamp::Stamper;

use crate::failure::Result;
use crate::files::Files;
use crate::media::{Chunks, Stream};

/// How long nodes may take to connect.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Publish to Redis at this address
    #[arg(long)]
    redis: Option<String>,
    /// Disseminate to RBLive nodes at these addresses
    #[arg(long)]
    node: Vec<String>,
    /// Write files into this folder, as a server of files needs them
    #[arg(long)]
    folder: Option<PathBuf>,
    /// RBLive's transport
    #[arg(long, default_value = "auto")]
    transport: String,
    #[arg(long, default_value_t = 1)]
    streams: u32,
    #[arg(long, default_value_t = 2.0)]
    mbit: f64,
    /// Seconds of media in a chunk
    #[arg(long, default_value_t = 2)]
    chunk_s: u64,
    /// End after this many seconds
    #[arg(long, default_value_t = 600)]
    seconds: u64,
}

/// Where chunks go.
enum To {
    Redis(TcpStream),
    Nodes(RsManager, Vec<RsId>),
    Files(Files),
}

pub fn run(args: &Args) -> Result<()> {
    let mut to = match (&args.redis, &args.folder) {
        (Some(address), _) => redis(address)?,
        (_, Some(folder)) => To::Files(Files::new(folder.clone(), args.chunk_s)),
        _ => nodes(args)?,
    };
    let stamper = Stamper::new();
    let streams: Result<Vec<_>> =
        (1..=args.streams).map(|number| Stream::new(number, args.mbit, args.chunk_s)).collect();
    let mut streams = streams?;
    let begun = Instant::now();
    let mut latest = Duration::ZERO;
    for turn in 0_u64.. {
        for (at, stream) in streams.iter_mut().enumerate() {
            let due_s = (turn as f64 + at as f64 / f64::from(args.streams)) * args.chunk_s as f64;
            let due = begun + Duration::from_secs_f64(due_s);
            if due > begun + Duration::from_secs(args.seconds) {
                return Ok(());
            }
            thread::sleep(due.saturating_duration_since(Instant::now()));
            latest = latest.max(due.elapsed());
            match &mut to {
                To::Files(files) => files.write(at + 1, &stream.part(&stamper)?)?,
                to => to.send(at, &stream.chunks(&stamper)?)?,
            }
        }
        println!("turn {turn}: at most {:.1} ms late", latest.as_secs_f64() * 1e3);
        latest = Duration::ZERO;
    }
    Ok(())
}

fn redis(address: &str) -> Result<To> {
    let socket = TcpStream::connect(address)?;
    let mut answers = Lines::new(64 << 10, socket.try_clone()?);
    thread::spawn(move || while answers.line().is_ok() {});
    Ok(To::Redis(socket))
}

/// The largest chunk of a stream. Buffers hold five of them, as the paper's do.
fn chunk_bytes(mbit: f64, chunk_s: u64) -> u64 {
    let media = mbit * 1e6 / 8.0 * chunk_s as f64;
    (media * 1.2) as u64 + (16 << 10)
}

/// The buffer of a stream with chunks of two seconds: a power of two.
pub fn buffer_bytes(mbit: f64) -> u64 {
    (5 * chunk_bytes(mbit, 2)).next_power_of_two()
}

fn nodes(args: &Args) -> Result<To> {
    let mut text = format!(
        "node = 'source'\ntransport = '{}'\n[[nodes]]\nname = 'source'\nid = 1\nrole = 'dissemination'\n",
        args.transport
    );
    for (at, address) in args.node.iter().enumerate() {
        text += &format!(
            "[[nodes]]\nname = 'n{at}'\nid = {}\nrole = 'delivery'\naddress = '{address}'\n",
            at + 2
        );
    }
    let names: Vec<_> = (0..args.node.len()).map(|at| format!("'n{at}'")).collect();
    text += &format!("[[rules]]\nstreams = '*'\nnodes = [{}]\n", names.join(", "));
    text += &format!("[streams]\nchunk_bytes = {}\n", chunk_bytes(args.mbit, args.chunk_s));
    let manager = RsManager::new(Config::from_toml(&text)?)?;
    let begun = Instant::now();
    while manager.peers().iter().any(|peer| !peer.connected) {
        if begun.elapsed() > PATIENCE {
            return Err("a node cannot be reached".into());
        }
        thread::sleep(Duration::from_millis(20));
    }
    let streams = (1..=args.streams).map(|number| manager.create_stream(&format!("s{number}")));
    let streams = streams.collect::<std::result::Result<Vec<_>, _>>()?;
    Ok(To::Nodes(manager, streams))
}

impl To {
    fn send(&mut self, at: usize, Chunks(chunks): &Chunks) -> Result<()> {
        match self {
            Self::Redis(socket) => {
                let channel = format!("s{}", at + 1);
                let mut bytes = Vec::with_capacity(chunks.iter().map(|own| own.len() + 64).sum());
                for chunk in chunks {
                    command(&[b"PUBLISH", channel.as_bytes(), chunk], &mut bytes);
                }
                socket.write_all(&bytes)?;
            }
            Self::Nodes(manager, streams) => {
                let fill = |bytes: &Vec<u8>| -> Result<_> {
                    let mut chunk = manager.allocate_chunk(streams[at], bytes.len())?;
                    chunk.bytes_mut().copy_from_slice(bytes);
                    Ok(chunk)
                };
                let filled = chunks.iter().map(fill).collect::<Result<Vec<_>>>()?;
                // As the ingest node does: they leave together, as those for Redis do.
                for chunk in filled.into_iter().rev() {
                    let size = chunk.size();
                    manager.disseminate_chunk(chunk, size, None)?;
                }
            }
            // Files are made of parts.
            Self::Files(_) => {}
        }
        Ok(())
    }
}
