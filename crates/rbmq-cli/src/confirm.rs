//! `rbmq pub --confirm`: waits for confirmations beside the publishing, and tells of them.

use std::io::Write;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rbmq::{ConfirmError, ConfirmLevel, Confirmation, Confirmed};
use serde_json::{Value, json};
use tracing::warn;

use super::failure::Failure;
use super::stop::Stop;

/// Deliveries that wait for their confirmation at a time; a publisher that is so far ahead waits too.
const WINDOW: usize = 1024;

/// How long one wait lasts before it is looked whether to go on.
const LOOK: Duration = Duration::from_millis(50);

/// Longer than anybody waits.
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// What `--confirm` may say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Confirm {
    /// Nothing is confirmed but that the broker has everything, at the end
    None,
    /// The broker has it, in its memory
    Accepted,
    /// Every subscriber that was there has it
    Delivered,
    /// Every subscriber that was there is done with it
    Consumed,
}

impl Confirm {
    pub(super) fn level(self) -> Option<ConfirmLevel> {
        match self {
            Self::None => None,
            Self::Accepted => Some(ConfirmLevel::Accepted),
            Self::Delivered => Some(ConfirmLevel::Delivered),
            Self::Consumed => Some(ConfirmLevel::Consumed),
        }
    }
}

/// How to tell of confirmations while they come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Telling {
    pub(super) each: bool,
    pub(super) json: bool,
}

/// A delivery that waits, and how much had been published with it.
struct Published {
    confirmation: Confirmation,
    messages: u64,
    bytes: u64,
}

/// What was confirmed so far.
#[derive(Debug, Clone, Copy)]
struct Summary {
    last: Confirmed,
    messages: u64,
    /// The fewest subscribers that any confirmation spoke for.
    subscribers: u32,
    left: u32,
    lost: u32,
}

impl Summary {
    /// Why it may speak for nobody.
    fn nobody(&self) -> String {
        let left = match self.left {
            0 => None,
            1 => Some("1 subscriber left before it was done".into()),
            left => Some(format!("{left} subscribers left before they were done")),
        };
        let lost = match self.lost {
            0 => None,
            1 => Some("1 time a subscriber that was there was too slow and lost some, by its policy".into()),
            lost => Some(format!(
                "{lost} times a subscriber that was there was too slow and lost some, by its policy"
            )),
        };
        let why: Vec<String> = left.into_iter().chain(lost).collect();
        match why.is_empty() {
            true => {
                "nobody was there to get them; --min-subscribers 1 publishes only while one is there".into()
            }
            false => why.join("; "),
        }
    }
}

#[derive(Default)]
struct Shared {
    summary: Option<Summary>,
    failure: Option<String>,
    /// Asked to end: not longer than until then, which was so long when it was asked.
    until: Option<(Instant, Duration)>,
}

