//! Who asks, and what it may do.
//!
//! | A client shows | It is |
//! |---|---|
//! | `Authorization: Bearer` and the token of the endpoint (`http.token_file`) | whoever may see the metrics |
//! | `Authorization: Bearer` and a token of a user (`rbmq token new`, or of an issuer) | that user |
//! | the cookie of a session | as it has logged in |
//! | a certificate that its connection has checked | its user |
//! | nothing, on a broker without users whose endpoint has no token | everybody |

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use access::{AuditEvent, Identity, Login, Peer, Refused, Source, Step, TOKEN_PREFIX, TokenRefused};
use hyper::header::{AUTHORIZATION, COOKIE as COOKIES, HOST, HeaderMap};
use peers::{Credentials, Secret};
use tokio::sync::oneshot;

use super::problem::Problem;
use super::sessions::{COOKIE, Who};
use super::state::{Asked, Console};
use crate::admission::not_allowed_at_all;
use crate::in_force::Rules;
use crate::password_check::PasswordCheck;

/// The field that repeats the token against forged requests.
pub(super) const CSRF: &str = "x-rbmq-csrf";

/// A client.
pub(super) struct Principal {
    pub(super) who: Who,
    /// The text that a changing request must have in [`CSRF`]. None: a browser sends nothing by itself that shows who it is.
    pub(super) csrf: Option<String>,
    /// The cookie that has shown who it is; none: something else has.
    pub(super) cookie: Option<String>,
}

impl Principal {
    /// The user; nobody for the token of the endpoint.
    pub(super) fn identity(&self) -> Arc<Identity> {
        match &self.who {
            Who::User(login) => login.identity.clone(),
            Who::Token { .. } => Arc::new(Identity::anonymous()),
        }
    }
}

impl Console {
    /// Who asks. None: nobody that is known here.
    ///
    /// # Errors
    /// What the client shows is wrong.
    pub(super) async fn identify(&self, asked: &Asked<'_>) -> Result<Option<Principal>, Problem> {
        if let Some(shown) = bearer(asked.headers) {
            let who = self.of_bearer(shown, asked).await?;
            return Ok(Some(Principal { who, csrf: None, cookie: None }));
        }
        if let Some(found) = cookie(asked.headers).and_then(|cookie| self.of_cookie(cookie)) {
            return Ok(Some(found));
        }
        let ambient = self.of_connection(asked);
        let principal = |login| Principal {
            who: Who::User(Box::new(login)),
            csrf: Some(self.csrf.clone()),
            cookie: None,
        };
        Ok(ambient.map(principal))
    }

    /// Whether a client shows a cookie of a session that has ended, or never was here.
    pub(super) fn shows_ended_session(&self, asked: &Asked<'_>) -> bool {
        cookie(asked.headers).is_some_and(|cookie| !self.sessions.has(cookie, Instant::now()))
    }

    async fn of_bearer(&self, shown: &[u8], asked: &Asked<'_>) -> Result<Who, Problem> {
        if !self.door.token.lock().is_set() && !self.rules().authenticator.has_users() {
            // Nobody can be asked for less than everybody may.
            return Ok(Who::User(Box::new(Login::anonymous())));
        }
        // No token has what is not text.
        let shown = String::from_utf8_lossy(shown).into_owned();
        self.of_token(Secret::from(shown), asked).await
    }

    /// Whose token it is: that of the endpoint, or of a user. One that has the form of a user's is no guess of the endpoint's.
    ///
    /// # Errors
    /// It is nobody's.
    pub(super) async fn of_token(&self, token: Secret, asked: &Asked<'_>) -> Result<Who, Problem> {
        let (is_set, is_of_endpoint) = {
            let own = self.door.token.lock();
            (own.is_set(), own.is(token.expose()))
        };
        let has_users = self.rules().authenticator.has_users();
        if has_users && !is_of_endpoint && (!is_set || may_be_of_user(token.expose())) {
            let credentials =
                Credentials::token(token).map_err(|error| Problem::unauthorized(&error.to_string()))?;
            return Ok(Who::User(Box::new(self.log_in(credentials, asked).await?)));
        }
        match is_set {
            true => self.check_endpoint_token(token.expose(), asked),
            false => Err(Problem::unauthorized("this broker asks for no token")),
        }
    }

    /// Whoever shows the token of the endpoint, and a certificate with the right besides if it shows one.
    fn check_endpoint_token(&self, shown: &str, asked: &Asked<'_>) -> Result<Who, Problem> {
        // Before the check: a reload in between ends what the former token opens.
        let reloads = self.door.reloads.load(Ordering::Acquire);
        let source = Source::Address(asked.addr.ip().into());
        let shown = format!("Bearer {shown}");
        let checked = self.door.token.lock().check_shown(Some(shown.as_bytes()), source);
        checked.map_err(|refused| {
            self.refused(asked, None, &refused.to_string());
            match refused {
                TokenRefused::TooMany { wait } => Problem::too_many(&refused.to_string(), wait),
                _ => Problem::unauthorized(&refused.to_string()),
            }
        })?;
        if let (Some(observation), Some(certificate)) = (&self.door.observation, &asked.certificate) {
            let checked = observation.check(asked.addr, Some(certificate.clone()));
            checked.map_err(|denied| Problem::forbidden(&denied.for_client))?;
        }
        Ok(Who::Token { reloads })
    }

