//! Broker, publisher and subscriber of RBMQ, made of the public client library and nothing else.

use std::time::{Duration, Instant};

use benchkit::{
    control::Control,
    pace::{BATCH_BYTES, Pace},
};
use rbmq::{
    Event, Notice, Publisher, Subscriber, TopicName, TopicOptions, TopicWriter,
    wire::{RECORD_HEADER_BYTES, push_record},
};
use rbmq_broker::{Broker, BrokerConfig, Rule, http::Endpoint};
use rbmq_gateway::Gateways;
use rocketbufs::{Config, config::TransportKind};

use crate::{
    clients::{LOOK, Receives, Sends, Whom},
    error::BenchError,
    load::Load,
    pattern::{Cursor, Pattern},
    rbmq_confirm::Counted,
    systems::Api,
};

/// A ring holds at least this many messages (paper 1, section 4.2, has ten). Rings are powers of two, and so are most sizes:
/// one more, with its header, would double the ring, out of the processor's cache: messages of 512 KiB go 1.3 times as
/// fast through a ring of three as through one of seven.
const RING_MESSAGES: u64 = 3;

/// And this many bytes, twice the default: with publishers, broker and subscribers on two cores, a smaller ring is full before
/// the processes that release its bytes run again.
const RING_BYTES: u64 = 2 << 20;

/// How long processes wait for each other at the start.
const SET_UP_WITHIN: Duration = Duration::from_secs(15);

/// Messages in a row before counts and commands are handled.
const IN_A_ROW: u32 = 256;

/// The library's error as the bench's error.
pub fn failed(error: impl std::error::Error + Send + Sync + 'static) -> BenchError {
    BenchError::System(Box::new(error))
}

/// The configuration of all processes that use the framework.
///
/// # Errors
/// A `ROCKETBUFS_…` variable is wrong.
pub fn config(transport: TransportKind, congestion: Option<&str>) -> Result<Config, BenchError> {
    let mut config = Config::load(None).map_err(failed)?;
    config.transport = transport;
    if let Some(name) = congestion {
        config.tcp.congestion_control = Some(name.to_owned());
    }
    Ok(config)
}

/// Bytes of a topic's ring: the requested size, or else the room for some messages, but at least the configured size.
pub fn topic_ring_bytes(load: &Load, record_bytes: u64, configured: u64) -> u64 {
    let ring_bytes = (RING_MESSAGES * record_bytes).next_power_of_two();
    load.ring_bytes.unwrap_or(ring_bytes.max(RING_BYTES).max(configured))
}

/// The name of topic number so and so.
pub fn topic_name(number: u8) -> String {
    format!("bench/{number}")
}

/// Runs a broker with a gateway until the process is killed. With a folder, it keeps every topic there.
///
/// # Errors
/// The broker or the gateway could not start.
pub fn serve_gateway(protocol: &str, listen: &str, keep: Option<String>) -> Result<(), BenchError> {
    let mut config = BrokerConfig::load(None).map_err(failed)?;
    config.broker.listen = "127.0.0.1:0".to_owned();
    let gateway = format!("{protocol}:{listen}").parse().map_err(BenchError::Gateway)?;
    config.outside.gateway = vec![gateway];
    if let Some(folder) = keep {
        let mut rule = Rule::new("#".parse().map_err(failed)?);
        rule.keep = true;
        config.broker.keep_dir = folder;
        config.broker.topics = vec![rule].into();
    }
    let broker = Broker::start(config).map_err(failed)?;
    let _gateways = Gateways::start(&broker).map_err(failed)?;
    loop {
        std::thread::park();
    }
}

/// Runs a broker as `rbmq serve` does until the harness goes away.
///
/// # Errors
/// The broker could not start.
pub fn serve(
    control: &Control,
    listen: &str,
    transport: TransportKind,
    congestion: Option<&str>,
    http: Option<String>,
) -> Result<(), BenchError> {
    let mut settings = BrokerConfig::load(None).map_err(failed)?;
    settings.framework = config(transport, congestion)?;
    settings.broker.listen = listen.to_owned();
    settings.http.listen = http.unwrap_or_default();
    let broker = Broker::start(settings).map_err(failed)?;
    let http = &broker.config().http;
    let endpoint = if http.listen.is_empty() { None } else { Some(Endpoint::start(broker.watch(), http)) };
    let endpoint = endpoint.transpose().map_err(failed)?;
    let console = endpoint.as_ref().map(|endpoint| format!("{} ", endpoint.addr())).unwrap_or_default();
    control.ready(&format!("{console}{}", broker.addr()));
    loop {
        std::thread::park();
    }
}

