//! Which streams there are, and who publishes them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rblive::content::check_name;
use rblive::{RsManager, StreamError};

use crate::settings::IngestSettings;
use crate::stream::{Stream, StreamFailure};

/// Counters of the servers, for metrics.
#[derive(Debug, Default)]
pub struct IngestCounters {
    /// Connections that were accepted.
    pub connections: AtomicU64,
    /// Connections that were turned away because there were too many.
    pub turned_away: AtomicU64,
    /// Publishers that were accepted.
    pub publishers: AtomicU64,
    /// Publishers that were refused: a wrong key or name, or the stream had a publisher.
    pub refused: AtomicU64,
    /// Publishers whose input was damaged, too much, or stopped.
    pub failed: AtomicU64,
    /// Bytes of media that came in.
    pub bytes: AtomicU64,
}

impl IngestCounters {
    pub(crate) fn count(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }
}

/// Why somebody may not publish.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("the stream key is wrong or missing")]
    Key,
    #[error("the name of the stream is not valid: use letters, digits and . _ - /")]
    Name,
    #[error("the stream has a publisher already")]
    Busy,
    #[error(transparent)]
    Stream(#[from] StreamError),
}

struct Entry {
    stream: Stream,
    /// The publisher that may write, and the last one's number.
    publisher: Option<u64>,
    last: u64,
}

pub(crate) struct Registry {
    manager: RsManager,
    pub(crate) settings: IngestSettings,
    pub(crate) counters: Arc<IngestCounters>,
    entries: Mutex<HashMap<String, Arc<Mutex<Entry>>>>,
}

/// Somebody who publishes a stream.
pub(crate) struct Publisher {
    registry: Arc<Registry>,
    entry: Arc<Mutex<Entry>>,
    name: String,
    number: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    pub(crate) fn new(manager: RsManager, settings: IngestSettings) -> Arc<Self> {
        Arc::new(Self { manager, settings, counters: Arc::default(), entries: Mutex::default() })
    }

    /// Lets somebody publish, or says why not.
    pub(crate) fn publish(self: &Arc<Self>, name: &str, key: Option<&str>) -> Result<Publisher, Refusal> {
        let publisher = self.try_publish(name, key, self.settings.takeover);
        let counters = &self.counters;
        IngestCounters::count(if publisher.is_ok() { &counters.publishers } else { &counters.refused }, 1);
        publisher
    }

    /// Lets a publisher whose place was taken publish again, once the stream has none.
    pub(crate) fn publish_again(
        self: &Arc<Self>,
        name: &str,
        key: Option<&str>,
    ) -> Result<Publisher, Refusal> {
        self.try_publish(name, key, false)
    }

    fn try_publish(
        self: &Arc<Self>,
        name: &str,
        key: Option<&str>,
        takeover: bool,
    ) -> Result<Publisher, Refusal> {
        if !check_name(name) {
            return Err(Refusal::Name);
        }
        if !self.settings.opens(name, key) {
            return Err(Refusal::Key);
        }
        let mut entries = lock(&self.entries);
        let entry = match entries.get(name) {
            Some(entry) => entry.clone(),
            None => {
                let id = self.manager.create_stream(name)?;
                let stream = Stream::new(self.manager.clone(), id, name, &self.settings);
                let entry = Arc::new(Mutex::new(Entry { stream, publisher: None, last: 0 }));
                entries.insert(name.to_owned(), entry.clone());
                entry
            }
        };
        let mut held = lock(&entry);
        if held.publisher.is_some() {
            if !takeover {
                return Err(Refusal::Busy);
            }
            tracing::info!(stream = name, "another publisher takes the place of the one before");
            interrupt(&mut held.stream, name);
        }
        held.last += 1;
        let number = held.last;
        held.publisher = Some(number);
        drop(held);
        Ok(Publisher { registry: self.clone(), entry, name: name.to_owned(), number })
    }

    /// Ends the stream if nobody publishes it and nobody did since.
    fn end(&self, name: &str, number: u64) {
        let mut entries = lock(&self.entries);
        let Some(entry) = entries.get(name).cloned() else { return };
        let mut held = lock(&entry);
        if held.publisher.is_none() && held.last == number {
            tracing::info!(stream = name, id = %held.stream.id(), "the stream has ended");
            held.stream.end();
            entries.remove(name);
        }
    }
}

fn interrupt(stream: &mut Stream, name: &str) {
    if let Err(failure) = stream.interrupt() {
        tracing::warn!(stream = name, "the end of the stream is lost: {failure}");
    }
}

impl Publisher {
    /// Whether another publisher has taken its place.
    pub(crate) fn is_replaced(&self) -> bool {
        lock(&self.entry).publisher != Some(self.number)
    }

    /// Writes to the stream. `None`: another publisher has taken its place.
    pub(crate) fn with<R>(
        &self,
        write: impl FnOnce(&mut Stream) -> Result<R, StreamFailure>,
    ) -> Option<Result<R, StreamFailure>> {
        let mut held = lock(&self.entry);
        (held.publisher == Some(self.number)).then(|| write(&mut held.stream))
    }
}

/// The publisher is gone. Its stream waits for a return, and then ends.
impl Drop for Publisher {
    fn drop(&mut self) {
        let mut held = lock(&self.entry);
        if held.publisher != Some(self.number) {
            return;
        }
        held.publisher = None;
        interrupt(&mut held.stream, &self.name);
        drop(held);
        let (registry, name, number) = (self.registry.clone(), self.name.clone(), self.number);
        let linger = Duration::from_millis(registry.settings.linger_ms);
        // Without a runtime the servers are stopping, and the manager ends the stream.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                tokio::time::sleep(linger).await;
                registry.end(&name, number);
            });
        }
    }
}
