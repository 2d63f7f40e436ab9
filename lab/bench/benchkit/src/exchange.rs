//! Numbered messages from one end to the other, and answers: the same loop for each system.
//!
//! ```text
//!   driver ── 0 1 2 3 … ──▶ answerer      at most `outstanding` numbers beyond the last answered one
//!          ◀── … 3 2 1 0 ──               each message comes back, or the number of every few messages
//! ```
//!
//! A message is its number (32 bits, little endian) and bytes of a fixed table, which the driver compares
//! when they return. An answer says that every message up to its number arrived or was lost, so a lost
//! message delays nothing while others follow it. If no answer arrives for a while, the driver gives up the
//! outstanding messages and continues.

use std::{
    io,
    time::{Duration, Instant},
};

/// Bytes of the number at the front of a message; the smallest message.
pub const NUMBER_BYTES: usize = 4;

/// An end of a system that carries messages.
pub trait Link {
    /// Sends a message. The system may delay it to make batches.
    ///
    /// # Errors
    /// The system failed.
    fn send(&mut self, message: &[u8]) -> io::Result<()>;

    /// Waits for a message, at most this long, and copies it to the front of `into`. Returns its length, or
    /// `None` if there was none. Sends everything before it waits.
    ///
    /// # Errors
    /// The system failed, or the message is longer than `into`.
    fn receive(&mut self, into: &mut [u8], wait: Duration) -> io::Result<Option<usize>>;

    /// As [`Link::receive`], for callers that need only the number: a system that owns the memory of a
    /// received message need not copy it.
    ///
    /// # Errors
    /// The system failed, or the message is longer than `into`.
    fn receive_number(&mut self, into: &mut [u8], wait: Duration) -> io::Result<Option<Option<u32>>> {
        Ok(self.receive(into, wait)?.map(|len| number(&into[..len])))
    }

    /// The messages that the system has reported as lost. 0 for systems that cannot know.
    fn lost(&mut self) -> u64 {
        0
    }

    /// No message follows. The system may tell the other end, so that it notices the loss of the last
    /// messages.
    ///
    /// # Errors
    /// The system failed.
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How messages are exchanged.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The size of a message in bytes, at least [`NUMBER_BYTES`].
    pub size: usize,
    /// The outstanding messages at most, at least 1.
    pub outstanding: u32,
    /// The messages of one exchange, which is timed.
    pub messages: u32,
    /// Exchanges of warm-up.
    pub warmup: u32,
    /// Timed exchanges at least.
    pub least: u32,
    /// Time of timed exchanges at least.
    pub time: Duration,
    /// Outstanding messages are given up after this time without an answer.
    pub give_up: Duration,
}

/// The result of the driver.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DriveResult {
    /// Messages sent, with warm-up.
    pub sent: u64,
    /// Answers received, with warm-up.
    pub answers: u64,
    /// How often outstanding messages were given up.
    pub given_up: u64,
    /// The times of the timed exchanges.
    pub times: Times,
}

/// Mean and standard deviation of durations. Single durations are not kept, so a long run takes no more
/// memory.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Times {
    count: u64,
    mean_s: f64,
    squares: f64,
}

impl Times {
    /// Adds a duration with Welford's method, which is numerically stable.
    pub fn add(&mut self, time: Duration) {
        self.count += 1;
        let beyond = time.as_secs_f64() - self.mean_s;
        self.mean_s += beyond / self.count as f64;
        self.squares += beyond * (time.as_secs_f64() - self.mean_s);
    }

    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The mean; zero without durations.
    pub fn mean(&self) -> Duration {
        Duration::from_secs_f64(self.mean_s.max(0.0))
    }

    /// The standard deviation of the sample.
    pub fn deviation(&self) -> Duration {
        let variance = self.squares / self.count.saturating_sub(1).max(1) as f64;
        Duration::from_secs_f64(variance.max(0.0).sqrt())
    }
}

/// The messages of one size.
pub struct Pattern {
    bytes: Vec<u8>,
}

impl Pattern {
    /// For messages of this size.
    pub fn new(size: usize) -> Pattern {
        // Bytes that do not compress, and that differ at different places.
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let bytes = (0..size.max(NUMBER_BYTES)).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        });
        Pattern { bytes: bytes.collect() }
    }

    /// The message with this number. The next call overwrites it.
    #[inline]
    pub fn message(&mut self, number: u32) -> &[u8] {
        self.bytes[..NUMBER_BYTES].copy_from_slice(&number.to_le_bytes());
        &self.bytes
    }

    /// The number of an answer, which is a whole message or the number alone.
    ///
    /// # Errors
    /// The answer differs from the message.
    #[inline]
    pub fn check(&self, answer: &[u8]) -> io::Result<u32> {
        let number = number(answer);
        match number {
            Some(number)
                if answer.len() == NUMBER_BYTES || answer[NUMBER_BYTES..] == self.bytes[NUMBER_BYTES..] =>
            {
                Ok(number)
            }
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "an answer differs from the sent message")),
        }
    }
}

