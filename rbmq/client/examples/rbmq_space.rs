//! Publishes to many topics by one writer: each line of standard input is a topic of a space, a blank, and a message.
//! `printf 'devices/7/temp 21.5\n' | cargo run -p rbmq --example rbmq_space -- 'devices/#' 127.0.0.1:7411`, at a broker with a rule of this pattern and
//! `space = true`.
use std::time::Duration;

use rbmq::{AttributesBuf, ConfirmLevel, Publisher};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let pattern = arguments.next().unwrap_or("devices/#".into());
    let addr = arguments.next().unwrap_or("127.0.0.1:7411".into());
    let publisher = Publisher::connect(&addr)?;
    let mut space = publisher.space(&pattern)?;
    space.wait_subscribers(1, Some(Duration::from_secs(60)))?;
    let mut attributes = AttributesBuf::new();
    attributes.payload_is_utf8(true)?;
    let (mut end, mut lines) = (space.position(), 0);
    for line in std::io::stdin().lines() {
        let line = line?;
        let (topic, text) = line.split_once(' ').ok_or("a line is a topic, a blank and a message")?;
        end = space.publish_to(&topic.parse()?, &attributes, text.as_bytes())?;
        lines += 1;
    }
    let confirmed = space.confirm(end, ConfirmLevel::Delivered, Some(Duration::from_secs(60)))?;
    println!("{lines} records, delivered to {} subscribers", confirmed.subscribers);
    space.close()?;
    Ok(())
}
