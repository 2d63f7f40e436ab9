//! The same work for many topics, in a few threads.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The most threads, the caller's included. The threads wait for the disk, and file systems put the syncs of threads that
/// wait at the same time into one commit.
const THREADS: usize = 16;

/// Calls `work` for each item. After an error no further item is begun.
///
/// # Errors
/// The error of the first item in order, among the items that were begun.
pub(crate) fn for_each<T: Sync, E: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let next = AtomicUsize::new(0);
    let run = || loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        let item = items.get(index)?;
        if let Err(error) = work(item) {
            next.store(items.len(), Ordering::Relaxed);
            return Some((index, error));
        }
    };
    let mut failed = std::thread::scope(|scope| {
        let helpers = THREADS.min(items.len()).saturating_sub(1);
        // If the system has no more threads, the existing ones do the work.
        let start = |_| threads::spawn_scoped("multimqc-open", scope, run).ok();
        let helpers: Vec<_> = (0..helpers).map_while(start).collect();
        let mut failed: Vec<(usize, E)> = run().into_iter().collect();
        for helper in helpers {
            failed.extend(helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        failed
    });
    failed.sort_by_key(|(index, _)| *index);
    failed.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
}
