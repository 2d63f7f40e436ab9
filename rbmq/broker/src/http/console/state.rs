//! The state of the console, and a request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::Method;
use hyper::header::HeaderMap;

use super::calls::{Lane, Pace};
use super::engine::Engine;
use super::events;
use super::program::{Reloading, Reloads};
use super::publishing::{Publishers, Publishing};
use super::sample::Samples;
use super::sessions::{Sessions, secret};
use super::topic::Looks;
use super::work::Work;
use crate::gate::Desk;
use crate::http::door::Door;
use crate::in_force::Rules;
use crate::{EndpointConsole, HttpSettings, Watch};

/// The time between two looks for what nobody looks at any more.
const FORGET_EVERY: Duration = Duration::from_secs(60);

/// The console of an endpoint.
pub(in crate::http) struct Console {
    pub(super) engine: Arc<Engine>,
    pub(super) work: Work,
    pub(super) door: Arc<Door>,
    pub(super) samples: Samples,
    pub(super) looks: Looks,
    pub(super) sessions: Sessions,
    pub(super) streams: events::Places,
    /// Looks at messages: those of rings, and those that may wait for the disk.
    pub(super) memory: Lane,
    pub(super) disk: Lane,
    /// The rates of clients that look at messages, and publish.
    pub(super) pace: Pace,
    pub(super) publish_pace: Pace,
    pub(super) publishing: Lane,
    pub(super) publishers: Publishers,
    /// Whether administrators change something, and the rate of each.
    pub(super) changes: bool,
    pub(super) change_pace: Pace,
    pub(super) reloads: Reloads,
    /// The text against forged requests of browsers that need not log in.
    pub(super) csrf: String,
    pub(super) body_timeout: Duration,
}

/// A request, without its body.
pub(super) struct Asked<'a> {
    pub(super) method: &'a Method,
    pub(super) path: &'a str,
    pub(super) query: &'a str,
    pub(super) headers: &'a HeaderMap,
    pub(super) addr: SocketAddr,
    pub(super) certificate: Option<Arc<[u8]>>,
}

impl Console {
    /// The console of an endpoint. None: it has none.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(in crate::http) fn open(
        watch: Watch,
        door: Arc<Door>,
        settings: &HttpSettings,
        publishing: Option<Arc<dyn Publishing>>,
        reloading: Option<Arc<dyn Reloading>>,
    ) -> std::io::Result<Option<Arc<Self>>> {
        if settings.console == EndpointConsole::Off {
            return Ok(None);
        }
        let publishing = publishing.filter(|_| settings.console == EndpointConsole::Write);
        let vouchers = watch.desk().vouchers.clone();
        let engine = Arc::new(Engine::new(watch));
        Ok(Some(Arc::new(Self {
            samples: Samples::new(engine.clone()),
            engine,
            work: Work::new(),
            door,
            looks: Looks::default(),
            sessions: Sessions::default(),
            streams: events::Places::new(settings.max_streams.min(settings.max_connections / 2)),
            memory: Lane::new(2, Duration::from_secs(5), "the broker"),
            disk: Lane::new(2, Duration::from_secs(5), "the disk of kept topics"),
            pace: Pace::new(Duration::from_millis(200), 20),
            publish_pace: Pace::new(Duration::from_millis(200), 20),
            publishing: Lane::new(4, Duration::from_secs(12), "the broker"),
            publishers: Publishers::new(publishing, vouchers),
            changes: settings.console == EndpointConsole::Write,
            change_pace: Pace::new(Duration::from_millis(200), 20),
            reloads: Reloads::new(reloading),
            csrf: secret().map_err(std::io::Error::other)?,
            body_timeout: settings.header_timeout(),
        })))
    }

    pub(super) fn desk(&self) -> &Desk {
        self.engine.watch.desk()
    }

    /// Frees, again and again, the memory of what nobody looks at any more.
    pub(in crate::http) async fn forget(self: Arc<Self>) {
        loop {
            tokio::time::sleep(FORGET_EVERY).await;
            let console = self.clone();
            let forget = move || {
                console.samples.forget(Instant::now());
                console.looks.forget();
                console.publishers.forget(Instant::now());
                Ok(())
            };
            // The next time comes in any case.
            let _ = self.work.run(forget).await;
        }
    }

    pub(super) fn rules(&self) -> Rules {
        self.desk().in_force.rules()
    }
}
