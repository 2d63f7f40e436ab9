//! The keys of a cluster of nodes in etcd, and what their values mean.
//!
//! ```text
//!   /rblive/NAME/nodes/NODE     {"number": 2, "role": "delivery", "address": "10.0.0.2:7501", "viewers": "https://…", …}
//!   /rblive/NAME/load/NODE      {"viewers": 12, "bits_per_second": 24000000, "room": 988}
//!   /rblive/NAME/streams/NODE   ["camera", "stage/2"]
//!   /rblive/NAME/drain/NODE     {}                                            an operator's wish, without the node's lease
//! ```

use std::collections::{BTreeMap, BTreeSet};

use etcd::{KeyValue, Snapshot, is_name};
use rblive::config::MAX_NODES;
use rblive::content::check_name;
use rblive::{Node, NodeRole};
use rblive_deliver::OtherNode;
use serde::{Deserialize, Serialize};

/// The largest value that is read or written.
const MAX_VALUE_BYTES: usize = 512 << 10;
/// The most streams of a node that are told: viewers are sent to it for these alone.
pub const MAX_STREAMS: usize = 4096;
/// The most keys that make no sense and are named.
const MAX_NAMED: usize = 16;
/// The longest text of a node, in bytes.
const MAX_TEXT_BYTES: usize = 512;

/// The names of the keys of a cluster.
#[derive(Debug, Clone)]
pub struct Keys {
    prefix: String,
}

impl Keys {
    pub fn new(cluster: &str) -> Self {
        Self { prefix: format!("/rblive/{cluster}/") }
    }

    /// How all keys begin.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    pub fn node(&self, name: &str) -> String {
        format!("{}nodes/{name}", self.prefix)
    }

    pub fn load(&self, name: &str) -> String {
        format!("{}load/{name}", self.prefix)
    }

    pub fn streams(&self, name: &str) -> String {
        format!("{}streams/{name}", self.prefix)
    }

    pub fn drain(&self, name: &str) -> String {
        format!("{}drain/{name}", self.prefix)
    }
}

/// What a node says of itself when it begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    pub number: u16,
    pub role: NodeRole,
    /// Where it takes streams of other nodes; empty: it takes none.
    #[serde(default)]
    pub address: String,
    /// How the addresses for its viewers begin; empty: it has none.
    #[serde(default)]
    pub viewers: String,
    /// The running system that it is on.
    #[serde(default)]
    pub host: String,
    #[serde(default)]
    pub version: String,
}

/// The value that tells the streams of a node: the first of these names, as many as others read.
pub fn told_streams<'a>(names: impl Iterator<Item = &'a str>) -> Vec<u8> {
    let mut value = b"[".to_vec();
    for name in names.take(MAX_STREAMS) {
        let text = serde_json::to_string(name).unwrap_or_default();
        // A comma, and the bracket at the end.
        if value.len() + text.len() + 2 > MAX_VALUE_BYTES {
            break;
        }
        if value.len() > 1 {
            value.push(b',');
        }
        value.extend_from_slice(text.as_bytes());
    }
    value.push(b']');
    value
}

/// What a node has to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Load {
    pub viewers: u64,
    pub bits_per_second: u64,
    /// How many more viewers it is to have.
    pub room: u32,
}

/// A node of the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub about: About,
    pub load: Load,
    pub streams: BTreeSet<String>,
    created: i64,
}

/// What etcd says at one revision.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Map {
    pub members: BTreeMap<String, Member>,
    /// The nodes that are drained, whether they are there or not.
    pub draining: BTreeSet<String>,
    /// Keys that make no sense, with the reason: they count for nothing. The first ones.
    pub unreadable: BTreeMap<String, String>,
    /// How many keys make no sense.
    pub unreadable_count: usize,
}

impl Map {
    /// Reads a snapshot. What makes no sense is left out, and so are nodes beyond the most that there may be.
    pub fn read(snapshot: &Snapshot, keys: &Keys) -> Self {
        let (mut map, mut rest) = (Self::default(), Vec::new());
        for kv in &snapshot.keys {
            let name = kv.key.strip_prefix(keys.prefix()).unwrap_or_default();
            let read = match name.split_once('/') {
                Some((kind, name)) if is_name(name) => map.take(kind, name, kv, &mut rest),
                _ => Err("it is no key of a cluster".to_owned()),
            };
            if let Err(problem) = read {
                map.refuse(&kv.key, problem);
            }
        }
        for (name, kv, is_load) in rest {
            // The key of the node makes no sense, or has just gone.
            let Some(member) = map.members.get_mut(&name) else { continue };
            let read = if is_load { member.read_load(kv) } else { member.read_streams(kv) };
            if let Err(problem) = read {
                map.refuse(&kv.key, problem);
            }
        }
        map.refuse_taken_numbers(keys);
        map
    }

