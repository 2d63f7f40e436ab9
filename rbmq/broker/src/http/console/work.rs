//! Work that takes long: samples of the broker, searches in long lists, answers of megabytes. It is done one after the other on a thread of
//! its own, so that the thread of the endpoint always has time for `/health` and `/metrics`.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::problem::Problem;

/// The place for work. Whoever waits for it waits in the order of coming, and whoever leaves makes no work.
#[derive(Clone)]
pub(super) struct Work(Arc<Semaphore>);

impl Work {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }

    /// Does something that takes long.
    ///
    /// # Errors
    /// Those of the work; or it has panicked, or the endpoint stops.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let failed = || Problem::unavailable("the console could not do it", Duration::from_secs(1));
        let place = self.0.clone().acquire_owned().await.map_err(|_| failed())?;
        let run = move || {
            // The place is free when the work is done, also where the client has left before.
            let _place = place;
            work()
        };
        tokio::task::spawn_blocking(run).await.map_err(|_| failed())?
    }
}