/// Publishes the topic's stream as fast as its buffer takes it.
///
/// # Errors
/// The broker is gone or refused the topic.
pub fn publish(control: &Control, load: &Load, topic: u8) -> Result<(), BenchError> {
    let pattern = Pattern::new(u32::from(topic), load.size);
    let config = config(load.transport, load.congestion.as_deref())?;
    let record_bytes = pattern.record_bytes();
    let ring_bytes = topic_ring_bytes(load, record_bytes as u64, config.buffers.size_bytes);
    let publisher = Publisher::builder().config(config).connect(&load.addr).map_err(failed)?;
    let max_delivery_bytes = (ring_bytes / 4).max(record_bytes as u64);
    let options = TopicOptions::default().ring_bytes(ring_bytes).max_delivery_bytes(max_delivery_bytes);
    let mut writer = publisher.topic_with(&topic_name(topic), options).map_err(failed)?;
    writer.wait_subscribers(load.subscribers, Some(SET_UP_WITHIN)).map_err(failed)?;
    control.ready("");
    control.wait_for_go();
    let mut cursor = Cursor::new(&pattern);
    let mut counted = Counted::new(load.confirm);
    let mut pace = Pace::new(load.rate);
    while !control.stopped() {
        let due = pace.wait(counted.published());
        match load.api {
            Api::Message => {
                let due = due.min(u64::from(IN_A_ROW));
                publish_messages(control, &mut writer, &mut cursor, &mut counted, record_bytes, due)?;
            }
            // `wire_peers` has the publishers of `Wire`.
            Api::Batch | Api::Wire => {
                publish_batch(control, &mut writer, &mut cursor, &mut counted, record_bytes, due)?
            }
        }
    }
    counted.finish(control, &writer)?;
    control.finish(&[counted.published()])
}

fn publish_messages(
    control: &Control,
    writer: &mut TopicWriter,
    cursor: &mut Cursor<'_>,
    counted: &mut Counted,
    record_bytes: usize,
    due: u64,
) -> Result<(), BenchError> {
    for _ in 0..due {
        let end = writer.publish(cursor.payload()).map_err(failed)?;
        cursor.next_record();
        counted.add(control, writer, 1, record_bytes, end)?;
    }
    Ok(())
}

fn publish_batch(
    control: &Control,
    writer: &mut TopicWriter,
    cursor: &mut Cursor<'_>,
    counted: &mut Counted,
    record_bytes: usize,
    due: u64,
) -> Result<(), BenchError> {
    let in_full_batch = (BATCH_BYTES / record_bytes).max(1);
    let in_batch = usize::try_from(due).unwrap_or(usize::MAX).min(in_full_batch);
    let bytes = in_batch * record_bytes;
    let mut batch = writer.batch(bytes as u64).map_err(failed)?;
    let mut left = bytes;
    while let Some(records) = cursor.encoded(left).filter(|records| batch.push_encoded(records)) {
        cursor.skip(records.len());
        left -= records.len();
    }
    while batch.push(cursor.payload()) {
        cursor.next_record();
    }
    let end = batch.deliver().map_err(failed)?;
    counted.add(control, writer, in_batch as u64, bytes, end)
}

struct Stream<'a> {
    name: TopicName,
    cursor: Cursor<'a>,
    messages: u64,
}

/// Receives every topic, by messages or by batches, and checks every byte.
///
/// # Errors
/// The broker is gone, bytes were lost, or a byte was wrong.
pub fn subscribe(control: &Control, load: &Load, topics: u8) -> Result<(), BenchError> {
    let patterns: Vec<Pattern> = (0..topics).map(|topic| Pattern::new(u32::from(topic), load.size)).collect();
    let config = config(load.transport, load.congestion.as_deref())?;
    let mut builder = Subscriber::builder().config(config);
    if let Some(bytes) = load.ring_bytes {
        builder = builder.ring_bytes(bytes);
    }
    let mut subscriber = builder.connect(&load.addr).map_err(failed)?;
    let mut streams = Vec::new();
    for (topic, pattern) in (0..topics).zip(&patterns) {
        let name = topic_name(topic);
        subscriber.subscribe(&name).map_err(failed)?;
        let name = name.parse::<TopicName>().map_err(failed)?;
        streams.push(Stream { name, cursor: Cursor::new(pattern), messages: 0 });
    }
    control.ready("");
    let mut last_arrival = Instant::now();
    loop {
        let arrived = match load.api {
            Api::Message => receive_messages(&mut subscriber, &mut streams)?,
            Api::Batch | Api::Wire => receive_batch(&mut subscriber, &mut streams)?,
        };
        if arrived {
            control.set_messages(streams.iter().map(|stream| stream.messages).sum());
            last_arrival = Instant::now();
        }
        control.end_if_over(last_arrival, || streams.iter().map(|stream| stream.messages).collect())?;
    }
}

