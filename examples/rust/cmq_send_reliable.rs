//! Sends the lines of its input to a queue, encrypted, and waits until each is confirmed or given up.
//!
//! `cmq keygen server.key; cmq receive 127.0.0.1:4711 --reliable --key server.key`, then `cargo run --release -p cmq --example
//! cmq_send_reliable -- server.key.pub [RECEIVER] < lines`.

use std::error::Error;
use std::time::Duration;

use cmq::{Config, Key, PublicKey, PushError, Reliable, SecretKey, Security, new_raw_rq};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let server = PublicKey::read(arguments.next().unwrap_or_else(|| "server.key.pub".into()))?;
    let receiver = arguments.next().unwrap_or_else(|| "127.0.0.1:4711".into());
    let key = Key::new(receiver.parse()?, 0);
    let security = Security::new(SecretKey::generate()?).default_peer(server);
    let config = Config::default().security(Some(security)).reliable(Some(Reliable::default()));
    let queue = new_raw_rq("0.0.0.0:0", config)?;
    for line in std::io::stdin().lines() {
        let line = line?;
        while let Err(error) = queue.push_reliable_bytes(key, line.as_bytes()) {
            if error != PushError::Full {
                return Err(error.into());
            }
            queue.wait_all_confirmed(Some(Duration::from_millis(100)));
        }
    }
    queue.wait_all_confirmed(None);
    let counts = queue.stats().reliable;
    println!("{} confirmed, {} given up", counts.confirmed, counts.failed);
    if counts.failed > 0 { Err("messages were given up".into()) } else { Ok(()) }
}
