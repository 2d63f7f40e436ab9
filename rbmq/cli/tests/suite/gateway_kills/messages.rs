//! Clients of MQTT that publish and receive over all kills.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rbmq_gateway::mqtt::codec::AckKind;
use testkit::{LONG, until};

use super::streams::Entry;
use super::{Dice, TOPICS, Watch};
use crate::mqtt_kills::{Client, Got, Message};

/// A message that is not done.
#[derive(Clone, Copy)]
struct Open {
    number: usize,
    /// PUBREC has come for it.
    is_recorded: bool,
}

/// The topic of a message.
fn topic_of(number: usize) -> &'static str {
    TOPICS[number / 2 % 2]
}

/// Publishes numbers until it is told to stop, and then until all are acknowledged. Returns the QoS of each.
pub fn publish_all(addr: &str, stop: &AtomicBool, watch: &Watch, mut dice: Dice) -> Vec<u8> {
    let mut publisher = Publisher::default();
    while with_client(addr, "publisher", |client| publisher.publish(client, stop, watch, &mut dice)).is_err()
    {
    }
    publisher.qos
}

/// What a client has published.
#[derive(Default)]
struct Publisher {
    qos: Vec<u8>,
    open: BTreeMap<u16, Open>,
}

impl Publisher {
    /// Publishes until the connection ends, or all is done.
    fn publish(
        &mut self,
        client: &mut Client,
        stop: &AtomicBool,
        watch: &Watch,
        dice: &mut Dice,
    ) -> io::Result<()> {
        for (&id, open) in &self.open {
            if open.is_recorded {
                client.ack(AckKind::Pubrel, id)?;
            } else {
                client.publish(Message {
                    dup: true,
                    ..self.message(&open.number.to_string(), open.number, id)
                })?;
            }
        }
        loop {
            watch.go_on();
            let goes_on = !stop.load(Ordering::Relaxed);
            if self.open.is_empty() && !goes_on {
                return Ok(());
            }
            while goes_on && self.open.len() < 10 {
                let (number, id) = (self.qos.len(), (self.qos.len() % 60_000) as u16 + 1);
                self.qos.push(1 + (number % 2) as u8);
                self.open.insert(id, Open { number, is_recorded: false });
                client.publish(self.message(&number.to_string(), number, id))?;
            }
            if dice.is_one_of(300) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let next = client.next()?;
            if let Got::Ack(_, id) = next
                && let Some(open) = self.open.get(&id)
            {
                watch.acknowledged.lock().expect("no failure").insert(open.number);
            }
            match next {
                Got::Ack(AckKind::Pubrec, id) => {
                    self.open.get_mut(&id).expect("its message").is_recorded = true;
                    client.ack(AckKind::Pubrel, id)?;
                }
                Got::Ack(AckKind::Puback | AckKind::Pubcomp, id) => drop(self.open.remove(&id)),
                other => panic!("{other:?}"),
            }
            watch.messages.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn message<'a>(&self, text: &'a str, number: usize, id: u16) -> Message<'a> {
        Message::new(topic_of(number), text, self.qos[number], id)
    }
}

/// Receives until all have come. Returns how often each number came.
pub fn receive_all(
    addr: &str,
    qos: &OnceLock<Vec<u8>>,
    watch: &Watch,
    mut dice: Dice,
) -> BTreeMap<usize, usize> {
    let (mut got, mut unreleased) = (BTreeMap::new(), BTreeSet::new());
    let is_done = |got: &BTreeMap<usize, usize>| qos.get().is_some_and(|qos| got.len() >= qos.len());
    let mut last = Instant::now();
    while with_client(addr, "subscriber", |client| {
        client.stream.set_read_timeout(Some(Duration::from_millis(200)))?;
        loop {
            watch.go_on();
            assert!(last.elapsed() < LONG, "{}", why(addr, &got, watch));
            let next = match client.next() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && is_done(&got) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                next => next?,
            };
            match next {
                Got::Message { payload, qos, id, .. } => {
                    let is_new = qos == 1 || unreleased.insert(id);
                    let before = got.len();
                    *got.entry(payload.parse().expect("a number")).or_default() += usize::from(is_new);
                    last = if got.len() > before { Instant::now() } else { last };
                    client.ack(if qos == 2 { AckKind::Pubrec } else { AckKind::Puback }, id)?;
                }
                Got::Ack(AckKind::Pubrel, id) => {
                    unreleased.remove(&id);
                    client.ack(AckKind::Pubcomp, id)?;
                }
                other => panic!("{other:?}"),
            }
            if dice.is_one_of(300) {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
    })
    .is_err()
    {}
    got
}

/// Why the subscriber waits.
fn why(addr: &str, got: &BTreeMap<usize, usize>, watch: &Watch) -> String {
    let acknowledged = watch.acknowledged.lock().expect("no failure");
    let missing: Vec<_> = acknowledged.iter().filter(|number| !got.contains_key(number)).collect();
    let (before, now) = (watch.dropped.load(Ordering::Relaxed), watch.dropped_now(addr));
    format!(
        "seed {}: of {} messages that were acknowledged, {} do not come: {missing:?}; {} have come, the last one is {:?}; \
         {before} had no room at the brokers that were killed, and {now} at this one",
        watch.seed,
        acknowledged.len(),
        missing.len(),
        got.len(),
        got.last_key_value(),
    )
}

/// Connects, and works until the connection ends.
fn with_client(addr: &str, id: &str, work: impl FnOnce(&mut Client) -> io::Result<()>) -> io::Result<()> {
    let mut connected = None;
    until("the gateway listens", || {
        connected = Client::connect(addr, id).ok();
        connected.is_some()
    });
    let (mut client, _) = connected.expect("a client");
    work(&mut client)
}

/// QoS 1 came at least once, QoS 2 exactly once, and the log of the topic on disk has all of its messages.
pub fn check(seed: u64, qos: &[u8], got: &BTreeMap<usize, usize>, log: &[Entry]) {
    let stored: HashSet<usize> = log.iter().map(Entry::number).collect();
    for (number, qos) in qos.iter().enumerate() {
        let count = got.get(&number).copied().unwrap_or(0);
        let is_right = if *qos == 2 { count == 1 } else { count >= 1 };
        assert!(is_right, "seed {seed}: message {number} of QoS {qos} came {count} times");
        let is_on_disk = topic_of(number) == TOPICS[1];
        assert_eq!(
            stored.contains(&number),
            is_on_disk,
            "seed {seed}: message {number} of QoS {qos} is on disk"
        );
    }
}
