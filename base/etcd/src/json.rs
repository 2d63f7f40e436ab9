//! Requests and answers of the gateway as JSON: numbers of 64 bits are strings, bytes are base64, and what is zero is left out.

use data_encoding::BASE64;
use serde_json::{Value, json};

/// A key with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Vec<u8>,
    /// The revision that made the key.
    pub created: i64,
    /// The revision that changed it last.
    pub modified: i64,
    /// The lease that it ends with; 0: none.
    pub lease: i64,
}

/// All keys with a prefix, as they were at one revision.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// The revision of the whole store.
    pub revision: i64,
    /// The keys in order.
    pub keys: Vec<KeyValue>,
}

/// A lease: what etcd promises to keep for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Its number.
    pub id: i64,
    /// How long it lasts, in seconds. 0: it is gone.
    pub ttl_s: u64,
}

/// A condition of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compare {
    /// The key was last changed by this revision.
    Unchanged {
        /// The key.
        key: String,
        /// The revision.
        modified: i64,
    },
    /// There is no such key.
    Absent {
        /// The key.
        key: String,
    },
    /// There is such a key.
    Present {
        /// The key.
        key: String,
    },
}

/// A change that a transaction makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Sets a key.
    Put {
        /// The key.
        key: String,
        /// The value.
        value: Vec<u8>,
        /// The lease that the key ends with; 0: none.
        lease: i64,
    },
    /// Removes a key.
    Delete {
        /// The key.
        key: String,
    },
}

/// A transaction: all changes if all conditions hold, or none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Txn {
    /// The conditions.
    pub compares: Vec<Compare>,
    /// The changes.
    pub changes: Vec<Change>,
}

fn coded(key: &str) -> String {
    BASE64.encode(key.as_bytes())
}

impl Compare {
    fn json(&self) -> Value {
        let of = |key: &str, target: &str, result: &str| json!({ "key": coded(key), "target": target, "result": result });
        let (mut json, field, revision) = match self {
            Self::Unchanged { key, modified } => (of(key, "MOD", "EQUAL"), "mod_revision", *modified),
            Self::Absent { key } => (of(key, "CREATE", "EQUAL"), "create_revision", 0),
            Self::Present { key } => (of(key, "CREATE", "GREATER"), "create_revision", 0),
        };
        json[field] = revision.to_string().into();
        json
    }
}

impl Change {
    fn json(&self) -> Value {
        match self {
            Self::Put { key, value, lease } => json!({ "request_put":
                { "key": coded(key), "value": BASE64.encode(value), "lease": lease.to_string() } }),
            Self::Delete { key } => json!({ "request_delete_range": { "key": coded(key) } }),
        }
    }
}

impl Txn {
    pub(crate) fn json(&self) -> Value {
        let compares: Vec<_> = self.compares.iter().map(Compare::json).collect();
        let changes: Vec<_> = self.changes.iter().map(Change::json).collect();
        json!({ "compare": compares, "success": changes })
    }
}

/// The request of all keys that begin with `prefix`, from `from` on, at a revision; 0: now.
pub(crate) fn range(prefix: &str, from: &str, page: usize, revision: i64) -> Value {
    json!({ "key": coded(from), "range_end": BASE64.encode(&end(prefix)), "limit": page.to_string(),
        "revision": revision.to_string() })
}

/// The request of one key.
pub(crate) fn get(key: &str) -> Value {
    json!({ "key": coded(key) })
}

/// The request to be told of changes of these keys.
pub(crate) fn watch(prefix: &str, from: i64) -> Value {
    let (key, end) = (coded(prefix), BASE64.encode(&end(prefix)));
    json!({ "create_request": { "key": key, "range_end": end, "start_revision": from.to_string() } })
}

/// The first key behind all that begin with `prefix`.
fn end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        // No byte of UTF-8 is 0xff.
        *last += 1;
    }
    end
}

/// A number of an answer; 0 if there is none.
pub(crate) fn number(value: &Value, name: &str) -> Result<i64, String> {
    let found = match &value[name] {
        Value::Null => Some(0),
        Value::String(digits) => digits.parse().ok(),
        number => number.as_i64(),
    };
    found.ok_or_else(|| format!("{name} is no number"))
}

/// Base64 of an answer; nothing if there is none.
fn bytes(value: &Value, name: &str) -> Result<Vec<u8>, String> {
    match &value[name] {
        Value::Null => Ok(Vec::new()),
        Value::String(text) => {
            BASE64.decode(text.as_bytes()).map_err(|error| format!("{name} is no base64: {error}"))
        }
        _ => Err(format!("{name} is no text")),
    }
}

/// The revision in the header of an answer. Every answer has one.
pub(crate) fn revision(answer: &Value) -> Result<i64, String> {
    match number(&answer["header"], "revision")? {
        revision if revision > 0 => Ok(revision),
        _ => Err("there is no revision".into()),
    }
}

/// The keys of the answer to [`range`], and whether there are more.
pub(crate) fn keys(answer: &Value) -> Result<(Snapshot, bool), String> {
    let none = Vec::new();
    let keys = match &answer["kvs"] {
        Value::Null => &none,
        keys => keys.as_array().ok_or("kvs is no list")?,
    };
    let keys: Result<Vec<_>, String> = keys.iter().map(key).collect();
    let more = answer["more"].as_bool().unwrap_or(false);
    Ok((Snapshot { revision: revision(answer)?, keys: keys? }, more))
}

fn key(value: &Value) -> Result<KeyValue, String> {
    let key = bytes(value, "key")?;
    Ok(KeyValue {
        // What is no text is no key of a cluster, and stays unknown.
        key: String::from_utf8_lossy(&key).into_owned(),
        value: bytes(value, "value")?,
        created: number(value, "create_revision")?,
        modified: number(value, "mod_revision")?,
        lease: number(value, "lease")?,
    })
}

/// The lease of the answers to grants and renewals.
pub(crate) fn lease(answer: &Value) -> Result<Lease, String> {
    let ttl = number(answer, "TTL")?;
    let lease = Lease { id: number(answer, "ID")?, ttl_s: u64::try_from(ttl).unwrap_or(0) };
    if lease.id == 0 { Err("there is no lease".into()) } else { Ok(lease) }
}
