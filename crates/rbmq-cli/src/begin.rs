//! What `sub` says about its beginning when nothing comes: nobody is there yet, all is over, a position is none.
//!
//! Nothing here is told after a connection was lost: receiving then goes on, and no longer begins.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use rbmq::wire::UnpackError;
use rbmq::{Batch, Framing, Notice, ReceiveError, StartFrom, TopicFilter, TopicName};
use rocketbufs::{Epoch, Position};
use tracing::warn;

/// Who is there has answered by then: nobody waits for it, a slower answer costs a line that was not needed.
const PATIENCE: Duration = Duration::from_secs(1);

/// Most topics that a line names.
const NAMED: usize = 3;

/// A log of which nothing came yet.
struct Silent {
    topic: TopicName,
    start: Position,
    /// Whether somebody gave `start` as a number.
    asked: bool,
    since: Instant,
    told: bool,
}

/// How the subscriptions of a command begin.
pub(super) struct Beginnings {
    since: Instant,
    /// Where what each filter matches begins, in the order of the arguments; none if nothing is to be said about that
    /// (it goes on where an output ends).
    from: Vec<(TopicFilter, Option<StartFrom>)>,
    /// Filters that match no publisher's topic, in the order of the arguments; empty when that was told.
    absent: Vec<TopicFilter>,
    /// Logs that the arguments name and that are not here, so far.
    unknown: Vec<Epoch>,
    /// Whether other logs than those are here.
    others: bool,
    silent: HashMap<Epoch, Silent>,
    /// Topics of which was told that they were closed before, and that nothing comes: they may have many publishers.
    told: [HashSet<TopicName>; 2],
    /// Logs that have begun and may go on in another buffer: that is no beginning.
    begun: HashSet<Epoch>,
    /// How many logs of which the oldest was asked for had lost some of it, and of how many that was not told yet.
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

    /// A filter is subscribed to. `from` is none if where it begins is not what the arguments say.
    pub(super) fn add(&mut self, filter: &TopicFilter, from: Option<StartFrom>) {
        if !self.absent.contains(filter) {
            self.from.push((filter.clone(), from));
            self.absent.push(filter.clone());
        }
    }

    /// Positions of these logs were given: one of them that is not here is told.
    pub(super) fn expect(&mut self, from: &StartFrom) {
        if let StartFrom::Positions(positions) = from {
            self.unknown = positions.iter().map(|(epoch, _)| *epoch).collect();
        }
    }

    /// Where a topic begins: as the first filter says.
    fn of(&self, topic: &TopicName) -> Option<&StartFrom> {
        self.from.iter().find(|(filter, _)| filter.matches(topic)).and_then(|(_, from)| from.as_ref())
    }

    /// Returns what is to be told at once.
    pub(super) fn on_notice(&mut self, notice: &Notice) -> Option<String> {
        match notice {
            Notice::Joined { topic, epoch, start } => {
                self.absent.retain(|absent| !absent.matches(topic));
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
                // A log of which nothing was published yet has nothing that could be missed.
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

    /// The first bytes of a log are no longer kept. Of thousands the first few are named.
    fn on_cut(&mut self, topic: &TopicName, start: Position) -> Option<String> {
        self.cut.0 += 1;
        if self.cut.0 > NAMED {
            self.cut.1 += 1;
            return None;
        }
        Some(format!(
            "topic '{topic}': begins at position {start}: what was before is not kept any more; a larger \
             --ring-bytes of its publisher keeps more (half of it)"
        ))
    }

    /// The first messages of a log show whether it was begun at a message.
    pub(super) fn check(&mut self, batch: &Batch<'_>) -> Result<(), String> {
        let Some(silent) = self.silent.remove(&batch.epoch()) else { return Ok(()) };
        if !silent.asked || silent.start != batch.position() || batch.framing() == Framing::Raw {
            return Ok(());
        }
        // What a publisher of a merged topic wrote has nothing to do with where it was begun.
        let misplaced = |error: &ReceiveError| match error {
            ReceiveError::Malformed { error, .. } => !matches!(error, UnpackError::Publisher { .. }),
            _ => false,
        };
        match batch.pieces().filter_map(Result::err).find(misplaced) {
            None => Ok(()),
            Some(_) => Err(format!(
                "topic '{}': position {} is not where a message begins; --json tells where they do",
                silent.topic, silent.start
            )),
        }
    }

    /// Which logs were named that are not here, when others are; once. Also at the end, as that may come early.
    pub(super) fn unknown_logs(&mut self) -> Option<String> {
        if !self.others || self.unknown.is_empty() {
            return None;
        }
        let unknown: Vec<String> = self.unknown.drain(..).map(|epoch| epoch.to_string()).collect();
        Some(format!(
            "--from: no log of epoch {} is here; others are read from their oldest byte",
            unknown.join(", ")
        ))
    }

    /// Whom it waits for or what else begins late, if that is to be told now; positions from which nothing comes are
    /// logged.
    pub(super) fn overdue(&mut self, connected: bool) -> Option<String> {
        if self.cut.1 > 0 && self.since.elapsed() >= PATIENCE {
            let more = std::mem::take(&mut self.cut.1);
            return Some(format!("{more} more logs begin late: what was before is not kept any more"));
        }
        for silent in self.silent.values_mut().filter(|s| s.asked && s.since.elapsed() >= PATIENCE) {
            silent.tell_beyond(&mut self.told[1]);
        }
        if connected
            && self.since.elapsed() >= PATIENCE
            && let Some(text) = self.unknown_logs()
        {
            return Some(text);
        }
        if self.absent.is_empty() || !connected || self.since.elapsed() < PATIENCE {
            return None;
        }
        let absent = std::mem::take(&mut self.absent);
        let named: Vec<String> = absent.iter().take(NAMED).map(|topic| format!("'{topic}'")).collect();
        let more = match absent.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Some(format!("waiting: nobody publishes {}{more} yet", named.join(", ")))
    }
}

impl Silent {
    /// Its log has ended, and nothing came.
    fn on_end(&mut self, [closed, beyond]: &mut [HashSet<TopicName>; 2]) {
        if self.asked {
            self.tell_beyond(beyond);
        } else if self.since.elapsed() < PATIENCE && closed.insert(self.topic.clone()) {
            // One that was open is closed a moment after the subscription only by a rare chance.
            warn!("'{}' was closed before you subscribed; --from oldest has what is kept", self.topic);
        }
    }

    fn tell_beyond(&mut self, beyond: &mut HashSet<TopicName>) {
        if !std::mem::replace(&mut self.told, true) && beyond.insert(self.topic.clone()) {
            warn!(
                "topic '{}': nothing comes from position {}: the log ends there or before",
                self.topic, self.start
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_goes_on_in_another_buffer_has_lost_nothing() {
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
        // One that was closed does not go on.
        let closed = Notice::Closed { topic: topic.clone(), epoch: Epoch(1), end: 500 };
        assert_eq!(beginnings.on_notice(&closed), None);
        assert!(beginnings.on_notice(&joined(1, 500)).is_some());
    }
}
