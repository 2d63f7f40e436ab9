//! Publishes each line of standard input, and waits until every subscriber has consumed the line before the next one.
//!
//! `seq 10 | cargo run --release -p rocketbufs --example publish_confirmed -- BID TOPIC [BROKER]`

use std::error::Error;
use std::io::{BufRead, stdin};
use std::time::Duration;

use rocketbufs::{Bid, Config, Conn, Context, OutEvent, ProgressLevel, ROut};

const USAGE: &str = "usage: publish_confirmed BID TOPIC [BROKER]";
const LIMIT: Option<Duration> = Some(Duration::from_secs(30));

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let bid: Bid = args.next().ok_or(USAGE)?.parse()?;
    let topic = args.next().ok_or(USAGE)?;
    let broker = args.next().unwrap_or_else(|| "127.0.0.1:7400".into());

    let ctx = Context::new(Config::load(None)?)?;
    let out = ROut::new(&ctx);
    let buffer = out.create_buffer(bid, 1 << 20)?;
    let conn = Conn::connect(&ctx, &broker, b"publisher")?;
    out.add_conn(&conn);
    conn.send_control(&[&bid.to_le_bytes()[..], topic.as_bytes()].concat())?;
    // The first event decides: the broker has subscribed, or refuses the topic.
    match out.recv_event(LIMIT)? {
        Some(OutEvent::Subscribed { .. }) => {}
        Some(OutEvent::ConnDown { reason, .. }) => return Err(reason.into()),
        other => return Err(format!("the broker does not take the topic: {other:?}").into()),
    }

    let mut writer = buffer.writer()?;
    let mut lines = stdin().lock();
    let (mut line, mut deliveries) = (Vec::new(), 0_u64);
    while lines.read_until(b'\n', &mut line)? > 0 {
        let end = writer.append_blocking(&[&line], LIMIT)?;
        // A failed call says up to which position the data is confirmed.
        buffer.wait(ProgressLevel::Consumed, end, LIMIT)?;
        deliveries += 1;
        line.clear();
    }
    eprintln!("{deliveries} deliveries consumed");
    drop(writer);
    buffer.destroy();
    buffer.drain(LIMIT)?;
    Ok(())
}
