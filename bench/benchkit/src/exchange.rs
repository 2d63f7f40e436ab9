//! Numbered messages from one end to the other and answers back: the same loop for every system that is compared.
//!
//! ```text
//!   driver ── 0 1 2 3 … ──▶ answerer      never more than `outstanding` numbers beyond the last one that was answered
//!          ◀── … 3 2 1 0 ──               every message comes back, or only the number of every so many
//! ```
//!
//! A message is its number (32 bits, little endian) and bytes of a fixed table, which the driver compares when they come
//! back. An answer says that everything up to its number came or was lost: so a lost message holds nobody up while others
//! follow it. If nothing comes for a while, the driver gives up what is outstanding and goes on.

use std::{
    io,
    time::{Duration, Instant},
};

/// Bytes of the number at the front of a message; the smallest message.
pub const NUMBER_BYTES: usize = 4;

/// One end of a system that carries messages.
pub trait Link {
    /// Hands a message over; it may leave later.
    ///
    /// # Errors
    /// The system failed.
    fn send(&mut self, message: &[u8]) -> io::Result<()>;

    /// Waits at most so long for a message and puts it at the front of `into`; its length, or `None` if there was none.
    /// Before it waits, everything that was handed over leaves.
    ///
    /// # Errors
    /// The system failed, or the message is longer than `into`.
    fn receive(&mut self, into: &mut [u8], wait: Duration) -> io::Result<Option<usize>>;

    /// As [`Link::receive`], for who wants the number alone: a system that hands messages out in memory of its own need not
    /// copy them.
    ///
    /// # Errors
    /// The system failed, or the message is longer than `into`.
    fn receive_number(&mut self, into: &mut [u8], wait: Duration) -> io::Result<Option<Option<u32>>> {
        Ok(self.receive(into, wait)?.map(|len| number(&into[..len])))
    }

    /// Messages that the system says did not come, so far. Systems that cannot know say 0.
    fn lost(&mut self) -> u64 {
        0
    }

    /// No message follows: the other end may be told, so that it notices what was lost at the end.
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
    /// Bytes of a message, at least [`NUMBER_BYTES`].
    pub size: usize,
    /// Numbers beyond the last answered one, at least 1.
    pub outstanding: u32,
    /// Messages of one exchange, which is what is timed.
    pub messages: u32,
    /// Exchanges before those that count.
    pub warmup: u32,
    /// Exchanges that count, at least.
    pub least: u32,
    /// Exchanges go on for so long.
    pub time: Duration,
    /// What is outstanding is given up if nothing came for so long.
    pub give_up: Duration,
}

/// What the driver saw.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tally {
    /// Messages sent, warm-up included.
    pub sent: u64,
    /// Answers received, warm-up included.
    pub answers: u64,
    /// How often nothing came for so long that what was outstanding was given up.
    pub given_up: u64,
    /// The times of the exchanges that count.
    pub times: Times,
}

/// Mean and standard deviation of times, of which none is kept: a long exchange takes no more memory than a short one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Times {
    count: u64,
    mean_s: f64,
    squares: f64,
}

impl Times {
    /// Adds one (Welford's way, which loses no digits).
    pub fn add(&mut self, time: Duration) {
        self.count += 1;
        let beyond = time.as_secs_f64() - self.mean_s;
        self.mean_s += beyond / self.count as f64;
        self.squares += beyond * (time.as_secs_f64() - self.mean_s);
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their mean; zero if there were none.
    pub fn mean(&self) -> Duration {
        Duration::from_secs_f64(self.mean_s.max(0.0))
    }

    /// Their standard deviation, as of a sample.
    pub fn deviation(&self) -> Duration {
        let variance = self.squares / self.count.saturating_sub(1).max(1) as f64;
        Duration::from_secs_f64(variance.max(0.0).sqrt())
    }
}

/// The message with this number.
pub struct Pattern {
    bytes: Vec<u8>,
}

impl Pattern {
    /// For messages of this size.
    pub fn new(size: usize) -> Pattern {
        // Nothing that compresses, and no byte that another place has too often.
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let bytes = (0..size.max(NUMBER_BYTES)).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        });
        Pattern { bytes: bytes.collect() }
    }

    /// The message with this number, until the next one is asked for.
    #[inline]
    pub fn message(&mut self, number: u32) -> &[u8] {
        self.bytes[..NUMBER_BYTES].copy_from_slice(&number.to_le_bytes());
        &self.bytes
    }

    /// The number of an answer: of this whole message, or the number alone.
    ///
    /// # Errors
    /// It is not what was sent.
    #[inline]
    pub fn check(&self, answer: &[u8]) -> io::Result<u32> {
        let number = number(answer);
        match number {
            Some(number)
                if answer.len() == NUMBER_BYTES || answer[NUMBER_BYTES..] == self.bytes[NUMBER_BYTES..] =>
            {
                Ok(number)
            }
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "an answer is not what was sent")),
        }
    }
}

