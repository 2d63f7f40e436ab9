//! Writes the data of a buffer to standard output, until its publisher closes it.
//!
//! `cargo run --release -p rocketbufs --example subscribe -- BID [BROKER]`

use std::error::Error;
use std::io::{Write, stdout};
use std::time::Duration;

use rocketbufs::error::RefusedError;
use rocketbufs::{Bid, Config, Conn, Context, InEvent, RIn, Start, SubscribeOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let bid: Bid = args.next().ok_or("usage: subscribe BID [BROKER]")?.parse()?;
    let broker = args.next().unwrap_or_else(|| "127.0.0.1:7400".into());

    let ctx = Context::new(Config::load(None)?)?;
    let input = RIn::new(&Conn::connect(&ctx, &broker, b"subscriber")?);
    let from_oldest = SubscribeOptions::new().start(Start::Oldest);
    input.subscribe_with(bid, from_oldest.clone())?;
    loop {
        match input.recv(None)? {
            Some(InEvent::Data(view)) => {
                stdout().write_all(&view.to_vec()?)?;
                view.consume();
            }
            // No publisher yet: try again.
            Some(InEvent::Refused { error: RefusedError::Peer { .. }, .. }) => {
                std::thread::sleep(Duration::from_millis(200));
                input.subscribe_with(bid, from_oldest.clone())?;
            }
            Some(InEvent::Closed { .. } | InEvent::Gone { .. }) => return Ok(()),
            Some(InEvent::ConnDown { reason: why }) => return Err(why.into()),
            _ => {}
        }
    }
}