    fn take<'a>(
        &mut self,
        kind: &str,
        name: &str,
        kv: &'a KeyValue,
        rest: &mut Vec<(String, &'a KeyValue, bool)>,
    ) -> Result<(), String> {
        if kv.value.len() > MAX_VALUE_BYTES {
            return Err(format!("its value has more than {MAX_VALUE_BYTES} bytes"));
        }
        match kind {
            "nodes" if self.members.len() >= MAX_NODES => {
                return Err(format!("a cluster has at most {MAX_NODES} nodes"));
            }
            "nodes" => {
                let about = About::parse(&kv.value)?;
                let (load, streams, created) = (Load::default(), BTreeSet::new(), kv.created);
                self.members.insert(name.to_owned(), Member { about, load, streams, created });
            }
            "load" | "streams" if rest.len() < 2 * MAX_NODES => {
                rest.push((name.to_owned(), kv, kind == "load"))
            }
            "drain" if self.draining.len() < MAX_NODES => {
                self.draining.insert(name.to_owned());
            }
            "load" | "streams" | "drain" => return Err("there are too many of them".to_owned()),
            _ => return Err("it is no key of a cluster".to_owned()),
        }
        Ok(())
    }

    fn refuse(&mut self, key: &str, problem: String) {
        self.unreadable_count += 1;
        if self.unreadable.len() < MAX_NAMED {
            self.unreadable.insert(key.chars().take(MAX_TEXT_BYTES).collect(), problem);
        }
    }

    /// The number of a node is in the ids of its streams: the node that had it first keeps it.
    fn refuse_taken_numbers(&mut self, keys: &Keys) {
        let mut first: BTreeMap<u16, (i64, String)> = BTreeMap::new();
        for (name, member) in &self.members {
            let own = (member.created, name.clone());
            first
                .entry(member.about.number)
                .and_modify(|found| *found = own.clone().min(found.clone()))
                .or_insert(own);
        }
        let is_first = |name: &String, member: &Member| first[&member.about.number].1 == *name;
        let names: Vec<String> = self
            .members
            .iter()
            .filter(|(name, own)| !is_first(name, own))
            .map(|(name, _)| name.clone())
            .collect();
        for name in names {
            let Some(member) = self.members.remove(&name) else { continue };
            let number = member.about.number;
            self.refuse(&keys.node(&name), format!("{} has the number {number} already", first[&number].1));
        }
    }

    /// The nodes besides this one, for the manager of streams.
    pub fn nodes(&self, own: &str) -> Vec<Node> {
        let others = self.members.iter().filter(|(name, _)| *name != own);
        let node = |(name, member): (&String, &Member)| Node {
            name: name.clone(),
            id: member.about.number,
            role: member.about.role,
            address: member.about.address.clone(),
        };
        others.map(node).collect()
    }

    /// The nodes besides this one to which viewers may be sent.
    pub fn for_viewers(&self, own: &str) -> Vec<OtherNode> {
        let others = self.members.iter().filter(|(name, _)| *name != own && !self.draining.contains(*name));
        let delivers = others.filter(|(_, member)| !member.about.viewers.is_empty());
        let node = |(_, member): (&String, &Member)| {
            let mut node = OtherNode::default();
            node.url.clone_from(&member.about.viewers);
            node.streams = std::sync::Arc::new(member.streams.iter().cloned().collect());
            node.room = member.load.room;
            node
        };
        delivers.map(node).collect()
    }

    pub fn state(&self, name: &str) -> &'static str {
        match (self.members.contains_key(name), self.draining.contains(name)) {
            (false, _) => "away",
            (true, true) => "draining",
            (true, false) => "up",
        }
    }
}

impl About {
    fn parse(value: &[u8]) -> Result<Self, String> {
        let about: Self = serde_json::from_slice(value).map_err(|error| error.to_string())?;
        let texts = [&about.address, &about.viewers, &about.host, &about.version];
        let legal = |text: &&String| text.len() <= MAX_TEXT_BYTES && !text.chars().any(char::is_control);
        if about.number == 0 || !texts.iter().all(legal) {
            return Err("its number is 0, or a text is too long or no text".to_owned());
        }
        if about.address.contains(|c: char| c == ',' || c.is_whitespace()) {
            return Err(format!("{:?} is no address", about.address));
        }
        if about.role.delivers() && about.address.is_empty() {
            return Err("it takes streams of other nodes and has no address".to_owned());
        }
        if !about.viewers.is_empty() && !OtherNode::is_url(&about.viewers) {
            return Err(format!("{:?} is no beginning of an address for viewers", about.viewers));
        }
        Ok(about)
    }
}

impl Member {
    fn read_load(&mut self, kv: &KeyValue) -> Result<(), String> {
        self.load = serde_json::from_slice(&kv.value).map_err(|error| error.to_string())?;
        Ok(())
    }

