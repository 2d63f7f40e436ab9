//! The sender of the paper's figure 2: pushes 10,000 messages of four bytes.
//!
//! `cargo run --release -p cmq --example cmq_send -- [RECEIVER]`, with `cmq_receive` running.

use std::error::Error;

use cmq::{Cmq, new_rq};

fn main() -> Result<(), Box<dyn Error>> {
    let receiver = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:4711".into());
    let queue: Cmq<[u8; 4]> = new_rq("0.0.0.0:0")?;
    let key = (receiver.parse()?, 0);
    for _ in 0..10_000 {
        queue.cw_push(key, b"ping")?;
    }
    // Dropping the queue sends pending messages and tells the receiver how many there were.
    Ok(())
}
