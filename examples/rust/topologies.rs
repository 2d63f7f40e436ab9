//! A chain (publisher → broker → broker → subscriber) and a tree (1 → 3 → 9) over loopback TCP. Each node has
//! its own memory and threads. The checksums of the leaves are compared with that of the publisher.
//!
//! `cargo run --release -p rocketbufs --example topologies -- [MEBIBYTES]`

use std::error::Error;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use crc32c::crc32c_append;
use rocketbufs::{Bid, Config, Conn, Context, InEvent, Listener, RIn, ROut, Start, SubscribeOptions};

const BUFFER: Bid = 1;
const RING_BYTES: u64 = 1 << 20;
const WAIT: Duration = Duration::from_secs(60);
type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let mebibytes: u64 = std::env::args().nth(1).map_or(Ok(256), |arg| arg.parse())?;
    run("chain of two brokers", &[1, 1], mebibytes << 20)?;
    run("tree 1 → 3 → 9", &[3, 9], mebibytes << 20)
}

/// A node that others subscribe to.
struct Node {
    out: ROut,
    listener: Listener,
}

impl Node {
    fn new() -> Result<Self, Failure> {
        let ctx = Context::new(Config::load(None)?)?;
        let out = ROut::new(&ctx);
        let listener = Listener::bind(&ctx, "127.0.0.1:0")?;
        let subscribers = out.clone();
        listener.set_conn_cb(move |conn| subscribers.add_conn(&conn));
        Ok(Self { out, listener })
    }

    /// A broker below this node, which forwards received data without a copy.
    fn broker(&self) -> Result<Self, Failure> {
        let node = Self::new()?;
        let input = self.connect(node.out.context())?;
        node.out.splice_with(&input, BUFFER, BUFFER, options())?;
        Ok(node)
    }

    fn connect(&self, ctx: &Context) -> Result<RIn, Failure> {
        Ok(RIn::new(&Conn::connect(ctx, &self.listener.local_addr(), b"")?))
    }
}

/// How brokers and leaves receive.
fn options() -> SubscribeOptions {
    SubscribeOptions::new().size_bytes(RING_BYTES).start(Start::Oldest)
}

/// Publishes through levels of brokers. `widths` has the number of nodes of each level; each node of the last
/// level has one leaf.
fn run(name: &str, widths: &[usize], bytes: u64) -> Result<(), Failure> {
    let root = Node::new()?;
    root.out.create_buffer(BUFFER, RING_BYTES)?;
    let mut levels = vec![vec![root]];
    for width in widths {
        let above = levels.last().ok_or("no level")?;
        let level = (0..*width).map(|i| above[i * above.len() / width].broker()).collect::<Result<_, _>>()?;
        levels.push(level);
    }
    let leaves: Vec<_> = levels.last().ok_or("no level")?.iter().collect();
    let began = Instant::now();
    let (join, joined) = sync_channel(16);
    let (sent, received) = std::thread::scope(|scope| {
        let handles: Vec<_> = leaves
            .iter()
            .map(|node| {
                let join = join.clone();
                scope.spawn(move || receive(node, &join))
            })
            .collect();
        let sent = publish(&levels[0][0].out, bytes, leaves.len(), &joined)?;
        let received = handles.into_iter().map(|handle| handle.join().map_err(|_| "a leaf panicked")?);
        Ok::<_, Failure>((sent, received.collect::<Result<Vec<_>, Failure>>()?))
    })?;
    let seconds = began.elapsed().as_secs_f64();
    println!("{name}: {} MiB, checksum {sent:08x}, {seconds:.2} s", bytes >> 20);
    for (leaf, checksum) in received.iter().enumerate() {
        println!("  leaf {leaf}: {checksum:08x} {}", if *checksum == sent { "equal" } else { "DIFFERENT" });
    }
    if received.iter().any(|checksum| *checksum != sent) {
        return Err("a leaf received other bytes".into());
    }
    Ok(())
}

fn publish(out: &ROut, bytes: u64, leaves: usize, joined: &Receiver<()>) -> Result<u32, Failure> {
    let mut checksum = 0;
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let mut left = bytes;
    // Brokers keep only the newest data for late subscribers: begin when every leaf has joined.
    for _ in 0..leaves {
        joined.recv_timeout(WAIT)?;
    }
    while left > 0 {
        let size = left.min(64 << 10);
        let mut segment = out.buffer(BUFFER).unwrap().segment(size, Some(WAIT))?;
        for word in segment.bytes_mut().chunks_mut(8) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            word.copy_from_slice(&random.to_le_bytes()[..word.len()]);
        }
        checksum = crc32c_append(checksum, segment.bytes_mut());
        out.deliver(segment, size, None)?;
        left -= size;
    }
    out.destroy_buffer(BUFFER)?;
    out.buffer(BUFFER).map_or(Ok(()), |buffer| buffer.drain(Some(WAIT)))?;
    Ok(checksum)
}

fn receive(node: &Node, join: &SyncSender<()>) -> Result<u32, Failure> {
    let ctx = Context::new(Config::load(None)?)?;
    let input = node.connect(&ctx)?;
    input.subscribe_with(BUFFER, options())?;
    let mut checksum = 0;
    loop {
        match input.recv(Some(WAIT))?.ok_or("no data came for a minute")? {
            InEvent::Data(view) => {
                checksum = crc32c_append(checksum, &view.to_vec()?);
                view.consume();
            }
            InEvent::Closed { .. } => return Ok(checksum),
            InEvent::Subscribed { .. } => join.send(())?,
            other => return Err(format!("unexpected: {other:?}").into()),
        }
    }
}
