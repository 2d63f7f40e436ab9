//! The web server for viewers, if the node delivers.

use std::sync::Arc;

use rblive::{RsManager, StreamEvent};
use rblive_deliver::{Catalog, Server, Settings, StreamStatus, Tls};

use super::config::Deliver;
use super::failure::Failure;

/// A running web server. Dropping it stops the server.
pub struct Viewers {
    server: Server,
    catalog: Arc<Catalog>,
    scheme: &'static str,
}

impl Viewers {
    /// Starts the server of a node, before streams arrive.
    pub fn start(rs: &RsManager, settings: &Deliver) -> Result<Self, Failure> {
        let catalog = Arc::new(Catalog::default());
        let takes = catalog.clone();
        rs.inbound_callback(move |chunk| takes.take(chunk));
        let ends = catalog.clone();
        rs.stream_callback(move |id, event| {
            if event == StreamEvent::Ended {
                ends.end(id);
            }
        });
        let scheme = if settings.tls { "https" } else { "http" };
        let server = Server::start(server_settings(settings), catalog.clone()).map_err(Failure::failed)?;
        Ok(Self { server, catalog, scheme })
    }

    /// Reads the certificate again. Where that fails, the server goes on with the one it has.
    pub fn reload(&self) {
        match self.server.reload() {
            Ok(()) => tracing::info!("the certificate was read again"),
            Err(error) => tracing::error!("the certificate stays as it was: {error}"),
        }
    }

    /// The streams that the server has.
    pub fn streams(&self) -> Vec<StreamStatus> {
        self.catalog.statuses()
    }

    /// The address of the front page.
    pub fn address(&self) -> String {
        format!("{}://{}/", self.scheme, self.server.addr())
    }
}

fn server_settings(settings: &Deliver) -> Settings {
    let defaults = Settings::default();
    let tls = if !settings.tls {
        Tls::Off
    } else if settings.certificate.as_os_str().is_empty() {
        defaults.tls.clone()
    } else {
        Tls::Files { certificates: settings.certificate.clone(), key: settings.private_key.clone() }
    };
    let key = settings.token_key.as_bytes();
    Settings {
        listen: settings.listen.clone(),
        tls,
        threads: if settings.threads == 0 { defaults.threads } else { settings.threads },
        max_connections: settings.max_connections,
        max_connections_per_address: settings.max_connections_per_address,
        max_viewers_per_stream: settings.max_viewers_per_stream,
        min_bytes_per_second: settings.min_bytes_per_second,
        keep_ended: settings.keep_ended,
        token_key: (!key.is_empty()).then(|| key.to_vec()),
        ..defaults
    }
}
