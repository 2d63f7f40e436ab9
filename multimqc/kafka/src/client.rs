//! Calls of librdkafka: make a topic, append a record, read one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_executor::block_on;
use locks::{Condvar, Mutex};
use multimqc::LevelError;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};
use rdkafka::{ClientContext, Message, Offset, TopicPartitionList};

use crate::config::KafkaConfig;
use crate::find::Fetch;
use crate::record::{self, Record};

/// The only partition of a topic.
const PARTITION: i32 = 0;
/// The time that a wait for a delivery report adds to the producer's own limit.
const GRACE: Duration = Duration::from_secs(2);

/// The pause before a question is asked again.
const PAUSE: Duration = Duration::from_millis(50);

/// The error of a level for one of Kafka.
fn down(error: KafkaError) -> LevelError {
    LevelError::Down(error.to_string())
}

/// Makes a topic if it is not there.
pub(crate) fn create_topic(config: &KafkaConfig, name: &str) -> Result<(), LevelError> {
    let admin: AdminClient<DefaultClientContext> = config.admin().create().map_err(down)?;
    let retention = config.retention_bytes.map_or("-1".to_owned(), |bytes| bytes.to_string());
    let segment = config.segment_bytes.to_string();
    let topic = NewTopic::new(name, 1, TopicReplication::Fixed(config.replicas))
        .set("cleanup.policy", "delete")
        .set("retention.ms", "-1")
        .set("retention.bytes", &retention)
        .set("segment.bytes", &segment);
    let options =
        AdminOptions::new().request_timeout(Some(config.timeout)).operation_timeout(Some(config.timeout));
    for result in block_on(admin.create_topics([&topic], &options)).map_err(down)? {
        match result {
            Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
            Err((name, code)) => {
                return Err(LevelError::Down(format!("cannot make the topic {name}: {code}")));
            }
        }
    }
    Ok(())
}

/// The outcome of a record's delivery.
#[derive(Debug, Default)]
pub(crate) struct Receipt {
    result: Mutex<Option<Result<i64, KafkaError>>>,
    changed: Condvar,
}

impl Receipt {
    fn wait(&self, timeout: Duration) -> Result<i64, LevelError> {
        let until = Instant::now() + timeout;
        let mut result = self.result.lock();
        while result.is_none() && !self.changed.wait_until(&mut result, until).timed_out() {}
        match result.take() {
            Some(result) => result.map_err(down),
            None => Err(LevelError::Down("no answer to a record".to_owned())),
        }
    }
}

/// Gives delivery reports to the threads that wait for them.
#[derive(Debug)]
pub(crate) struct Receipts;

impl ClientContext for Receipts {}

impl ProducerContext for Receipts {
    type DeliveryOpaque = Arc<Receipt>;

    fn delivery(&self, delivered: &DeliveryResult<'_>, receipt: Arc<Receipt>) {
        let result = match delivered {
            Ok(message) => Ok(message.offset()),
            Err((error, _)) => Err(error.clone()),
        };
        *receipt.result.lock() = Some(result);
        receipt.changed.notify_all();
    }
}

/// Appends records to the topics of a level.
pub(crate) struct Appender {
    config: KafkaConfig,
    producer: Mutex<Arc<ThreadedProducer<Receipts>>>,
}

impl Appender {
    pub(crate) fn new(config: KafkaConfig) -> Result<Self, LevelError> {
        let producer = Mutex::new(Arc::new(Self::producer(&config)?));
        Ok(Self { config, producer })
    }

    fn producer(config: &KafkaConfig) -> Result<ThreadedProducer<Receipts>, LevelError> {
        config.producer().create_with_context(Receipts).map_err(down)
    }