    /// Who has the cookie, as the users are now.
    pub(super) fn of_cookie(&self, cookie: &str) -> Option<Principal> {
        let (who, csrf) = self.sessions.find(cookie, Instant::now())?;
        let known = self.known(&who);
        if known.is_none() {
            self.sessions.end(cookie);
        }
        known.map(|who| Principal { who, csrf: Some(csrf), cookie: Some(cookie.to_owned()) })
    }

    /// Who somebody is, as the token and the users are now. None: nobody any more.
    fn known(&self, who: &Who) -> Option<Who> {
        match who {
            Who::Token { reloads } => {
                let is_same = *reloads == self.door.reloads.load(Ordering::Acquire);
                is_same.then_some(Who::Token { reloads: *reloads })
            }
            Who::User(login) => {
                let again = self.rules().authenticator.look_again(login, SystemTime::now());
                again.ok().map(|login| Who::User(Box::new(login)))
            }
        }
    }

    /// Whether whoever has opened a stream is still known by the same, and may still observe.
    pub(super) fn may_go_on(&self, principal: &Principal) -> bool {
        let now = match &principal.cookie {
            Some(cookie) => self.of_cookie(cookie).map(|again| again.who),
            None => self.known(&principal.who),
        };
        now.is_some_and(|who| self.may_observe(&who))
    }

    /// The user of a certificate; on a broker without users everybody. Where the endpoint has a token, it is asked for besides.
    fn of_connection(&self, asked: &Asked<'_>) -> Option<Login> {
        if self.door.token.lock().is_set() {
            return None;
        }
        let authenticator = self.rules().authenticator;
        let certificate = self.door.observation.as_ref().and(asked.certificate.clone());
        match certificate {
            None if authenticator.has_users() => None,
            certificate => authenticator.of_connection(&peer(asked, certificate)).ok(),
        }
    }

    /// Logs a user in, on the threads that check passwords.
    ///
    /// # Errors
    /// The credentials are wrong, or nobody checks them at the moment.
    pub(super) async fn log_in(&self, credentials: Credentials, asked: &Asked<'_>) -> Result<Login, Problem> {
        let Rules { authenticator, login_timeout, .. } = self.rules();
        let peer = peer(asked, None);
        let login = match authenticator.begin(credentials, &peer) {
            Step::Done(login) => login,
            Step::Check(check) => {
                let (tell, told) = oneshot::channel();
                let left = Left::default();
                let has_left = left.0.clone();
                (self.desk().checker)(PasswordCheck {
                    source: peer.source,
                    check,
                    has_left: Box::new(move || has_left.load(Ordering::Relaxed)),
                    // The client may have left.
                    done: Box::new(move |login| _ = tell.send(login)),
                });
                match tokio::time::timeout(login_timeout, told).await {
                    Ok(Ok(login)) => login,
                    _ => Err(Refused::Busy),
                }
            }
        };
        login.map_err(|refused| {
            self.refused(asked, None, &refused.to_string());
            match refused {
                Refused::TooManyAttempts { wait } => Problem::too_many(&refused.for_client(), wait),
                Refused::Busy => Problem::too_many(&refused.for_client(), Duration::from_secs(1)),
                _ => Problem::unauthorized("the name, the password or the token is wrong"),
            }
        })
    }

    /// Whether a client may see the state of the broker.
    ///
    /// # Errors
    /// It may not, and how it would.
    pub(super) fn check_observe(&self, principal: &Principal, asked: &Asked<'_>) -> Result<(), Problem> {
        let Who::User(login) = &principal.who else { return Ok(()) };
        if self.may_observe(&principal.who) {
            return Ok(());
        }
        let why = not_allowed_at_all(&login.identity, "observe the broker", "observe");
        self.refused(asked, Some(&login.identity), &why);
        Err(Problem::forbidden(&why))
    }

    /// Whether a client may see the state of the broker. Nothing is recorded.
    pub(super) fn may_observe(&self, who: &Who) -> bool {
        match who {
            Who::Token { .. } => true,
            Who::User(login) => {
                self.rules().rights.is_none_or(|rights| rights.of(&login.identity).may_observe())
            }
        }
    }

    /// Whether a broker without users takes all clients that reach its endpoint. If not, the endpoint shows the state of the broker alone.
    ///
    /// # Errors
    /// The broker takes fewer clients, and what to do.
    pub(super) fn check_as_open(&self) -> Result<(), Problem> {
        let rules = self.rules();
        if rules.is_as_open_as_endpoint || rules.authenticator.has_users() {
            return Ok(());
        }
        Err(Problem::forbidden(
            "this broker has no users, and asks its clients for more than this endpoint does (a certificate, or this machine): \
             set users.file, and log in",
        ))
    }

