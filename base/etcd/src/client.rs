//! Calls of etcd, at whichever of its endpoints answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use peers::Secret;
use rustls::ClientConfig;
use serde_json::{Value, json};

use super::connection::{Connection, Head};
use super::endpoint::Endpoint;
use super::error::{EtcdError, senseless};
use super::json::{self, KeyValue, Lease, Snapshot, Txn};
use super::watch::Watch;

/// The largest answer. A page of keys is far smaller.
const MAX_ANSWER: usize = 8 << 20;
/// The keys of a page. etcd itself sends no answer above 2 MiB by default.
const PAGE: usize = 1_000;
/// The most keys of a snapshot.
const MAX_KEYS: usize = 200_000;

/// Where etcd is, and who asks.
#[derive(Clone)]
pub struct ClientSettings {
    /// The endpoints, at least one. They are members of one etcd.
    pub endpoints: Vec<Endpoint>,
    /// How encrypted endpoints are verified, and the own certificate. Only `http://` endpoints can do without.
    pub tls: Option<Arc<ClientConfig>>,
    /// The user and the password, if etcd asks for them.
    pub login: Option<(String, Secret)>,
    /// How long an endpoint may take for a call.
    pub timeout: Duration,
}

/// A client of etcd for one thread. Each call tries the endpoints one after the other, beginning with the one that answered last. So a change
/// may be asked for twice; a transaction with a condition does no harm then.
pub struct Client {
    settings: ClientSettings,
    /// The endpoint that answered last.
    current: usize,
    /// Its connection.
    connection: Option<Connection>,
    /// What etcd has given for the password.
    token: Option<String>,
}

impl Client {
    /// Nobody is asked yet.
    ///
    /// # Panics
    /// There is no endpoint.
    pub fn new(settings: ClientSettings) -> Self {
        assert!(!settings.endpoints.is_empty(), "at least one endpoint");
        Self { settings, current: 0, connection: None, token: None }
    }

