//! The state of the console, and a request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use hyper::header::HeaderMap;

use super::calls::{Calls, Messages};
use super::events;
use super::sample::Samples;
use super::sessions::{Sessions, secret};
use super::topic::Looks;
use crate::gate::Desk;
use crate::http::door::Door;
use crate::in_force::Rules;
use crate::{EndpointConsole, HttpSettings, Watch};

/// The console of an endpoint.
pub(in crate::http) struct Console {
    pub(super) watch: Watch,
    pub(super) door: Arc<Door>,
    pub(super) samples: Samples,
    pub(super) looks: Looks,
    pub(super) sessions: Sessions,
    pub(super) streams: events::Places,
    /// None: the program shows no messages.
    pub(super) messages: Option<Arc<dyn Messages>>,
    pub(super) calls: Calls,
    /// Whether messages may be published.
    pub(super) writes: bool,
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
        messages: Option<Arc<dyn Messages>>,
    ) -> std::io::Result<Option<Arc<Self>>> {
        if settings.console == EndpointConsole::Off {
            return Ok(None);
        }
        Ok(Some(Arc::new(Self {
            samples: Samples::new(watch.clone()),
            watch,
            door,
            looks: Looks::default(),
            sessions: Sessions::default(),
            streams: events::Places::new(settings.max_streams),
            messages,
            calls: Calls::default(),
            writes: settings.console == EndpointConsole::Write,
            csrf: secret().map_err(std::io::Error::other)?,
            body_timeout: settings.header_timeout(),
        })))
    }

    pub(super) fn desk(&self) -> &Desk {
        self.watch.desk()
    }

    pub(super) fn rules(&self) -> Rules {
        self.desk().in_force.rules()
    }
}
