//! The permission to publish: keys, users, and a web-hook.

use std::net::IpAddr;

use rblive::StreamError;
use rblive::content::check_name;
use tokio::sync::Semaphore;

use crate::attempts::Attempts;
use crate::hook::{Event, Hook, Said, now};
use crate::settings::IngestSettings;
use crate::users::{Users, same};

/// The most passwords that are checked at once. The limit leaves processors for streams while somebody guesses passwords.
const CHECKS_AT_ONCE: usize = 2;

/// Why a client may not publish.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("the stream key, or the user and the password, are wrong or missing")]
    Key,
    #[error("too many attempts from this address failed; try again in a minute")]
    Attempts,
    #[error("the name of the stream is not valid: use letters, digits and . _ - /")]
    Name,
    #[error("the stream has a publisher already")]
    Busy,
    #[error(
        "'{0}' has renditions that are published under names of their own, and is not published by itself"
    )]
    Ladder(String),
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
    pub(crate) address: IpAddr,
    pub(crate) protocol: &'static str,
}

/// Decides who may publish.
pub(crate) struct Access {
    settings: IngestSettings,
    users: Users,
    attempts: Attempts,
    hook: Option<Hook>,
    /// Limits the passwords that are checked at once.
    checks: Semaphore,
}

impl Claim {
    /// Whether this is the same client with the same proof. The time of the comparison reveals nothing of another client's key.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let keys = (self.key.as_deref().unwrap_or(""), other.key.as_deref().unwrap_or(""));
        let same_keys = keys == ("", "") || same(keys.0.as_bytes(), keys.1.as_bytes());
        same_keys && self.user == other.user && self.address.to_canonical() == other.address.to_canonical()
    }
}

impl Access {
    /// Reads the settings. The error names the one that is wrong.
    pub(crate) fn new(settings: &IngestSettings) -> Result<Self, String> {
        Ok(Self {
            users: Users::new(&settings.users)?,
            attempts: Attempts::new(settings.limits.failed_attempts),
            hook: Hook::new(&settings.hook)?,
            checks: Semaphore::new(CHECKS_AT_ONCE),
            settings: settings.clone(),
        })
    }

    /// Whether every client may publish.
    pub(crate) fn is_open(&self) -> bool {
        self.settings.keys.is_empty() && self.users.is_empty() && self.hook.is_none()
    }

    /// Whether a hook decides about each client, so that a right key or password alone is not enough.
    pub(crate) fn asks_for_each(&self) -> bool {
        self.hook.is_some()
    }

    /// Checks the key, or the user and the password. A hook is not asked.
    pub(crate) async fn check(&self, stream: &str, claim: &Claim) -> Result<(), Refusal> {
        if self.settings.keys.is_empty() && self.users.is_empty() {
            return Ok(());
        }
        if !self.attempts.may(claim.address) {
            return Err(Refusal::Attempts);
        }
        if self.settings.opens(stream, claim.key.as_deref()) {
            return Ok(());
        }
        let user = claim.user.as_deref().filter(|_| !self.users.is_empty());
        match user {
            Some(name) if self.check_user(name, stream, claim).await? => Ok(()),
            Some(_) => Err(Refusal::Key),
            None => {
                self.attempts.failed(claim.address);
                Err(Refusal::Key)
            }
        }
    }

    /// Checks a password after the checks that wait before it, so that their failures are counted first.
    async fn check_user(&self, name: &str, stream: &str, claim: &Claim) -> Result<bool, Refusal> {
        let password = claim.key.as_deref().unwrap_or("");
        if self.users.open_known(name, password, stream) {
            return Ok(true);
        }
        let turn = self.checks.acquire().await;
        if !self.attempts.may(claim.address) {
            return Err(Refusal::Attempts);
        }
        // The hash is slow on purpose.
        let opens = tokio::task::block_in_place(|| self.users.open(name, password, stream));
        if !opens {
            self.attempts.failed(claim.address);
        }
        drop(turn);
        Ok(opens)
    }

    /// Asks the hook, if there is one. Returns the name under which the stream is published.
    pub(crate) async fn ask(&self, stream: &str, claim: &Claim) -> Result<String, Refusal> {
        let Some(hook) = &self.hook else { return Ok(stream.to_owned()) };
        if !self.attempts.may(claim.address) {
            return Err(Refusal::Attempts);
        }
        match hook.call(&event("publish", stream, claim)).await {
            Ok(Said::Yes(None)) => Ok(stream.to_owned()),
            Ok(Said::Yes(Some(name))) if check_name(&name) => Ok(name),
            Ok(Said::Yes(Some(_))) => {
                tracing::warn!(stream, "the web-hook renames the stream to something that is no name");
                Err(Refusal::NoHook)
            }
            Ok(Said::No(reason)) => {
                self.attempts.failed(claim.address);
                Err(Refusal::Hook(reason))
            }
            Err(failure) => {
                tracing::warn!(stream, "the web-hook failed, so that nobody publishes: {failure}");
                Err(Refusal::NoHook)
            }
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
