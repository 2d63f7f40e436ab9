//! Work that takes long: samples of the broker, searches in long lists, answers of megabytes. It is done one after the other on a thread of
//! its own, so that the thread of the endpoint always has time for `/health` and `/metrics`.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
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
    /// Of those of one user, one waits for the turn at a time, so that a user takes the turns of nobody else.
    of_users: Arc<Mutex<HashMap<String, Weak<Semaphore>>>>,
    next: Arc<Mutex<Instant>>,
}

impl Work {
    pub(super) fn new() -> Self {
        let one = || Arc::new(Semaphore::new(1));
        Self {
            place: one(),
            turns: one(),
            of_users: Arc::default(),
            next: Arc::new(Mutex::new(Instant::now())),
        }
    }

    /// Does something that is done again and again, in its turn: [`FACTOR`] times the processor time of the one before after that one, and at most
    /// [`MAX_PAUSE`]. So any number of those who want it have at most a hundredth of a core. The turns go round the users who want one.
    ///
    /// # Errors
    /// As for [`Self::run`].
    pub(super) async fn run_in_turn<T: Send + 'static>(
        &self,
        user: &str,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let own = self.of_user(user).acquire_owned().await.map_err(|_| failed())?;
        let turn = self.turns.clone().acquire_owned().await.map_err(|_| failed())?;
        let begin = *self.next.lock();
        tokio::time::sleep_until(begin.into()).await;
        let next = self.next.clone();
        self.run(move || {
            let begun = used();
            let done = work();
            let pause = used().saturating_sub(begun).saturating_mul(FACTOR).min(MAX_PAUSE);
            *next.lock() = Instant::now() + pause;
            // The turn is over when the pause is known, also where the client has left before.
            drop((turn, own));
            done
        })
        .await
    }

    /// The place of a user among those who wait for the turn.
    fn of_user(&self, user: &str) -> Arc<Semaphore> {
        let mut all = self.of_users.lock();
        if let Some(own) = all.get(user).and_then(Weak::upgrade) {
            return own;
        }
        // There are no more than streams.
        all.retain(|_, own| own.strong_count() > 0);
        let own = Arc::new(Semaphore::new(1));
        all.insert(user.to_owned(), Arc::downgrade(&own));
        own
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
        let first = runtime.block_on(work.run_in_turn("a", busy)).ok().unwrap();
        assert!(*work.next.lock() >= first + FACTOR * own);
        // Work that somebody waits for once has none.
        let once = runtime.block_on(work.run(busy)).ok().unwrap();
        let second = runtime.block_on(work.run_in_turn("a", busy)).ok().unwrap();
        assert!(once >= first && second >= first + FACTOR * own);
    }

    #[test]
    fn a_user_with_many_pages_takes_the_turns_of_nobody_else() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (work, order) = (Work::new(), Arc::new(Mutex::new(Vec::new())));
        runtime.block_on(async {
            let users = ["many"; 8].into_iter().chain(["one"]);
            let all: Vec<_> = users
                .map(|user| {
                    let (work, order) = (work.clone(), order.clone());
                    let note = move || {
                        order.lock().push(user);
                        Ok(())
                    };
                    tokio::spawn(async move { work.run_in_turn(user, note).await })
                })
                .collect();
            for one in all {
                assert!(one.await.unwrap().is_ok());
            }
        });
        assert!(order.lock()[..3].contains(&"one"), "{:?}", order.lock());
        drop(work.of_user("another"));
        assert_eq!(work.of_users.lock().len(), 1, "whoever has left is forgotten");
    }

    #[test]
    fn a_client_that_leaves_in_the_middle_of_its_work_leaves_the_pause() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (work, own) = (Work::new(), Duration::from_millis(2));
        let (begun, has_begun) = std::sync::mpsc::sync_channel(1);
        let (go_on, may_go_on) = std::sync::mpsc::sync_channel::<()>(1);
        let (ended, has_ended) = std::sync::mpsc::sync_channel(1);
        runtime.block_on(async {
            let of_client = work.clone();
            let client = tokio::spawn(async move {
                let busy = move || {
                    let _ = begun.send(());
                    let _ = may_go_on.recv();
                    let from = used();
                    while used() - from < own {}
                    let _ = ended.send(Instant::now());
                    Ok(())
                };
                of_client.run_in_turn("a", busy).await
            });
            while has_begun.try_recv().is_err() {
                tokio::task::yield_now().await;
            }
            client.abort();
            let _ = client.await;
            let next = work.clone();
            let next = tokio::spawn(async move { next.run_in_turn("b", || Ok(Instant::now())).await });
            tokio::task::yield_now().await;
            go_on.send(()).unwrap();
            let next = next.await.unwrap().ok().unwrap();
            assert!(next >= has_ended.recv().unwrap() + FACTOR * own);
        });
    }
}
