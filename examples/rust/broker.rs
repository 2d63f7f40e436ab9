//! A publish/subscribe broker, as in Listing 3 of paper 1.
//!
//! ```sh
//! cargo run --release -p rocketbufs --example broker
//! cargo run --release -p rocketbufs --example subscribe -- 7          # in another terminal
//! seq 10000 | cargo run --release -p rocketbufs --example publish -- 7 numbers   # in a third
//! ```

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex};

use rocketbufs::{Bid, BufSeg, Config, Conn, Context, Listener, RIn, ROut, SubscribeOptions};

type Topics = Arc<Mutex<HashMap<Bid, String>>>;

fn main() -> Result<(), Box<dyn Error>> {
    let addr = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7400".into());
    let ctx = Context::new(Config::load(None)?)?;
    let listener = Listener::bind(&ctx, &addr)?; // Listens for publishers and subscribers.
    let out = ROut::new(&ctx); // Disseminates.
    listener.set_conn_cb(move |conn| on_conn(&conn, &out));
    println!("a broker on {}; Ctrl-C ends it", listener.local_addr());
    loop {
        std::thread::park();
    }
}

/// Handles new connections.
fn on_conn(conn: &Conn, out: &ROut) {
    match conn.peer_hello().as_slice() {
        b"publisher" => {
            let input = RIn::new(conn);
            let (out, topics) = (out.clone(), Topics::default());
            let (known, from) = (topics.clone(), conn.clone());
            input.set_control_msg_cb(move |input, msg| on_ctrl_msg(input, msg, &out, &topics));
            input.set_data_in_cb(move |bid, data| publisher_data_cb(bid, data, &known, &from));
        }
        b"subscriber" => out.add_conn(conn),
        _ => conn.reject("say 'publisher' or 'subscriber'"),
    }
}

/// Handles control messages: a topic is created by its buffer id and its name.
fn on_ctrl_msg(input: &RIn, msg: &[u8], out: &ROut, topics: &Topics) {
    let Some((bid, topic)) = msg.split_first_chunk() else { return input.conn().close("no topic creation") };
    let bid = Bid::from_le_bytes(*bid);
    let options = SubscribeOptions::new().size_bytes(1 << 20);
    let done = out.splice_with(input, bid, bid, options); // Subscribe to the publisher, deliver to subscribers.
    match done {
        Ok(_) => drop(topics.lock().unwrap().insert(bid, String::from_utf8_lossy(topic).into_owned())),
        Err(why) => input.conn().close(&why.to_string()),
    }
}

/// Data from a publisher. The splice forwards it; this only checks that it belongs to a topic.
fn publisher_data_cb(bid: Bid, _data: &BufSeg<'_>, topics: &Topics, from: &Conn) {
    if !topics.lock().unwrap().contains_key(&bid) {
        from.close("InvalidMapping");
    }
}
