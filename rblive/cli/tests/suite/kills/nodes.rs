//! The nodes: processes of the command, which keep their addresses over restarts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use testkit::own_addr;

use crate::process::{self, Serving};

/// A node, and the nodes to which it sends.
pub struct Place {
    pub name: &'static str,
    role: &'static str,
    sends_to: &'static [&'static str],
}

pub const NODES: [Place; 4] = [
    Place { name: "ingest", role: "dissemination", sends_to: &["inner", "near"] },
    Place { name: "inner", role: "dissemination", sends_to: &["far"] },
    Place { name: "far", role: "delivery", sends_to: &[] },
    Place { name: "near", role: "delivery", sends_to: &[] },
];

pub struct Nodes {
    running: Vec<(&'static str, PathBuf, Serving)>,
    viewers: Vec<(&'static str, String)>,
    encoders: String,
}

impl Nodes {
    pub fn start(folder: &Path, transport: &str) -> Self {
        let nodes = NODES.map(|place| (place, own_addr()));
        let list: String = (1..)
            .zip(&nodes)
            .map(|(id, (Place { name, role, .. }, address))| {
                format!("[[nodes]]\nname = '{name}'\nid = {id}\nrole = '{role}'\naddress = '{address}'\n")
            })
            .collect();
        let mut all = Self { running: Vec::new(), viewers: Vec::new(), encoders: String::new() };
        for (Place { name, role, sends_to }, _) in nodes {
            let file = folder.join(format!("{name}.toml"));
            let (encoders, viewers) = (own_addr(), own_addr());
            let text = format!(
                "node = '{name}'\ntransport = '{transport}'\n{list}\
                 [[rules]]\nstreams = '*'\nnodes = {sends_to:?}\n\
                 [control]\nlisten = ''\n[streams]\nchunks = 40\n[ingest]\nlinger_ms = 600000\nsegment_ms = 500\npart_ms = 200\n\
                 rtmp = '{encoders}'\n\
                 [[ingest.ladders]]\nname = 'ladder'\nstreams = ['hi', 'lo']\n[deliver]\nlisten = '{viewers}'\ntls = false\n"
            );
            std::fs::write(&file, text).unwrap();
            match role {
                "delivery" => all.viewers.push((name, viewers)),
                _ if name == "ingest" => all.encoders = encoders,
                _ => {}
            }
            let serving = serve(&file);
            all.running.push((name, file, serving));
        }
        all
    }

    /// Where encoders publish.
    pub fn encoders(&self) -> String {
        self.encoders.clone()
    }

    /// Where a node has its viewers.
    pub fn viewers(&self, node: &str) -> String {
        self.viewers.iter().find(|(name, _)| *name == node).unwrap().1.clone()
    }

    /// Kills a node, and starts it again after a pause.
    pub fn restart(&mut self, node: &str, pause: Duration) {
        let at = self.running.iter().position(|(name, ..)| *name == node).unwrap();
        let (name, file, killed) = self.running.remove(at);
        drop(killed);
        std::thread::sleep(pause);
        let serving = serve(&file);
        self.running.push((name, file, serving));
    }
}

fn serve(file: &Path) -> Serving {
    let mut command = process::serve(file);
    // As systemd does.
    let state = file.with_extension("state");
    std::fs::create_dir_all(&state).unwrap();
    command.env("STATE_DIRECTORY", state).env("RBLIVE_LOG", "error");
    let serving = Serving::start(command);
    assert!(serving.said.starts_with("rblive: node "), "the node starts: {}", serving.said);
    serving
}
