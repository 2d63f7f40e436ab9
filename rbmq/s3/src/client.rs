//! Requests to a store: signed, one at a time for each thread, and refusals in words.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use locks::Mutex;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rbmq_broker::{ArchiveError, S3Settings};
use rocketbufs::Position;
use rocketbufs::fields::printable;
use tracing::warn;
use ureq::http::Request as HttpRequest;
use ureq::tls::TlsConfig;

use super::error::S3Error;
use super::keys::{KeySource, Keys};
use super::page::{Page, element, name};
use super::sign::{Header, Request, Scope, authorization, hash};

/// The largest object: a batch, or one delivery that is larger.
pub(crate) const MAX_OBJECT_BYTES: u64 = 1 << 30;

/// The largest list: a thousand names of at most 1 KiB each, with what is said of each.
const MAX_LIST_BYTES: u64 = 4 << 20;

/// The largest answer to a PUT, or refusal.
const MAX_REFUSAL_BYTES: u64 = 64 << 10;

/// How long a store that asks for fewer requests is left alone: first, and at most.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];

/// The longest word of a store that is repeated.
const MAX_REASON_LETTERS: usize = 300;

/// What may stand in a query as it is.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A bucket of a store.
pub(crate) struct Client {
    agent: ureq::Agent,
    /// The address with its scheme.
    endpoint: String,
    bucket: String,
    region: String,
    source: KeySource,
    keys: Mutex<Keys>,
    /// The last attempt to read the keys again has failed.
    keys_fail: AtomicBool,
    pause: Mutex<Pause>,
}

/// A pause, which the store asked for or needs.
#[derive(Default)]
struct Pause {
    until: Option<Instant>,
    /// That of the last pause the store asked for.
    length: Duration,
}

struct Call<'a> {
    method: &'a str,
    /// The name of the object; empty for the bucket.
    key: &'a str,
    query: String,
    body: &'a [u8],
    /// Only if there is no object of this name.
    only_new: bool,
    /// The largest answer that is no refusal.
    limit: u64,
}

struct Answer {
    status: u16,
    region: Option<String>,
    body: Vec<u8>,
}

impl Client {
    /// The bucket of the settings. Nothing is asked yet.
    ///
    /// # Errors
    /// There is no key, or the address wants TLS, and this program has none.
    pub(crate) fn new(settings: &S3Settings) -> Result<Self, S3Error> {
        let source = KeySource::new(&settings.access_key_file);
        let keys = Mutex::new(source.read()?);
        let endpoint = match &*settings.endpoint {
            "" => format!("https://s3.{}.amazonaws.com", settings.region),
            endpoint => endpoint.to_owned(),
        };
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .timeout_global(Some(settings.timeout()));
        let config = match endpoint.starts_with("https:") {
            true => config.tls_config(tls().map_err(S3Error::Tls)?),
            false => config,
        };
        let (bucket, region) = (settings.bucket.clone(), settings.region.clone());
        let agent = config.build().new_agent();
        let (keys_fail, pause) = (AtomicBool::new(false), Mutex::default());
        Ok(Self { agent, endpoint, bucket, region, source, keys, keys_fail, pause })
    }

    /// Gets an object. None: there is none.
    ///
    /// # Errors
    /// [`ArchiveError`].
    pub(crate) fn get(&self, key: &str) -> Result<Option<Vec<u8>>, ArchiveError> {
        let (query, limit) = (String::new(), MAX_OBJECT_BYTES);
        let call = Call { method: "GET", key, query, body: &[], only_new: false, limit };
        let answer = self.call(&call)?;
        match answer.status {
            200 => Ok(Some(answer.body)),
            // Anything else is the answer of something in between, which does not know.
            404 if answer.element("Code") == Some("NoSuchKey") => Ok(None),
            _ => Err(self.refused(&call, &answer)),
        }
    }

    /// Makes an object. False: there is one of this name.
    ///
    /// # Errors
    /// [`ArchiveError`].
    pub(crate) fn put_new(&self, key: &str, body: &[u8]) -> Result<bool, ArchiveError> {
        let (query, limit) = (String::new(), MAX_REFUSAL_BYTES);
        let call = Call { method: "PUT", key, query, body, only_new: true, limit };
        let answer = self.call(&call)?;
        match answer.status {
            200 => Ok(true),
            412 => Ok(false),
            _ => Err(self.refused(&call, &answer)),
        }
    }

