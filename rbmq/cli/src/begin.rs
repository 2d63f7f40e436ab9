//! Messages of `sub` about its start: no publisher yet, a topic that was closed before, a position without messages.
//!
//! After a connection was lost, receiving resumes and does not start. Then there are no such messages.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use rbmq::wire::UnpackError;
use rbmq::{Batch, Framing, Notice, ReceiveError, Space, StartFrom, TopicFilter, TopicName};
use rocketbufs::{Epoch, Position};
use tracing::warn;

/// Topics that exist are announced within this time. A slower answer costs only a needless message.
const DELAY: Duration = Duration::from_secs(1);

/// The most topics that a message names.
const MAX_NAMED: usize = 3;

/// Whether a filter selects a topic, or wants the log of a space that has this name.
fn is_for(filter: &TopicFilter, topic: &TopicName) -> bool {
    match Space::of_log(topic) {
        Some(space) => space.is_wanted_by(filter),
        None => filter.matches(topic),
    }
}

/// A log without a message so far.
struct Silent {
    topic: TopicName,
    start: Position,
    /// Whether the command line has `start` as a number.
    asked: bool,
    since: Instant,
    told: bool,
}

/// The starts of the subscriptions.
pub(super) struct Beginnings {
    since: Instant,
    /// The start of each filter, in the order of the arguments; none if the filter continues an output.
    from: Vec<(TopicFilter, Option<StartFrom>)>,
    /// Filters that match no topic so far, in the order of the arguments. Empty once they were reported.
    absent: Vec<TopicFilter>,
    /// Logs that the arguments name and that were not announced so far.
    unknown: Vec<Epoch>,
    /// Whether other logs were announced.
    others: bool,
    silent: HashMap<Epoch, Silent>,
    /// Topics that were reported as closed before, and topics that were reported as having no messages behind a position. Topics
    /// may have many publishers.
    told: [HashSet<TopicName>; 2],
    /// Logs that have begun. Their continuation in another buffer is not a start.
    begun: HashSet<Epoch>,
    /// The number of logs with `--from oldest` whose oldest messages are missing, and how many of them were not reported.
    cut: (usize, usize),
}

impl Beginnings {
    pub(super) fn new() -> Self {
        Self {
            since: Instant::now(),
            from: Vec::new(),
            absent: Vec::new(),
            unknown: Vec::new(),
            others: false,
            silent: HashMap::new(),
            told: Default::default(),
            begun: HashSet::new(),
            cut: (0, 0),
        }
    }

    /// Adds a filter. `from` is none if the arguments do not decide its start.
    pub(super) fn add(&mut self, filter: &TopicFilter, from: Option<StartFrom>) {
        if !self.absent.contains(filter) {
            self.from.push((filter.clone(), from));
            self.absent.push(filter.clone());
        }
    }

    /// Adds the logs of `--from`. Logs that are not announced are reported.
    pub(super) fn expect(&mut self, from: &StartFrom) {
        if let StartFrom::Positions(positions) = from {
            self.unknown = positions.iter().map(|(epoch, _)| *epoch).collect();
        }
    }

    /// The start of a topic, which the first matching filter decides.
    fn of(&self, topic: &TopicName) -> Option<&StartFrom> {
        self.from.iter().find(|(filter, _)| is_for(filter, topic)).and_then(|(_, from)| from.as_ref())
    }

    /// Returns a message to print at once.
    pub(super) fn on_notice(&mut self, notice: &Notice) -> Option<String> {
        match notice {
            Notice::Joined { topic, epoch, start } => {
                self.absent.retain(|absent| !is_for(absent, topic));
                let unknown = self.unknown.len();
                self.unknown.retain(|unknown| unknown != epoch);
                self.others |= self.unknown.len() == unknown;
                if !self.begun.insert(*epoch) {
                    return None;
                }
                let asked = match self.of(topic) {
                    Some(StartFrom::Position(position)) => position == start,
                    Some(StartFrom::Positions(positions)) => positions.contains(&(*epoch, *start)),
                    Some(StartFrom::Newest) => false,
                    Some(StartFrom::Oldest) if *start > 0 => return self.on_cut(topic, *start),
                    _ => return None,
                };
                // A log without published messages has nothing to miss.
                if *start > 0 {
                    let (topic, since) = (topic.clone(), Instant::now());
                    let silent = Silent { topic, start: *start, asked, since, told: false };
                    self.silent.insert(*epoch, silent);
                }
            }
            Notice::Closed { epoch, end, .. } => {
                self.begun.remove(epoch);
                if let Some(mut silent) = self.silent.remove(epoch).filter(|s| s.start == *end) {
                    silent.on_end(&mut self.told);
                }
            }
            Notice::Disconnected(_) => {
                self.from.iter_mut().for_each(|(_, from)| *from = None);
                self.unknown.clear();
                self.silent.clear();
                self.begun.clear();
            }
            _ => {}
        }
        None
    }

    /// The broker no longer has the oldest messages of a log. The message names only the first few logs.
    fn on_cut(&mut self, topic: &TopicName, start: Position) -> Option<String> {
        self.cut.0 += 1;
        if self.cut.0 > MAX_NAMED {
            self.cut.1 += 1;
            return None;
        }
        Some(format!(
            "topic '{topic}': begins at position {start}: the broker no longer has earlier messages; of a topic on disk \
             (keep = true) it has as much as keep_bytes and keep_ms say, of others half of the ring (--ring-bytes of the publisher)"
        ))
    }

