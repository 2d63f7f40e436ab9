//! One run with a number of viewers: they begin one after the other, and then a time is measured.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use commands::{Failure, Stop};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::watch;
use tokio::task::LocalSet;

use super::address::Address;
use super::audience::{Audience, Seat, Settings};
use super::fault::{Fault, Kind};
use super::outcome::{Measured, Outcome};
use super::viewer::Viewer;

/// The time between two checks of the viewers.
const TICK: Duration = Duration::from_millis(100);
/// The time between two lines about the progress.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// A run.
#[derive(Debug, Clone)]
pub struct Plan {
    pub settings: Settings,
    /// Viewers take them in turn.
    pub addresses: Vec<Address>,
    pub viewers: usize,
    pub threads: usize,
    /// The time in which viewers come.
    pub ramp: Duration,
    /// The time that is measured after that.
    pub time: Duration,
    pub stop_at_first_fault: bool,
    pub progress: bool,
}

/// Counters at one time of the run.
struct Mark {
    at: Instant,
    bytes: Vec<u64>,
    cpu_s: f64,
}

struct Running {
    audience: Arc<Audience>,
    seats: Vec<Arc<Seat>>,
    active: Arc<AtomicUsize>,
    over: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

/// Runs viewers. `None`: a signal ended the run before its time.
pub fn run(plan: &Plan, stop: &Stop) -> Result<Option<Outcome>, Failure> {
    let running = Running::start(plan)?;
    let ramped = running.audience.began + plan.ramp;
    let mut whole = running.wait(plan, stop, ramped)?;
    let mark = running.mark();
    running.audience.forget_times();
    if whole == End::Time {
        whole = running.wait(plan, stop, ramped + plan.time)?;
    }
    let outcome = running.outcome(plan, &mark);
    running.end();
    Ok((whole != End::Signal).then_some(outcome))
}

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Time,
    /// All viewers are done, or a fault ends the run.
    Early,
    Signal,
}

impl Running {
    fn start(plan: &Plan) -> Result<Self, Failure> {
        let audience = Arc::new(Audience::new(plan.settings.clone()));
        let seats: Vec<_> = (0..plan.viewers).map(|_| Arc::new(Seat::new())).collect();
        let active = Arc::new(AtomicUsize::new(plan.viewers));
        let (over, is_over) = watch::channel(false);
        let mut threads = Vec::new();
        for thread in 0..plan.threads.min(plan.viewers) {
            let own: Vec<_> = (thread..plan.viewers)
                .step_by(plan.threads)
                .map(|number| {
                    let address = plan.addresses[number % plan.addresses.len()].clone();
                    let viewer = Viewer::new(audience.clone(), seats[number].clone(), number, address);
                    (plan.ramp.mul_f64(number as f64 / plan.viewers as f64), viewer)
                })
                .collect();
            let (active, is_over) = (active.clone(), is_over.clone());
            let name = format!("rblive-watch-{thread}");
            let started = std::thread::Builder::new().name(name).spawn(move || serve(own, &active, is_over));
            threads
                .push(started.map_err(|error| Failure::Failed(format!("cannot start a thread: {error}")))?);
        }
        Ok(Self { audience, seats, active, over, threads })
    }

