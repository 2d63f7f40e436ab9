//! Consumers of a group whose broker is killed between delivery and acknowledgement.

use std::collections::{BTreeMap, BTreeSet};

use testkit::own_addr;

use super::streams::{Id, Redis, Value, id_of};
use crate::mqtt_kills::Site;

const KEY: &str = "k/group";
const NAMES: [&str; 2] = ["anna", "ben"];

/// The broker of a group, and what its consumers know.
struct Known {
    redis: Redis,
    /// Whose each entry is that was delivered, and not acknowledged with an answer.
    pending: BTreeMap<Id, &'static str>,
    acknowledged: BTreeSet<Id>,
    /// Nobody got an answer to these acknowledgements.
    unanswered: BTreeSet<Id>,
}

fn text(id: &Id) -> String {
    format!("{}-{}", id.0, id.1)
}

/// The ids in a reply to XREADGROUP for one stream.
fn ids(reply: Value) -> Vec<Id> {
    if matches!(reply, Value::Nothing) {
        return Vec::new();
    }
    let [stream] = reply.list().try_into().expect("one stream");
    let [_, entries] = stream.list().try_into().expect("a name and entries");
    let first = |entry: Value| id_of(&entry.list().swap_remove(0).text());
    entries.list().into_iter().map(first).collect()
}

impl Known {
    fn read(&mut self, name: &'static str, from: &str) -> Vec<Id> {
        let words = ["XREADGROUP", "GROUP", "g", name, "COUNT", "20", "STREAMS", KEY, from];
        ids(self.redis.ask(&words).expect("a reply"))
    }

    /// What comes is new, and pending from then on.
    fn read_new(&mut self, name: &'static str) -> Vec<Id> {
        let got = self.read(name, ">");
        for id in &got {
            assert!(!self.acknowledged.contains(id) && !self.unanswered.contains(id), "{id:?} comes again");
            assert!(self.pending.insert(*id, name).is_none(), "{id:?} goes to two");
        }
        got
    }

    fn acknowledge(&mut self, some: &[Id]) {
        let some: Vec<String> = some.iter().map(text).collect();
        let words: Vec<&str> =
            ["XACK", KEY, "g"].into_iter().chain(some.iter().map(String::as_str)).collect();
        let Value::Number(count) = self.redis.ask(&words).expect("a reply") else { panic!("a number") };
        assert_eq!(count as usize, some.len());
        for id in some.iter().map(|text| id_of(text)) {
            self.pending.remove(&id);
            self.acknowledged.insert(id);
        }
    }

    /// The killed broker knows what was answered: nothing that was acknowledged is pending, all else is, with its consumer.
    fn check(&mut self) {
        let rows = self.redis.ask(&["XPENDING", KEY, "g", "-", "+", "100000"]).expect("a reply").list();
        let mut found = BTreeMap::new();
        for row in rows {
            let mut row = row.list().into_iter();
            let mut next = || row.next().expect("four values");
            found.insert(id_of(&next().text()), next().text());
        }
        for id in std::mem::take(&mut self.unanswered) {
            let is_pending = found.contains_key(&id);
            if !is_pending {
                self.pending.remove(&id);
                self.acknowledged.insert(id);
            }
        }
        let expected: BTreeMap<Id, String> =
            self.pending.iter().map(|(id, name)| (*id, (*name).to_owned())).collect();
        assert_eq!(found, expected);
        for name in NAMES {
            let own: Vec<Id> =
                expected.iter().filter(|(_, of)| *of == name).map(|(id, _)| *id).take(20).collect();
            assert_eq!(self.read(name, "0"), own, "the history of {name}");
        }
    }
}

#[test]
fn consumers_of_a_killed_broker_have_what_they_had_and_nothing_twice() {
    let dir = tempfile::tempdir().expect("a folder");
    let resp = own_addr();
    let more = format!(
        "[[broker.topics]]\npattern = 'k/#'\nkeep = true\n[[gateway]]\nprotocol = 'resp'\nlisten = '{resp}'\n"
    );
    let mut site = Site::with(dir.path(), &more);
    let redis = Redis::connect(&resp);
    let (pending, acknowledged, unanswered) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
    let mut known = Known { redis, pending, acknowledged, unanswered };
    known.redis.ask(&["XGROUP", "CREATE", KEY, "g", "$", "MKSTREAM"]).expect("a reply");
    let mut written = BTreeSet::new();
    for round in 0..4 {
        for number in 0..50 {
            let id = known.redis.ask(&["XADD", KEY, "*", "n", &number.to_string()]).expect("a reply").text();
            written.insert(id_of(&id));
        }
        for name in NAMES {
            let got = known.read_new(name);
            assert_eq!(got.len(), 20);
            known.acknowledge(&got[..7]);
            // These are on their way when the broker is killed.
            let rest: Vec<String> = got[7..9].iter().map(text).collect();
            known.redis.send_only(&["XACK", KEY, "g", &rest[0], &rest[1]]);
            known.unanswered.extend(&got[7..9]);
            known.redis = Redis::connect(&resp);
        }
        site.kill();
        known.redis = Redis::connect(&resp);
        known.check();
        assert!(round > 0 || !known.pending.is_empty());
    }
    // The rest comes once, and then everything is done.
    while !known.read_new(NAMES[0]).is_empty() {}
    let rest: Vec<Id> = known.pending.keys().copied().collect();
    known.acknowledge(&rest);
    site.kill();
    known.redis = Redis::connect(&resp);
    known.check();
    assert_eq!(known.acknowledged, written);
}