    /// The names in a folder that are positions from this one on, as many as the store tells at once, or `most`.
    ///
    /// # Errors
    /// [`ArchiveError`].
    pub(crate) fn list(&self, folder: &str, from: Position, most: u32) -> Result<Page, ArchiveError> {
        let encoded = |text: &str| utf8_percent_encode(text, QUERY).to_string();
        // The list begins behind a name.
        let after = match from.checked_sub(1) {
            Some(before) => format!("&start-after={}", encoded(&format!("{folder}{}", name(before)))),
            None => String::new(),
        };
        let query = format!("list-type=2&max-keys={most}&prefix={}{after}", encoded(folder));
        let limit = MAX_LIST_BYTES;
        let call = Call { method: "GET", key: "", query, body: &[], only_new: false, limit };
        let answer = self.call(&call)?;
        if answer.status != 200 {
            return Err(self.refused(&call, &answer));
        }
        let page = str::from_utf8(&answer.body).ok().and_then(|xml| Page::read(xml, folder));
        let page = page.ok_or_else(|| self.down("its list of objects cannot be read".into()))?;
        match page.positions.first() {
            Some(first) if *first < from => {
                Err(self.down("its list begins before the name that was asked for".into()))
            }
            _ => Ok(page),
        }
    }

    fn down(&self, reason: String) -> ArchiveError {
        ArchiveError::Down(format!("the bucket '{}' at {}: {reason}", self.bucket, self.endpoint))
    }

    fn call(&self, call: &Call<'_>) -> Result<Answer, ArchiveError> {
        if self.pause.lock().until.is_some_and(|until| Instant::now() < until) {
            return Err(self.down("it has asked for fewer requests, or did not answer in time".into()));
        }
        let answer = self.send(call).map_err(|reason| self.down(reason))?;
        let mut pause = self.pause.lock();
        let [first, longest] = PAUSES;
        *pause = match answer.status {
            429 | 503 => {
                let length = (pause.length * 2).clamp(first, longest);
                Pause { until: Some(Instant::now() + length), length }
            }
            _ => Pause::default(),
        };
        Ok(answer)
    }

    fn send(&self, call: &Call<'_>) -> Result<Answer, String> {
        let path = format!("/{}{}{}", self.bucket, if call.key.is_empty() { "" } else { "/" }, call.key);
        let mark = if call.query.is_empty() { "" } else { "?" };
        let uri = format!("{}{path}{mark}{}", self.endpoint, call.query);
        let mut request = HttpRequest::builder().method(call.method).uri(uri);
        for Header { name, value } in self.headers(call, &path).iter().map(Own::header) {
            request = request.header(name, value);
        }
        let sent = match call.method {
            "PUT" => self.agent.run(request.body(call.body).map_err(|error| error.to_string())?),
            _ => self.agent.run(request.body(()).map_err(|error| error.to_string())?),
        };
        let mut response = sent.map_err(|error| self.failed(&error))?;
        let region = response.headers().get("x-amz-bucket-region").and_then(|region| region.to_str().ok());
        let (region, expected) = (region.map(str::to_owned), response.body().content_length());
        let limit = if response.status() == 200 { call.limit } else { MAX_REFUSAL_BYTES };
        let read = response.body_mut().with_config().limit(limit).read_to_vec();
        let body =
            read.map_err(|error| format!("its answer ends early, or is too large: {}", self.failed(&error)))?;
        if expected.is_some_and(|expected| expected != body.len() as u64) {
            return Err("its answer ends early".into());
        }
        Ok(Answer { status: response.status().as_u16(), region, body })
    }

    /// A store that does not answer in time is left alone for a moment, so that not each topic waits for it.
    fn failed(&self, error: &ureq::Error) -> String {
        if let ureq::Error::Timeout(_) = error {
            self.pause.lock().until = Some(Instant::now() + PAUSES[0]);
        }
        error.to_string()
    }

    /// The headers of a request, with its signature.
    fn headers(&self, call: &Call<'_>, path: &str) -> Vec<Own> {
        let keys = self.keys.lock();
        let (time, body) = (now(), hash(call.body));
        let host = self.endpoint.split_once("://").map_or("", |(_, host)| host);
        let mut headers = vec![Own::new("host", host)];
        if call.only_new {
            headers.push(Own::new("if-none-match", "*"));
        }
        headers.extend([Own::new("x-amz-content-sha256", &body), Own::new("x-amz-date", &time)]);
        headers.extend(keys.token.iter().map(|token| Own::new("x-amz-security-token", token)));
        let signed: Vec<Header<'_>> = headers.iter().map(Own::header).collect();
        let request =
            Request { method: call.method, path, query: &call.query, headers: &signed, body: &body };
        let scope = Scope { time: &time, region: &self.region, service: "s3" };
        let value = authorization(&request, &scope, &keys.id, &keys.secret);
        headers.push(Own::new("authorization", &value));
        headers
    }

