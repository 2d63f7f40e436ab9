//! Cost and savings of merging: many tiny publishers of a topic and a subscriber, spliced and merged in turn.
//!
//! ```sh
//! cargo run --release -p rbmq-bench --example merge_cost [PUBLISHERS [SECONDS [ROUNDS]]]
//! ```
//!
//! A single process has the broker, a thread that publishes 64 bytes for each publisher in turn, and the subscriber. The
//! program prints the median of the rounds of each kind: messages per second, CPU time of the whole process per message, and
//! the rings at the broker and at the subscriber.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rbmq::{Publisher, Subscriber, TopicOptions};
use rbmq_broker::{Broker, BrokerConfig, Ingest, Rule};
use rocketbufs::{Config, Context};

const LONG: Duration = Duration::from_secs(60);

struct Measured {
    per_second: f64,
    cpu_us: f64,
    broker_bytes: u64,
    subscriber_bytes: u64,
}

/// CPU time of this process so far, in seconds.
fn cpu_s() -> Result<f64, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit_once(')').ok_or("no fields")?.1.split_whitespace();
    // utime and stime, in hundredths of a second.
    let ticks: Vec<u64> = fields.skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
    Ok(ticks.iter().sum::<u64>() as f64 / 100.0)
}

fn measure(ingest: Ingest, publishers: usize, time: Duration) -> Result<Measured, Box<dyn Error>> {
    let mut config = BrokerConfig::default();
    config.broker.listen = "127.0.0.1:0".into();
    let mut rule = Rule::new("#".parse()?);
    rule.ingest = ingest;
    config.broker.topics = vec![rule].into();
    let broker = Broker::start(config)?;
    let ctx = Context::new(Config::default())?;
    let options = TopicOptions::default().ring_bytes(64 << 10).open_timeout(Some(LONG));
    let mut writers = Vec::new();
    for _ in 0..publishers {
        let publisher = Publisher::builder().context(&ctx).connect(&broker.addr())?;
        let writer = publisher.topic_with("tiny", options.clone())?;
        writers.push((publisher, writer));
    }
    let mut subscriber = Subscriber::builder().ring_bytes(64 << 10).connect(&broker.addr())?;
    subscriber.subscribe("tiny")?;
    for (_, writer) in &writers {
        writer.wait_subscribers(1, Some(LONG))?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let publishing = std::thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            for (_, writer) in &mut writers {
                writer.publish(&[7; 64]).expect("the broker takes it");
            }
        }
        writers.into_iter().for_each(|(_, writer)| writer.close().expect("the broker has everything"));
    });
    let (mut messages, begin, cpu) = (0_u64, Instant::now(), cpu_s()?);
    while begin.elapsed() < time {
        if let Some(batch) = subscriber.next_batch(Some(LONG))? {
            messages += batch.records().count() as u64;
        }
    }
    let (seconds, cpu) = (begin.elapsed().as_secs_f64(), cpu_s()? - cpu);
    let measured = Measured {
        per_second: messages as f64 / seconds,
        cpu_us: cpu * 1e6 / messages as f64,
        broker_bytes: broker.memory_in_use(),
        subscriber_bytes: subscriber.context().memory_in_use(),
    };
    stop.store(true, Ordering::Relaxed);
    while !publishing.is_finished() {
        subscriber.next_batch(Some(Duration::from_millis(10)))?;
    }
    publishing.join().expect("the publishers ended well");
    Ok(measured)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |at: usize, otherwise: u64| arguments.get(at).map_or(Ok(otherwise), |text| text.parse::<u64>());
    let (publishers, seconds, rounds) = (number(0, 64)? as usize, number(1, 2)?, number(2, 5)?.max(1));
    let kinds = [Ingest::Splice, Ingest::Merge];
    let mut results = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (kind, results) in kinds.iter().zip(&mut results) {
            results.push(measure(*kind, publishers, Duration::from_secs(seconds))?);
        }
    }
    println!(
        "{publishers} publishers of 64-byte messages, one subscriber; medians of {rounds} rounds of {seconds} s"
    );
    for (kind, results) in kinds.iter().zip(&results) {
        println!(
            "{kind:?}: {:.0} k messages/s, {:.2} us of CPU each; rings: broker {} KiB, subscriber {} KiB",
            median(results.iter().map(|r| r.per_second).collect()) / 1e3,
            median(results.iter().map(|r| r.cpu_us).collect()),
            results[0].broker_bytes >> 10,
            results[0].subscriber_bytes >> 10,
        );
    }
    Ok(())
}
