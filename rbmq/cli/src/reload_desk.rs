//! Reloads for users of the console: its threads ask, and the thread that has the broker reloads.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use access::Authenticator;
use commands::Waker;
use locks::Mutex;
use private_files::with_patience;
use rbmq_broker::http::{ReloadCheck, Reloading};
use rbmq_broker::{Broker, BrokerConfig};

use super::log::BrokerLog;
use super::reload::{self, Endpoints, PATIENCE};
use super::source::Source;

/// The time within which a reload begins. A broker that starts its gateways may not.
const BEGIN: Duration = Duration::from_secs(3);

/// The place of one request. Clones share it.
#[derive(Clone)]
pub(super) struct ReloadDesk {
    source: Source,
    place: Arc<Mutex<Place>>,
    waker: Arc<Waker>,
}

/// A request that the thread of the broker has taken, or not yet.
enum Place {
    Free,
    Asked(Request),
    Begun,
    /// The thread of the broker takes no more.
    Closed,
}

struct Request {
    check: ReloadCheck,
    answer: SyncSender<Result<Vec<String>, String>>,
}

impl ReloadDesk {
    pub(super) fn new(source: &Source, waker: Waker) -> Self {
        Self { source: source.clone(), place: Arc::new(Mutex::new(Place::Free)), waker: Arc::new(waker) }
    }

    /// Reloads where a signal asks for it, and where a user of the console does.
    pub(super) fn on_wake(
        &self,
        is_signal: bool,
        broker: &mut Broker,
        endpoints: Endpoints<'_>,
        log: &BrokerLog,
    ) {
        if is_signal {
            reload::reload(&self.source, broker, endpoints, log);
        }
        self.serve(|check| reload::reload_checked(&self.source, broker, endpoints, log, check));
    }

    /// Answers the request that is there, if one is, by `reload`.
    fn serve(&self, reload: impl FnOnce(ReloadCheck) -> Result<Vec<String>, String>) {
        let request = {
            let mut place = self.place.lock();
            match std::mem::replace(&mut *place, Place::Begun) {
                Place::Asked(request) => request,
                other => return *place = other,
            }
        };
        let reloaded = reload(request.check);
        *self.place.lock() = Place::Free;
        // Nobody may wait any more.
        let _ = request.answer.try_send(reloaded);
    }

    /// Refuses further requests, and the one that is there.
    pub(super) fn close(&self) {
        *self.place.lock() = Place::Closed;
    }
}

impl Reloading for ReloadDesk {
    fn read(&self) -> Result<BrokerConfig, String> {
        with_patience(PATIENCE, || {
            let config = reload::read(&self.source)?;
            let options = config.users.options();
            // The content of a pipe is for the reload.
            let key = options.jwt.as_ref().map(|jwt| jwt.key.as_path());
            if !options.users.as_deref().into_iter().chain(key).any(reload::is_pipe) {
                Authenticator::open(&options).map_err(|why| why.to_string())?;
            }
            Ok(config)
        })
    }

    fn reload(&self, check: ReloadCheck) -> Result<Vec<String>, String> {
        let stops = || "the broker stops".to_owned();
        let (answer, answered) = sync_channel(1);
        {
            let mut place = self.place.lock();
            match *place {
                Place::Free => *place = Place::Asked(Request { check, answer }),
                Place::Closed => return Err(stops()),
                Place::Asked(_) | Place::Begun => {
                    return Err("another reload is on its way; compare again".to_owned());
                }
            }
        }
        self.waker.wake();
        match answered.recv_timeout(BEGIN) {
            Ok(reloaded) => return reloaded,
            Err(RecvTimeoutError::Disconnected) => return Err(stops()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        {
            let mut place = self.place.lock();
            if matches!(*place, Place::Asked(_)) {
                *place = Place::Free;
                return Err("the broker begins no reload in time, so nothing was reloaded; it may still start its gateways".to_owned());
            }
        }
        answered.recv().unwrap_or_else(|_| Err(stops()))
    }
}
