//! `rbmq cluster`: what etcd says of a cluster, and the changes that an operator makes. No broker is asked.

use std::collections::BTreeMap;
use std::path::PathBuf;

use commands::Failure;
use commands::table::{row, table};
use rbmq_broker::{BrokerConfig, ClusterSettings};
use rbmq_cluster::etcd::{Change, Client, Compare, EtcdError, Txn};
use rbmq_cluster::{Entry, Keys, Map};
use serde_json::{Value, json};

use super::member;
use super::source::ConfigFile;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  rbmq cluster status --config /etc/rbmq/rbmq.toml
  rbmq cluster members --etcd http://10.0.0.9:2379 --name plant
  rbmq cluster drain broker-2 --config /etc/rbmq/rbmq.toml")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Say whether all groups of topics have an owner that lives
    #[command(after_help = "Examples:
  rbmq cluster status --config /etc/rbmq/rbmq.toml
  rbmq cluster status --etcd http://10.0.0.9:2379 --name plant --json

Exit status: 0 if every group has an owner that lives, 1 if not.")]
    Status(Look),
    /// List the members: those that live, and those that have groups and do not live
    #[command(after_help = "Examples:
  rbmq cluster members --config /etc/rbmq/rbmq.toml")]
    Members(Look),
    /// List the groups of topics, with their owners and terms
    #[command(after_help = "Examples:
  rbmq cluster topics --config /etc/rbmq/rbmq.toml
  rbmq cluster topics --config /etc/rbmq/rbmq.toml --json")]
    Topics(Look),
    /// Give a group of topics to another member, which begins new logs of them
    #[command(after_help = "Examples:
  rbmq cluster move sensors broker-2 --new-log --config /etc/rbmq/rbmq.toml

What the owner before has on its disk stays there. It goes on with it when the group is moved back.")]
    Move(Move),
    /// Give a member no new groups; and those that it has to others, where on_loss is not wait
    #[command(after_help = "Examples:
  rbmq cluster drain broker-2 --config /etc/rbmq/rbmq.toml
  rbmq cluster drain broker-2 --undo --config /etc/rbmq/rbmq.toml")]
    Drain(Drain),
}

/// Where etcd is.
#[derive(Debug, clap::Args)]
struct Store {
    #[command(flatten)]
    file: ConfigFile,
    /// Address of etcd, instead of cluster.etcd of the file; may be repeated
    #[arg(long, value_name = "URL")]
    etcd: Vec<String>,
    /// Name of the cluster, instead of cluster.name of the file
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// User at etcd, instead of cluster.user of the file
    #[arg(long, value_name = "NAME", requires = "password_file")]
    user: Option<String>,
    /// File whose first line is the password of --user
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// File with the certificates of the authorities that sign etcd's certificates, instead of cluster.ca of the file
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
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
struct Move {
    /// The group, as 'rbmq cluster topics' prints it
    group: String,
    /// The member that gets it
    member: String,
    /// Accept that the new owner does not have what the old one has kept
    #[arg(long)]
    new_log: bool,
    #[command(flatten)]
    store: Store,
}

#[derive(Debug, clap::Args)]
struct Drain {
    /// The member
    member: String,
    /// Give it groups again
    #[arg(long)]
    undo: bool,
    #[command(flatten)]
    store: Store,
}

/// A cluster as etcd has it.
struct Cluster {
    name: String,
    client: Client,
    keys: Keys,
    map: Map,
}

impl Store {
    fn settings(&self) -> Result<ClusterSettings, Failure> {
        let config = BrokerConfig::load(self.file.config.as_deref()).map_err(Failure::failed)?;
        let mut cluster = config.cluster;
        if !self.etcd.is_empty() {
            cluster.etcd.clone_from(&self.etcd);
        }
        if let Some(name) = &self.name {
            cluster.name.clone_from(name);
        }
        if let Some(user) = &self.user {
            cluster.user.clone_from(user);
        }
        let path = |path: &PathBuf| path.display().to_string();
        if let Some(file) = &self.password_file {
            cluster.password_file = path(file);
        }
        if let Some(file) = &self.ca {
            cluster.ca = path(file);
        }
        if cluster.etcd.is_empty() || cluster.name.is_empty() {
            let message = "where is the cluster? name a file with the section [cluster] (--config), or --etcd and --name";
            return Err(Failure::Usage("cluster", message.into()));
        }
        Ok(cluster)
    }

    fn open(&self) -> Result<Cluster, Failure> {
        let settings = self.settings()?;
        let mut client = Client::new(member::client(&settings)?);
        let keys = Keys::new(&settings.name);
        let map = Map::read(&client.range(keys.prefix())?, &keys);
        if map == Map::default() {
            let message = format!(
                "there is no cluster {:?} in this etcd: no broker has been a member of it",
                settings.name
            );
            return Err(Failure::Failed(message));
        }
        Ok(Cluster { name: settings.name, client, keys, map })
    }
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Status(look) => status(look),
        Command::Members(look) => members(look),
        Command::Topics(look) => topics(look),
        Command::Move(args) => give(args),
        Command::Drain(args) => drain(args),
    }
}

fn print(look: &Look, json: &Value, lines: String) -> Result<(), Failure> {
    commands::print(if look.json { text::json(&json.to_string()).into_owned() + "\n" } else { lines })
}

/// The number of groups of each member, also of those that do not live.
pub(super) fn shares(map: &Map) -> BTreeMap<&str, usize> {
    let mut shares: BTreeMap<&str, usize> = map.members.keys().map(|id| (id.as_str(), 0)).collect();
    for entry in map.groups.values() {
        *shares.entry(&entry.owner).or_default() += 1;
    }
    shares
}

