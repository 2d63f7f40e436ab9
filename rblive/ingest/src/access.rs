//! The permission to publish: keys, users, and a web-hook.

use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ::access::{AttemptRule, Authenticator, PasswordError, PasswordHash, Peer, Refused, Source, Step, Users};
use locks::Mutex;
use peers::{Credentials, HostAddress, LogLimiter, Secret};
use rblive::StreamError;
use rblive::config::matches;
use rblive::content::check_name;
use tokio::sync::Semaphore;

use crate::hook::{Event, Hook, Said, now};
use crate::settings::{IngestSettings, same};

/// The most passwords that are checked at once. The limit leaves processors for streams while somebody guesses passwords.
const CHECKS_AT_ONCE: usize = 2;
/// How long a right password is not checked again: encoders repeat it with each request.
const REMEMBERED: Duration = Duration::from_secs(600);
/// An address with too many failed attempts is refused for this time, and others are forgotten after it.
const PERIOD: Duration = Duration::from_secs(60);

/// Why a client may not publish.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("the stream key, or the user and the password, are wrong or missing")]
    Key,
    #[error("too many attempts from this address failed; try again in a minute")]
    Attempts,
    #[error("the name of the stream is not valid: use letters, digits and . _ - /")]
    Name,
    #[error(
        "the stream has a publisher already; with ingest.takeover = true the newest one takes its place, and a publisher that is silent \
         makes room for the same client"
    )]
    Busy,
    #[error(
        "'{0}' has renditions that are published under names of their own, and is not published by itself"
    )]
    Ladder(String),
    #[error("'{0}' has another publisher, and only its own may make it a rendition of another stream")]
    Foreign(String),
    #[error("an operator has ended this encoder, which may publish this stream again after a minute")]
    Ended,
    #[error("{0}")]
    Hook(String),
    #[error("it cannot be found out who may publish; the log of the server says why")]
    NoHook,
    #[error(transparent)]
    Stream(#[from] StreamError),
}

/// The proof of a client that wants to publish.
#[derive(Clone)]
pub(crate) struct Claim {
    /// A stream key, or a password.
    pub(crate) key: Option<String>,
    pub(crate) user: Option<String>,
    /// Whether it has shown the password of this user.
    pub(crate) is_user: bool,
    pub(crate) address: IpAddr,
    pub(crate) protocol: &'static str,
}

/// Decides who may publish.
pub(crate) struct Access {
    settings: IngestSettings,
    /// The users, and the failed attempts of addresses, with keys and at the hook too.
    logins: Authenticator,
    hook: Option<Hook>,
    /// Limits the passwords that are checked at once.
    checks: Semaphore,
    /// Limits the lines about the hook's failures.
    hook_lines: Mutex<LogLimiter>,
}

impl Claim {
    fn source(&self) -> Source {
        Source::Address(HostAddress::of(self.address))
    }

    /// Whether this is the same client with the same proof. The time of the comparison reveals nothing of another client's key. A host with
    /// a proof may change its address within its network: with IPv6 it does so each day.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let keys = (self.key.as_deref().unwrap_or(""), other.key.as_deref().unwrap_or(""));
        let same_keys = keys == ("", "") || same(keys.0.as_bytes(), keys.1.as_bytes());
        let has_proof = !keys.0.is_empty() || self.user.is_some();
        let same_address = self.address.to_canonical() == other.address.to_canonical()
            || has_proof && HostAddress::of(self.address) == HostAddress::of(other.address);
        same_keys && self.user == other.user && same_address
    }

    /// Whether the clients have a key, a user or an address in common: what an encoder has to change to be another one.
    pub(crate) fn is_akin(&self, other: &Self) -> bool {
        let keys = (self.key.as_deref().unwrap_or(""), other.key.as_deref().unwrap_or(""));
        let same_key = !keys.0.is_empty() && same(keys.0.as_bytes(), keys.1.as_bytes());
        let same_user = self.is_user && other.is_user && self.user == other.user;
        same_key || same_user || HostAddress::of(self.address) == HostAddress::of(other.address)
    }
}

impl Access {
    /// Reads the settings. The error names the one that is wrong.
    pub(crate) fn new(settings: &IngestSettings) -> Result<Self, String> {
        Ok(Self {
            logins: logins(settings)?,
            hook: Hook::new(&settings.hook)?,
            checks: Semaphore::new(CHECKS_AT_ONCE),
            hook_lines: Mutex::default(),
            settings: settings.clone(),
        })
    }

