//! The loops of a client library: one publish call per message, one received item per message. Every library runs
//! the same loops.
//!
//! ```text
//!   publish ── numbered messages ──▶ server ──▶ subscribe     number and content of every message are checked
//!   ping ── message n ──▶ server ──▶ echo                     one message in flight
//!        ◀── message n ── server ◀──
//! ```
//!
//! A worker prints `ready VERSION` once it is connected. A publisher ends with `total MESSAGES`, a subscriber with
//! `total MESSAGES CUT-OFF`, a pinger with `total TRIPS P50 P99 MOST` in nanoseconds.
//!
//! Some systems drop messages for a slow subscriber. A number that skips others is therefore no error; the messages in
//! between are not counted as received. A number that comes twice, or too late, and a wrong byte end the measurement.

use std::{
    future::Future,
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use clap::{Args, ValueEnum};

use crate::{
    Error,
    control::Control,
    credit::{Credit, Grants},
    messages::{self, Messages},
    pace::{self, Pace},
    stats::quantile,
};

/// The topic of a publisher and its subscribers.
const TOPIC: &str = "bench";
/// The topics of a pinger and an echoer.
const THERE: &str = "there";
const BACK: &str = "back";

/// The publisher looks at its commands after this many messages.
const IN_A_ROW: u64 = 256;

/// The publisher takes messages that no subscriber reports for this long as dropped.
const DROPPED_AFTER: Duration = Duration::from_millis(500);

/// A subscriber that knows the number of published messages gives up after this time without a message.
const QUIET: Duration = Duration::from_secs(2);

/// How often a subscriber looks whether the measurement is over.
const LOOK: Duration = Duration::from_millis(10);

/// The role of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Publishes as fast as the library lets it, or at a rate
    Publish,
    /// Receives and checks
    Subscribe,
    /// Sends one message and waits until it has come back
    Ping,
    /// Sends back
    Echo,
}

/// The command line of a worker.
#[derive(Debug, Clone, Args)]
pub struct End {
    /// Role of the worker
    #[arg(value_enum)]
    pub role: Role,
    /// Address of the server
    #[arg(long)]
    pub addr: String,
    /// Bytes of a message
    #[arg(long, value_parser = messages::size)]
    pub size: usize,
    /// How many subscribers there are
    #[arg(long, default_value_t = 1)]
    pub subscribers: u32,
    /// The number of this subscriber
    #[arg(long, default_value_t = 0)]
    pub number: u32,
    /// The folder through which subscribers report their progress to the publisher; without it, only the library holds the
    /// publisher back
    #[arg(long)]
    pub folder: Option<PathBuf>,
    /// Messages per second, instead of as many as go
    #[arg(long)]
    pub rate: Option<f64>,
    /// Seconds of round trips that count
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// Seconds of round trips before them
    #[arg(long, default_value_t = 0.0)]
    pub warmup: f64,
}

/// A client library, as the bench uses it.
pub trait Library {
    /// A topic's publisher.
    type Publisher: Publisher;
    /// A topic's subscriber.
    type Subscriber: Subscriber;

    /// The library's version.
    fn version(&self) -> String;

    /// Connects a publisher. Returns when messages published from then on reach the subscribers that are there.
    fn publisher(&self, end: &End, topic: &str) -> impl Future<Output = io::Result<Self::Publisher>>;

    /// Connects a subscriber. Returns when no message published from then on is missed.
    fn subscriber(&self, end: &End, topic: &str) -> impl Future<Output = io::Result<Self::Subscriber>>;
}

/// A topic's publisher.
pub trait Publisher {
    /// Publishes one message with one call of the library. Waits as long as the library makes its callers wait.
    fn publish(&mut self, message: &[u8]) -> impl Future<Output = io::Result<()>>;

    /// Sends pending messages, if the program and not the library collects messages.
    fn flush(&mut self) -> impl Future<Output = io::Result<()>> {
        std::future::ready(Ok(()))
    }
}

/// A topic's subscriber.
pub trait Subscriber {
    /// Waits for the next message and gives it to `each`.
    fn receive<R>(&mut self, each: impl FnOnce(&[u8]) -> R) -> impl Future<Output = io::Result<R>>;
}

/// Runs a worker until the harness ends it.
///
/// # Errors
/// The library failed, or the server delivered something else than was published.
pub async fn run<L: Library>(library: &L, end: &End) -> Result<(), Error> {
    pace::sleep_exactly()?;
    let control = Control::start();
    let ready = library.version();
    match end.role {
        Role::Publish => {
            let mut to = library.publisher(end, TOPIC).await?;
            control.ready(&ready);
            publish(end, &control, &mut to).await
        }
        Role::Subscribe => {
            let mut from = library.subscriber(end, TOPIC).await?;
            control.ready(&ready);
            subscribe(end, &control, &mut from).await
        }
        Role::Ping => {
            let mut from = library.subscriber(end, BACK).await?;
            let mut to = library.publisher(end, THERE).await?;
            control.ready(&ready);
            ping(end, &control, &mut to, &mut from).await
        }
        Role::Echo => {
            let mut from = library.subscriber(end, THERE).await?;
            let mut to = library.publisher(end, BACK).await?;
            control.ready(&ready);
            echo(end, &mut to, &mut from).await
        }
    }
}

