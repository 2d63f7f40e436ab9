//! Receives until Ctrl-C, from one publisher after the other: `cargo run -p rbmq --example rbmq_subscribe -- 127.0.0.1:7411`
use rbmq::Subscriber;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let addr = std::env::args().nth(1).unwrap_or("127.0.0.1:7411".into());
    let mut subscriber = Subscriber::connect(&addr)?;
    subscriber.subscribe("news")?;
    for message in subscriber {
        let message = message?;
        println!("{}: {}", message.topic, String::from_utf8_lossy(&message.bytes));
    }
    Ok(())
}
