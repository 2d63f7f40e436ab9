//! The console: the broker in a browser, and the interface behind it, which others may use too.
//!
//! ```text
//!   /ui            static files of the binary, for everybody: they tell nothing
//!   /api/v1/…      ─▶ who asks? (principal) ─▶ may it? ─▶ a route ─▶ the sample of this second (sample) ─▶ JSON
//!   /api/v1/stream ─▶ the same, again and again (events)
//! ```
//!
//! Nothing runs unless somebody asks, and nothing is counted per message. docs/CONSOLE.md is for people who use it.

mod alarms;
mod api;
mod assets;
mod calls;
mod changes;
mod due;
mod engine;
mod events;
mod group_sample;
mod groups;
mod messages;
mod openapi;
mod principal;
mod problem;
mod program;
mod publishing;
mod query;
mod reading;
mod records;
mod reloading;
mod routes;
mod sample;
mod sessions;
#[cfg(test)]
mod stalls;
mod state;
mod topic;
mod tracing;
mod users;
mod work;

use std::sync::Arc;
use std::time::{Duration, Instant};

use access::AuditEvent;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue, SET_COOKIE, WWW_AUTHENTICATE};
use hyper::{Method, Request, StatusCode};
use peers::{BrowserFields, Credentials, Secret};
use serde::Deserialize;
use serde_json::{Value, json};

use events::{Events, Made};
use messages::client_key;
use principal::{CSRF, Principal, cookie, cookie_name, is_same};
use problem::Problem;
pub use program::{ReloadCheck, Reloading};
pub use publishing::{ConsolePublisher, NotPublished, Publishing};
use query::Query;
use routes::{Found, Needs, Route, route};
use sessions::{MAX_AGE, Who};
use state::Asked;
pub(super) use state::Console;

use super::answer::{Answer, Body, json as json_page, json_text, page};
use super::door::Client;

/// The largest body of a request.
const MAX_BODY: usize = 8 << 10;

impl Console {
    /// Whether a path is one of the console.
    pub(super) fn has(path: &str) -> bool {
        path == "/ui" || path.starts_with("/ui/") || path.starts_with("/api/")
    }