/// The number at the front of a message.
#[inline]
pub fn number(message: &[u8]) -> Option<u32> {
    message.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

/// Sends messages and takes answers until the plan is done.
///
/// # Errors
/// The link failed, or something came back that was not sent.
pub fn drive(link: &mut impl Link, plan: &Plan) -> io::Result<Tally> {
    let mut pattern = Pattern::new(plan.size);
    let mut buffer = vec![0; plan.size.max(NUMBER_BYTES)];
    let mut tally = Tally::default();
    let (mut sent, mut answered) = (0_u32, 0_u32);
    let mut clock = Clock::new(plan);
    while !clock.done() {
        while sent.wrapping_sub(answered) < plan.outstanding {
            link.send(pattern.message(sent))?;
            sent = sent.wrapping_add(1);
            tally.sent += 1;
        }
        match link.receive(&mut buffer, plan.give_up)? {
            Some(len) => {
                let number = pattern.check(&buffer[..len])?;
                tally.answers += 1;
                let beyond = number.wrapping_sub(answered);
                // Not an answer to what was given up.
                if beyond < plan.outstanding {
                    answered = number.wrapping_add(1);
                    clock.accounted(beyond + 1);
                }
            }
            None => {
                tally.given_up += 1;
                clock.accounted(sent.wrapping_sub(answered));
                answered = sent;
            }
        }
    }
    link.finish()?;
    tally.times = clock.times;
    Ok(tally)
}

/// Tells where an exchange ends.
struct Clock<'p> {
    plan: &'p Plan,
    began: Instant,
    /// When those that count began.
    counting: Option<Instant>,
    /// Of the exchange that goes on.
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

/// Answers until `stopped` says so, which is asked when nothing came for a while. Returns how many messages came.
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
        let came = if every <= 1 {
            let len = link.receive(&mut buffer, wait)?;
            len.map(|len| link.send(&buffer[..len])).transpose()?
        } else {
            let number = link.receive_number(&mut buffer, wait)?;
            number.map(|number| answer_some(link, number, every, &mut answered)).transpose()?
        };
        match came {
            Some(()) => received += 1,
            None if stopped() => return Ok(received),
            None => {}
        }
    }
}

/// Answers the message with this number if it is so many beyond the last answered one.
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

    /// What comes in the place of a message that is lost, so that nothing has to be waited for: the other end sends it back.
    const LOST: &[u8] = &[];

    /// What one end does with it.
    #[derive(Clone, Copy)]
    enum OnLoss {
        /// The answerer.
        SendBack,
        /// A driver that others' answers reach meanwhile.
        GoOn,
        /// A driver that nothing else can reach.
        NothingCame,
    }

    /// Loses every message whose count this divides.
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
            // The other end may have gone first.
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

    fn exchange(outstanding: u32, every: u32, lose_every: u64) -> (Tally, u64) {
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
            // Longer than anything here takes, however busy the machine is.
            give_up: Duration::from_secs(60),
        };
        let tally = drive(&mut driver, &plan).unwrap();
        over.store(true, Ordering::Relaxed);
        (tally, other.join().unwrap())
    }

    #[test]
    fn every_message_comes_back() {
        for outstanding in [1, 7, 100, 1000] {
            let (tally, received) = exchange(outstanding, 1, 0);
            assert_eq!((tally.times.count(), tally.given_up), (3, 0));
            assert_eq!(received, tally.sent);
            assert!((400..400 + u64::from(outstanding)).contains(&tally.sent), "{}", tally.sent);
        }
    }

    #[test]
    fn one_answer_stands_for_many() {
        let (tally, received) = exchange(100, 25, 0);
        assert_eq!((tally.times.count(), tally.given_up), (3, 0));
        assert_eq!(received, tally.sent);
        assert!(tally.answers <= 20, "{}", tally.answers);
    }

    #[test]
    fn what_is_lost_holds_up_only_who_waits_for_it() {
        let (tally, received) = exchange(50, 1, 10);
        assert_eq!(tally.times.count(), 3);
        assert_eq!(received, tally.sent - tally.sent / 10);
        let (alone, _) = exchange(1, 1, 10);
        assert_eq!(alone.given_up, 40);
    }

    #[test]
    fn another_byte_is_noticed() {
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