    /// Whether a client may publish to some topic, as far as its login and the console decide.
    pub(super) fn may_publish(&self, who: &Who) -> bool {
        let is_nobody = matches!(who, Who::Token { .. }) && self.rules().authenticator.has_users();
        self.publishers.are_there() && !is_nobody && self.check_as_open().is_ok()
    }

    /// Whether a client may administer the broker.
    ///
    /// # Errors
    /// The client may not, and how it would.
    pub(super) fn check_administer(&self, principal: &Principal, asked: &Asked<'_>) -> Result<(), Problem> {
        if self.may_administer(&principal.who) {
            return Ok(());
        }
        self.check_as_open()?;
        let (identity, why) = match &principal.who {
            Who::User(login) => {
                let identity: &Identity = &login.identity;
                (Some(identity), not_allowed_at_all(identity, "administer the broker", "administer"))
            }
            Who::Token { .. } => {
                (None, "the token of the endpoint administers nothing: log in as a user who may".to_owned())
            }
        };
        self.refused(asked, identity, &why);
        Err(Problem::forbidden(&why))
    }

    /// Whether a client may administer the broker. The token of the endpoint is enough where everybody may do everything.
    pub(super) fn may_administer(&self, who: &Who) -> bool {
        let rights = self.rules().rights;
        self.check_as_open().is_ok()
            && rights.is_none_or(|rights| match who {
                Who::Token { .. } => false,
                Who::User(login) => rights.of(&login.identity).may_administer(),
            })
    }

    /// Records a refusal in the audit log.
    pub(super) fn refused(&self, asked: &Asked<'_>, identity: Option<&Identity>, why: &str) {
        self.record(
            asked,
            AuditEvent {
                user: identity.map(|identity| identity.user.as_str()),
                operation: Some(asked.path),
                reason: Some(why),
                ..AuditEvent::new("refused")
            },
        );
    }

    /// Records something in the audit log.
    pub(super) fn record(&self, asked: &Asked<'_>, event: AuditEvent<'_>) {
        let address = asked.addr.to_string();
        self.desk().audit.record(&AuditEvent { address: Some(&address), role: Some("console"), ..event });
    }
}

/// Says that nobody waits any more, when it is dropped.
#[derive(Default)]
struct Left(Arc<AtomicBool>);

impl Drop for Left {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn peer(asked: &Asked<'_>, certificate: Option<Arc<[u8]>>) -> Peer {
    Peer { source: Source::of(&asked.addr.to_string()), certificate, uid: None }
}

/// The secret of the field `Authorization`.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, shown) = headers.get(AUTHORIZATION)?.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| shown.trim_ascii())
}

/// The value of the cookie.
pub(super) fn cookie(headers: &HeaderMap) -> Option<&str> {
    let fields = headers.get_all(COOKIES).iter().filter_map(|value| value.to_str().ok());
    let mut cookies =
        fields.flat_map(|field| field.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let wanted = cookie_name(headers);
    cookies.find(|(name, _)| *name == wanted).map(|(_, value)| value)
}

/// The name of the cookie: two brokers of a host have two.
pub(super) fn cookie_name(headers: &HeaderMap) -> String {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    match host.and_then(|host| host.rsplit_once(':')?.1.parse::<u16>().ok()) {
        Some(port) => format!("{COOKIE}-{port}"),
        None => COOKIE.to_owned(),
    }
}

/// Whether a token has the form of a user's, or of an issuer's (JWT: three texts, of which the first is an object).
fn may_be_of_user(token: &str) -> bool {
    token.starts_with(TOKEN_PREFIX) || token.starts_with("eyJ") && token.matches('.').count() == 2
}

/// Whether two secrets are the same, in a time that does not tell where they differ.
pub(super) fn is_same(a: &[u8], b: &[u8]) -> bool {
    let differs = a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b));
    a.len() == b.len() && differs == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_is_found_among_others() {
        let mut headers = HeaderMap::new();
        assert_eq!(cookie(&headers), None);
        headers.append(COOKIES, "a=1; rbmq-consoles=2;rbmq-console=3".parse().unwrap());
        headers.append(COOKIES, "rbmq-console=4".parse().unwrap());
        assert_eq!(cookie(&headers), Some("3"));
        headers.append(COOKIES, "rbmq-console-7412=5".parse().unwrap());
        for (host, value) in [("a", "3"), ("[::1]", "3"), ("a:7412", "5"), ("[::1]:7412", "5")] {
            headers.insert(HOST, host.parse().unwrap());
            assert_eq!(cookie(&headers), Some(value), "{host}");
        }
    }

    #[test]
    fn secrets_are_the_same_or_not() {
        assert!(is_same(b"abc", b"abc") && !is_same(b"abc", b"abd") && !is_same(b"abc", b"ab"));
    }
}
