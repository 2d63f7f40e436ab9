//! `rblive cluster`: what etcd says of the nodes of a cluster, and the wish of an operator. No node is asked.

pub mod map;
pub mod member;

use std::path::PathBuf;

use commands::Failure;
use commands::table::{row, table};
use etcd::{Change, Client, EtcdError, Txn};
use serde_json::json;

use self::map::{Keys, Map};
use super::config::{Cluster, Config};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  rblive cluster members --config /etc/rblive/rblive.toml
  rblive cluster members --etcd http://10.0.0.9:2379 --name stage --json
  rblive cluster drain edge-2 --config /etc/rblive/rblive.toml")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the nodes: those that live, and those that are drained
    #[command(after_help = "Examples:
  rblive cluster members --config /etc/rblive/rblive.toml")]
    Members(Look),
    /// Have a node send its viewers to others, until this is undone
    #[command(after_help = "Examples:
  rblive cluster drain edge-2 --config /etc/rblive/rblive.toml
  rblive cluster members --config /etc/rblive/rblive.toml      # how many viewers it still has")]
    Drain(Drain),
    /// Let a node have viewers again
    #[command(after_help = "Examples:
  rblive cluster undrain edge-2 --config /etc/rblive/rblive.toml")]
    Undrain(Drain),
}

/// Where etcd is.
#[derive(Debug, clap::Args)]
struct Store {
    /// Configuration file with the section [cluster]
    #[arg(long, short, value_name = "FILE", env = "RBLIVE_CONFIG")]
    config: Option<PathBuf>,
    /// Address of etcd, instead of cluster.etcd of the file; may be repeated
    #[arg(long, value_name = "URL")]
    etcd: Vec<String>,
    /// Name of the cluster, instead of cluster.name of the file
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

#[derive(Debug, clap::Args)]
struct Look {
    #[command(flatten)]
    store: Store,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Drain {
    /// The node
    node: String,
    #[command(flatten)]
    store: Store,
}

impl Store {
    fn settings(&self) -> Result<Cluster, Failure> {
        let mut cluster = match &self.config {
            Some(path) => Config::load(Some(path))?.cluster,
            None => Cluster::default(),
        };
        if !self.etcd.is_empty() {
            cluster.etcd.clone_from(&self.etcd);
        }
        if let Some(name) = &self.name {
            cluster.name.clone_from(name);
        }
        if cluster.etcd.is_empty() || cluster.name.is_empty() {
            let message = "where is the cluster? name a file with the section [cluster] (--config), or --etcd and --name";
            return Err(Failure::Usage("cluster", message.into()));
        }
        cluster.check().map_err(Failure::Failed)?;
        Ok(cluster)
    }

    fn open(&self) -> Result<(Client, Keys, Map), Failure> {
        let settings = self.settings()?;
        let mut client = Client::new(settings.client()?);
        let keys = Keys::new(&settings.name);
        let map = Map::read(&client.range(keys.prefix())?, &keys);
        if map == Map::default() {
            let message = format!(
                "there is no cluster {:?} in this etcd: no node has been a member of it",
                settings.name
            );
            return Err(Failure::Failed(message));
        }
        Ok((client, keys, map))
    }
}

pub fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Members(look) => members(look),
        Command::Drain(args) => drain(args, true),
        Command::Undrain(args) => drain(args, false),
    }
}

fn members(look: &Look) -> Result<(), Failure> {
    let (_, _, map) = look.store.open()?;
    let head = ["NODE", "NUMBER", "ROLE", "STATE", "VIEWERS", "MBIT/S", "STREAMS", "VERSION", "ADDRESSES"];
    let (mut rows, mut all) = (vec![row(head)], Vec::new());
    for (name, member) in &map.members {
        let (about, load, state) = (&member.about, &member.load, map.state(name));
        let role = json!(about.role);
        let role = role.as_str().unwrap_or_default();
        let rate = format!("{:.1}", load.bits_per_second as f64 / 1e6);
        let (number, viewers) = (about.number.to_string(), load.viewers.to_string());
        let streams = member.streams.len().to_string();
        let places = format!("{} {}", about.address, about.viewers);
        rows.push(row([
            name,
            &number,
            role,
            state,
            &viewers,
            &rate,
            &streams,
            &about.version,
            places.trim(),
        ]));
        all.push(json!({ "name": name, "number": about.number, "role": about.role, "state": state,
            "viewers": load.viewers, "bits_per_second": load.bits_per_second, "room": load.room, "streams": member.streams,
            "version": about.version, "address": about.address, "url": about.viewers }));
    }
    for name in map.draining.iter().filter(|name| !map.members.contains_key(*name)) {
        rows.push(row([name, "", "", "away, draining", "", "", "", "", ""]));
        all.push(json!({ "name": name, "state": "away", "draining": true }));
    }
    let mut lines = table(&rows);
    for (key, problem) in &map.unreadable {
        lines += &format!("{} counts for nothing: {}\n", text::printable(key), text::printable(problem));
    }
    let json = json!({ "nodes": all, "unreadable_keys": map.unreadable, "unreadable": map.unreadable_count });
    commands::print(if look.json { text::json(&json.to_string()).into_owned() + "\n" } else { lines })
}

fn drain(args: &Drain, is_wanted: bool) -> Result<(), Failure> {
    let Drain { node, store } = args;
    let (mut client, keys, map) = store.open()?;
    if !map.members.contains_key(node) && !map.draining.contains(node) {
        return Err(Failure::Failed(format!("there is no node {node:?}: rblive cluster members")));
    }
    let key = keys.drain(node);
    let change = match is_wanted {
        true => Change::Put { key, value: b"{}".to_vec(), lease: 0 },
        false => Change::Delete { key },
    };
    match client.txn(&Txn { compares: Vec::new(), changes: vec![change] }) {
        Ok(_) => {}
        Err(error @ EtcdError::Refused { .. }) => return Err(Failure::failed(error)),
        Err(error) => {
            let message = format!("{error}; it may be done nevertheless: rblive cluster members");
            return Err(Failure::Failed(message));
        }
    }
    let node = text::printable(node);
    commands::print(match is_wanted {
        true => {
            format!("{node} sends its viewers to others: rblive cluster members says how many it still has\n")
        }
        false => format!("{node} may have viewers again\n"),
    })
}
