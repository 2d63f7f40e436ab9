//! `rbmq sub --group`: a worker of a group, which acknowledges what it has printed.

use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use commands::{Failure, Stdout, Stop};
use rbmq::{
    GroupBuilder, GroupError, GroupMessage, GroupWorker, StartFrom, SubscriberBuilder, TopicFilter, TopicName,
};
use serde::Serialize;

use super::attributes::Said;
use super::client::ClientArgs;
use super::times;

/// Lines are gathered up to this size before a write, as long as more messages are here.
const GATHERED_BYTES: usize = 64 << 10;

/// The longest wait before the command checks whether it was asked to end.
const STEP: Duration = Duration::from_millis(200);

/// The options of a worker.
#[derive(Debug, clap::Args)]
pub(super) struct GroupArgs {
    /// Share a kept topic with the other workers of this group: each message goes to one of them, is acknowledged after it was printed, and
    /// comes again if its worker ends before
    #[arg(
        long,
        value_name = "NAME",
        value_parser = NonEmptyStringValueParser::new(),
        conflicts_with_all = ["output", "until_closed", "policy", "rate", "ring_bytes", "budget"]
    )]
    pub(super) group: Option<String>,
    /// Of a new group: how long a worker may have a message before others get it [default: 30s]
    #[arg(long, value_name = "TIME", requires = "group", value_parser = times::parse)]
    ack_time: Option<Duration>,
    /// Of a new group: after so many failed attempts a message goes to the topic of --dead-letters
    #[arg(long, value_name = "N", requires = "dead_letters", value_parser = clap::value_parser!(u16).range(1..))]
    attempts: Option<u16>,
    /// Of a new group: the topic for messages whose attempts have failed; it is kept and exists too
    #[arg(long, value_name = "TOPIC", requires_all = ["group", "attempts"])]
    dead_letters: Option<TopicName>,
    /// Of a new group: messages with the same key are handed out one after the other
    #[arg(long, requires = "group")]
    ordered: bool,
    /// The most messages that this worker has at a time [default: 100]
    #[arg(long, value_name = "N", requires = "group", value_parser = clap::value_parser!(u32).range(1..))]
    credit: Option<u32>,
}

/// What the worker is to do.
pub(super) struct Work<'a> {
    pub(super) topics: &'a [TopicFilter],
    pub(super) from: &'a StartFrom,
    pub(super) count: Option<u64>,
    pub(super) json: bool,
    pub(super) print_topic: bool,
    pub(super) client: &'a ClientArgs,
}

#[derive(Serialize)]
struct Object<'m> {
    attempt: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    attributes: Option<Said<'m>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<&'m [u8]>,
    position: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'m str>,
    topic: &'m str,
}

impl GroupArgs {
    fn builder(&self, options: SubscriberBuilder, from: &StartFrom) -> Result<GroupBuilder, Failure> {
        let mut builder = options.group(self.group.as_deref().unwrap_or_default()).ordered(self.ordered);
        builder = match from {
            StartFrom::Oldest => builder,
            StartFrom::Newest => builder.from_newest(true),
            _ => {
                return Err(Failure::Usage(
                    "sub",
                    "a group begins at --from oldest or newest; 'rbmq groups reset' has positions".into(),
                ));
            }
        };
        if let Some(time) = self.ack_time {
            builder = builder.ack_time(time);
        }
        if let Some(credit) = self.credit {
            builder = builder.credit(credit);
        }
        if let (Some(attempts), Some(topic)) = (self.attempts, &self.dead_letters) {
            builder = builder.dead_letters(attempts, topic.as_str());
        }
        Ok(builder)
    }
}

/// Works until it is asked to end, or has printed as many messages as it should.
pub(super) fn run(args: &GroupArgs, options: SubscriberBuilder, work: &Work<'_>) -> Result<(), Failure> {
    let topic = match work.topics {
        [topic] => topic.as_topic(),
        _ => None,
    };
    let Some(topic) = topic else {
        return Err(Failure::Usage("sub", "--group takes one topic, without wildcards".into()));
    };
    let builder = args.builder(options, work.from)?;
    let stop = Stop::install()?;
    let mut output = Stdout::open(&stop)?;
    let joined = builder.join(&work.client.broker, topic.as_str());
    let mut worker = joined.map_err(|error| explain(&error, work.client))?;
    let result = receive(&mut worker, &topic, work, &mut output, &stop);
    let closed = worker.close().map_err(|error| explain(&error, work.client));
    result.and(closed)
}

fn receive(
    worker: &mut GroupWorker,
    topic: &TopicName,
    work: &Work<'_>,
    output: &mut Stdout<'_>,
    stop: &Stop,
) -> Result<(), Failure> {
    let mut left = work.count.unwrap_or(u64::MAX);
    while left > 0 && !stop.asked() {
        let (mut lines, mut printed) = (Vec::new(), Vec::new());
        let mut wait = STEP;
        while left > 0 && lines.len() < GATHERED_BYTES {
            let next = worker.recv(Some(wait)).map_err(|error| explain(&error, work.client))?;
            let Some(message) = next else { break };
            put(&message, topic, work, &mut lines);
            printed.push(message);
            left -= 1;
            wait = Duration::ZERO;
        }
        if printed.is_empty() {
            if output.is_abandoned() {
                return Err(Failure::OutputClosed);
            }
            continue;
        }
        // What could not be printed comes again, here or at another worker.
        if let Err(failure) = output.write(&lines) {
            printed.into_iter().for_each(|message| message.nack(Duration::ZERO));
            return Err(failure);
        }
        printed.into_iter().for_each(GroupMessage::ack);
    }
    Ok(())
}

fn put(message: &GroupMessage, topic: &TopicName, work: &Work<'_>, lines: &mut Vec<u8>) {
    if work.json {
        let attributes = message.attributes.attributes();
        let text = std::str::from_utf8(&message.bytes).ok();
        let object = Object {
            attempt: message.attempt,
            attributes: (!attributes.is_empty()).then_some(Said(attributes)),
            bytes: text.is_none().then_some(&message.bytes),
            position: message.position,
            text,
            topic: topic.as_str(),
        };
        // Writing numbers and strings to memory cannot fail.
        let _ = serde_json::to_writer(&mut *lines, &object);
    } else {
        if work.print_topic {
            lines.extend_from_slice(topic.as_str().as_bytes());
            lines.push(b'\t');
        }
        lines.extend_from_slice(&message.bytes);
    }
    lines.push(b'\n');
}

/// The failure of a command that asked a broker about groups.
pub(super) fn explain(error: &GroupError, client: &ClientArgs) -> Failure {
    match error {
        GroupError::Connect(error) => client.explain(error),
        other => Failure::failed(other),
    }
}
