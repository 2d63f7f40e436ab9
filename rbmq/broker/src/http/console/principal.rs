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
use hyper::header::{AUTHORIZATION, COOKIE as COOKIES, HeaderMap};
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
}

impl Console {
    /// Who asks. None: nobody that is known here.
    ///
    /// # Errors
    /// What the client shows is wrong.
    pub(super) async fn identify(&self, asked: &Asked<'_>) -> Result<Option<Principal>, Problem> {
        if let Some(shown) = bearer(asked.headers) {
            let who = self.of_bearer(shown, asked).await?;
            return Ok(Some(Principal { who, csrf: None }));
        }
        if let Some(found) = cookie(asked.headers).and_then(|cookie| self.of_cookie(cookie)) {
            return Ok(Some(found));
        }
        let ambient = self.of_connection(asked);
        Ok(ambient.map(|login| Principal { who: Who::User(Box::new(login)), csrf: Some(self.csrf.clone()) }))
    }

    /// Whether a client shows a cookie of a session that has ended.
    pub(super) fn shows_ended_session(&self, asked: &Asked<'_>) -> bool {
        cookie(asked.headers).is_some()
    }

    async fn of_bearer(&self, shown: &[u8], asked: &Asked<'_>) -> Result<Who, Problem> {
        let is_set = self.door.token.lock().is_set();
        let of_endpoint = || self.of_endpoint_token(asked);
        let has_users = self.rules().authenticator.has_users();
        let is_of_user = has_users && (!is_set || shown.starts_with(TOKEN_PREFIX.as_bytes()));
        if !is_of_user {
            return match is_set {
                true => of_endpoint(),
                // Nobody can be asked for less than everybody may.
                false => Ok(Who::User(Box::new(Login::anonymous()))),
            };
        }
        if is_set && let Ok(who) = of_endpoint() {
            return Ok(who);
        }
        let wrong = || Problem::unauthorized("the token is no text");
        let token = String::from_utf8(shown.to_vec()).map_err(|_| wrong())?;
        let credentials = Credentials::token(Secret::from(token))
            .map_err(|error| Problem::unauthorized(&error.to_string()))?;
        Ok(Who::User(Box::new(self.log_in(credentials, asked).await?)))
    }

    /// Whoever shows the token of the endpoint, and a certificate with the right besides if it shows one.
    fn of_endpoint_token(&self, asked: &Asked<'_>) -> Result<Who, Problem> {
        let shown = asked.headers.get(AUTHORIZATION).map(|value| value.as_bytes());
        self.check_endpoint_token(shown, asked)
    }

    /// The same for the field `Authorization` that a client would have sent.
    pub(super) fn check_endpoint_token(
        &self,
        shown: Option<&[u8]>,
        asked: &Asked<'_>,
    ) -> Result<Who, Problem> {
        let source = Source::Address(asked.addr.ip().into());
        let checked = self.door.token.lock().check_shown(shown, source);
        checked.map_err(|refused| {
            if refused != TokenRefused::Missing {
                self.refused(asked, None, &refused.to_string());
            }
            match refused {
                TokenRefused::TooMany { wait } => Problem::too_many(&refused.to_string(), wait),
                _ => Problem::unauthorized(&refused.to_string()),
            }
        })?;
        if let (Some(observation), Some(certificate)) = (&self.door.observation, &asked.certificate) {
            let checked = observation.check(asked.addr, Some(certificate.clone()));
            checked.map_err(|denied| Problem::forbidden(&denied.for_client))?;
        }
        Ok(Who::Token { reloads: self.door.reloads.load(Ordering::Acquire) })
    }

    /// Who has the cookie, as the users are now.
    pub(super) fn of_cookie(&self, cookie: &str) -> Option<Principal> {
        let (who, csrf) = self.sessions.find(cookie, Instant::now())?;
        let known = match who {
            Who::Token { reloads } => {
                (reloads == self.door.reloads.load(Ordering::Acquire)).then_some(Who::Token { reloads })
            }
            Who::User(login) => {
                let again = self.rules().authenticator.look_again(&login, SystemTime::now());
                again.ok().map(|login| Who::User(Box::new(login)))
            }
        };
        if known.is_none() {
            self.sessions.end(cookie);
        }
        known.map(|who| Principal { who, csrf: Some(csrf) })
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
    cookies.find(|(name, _)| *name == COOKIE).map(|(_, value)| value)
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
    }

    #[test]
    fn secrets_are_the_same_or_not() {
        assert!(is_same(b"abc", b"abc") && !is_same(b"abc", b"abd") && !is_same(b"abc", b"ab"));
    }
}
