//! The web-hook that decides who may publish: a POST with JSON, signed.
//!
//! ```text
//!   POST /path                                    200
//!   x-rblive-signature: sha256=HMAC(secret, body) {"allow": true, "stream": "another/name"}
//!   {"action": "publish", "stream": "camera", …}  {"allow": false, "reason": "not today"}
//! ```
//!
//! An answer with a status other than 2xx refuses, and so does an answer that does not come in time.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use bytes::Bytes;
use data_encoding::HEXLOWER;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde::{Deserialize, Serialize};
use tls13::{Credentials, SettingNames};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// The longest answer.
const MAX_ANSWER: usize = 64 << 10;
/// The longest reason that is passed on to a publisher.
const MAX_REASON: usize = 200;

/// The web-hook.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HookSettings {
    /// The address, `http://` or `https://`. Empty: no hook.
    pub url: String,
    /// The secret that signs the bodies. Empty: they are not signed.
    pub secret: String,
    /// How long an answer may take, in milliseconds. Default: 5000. Without one in time nobody publishes.
    #[serde(deserialize_with = "settings::millis")]
    pub timeout_ms: u64,
    /// Authorities that certificates of https are checked with (PEM). Default: those of Debian.
    pub authorities: PathBuf,
}

impl Default for HookSettings {
    fn default() -> Self {
        Self {
            url: String::new(),
            secret: String::new(),
            timeout_ms: 5000,
            authorities: "/etc/ssl/certs/ca-certificates.crt".into(),
        }
    }
}

/// A publisher, as a hook sees it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Event<'a> {
    pub(crate) action: &'static str,
    pub(crate) stream: &'a str,
    pub(crate) protocol: &'static str,
    pub(crate) address: String,
    pub(crate) user: Option<&'a str>,
    pub(crate) key: Option<&'a str>,
    pub(crate) time: u64,
}

#[derive(Debug, Default, Deserialize)]
struct Verdict {
    allow: Option<bool>,
    stream: Option<String>,
    reason: Option<String>,
}

/// The outcome of a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// The client may publish, under another name if there is one.
    Yes(Option<String>),
    /// The client may not publish. The reason is for the client.
    No(String),
}

/// Why a call has no outcome.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HookFailure {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Http(#[from] hyper::Error),
    #[error("no answer within ingest.hook.timeout_ms = {0}")]
    Late(u64),
    #[error("the answer is too long or breaks off")]
    Answer,
    #[error("the answer is no JSON object: {0}")]
    Json(#[from] serde_json::Error),
}

/// A hook that was configured.
pub(crate) struct Hook {
    authority: String,
    host: String,
    port: u16,
    path: String,
    tls: Option<TlsConnector>,
    secret: Option<hmac::Key>,
    timeout_ms: u64,
}

impl Hook {
    /// Reads the settings. `None`: there is no hook.
    pub(crate) fn new(settings: &HookSettings) -> Result<Option<Self>, String> {
        if settings.url.is_empty() {
            return Ok(None);
        }
        let wrong = || "ingest.hook.url must be http://HOST/PATH or https://HOST/PATH".to_owned();
        let url: Uri = settings.url.parse().map_err(|_| wrong())?;
        let (host, authority) = (url.host().ok_or_else(wrong)?, url.authority().ok_or_else(wrong)?);
        let (standard, tls) = match url.scheme_str() {
            Some("http") => (80, None),
            Some("https") => (443, Some(connector(settings)?)),
            _ => return Err(wrong()),
        };
        let secret = settings.secret.as_bytes();
        Ok(Some(Self {
            authority: authority.as_str().rsplit('@').next().unwrap_or_default().to_owned(),
            host: host.trim_matches(['[', ']']).to_owned(),
            port: url.port_u16().unwrap_or(standard),
            path: url.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
            tls,
            secret: (!secret.is_empty()).then(|| hmac::Key::new(hmac::HMAC_SHA256, secret)),
            timeout_ms: settings.timeout_ms,
        }))
    }

    /// Reports an event of a publisher to the hook, and returns its decision.
    pub(crate) async fn call(&self, event: &Event<'_>) -> Result<Said, HookFailure> {
        let limit = Duration::from_millis(self.timeout_ms);
        let answered = timeout(limit, self.post(serde_json::to_vec(event)?)).await;
        let (status, body) = answered.map_err(|_| HookFailure::Late(self.timeout_ms))??;
        let verdict = match body.trim_ascii() {
            b"" => Verdict::default(),
            _ if !status.is_success() => serde_json::from_slice(&body).unwrap_or_default(),
            body => serde_json::from_slice(body)?,
        };
        if !status.is_success() || verdict.allow == Some(false) {
            let reason = verdict.reason.unwrap_or_else(|| "the web-hook refuses".to_owned());
            let plain = reason.chars().filter(|c| !text::is_hidden(*c)).take(MAX_REASON);
            return Ok(Said::No(plain.collect()));
        }
        Ok(Said::Yes(verdict.stream))
    }

    async fn post(&self, body: Vec<u8>) -> Result<(hyper::StatusCode, Bytes), HookFailure> {
        let socket = TcpStream::connect((self.host.as_str(), self.port)).await?;
        match &self.tls {
            None => self.exchange(socket, body).await,
            Some(tls) => {
                let name = ServerName::try_from(self.host.clone()).map_err(std::io::Error::other)?;
                self.exchange(tls.connect(name, socket).await?, body).await
            }
        }
    }

    async fn exchange<S>(&self, socket: S, body: Vec<u8>) -> Result<(hyper::StatusCode, Bytes), HookFailure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut request = Request::post(&self.path)
            .header(HOST, &self.authority)
            .header(CONTENT_TYPE, "application/json")
            .header("connection", "close");
        if let Some(key) = &self.secret {
            let tag = hmac::sign(key, &body);
            request =
                request.header("x-rblive-signature", format!("sha256={}", HEXLOWER.encode(tag.as_ref())));
        }
        let request = request.body(Full::new(Bytes::from(body))).map_err(std::io::Error::other)?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await?;
        let driver = tokio::spawn(connection);
        let answered = async {
            let answer = sender.send_request(request).await?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
            Ok((status, body.map_err(|_| HookFailure::Answer)?.to_bytes()))
        };
        let answered = answered.await;
        driver.abort();
        answered
    }
}

fn connector(settings: &HookSettings) -> Result<TlsConnector, String> {
    let names = SettingNames { ca: "ingest.hook.authorities", ..SettingNames::TLS };
    let credentials = Credentials { ca: Some(settings.authorities.clone()), names, ..Credentials::default() };
    credentials.client().map(TlsConnector::from).map_err(|error| error.to_string())
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