    /// Answers a request.
    pub(super) async fn answer(self: &Arc<Self>, request: Request<Incoming>, client: &Client<'_>) -> Answer {
        let (parts, body) = request.into_parts();
        let asked = Asked {
            method: &parts.method,
            path: parts.uri.path(),
            query: parts.uri.query().unwrap_or_default(),
            headers: &parts.headers,
            addr: client.addr,
            certificate: client.certificate.clone(),
        };
        if !asked.path.starts_with("/api/") {
            return assets::answer(&asked);
        }
        let answer = self.of_interface(&asked, body, client).await;
        let mut answer = answer.unwrap_or_else(|problem| {
            let mut answer = problem.answer();
            if problem.status == StatusCode::UNAUTHORIZED {
                answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            answer
        });
        // A browser would show it for hours.
        if self.shows_ended_session(&asked) && !answer.headers().contains_key(SET_COOKIE) {
            self.set_cookie(&mut answer, &asked, "", Duration::ZERO);
        }
        answer
    }

    async fn of_interface(
        self: &Arc<Self>,
        asked: &Asked<'_>,
        body: Incoming,
        client: &Client<'_>,
    ) -> Result<Answer, Problem> {
        let fields = BrowserFields::of(|name| asked.headers.get(name).map(|value| value.as_bytes()));
        fields.check_site().map_err(|foreign| {
            self.refused(asked, None, &foreign.to_string());
            Problem::forbidden(&foreign.to_string())
        })?;
        let found = match route(asked.method, asked.path) {
            Ok(found) => found,
            Err(allowed) if allowed.is_empty() => {
                return Err(Problem::missing("there is no such address; /api/v1/openapi.json has them all"));
            }
            Err(allowed) => return Ok(not_allowed(&allowed)),
        };
        let query = Query::parse(asked.query, &found.route.names())?;
        let principal = self.identify(asked).await?;
        if found.route.needs != Needs::Nothing {
            let Some(principal) = &principal else { return Err(self.nobody(asked)) };
            match found.route.needs {
                Needs::Observe => self.check_observe(principal, asked)?,
                Needs::Administer => self.check_administer(principal, asked)?,
                Needs::Nothing | Needs::Login => {}
            }
            client.place.known();
        }
        let query = Arc::new(query);
        if *asked.method != Method::GET {
            self.check_forged(principal.as_ref(), found.route, asked)?;
        }
        self.of_route(&found, principal, query, asked, body).await
    }

    /// The answer of a route to somebody who may have it.
    async fn of_route(
        self: &Arc<Self>,
        found: &Found,
        principal: Option<Principal>,
        query: Arc<Query>,
        asked: &Asked<'_>,
        body: Incoming,
    ) -> Result<Answer, Problem> {
        let known = principal.as_ref().ok_or_else(|| self.nobody(asked));
        Ok(json_page(
            StatusCode::OK,
            &match found.route.answer {
                routes::Answer::Show(show) => {
                    let Some(principal) = principal.filter(|_| found.is_stream) else {
                        return Ok(json_text(StatusCode::OK, self.shown(show, query).await?));
                    };
                    if !found.route.streams {
                        return Err(Problem::missing("there is no stream of this"));
                    }
                    let user = client_key(&principal.identity(), asked);
                    return self.stream(principal, user, query, show);
                }
                routes::Answer::Session => self.session(principal.as_ref())?,
                routes::Answer::LogIn => return self.begin_session(asked, body).await,
                routes::Answer::LogOut => return Ok(self.end_session(asked)),
                routes::Answer::Messages => self.messages(known?, &query, asked).await?,
                routes::Answer::Publish => {
                    let principal = known?;
                    self.check_writes()?;
                    let message = self.read(body, messages::MAX_BODY).await?;
                    self.publish(principal, message, asked).await?
                }
                routes::Answer::Disconnect => {
                    self.check_changes(asked)?;
                    self.disconnect(known?, &query, asked).await?
                }
                routes::Answer::Difference => self.difference(known?, asked).await?,
                routes::Answer::Reload => {
                    self.check_changes(asked)?;
                    self.reload(known?, &query, asked).await?
                }
                routes::Answer::BeginTrace => self.begin_trace(known?, &query, asked).await?,
                routes::Answer::Trace => self.read_trace(known?, &query, asked).await?,
                routes::Answer::EndTrace => self.end_trace(known?, &query, asked).await?,
                routes::Answer::Description => openapi::document(),
            },
        ))
    }

    fn nobody(&self, asked: &Asked<'_>) -> Problem {
        match self.shows_ended_session(asked) {
            true => Problem::unauthorized("the session has ended: log in again"),
            false => Problem::unauthorized("log in first, or show a token (Authorization: Bearer TOKEN)"),
        }
    }

    /// Refuses a changing request that a browser may send without its user's will.
    fn check_forged(
        &self,
        principal: Option<&Principal>,
        route: &Route,
        asked: &Asked<'_>,
    ) -> Result<(), Problem> {
        // Nobody is logged in yet. A foreign page cannot send this type without being asked.
        if matches!(route.answer, routes::Answer::LogIn) {
            let is_json = asked.headers.get(CONTENT_TYPE).is_some_and(|value| {
                value.to_str().is_ok_and(|value| value.split(';').next() == Some("application/json"))
            });
            return if is_json { Ok(()) } else { Err(Problem::wrong("the body must be application/json")) };
        }
        let Some(principal) = principal else { return Err(self.nobody(asked)) };
        let Some(wanted) = &principal.csrf else { return Ok(()) };
        let shown = asked.headers.get(CSRF).map_or(&[][..], |value| value.as_bytes());
        if is_same(shown, wanted.as_bytes()) {
            return Ok(());
        }
        let why = "the request lacks the field X-RBMQ-CSRF with the text that GET /api/v1/session tells";
        self.refused(asked, None, why);
        Err(Problem::forbidden(why))
    }

    /// What a route shows now, made where it keeps nobody else waiting.
    async fn shown(self: &Arc<Self>, show: routes::Show, query: Arc<Query>) -> Result<String, Problem> {
        let console = self.clone();
        self.work.run(move || console.make(show, &query)).await
    }

    fn make(&self, show: routes::Show, query: &Query) -> Result<String, Problem> {
        Ok(text::json(&show(self, query)?.to_string()).into_owned())
    }

    /// Opens a stream of what a route shows. Who asks is looked at again for each event.
    fn stream(
        self: &Arc<Self>,
        principal: Principal,
        user: String,
        query: Arc<Query>,
        show: routes::Show,
    ) -> Result<Answer, Problem> {
        let (console, principal, user) = (self.clone(), Arc::new(principal), Arc::<str>::from(user));
        let mut is_first = true;
        let make = move || -> Made {
            let (console, principal, query) = (console.clone(), principal.clone(), query.clone());
            let user = user.clone();
            let is_first = std::mem::take(&mut is_first);
            Box::pin(async move {
                if !console.may_go_on(&principal) {
                    return Err(Problem::unauthorized("the session has ended: log in again"));
                }
                // Somebody waits for the page to come, and not for its changes.
                if is_first {
                    return console.shown(show, query).await;
                }
                let (own, work) = (console.clone(), console.work.clone());
                let made = work.run_in_turn(&user, move || own.make(show, &query)).await;
                match console.may_go_on(&principal) {
                    true => made,
                    false => Err(Problem::unauthorized("the session has ended: log in again")),
                }
            })
        };
        let events = Events::open(&self.streams, Box::new(make))?;
        let mut answer = page(StatusCode::OK, "text/event-stream", String::new());
        *answer.body_mut() = Body::Stream(Box::new(events));
        // A proxy passes each event on at once.
        answer.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
        Ok(answer)
    }

    /// Who is logged in, and how somebody logs in.
    fn session(&self, principal: Option<&Principal>) -> Result<Value, Problem> {
        let (token, users) = (self.door.token.lock().is_set(), self.rules().authenticator.has_users());
        let who = principal.map(|principal| match &principal.who {
            Who::Token { .. } => json!({ "user": null, "method": "endpoint token" }),
            Who::User(login) => {
                json!({ "user": login.identity.user, "method": login.identity.method.as_str() })
            }
        });
        Ok(json!({
            "version": env!("CARGO_PKG_VERSION"),
            "who": who,
            "may_publish": principal.is_some_and(|principal| self.may_publish(&principal.who)),
            "may_administer": principal.is_some_and(|principal| self.may_administer(&principal.who)),
            "may_change": self.changes,
            "may_observe": principal.is_some_and(|principal| self.may_observe(&principal.who)),
            "csrf": principal.and_then(|principal| principal.csrf.as_deref()),
            "logins": { "token": token || users, "password": users },
        }))
    }

    async fn begin_session(&self, asked: &Asked<'_>, body: Incoming) -> Result<Answer, Problem> {
        let LogIn { token, user, password } = self.read(body, MAX_BODY).await?;
        let secret = |text: String| Secret::from(text);
        let who = match (token, user, password) {
            (Some(token), None, None) => self.of_token(secret(token), asked).await?,
            (None, Some(user), Some(password)) => {
                let credentials = Credentials::password(&user, secret(password))
                    .map_err(|error| Problem::wrong(&error.to_string()))?;
                if !self.rules().authenticator.has_users() {
                    return Err(Problem::unauthorized("this broker has no users (users.file)"));
                }
                Who::User(Box::new(self.log_in(credentials, asked).await?))
            }
            _ => return Err(Problem::wrong("the body must have a token, or a user and a password")),
        };
        let begun = self.sessions.begin(who.clone(), asked.addr.ip(), Instant::now());
        let begun = begun.map_err(|why| Problem::unavailable(&why.to_string(), Duration::from_secs(60)))?;
        let (user, method) = match &who {
            Who::Token { .. } => (None, "endpoint token"),
            Who::User(login) => (Some(login.identity.user.as_str()), login.identity.method.as_str()),
        };
        self.record(asked, AuditEvent { user, method: Some(method), ..AuditEvent::new("login") });
        let principal = Principal { who, csrf: Some(begun.csrf), cookie: Some(begun.cookie.clone()) };
        let mut answer = json_page(StatusCode::OK, &self.session(Some(&principal))?);
        self.set_cookie(&mut answer, asked, &begun.cookie, MAX_AGE);
        Ok(answer)
    }

    fn end_session(&self, asked: &Asked<'_>) -> Answer {
        if let Some(cookie) = cookie(asked.headers) {
            self.sessions.end(cookie);
        }
        let mut answer = json_page(StatusCode::OK, &json!({}));
        self.set_cookie(&mut answer, asked, "", Duration::ZERO);
        answer
    }

    fn set_cookie(&self, answer: &mut Answer, asked: &Asked<'_>, value: &str, age: Duration) {
        let secure = if self.door.tls.is_some() { "; Secure" } else { "" };
        let (name, age) = (cookie_name(asked.headers), age.as_secs());
        let cookie = format!("{name}={value}; Path=/api/; HttpOnly; SameSite=Strict; Max-Age={age}{secure}");
        // Secrets are letters, digits, - and _.
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            answer.headers_mut().insert(SET_COOKIE, cookie);
        }
    }

    /// The body of a request.
    async fn read<T: for<'de> Deserialize<'de>>(&self, body: Incoming, most: usize) -> Result<T, Problem> {
        let whole = tokio::time::timeout(self.body_timeout, Limited::new(body, most).collect()).await;
        let slow = || Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not come in time");
        let large = |_| Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large, or did not come");
        let bytes = whole.map_err(|_| slow())?.map_err(large)?.to_bytes();
        serde_json::from_slice(&bytes).map_err(|error| Problem::wrong(&format!("the body: {error}")))
    }
}

/// The body of a login.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LogIn {
    token: Option<String>,
    user: Option<String>,
    password: Option<String>,
}

fn not_allowed(allowed: &[&Method]) -> Answer {
    let names: Vec<_> = allowed.iter().map(|method| method.as_str()).collect();
    let why = format!("only {} is available here", names.join(" and "));
    let mut answer = Problem::new(StatusCode::METHOD_NOT_ALLOWED, &why).answer();
    if let Ok(names) = HeaderValue::from_str(&names.join(", ")) {
        answer.headers_mut().insert(ALLOW, names);
    }
    answer
}
