//! The two processes of a run in which connections are cut: one publishes numbers, the other reports which of them came.
//!
//! RBMQ's library connects again by itself and resumes at its position. Clients of the other systems do what their
//! libraries do: they connect again at once and then every few milliseconds, and subscribe again. Messages that were published
//! in between are lost: those systems keep none of them, and a publisher cannot know which of its last writes arrived.

use std::{
    thread,
    time::{Duration, Instant},
};

use benchkit::{control::Control, messages::Messages, pace::Pace};
use rustix::time::{ClockId, clock_gettime};

use crate::{
    client_of::{receiver, sender},
    clients::{Numbers, Receives, Sends},
    error::BenchError,
};

/// Topic of the numbers.
const TOPIC: u8 = 0;

/// Between two attempts to connect.
const AGAIN_AFTER: Duration = Duration::from_millis(2);

/// The longest time without a connection.
const GIVE_UP_AFTER: Duration = Duration::from_secs(120);

/// Numbers that are missing after this time without a message, counted from the last publish, are lost. For a subscriber that was
/// cut off at the last publish, the time counts from its next connection.
const QUIET: Duration = Duration::from_secs(3);

/// Shorter pauses between two new numbers do not count, in nanoseconds.
const PAUSE: u64 = 2_000_000;

/// The most recorded pauses; there are a few, and the harness uses those after the cut.
const MOST_PAUSES: usize = 10_000;

/// The clock that all processes of a machine share, in nanoseconds.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Publishes 0, 1, 2, … until the harness says stop.
///
/// # Errors
/// The system could not be reached any more.
pub fn publish_numbers(args: &Numbers) -> Result<(), BenchError> {
    let control = Control::start();
    let mut to: Box<dyn Sends> = sender(&args.whom, TOPIC)?;
    control.ready("");
    control.wait_for_go();
    let mut messages = Messages::new(args.size);
    let mut pace = Pace::new(Some(args.rate));
    let mut next = 0;
    while !control.stopped() {
        let due = next + pace.wait(next);
        let sent = (next..due).try_for_each(|number| to.push(messages.numbered(number)));
        // No system's client sends numbers again that could not be handed over.
        next = due;
        if sent.and_then(|()| to.flush()).is_err() {
            to = again(|| sender(&args.whom, TOPIC))?;
        }
    }
    control.finish(&[next])
}

fn again<T>(connect: impl Fn() -> Result<T, BenchError>) -> Result<T, BenchError> {
    let began = Instant::now();
    loop {
        match connect() {
            Err(error) if began.elapsed() > GIVE_UP_AFTER => return Err(error),
            Err(_) => thread::sleep(AGAIN_AFTER),
            Ok(connected) => return Ok(connected),
        }
    }
}

/// The received numbers, and the pauses between them.
#[derive(Default)]
struct Ledger {
    came: Vec<bool>,
    received: u64,
    repeated: u64,
    last_new_ns: Option<u64>,
    /// From the last number before a pause to the first one after it.
    pauses: Vec<(u64, u64)>,
}

impl Ledger {
    fn note(&mut self, number: u64, now: u64) {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        // A number as large as this is none that was published.
        if at >= 1 << 30 {
            return;
        }
        if self.came.len() <= at {
            self.came.resize(at + 1, false);
        }
        if std::mem::replace(&mut self.came[at], true) {
            self.repeated += 1;
            return;
        }
        self.received += 1;
        let before = self.last_new_ns.replace(now).unwrap_or(now);
        if now - before > PAUSE && self.pauses.len() < MOST_PAUSES {
            self.pauses.push((before, now));
        }
    }
}

/// Receives, and reports `total RECEIVED REPEATED FROM TO FROM TO …`: pauses in nanoseconds of the shared clock.
///
/// # Errors
/// The system could not be reached any more.
pub fn count_numbers(args: &Numbers) -> Result<(), BenchError> {
    let control = Control::start();
    let mut from: Box<dyn Receives> = receiver(&args.whom, TOPIC)?;
    control.ready("");
    let (messages, mut ledger) = (Messages::new(args.size), Ledger::default());
    let (mut last_arrival, mut all_sent) = (Instant::now(), None);
    loop {
        let before = ledger.received;
        let mut strange = false;
        let received = from.receive(&mut |message| match messages.number_of(message) {
            Some(number) => ledger.note(number, now_ns()),
            None => strange = true,
        });
        if strange {
            return Err(BenchError::WrongByte { topic: TOPIC.into(), after_messages: ledger.received });
        }
        if received.is_err() {
            from = again(|| receiver(&args.whom, TOPIC))?;
        }
        if ledger.received > before {
            last_arrival = Instant::now();
        }
        let Some(expected) = control.expected() else { continue };
        let all_sent = *all_sent.get_or_insert_with(Instant::now);
        if expected.first() == Some(&ledger.received) || last_arrival.max(all_sent).elapsed() > QUIET {
            let mut numbers = vec![ledger.received, ledger.repeated];
            numbers.extend(ledger.pauses.iter().flat_map(|(from, to)| [*from, *to]));
            control.finish(&numbers);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ledger_knows_repetitions_and_pauses() {
        let mut ledger = Ledger::default();
        for (number, ms) in [(0, 1), (1, 2), (2, 3), (5, 50), (5, 51), (3, 51), (u64::MAX, 99)] {
            ledger.note(number, ms * 1_000_000);
        }
        assert_eq!((ledger.received, ledger.repeated), (5, 1));
        assert_eq!(ledger.pauses, [(3_000_000, 50_000_000)]);
    }
}
