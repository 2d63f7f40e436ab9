//! What members may write of the logs that go on in an archive.
//!
//! ```text
//!   /rbmq-logs/NAME/TOPIC   {"log": "00ab…", "begin": 17592186044416, "limit": 35184372088832, "term": 3, "mark": 81}   without a lease
//! ```
//!
//! These keys are not below those of the map, since members need not know all of them at once: an owner asks for that of a topic when it gets the
//! topic, and for the names of all when it gets a group. A change is
//! a transaction that finds the key as it was read and the group of the topic at this member, in this term. So of two members that both take
//! themselves for the owner one gets positions, and those are behind all that others have got.

use locks::Mutex;
use serde_json::{Value, json};

use etcd::{Change, Client, ClientSettings, Compare, EtcdError, KeyValue, Txn};

/// The most clients that are kept for the next questions.
const MAX_CLIENTS: usize = 4;

/// Who may write which positions of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogClaim {
    /// The name of the log.
    pub log: u128,
    /// Where its last owner has begun to write.
    pub begin: u64,
    /// What its last owner may write is below.
    pub limit: u64,
    /// The term of its last owner.
    pub term: u64,
    /// A random number of the owner that has begun there.
    pub mark: u64,
    /// The revision that changed the key last. 0: there is none.
    pub revision: i64,
}

impl LogClaim {
    fn value(&self) -> Vec<u8> {
        let Self { log, begin, limit, term, mark, .. } = self;
        json!({ "log": format!("{log:032x}"), "begin": begin, "limit": limit, "term": term, "mark": mark })
            .to_string()
            .into_bytes()
    }

    fn parse(kv: &KeyValue) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(&kv.value).map_err(|error| error.to_string())?;
        let log = value["log"].as_str().filter(|text| text.len() == 32);
        let log = log.and_then(|text| u128::from_str_radix(text, 16).ok()).ok_or("there is no log")?;
        let number = |name: &str| value[name].as_u64().ok_or_else(|| format!("there is no {name}"));
        let (begin, limit, term, mark) =
            (number("begin")?, number("limit")?, number("term")?, number("mark")?);
        if begin >= limit {
            return Err("it begins behind its limit".into());
        }
        Ok(Self { log, begin, limit, term, mark, revision: kv.modified })
    }
}

/// Asks etcd for claims. Several threads may ask.
#[derive(Default)]
pub(crate) struct Claims {
    settings: Mutex<Option<ClientSettings>>,
    idle: Mutex<Vec<Client>>,
}

impl Claims {
    /// Where etcd is.
    pub(crate) fn set(&self, settings: &ClientSettings) {
        *self.settings.lock() = Some(settings.clone());
    }

    fn ask<T>(&self, ask: impl FnOnce(&mut Client) -> Result<T, EtcdError>) -> Result<T, String> {
        let idle = self.idle.lock().pop();
        let client = idle.or_else(|| self.settings.lock().clone().map(Client::new));
        let mut client = client.ok_or("this broker is no member yet")?;
        let answer = ask(&mut client);
        let mut idle = self.idle.lock();
        if idle.len() < MAX_CLIENTS {
            idle.push(client);
        }
        answer.map_err(|error| error.to_string())
    }

    /// What a key says. None: there is no such key.
    pub(crate) fn get(&self, key: &str) -> Result<Option<LogClaim>, String> {
        let found = self.ask(|client| client.get(key))?;
        let claim = found.as_ref().map(LogClaim::parse).transpose();
        claim.map_err(|problem| format!("etcd's key {key} makes no sense: {problem}"))
    }

    /// What follows a prefix in the names of keys.
    pub(crate) fn names(&self, prefix: &str) -> Result<Vec<String>, String> {
        let found = self.ask(|client| client.range(prefix))?;
        Ok(found.keys.iter().filter_map(|kv| kv.key.strip_prefix(prefix)).map(str::to_owned).collect())
    }

    /// Sets a key, if it was not changed since, and the key of the group neither.
    pub(crate) fn put(&self, key: &str, claim: &LogClaim, group: Compare) -> Result<bool, String> {
        let key = key.to_owned();
        let compare = match claim.revision {
            0 => Compare::Absent { key: key.clone() },
            modified => Compare::Unchanged { key: key.clone(), modified },
        };
        let change = Change::Put { key, value: claim.value(), lease: 0 };
        let txn = Txn { compares: vec![compare, group], changes: vec![change] };
        self.ask(|client| client.txn(&txn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_comes_back_and_others_are_named() {
        let claim =
            LogClaim { log: 0xab, begin: 1 << 60, limit: u64::MAX, term: 3, mark: u64::MAX - 1, revision: 7 };
        let kv = |value: &[u8]| KeyValue {
            key: "k".into(),
            value: value.into(),
            created: 1,
            modified: 7,
            lease: 0,
        };
        assert_eq!(LogClaim::parse(&kv(&claim.value())), Ok(claim));
        let text = String::from_utf8(claim.value()).unwrap();
        for (from, to) in [("ab\"", "\""), ("\"limit\"", "\"x\""), ("18446744073709551615", "7"), ("{", "")] {
            let other = text.replace(from, to);
            assert!(other != text && LogClaim::parse(&kv(other.as_bytes())).is_err(), "{other}");
        }
    }
}