/// How a member is, in a word.
pub(super) fn state(map: &Map, id: &str) -> &'static str {
    match (map.members.contains_key(id), map.draining.contains(id)) {
        (false, _) => "away",
        (true, true) => "draining",
        (true, false) => "up",
    }
}

impl Cluster {
    /// The groups whose owner does not live.
    fn waiting(&self) -> usize {
        self.map.groups.values().filter(|entry| !self.map.members.contains_key(&entry.owner)).count()
    }

    fn shares(&self) -> BTreeMap<&str, usize> {
        shares(&self.map)
    }

    fn state(&self, id: &str) -> &'static str {
        state(&self.map, id)
    }

    /// Makes a transaction.
    fn write(&mut self, txn: &Txn) -> Result<(), Failure> {
        match self.client.txn(txn) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Failure::Failed("the cluster has changed meanwhile; try again".into())),
            Err(error @ EtcdError::Refused { .. }) => Err(Failure::failed(error)),
            Err(error) => {
                Err(Failure::Failed(format!("{error}; it may be done nevertheless: rbmq cluster topics")))
            }
        }
    }
}

fn status(look: &Look) -> Result<(), Failure> {
    let cluster = look.store.open()?;
    let map = &cluster.map;
    let (waiting, unreadable) = (cluster.waiting(), map.unreadable.len());
    let json = json!({ "name": cluster.name, "members": map.members.len(), "draining": map.draining,
        "groups": map.groups.len(), "waiting_groups": waiting, "unreadable_keys": map.unreadable });
    let mut lines = format!(
        "cluster {}: {} members, {} groups of topics\n",
        text::printable(&cluster.name),
        map.members.len(),
        map.groups.len()
    );
    for id in &map.draining {
        lines.push_str(&format!("{} is drained\n", text::printable(id)));
    }
    for (key, problem) in &map.unreadable {
        lines.push_str(&format!("{} makes no sense: {}\n", text::printable(key), text::printable(problem)));
    }
    print(look, &json, lines)?;
    if waiting + unreadable > 0 {
        let message =
            format!("{waiting} groups wait for an owner that is away, and {unreadable} keys make no sense");
        return Err(Failure::Failed(message));
    }
    Ok(())
}

fn members(look: &Look) -> Result<(), Failure> {
    let cluster = look.store.open()?;
    let (mut rows, mut all) = (vec![row(["MEMBER", "STATE", "GROUPS", "VERSION", "ADDRESSES"])], Vec::new());
    for (id, groups) in cluster.shares() {
        let state = cluster.state(id);
        let (addresses, version) = match cluster.map.members.get(id) {
            Some(member) => (member.addresses.clone(), member.version.as_str()),
            None => (Vec::new(), ""),
        };
        rows.push(row([id, state, &groups.to_string(), version, &addresses.join(", ")]));
        all.push(
            json!({ "id": id, "state": state, "groups": groups, "version": version, "addresses": addresses }),
        );
    }
    print(look, &all.into(), table(&rows))
}

fn topics(look: &Look) -> Result<(), Failure> {
    let cluster = look.store.open()?;
    let (mut rows, mut all) = (vec![row(["GROUP", "OWNER", "STATE", "TERM"])], Vec::new());
    for (group, Entry { owner, term, .. }) in &cluster.map.groups {
        let state = cluster.state(owner);
        rows.push(row([group, owner, state, &term.to_string()]));
        all.push(json!({ "group": group, "owner": owner, "state": state, "term": term }));
    }
    print(look, &all.into(), table(&rows))
}

fn give(args: &Move) -> Result<(), Failure> {
    let Move { group, member, new_log, store } = args;
    let mut cluster = store.open()?;
    let failed = |text: String| Err(Failure::Failed(text));
    if !cluster.map.members.contains_key(member) {
        return failed(format!("no member {member:?} lives: rbmq cluster members"));
    }
    let Some(entry) = cluster.map.groups.get(group).cloned() else {
        return failed(format!("there is no group {group:?}: rbmq cluster topics"));
    };
    if entry.owner == *member {
        return commands::print(format!("{member} has {group} already\n"));
    }
    if !new_log {
        let owner = &entry.owner;
        return failed(format!(
            "what {owner} has kept of {group} stays at {owner}: say --new-log if {member} shall begin new logs"
        ));
    }
    let key = cluster.keys.group(group);
    let compares = vec![
        Compare::Unchanged { key: key.clone(), modified: entry.modified },
        Compare::Present { key: cluster.keys.member(member) },
    ];
    let term = entry.term + 1;
    let put = Change::Put { key, value: Entry::value(member, term), lease: 0 };
    cluster.write(&Txn { compares, changes: vec![put] })?;
    commands::print(format!("{member} has {group} in term {term}; {} had it before\n", entry.owner))
}

fn drain(args: &Drain) -> Result<(), Failure> {
    let Drain { member, undo, store } = args;
    let mut cluster = store.open()?;
    let shares = cluster.shares();
    let Some(groups) =
        shares.get(member.as_str()).copied().or(cluster.map.draining.contains(member).then_some(0))
    else {
        return Err(Failure::Failed(format!("there is no member {member:?}: rbmq cluster members")));
    };
    let key = cluster.keys.drain(member);
    let change =
        if *undo { Change::Delete { key } } else { Change::Put { key, value: b"{}".to_vec(), lease: 0 } };
    cluster.write(&Txn { compares: Vec::new(), changes: vec![change] })?;
    commands::print(if *undo {
        format!("{member} gets new groups again; it has {groups}\n")
    } else {
        format!(
            "{member} gets no new groups. It has {groups}: rbmq cluster members says when they have left\n"
        )
    })
}
