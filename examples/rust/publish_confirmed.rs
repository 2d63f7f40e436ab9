//! Publishes the lines of standard input to a topic of an RBMQ broker, and waits until a subscriber has consumed them.
//!
//! `seq 10 | cargo run --release -p rbmq --example publish_confirmed -- TOPIC [BROKER]`, with `rbmq serve` and
//! `rbmq sub TOPIC` running.

use std::error::Error;
use std::io::{BufRead, stdin};
use std::time::Duration;

use rbmq::{ConfirmLevel, Publisher};

const WAIT: Option<Duration> = Some(Duration::from_secs(60));

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let topic = args.next().ok_or("usage: publish_confirmed TOPIC [BROKER]")?;
    let broker = args.next().unwrap_or_else(|| "127.0.0.1:7411".into());
    let publisher = Publisher::connect(&broker)?;
    let mut writer = publisher.topic(&topic)?;
    writer.wait_subscribers(1, WAIT)?;
    let (mut lines, mut end) = (0, writer.position());
    for line in stdin().lock().lines() {
        end = writer.publish(line?.as_bytes())?;
        lines += 1;
    }
    let confirmed = writer.confirm(end, ConfirmLevel::Consumed, WAIT)?;
    println!("{lines} records, consumed by {} subscribers", confirmed.subscribers);
    writer.close()?;
    publisher.close();
    Ok(())
}
