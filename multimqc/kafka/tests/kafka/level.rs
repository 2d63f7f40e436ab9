//! The conformance suite, holes, restarts and failures, with a real Apache Kafka.

use std::time::Duration;

use multimqc::{Batch, Epoch, Found, Hole, Level, LevelError, Stop, TopicId};
use multimqc_conformance::pattern;
use multimqc_kafka::{KafkaConfig, KafkaLevel};
use testkit::awaited;

use crate::kafka::{Kafka, PATIENCE};
use crate::lab::Levels;

const TOPIC: TopicId = TopicId(3);

fn config(kafka: &Kafka, prefix: &str) -> KafkaConfig {
    KafkaConfig {
        prefix: prefix.to_owned(),
        timeout: Duration::from_secs(30),
        ..KafkaConfig::new(kafka.address())
    }
}

fn level(config: KafkaConfig, start: u64, epoch: u32) -> KafkaLevel {
    let level = KafkaLevel::new(config).expect("the configuration is good");
    level.open(TOPIC, start, Epoch(epoch)).expect("the topic is opened");
    level
}

fn write(level: &KafkaLevel, offset: u64, length: usize) -> Result<multimqc::Written, LevelError> {
    level.write(TOPIC, Batch { offset, bytes: &pattern(offset, length) })
}

fn check(level: &KafkaLevel, from: u64, length: usize) {
    let mut bytes = vec![0; length];
    let found = level.read(TOPIC, from, &mut bytes).expect("Kafka answers");
    assert_eq!(found, Found { bytes: length, stop: Stop::Filled }, "{length} from {from}");
    assert!(bytes == pattern(from, length), "the bytes from {from} on");
}

/// Offers a batch until Kafka takes it.
fn write_until_taken(level: &KafkaLevel, offset: u64, length: usize) -> multimqc::Written {
    awaited(PATIENCE, "Kafka takes it", || match write(level, offset, length) {
        Ok(written) => Some(written),
        Err(LevelError::Down(_)) => None,
        Err(error) => panic!("{error}"),
    })
}

#[test]
fn it_is_a_level() {
    let Some(kafka) = Kafka::start() else { return };
    multimqc_conformance::level(&Levels::new(&kafka));
    a_log_goes_on_after_a_restart_of_the_level(&kafka);
    every_position_is_found(&kafka);
    what_kafka_removes_is_gone(&kafka);
}

fn a_log_goes_on_after_a_restart_of_the_level(kafka: &Kafka) {
    let first = level(config(kafka, "restart"), 1000, 77);
    write(&first, 1000, 5000).expect("Kafka takes it");
    write(&first, 7000, 100).expect("Kafka takes it");
    drop(first);
    let second = KafkaLevel::new(config(kafka, "restart")).expect("the configuration is good");
    let window = second.open(TOPIC, 0, Epoch(1)).expect("the topic is opened");
    assert_eq!((window.head, window.epoch), (7100, Epoch(77)), "what the records say");
    check(&second, 1000, 5000);
    let mut bytes = [0; 200];
    let found = second.read(TOPIC, 5900, &mut bytes).expect("Kafka answers");
    assert_eq!(found, Found { bytes: 100, stop: Stop::Hole(Hole { from: 6000, to: 7000 }) });
    assert_eq!(write(&second, 7000, 200).expect("Kafka takes it").repeated, 100);
    check(&second, 7000, 200);
    // A process that ends without closing the level may have shown more than Kafka has.
    let _second = std::mem::ManuallyDrop::new(second);
    let gap = KafkaConfig { restart_gap_bytes: 1000, ..config(kafka, "restart") };
    let third = level(gap.clone(), 0, 1);
    let kept = third.kept(TOPIC).expect("Kafka answers").expect("Kafka has records");
    assert_eq!((kept.window.head, kept.unsure_bytes), (7200, 1000));
    write(&third, 8200, 0).expect("Kafka takes it");
    let found = third.read(TOPIC, 7199, &mut bytes).expect("Kafka answers");
    assert_eq!(found, Found { bytes: 1, stop: Stop::Hole(Hole { from: 7200, to: 8200 }) });
    write(&third, 8200, 50).expect("Kafka takes it");
    drop(third);
    let fourth = KafkaLevel::new(gap).expect("the configuration is good");
    let kept = fourth.kept(TOPIC).expect("Kafka answers").expect("Kafka has records");
    assert_eq!((kept.window.epoch, kept.unsure_bytes), (Epoch(77), 0), "it was closed: no gap");
    fourth.open(TOPIC, 0, Epoch(1)).expect("the topic is opened");
    assert_eq!(fourth.window(TOPIC).map(|window| window.head), Some(8250));
    write(&fourth, 8250, 50).expect("Kafka takes it");
    check(&fourth, 8200, 100);
}

