//! `rbmq pub --confirm`: waits for confirmations in a thread of its own, and prints them.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use commands::{Failure, Stop, Texts};
use locks::Mutex;
use rbmq::{ConfirmError, ConfirmLevel, Confirmation, Confirmed};
use serde_json::{Value, json};
use tracing::warn;

/// The most deliveries that wait for their confirmation. Publishing waits beyond that.
const WINDOW: usize = 1024;

/// The longest wait before the thread checks whether to continue.
const STEP: Duration = Duration::from_millis(50);

/// Longer than any time-out, and within the range of the clock.
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// The values of `--confirm`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Confirm {
    /// Only wait until the broker has everything, at the end
    None,
    /// The broker has the messages in its memory
    Accepted,
    /// Every subscriber that was present has them
    Delivered,
    /// Every subscriber that was present has consumed them
    Consumed,
    /// The file of the broker has them; only of topics that the broker keeps
    Stored,
    /// The disk of the broker has them; only of topics that the broker keeps
    Synced,
    /// The archive below the disk has them; only of topics with an archive
    Archived,
}

impl Confirm {
    /// Whether messages wait in the publisher for their subscribers: the level is not one of the broker's disk.
    pub(super) fn is_of_subscribers(self) -> bool {
        self.level().is_some_and(|level| !level.is_of_disk())
    }

    pub(super) fn level(self) -> Option<ConfirmLevel> {
        match self {
            Self::None => None,
            Self::Accepted => Some(ConfirmLevel::Accepted),
            Self::Delivered => Some(ConfirmLevel::Delivered),
            Self::Consumed => Some(ConfirmLevel::Consumed),
            Self::Stored => Some(ConfirmLevel::Stored),
            Self::Synced => Some(ConfirmLevel::Synced),
            Self::Archived => Some(ConfirmLevel::Archived),
        }
    }
}

/// How confirmations are printed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Output {
    pub(super) each: bool,
    pub(super) json: bool,
}

/// A delivery that waits for its confirmation, and the totals including the delivery.
struct Published {
    confirmation: Confirmation,
    messages: u64,
    bytes: u64,
}

/// The confirmations so far.
#[derive(Debug, Clone, Copy)]
struct Summary {
    last: Confirmed,
    messages: u64,
    /// The smallest number of subscribers of all confirmations.
    subscribers: u32,
    left: u32,
    lost: u32,
}

impl Summary {
    /// Why confirmations may cover no subscriber.
    fn no_subscriber_reason(&self) -> String {
        let left = match self.left {
            0 => None,
            1 => Some("1 subscriber left before it had consumed everything".into()),
            left => Some(format!("{left} subscribers left before they had consumed everything")),
        };
        let lost = match self.lost {
            0 => None,
            1 => Some("1 time a subscriber was too slow and lost messages by its policy".into()),
            lost => Some(format!("{lost} times a subscriber was too slow and lost messages by its policy")),
        };
        let why: Vec<String> = left.into_iter().chain(lost).collect();
        match why.is_empty() {
            true => {
                "the topic had no subscribers; --min-subscribers 1 publishes only while it has one".into()
            }
            false => why.join("; "),
        }
    }
}

#[derive(Default)]
struct Shared {
    summary: Option<Summary>,
    failure: Option<String>,
    /// After a request to end: the end of waiting, and the time-out that it comes from.
    until: Option<(Instant, Duration)>,
}

/// The confirmations of one topic. A thread waits for them in order.
pub(super) struct ConfirmThread {
    level: ConfirmLevel,
    sender: Option<SyncSender<Published>>,
    shared: Arc<Mutex<Shared>>,
    thread: JoinHandle<()>,
}

impl ConfirmThread {
    pub(super) fn start(level: ConfirmLevel, output: Output) -> Result<Self, Failure> {
        let (sender, receiver) = sync_channel(WINDOW);
        let shared = Arc::<Mutex<Shared>>::default();
        let theirs = shared.clone();
        let to = output.each.then(Texts::open).transpose()?;
        let thread =
            threads::spawn("rbmq-confirm", move || wait_in_order(&receiver, &theirs, to, output.json))
                .map_err(|error| Failure::Failed(format!("cannot start a thread: {error}")))?;
        Ok(Self { level, sender: Some(sender), shared, thread })
    }

    pub(super) fn level(&self) -> ConfirmLevel {
        self.level
    }

    /// Adds a published delivery. Waits while too many wait for their confirmation, as long as `check` succeeds. Fails if an
    /// earlier delivery will never be confirmed.
    pub(super) fn push(
        &self,
        confirmation: Confirmation,
        messages: u64,
        bytes: u64,
        stop: &Stop,
        check: impl Fn() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Some(sender) = &self.sender else { return Ok(()) };
        let mut published = Published { confirmation, messages, bytes };
        loop {
            match sender.try_send(published) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(_)) => return Err(self.failure()),
                // After a request to end, waiting deliveries are given up when their time has passed.
                Err(TrySendError::Full(_)) if stop.asked() => return Err(self.failure()),
                Err(TrySendError::Full(back)) => published = back,
            }
            check()?;
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn failure(&self) -> Failure {
        let shared = self.shared.lock();
        let confirmed = shared.summary.map_or(0, |summary| summary.messages);
        let failure = shared.failure.clone().unwrap_or_else(|| "asked to end".into());
        Failure::Failed(format!("not everything is {}: {failure}; {confirmed} messages are", self.level))
    }

