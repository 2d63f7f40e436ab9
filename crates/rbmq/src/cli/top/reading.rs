//! What `rbmq top` reads from the broker, and what two readings say together.

use std::time::{Duration, Instant};

use rbmq::{BrokerSummary, ObserveError, Observer, TopicDetail, TopicFilter, TopicName, TopicStats};
use serde_json::{Value, json};

use super::picture::{Rates, legend, picture};
use super::table::{Before, Line, Sort, before, lines, table};
use super::text;
use crate::cli::bytes;

/// How long subscribers may take to say how far they are.
const ANSWERS: Duration = Duration::from_millis(20);
/// Topics that are looked at twice; of more, what subscribers answer is seen by the next look.
const MAX_TWICE: usize = 1000;

/// What is looked at.
#[derive(Debug, Clone)]
pub(super) enum Subject {
    /// The table of the topics that it matches; none: all.
    Topics(Option<TopicFilter>, Sort),
    /// One topic's rings.
    Topic(TopicName),
}

/// What the broker said at one moment.
pub(super) struct Reading {
    at: Instant,
    summary: BrokerSummary,
    what: What,
}

enum What {
    Topics(Vec<TopicStats>),
    Topic(TopicDetail),
}

impl Subject {
    /// Reads. Looking makes the broker ask its subscribers how far they are, so what is small is looked at twice, and
    /// shows their answers.
    pub(super) fn read(&self, observer: &mut Observer) -> Result<Reading, ObserveError> {
        let first = self.what(observer)?;
        let small = !matches!(&first, What::Topics(topics) if topics.len() > MAX_TWICE);
        let what = if small {
            std::thread::sleep(ANSWERS);
            self.what(observer)?
        } else {
            first
        };
        Ok(Reading { at: Instant::now(), summary: observer.summary()?, what })
    }

    fn what(&self, observer: &mut Observer) -> Result<What, ObserveError> {
        Ok(match self {
            Self::Topics(filter, _) => What::Topics(observer.topics(filter.as_ref())?),
            Self::Topic(topic) => What::Topic(observer.topic(topic)?),
        })
    }
}

impl Reading {
    /// Whether there is nothing of what was asked for by name.
    pub(super) fn is_missing(&self) -> bool {
        matches!(&self.what, What::Topic(detail) if detail.buffers.is_empty())
    }

    fn since(&self, old: Option<&Self>) -> Duration {
        old.map_or(Duration::ZERO, |old| self.at.saturating_duration_since(old.at))
    }

    fn lines(&self, topics: &[TopicStats], old: Option<&Self>, sort: Sort) -> Vec<Line> {
        let old_topics = match old.map(|old| &old.what) {
            Some(What::Topics(topics)) => before(topics),
            _ => Before::new(),
        };
        lines(topics.to_vec(), &old_topics, self.since(old), sort)
    }

    /// The rates of each buffer of a topic.
    fn rates(&self, detail: &TopicDetail, old: Option<&Self>) -> Vec<Rates> {
        let elapsed = self.since(old);
        let rates = |buffer: &rbmq::BufferDetail| {
            let old = match old.map(|old| &old.what) {
                Some(What::Topic(old)) => old.buffers.iter().find(|b| b.buffer.bid == buffer.buffer.bid),
                _ => None,
            };
            let (received, delivered) = (buffer.buffer.received_bytes, buffer.buffer.delivered_bytes);
            Rates {
                received: text::rate(received, old.map(|old| old.buffer.received_bytes), elapsed),
                delivered: text::rate(delivered, old.map(|old| old.buffer.delivered_bytes), elapsed),
            }
        };
        detail.buffers.iter().map(rates).collect()
    }

    /// The view as text, in lines of at most `width`; as many topics or subscriptions as fit into `height`, if it is
    /// given.
    pub(super) fn text(
        &self,
        subject: &Subject,
        old: Option<&Self>,
        broker: &str,
        (width, height): (usize, Option<usize>),
    ) -> Vec<String> {
        let mut out = self.heading(old, broker, width);
        out.push(String::new());
        match (&self.what, subject) {
            (What::Topics(topics), Subject::Topics(_, sort)) => {
                let most = height.map_or(usize::MAX, |height| height.saturating_sub(out.len() + 2));
                out.extend(table(&self.lines(topics, old, *sort), width, most));
            }
            (What::Topic(detail), _) => {
                // Each buffer's own lines, and three for each of its subscriptions.
                let most = height.map_or(SHOWN, |height| {
                    let each = height.saturating_sub(out.len()) / detail.buffers.len().max(1);
                    (each.saturating_sub(8) / 3).clamp(1, SHOWN)
                });
                out.extend(self.pictures(detail, old, width, most));
            }
            (What::Topics(_), Subject::Topic(_)) => {}
        }
        out
    }

    fn pictures(&self, detail: &TopicDetail, old: Option<&Self>, width: usize, most: usize) -> Vec<String> {
        let name = text::name(detail.topic.as_str(), width.saturating_sub(16));
        if detail.buffers.is_empty() {
            return vec![text::cut(&format!("topic {name}: nobody publishes it now"), width)];
        }
        let mut out = Vec::new();
        for (buffer, rates) in detail.buffers.iter().zip(self.rates(detail, old)) {
            out.extend(picture(buffer, rates, width, most));
            out.push(String::new());
        }
        out.extend(legend(width));
        out
    }

    fn heading(&self, old: Option<&Self>, broker: &str, width: usize) -> Vec<String> {
        let (summary, elapsed) = (&self.summary, self.since(old));
        let many = |n: u32, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
        let rate = |of: fn(&BrokerSummary) -> u64| {
            text::bytes_or_dash(text::rate(of(summary), old.map(|old| of(&old.summary)), elapsed))
        };
        let words = [
            format!("rbmq {} at {broker}", text::name(&summary.version, 20)),
            format!("up {}", text::time(summary.uptime_ms)),
            many(summary.topics, "topic"),
            many(summary.publishers, "publisher"),
            many(summary.subscribers, "subscriber"),
            format!(
                "rings {} of {}",
                bytes::show(summary.ring_bytes as f64),
                bytes::show(summary.max_ring_bytes as f64)
            ),
            format!("in {}/s", rate(|s| s.received_bytes)),
            format!("out {}/s", rate(|s| s.delivered_bytes)),
            format!("lost {}", bytes::show(summary.dropped_bytes as f64)),
        ];
        text::wrap(&words, 0, width).into_iter().map(|line| text::cut(&line, width)).collect()
    }

    /// The same as an object.
    pub(super) fn json(&self, subject: &Subject, old: Option<&Self>, broker: &str) -> Value {
        let mut object = json!({
            "broker": broker,
            "seconds": self.since(old).as_secs_f64(),
            "summary": self.summary,
        });
        match (&self.what, subject) {
            (What::Topics(topics), Subject::Topics(_, sort)) => {
                object["topics"] = json!(self.lines(topics, old, *sort));
            }
            (What::Topic(detail), _) => {
                object["topic"] = json!(detail.topic);
                object["buffers"] = json!(detail.buffers);
                for (n, rates) in self.rates(detail, old).into_iter().enumerate() {
                    object["buffers"][n]["received_per_second"] = json!(rates.received);
                    object["buffers"][n]["delivered_per_second"] = json!(rates.delivered);
                }
            }
            (What::Topics(_), Subject::Topic(_)) => {}
        }
        object
    }
}

/// Subscriptions of a buffer that are drawn one by one where the window does not say.
const SHOWN: usize = 20;
