//! Publishes a few messages: `cargo run -p rbmq --example rbmq_publish -- 127.0.0.1:7411`
use rbmq::Publisher;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let addr = std::env::args().nth(1).unwrap_or("127.0.0.1:7411".into());
    let publisher = Publisher::connect(&addr)?;
    let mut news = publisher.topic("news")?;
    for n in 0..1000 {
        news.publish(format!("message {n}").as_bytes())?;
    }
    news.close()?;
    Ok(())
}