    /// The refusal of a store in words, and what can be done. What may go away by itself is asked again.
    fn refused(&self, call: &Call<'_>, answer: &Answer) -> ArchiveError {
        let (code, status) = (answer.word("Code").unwrap_or_else(|| "no reason".into()), answer.status);
        let message = answer.word("Message").unwrap_or_default();
        let said = printable(&format!("HTTP {status}, {code}: {message}"));
        let about = |what: &str| format!("{what} ({said})");
        match (status, &*code) {
            (_, "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired") => {
                self.read_keys();
                self.down(about("the session of the access key has ended"))
            }
            // Also a bucket that was just made, or something in between. A key that is no key has this answer too.
            (301 | 307, _) | (400, "AuthorizationHeaderMalformed") => {
                if status == 400 {
                    self.read_keys();
                }
                let region = answer.region.clone().or_else(|| answer.word("Region"));
                let region = region.as_deref().unwrap_or("another one");
                self.down(about(&format!(
                    "it is in another region: set s3.region = {:?}, and s3.endpoint",
                    printable(region)
                )))
            }
            (404, "NoSuchBucket") => self.down(about("there is no such bucket")),
            (403, "RequestTimeTooSkewed") => {
                self.down(about("the clock of this machine or of the store is wrong"))
            }
            (403, "InvalidObjectState") => {
                self.down(about("a rule of the bucket has moved the object to an archive class"))
            }
            (401 | 403, _) => {
                self.read_keys();
                self.down(about("the access key is refused"))
            }
            (429 | 503, _) => self.down(about("it asks for fewer requests")),
            _ => self.down(about(&format!("{} is refused", call.method))),
        }
    }

    /// The key may have been exchanged.
    fn read_keys(&self) {
        match self.source.read() {
            Ok(keys) => {
                *self.keys.lock() = keys;
                self.keys_fail.store(false, Ordering::Relaxed);
            }
            // Each topic comes here each second.
            Err(error) if !self.keys_fail.swap(true, Ordering::Relaxed) => warn!("{error}"),
            Err(_) => {}
        }
    }
}

/// A header that owns its value.
struct Own {
    name: &'static str,
    value: String,
}

impl Own {
    fn new(name: &'static str, value: &str) -> Self {
        Self { name, value: value.to_owned() }
    }

    fn header(&self) -> Header<'_> {
        Header { name: self.name, value: &self.value }
    }
}

impl Answer {
    fn element(&self, tag: &str) -> Option<&str> {
        str::from_utf8(&self.body).ok().and_then(|xml| element(xml, tag))
    }

    /// The content of an element, as much as may be repeated.
    fn word(&self, tag: &str) -> Option<String> {
        Some(self.element(tag)?.chars().take(MAX_REASON_LETTERS).collect())
    }
}

/// The time as `20150830T123600Z`.
fn now() -> String {
    let text = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    text.replace(['-', ':'], "")
}

/// A random number.
///
/// # Errors
/// The system has none.
pub(crate) fn random() -> Result<u128, S3Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(S3Error::Random)?;
    Ok(u128::from_le_bytes(bytes))
}

/// TLS by the provider of the project, with the certificates of the system.
#[cfg(feature = "tls")]
fn tls() -> Result<TlsConfig, String> {
    use std::sync::Arc;

    use ureq::tls::{Certificate, RootCerts, TlsProvider};

    let found = rustls_native_certs::load_native_certs();
    let certs: Vec<_> = found.certs.iter().map(|cert| Certificate::from_der(cert).to_owned()).collect();
    if certs.is_empty() {
        let why = found.errors.first().map_or(String::new(), |error| format!(": {error}"));
        return Err(format!(
            "this system has no certificates of authorities (SSL_CERT_FILE names others){why}"
        ));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(RootCerts::Specific(Arc::new(certs)))
        .unversioned_rustls_crypto_provider(provider);
    Ok(config.build())
}

#[cfg(not(feature = "tls"))]
fn tls() -> Result<TlsConfig, String> {
    Err("this program was built without the feature 'tls'".into())
}
