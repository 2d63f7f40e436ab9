//! A message for every listener (paper, "Multicast IPC").
//!
//! Start listeners with `cargo run --release -p cmq --example cmq_multicast -- listen [INTERFACE]`, then run
//! `cargo run --release -p cmq --example cmq_multicast -- say "some words" [INTERFACE]`.

use std::error::Error;
use std::net::SocketAddr;

use cmq::{Cmq, Config, Interface, new_rq_with};

const GROUP: &str = "239.255.77.7:4712";

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let interface = |at: usize| args.get(at).map_or(Interface::Any, |name| Interface::Name(name.clone()));
    let group: SocketAddr = GROUP.parse()?;
    match args.first().map(String::as_str) {
        Some("listen") => {
            // Several listeners of one machine share the port of the group.
            let config = Config::default().reuse_address(true);
            let queue: Cmq<String> = new_rq_with(("0.0.0.0", group.port()), config)?;
            queue.multicast().join(group.ip(), &interface(1))?;
            for (words, from) in queue.iter() {
                println!("{}: {words}", from.addr);
            }
        }
        Some("say") => {
            let queue: Cmq<String> = new_rq_with("0.0.0.0:0", Config::immediate())?;
            queue.multicast().set_interface(&interface(2), 1)?;
            queue.cw_push((group, 0), args.get(1).ok_or("what?")?)?;
        }
        _ => return Err("usage: cmq_multicast listen [INTERFACE] | say WORDS [INTERFACE]".into()),
    }
    Ok(())
}