    /// Whether every client may publish.
    pub(crate) fn is_open(&self) -> bool {
        self.has_no_keys() && self.hook.is_none()
    }

    fn has_no_keys(&self) -> bool {
        self.settings.keys.is_empty() && self.settings.users.is_empty()
    }

    /// Whether a hook decides about each client, so that a right key or password alone is not enough.
    pub(crate) fn asks_for_each(&self) -> bool {
        self.hook.is_some()
    }

    /// Checks the key, or the user and the password, and returns whether it was these. A hook is not asked.
    pub(crate) async fn check(&self, stream: &str, claim: &Claim) -> Result<bool, Refusal> {
        if self.has_no_keys() {
            return Ok(false);
        }
        if self.logins.delay(claim.source()).is_some() {
            return Err(Refusal::Attempts);
        }
        if self.settings.opens(stream, claim.key.as_deref()) {
            return Ok(false);
        }
        match claim.user.as_deref().filter(|_| !self.settings.users.is_empty()) {
            Some(name) => self.check_user(name, stream, claim).await.map(|()| true),
            None => Err(self.failed(claim, None)),
        }
    }

    /// Whether a client that has just passed [`Access::check`] may publish another stream, too. This is no attempt.
    pub(crate) fn may(&self, stream: &str, claim: &Claim) -> bool {
        let is_users = || {
            let name = claim.user.as_deref()?;
            let password = Secret::from(claim.key.clone().unwrap_or_default());
            self.logins.remembered(&Credentials::password(name, password).ok()?)?;
            Some(self.owns(name, stream))
        };
        self.has_no_keys() || self.settings.opens(stream, claim.key.as_deref()) || is_users().unwrap_or(false)
    }

    /// Whether a user may publish a stream.
    fn owns(&self, user: &str, stream: &str) -> bool {
        let own = self.settings.users.get(user).map_or(&[][..], |user| &user.streams);
        own.iter().any(|pattern| matches(pattern, stream))
    }

    /// Counts a failed attempt.
    fn failed(&self, claim: &Claim, user: Option<&str>) -> Refusal {
        self.logins.failed(claim.source(), user);
        Refusal::Key
    }

    /// Checks a password after the checks that wait before it, so that their failures are counted first.
    async fn check_user(&self, name: &str, stream: &str, claim: &Claim) -> Result<(), Refusal> {
        let password = Secret::from(claim.key.clone().unwrap_or_default());
        let Ok(credentials) = Credentials::password(name, password) else {
            return Err(self.failed(claim, Some(name)));
        };
        if self.logins.remembered(&credentials).is_none() {
            let turn = self.checks.acquire().await;
            let peer = Peer { source: claim.source(), certificate: None, uid: None };
            let login = match self.logins.begin(credentials, &peer) {
                Step::Done(login) => login,
                // The hash is slow on purpose.
                Step::Check(check) => tokio::task::block_in_place(|| check.run()),
            };
            drop(turn);
            match login {
                Ok(_) => {}
                Err(Refused::TooManyAttempts { .. }) => return Err(Refusal::Attempts),
                Err(_) => return Err(Refusal::Key),
            }
        }
        match self.owns(name, stream) {
            true => Ok(()),
            false => Err(self.failed(claim, Some(name))),
        }
    }

    /// Asks the hook, if there is one. Returns the name under which the stream is published.
    pub(crate) async fn ask(&self, stream: &str, claim: &Claim) -> Result<String, Refusal> {
        if self.hook.is_some() && self.logins.delay(claim.source()).is_some() {
            return Err(Refusal::Attempts);
        }
        let said = self.ask_again(stream, claim).await;
        if let Err(Refusal::Hook(_)) = said {
            self.logins.failed(claim.source(), None);
        }
        said
    }