/// The number at the front of a message.
#[inline]
pub fn number(message: &[u8]) -> Option<u32> {
    message.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

/// Sends messages and receives answers until the plan is complete.
///
/// # Errors
/// The link failed, or an answer was wrong.
pub fn drive(link: &mut impl Link, plan: &Plan) -> io::Result<DriveResult> {
    let mut pattern = Pattern::new(plan.size);
    let mut buffer = vec![0; plan.size.max(NUMBER_BYTES)];
    let mut result = DriveResult::default();
    let (mut sent, mut answered) = (0_u32, 0_u32);
    let mut clock = Clock::new(plan);
    while !clock.done() {
        while sent.wrapping_sub(answered) < plan.outstanding {
            link.send(pattern.message(sent))?;
            sent = sent.wrapping_add(1);
            result.sent += 1;
        }
        match link.receive(&mut buffer, plan.give_up)? {
            Some(len) => {
                let number = pattern.check(&buffer[..len])?;
                result.answers += 1;
                let beyond = number.wrapping_sub(answered);
                // Skips answers to messages that were given up.
                if beyond < plan.outstanding {
                    answered = number.wrapping_add(1);
                    clock.accounted(beyond + 1);
                }
            }
            None => {
                result.given_up += 1;
                clock.accounted(sent.wrapping_sub(answered));
                answered = sent;
            }
        }
    }
    link.finish()?;
    result.times = clock.times;
    Ok(result)
}

/// Times the exchanges.
struct Clock<'p> {
    plan: &'p Plan,
    began: Instant,
    /// When the timed exchanges began.
    counting: Option<Instant>,
    /// Messages of the current exchange.
    messages: u32,
    warmup: u32,
    times: Times,
}

impl Clock<'_> {
    fn new(plan: &Plan) -> Clock<'_> {
        let began = Instant::now();
        let counting = (plan.warmup == 0).then_some(began);
        Clock { plan, began, counting, messages: 0, warmup: plan.warmup, times: Times::default() }
    }

    #[inline]
    fn accounted(&mut self, messages: u32) {
        self.messages += messages;
        while self.messages >= self.plan.messages {
            self.messages -= self.plan.messages;
            self.end_of_exchange();
        }
    }

    fn end_of_exchange(&mut self) {
        let now = Instant::now();
        if self.counting.is_some() {
            self.times.add(now - self.began);
        } else {
            self.warmup -= 1;
            self.counting = (self.warmup == 0).then_some(now);
        }
        self.began = now;
    }

    #[inline]
    fn done(&self) -> bool {
        self.times.count() >= u64::from(self.plan.least)
            && self.counting.is_some_and(|began| self.began - began >= self.plan.time)
    }
}

/// Answers messages until `stopped` returns true. `stopped` is called while no message arrives. Returns the
/// number of received messages.
///
/// # Errors
/// The link failed.
pub fn answer(
    link: &mut impl Link,
    largest: usize,
    every: u32,
    mut stopped: impl FnMut() -> bool,
) -> io::Result<u64> {
    let mut buffer = vec![0; largest.max(NUMBER_BYTES)];
    let mut received = 0;
    let mut answered = 0_u32;
    let wait = Duration::from_millis(50);
    loop {
        let handled = if every <= 1 {
            let len = link.receive(&mut buffer, wait)?;
            len.map(|len| link.send(&buffer[..len])).transpose()?
        } else {
            let number = link.receive_number(&mut buffer, wait)?;
            number.map(|number| answer_some(link, number, every, &mut answered)).transpose()?
        };
        match handled {
            Some(()) => received += 1,
            None if stopped() => return Ok(received),
            None => {}
        }
    }
}

