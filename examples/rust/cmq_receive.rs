//! The receiver of the paper's figure 3: pops messages until the sender has closed, and prints the losses.
//!
//! `cargo run --release -p cmq --example cmq_receive -- [ADDRESS]`, then run `cmq_send`.

use std::error::Error;
use std::time::Duration;

use cmq::{Cmq, Event, new_rq};

fn main() -> Result<(), Box<dyn Error>> {
    let addr = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:4711".into());
    let queue: Cmq<[u8; 4]> = new_rq(addr)?;
    eprintln!("receiving at {}", queue.local_addr());
    let (mut received, mut lost) = (0_u64, 0_u64);
    loop {
        // cw_pop never waits. A pop with a time-out keeps this loop idle while no message arrives.
        while queue.pop_timeout(Duration::from_millis(20)).is_some() {
            received += 1;
        }
        while let Some(event) = queue.next_event() {
            match event {
                // Losses before the first received message, or between two of them.
                Event::Joined { missed: count, .. } | Event::Lost { count, .. } => lost += count,
                Event::Closed { from, sent } => {
                    println!("{from} sent {sent}: {received} received, {lost} lost");
                    return Ok(());
                }
                _ => {}
            }
        }
    }
}
