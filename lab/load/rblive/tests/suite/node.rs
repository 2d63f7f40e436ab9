//! A node in the process of the test.

use std::sync::Arc;

use rblive::{Config, RsManager, Rule, StreamEvent};
use rblive_deliver::{Catalog, Server, Settings};
use rblive_ingest::{Ingest, IngestSettings};

/// A node that takes streams by RTMP, and delivers them by HTTPS.
pub struct Node {
    ingest: Ingest,
    server: Server,
}

impl Node {
    pub fn start() -> Self {
        let mut config = Config::default();
        let nodes = config.nodes.iter().map(|node| node.name.clone()).collect();
        config.rules = vec![Rule { streams: "*".to_owned(), nodes }];
        let catalog = Arc::new(Catalog::default());
        let manager = RsManager::prepared(config, |manager| {
            let (chunks, ends) = (catalog.clone(), catalog.clone());
            manager.inbound_callback(move |chunk| chunks.take(chunk));
            manager.stream_callback(move |id, event| {
                if event == StreamEvent::Ended {
                    ends.end(id);
                }
            });
        })
        .unwrap();
        let any = || "127.0.0.1:0".to_owned();
        let server = Server::start(Settings { listen: any(), ..Settings::default() }, catalog).unwrap();
        let ingest = Ingest::start(
            manager,
            IngestSettings { rtmp: any(), http: String::new(), ..IngestSettings::default() },
        );
        Self { ingest: ingest.unwrap(), server }
    }

    /// Where encoders publish a stream.
    pub fn encoders(&self, name: &str) -> String {
        format!("rtmp://{}/live/{name}", self.ingest.addresses().rtmp.unwrap())
    }

    /// The playlist of a stream.
    pub fn playlist(&self, name: &str) -> String {
        format!("https://{}/live/{name}/index.m3u8", self.server.addr())
    }
}