/// Answers with the number if it is `every` or more beyond the last answered one.
#[inline]
fn answer_some(link: &mut impl Link, number: Option<u32>, every: u32, answered: &mut u32) -> io::Result<()> {
    let Some(number) = number else { return Ok(()) };
    let ahead = number.wrapping_add(1).wrapping_sub(*answered);
    if ahead >= every && ahead < u32::MAX / 2 {
        *answered = number.wrapping_add(1);
        link.send(&number.to_le_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
            mpsc::{Receiver, SyncSender, sync_channel},
        },
        thread,
    };

    use super::*;

    /// Replaces a lost message, so that the test need not wait: the answerer sends it back.
    const LOST: &[u8] = &[];

    /// The reaction of an end to a lost message.
    #[derive(Clone, Copy)]
    enum OnLoss {
        /// The answerer.
        SendBack,
        /// A driver with other outstanding messages.
        GoOn,
        /// A driver with one outstanding message.
        NothingCame,
    }

    /// Loses every n-th message.
    struct Pipe {
        send: SyncSender<Vec<u8>>,
        receive: Receiver<Vec<u8>>,
        lose_every: u64,
        count: u64,
        on_loss: OnLoss,
    }

    impl Link for Pipe {
        fn send(&mut self, message: &[u8]) -> io::Result<()> {
            self.count += 1;
            let lost = self.lose_every > 0 && self.count.is_multiple_of(self.lose_every);
            // The other end may have ended first.
            let _ = self.send.send(if lost { LOST } else { message }.to_vec());
            Ok(())
        }

        fn receive(&mut self, into: &mut [u8], wait: Duration) -> io::Result<Option<usize>> {
            loop {
                let Ok(message) = self.receive.recv_timeout(wait) else { return Ok(None) };
                if message != LOST {
                    into[..message.len()].copy_from_slice(&message);
                    return Ok(Some(message.len()));
                }
                match self.on_loss {
                    OnLoss::SendBack => drop(self.send.send(message)),
                    OnLoss::GoOn => {}
                    OnLoss::NothingCame => return Ok(None),
                }
            }
        }
    }

    fn exchange(outstanding: u32, every: u32, lose_every: u64) -> (DriveResult, u64) {
        let (there, comes) = sync_channel(4096);
        let (back, returns) = sync_channel(4096);
        let on_loss = if outstanding == 1 { OnLoss::NothingCame } else { OnLoss::GoOn };
        let mut driver = Pipe { send: there, receive: returns, lose_every, count: 0, on_loss };
        let on_loss = OnLoss::SendBack;
        let mut answerer = Pipe { send: back, receive: comes, lose_every: 0, count: 0, on_loss };
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let other = thread::spawn(move || {
            answer(&mut answerer, 64, every, || ended.load(Ordering::Relaxed)).unwrap()
        });
        let plan = Plan {
            size: 64,
            outstanding,
            messages: 100,
            warmup: 1,
            least: 3,
            time: Duration::ZERO,
            // Longer than any test takes.
            give_up: Duration::from_secs(60),
        };
        let result = drive(&mut driver, &plan).unwrap();
        over.store(true, Ordering::Relaxed);
        (result, other.join().unwrap())
    }

    #[test]
    fn every_message_comes_back() {
        for outstanding in [1, 7, 100, 1000] {
            let (result, received) = exchange(outstanding, 1, 0);
            assert_eq!((result.times.count(), result.given_up), (3, 0));
            assert_eq!(received, result.sent);
            assert!((400..400 + u64::from(outstanding)).contains(&result.sent), "{}", result.sent);
        }
    }

    #[test]
    fn one_answer_stands_for_many() {
        let (result, received) = exchange(100, 25, 0);
        assert_eq!((result.times.count(), result.given_up), (3, 0));
        assert_eq!(received, result.sent);
        assert!(result.answers <= 20, "{}", result.answers);
    }

    #[test]
    fn a_lost_message_delays_only_its_waiter() {
        let (result, received) = exchange(50, 1, 10);
        assert_eq!(result.times.count(), 3);
        assert_eq!(received, result.sent - result.sent / 10);
        let (alone, _) = exchange(1, 1, 10);
        assert_eq!(alone.given_up, 40);
    }

    #[test]
    fn a_changed_byte_is_noticed() {
        let mut pattern = Pattern::new(16);
        let mut message = pattern.message(7).to_vec();
        assert_eq!(pattern.check(&message).unwrap(), 7);
        assert_eq!(pattern.check(&message[..4]).unwrap(), 7);
        message[9] ^= 1;
        assert!(pattern.check(&message).is_err() && pattern.check(&message[..3]).is_err());
    }

    #[test]
    fn mean_and_deviation_are_those_of_the_sample() {
        let mut times = Times::default();
        [9, 10, 11].map(Duration::from_millis).into_iter().for_each(|time| times.add(time));
        let (mean, deviation) = (times.mean(), times.deviation());
        assert_eq!((times.count(), mean.as_micros(), deviation.as_micros()), (3, 10_000, 1_000));
    }
}
