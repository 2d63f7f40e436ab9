//! The keys of a cluster in etcd, and what their values mean.
//!
//! ```text
//!   /rbmq/NAME/members/ID   {"addresses": ["10.0.0.1:7411"], "host": …, "version": …}   with the lease of the broker; "archive" too, if it decides
//!   /rbmq/NAME/map/GROUP    {"owner": "ID", "term": 3}                                  without a lease: it outlives everybody
//!   /rbmq/NAME/drain/ID     {}                                                          an operator's wish: no new groups there
//! ```
//!
//! The wish to drain has a key of its own. A broker writes its member, an operator writes the wish, and neither overwrites the other; and the
//! wish stays when the broker is started again.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use etcd::{KeyValue, MAX_NAME_BYTES, Snapshot, is_name};

use super::member_settings::MemberSettings;

/// The most addresses of a member.
const MAX_ADDRESSES: usize = 16;
const MAX_ADDRESS_BYTES: usize = 256;
/// The most letters about an archive.
const MAX_ARCHIVE_LETTERS: usize = 1_024;

/// The group of a topic: the first levels of its name. Names that begin with `$` are groups of their own: a kept space is one log.
///
/// ```
/// # use rbmq_cluster::group_of;
/// assert_eq!(group_of("plant/a/temperature", 1), "plant");
/// assert_eq!(group_of("plant/a/temperature", 2), "plant/a");
/// assert_eq!(group_of("news", 2), "news");
/// assert_eq!(group_of("$space/devices", 1), "$space/devices");
/// ```
pub fn group_of(topic: &str, levels: usize) -> &str {
    if topic.starts_with('$') {
        return topic;
    }
    match topic.match_indices('/').nth(levels.max(1) - 1) {
        Some((end, _)) => &topic[..end],
        None => topic,
    }
}

/// The names of the keys of a cluster.
#[derive(Debug, Clone)]
pub struct Keys {
    prefix: String,
    logs: String,
}

impl Keys {
    /// The keys of the cluster of this name.
    pub fn new(cluster: &str) -> Self {
        Self { prefix: format!("/rbmq/{cluster}/"), logs: format!("/rbmq-logs/{cluster}/") }
    }

    /// How all keys begin.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The key of what a member may write of the log of a topic. It is not among the others.
    pub fn log(&self, topic: &str) -> String {
        format!("{}{topic}", self.logs)
    }

    /// The key of a member.
    pub fn member(&self, id: &str) -> String {
        format!("{}members/{id}", self.prefix)
    }

    /// The key of a group.
    pub fn group(&self, group: &str) -> String {
        format!("{}map/{group}", self.prefix)
    }

    /// The key of the wish to drain a member.
    pub fn drain(&self, id: &str) -> String {
        format!("{}drain/{id}", self.prefix)
    }
}

/// A broker that lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Where clients and brokers connect, the best first.
    pub addresses: Vec<String>,
    /// The running system that it is on: a broker that was started again there has the same addresses.
    pub host: String,
    /// The version of its program.
    pub version: String,
    /// Its archive, if the logs of the cluster go on there.
    pub archive: String,
    /// The revision that made the key.
    pub created: i64,
    /// The lease that the key ends with.
    pub lease: i64,
    /// The revision that changed the key last.
    pub modified: i64,
}

impl Member {
    pub(crate) fn value(settings: &MemberSettings) -> Vec<u8> {
        let MemberSettings { addresses, host, version, archive, .. } = settings;
        let mut value = json!({ "addresses": addresses, "host": host, "version": version });
        if !archive.is_empty() {
            value["archive"] = archive.as_str().into();
        }
        value.to_string().into_bytes()
    }

    fn parse(kv: &KeyValue) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(&kv.value).map_err(|error| error.to_string())?;
        let addresses = value["addresses"].as_array().ok_or("there are no addresses")?;
        let address = |value: &Value| value.as_str().filter(|text| is_address(text)).map(str::to_owned);
        let addresses: Option<Vec<_>> = addresses.iter().take(MAX_ADDRESSES).map(address).collect();
        let addresses = addresses.filter(|all| !all.is_empty()).ok_or("an address is none")?;
        let text = |name: &str, most: usize| -> String {
            let text = value[name].as_str().unwrap_or_default();
            text.chars().filter(|c| !c.is_control()).take(most).collect()
        };
        let (host, version) = (text("host", MAX_NAME_BYTES), text("version", MAX_NAME_BYTES));
        let archive = text("archive", MAX_ARCHIVE_LETTERS);
        let KeyValue { created, modified, lease, .. } = *kv;
        Ok(Self { addresses, host, version, archive, created, lease, modified })
    }
}

fn is_address(text: &str) -> bool {
    let legal = |c: char| c != ',' && !c.is_whitespace() && !c.is_control();
    !text.is_empty() && text.len() <= MAX_ADDRESS_BYTES && text.chars().all(legal)
}

/// Who has a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The member, which may be away.
    pub owner: String,
    /// Grows by one with each change of the owner.
    pub term: u64,
    /// The revision that changed the key last.
    pub modified: i64,
}

impl Entry {
    /// The value of a key in the map.
    pub fn value(owner: &str, term: u64) -> Vec<u8> {
        json!({ "owner": owner, "term": term }).to_string().into_bytes()
    }