    /// Checks with the first messages of a log whether the given position is the start of a message.
    pub(super) fn check(&mut self, batch: &Batch<'_>) -> Result<(), String> {
        let Some(silent) = self.silent.remove(&batch.epoch()) else { return Ok(()) };
        if !silent.asked || silent.start != batch.position() || batch.framing() == Framing::Raw {
            return Ok(());
        }
        // Malformed attributes, and malformed records of one publisher of a merged topic, say nothing about the position.
        let misplaced = |error: &ReceiveError| match error {
            ReceiveError::Malformed { error: UnpackError::Record(error), .. } => error.ends_bytes(),
            ReceiveError::Malformed { error, .. } => !matches!(error, UnpackError::Publisher { .. }),
            _ => false,
        };
        match batch.pieces().filter_map(Result::err).find(misplaced) {
            None => Ok(()),
            Some(_) => Err(format!(
                "topic '{}': position {} is not the start of a message; --json prints the positions of messages",
                silent.topic, silent.start
            )),
        }
    }

    /// The named logs that were not announced, if others were; once. Also called at the end, which may come early.
    pub(super) fn unknown_logs(&mut self) -> Option<String> {
        if !self.others || self.unknown.is_empty() {
            return None;
        }
        let unknown: Vec<String> = self.unknown.drain(..).map(|epoch| epoch.to_string()).collect();
        Some(format!(
            "--from: the broker has no log with epoch {}; other logs begin with their oldest message",
            unknown.join(", ")
        ))
    }

    /// A message about topics without publishers, or about missing old messages, if it is due. Logs a warning for positions
    /// without messages.
    pub(super) fn overdue(&mut self, connected: bool) -> Option<String> {
        if self.cut.1 > 0 && self.since.elapsed() >= DELAY {
            let more = std::mem::take(&mut self.cut.1);
            return Some(format!(
                "{more} more logs begin late: the broker no longer has their earlier messages"
            ));
        }
        for silent in self.silent.values_mut().filter(|s| s.asked && s.since.elapsed() >= DELAY) {
            silent.report_beyond(&mut self.told[1]);
        }
        if connected
            && self.since.elapsed() >= DELAY
            && let Some(text) = self.unknown_logs()
        {
            return Some(text);
        }
        if self.absent.is_empty() || !connected || self.since.elapsed() < DELAY {
            return None;
        }
        let absent = std::mem::take(&mut self.absent);
        let named: Vec<String> = absent.iter().take(MAX_NAMED).map(|topic| format!("'{topic}'")).collect();
        let more = match absent.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let shared = match absent.iter().any(|filter| filter.as_str().starts_with("$share/")) {
            true => {
                "; '$share/' is a part of the name here: there are no shared subscriptions, and each subscriber gets all messages"
            }
            false => "",
        };
        Some(format!("waiting for a publisher of {}{more}{shared}", named.join(", ")))
    }
}

impl Silent {
    /// The log has ended without a message.
    fn on_end(&mut self, [closed, beyond]: &mut [HashSet<TopicName>; 2]) {
        if self.asked {
            self.report_beyond(beyond);
        } else if self.since.elapsed() < DELAY && closed.insert(self.topic.clone()) {
            // An open topic is rarely closed just after the subscription.
            warn!(
                "topic '{}' was closed before you subscribed; --from oldest reads the remaining messages",
                self.topic
            );
        }
    }

    fn report_beyond(&mut self, beyond: &mut HashSet<TopicName>) {
        if !std::mem::replace(&mut self.told, true) && beyond.insert(self.topic.clone()) {
            warn!(
                "topic '{}': no message follows position {}: the log ends there or before",
                self.topic, self.start
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_looks_for_shared_subscriptions_learns_that_there_are_none() {
        let told = |filter: &str| {
            let mut beginnings = Beginnings::new();
            beginnings.add(&filter.parse().unwrap(), None);
            beginnings.since -= DELAY;
            beginnings.overdue(true).unwrap()
        };
        assert!(told("$share/g/a").contains("no shared subscriptions"));
        assert_eq!(told("a/$share/g"), "waiting for a publisher of 'a/$share/g'");
    }

    #[test]
    fn a_log_that_continues_in_another_buffer_loses_nothing() {
        let mut beginnings = Beginnings::new();
        beginnings.add(&"#".parse().unwrap(), Some(StartFrom::Oldest));
        let topic: TopicName = "t".parse().unwrap();
        let joined = |epoch, start| Notice::Joined { topic: topic.clone(), epoch: Epoch(epoch), start };
        assert_eq!(beginnings.on_notice(&joined(1, 0)), None);
        let gone = Notice::Gone { topic: topic.clone(), epoch: Epoch(1), end: 500 };
        assert_eq!(beginnings.on_notice(&gone), None);
        assert_eq!(beginnings.on_notice(&joined(1, 500)), None, "nothing is missing before it");
        let told = beginnings.on_notice(&joined(2, 500)).unwrap();
        assert!(told.contains("begins at position 500"), "{told}");
        // A closed log does not continue.
        let closed = Notice::Closed { topic: topic.clone(), epoch: Epoch(1), end: 500 };
        assert_eq!(beginnings.on_notice(&closed), None);
        assert!(beginnings.on_notice(&joined(1, 500)).is_some());
    }
}
