//! Publishes standard input without a copy: the system reads into the memory that the bytes are sent from.
//!
//! `cargo run --release -p rocketbufs --example fill_segment -- BID TOPIC [BROKER] < FILE`

use std::error::Error;
use std::fs::File;
use std::io::{Read, stdin};
use std::os::fd::AsFd;
use std::time::Duration;

use rocketbufs::{Bid, Config, Conn, Context, OutEvent, ROut};

const WAIT: Option<Duration> = Some(Duration::from_secs(10));

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let bid: Bid = args.next().ok_or("usage: fill_segment BID TOPIC [BROKER]")?.parse()?;
    let topic = args.next().ok_or("usage: fill_segment BID TOPIC [BROKER]")?;
    let broker = args.next().unwrap_or_else(|| "127.0.0.1:7400".into());

    let ctx = Context::new(Config::load(None)?)?;
    let out = ROut::new(&ctx);
    let buffer = out.create_buffer(bid, 1 << 20)?;
    let conn = Conn::connect(&ctx, &broker, b"publisher")?;
    out.add_conn(&conn);
    conn.send_control(&[&bid.to_le_bytes()[..], topic.as_bytes()].concat())?;
    match out.recv_event(WAIT)?.ok_or("the broker does not answer")? {
        OutEvent::Subscribed { .. } => {}
        other => return Err(format!("the broker: {other:?}").into()),
    }

    let mut input = File::from(stdin().as_fd().try_clone_to_owned()?);
    loop {
        let mut segment = buffer.segment(64 << 10, None)?;
        let bytes = input.read(segment.bytes_mut())?;
        // A delivery of 0 bytes gives the segment back.
        buffer.deliver(segment, bytes as u64, None)?;
        if bytes == 0 {
            break;
        }
    }
    buffer.destroy();
    buffer.drain(WAIT)?;
    Ok(())
}
