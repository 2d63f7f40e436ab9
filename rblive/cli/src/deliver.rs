//! The web server for viewers, if the node delivers.

use std::net::SocketAddr;
use std::sync::Arc;

use commands::Failure;
use rblive::{RsManager, StreamEvent};
use rblive_deliver::{Catalog, Elsewhere, Server, Settings, Setup, StreamStatus};
use rblive_record::Recorder;
use rblive_webrtc::Hub;

use super::config::Cluster;

/// A running web server. Dropping it stops the server.
pub struct Viewers {
    server: Server,
    catalog: Arc<Catalog>,
    scheme: &'static str,
    elsewhere: Option<Arc<Elsewhere>>,
    peers: Option<Arc<Hub>>,
}

impl Viewers {
    /// Starts the server of a node, before streams arrive.
    pub fn start(
        rs: &RsManager,
        settings: &Settings,
        webrtc: &rblive_webrtc::Settings,
    ) -> Result<Self, Failure> {
        Self::start_with(rs, settings, webrtc, &Cluster::default(), None)
    }

    /// Starts the server of a node that may also keep streams.
    pub fn start_with(
        rs: &RsManager,
        settings: &Settings,
        webrtc: &rblive_webrtc::Settings,
        cluster: &Cluster,
        recorder: Option<Arc<Recorder>>,
    ) -> Result<Self, Failure> {
        let catalog = Arc::new(Catalog::default());
        receive(rs, Some(catalog.clone()), recorder);
        let scheme = if settings.tls { "https" } else { "http" };
        // A proxy in front of the server may speak TLS for it.
        let is_encrypted = settings.tls || cluster.viewers.starts_with("https://");
        let elsewhere = cluster.is_used().then(|| Arc::new(Elsewhere::new(cluster.redirect, is_encrypted)));
        let peers = webrtc.is_used().then(|| Hub::start(webrtc).map(Arc::new)).transpose();
        let peers = peers.map_err(Failure::failed)?;
        let setup = Setup { elsewhere: elsewhere.clone(), peers: peers.clone(), ..Setup::default() };
        let server = Server::start_as(settings.clone(), catalog.clone(), setup);
        Ok(Self { server: server.map_err(Failure::failed)?, catalog, scheme, elsewhere, peers })
    }

    /// Reads the certificate again. If that fails, the server keeps the one that it has.
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

    /// The bytes of media that were sent so far.
    pub fn media_bytes(&self) -> u64 {
        self.server.media_bytes()
    }

    /// Other nodes of a cluster, and when viewers are sent there.
    pub fn elsewhere(&self) -> Option<&Elsewhere> {
        self.elsewhere.as_deref()
    }

    /// The port for viewers by WebRTC, if there is one.
    pub fn datagrams(&self) -> Option<SocketAddr> {
        self.peers.as_ref().map(|own| own.address())
    }

    /// The address of the front page.
    pub fn address(&self) -> String {
        format!("{}://{}/", self.scheme, self.server.addr())
    }
}

/// Sets the callbacks that pass arriving chunks to the web server and the recorder.
pub fn receive(rs: &RsManager, catalog: Option<Arc<Catalog>>, recorder: Option<Arc<Recorder>>) {
    let (chunks, events) = ((catalog.clone(), recorder.clone()), (catalog, recorder));
    rs.inbound_callback(move |chunk| {
        if let Some(recorder) = &chunks.1 {
            recorder.take(&chunk);
        }
        if let Some(catalog) = &chunks.0 {
            catalog.take(chunk);
        }
    });
    rs.stream_callback(move |id, event| {
        if let Some(recorder) = &events.1 {
            recorder.event(id, &event);
        }
        if let Some(catalog) = events.0.as_ref().filter(|_| event == StreamEvent::Ended) {
            catalog.end(id);
        }
    });
}
