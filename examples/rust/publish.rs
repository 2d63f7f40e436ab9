//! Publishes the lines of standard input in one buffer, with a delivery for each piece that was read.
//!
//! `seq 10 | cargo run --release -p rocketbufs --example publish -- BID TOPIC [BROKER]`

use std::error::Error;
use std::io::{BufRead, BufReader, stdin};
use std::time::Duration;

use rocketbufs::{Bid, Config, Conn, Context, OutEvent, ROut};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let bid: Bid = args.next().ok_or("usage: publish BID TOPIC [BROKER]")?.parse()?;
    let topic = args.next().ok_or("usage: publish BID TOPIC [BROKER]")?;
    let broker = args.next().unwrap_or_else(|| "127.0.0.1:7400".into());

    let ctx = Context::new(Config::load(None)?)?;
    let out = ROut::new(&ctx);
    let buffer = out.create_buffer(bid, 1 << 20)?;
    let (send, outcome) = std::sync::mpsc::sync_channel(16);
    out.set_event_cb(move |event| {
        // The first event decides: the broker has subscribed, or refuses the topic.
        let _ = match event {
            OutEvent::Subscribed { .. } => send.try_send(Ok(())),
            OutEvent::ConnDown { reason, .. } => send.try_send(Err(reason.to_string())),
            _ => Ok(()),
        };
    });
    let conn = Conn::connect(&ctx, &broker, b"publisher")?;
    out.add_conn(&conn);
    conn.send_control(&[&bid.to_le_bytes()[..], topic.as_bytes()].concat())?;
    outcome.recv_timeout(Duration::from_secs(5))??;

    let mut input = BufReader::with_capacity(64 << 10, stdin().lock());
    let mut writer = buffer.writer()?;
    loop {
        let lines = input.fill_buf()?;
        if lines.is_empty() {
            break;
        }
        writer.append_blocking(&[lines], None)?;
        let used = lines.len();
        input.consume(used);
    }
    drop(writer);
    buffer.destroy();
    buffer.drain(Some(Duration::from_secs(10)))?;
    // After a lost connection the drain has no subscriber to wait for, so the result is checked separately.
    outcome.try_recv().unwrap_or(Ok(()))?;
    Ok(())
}
