//! The sessions of browsers: who has logged in, by the cookie that its requests have.
//!
//! ```text
//!   POST /api/v1/session ── token, or user and password ──▶ Sessions::begin ──▶ Set-Cookie (HttpOnly, SameSite=Strict)
//!   a request ── cookie ──▶ Sessions::find ──▶ Who, and the token that a changing request must have besides
//! ```
//!
//! A session is in memory, and ends with the broker. The number of sessions has a limit, in all and for each who.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use access::{Login, NoRandomNumbers, new_token};
use locks::Mutex;

/// The name of the cookie; behind it is the port that the browser asks, since a cookie is the same for all ports of a host.
pub(super) const COOKIE: &str = "rbmq-console";

/// A session ends after this time without a request.
const MAX_IDLE: Duration = Duration::from_secs(30 * 60);

/// A session ends after this time in any case.
pub(super) const MAX_AGE: Duration = Duration::from_secs(12 * 3600);

/// The most sessions, in all and of one user, or of one address with the endpoint's token. A further one ends the one that was used least
/// lately.
const MAX_SESSIONS: usize = 256;
const MAX_OF_ONE: usize = 16;

/// Who asks.
#[derive(Debug, Clone)]
pub(super) enum Who {
    /// Whoever has the token of the endpoint. With this number of reloads; another one may have brought another token.
    Token { reloads: u64 },
    /// A user of the broker; on a broker without users, everybody.
    User(Box<Login>),
}

impl Who {
    /// The user; none for the token of the endpoint.
    pub(super) fn user(&self) -> Option<&str> {
        match self {
            Self::Token { .. } => None,
            Self::User(login) => Some(&login.identity.user),
        }
    }
}

struct Session {
    who: Who,
    from: IpAddr,
    csrf: String,
    begun: Instant,
    used: Instant,
}

impl Session {
    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.begun) > MAX_AGE || now.duration_since(self.used) > MAX_IDLE
    }
}

/// The sessions of an endpoint.
#[derive(Default)]
pub(super) struct Sessions(Mutex<HashMap<String, Session>>);

/// A session cannot begin.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoSession {
    #[error("{MAX_SESSIONS} people are logged in already; log out elsewhere, or try again later")]
    TooMany,
    #[error(transparent)]
    Random(#[from] NoRandomNumbers),
}

/// A session that has begun.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) cookie: String,
    pub(super) csrf: String,
}

impl Sessions {
    /// Begins a session.
    ///
    /// # Errors
    /// There is no room, or the system has no random numbers.
    pub(super) fn begin(&self, who: Who, from: IpAddr, now: Instant) -> Result<Begun, NoSession> {
        let begun = Begun { cookie: secret()?, csrf: secret()? };
        let mut sessions = self.0.lock();
        sessions.retain(|_, session| !session.is_over(now));
        // All who have the token of the endpoint are nobody in particular, and do not end each other's sessions.
        let of_same = |session: &Session| {
            session.who.user() == who.user() && (who.user().is_some() || session.from == from)
        };
        if sessions.values().filter(|session| of_same(session)).count() >= MAX_OF_ONE {
            let same = sessions.iter().filter(|(_, session)| of_same(session));
            let oldest = same.min_by_key(|(_, session)| session.used).map(|(cookie, _)| cookie.clone());
            oldest.and_then(|cookie| sessions.remove(&cookie));
        }
        if sessions.len() >= MAX_SESSIONS {
            return Err(NoSession::TooMany);
        }
        let session = Session { who, from, csrf: begun.csrf.clone(), begun: now, used: now };
        sessions.insert(begun.cookie.clone(), session);
        Ok(begun)
    }

    /// Who has this cookie, and the token against forged requests. None: the session has ended, or never was.
    pub(super) fn find(&self, cookie: &str, now: Instant) -> Option<(Who, String)> {
        let mut sessions = self.0.lock();
        let session = sessions.get_mut(cookie)?;
        if session.is_over(now) {
            sessions.remove(cookie);
            return None;
        }
        session.used = now;
        Some((session.who.clone(), session.csrf.clone()))
    }

    /// Whether there is such a session. That is no use of it.
    pub(super) fn has(&self, cookie: &str, now: Instant) -> bool {
        self.0.lock().get(cookie).is_some_and(|session| !session.is_over(now))
    }

    /// Ends a session, if there is one.
    pub(super) fn end(&self, cookie: &str) {
        self.0.lock().remove(cookie);
    }
}

/// A text that nobody guesses.
///
/// # Errors
/// The system has no random numbers.
pub(super) fn secret() -> Result<String, NoRandomNumbers> {
    Ok(new_token()?.expose().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn user(name: &str) -> Who {
        let identity = access::Identity { user: name.to_owned(), ..access::Identity::anonymous() };
        let mut login = Login::anonymous();
        login.identity = identity.into();
        Who::User(Box::new(login))
    }

    #[test]
    fn a_session_lasts_as_long_as_it_is_used_and_half_a_day_at_most() {
        let (sessions, begin) = (Sessions::default(), Instant::now());
        let begun = sessions.begin(user("anna"), HERE, begin).unwrap();
        let half = MAX_IDLE - Duration::from_secs(1);
        let (who, csrf) = sessions.find(&begun.cookie, begin + half).unwrap();
        assert_eq!((who.user(), csrf), (Some("anna"), begun.csrf.clone()));
        assert!(sessions.find(&begun.csrf, begin).is_none() && sessions.find("", begin).is_none());
        let mut now = begin + half;
        while now < begin + MAX_AGE {
            assert!(sessions.find(&begun.cookie, now).is_some());
            now += half;
        }
        assert!(sessions.find(&begun.cookie, now).is_none());
        let idle = sessions.begin(user("anna"), HERE, now).unwrap();
        assert!(sessions.find(&idle.cookie, now + MAX_IDLE + Duration::from_secs(1)).is_none());
        let ended = sessions.begin(user("anna"), HERE, now).unwrap();
        sessions.end(&ended.cookie);
        assert!(sessions.find(&ended.cookie, now).is_none());
    }

    #[test]
    fn nobody_takes_all_sessions() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let first = sessions.begin(user("anna"), HERE, now).unwrap();
        let later = now + Duration::from_secs(1);
        for _ in 0..2 * MAX_SESSIONS {
            sessions.begin(user("anna"), HERE, later).unwrap();
        }
        assert!(sessions.find(&first.cookie, later).is_none(), "the oldest of the same user has ended");
        assert_eq!(sessions.0.lock().len(), MAX_OF_ONE);
        let others = (0..).map(|n| sessions.begin(user(&n.to_string()), HERE, later));
        let begun = others.take_while(Result::is_ok).count();
        assert_eq!(begun, MAX_SESSIONS - MAX_OF_ONE);
    }

    #[test]
    fn those_with_the_token_of_the_endpoint_end_only_sessions_of_their_own_address() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let token = Who::Token { reloads: 0 };
        let first = sessions.begin(token.clone(), HERE, now).unwrap();
        let later = now + Duration::from_secs(1);
        for n in 0..2 * MAX_OF_ONE as u8 {
            sessions.begin(token.clone(), IpAddr::from([10, 0, 0, n]), later).unwrap();
        }
        assert!(sessions.has(&first.cookie, later));
        for _ in 0..MAX_OF_ONE {
            sessions.begin(token.clone(), HERE, later).unwrap();
        }
        assert!(!sessions.has(&first.cookie, later));
    }
}