fn receive_batch(subscriber: &mut Subscriber, streams: &mut [Stream<'_>]) -> Result<bool, BenchError> {
    let Some(batch) = subscriber.next_batch(Some(LOOK)).map_err(failed)? else { return Ok(false) };
    let (topic, stream) = stream_of(streams, batch.topic())?;
    match stream.cursor.check(batch.as_slice()) {
        Some(records) if stream.cursor.rest_of_record() == 0 => {
            stream.messages += records;
            Ok(true)
        }
        _ => Err(BenchError::WrongByte { topic, after_messages: stream.messages }),
    }
}

fn receive_messages(subscriber: &mut Subscriber, streams: &mut [Stream<'_>]) -> Result<bool, BenchError> {
    let mut arrived = false;
    for _ in 0..IN_A_ROW {
        let Some(message) = subscriber.recv_ref(Some(LOOK)).map_err(failed)? else { break };
        let (topic, stream) = stream_of(streams, message.topic)?;
        if !stream.cursor.check_message(message.bytes) {
            return Err(BenchError::WrongByte { topic, after_messages: stream.messages });
        }
        stream.messages += 1;
        arrived = true;
    }
    Ok(arrived)
}

fn stream_of<'s, 'a>(
    streams: &'s mut [Stream<'a>],
    name: &TopicName,
) -> Result<(u64, &'s mut Stream<'a>), BenchError> {
    let mut numbered = (0..).zip(streams);
    numbered
        .find(|(_, stream)| stream.name == *name)
        .ok_or_else(|| BenchError::StrangeTopic { name: name.to_string() })
}

/// The publisher of a topic, for single messages.
pub struct OneSender {
    writer: TopicWriter,
    /// The pushed messages, encoded. The senders of all systems send due messages together.
    due: Vec<u8>,
    // Dropping the publisher ends its connection.
    _publisher: Publisher,
}

/// Connects a publisher and waits for the topic's subscriber.
///
/// # Errors
/// The broker does not answer or refuses, or no subscriber comes.
pub fn one_sender(whom: &Whom, topic: u8) -> Result<OneSender, BenchError> {
    let config = config(whom.transport.of_publishers(), whom.congestion.as_deref())?;
    let publisher = Publisher::builder().config(config).connect(&whom.addr).map_err(failed)?;
    let writer = publisher.topic(&topic_name(topic)).map_err(failed)?;
    writer.wait_subscribers(1, Some(SET_UP_WITHIN)).map_err(failed)?;
    Ok(OneSender { writer, due: Vec::new(), _publisher: publisher })
}

impl Sends for OneSender {
    fn push(&mut self, message: &[u8]) -> Result<(), BenchError> {
        if self.due.len() + RECORD_HEADER_BYTES + message.len() > BATCH_BYTES {
            self.flush()?;
        }
        push_record(&mut self.due, message);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), BenchError> {
        if self.due.is_empty() {
            return Ok(());
        }
        let mut batch = self.writer.batch(self.due.len() as u64).map_err(failed)?;
        if !batch.push_encoded(&self.due) {
            return Err(failed(std::io::Error::other("a batch has less room than was asked for")));
        }
        self.due.clear();
        batch.deliver().map(drop).map_err(failed)
    }
}

/// The subscriber of a topic, for single messages.
pub struct OneReceiver {
    subscriber: Subscriber,
}

/// Connects it.
///
/// # Errors
/// The broker is not there or refuses.
pub fn one_receiver(whom: &Whom, topic: u8) -> Result<OneReceiver, BenchError> {
    let config = config(whom.transport.of_subscribers(), whom.congestion.as_deref())?;
    let mut subscriber = Subscriber::builder().config(config).connect(&whom.addr).map_err(failed)?;
    subscriber.subscribe(&topic_name(topic)).map_err(failed)?;
    Ok(OneReceiver { subscriber })
}

impl Receives for OneReceiver {
    /// Lost messages show as missing numbers. The library makes a lost connection again.
    fn receive(&mut self, each: &mut dyn FnMut(&[u8])) -> Result<(), BenchError> {
        match self.subscriber.next_event(Some(LOOK)).map_err(failed)? {
            Some(Event::Batch(batch)) => {
                batch.records().for_each(each);
                Ok(())
            }
            Some(Event::Notice(Notice::Refused { reason, .. })) => Err(BenchError::Refused { reason }),
            _ => Ok(()),
        }
    }
}
