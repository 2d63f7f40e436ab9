//! A publisher and three subscribers as tasks of tokio, on one thread.
//!
//! `cargo run --release -p rbmq --features tokio --example rbmq_tasks -- [BROKER]`

use std::error::Error;

use rbmq::{ConfirmLevel, Publisher, ReceiveError, Subscriber};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let broker = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7411".into());
    let context = rocketbufs::Context::new(rocketbufs::Config::load(None)?)?;
    let mut subscribers = Vec::new();
    for _ in 0..3 {
        let builder = Subscriber::builder().context(&context).until_ended(true);
        let mut subscriber = builder.connect_async(&broker).await?;
        subscriber.subscribe("prices")?;
        subscribers.push(tokio::spawn(count(subscriber)));
    }

    let publisher = Publisher::builder().context(&context).connect_async(&broker).await?;
    let mut prices = publisher.topic_async("prices").await?;
    prices.wait_subscribers_async(3).await?;
    for n in 0..100_000 {
        // Waits for slow subscribers without holding the thread.
        prices.publish_async(format!("EUR 1.{n:06}").as_bytes()).await?;
    }
    let confirmed = prices.confirmation(prices.position(), ConfirmLevel::Delivered).await?;
    println!("everything is delivered to {} subscribers", confirmed.subscribers);
    prices.close_async().await?;
    for subscriber in subscribers {
        println!("a subscriber received {} messages", subscriber.await??);
    }
    Ok(())
}

/// Counts messages until every topic has ended.
async fn count(mut subscriber: Subscriber) -> Result<usize, ReceiveError> {
    let mut messages = 0;
    while let Some(batch) = subscriber.next_batch_async().await? {
        messages += batch.records().count();
    }
    Ok(messages)
}
