//! Attempts to open topics, for whose answers the thread of all clients waits: how long it may wait, and what was answered before.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rbmq::TopicOpenError;
use rbmq_wire::TopicName;

use crate::protocol::PublishError;

/// How long a topic that the broker did not take in time is not tried again.
const MISSING: Duration = Duration::from_millis(500);

/// The most topics whose answers are remembered.
const MAX_KNOWN: usize = 1000;

/// How long a round waits for answers. Then all clients have their turn.
const ROUND: Duration = Duration::from_millis(50);

/// How long a broker in another process is not asked again for a topic that it has refused.
const REFUSED: Duration = Duration::from_secs(5);

/// After an answer that did not come in time, such a broker is asked for nothing for so many times as long as the wait was.
const PAUSES: u32 = 4;

/// What is known of a topic that is not open.
enum Known {
    /// The broker has not taken it in time.
    Missing,
    Refused(String),
}

/// See the module.
pub(super) struct Attempts {
    is_beside: bool,
    known: HashMap<TopicName, (Instant, Known)>,
    /// Nothing is opened before.
    pause: Option<Instant>,
    /// How long this round has waited.
    waited: Duration,
}

impl Attempts {
    pub(super) fn new(is_beside: bool) -> Self {
        Self { is_beside, known: HashMap::new(), pause: None, waited: Duration::ZERO }
    }

    /// Whether a topic may be opened now.
    ///
    /// # Errors
    /// Later, or it was refused.
    pub(super) fn check(&mut self, topic: &TopicName, now: Instant) -> Result<(), PublishError> {
        match self.known.get(topic) {
            Some((until, Known::Refused(why))) if *until > now => {
                return Err(PublishError::Refused(why.clone()));
            }
            Some((until, Known::Missing)) if *until > now => return Err(PublishError::Full),
            Some(_) => _ = self.known.remove(topic),
            None => {}
        }
        match self.waited >= ROUND || self.pause.is_some_and(|until| until > now) {
            true => Err(PublishError::Full),
            false => Ok(()),
        }
    }

    /// The broker has answered, or was waited for in vain, from one time to another.
    pub(super) fn asked(&mut self, begin: Instant, end: Instant) {
        self.waited += end.saturating_duration_since(begin);
    }

    /// What an attempt that ended at a time means for the message.
    pub(super) fn failed(&mut self, topic: &TopicName, error: &TopicOpenError, end: Instant) -> PublishError {
        match error {
            TopicOpenError::TimedOut { waited, .. } => {
                self.pause = self.is_beside.then(|| end + *waited * PAUSES);
                self.remember(topic, end + MISSING, Known::Missing);
                PublishError::Full
            }
            TopicOpenError::Refused { .. } if self.is_beside => {
                self.remember(topic, end + REFUSED, Known::Refused(error.to_string()));
                PublishError::Refused(error.to_string())
            }
            other => PublishError::Refused(other.to_string()),
        }
    }

    fn remember(&mut self, topic: &TopicName, until: Instant, known: Known) {
        if self.known.len() >= MAX_KNOWN {
            self.known.clear();
        }
        self.known.insert(topic.clone(), (until, known));
    }

    /// All clients have had their turn.
    pub(super) fn end_round(&mut self) {
        self.waited = Duration::ZERO;
    }

    /// The broker may be another one, which takes what the last one refused.
    pub(super) fn forget(&mut self) {
        self.known.clear();
        self.pause = None;
    }
}

#[cfg(test)]
mod tests {
    use rbmq::RefuseCode;

    use super::*;

    fn name(topic: &str) -> TopicName {
        topic.parse().expect("a name")
    }

    fn refused(topic: &str) -> TopicOpenError {
        let (topic, code) = (name(topic), RefuseCode::NotAllowed);
        TopicOpenError::Refused { topic, code, reason: "no right".into() }
    }

    fn timed_out(topic: &str, waited: Duration) -> TopicOpenError {
        TopicOpenError::TimedOut { topic: name(topic), waited, last_error: None }
    }

    #[test]
    fn a_broker_that_does_not_answer_in_time_is_left_alone_for_longer_than_it_was_waited_for() {
        let (mut attempts, begin) = (Attempts::new(true), Instant::now());
        let waited = Duration::from_secs(1);
        let end = begin + waited;
        attempts.asked(begin, end);
        assert_eq!(attempts.failed(&name("a"), &timed_out("a", waited), end), PublishError::Full);
        attempts.end_round();
        for topic in ["a", "b"] {
            assert_eq!(attempts.check(&name(topic), end + 2 * waited), Err(PublishError::Full), "{topic}");
            assert_eq!(attempts.check(&name(topic), end + PAUSES * waited), Ok(()), "{topic}");
        }
        // In the process of the broker it is the affair of one topic.
        let mut inside = Attempts::new(false);
        inside.failed(&name("a"), &timed_out("a", waited), end);
        assert_eq!(inside.check(&name("a"), end), Err(PublishError::Full));
        assert_eq!(inside.check(&name("b"), end), Ok(()));
    }

    #[test]
    fn a_round_waits_for_few_answers() {
        let (mut attempts, now) = (Attempts::new(true), Instant::now());
        attempts.asked(now, now + ROUND / 2);
        assert_eq!(attempts.check(&name("a"), now), Ok(()));
        attempts.asked(now, now + ROUND / 2);
        assert_eq!(attempts.check(&name("a"), now), Err(PublishError::Full));
        attempts.end_round();
        assert_eq!(attempts.check(&name("a"), now), Ok(()));
    }

    #[test]
    fn a_refused_topic_is_refused_for_a_while_without_a_question() {
        let (mut attempts, now) = (Attempts::new(true), Instant::now());
        let first = attempts.failed(&name("a"), &refused("a"), now);
        attempts.asked(now, now + ROUND);
        assert_eq!(attempts.check(&name("a"), now), Err(first.clone()), "also when the round is over");
        attempts.end_round();
        assert_eq!(attempts.check(&name("b"), now), Ok(()));
        assert_eq!(attempts.check(&name("a"), now + REFUSED), Ok(()));
        attempts.failed(&name("a"), &refused("a"), now);
        attempts.forget();
        assert_eq!(attempts.check(&name("a"), now), Ok(()));
        (0..=MAX_KNOWN).for_each(|n| _ = attempts.failed(&name(&n.to_string()), &refused("a"), now));
        assert!(attempts.known.len() <= MAX_KNOWN);
    }
}