async fn publish(end: &End, control: &Control, to: &mut impl Publisher) -> Result<(), Error> {
    let mut messages = Messages::new(end.size);
    let mut credit = match &end.folder {
        Some(folder) => Some(Credit::open(folder, 0, end.subscribers, end.size)?),
        None => None,
    };
    let mut pace = Pace::new(end.rate);
    let mut sent = 0;
    control.wait_for_go();
    while !control.stopped() {
        let mut due = pace.wait(sent).min(IN_A_ROW);
        if let Some(credit) = &mut credit {
            if credit.room(sent) == 0 {
                to.flush().await?;
            }
            due = due.min(credit.wait_at_most(sent, DROPPED_AFTER)?);
        }
        for number in sent..sent + due {
            to.publish(messages.numbered(number)).await?;
        }
        sent += due;
        control.set_messages(sent);
        if end.rate.is_some() {
            to.flush().await?;
        }
    }
    to.flush().await?;
    control.finish(&[sent])
}

async fn subscribe(end: &End, control: &Arc<Control>, from: &mut impl Subscriber) -> Result<(), Error> {
    let messages = Messages::new(end.size);
    let mut grants = match &end.folder {
        Some(folder) => Some(Grants::open(folder, 0, end.number, end.size)?),
        None => None,
    };
    let cut_off = Arc::new(AtomicBool::new(false));
    let (over, cut) = (Arc::clone(control), Arc::clone(&cut_off));
    thread::spawn(move || report_when_over(&over, &cut));
    let (mut next, mut received) = (0, 0);
    loop {
        let number = match from.receive(|message| messages.number_of(message)).await {
            Ok(number) => number.filter(|number| *number >= next).ok_or(Error::Wrong { after: received })?,
            Err(error) => {
                eprintln!("the subscriber was cut off: {error}");
                cut_off.store(true, Ordering::Relaxed);
                // The thread above reports the received messages, and the harness ends this process.
                loop {
                    thread::park();
                }
            }
        };
        next = number + 1;
        received += 1;
        control.set_messages(received);
        if let Some(grants) = &mut grants {
            grants.received(next)?;
        }
    }
}

/// Reports after the harness has sent the number of published messages: once all of them are received, or none came for a
/// while.
fn report_when_over(control: &Control, cut_off: &AtomicBool) {
    let (mut seen, mut last_arrival) = (0, Instant::now());
    loop {
        thread::sleep(LOOK);
        let received = control.messages();
        let expected = control.expected();
        if received != seen || expected.is_none() {
            (seen, last_arrival) = (received, Instant::now());
        }
        let cut = cut_off.load(Ordering::Relaxed);
        if expected.is_some_and(|expected| expected == [received] || cut || last_arrival.elapsed() > QUIET) {
            control.finish(&[received, u64::from(cut)]);
        }
    }
}

/// Sends each message when it is due and waits for its return. The time counts from the due time, so a message that is late
/// because of the previous one has a longer time.
async fn ping(
    end: &End,
    control: &Control,
    to: &mut impl Publisher,
    from: &mut impl Subscriber,
) -> Result<(), Error> {
    let rate = end.rate.unwrap_or(1.0);
    let first = (end.warmup * rate) as u64;
    let all = first + ((end.seconds * rate) as u64).max(1);
    let mut messages = Messages::new(end.size);
    let mut times = Vec::with_capacity((all - first) as usize);
    control.wait_for_go();
    let began = Instant::now();
    for number in 0..all {
        let due = began + Duration::from_secs_f64(number as f64 / rate);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        to.publish(messages.numbered(number)).await?;
        to.flush().await?;
        if from.receive(|message| messages.number_of(message)).await? != Some(number) {
            return Err(Error::Wrong { after: number });
        }
        if number >= first {
            times.push(due.elapsed().as_nanos() as u64);
        }
    }
    times.sort_unstable();
    let most = times.last().copied().unwrap_or(0);
    control.finish(&[times.len() as u64, quantile(&times, 50), quantile(&times, 99), most])
}

async fn echo(end: &End, to: &mut impl Publisher, from: &mut impl Subscriber) -> Result<(), Error> {
    let mut message = Vec::with_capacity(end.size);
    loop {
        message.clear();
        from.receive(|received| message.extend_from_slice(received)).await?;
        to.publish(&message).await?;
        to.flush().await?;
    }
}