    fn read_streams(&mut self, kv: &KeyValue) -> Result<(), String> {
        let names: Vec<String> = serde_json::from_slice(&kv.value).map_err(|error| error.to_string())?;
        self.streams = names.into_iter().filter(|name| check_name(name)).take(MAX_STREAMS).collect();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kv(key: &str, value: &str, created: i64) -> KeyValue {
        KeyValue { key: format!("/rblive/c/{key}"), value: value.into(), created, modified: 9, lease: 3 }
    }

    fn node(name: &str, number: u16, created: i64) -> KeyValue {
        let value = format!(
            r#"{{"number":{number},"role":"delivery","address":"h:{number}","viewers":"https://h:{number}","later":[]}}"#
        );
        kv(&format!("nodes/{name}"), &value, created)
    }

    fn read(keys: Vec<KeyValue>) -> Map {
        Map::read(&Snapshot { revision: 9, keys }, &Keys::new("c"))
    }

    #[test]
    fn what_makes_no_sense_is_named_and_nothing_else_suffers() {
        let long = format!("[\"{}\"]", "a".repeat(MAX_VALUE_BYTES));
        let map = read(vec![
            kv("drain/b", "anything", 1),
            kv("load/b", r#"{"viewers":3,"room":7}"#, 1),
            kv("load/gone", r#"{"viewers":3}"#, 1),
            kv("load/c", "[", 1),
            node("b", 2, 1),
            node("c", 3, 1),
            kv("nodes/d", r#"{"number":0,"role":"delivery"}"#, 1),
            kv("nodes/e", r#"{"number":5,"role":"king"}"#, 1),
            kv("nodes/f", r#"{"number":6,"role":"delivery","viewers":"https://a b"}"#, 1),
            kv("nodes/g", r#"{"number":7,"role":"delivery","address":"a\u001b:1"}"#, 1),
            kv("nodes/h", "\u{ff}", 1),
            kv("nodes/i j", "{}", 1),
            kv("nodes/k", r#"{"number":11,"role":"both","viewers":"https://k"}"#, 1),
            kv("other", "", 1),
            kv("streams/b", r#"["a/b","../c","d"]"#, 1),
            kv("streams/c", &long, 1),
        ]);
        assert_eq!(map.members.keys().collect::<Vec<_>>(), ["b", "c"]);
        let member = &map.members["b"];
        assert_eq!((member.load.viewers, member.load.room), (3, 7));
        assert_eq!(member.streams.iter().collect::<Vec<_>>(), ["a/b", "d"]);
        assert_eq!((map.unreadable_count, map.unreadable.len()), (10, 10), "{:?}", map.unreadable);
        assert_eq!((map.state("b"), map.state("c"), map.state("x")), ("draining", "up", "away"));
        assert_eq!(map.nodes("c").iter().map(|node| node.id).collect::<Vec<_>>(), [2]);
        let others: Vec<_> = map.for_viewers("x").into_iter().map(|node| node.url).collect();
        assert_eq!(others, ["https://h:3"], "a drained node gets no viewers");
    }

    #[test]
    fn others_read_the_streams_that_a_node_tells_whatever_their_names() {
        let names: Vec<String> = (0..2 * MAX_STREAMS).map(|n| format!("{n:0255}")).collect();
        let told = |most: usize| {
            let value = told_streams(names.iter().map(|name| &name[255 - most..]));
            let streams = kv("streams/b", std::str::from_utf8(&value).unwrap(), 1);
            let map = read(vec![node("b", 2, 1), streams]);
            assert_eq!(map.unreadable_count, 0, "{:?}", map.unreadable);
            map.members["b"].streams.len()
        };
        assert_eq!(told(100), MAX_STREAMS);
        assert_eq!(told(255), (MAX_VALUE_BYTES - 2) / 258, "as many as a value has room for");
        assert_eq!(told_streams(std::iter::empty()), b"[]");
    }

    #[test]
    fn a_number_belongs_to_the_node_that_had_it_first() {
        let map = read(vec![node("a", 2, 8), node("b", 2, 4), node("c", 3, 9)]);
        assert_eq!(map.members.keys().collect::<Vec<_>>(), ["b", "c"]);
        assert_eq!(map.unreadable["/rblive/c/nodes/a"], "b has the number 2 already");
    }

    #[test]
    fn a_hundred_thousand_nodes_are_as_many_as_there_may_be() {
        let keys = (0..100_000_u32).map(|n| node(&format!("{n:06}"), (n % 60_000) as u16 + 1, i64::from(n)));
        let map = read(keys.collect());
        assert_eq!((map.members.len(), map.unreadable.len()), (MAX_NODES, MAX_NAMED));
        assert_eq!(map.unreadable_count, 100_000 - MAX_NODES);
    }
}
