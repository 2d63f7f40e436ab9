//! Fills segments of a buffer in place: the numbers are made in the memory that they are sent from.
//!
//! `cargo run --release -p rocketbufs --example fill -- BID TOPIC COUNT [BROKER]`

use std::error::Error;
use std::time::Duration;

use rocketbufs::{Bid, Config, Conn, Context, OutEvent, ROut};

const USAGE: &str = "usage: fill BID TOPIC COUNT [BROKER]";
const LIMIT: Option<Duration> = Some(Duration::from_secs(30));
/// Numbers of eight bytes in a segment.
const NUMBERS: u64 = 1_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let bid: Bid = args.next().ok_or(USAGE)?.parse()?;
    let topic = args.next().ok_or(USAGE)?;
    let count: u64 = args.next().ok_or(USAGE)?.parse()?;
    let broker = args.next().unwrap_or_else(|| "127.0.0.1:7400".into());

    let ctx = Context::new(Config::load(None)?)?;
    let out = ROut::new(&ctx);
    let buffer = out.create_buffer(bid, 1 << 20)?;
    let conn = Conn::connect(&ctx, &broker, b"publisher")?;
    out.add_conn(&conn);
    conn.send_control(&[&bid.to_le_bytes()[..], topic.as_bytes()].concat())?;
    match out.recv_event(LIMIT)? {
        Some(OutEvent::Subscribed { .. }) => {}
        Some(OutEvent::ConnDown { reason, .. }) => return Err(reason.into()),
        other => return Err(format!("the broker does not take the topic: {other:?}").into()),
    }

    let mut numbers = 0_u64..;
    for _ in 0..count {
        let mut segment = buffer.segment(NUMBERS * 8, None)?; // Waits for room.
        for (bytes, number) in segment.bytes_mut().chunks_exact_mut(8).zip(&mut numbers) {
            bytes.copy_from_slice(&number.to_le_bytes());
        }
        buffer.deliver(segment, NUMBERS * 8, None)?;
    }
    buffer.destroy();
    buffer.drain(LIMIT)?;
    Ok(())
}