    fn parse(kv: &KeyValue) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(&kv.value).map_err(|error| error.to_string())?;
        let owner = value["owner"].as_str().filter(|text| is_name(text)).ok_or("there is no owner")?;
        let term = value["term"].as_u64().filter(|term| *term > 0).ok_or("there is no term")?;
        Ok(Self { owner: owner.to_owned(), term, modified: kv.modified })
    }
}

/// What etcd says at one revision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Map {
    /// The brokers that live.
    pub members: BTreeMap<String, Member>,
    /// The groups with an owner.
    pub groups: BTreeMap<String, Entry>,
    /// The members that get no new groups.
    pub draining: BTreeSet<String>,
    /// Keys that make no sense, with the reason. They are left alone: a group with such a key has no owner until an operator looks at it.
    pub unreadable: BTreeMap<String, String>,
}

impl Map {
    /// Reads a snapshot.
    pub fn read(snapshot: &Snapshot, keys: &Keys) -> Self {
        let mut map = Self::default();
        for kv in &snapshot.keys {
            let name = kv.key.strip_prefix(keys.prefix()).unwrap_or_default();
            let read = match name.split_once('/') {
                Some(("members", id)) if is_name(id) => Member::parse(kv).map(|member| {
                    map.members.insert(id.to_owned(), member);
                }),
                Some(("map", group)) => Entry::parse(kv).map(|entry| {
                    map.groups.insert(group.to_owned(), entry);
                }),
                Some(("drain", id)) => {
                    map.draining.insert(id.to_owned());
                    Ok(())
                }
                _ => Err("it is no key of a cluster".into()),
            };
            if let Err(problem) = read {
                map.unreadable.insert(kv.key.clone(), problem);
            }
        }
        map
    }

    /// The member that a group without an owner belongs to: the one whose name and that of the group have the highest hash (rendezvous
    /// hashing). All members name the same one, and a member that comes or goes moves no other group.
    pub fn place(&self, group: &str) -> Option<&str> {
        self.place_without(group, None)
    }

    /// As [`place`](Self::place), without a member that leaves.
    pub fn place_without(&self, group: &str, leaving: Option<&str>) -> Option<&str> {
        let stays = |id: &&String| !self.draining.contains(*id) && leaving != Some(id.as_str());
        let ids = self.members.keys().filter(stays);
        ids.max_by_key(|id| (weight(group, id), *id)).map(String::as_str)
    }
}

/// A number that other bytes hardly have (FNV-1a).
pub(crate) fn hash(bytes: impl Iterator<Item = u8>) -> u64 {
    let add = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.fold(0xcbf2_9ce4_8422_2325, add)
}

/// The weight of a member for a group (FNV-1a, and the end of SplitMix64, which mixes the last bytes too). It is part of the protocol: members of
/// all versions must agree.
fn weight(group: &str, id: &str) -> u64 {
    let hash = hash(group.bytes().chain([0]).chain(id.bytes()));
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kv(key: &str, value: &str) -> KeyValue {
        KeyValue { key: format!("/rbmq/c/{key}"), value: value.into(), created: 1, modified: 2, lease: 3 }
    }

    #[test]
    fn what_makes_no_sense_is_named_and_nothing_else_suffers() {
        let keys = [
            kv("members/a", r#"{"addresses":["h:1","i:2"],"version":"1\u001b","more":1}"#),
            kv("members/b", r#"{"addresses":[]}"#),
            kv("members/c", r#"{"addresses":["h:1,i:2"]}"#),
            kv("members/d e", r#"{"addresses":["h:1"]}"#),
            kv("map/plant/a", r#"{"owner":"a","term":7}"#),
            kv("map/x", r#"{"owner":"a"}"#),
            kv("map/y", r#"{"owner":"a","term":-1}"#),
            kv("map/z", "\u{ff}"),
            kv("drain/a", "anything"),
            kv("other", ""),
        ];
        let map = Map::read(&Snapshot { revision: 9, keys: keys.to_vec() }, &Keys::new("c"));
        assert_eq!(map.members.keys().collect::<Vec<_>>(), ["a"]);
        assert_eq!((map.members["a"].addresses.len(), map.members["a"].version.as_str()), (2, "1"));
        assert_eq!(map.groups["plant/a"], Entry { owner: "a".into(), term: 7, modified: 2 });
        assert_eq!((map.groups.len(), map.draining.len(), map.unreadable.len()), (1, 1, 7));
    }

    #[test]
    fn groups_spread_and_stay_where_they_are() {
        let member = || Member {
            addresses: vec!["h:1".into()],
            host: String::new(),
            version: String::new(),
            archive: String::new(),
            created: 1,
            lease: 1,
            modified: 1,
        };
        let mut map = Map::default();
        assert_eq!(map.place("g"), None);
        map.members = ["a", "b", "c"].into_iter().map(|id| (id.to_owned(), member())).collect();
        let places = |map: &Map| -> Vec<String> {
            (0..3000).map(|n| map.place(&format!("group {n}")).unwrap().to_owned()).collect()
        };
        let before = places(&map);
        for id in ["a", "b", "c"] {
            let share = before.iter().filter(|place| *place == id).count();
            assert!((800..1200).contains(&share), "{id}: {share}");
        }
        map.draining.insert("b".into());
        let after = places(&map);
        for (before, after) in before.iter().zip(&after) {
            assert!(after != "b" && (before == "b" || before == after));
        }
        // Other versions of the program must agree.
        assert_eq!(weight("plant", "a"), 0xe6ac_e45b_e876_aa22);
    }
}