fn every_position_is_found(kafka: &Kafka) {
    let config = KafkaConfig { max_record_bytes: 700, ..config(kafka, "positions") };
    let writer = level(config.clone(), 0, 5);
    let mut head = 0;
    for round in 0..40 {
        // A batch of several records.
        write(&writer, head, 1 + round * 97).expect("Kafka takes it");
        head += 1 + round as u64 * 97;
    }
    // A reader that knows nothing but the ends.
    let reader = level(KafkaConfig { restart_gap_bytes: 0, ..config }, 0, 5);
    let mut at = 0;
    for round in 0..60 {
        at = (at + 7919 * round) % (head - 1500);
        check(&reader, at, 1500);
    }
    check(&reader, 0, head as usize);
    assert!(matches!(writer.append(TOPIC, &mut std::iter::empty()), Err(LevelError::NotWritable)));
}

fn what_kafka_removes_is_gone(kafka: &Kafka) {
    // Batches of three records: the log begins with the first of them.
    let config = KafkaConfig {
        max_record_bytes: 40_000,
        retention_bytes: Some(1 << 20),
        segment_bytes: 1 << 20,
        ..config(kafka, "retention")
    };
    let level = level(config.clone(), 0, 9);
    let mut head = 0;
    while head < 6 << 20 {
        write(&level, head, 100_000).expect("Kafka takes it");
        head += 100_000;
    }
    let first = awaited(PATIENCE, "Kafka removes something", || {
        let fresh = KafkaLevel::new(KafkaConfig { restart_gap_bytes: 0, ..config.clone() })
            .expect("the configuration is good");
        let first = fresh.open(TOPIC, 0, Epoch(9)).expect("it opens").first;
        (first > 0).then_some(first)
    });
    let mut bytes = [0; 10];
    // Kafka may remove more at any time: then the beginning that was told is gone too.
    let mut told = 0;
    loop {
        let found = level.read(TOPIC, told, &mut bytes).expect("Kafka answers");
        let Stop::Gone(later) = found.stop else { break assert_eq!(found.stop, Stop::Filled) };
        assert!(later > told && later >= first && later % 100_000 == 0, "{later} after {told}");
        told = later;
        assert_eq!(level.counters(TOPIC).overwritten_bytes, told);
        assert_eq!(level.window(TOPIC).map(|window| (window.first, window.head)), Some((told, head)));
    }
    assert!(told >= first && bytes[..] == pattern(told, 10)[..]);
    check(&level, head - 900_000, 900_000);
}

#[test]
fn kafka_that_is_slow_or_down_loses_nothing() {
    let Some(mut kafka) = Kafka::start() else { return };
    let level = level(KafkaConfig { timeout: Duration::from_secs(3), ..config(&kafka, "down") }, 0, 5);
    write_until_taken(&level, 0, 10_000);
    check(&level, 0, 10_000);

    // Kafka answers nothing, and later the requests from before: the batch may have been taken meanwhile.
    kafka.pause();
    assert!(matches!(write(&level, 10_000, 5000), Err(LevelError::Down(_))));
    assert!(write(&level, 10_000, 5000).expect_err("it still does not answer").is_temporary());
    assert_eq!(level.window(TOPIC).map(|window| window.head), Some(10_000), "nothing is claimed");
    let mut bytes = [0; 100];
    assert!(matches!(level.read(TOPIC, 5, &mut bytes), Ok(_) | Err(LevelError::Down(_))));
    kafka.go_on();
    let written = write_until_taken(&level, 10_000, 6000);
    assert!(written.hole.is_none() && written.bytes + written.repeated == 6000, "{written:?}");
    check(&level, 0, 16_000);

    // Killed and started again.
    kafka.kill();
    assert!(matches!(write(&level, 16_000, 1000), Err(LevelError::Down(_))));
    let refused = level.counters(TOPIC).refused;
    assert!(refused >= 3, "{refused}");
    kafka.run();
    write_until_taken(&level, 16_000, 1000);
    check(&level, 0, 17_000);
    // The bytes that the level below had to give up meanwhile are a hole.
    let written = write(&level, 20_000, 500).expect("Kafka is back");
    assert_eq!(written.hole, Some(Hole { from: 17_000, to: 20_000 }));
    check(&level, 20_000, 500);
    let counters = level.counters(TOPIC);
    // A batch without an answer may have been taken: then its bytes count as repeated.
    assert_eq!((counters.hole_bytes, counters.bytes + counters.repeated_bytes), (3000, 17_500));
}
