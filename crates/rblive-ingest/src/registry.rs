//! Which streams there are, and who publishes them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rblive::RsManager;
use rblive::content::check_name;

use crate::access::{Access, Claim, Refusal};
use crate::counters::IngestCounters;
use crate::settings::IngestSettings;
use crate::stream::{Stream, StreamFailure};

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
    pub(crate) access: Access,
    entries: Mutex<HashMap<String, Arc<Mutex<Entry>>>>,
}

/// Somebody who publishes a stream.
pub(crate) struct Publisher {
    registry: Arc<Registry>,
    entry: Arc<Mutex<Entry>>,
    /// The name under which the stream is published.
    pub(crate) name: String,
    number: u64,
    claim: Claim,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    pub(crate) fn new(manager: RsManager, settings: IngestSettings, access: Access) -> Arc<Self> {
        Arc::new(Self { manager, settings, counters: Arc::default(), access, entries: Mutex::default() })
    }

    /// Lets somebody publish, or says why not.
    pub(crate) async fn publish(self: &Arc<Self>, name: &str, claim: &Claim) -> Result<Publisher, Refusal> {
        let publisher = self.ask(name, claim, self.settings.takeover).await;
        let counters = &self.counters;
        IngestCounters::count(if publisher.is_ok() { &counters.publishers } else { &counters.refused }, 1);
        publisher
    }

    /// Lets a publisher whose place was taken publish again, once the stream has none.
    pub(crate) async fn publish_again(
        self: &Arc<Self>,
        name: &str,
        claim: &Claim,
    ) -> Result<Publisher, Refusal> {
        self.ask(name, claim, false).await
    }

    async fn ask(self: &Arc<Self>, name: &str, claim: &Claim, takeover: bool) -> Result<Publisher, Refusal> {
        if !check_name(name) {
            return Err(Refusal::Name);
        }
        self.access.check(name, claim)?;
        let name = self.access.ask(name, claim).await?;
        self.begin(&name, claim, takeover)
    }

    fn begin(self: &Arc<Self>, name: &str, claim: &Claim, takeover: bool) -> Result<Publisher, Refusal> {
        let mut entries = lock(&self.entries);
        let entry = match entries.get(name) {
            Some(entry) => entry.clone(),
            None => {
                let id = self.manager.create_stream(name)?;
                let stream = Stream::new(self.manager.clone(), id, name, (&self.settings, &self.counters));
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
        Ok(Publisher { registry: self.clone(), entry, name: name.to_owned(), number, claim: claim.clone() })
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
        // Without a runtime the servers are stopping, and the manager ends the stream.
        let runtime = tokio::runtime::Handle::try_current().ok();
        if let Some(runtime) = &runtime {
            let (registry, name, claim) = (self.registry.clone(), self.name.clone(), self.claim.clone());
            runtime.spawn(async move { registry.access.tell_gone(&name, &claim).await });
        }
        let mut held = lock(&self.entry);
        if held.publisher != Some(self.number) {
            return;
        }
        held.publisher = None;
        interrupt(&mut held.stream, &self.name);
        drop(held);
        let (registry, name, number) = (self.registry.clone(), self.name.clone(), self.number);
        let linger = Duration::from_millis(registry.settings.linger_ms);
        if let Some(runtime) = runtime {
            runtime.spawn(async move {
                tokio::time::sleep(linger).await;
                registry.end(&name, number);
            });
        }
    }
}