    /// Asks the hook about another stream of a client that it has allowed one. This is no attempt.
    pub(crate) async fn ask_again(&self, stream: &str, claim: &Claim) -> Result<String, Refusal> {
        let Some(hook) = &self.hook else { return Ok(stream.to_owned()) };
        match hook.call(&event("publish", stream, claim)).await {
            Ok(Said::Yes(None)) => Ok(stream.to_owned()),
            Ok(Said::Yes(Some(name))) if check_name(&name) => Ok(name),
            Ok(Said::Yes(Some(_))) => {
                self.hook_failed(stream, &"it renames the stream to something that is no name");
                Err(Refusal::NoHook)
            }
            Ok(Said::No(reason)) => Err(Refusal::Hook(reason)),
            Err(failure) => {
                self.hook_failed(stream, &failure);
                Err(Refusal::NoHook)
            }
        }
    }

    fn hook_failed(&self, stream: &str, why: &dyn fmt::Display) {
        if let Some(more) = self.hook_lines.lock().allow(Instant::now()) {
            let stream = text::short(stream);
            tracing::warn!(%stream, more, "the web-hook failed, so that nobody publishes: {why}");
        }
    }

    /// Reports to the hook that a publisher is gone.
    pub(crate) async fn tell_gone(&self, stream: &str, claim: &Claim) {
        let Some(hook) = &self.hook else { return };
        if let Err(failure) = hook.call(&event("unpublish", stream, claim)).await {
            tracing::warn!(stream, "the web-hook was not told that a publisher is gone: {failure}");
        }
    }
}

/// The users of the settings. The error names one with a password that is no hash.
fn logins(settings: &IngestSettings) -> Result<Authenticator, String> {
    let hash = |name: &str, text: &str| {
        text.parse::<PasswordHash>().map_err(|error| match error {
            PasswordError::Form => format!(
                "ingest.users.{name}.password is no hash of argon2id ($argon2id$…): make one with `rblive password`; hashes of earlier versions \
                 (pbkdf2-sha256) have to be made anew"
            ),
            error => format!("ingest.users.{name}.password: {error}; make a hash with `rblive password`"),
        })
    };
    let users: Result<Vec<_>, String> =
        settings.users.iter().map(|(name, user)| Ok((name.clone(), hash(name, &user.password)?))).collect();
    // No limit for 0.
    let free = settings.limits.failed_attempts.checked_sub(1).unwrap_or(u32::MAX);
    let rule = AttemptRule { free, first_delay: PERIOD, longest_delay: PERIOD, memory: PERIOD };
    Authenticator::of(Users::with_passwords(users?), rule, REMEMBERED).map_err(|error| error.to_string())
}

