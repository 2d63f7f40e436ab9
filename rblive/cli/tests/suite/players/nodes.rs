//! A node that ingests, and a node that delivers: two processes of the command.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use crate::process::{Running, rblive};
use testkit::own_addr;

/// The buffers of streams: a chunk's bytes, and how many chunks.
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
    _delivery: Running,
    _ingest: Running,
}

impl Nodes {
    pub fn start(folder: &Path, buffers: &Buffers) -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        std::fs::write(folder.join("chain.pem"), made.cert.pem()).unwrap();
        std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
        let port = own_addr();
        let (at, Buffers { chunk_bytes, chunks }) = (folder.display(), buffers);
        let text = format!(
            "[control]\nlisten = ''\n[deliver]\nlisten = '127.0.0.1:0'\n\
             [ingest]\nrtmp = '127.0.0.1:0'\nhttps = '127.0.0.1:0'\nsegment_ms = 1000\n\
             certificate = '{at}/chain.pem'\nprivate_key = '{at}/key.pem'\npassthrough = ['ts']\n\
             [[ingest.ladders]]\nname = 'ladder'\nstreams = ['hi', 'lo']\n\
             [streams]\nchunk_bytes = {chunk_bytes}\nchunks = {chunks}\n\
             [[nodes]]\nname = 'ingest'\nid = 1\nrole = 'dissemination'\n\
             [[nodes]]\nname = 'delivery'\nid = 2\nrole = 'delivery'\naddress = '{port}'\n\
             [[rules]]\nstreams = '*'\nnodes = ['delivery']\n"
        );
        let config = folder.join("node.toml");
        std::fs::write(&config, text).unwrap();
        let (delivery, said) = serve(&config, "delivery");
        let viewers = address(&said, "viewers at https://");
        let (ingest, said) = serve(&config, "ingest");
        let (rtmp, https) = (address(&said, "encoders at rtmp://"), address(&said, "encoders at https://"));
        Self { rtmp, https, viewers, _delivery: delivery, _ingest: ingest }
    }

    /// The address of a file of a stream.
    pub fn file(&self, path: &str) -> String {
        format!("https://{}/live/{path}", self.viewers)
    }
}

/// Starts a node, and returns what it says.
fn serve(config: &Path, node: &str) -> (Running, String) {
    let mut command = rblive();
    let command = command.arg("serve").arg("--config").arg(config).args(["--node", node]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (Running(child), line)
}

fn address(said: &str, before: &str) -> String {
    let rest = said.split_once(before).unwrap_or_else(|| panic!("{before}: {said}")).1;
    rest.split(['/', ';', '\n']).next().unwrap().to_owned()
}
