//! A delivery node that subscribes to Redis, as the paper's modified web server did, with RBLive's own web server behind it.

use std::collections::VecDeque;
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;

use rblive::{ChunkRef, RsId};
use rblive_deliver::{Catalog, Server, Settings};

use benchkit::lines::{Lines, command};

use crate::failure::Result;
use crate::hiredis::Hiredis;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Redis' address
    #[arg(long)]
    redis: String,
    /// The client: hiredis as in the paper, or one that copies as little as the protocol allows
    #[arg(long, value_enum, default_value = "hiredis")]
    client: Client,
    #[arg(long, default_value_t = 1)]
    streams: u32,
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: String,
    /// Segments of a stream that are kept: as many as RBLive's buffers hold in these measurements
    #[arg(long, default_value_t = 8)]
    chunks: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Client {
    Hiredis,
    Bare,
}

/// The streams of a subscription, each with its newest chunks.
struct Streams {
    catalog: Arc<Catalog>,
    kept: Vec<(u64, VecDeque<Arc<Vec<u8>>>)>,
    chunks: usize,
}

impl Streams {
    fn take(&mut self, channel: &[u8], bytes: Vec<u8>) -> Result<()> {
        let number: usize = std::str::from_utf8(channel)?.trim_start_matches('s').parse()?;
        let (position, kept) = self.kept.get_mut(number).ok_or("an unknown channel")?;
        let bytes = Arc::new(bytes);
        let chunk = ChunkRef::lent(RsId::from_u64(number as u64), *position, &bytes);
        *position += bytes.len() as u64;
        kept.push_back(bytes);
        if kept.len() > self.chunks {
            kept.pop_front();
        }
        self.catalog.take(chunk);
        Ok(())
    }
}

pub fn run(args: &Args) -> Result<()> {
    let catalog = Arc::new(Catalog::default());
    let settings = Settings { listen: args.listen.clone(), threads: 1, ..Settings::default() };
    let server = Server::start(settings, catalog.clone())?;
    println!("viewers at https://{}/", server.addr());
    let kept = (0..=args.streams).map(|_| Default::default()).collect();
    // A segment is three chunks.
    let mut streams = Streams { catalog, kept, chunks: 3 * args.chunks };
    let channels: Vec<_> = (1..=args.streams).map(|number| format!("s{number}")).collect();
    match args.client {
        Client::Hiredis => {
            let redis = Hiredis::connect(&args.redis)?;
            redis.subscribe(&channels)?;
            loop {
                redis.message(|channel, bytes| streams.take(channel, bytes.to_vec()))?;
            }
        }
        Client::Bare => {
            let mut socket = TcpStream::connect(&args.redis)?;
            let mut words = vec![&b"SUBSCRIBE"[..]];
            words.extend(channels.iter().map(String::as_bytes));
            let mut bytes = Vec::new();
            command(&words, &mut bytes);
            socket.write_all(&bytes)?;
            // Of a chunk all but the beginning goes from the socket into its own memory.
            let mut answers = Lines::new(64 << 10, socket);
            let serving = thread::spawn(move || -> Result<()> {
                loop {
                    answers.number('*')?;
                    let is_message = answers.bulk()? == b"message";
                    let channel = std::mem::take(answers.bulk()?);
                    if is_message {
                        let bytes = std::mem::take(answers.bulk()?);
                        streams.take(&channel, bytes)?;
                    } else {
                        answers.number(':')?;
                    }
                }
            });
            serving.join().map_err(|_| "the receiver failed")?
        }
    }
}