fn event<'a>(action: &'static str, stream: &'a str, claim: &'a Claim) -> Event<'a> {
    Event {
        action,
        stream,
        protocol: claim.protocol,
        address: claim.address.to_canonical().to_string(),
        user: claim.user.as_deref(),
        key: claim.key.as_deref(),
        time: now(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::User;

    fn claim(address: &str, user: Option<&str>, key: &str) -> Claim {
        let (address, key) = (address.parse().unwrap(), Some(key.to_owned()));
        Claim { key, user: user.map(str::to_owned), is_user: user.is_some(), address, protocol: "http" }
    }

    /// The decision about a claim, on a runtime as that of the servers.
    fn check(access: &Access, stream: &str, claim: &Claim) -> Result<bool, Refusal> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        runtime.block_on(access.check(stream, claim))
    }

    fn anna(password: &str) -> IngestSettings {
        let user = User { password: password.to_owned(), streams: vec!["anna/*".to_owned()] };
        IngestSettings { users: [("anna".to_owned(), user)].into(), ..IngestSettings::default() }
    }

    #[test]
    fn a_user_publishes_the_own_streams_with_the_own_password() {
        let hash = |password: &str| PasswordHash::of(&Secret::from(password.to_owned())).unwrap().to_string();
        let access = Access::new(&anna(&hash("secret"))).unwrap();
        for _ in 0..2 {
            let opens = |name, password, stream| check(&access, stream, &claim("::1", Some(name), password));
            assert!(matches!(opens("anna", "secret", "anna/1"), Ok(true)));
            for (name, password, stream) in [
                ("anna", "Secret", "anna/1"),
                ("anna", "", "anna/1"),
                ("anna", "secret", "b"),
                ("bert", "secret", "anna/1"),
            ] {
                let refused = opens(name, password, stream);
                assert!(matches!(refused, Err(Refusal::Key)), "{name} {password} {stream}");
            }
        }
        assert_ne!(hash("x"), hash("x"));
    }

    #[test]
    fn a_client_with_a_proof_is_the_same_at_another_address_of_its_network() {
        let same = |a: &Claim, b: &Claim| a.is_same(b);
        let anonymous = |address| Claim { key: None, ..claim(address, None, "") };
        let (own, moved, far) = ("2001:db8::1", "2001:db8::2", "2001:db9::1");
        for user in [None, Some("anna")] {
            assert!(same(&claim(own, user, "key"), &claim(moved, user, "key")));
            assert!(!same(&claim(own, user, "key"), &claim(far, user, "key")));
            assert!(!same(&claim(own, user, "key"), &claim(own, user, "another")));
        }
        assert!(!same(&claim(own, Some("anna"), "key"), &claim(own, None, "key")));
        assert!(same(&anonymous(own), &anonymous(own)) && !same(&anonymous(own), &anonymous(moved)));
        assert!(same(&anonymous("10.0.0.1"), &anonymous("::ffff:10.0.0.1")));
    }

    #[test]
    fn a_client_is_akin_by_its_key_its_user_or_its_address() {
        let own = claim("192.0.2.1", Some("anna"), "secret");
        let akin = |address, user, key| own.is_akin(&claim(address, user, key));
        assert!(akin("2001:db8::1", Some("bert"), "secret") && akin("2001:db8::1", Some("anna"), "another"));
        assert!(akin("192.0.2.1", None, "another") && akin("::ffff:192.0.2.1", None, ""));
        assert!(!akin("192.0.2.2", Some("bert"), "another"));
        let said = Claim { is_user: false, ..claim("192.0.2.2", Some("anna"), "another") };
        assert!(!own.is_akin(&said) && !said.is_akin(&own), "the name of another user says nothing");
        let anonymous = |address| claim(address, None, "");
        assert!(!anonymous("192.0.2.1").is_akin(&anonymous("192.0.2.2")));
    }

    #[test]
    fn a_password_that_is_no_hash_is_refused_and_not_printed() {
        let hash = "$argon2id$v=19$m=8192,t=1,p=1$c29tZXNhbHQ$c29tZWhhc2hzb21laGFzaA";
        assert!(Access::new(&anna(hash)).is_ok());
        let old = format!("pbkdf2-sha256:200000:{}:{}", "00".repeat(16), "00".repeat(32));
        for bad in [
            "",
            "secret",
            "pbkdf2-sha256:0:00:00",
            "md5:1:00:00",
            &old,
            &hash[..hash.len() - 8],
            &format!("{hash}:"),
            &hash.replace("8192", "1"),
        ] {
            let error = Access::new(&anna(bad)).err().unwrap();
            assert!(
                error.contains("ingest.users.anna.password") && error.contains("`rblive password`"),
                "{error}"
            );
            assert!(bad.is_empty() || !error.contains(bad), "{error}");
        }
    }

    #[test]
    fn an_address_has_a_few_attempts() {
        let keys = [("*".to_owned(), "right".to_owned())];
        let mut settings = IngestSettings { keys: keys.into(), ..IngestSettings::default() };
        settings.limits.failed_attempts = 3;
        let access = Access::new(&settings).unwrap();
        let tries = |access: &Access, address: &str| check(access, "a", &claim(address, None, "wrong"));
        for _ in 0..3 {
            assert!(matches!(tries(&access, "2001:db8::1"), Err(Refusal::Key)));
        }
        for address in ["2001:db8::1", "2001:db8::2"] {
            assert!(matches!(tries(&access, address), Err(Refusal::Attempts)));
        }
        assert!(matches!(tries(&access, "2001:db8:1::1"), Err(Refusal::Key)));
        // Others, however many, do not make the server forget to count.
        for network in 0..20_000 {
            access.failed(&claim(&format!("2001:db9:{network:x}::1"), None, "wrong"), None);
        }
        for _ in 0..3 {
            assert!(matches!(tries(&access, "10.0.0.1"), Err(Refusal::Key)));
        }
        assert!(matches!(tries(&access, "10.0.0.1"), Err(Refusal::Attempts)));
        settings.limits.failed_attempts = 0;
        let unlimited = Access::new(&settings).unwrap();
        assert!((0..100).all(|_| matches!(tries(&unlimited, "2001:db8::1"), Err(Refusal::Key))));
    }
}