    /// Appends records in order, and waits until Kafka has them. Returns the offsets of the records that Kafka has confirmed. After an
    /// error Kafka may have more of them.
    pub(crate) fn append(
        &self,
        topic: &str,
        records: &[([u8; record::KEY], &[u8])],
    ) -> (Vec<i64>, Result<(), LevelError>) {
        let producer = Arc::clone(&self.producer.lock());
        let mut receipts = Vec::with_capacity(records.len());
        let mut refused = Ok(());
        for (key, value) in records {
            let receipt = Arc::new(Receipt::default());
            let record = BaseRecord::with_opaque_to(topic, Arc::clone(&receipt));
            if let Err((error, _)) = producer.send(record.partition(PARTITION).key(&key[..]).payload(*value))
            {
                refused = Err(down(error));
                break;
            }
            receipts.push(receipt);
        }
        let mut offsets = Vec::with_capacity(receipts.len());
        for receipt in receipts {
            match receipt.wait(self.config.timeout + GRACE) {
                Ok(offset) => offsets.push(offset),
                Err(error) => {
                    self.replace_if_dead(&producer);
                    return (offsets, Err(error));
                }
            }
        }
        (offsets, refused)
    }

    /// Replaces a producer that has a fatal error by a new one.
    fn replace_if_dead(&self, producer: &Arc<ThreadedProducer<Receipts>>) {
        let mut current = self.producer.lock();
        if Arc::ptr_eq(&current, producer)
            && producer.client().fatal_error().is_some()
            && let Ok(new) = Self::producer(&self.config)
        {
            *current = Arc::new(new);
        }
    }
}

/// Reads the records of one topic by offset.
pub(crate) struct Fetcher {
    consumer: BaseConsumer,
    topic: String,
    timeout: Duration,
    /// The offset that the consumer returns next.
    next: Option<i64>,
}

/// Why a record was not read.
#[derive(Debug)]
pub(crate) enum Unread {
    /// Kafka has removed it.
    Removed,
    /// Kafka does not answer, or its topic has records of another kind.
    Level(LevelError),
}

impl Fetcher {
    pub(crate) fn new(config: &KafkaConfig, topic: &str) -> Result<Self, LevelError> {
        let consumer = config.consumer().create().map_err(down)?;
        Ok(Self { consumer, topic: topic.to_owned(), timeout: config.timeout, next: None })
    }

    fn seek(&mut self, offset: i64) -> KafkaResult<()> {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&self.topic, PARTITION, Offset::Offset(offset))?;
        self.consumer.assign(&list)
    }

    /// Waits for the next message at or behind an offset.
    fn next(&mut self, offset: i64) -> Result<Record, Unread> {
        let until = Instant::now() + self.timeout;
        let mut last_error = None;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.consumer.poll(left) {
                Some(Ok(message)) if message.offset() < offset => {}
                Some(Ok(message)) => {
                    let at = message.offset();
                    let (key, value) =
                        (message.key().unwrap_or_default(), message.payload().unwrap_or_default());
                    let record = record::decode(at, key, value);
                    self.next = Some(at + 1);
                    let foreign =
                        || std::io::Error::other(format!("record {at} of {} is no batch", self.topic));
                    return record.ok_or_else(|| Unread::Level(LevelError::Io(foreign())));
                }
                Some(Err(error)) => match error.rdkafka_error_code() {
                    Some(RDKafkaErrorCode::OffsetOutOfRange | RDKafkaErrorCode::AutoOffsetReset) => {
                        return Err(Unread::Removed);
                    }
                    // librdkafka tries again by itself.
                    _ => last_error = Some(error),
                },
                None if left.is_zero() => {
                    let silent =
                        || LevelError::Down(format!("no answer from {} in {:?}", self.topic, self.timeout));
                    return Err(Unread::Level(last_error.map_or_else(silent, down)));
                }
                None => {}
            }
        }
    }
}

impl Fetch for Fetcher {
    type Error = Unread;

    fn offsets(&self) -> Result<std::ops::Range<i64>, Unread> {
        let until = Instant::now() + self.timeout;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.consumer.fetch_watermarks(&self.topic, PARTITION, left.max(PAUSE)) {
                Ok((low, high)) => return Ok(low..high),
                // A new topic, or a broker that has just come back: its leader is not known at once.
                Err(_) if left > PAUSE => std::thread::sleep(PAUSE),
                Err(error) => return Err(Unread::Level(down(error))),
            }
        }
    }

    fn fetch(&mut self, offset: i64) -> Result<Option<Record>, Unread> {
        if self.next != Some(offset) {
            self.next = None;
            self.seek(offset).map_err(|error| Unread::Level(down(error)))?;
        }
        let record = self.next(offset);
        if record.is_err() {
            self.next = None;
        }
        record.map(Some)
    }
}