/// Confirmations of one topic, waited for in order by a thread.
pub(super) struct Confirming {
    level: ConfirmLevel,
    sender: Option<SyncSender<Published>>,
    shared: Arc<Mutex<Shared>>,
    thread: JoinHandle<()>,
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Confirming {
    pub(super) fn start(level: ConfirmLevel, telling: Telling) -> Result<Self, Failure> {
        let (sender, receiver) = sync_channel(WINDOW);
        let shared = Arc::<Mutex<Shared>>::default();
        let theirs = shared.clone();
        let thread = std::thread::Builder::new().name("rbmq-confirm".into());
        let thread = thread
            .spawn(move || wait_in_order(&receiver, &theirs, telling))
            .map_err(|error| Failure::Failed(format!("cannot start a thread: {error}")))?;
        Ok(Self { level, sender: Some(sender), shared, thread })
    }

    pub(super) fn level(&self) -> ConfirmLevel {
        self.level
    }

    /// Another delivery was published; waits while too many are under way, and `look` finds nothing against it. Fails if
    /// one before will never be confirmed.
    pub(super) fn push(
        &self,
        confirmation: Confirmation,
        (messages, bytes): (u64, u64),
        stop: &Stop,
        look: impl Fn() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Some(sender) = &self.sender else { return Ok(()) };
        let mut published = Published { confirmation, messages, bytes };
        loop {
            match sender.try_send(published) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(_)) => return Err(self.failure()),
                // What was asked to end gives up what is under way when its time is over.
                Err(TrySendError::Full(_)) if stop.asked() => return Err(self.failure()),
                Err(TrySendError::Full(back)) => published = back,
            }
            look()?;
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn failure(&self) -> Failure {
        let shared = lock(&self.shared);
        let confirmed = shared.summary.map_or(0, |summary| summary.messages);
        let failure = shared.failure.clone().unwrap_or_else(|| "asked to end".into());
        Failure::Failed(format!("not everything is {}: {failure}; {confirmed} messages are", self.level))
    }

    /// Waits for all of them, while `look` finds nothing against it; once it is asked to end, at most `timeout`. Returns
    /// what to print of them.
    pub(super) fn finish(
        mut self,
        timeout: Duration,
        stop: &Stop,
        look: impl Fn() -> Result<(), Failure>,
    ) -> Result<Value, Failure> {
        drop(self.sender.take());
        while !self.thread.is_finished() {
            if let Err(Failure::Failed(why)) = look() {
                lock(&self.shared).failure = Some(why);
                return Err(self.failure());
            }
            if stop.asked() {
                let until = || (Instant::now() + timeout.min(YEAR), timeout);
                lock(&self.shared).until.get_or_insert_with(until);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        if lock(&self.shared).failure.is_some() {
            return Err(self.failure());
        }
        let summary = lock(&self.shared).summary;
        if let Some(summary) = summary.filter(|s| self.level != ConfirmLevel::Accepted && s.subscribers == 0)
        {
            warn!("some messages are {} by 0 subscribers: {}", self.level, summary.nobody());
        }
        Ok(summary.map_or(Value::Null, |s| {
            json!({
                "level": self.level.to_string(), "position": s.last.position, "messages": s.messages,
                "subscribers": s.subscribers, "left": s.left, "lost": s.lost,
            })
        }))
    }
}

/// Waits for one after the other, until there are no more or one fails.
fn wait_in_order(receiver: &Receiver<Published>, shared: &Mutex<Shared>, telling: Telling) {
    for published in receiver {
        let confirmed = loop {
            match published.confirmation.wait(Some(LOOK)) {
                Ok(confirmed) => break confirmed,
                Err(ConfirmError::TimedOut { .. })
                    if lock(shared).until.is_none_or(|(until, _)| Instant::now() < until) => {}
                Err(error) => {
                    let mut shared = lock(shared);
                    let waited = shared.until.map(|(_, waited)| waited);
                    // Another reason may be there already.
                    shared.failure.get_or_insert_with(|| in_all(error, waited).to_string());
                    return;
                }
            }
        };
        note(&mut lock(shared), confirmed, &published);
        if telling.each
            && let Err(error) = tell(&confirmed, &published, telling.json)
        {
            lock(shared).failure = Some(format!("cannot write to standard output: {error}"));
            return;
        }
    }
}

/// One wait is only a look: what counts is how long it was waited since the command was asked to end.
fn in_all(error: ConfirmError, since_asked: Option<Duration>) -> ConfirmError {
    match (error, since_asked) {
        (
            ConfirmError::TimedOut { topic, level, position, confirmed, missing, last_error, .. },
            Some(waited),
        ) => ConfirmError::TimedOut { topic, level, position, confirmed, waited, missing, last_error },
        (other, _) => other,
    }
}

fn note(shared: &mut Shared, confirmed: Confirmed, published: &Published) {
    let before = shared.summary.map_or((confirmed.subscribers, 0, 0), |s| (s.subscribers, s.left, s.lost));
    shared.summary = Some(Summary {
        last: confirmed,
        messages: published.messages,
        subscribers: before.0.min(confirmed.subscribers),
        left: before.1.max(confirmed.left),
        lost: before.2.max(confirmed.lost),
    });
}

/// One line for each delivery: up to which message, and for whom it speaks.
fn tell(confirmed: &Confirmed, published: &Published, as_json: bool) -> std::io::Result<()> {
    let Confirmed { level, subscribers, left, lost, .. } = *confirmed;
    let (position, Published { messages, bytes, .. }) = (published.confirmation.position(), published);
    let mut stdout = std::io::stdout().lock();
    if as_json {
        let line = json!({
            "confirmed": level.to_string(), "position": position, "messages": messages, "bytes": bytes,
            "subscribers": subscribers, "left": left, "lost": lost,
        });
        writeln!(stdout, "{line}")?;
    } else {
        writeln!(
            stdout,
            "{level}: {messages} messages by {subscribers} subscribers ({left} left, {lost} lost some)"
        )?;
    }
    stdout.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_there_and_lost_it_is_not_said_to_have_been_away() {
        let nobody = |left, lost| {
            let last = Confirmed { level: ConfirmLevel::Consumed, position: 9, subscribers: 0, left, lost };
            Summary { last, messages: 1, subscribers: 0, left, lost }.nobody()
        };
        assert!(nobody(0, 0).starts_with("nobody was there"));
        assert_eq!(nobody(1, 0), "1 subscriber left before it was done");
        for (left, lost) in [(0, 1), (0, 3), (2, 1)] {
            let why = nobody(left, lost);
            assert!(why.contains("that was there was too slow") && !why.contains("nobody"), "{why}");
            assert_eq!(why.contains("2 subscribers left"), left == 2, "{why}");
        }
    }
}
