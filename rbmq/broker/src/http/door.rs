//! The ways into the endpoint: its token, its certificates, and the rights of clients with certificates of their own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use locks::Mutex;
use peers::Place;

use super::tls::Tls;
use super::token::Token;
use crate::observation::Observation;
use crate::{EndpointClients, HttpSettings, Watch};

/// The longest life of a connection. A client that reads an answer more slowly is disconnected.
pub const MAX_CONNECTION_TIME: Duration = Duration::from_secs(60);

/// Why an endpoint cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The endpoint cannot listen on its address.
    #[error("cannot listen for HTTP on {addr}: {source}; choose another address (http.listen, --http)")]
    Listen {
        /// The configured address.
        addr: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The token cannot be used.
    #[error("cannot use the token of http.token_file, {path}: {source}")]
    Token {
        /// The configured file.
        path: String,
        /// The problem.
        source: std::io::Error,
    },
    /// TLS cannot be set up.
    #[error("cannot encrypt the HTTP endpoint: {0}")]
    Tls(String),
    /// The system refused a thread or descriptors.
    #[error("cannot start the HTTP endpoint: {0}")]
    Start(std::io::Error),
}

/// The ways in for clients.
pub(super) struct Door {
    /// The names by which the endpoint is known.
    pub(super) names: Vec<String>,
    token_file: String,
    pub(super) token: Mutex<Token>,
    /// How often the token was read again.
    pub(super) reloads: AtomicU64,
    pub(super) tls: Option<Tls>,
    /// The rights of clients with certificates. None: clients are not asked for one.
    pub(super) observation: Option<Observation>,
}

impl Door {
    pub(super) fn open(watch: &Watch, settings: &HttpSettings) -> Result<Self, EndpointError> {
        let token_file = settings.token_file.clone();
        let token = Mutex::new(read_token(&token_file)?);
        let tls = Tls::open(settings, &watch.ctx.config().tls).map_err(EndpointError::Tls)?;
        let asks = settings.client_certificates != EndpointClients::None;
        let observation = asks.then(|| watch.observation().clone());
        let reloads = AtomicU64::new(0);
        Ok(Self { names: settings.names.clone(), token_file, token, reloads, tls, observation })
    }

    pub(super) fn reload(&self) -> Result<(), EndpointError> {
        let token = read_token(&self.token_file)?;
        if let Some(tls) = &self.tls {
            tls.reload().map_err(EndpointError::Tls)?;
        }
        let mut known = self.token.lock();
        if !known.is_same(&token) {
            *known = token;
            // Release pairs with the Acquire of the console: whoever has shown the former token shows the new one.
            self.reloads.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }
}

fn read_token(path: &str) -> Result<Token, EndpointError> {
    Token::read(path).map_err(|source| EndpointError::Token { path: path.to_owned(), source })
}

/// The other end of a connection.
pub(super) struct Client<'a> {
    pub(super) place: &'a Place,
    pub(super) addr: SocketAddr,
    pub(super) certificate: Option<Arc<[u8]>>,
}