    /// Waits for all confirmations, as long as `check` succeeds; after a request to end, at most `timeout`. Returns the summary
    /// to print.
    pub(super) fn finish(
        mut self,
        timeout: Duration,
        stop: &Stop,
        check: impl Fn() -> Result<(), Failure>,
    ) -> Result<Value, Failure> {
        drop(self.sender.take());
        while !self.thread.is_finished() {
            if let Err(Failure::Failed(why)) = check() {
                self.shared.lock().failure = Some(why);
                return Err(self.failure());
            }
            if stop.asked() {
                let until = || (Instant::now() + timeout.min(YEAR), timeout);
                self.shared.lock().until.get_or_insert_with(until);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        if self.shared.lock().failure.is_some() {
            return Err(self.failure());
        }
        let summary = self.shared.lock().summary;
        let counts = matches!(self.level, ConfirmLevel::Delivered | ConfirmLevel::Consumed);
        if let Some(summary) = summary.filter(|s| counts && s.subscribers == 0) {
            warn!("some messages are {} by 0 subscribers: {}", self.level, summary.no_subscriber_reason());
        }
        Ok(summary.map_or(Value::Null, |s| {
            json!({
                "level": self.level.to_string(), "position": s.last.position, "messages": s.messages,
                "subscribers": s.subscribers, "left": s.left, "lost": s.lost,
            })
        }))
    }
}

/// Waits for the confirmations in order, until the last one or a failure.
fn wait_in_order(
    receiver: &Receiver<Published>,
    shared: &Mutex<Shared>,
    mut to: Option<Texts>,
    as_json: bool,
) {
    for published in receiver {
        let confirmed = loop {
            match published.confirmation.wait(Some(STEP)) {
                Ok(confirmed) => break confirmed,
                Err(ConfirmError::TimedOut { .. })
                    if shared.lock().until.is_none_or(|(until, _)| Instant::now() < until) => {}
                Err(error) => {
                    let mut shared = shared.lock();
                    let waited = shared.until.map(|(_, waited)| waited);
                    // An earlier failure takes precedence.
                    shared.failure.get_or_insert_with(|| with_total_time(error, waited).to_string());
                    return;
                }
            }
        };
        add_to_summary(&mut shared.lock(), confirmed, &published);
        if let Some(to) = &mut to
            && let Err(error) = to.print(line(&confirmed, &published, as_json))
        {
            shared.lock().failure = Some(match error {
                Failure::Failed(why) => why,
                _ => "the output is closed".into(),
            });
            return;
        }
    }
}

/// Replaces the short time of one wait by the time since the request to end.
fn with_total_time(error: ConfirmError, since_asked: Option<Duration>) -> ConfirmError {
    match (error, since_asked) {
        (
            ConfirmError::TimedOut {
                topic,
                level,
                position,
                confirmed,
                missing,
                last_error,
                disk_failure,
                ..
            },
            Some(waited),
        ) => ConfirmError::TimedOut {
            topic,
            level,
            position,
            confirmed,
            waited,
            missing,
            last_error,
            disk_failure,
        },
        (other, _) => other,
    }
}

fn add_to_summary(shared: &mut Shared, confirmed: Confirmed, published: &Published) {
    let before = shared.summary.map_or((confirmed.subscribers, 0, 0), |s| (s.subscribers, s.left, s.lost));
    shared.summary = Some(Summary {
        last: confirmed,
        messages: published.messages,
        subscribers: before.0.min(confirmed.subscribers),
        left: before.1.max(confirmed.left),
        lost: before.2.max(confirmed.lost),
    });
}

/// The line for a delivery: the confirmed messages, and the subscribers that the confirmation covers.
fn line(confirmed: &Confirmed, published: &Published, as_json: bool) -> String {
    let Confirmed { level, subscribers, left, lost, .. } = *confirmed;
    let (position, Published { messages, bytes, .. }) = (published.confirmation.position(), published);
    let line = if as_json {
        let line = json!({
            "confirmed": level.to_string(), "position": position, "messages": messages, "bytes": bytes,
            "subscribers": subscribers, "left": left, "lost": lost,
        });
        line.to_string()
    } else if level.is_of_disk() {
        format!("{level}: {messages} messages")
    } else {
        format!("{level}: {messages} messages by {subscribers} subscribers ({left} left, {lost} lost some)")
    };
    line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscribers_that_lost_messages_are_not_reported_as_absent() {
        let nobody = |left, lost| {
            let last = Confirmed { level: ConfirmLevel::Consumed, position: 9, subscribers: 0, left, lost };
            Summary { last, messages: 1, subscribers: 0, left, lost }.no_subscriber_reason()
        };
        assert!(nobody(0, 0).starts_with("the topic had no subscribers"));
        assert_eq!(nobody(1, 0), "1 subscriber left before it had consumed everything");
        for (left, lost) in [(0, 1), (0, 3), (2, 1)] {
            let why = nobody(left, lost);
            assert!(why.contains("was too slow") && !why.contains("no subscribers"), "{why}");
            assert_eq!(why.contains("2 subscribers left"), left == 2, "{why}");
        }
    }
}
