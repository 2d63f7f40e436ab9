//! A node that ingests, and a node that delivers: two processes of the command.

use std::path::Path;

use testkit::own_addr;

use crate::process::{Serving, certify, serve};

/// The buffers of streams, which do not grow: a chunk's bytes, and how many chunks.
pub struct Buffers {
    pub chunk_bytes: u32,
    pub chunks: u32,
}

/// A buffer for minutes of the test's streams.
pub const ROOMY: Buffers = Buffers { chunk_bytes: 1 << 20, chunks: 20 };

/// A buffer for 20 seconds of the test's streams.
pub const NARROW: Buffers = Buffers { chunk_bytes: 64 << 10, chunks: 8 };

pub struct Nodes {
    pub rtmp: String,
    pub https: String,
    viewers: String,
    _delivery: Serving,
    _ingest: Serving,
}

impl Nodes {
    pub fn start(folder: &Path, buffers: &Buffers) -> Self {
        certify(folder);
        let port = own_addr();
        let (at, Buffers { chunk_bytes, chunks }) = (folder.display(), buffers);
        let whole = (chunks * (chunk_bytes + 32)).next_power_of_two();
        let text = format!(
            "[control]\nlisten = ''\n[deliver]\nlisten = '127.0.0.1:0'\n\
             [ingest]\nrtmp = '127.0.0.1:0'\nhttps = '127.0.0.1:0'\nsegment_ms = 1000\n\
             certificate = '{at}/chain.pem'\nprivate_key = '{at}/key.pem'\npassthrough = ['ts']\n\
             [[ingest.ladders]]\nname = 'ladder'\nstreams = ['hi', 'lo']\n\
             [streams]\nchunk_bytes = {chunk_bytes}\nchunks = {chunks}\nmax_buffer_bytes = {whole}\n\
             [[nodes]]\nname = 'ingest'\nid = 1\nrole = 'dissemination'\n\
             [[nodes]]\nname = 'delivery'\nid = 2\nrole = 'delivery'\naddress = '{port}'\n\
             [[rules]]\nstreams = '*'\nnodes = ['delivery']\n"
        );
        let config = folder.join("node.toml");
        std::fs::write(&config, text).unwrap();
        let [delivery, ingest] = ["delivery", "ingest"].map(|node| {
            let mut command = serve(&config);
            command.args(["--node", node]);
            Serving::start(command)
        });
        let viewers = delivery.address("viewers at https://");
        let [rtmp, https] = ["rtmp", "https"].map(|kind| ingest.address(&format!("encoders at {kind}://")));
        Self { rtmp, https, viewers, _delivery: delivery, _ingest: ingest }
    }

    /// The address of a file of a stream.
    pub fn file(&self, path: &str) -> String {
        format!("https://{}/live/{path}", self.viewers)
    }
}