    /// Waits, and prints the progress at intervals.
    fn wait(&self, plan: &Plan, stop: &Stop, until: Instant) -> Result<End, Failure> {
        let mut line_at = Instant::now() + LINE_EVERY;
        let mut before = self.bytes();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(End::Time);
            }
            if stop.wait(Some(left.min(TICK))) {
                return Ok(End::Signal);
            }
            if self.threads.iter().any(JoinHandle::is_finished) {
                return Err(Failure::Failed(
                    "a thread of viewers has ended by a fault of this program".into(),
                ));
            }
            let failed = self.audience.faults.load(Ordering::Relaxed) > 0 || self.overdue().is_some();
            if self.active.load(Ordering::Acquire) == 0 || (failed && plan.stop_at_first_fault) {
                return Ok(End::Early);
            }
            if plan.progress && Instant::now() >= line_at {
                let bytes = self.bytes();
                let mbit_per_s = (bytes - before) as f64 * 8e-6 / LINE_EVERY.as_secs_f64();
                self.say(plan, mbit_per_s);
                (line_at, before) = (line_at + LINE_EVERY, bytes);
            }
        }
    }

    fn say(&self, plan: &Plan, mbit_per_s: f64) {
        let at_s = self.audience.began.elapsed().as_secs_f64();
        let all_s = (plan.ramp + plan.time).as_secs_f64();
        let faults = self.audience.faults.load(Ordering::Relaxed);
        let viewers = plan.viewers;
        // Standard error may be closed.
        let _ = writeln!(
            std::io::stderr(),
            "rblive: {at_s:.0} of {all_s:.0} s, {viewers} viewers: {mbit_per_s:.1} Mbit/s, {faults} errors"
        );
    }

    fn bytes(&self) -> u64 {
        self.seats.iter().map(|seat| seat.bytes.load(Ordering::Relaxed)).sum()
    }

    fn mark(&self) -> Mark {
        let bytes = self.seats.iter().map(|seat| seat.bytes.load(Ordering::Relaxed)).collect();
        Mark { at: Instant::now(), bytes, cpu_s: cpu_s() }
    }

    /// A viewer whose buffer ran empty and who has received no media since: its number, and the time since then.
    fn overdue(&self) -> Option<(usize, u64)> {
        let late = |(number, seat): (usize, &Arc<Seat>)| Some((number, seat.overdue_ms(&self.audience)?));
        self.seats.iter().enumerate().find_map(late)
    }

    fn outcome(&self, plan: &Plan, from: &Mark) -> Outcome {
        for (number, seat) in self.seats.iter().enumerate() {
            let text = match seat.overdue_ms(&self.audience) {
                Some(late_ms) => {
                    format!("the playout buffer has been empty for {late_ms} ms, and nothing comes")
                }
                None if seat.has_nothing() => "nothing has come that can be played".to_owned(),
                None => continue,
            };
            let address = &plan.addresses[number % plan.addresses.len()];
            self.audience.report(seat, number, address, Fault::new(Kind::Late, text));
        }
        let to = self.mark();
        let time = to.at - from.at;
        let received =
            |seat: &Arc<Seat>, (to, from): (&u64, &u64)| (!seat.failed.load(Ordering::Relaxed), to - from);
        let bytes: Vec<_> = self
            .seats
            .iter()
            .zip(to.bytes.iter().zip(&from.bytes))
            .map(|(seat, own)| received(seat, own))
            .collect();
        let measured = Measured {
            time,
            bytes: bytes.iter().map(|(_, bytes)| bytes).sum(),
            good_bytes: bytes.iter().filter(|(good, _)| *good).map(|(_, bytes)| bytes).sum(),
            cpu_s: to.cpu_s - from.cpu_s,
        };
        Outcome::new(&self.audience, &self.seats, &measured)
    }

    fn end(self) {
        // Without a receiver, all threads have ended.
        let _ = self.over.send(true);
        for thread in self.threads {
            // A thread that panicked has printed its panic.
            let _ = thread.join();
        }
    }
}

/// The viewers of a thread.
fn serve(viewers: Vec<(Duration, Viewer)>, active: &Arc<AtomicUsize>, mut is_over: watch::Receiver<bool>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("the system has descriptors for a runtime: the limit was checked");
    let local = LocalSet::new();
    for (delay, viewer) in viewers {
        let active = active.clone();
        local.spawn_local(async move {
            tokio::time::sleep(delay).await;
            viewer.run().await;
            active.fetch_sub(1, Ordering::Release);
        });
    }
    local.block_on(&runtime, async move {
        // An error: the run is over as well.
        let _ = is_over.wait_for(|over| *over).await;
    });
}

/// Processor time of this process in seconds.
fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