    /// All keys with a prefix.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub fn range(&mut self, prefix: &str) -> Result<Snapshot, EtcdError> {
        let (mut snapshot, mut from, mut most) = (Snapshot::default(), prefix.to_owned(), PAGE);
        loop {
            let request = json::range(prefix, &from, most, snapshot.revision);
            let (page, more) = match self.call("/v3/kv/range", &request, json::keys) {
                // A few large values, which somebody else has written.
                Err(error) if error.is_too_long() && most > 1 => {
                    most = (most / 32).max(1);
                    continue;
                }
                page => page?,
            };
            if snapshot.revision == 0 {
                snapshot.revision = page.revision;
            }
            let is_empty = page.keys.is_empty();
            snapshot.keys.extend(page.keys);
            if more && (is_empty || snapshot.keys.len() > MAX_KEYS) {
                return Err(self.senseless(format!("there are more than {MAX_KEYS} keys below {prefix}")));
            }
            match snapshot.keys.last() {
                Some(last) if more => from = format!("{}\0", last.key),
                _ => return Ok(snapshot),
            }
        }
    }

    /// The value of one key. None: no key has this name.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub fn get(&mut self, key: &str) -> Result<Option<KeyValue>, EtcdError> {
        let (snapshot, _) = self.call("/v3/kv/range", &json::get(key), json::keys)?;
        Ok(snapshot.keys.into_iter().find(|kv| kv.key == key))
    }

    /// Makes the changes of a transaction if its conditions hold. Returns whether they did.
    ///
    /// # Errors
    /// [`EtcdError`]; the changes may have been made, unless it was refused.
    pub fn txn(&mut self, txn: &Txn) -> Result<bool, EtcdError> {
        let succeeded =
            |answer: &Value| json::revision(answer).map(|_| answer["succeeded"].as_bool().unwrap_or(false));
        self.call("/v3/kv/txn", &txn.json(), succeeded)
    }

    /// Makes a lease.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub fn grant(&mut self, ttl_s: u64) -> Result<Lease, EtcdError> {
        self.call("/v3/lease/grant", &json!({ "TTL": ttl_s.to_string() }), json::lease)
    }

    /// Renews a lease. One that is gone has 0 seconds.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub fn keep_alive(&mut self, lease: i64) -> Result<Lease, EtcdError> {
        let renewed = |answer: &Value| json::lease(&answer["result"]);
        self.call("/v3/lease/keepalive", &json!({ "ID": lease.to_string() }), renewed)
    }

    /// Ends a lease, and the keys that it has. One that is gone is an error.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub fn revoke(&mut self, lease: i64) -> Result<(), EtcdError> {
        self.call("/v3/lease/revoke", &json!({ "ID": lease.to_string() }), |_| Ok(()))
    }

    /// Starts to be told of changes of keys with a prefix, from a revision on.
    ///
    /// # Errors
    /// [`EtcdError`]. The next call tries another endpoint.
    pub fn watch(&mut self, prefix: &str, from: i64) -> Result<Watch, EtcdError> {
        let request = json::watch(prefix, from).to_string();
        let started = self.attempt(|client, until| {
            let mut connection = client.open(until)?;
            let head = client.ask(&mut connection, "/v3/watch", &request)?;
            if head.status == 200 {
                return Ok(Watch::new(client.endpoint().clone(), connection));
            }
            Err(client.refusal(&mut connection, &head))
        });
        self.note(started)
    }

    /// Asks one endpoint after the other.
    fn call<T>(
        &mut self,
        path: &str,
        request: &Value,
        read: impl Fn(&Value) -> Result<T, String>,
    ) -> Result<T, EtcdError> {
        let request = request.to_string();
        let mut tried = 0;
        loop {
            let answer = self.attempt(|client, until| client.call_once(path, &request, until));
            let answer = answer.and_then(|json| read(&json).map_err(|problem| self.senseless(problem)));
            tried += 1;
            match self.note(answer) {
                Err(error) if !error.is_final() && tried < self.settings.endpoints.len() => {}
                answer => return answer,
            }
        }
    }

    /// After a failure the next endpoint is asked.
    fn note<T>(&mut self, result: Result<T, EtcdError>) -> Result<T, EtcdError> {
        if result.as_ref().is_err_and(|error| !error.is_final()) {
            self.connection = None;
            self.current = (self.current + 1) % self.settings.endpoints.len();
        }
        result
    }

    /// Does something with the current endpoint, within the time of a call. Where the token is missing or too old, once more with a new one.
    fn attempt<T>(
        &mut self,
        mut run: impl FnMut(&mut Self, Instant) -> Result<T, EtcdError>,
    ) -> Result<T, EtcdError> {
        let until = Instant::now() + self.settings.timeout;
        let may_log_in = self.settings.login.is_some();
        if may_log_in && self.token.is_none() {
            self.log_in(until)?;
        }
        match run(self, until) {
            Err(error) if may_log_in && error.wants_login() => {
                self.log_in(until)?;
                run(self, until)
            }
            result => result,
        }
    }

    fn log_in(&mut self, until: Instant) -> Result<(), EtcdError> {
        let Some((user, password)) = &self.settings.login else { return Ok(()) };
        let request = json!({ "name": user, "password": password.expose() }).to_string();
        self.token = None;
        let answer = self.call_once("/v3/auth/authenticate", &request, until)?;
        let legal = |token: &&str| token.bytes().all(|byte| byte.is_ascii_graphic());
        let token = answer["token"].as_str().filter(legal).map(str::to_owned);
        self.token = Some(token.ok_or_else(|| self.senseless("there is no token".into()))?);
        Ok(())
    }

    /// Asks the current endpoint. A connection that has ended since the last call is made anew.
    fn call_once(&mut self, path: &str, request: &str, until: Instant) -> Result<Value, EtcdError> {
        if let Some(mut connection) = self.connection.take().filter(Connection::is_free) {
            connection.set_end(until);
            match self.ask(&mut connection, path, request) {
                // What was asked then may have been done; the caller's conditions see to that.
                Err(EtcdError::Unreachable { .. }) => {}
                head => return self.answer(connection, &head?),
            }
        }
        let mut connection = self.open(until)?;
        let head = self.ask(&mut connection, path, request)?;
        self.answer(connection, &head)
    }

    fn open(&self, until: Instant) -> Result<Connection, EtcdError> {
        let endpoint = self.endpoint();
        let tls = self.settings.tls.as_ref().filter(|_| endpoint.encrypted);
        if endpoint.encrypted && tls.is_none() {
            let source = std::io::Error::other("https needs the certificate of its authority");
            return Err(EtcdError::of_io(endpoint, source));
        }
        Connection::open(endpoint, tls, until).map_err(|error| EtcdError::of_io(endpoint, error))
    }

    fn ask(&self, connection: &mut Connection, path: &str, request: &str) -> Result<Head, EtcdError> {
        let head = connection.request(path, request, self.token.as_deref());
        head.map_err(|error| EtcdError::of_io(self.endpoint(), error))
    }

    /// Reads the answer, and keeps the connection for the next call.
    fn answer(&mut self, mut connection: Connection, head: &Head) -> Result<Value, EtcdError> {
        if head.status != 200 {
            let refusal = self.refusal(&mut connection, head);
            self.connection = Some(connection);
            return Err(refusal);
        }
        let json = connection.read_all(MAX_ANSWER).and_then(|body| {
            serde_json::from_slice::<Value>(&body).map_err(|error| senseless(format!("no JSON: {error}")))
        });
        let json = json.map_err(|error| EtcdError::of_io(self.endpoint(), error))?;
        self.connection = Some(connection);
        match json.is_object() {
            true => Ok(json),
            false => Err(self.senseless("no object of JSON".into())),
        }
    }

    /// The error of an answer with another status than 200.
    fn refusal(&self, connection: &mut Connection, head: &Head) -> EtcdError {
        let endpoint = self.endpoint();
        if let Some(location) = &head.location {
            return self.senseless(format!("it redirects to {location:?}; name the etcd itself"));
        }
        let body = match connection.read_all(MAX_ANSWER) {
            Ok(body) => body,
            Err(error) => return EtcdError::of_io(endpoint, error),
        };
        let json: Value = serde_json::from_slice(&body).unwrap_or_default();
        let code = json::number(&json, "code").unwrap_or_default();
        let words = json["message"].as_str().or(json["error"].as_str()).unwrap_or("no reason given");
        let words: String = words.chars().filter(|c| !c.is_control()).take(300).collect();
        EtcdError::of_status(endpoint, head.status, code, words)
    }

    fn senseless(&self, problem: String) -> EtcdError {
        EtcdError::Answer { endpoint: self.endpoint().to_string(), problem }
    }

    fn endpoint(&self) -> &Endpoint {
        &self.settings.endpoints[self.current]
    }
}
