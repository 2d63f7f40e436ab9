//! The two processes of a measured round trip.
//!
//! ```text
//!   pinger   sends number n at t0 + n / rate ──▶ broker ──▶ echoer: sends each message back
//!            now - (t0 + n / rate)           ◀── broker ◀──
//! ```
//!
//! The time counts from a message's due time. A system that stops for a while delays every message that is due in that time,
//! and each of them shows the delay, as it would to a waiting application.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use benchkit::{control::Control, messages::Messages, pace};
use clap::Args;
use hdrhistogram::Histogram;

use crate::{
    client_of::{receiver, sender},
    clients::{Numbers, Receives, Sends, Whom},
    error::BenchError,
};

/// The topic of sent messages.
const PING: u8 = 62;
/// The topic of returning messages.
const PONG: u8 = 63;

/// Messages that are missing after this time without an arrival are lost. At a low rate the last arrival may be longer ago, so the
/// time counts from the last sending too.
const QUIET: Duration = Duration::from_secs(2);

/// The largest time of the histogram: a minute, in nanoseconds.
const LONGEST: u64 = 60_000_000_000;

/// The options of a pinger.
#[derive(Debug, Args)]
pub struct Ping {
    /// The messages, and the server
    #[command(flatten)]
    pub numbers: Numbers,
    /// Measured seconds
    #[arg(long)]
    pub seconds: f64,
    /// Seconds before them
    #[arg(long)]
    pub warmup: f64,
}

/// A histogram of nanoseconds, to three digits.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are in order")
}

/// Sends each received message back, until the harness ends the process.
///
/// # Errors
/// The connection failed.
pub fn echo(whom: &Whom) -> Result<(), BenchError> {
    let control = Control::start();
    let mut from = receiver(whom, PING)?;
    let mut to = sender(whom, PONG)?;
    control.ready("");
    loop {
        let mut sent = Ok(());
        from.receive(&mut |message| {
            if sent.is_ok() {
                sent = to.push(message);
            }
        })?;
        sent?;
        to.flush()?;
    }
}

/// Sends, and tells the harness how long round trips took.
///
/// # Errors
/// The connection failed.
pub fn ping(args: &Ping) -> Result<(), BenchError> {
    let control = Control::start();
    let Numbers { whom, size, rate } = &args.numbers;
    let (size, rate) = (*size, *rate);
    let mut from = receiver(whom, PONG)?;
    let mut to = sender(whom, PING)?;
    control.ready("");
    control.wait_for_go();
    let began = Instant::now() + Duration::from_millis(10);
    let all = ((args.warmup + args.seconds) * rate) as u64;
    let sent = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&sent);
    let failed = Arc::new(AtomicBool::new(false));
    let failure = Arc::clone(&failed);
    let sending = std::thread::spawn(move || {
        let result = send(to.as_mut(), began, all, rate, size, &count);
        failure.store(result.is_err(), Ordering::Relaxed);
        // The connection stays open until everything has come back.
        (result, to)
    });
    let times = receive(from.as_mut(), began, args, all, &sent, &failed)?;
    let (result, _to) = sending.join().expect("the sending thread does not panic");
    result?;
    report(&control, &times, all)
}

fn send(
    to: &mut dyn Sends,
    began: Instant,
    all: u64,
    rate: f64,
    size: usize,
    count: &AtomicU64,
) -> Result<(), BenchError> {
    pace::sleep_exactly()?;
    let mut messages = Messages::new(size);
    let mut next = 0;
    while next < all {
        let elapsed = Instant::now().saturating_duration_since(began).as_secs_f64();
        let due = ((elapsed * rate) as u64 + 1).min(all);
        if Instant::now() < began || due == next {
            let at = began + Duration::from_secs_f64(next as f64 / rate);
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            continue;
        }
        for number in next..due {
            to.push(messages.numbered(number))?;
        }
        to.flush()?;
        next = due;
        count.store(next, Ordering::Relaxed);
    }
    Ok(())
}

struct Times {
    histogram: Histogram<u64>,
    received: u64,
    /// From the first that counted to the last.
    counted_s: f64,
}

fn receive(
    from: &mut dyn Receives,
    began: Instant,
    args: &Ping,
    all: u64,
    sent: &AtomicU64,
    failed: &AtomicBool,
) -> Result<Times, BenchError> {
    let (rate, messages) = (args.numbers.rate, Messages::new(args.numbers.size));
    let first = (args.warmup * rate) as u64;
    let mut times = Times { histogram: histogram(), received: 0, counted_s: 0.0 };
    let (mut last_arrival, mut all_sent) = (Instant::now(), None);
    while times.received < all && !failed.load(Ordering::Relaxed) {
        let before = times.received;
        let mut strange = false;
        from.receive(&mut |message| {
            let Some(number) = messages.number_of(message).filter(|number| *number < all) else {
                strange = true;
                return;
            };
            times.received += 1;
            if number >= first {
                let now = Instant::now().saturating_duration_since(began).as_secs_f64();
                let nanos = (now - number as f64 / rate) * 1e9;
                times.histogram.saturating_record(nanos.max(1.0) as u64);
                times.counted_s = now - args.warmup;
            }
        })?;
        if strange {
            return Err(BenchError::WrongByte { topic: PONG.into(), after_messages: times.received });
        }
        if times.received > before {
            last_arrival = Instant::now();
        } else if sent.load(Ordering::Relaxed) == all {
            let all_sent = *all_sent.get_or_insert_with(Instant::now);
            if last_arrival.max(all_sent).elapsed() > QUIET {
                break;
            }
        }
    }
    Ok(times)
}

/// `total SENT RECEIVED MICROSECONDS VALUE COUNT VALUE COUNT …`
fn report(control: &Control, times: &Times, all: u64) -> Result<(), BenchError> {
    let mut numbers = vec![all, times.received, (times.counted_s * 1e6) as u64];
    for value in times.histogram.iter_recorded() {
        numbers.extend([value.value_iterated_to(), value.count_at_value()]);
    }
    control.finish(&numbers)
}
