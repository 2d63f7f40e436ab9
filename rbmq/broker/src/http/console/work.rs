//! Work that takes long: samples of the broker, searches in long lists, answers of megabytes. It is done one after the other on a thread of
//! its own, so that the thread of the endpoint always has time for `/health` and `/metrics`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use locks::Mutex;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::Semaphore;

use super::due::{FACTOR, MAX_PAUSE};
use super::problem::Problem;

/// The place for work. Whoever waits for it waits in the order of coming, and whoever leaves makes no work.
#[derive(Clone)]
pub(super) struct Work {
    place: Arc<Semaphore>,
    /// The turns of work that is done again and again, and when the next one begins.
    turns: Arc<Semaphore>,
    next: Arc<Mutex<Instant>>,
}

impl Work {
    pub(super) fn new() -> Self {
        let one = || Arc::new(Semaphore::new(1));
        Self { place: one(), turns: one(), next: Arc::new(Mutex::new(Instant::now())) }
    }

    /// Does something that is done again and again, in its turn: [`FACTOR`] times the processor time of the one before after that one, and at most
    /// [`MAX_PAUSE`]. So any number of those who want it have at most a hundredth of a core.
    ///
    /// # Errors
    /// As for [`Self::run`].
    pub(super) async fn run_in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let _turn = self.turns.acquire().await.map_err(|_| failed())?;
        let begin = *self.next.lock();
        tokio::time::sleep_until(begin.into()).await;
        let next = self.next.clone();
        self.run(move || {
            let begun = used();
            let done = work();
            let pause = used().saturating_sub(begun).saturating_mul(FACTOR).min(MAX_PAUSE);
            *next.lock() = Instant::now() + pause;
            done
        })
        .await
    }

    /// Does something that takes long.
    ///
    /// # Errors
    /// Those of the work; or it has panicked, or the endpoint stops.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let place = self.place.clone().acquire_owned().await.map_err(|_| failed())?;
        let run = move || {
            // The place is free when the work is done, also where the client has left before.
            let _place = place;
            work()
        };
        tokio::task::spawn_blocking(run).await.map_err(|_| failed())?
    }
}

fn failed() -> Problem {
    Problem::unavailable("the console could not do it", Duration::from_secs(1))
}

/// The processor time of this thread.
fn used() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_is_done_again_has_a_pause_behind_it() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (work, own) = (Work::new(), Duration::from_millis(2));
        let busy = move || {
            let begun = used();
            while used() - begun < own {}
            Ok(Instant::now())
        };
        let first = runtime.block_on(work.run_in_turn(busy)).ok().unwrap();
        assert!(*work.next.lock() >= first + FACTOR * own);
        // Work that somebody waits for once has none.
        let once = runtime.block_on(work.run(busy)).ok().unwrap();
        let second = runtime.block_on(work.run_in_turn(busy)).ok().unwrap();
        assert!(once >= first && second >= first + FACTOR * own);
    }
}
