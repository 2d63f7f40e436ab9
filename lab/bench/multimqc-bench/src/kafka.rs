//! A bridge to Kafka: each datagram is a record.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use commands::{Failure, Stop};
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::error::KafkaError;
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};
use rdkafka::types::RDKafkaErrorCode;

use crate::count::Count;
use crate::datagrams::Datagrams;

const PATIENCE: Duration = Duration::from_millis(10);

#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(long)]
    address: IpAddr,
    #[arg(long)]
    port: u16,
    #[arg(long)]
    broker: String,
    #[arg(long)]
    topic: String,
    #[arg(long)]
    count: PathBuf,
}

/// Counts the records that the broker has confirmed.
#[derive(Default)]
struct Confirmed(AtomicU64);

impl ClientContext for Confirmed {}

impl ProducerContext for Confirmed {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if result.is_ok() {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let stop = Stop::install()?;
    let producer: ThreadedProducer<Confirmed> = ClientConfig::new()
        .set("bootstrap.servers", &args.broker)
        .set("acks", "1")
        .set("linger.ms", "5")
        .set("batch.size", "1000000")
        .set("queue.buffering.max.messages", "1000000")
        .create_with_context(Confirmed::default())?;
    // The topic is made by the first record; it is not counted.
    while producer.context().0.load(Ordering::Relaxed) == 0 {
        if stop.asked() {
            return Ok(());
        }
        let _ = producer.send(BaseRecord::<(), [u8]>::to(&args.topic).partition(0).payload(b"first"));
        std::thread::sleep(Duration::from_millis(200));
    }
    while producer.in_flight_count() > 0 && !stop.asked() {
        std::thread::sleep(PATIENCE);
    }
    let first = producer.context().0.load(Ordering::Relaxed);
    let count = Count::create(&args.count)?;
    let mut datagrams = Datagrams::bind(args.address, args.port)?;
    println!("listening");
    while !stop.asked() {
        datagrams.receive(PATIENCE, |datagram| send(&producer, &args.topic, datagram, &stop))?;
        count.set(producer.context().0.load(Ordering::Relaxed).saturating_sub(first))?;
    }
    Ok(())
}

/// Waits while the producer's queue is full: what arrives meanwhile is lost at the socket.
fn send(producer: &ThreadedProducer<Confirmed>, topic: &str, datagram: &[u8], stop: &Stop) {
    loop {
        let record = BaseRecord::<(), [u8]>::to(topic).partition(0).payload(datagram);
        match producer.send(record) {
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) if !stop.asked() => {
                std::thread::sleep(Duration::from_millis(1));
            }
            _ => return,
        }
    }
}
