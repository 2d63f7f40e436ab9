//! The permission to publish: keys, users, and a web-hook.

use std::net::IpAddr;

use rblive::StreamError;
use rblive::content::check_name;

use crate::attempts::Attempts;
use crate::hook::{Event, Hook, Said, now};
use crate::settings::IngestSettings;
use crate::users::Users;

/// Why somebody may not publish.
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
}

impl Access {
    /// Reads the settings. The error names the one that is wrong.
    pub(crate) fn new(settings: &IngestSettings) -> Result<Self, String> {
        Ok(Self {
            users: Users::new(&settings.users)?,
            attempts: Attempts::new(settings.limits.failed_attempts),
            hook: Hook::new(&settings.hook)?,
            settings: settings.clone(),
        })
    }

    /// Whether every client may publish.
    pub(crate) fn is_open(&self) -> bool {
        self.settings.keys.is_empty() && self.users.is_empty() && self.hook.is_none()
    }

    /// Checks the key, or the user and the password. A hook is not asked.
    pub(crate) fn check(&self, stream: &str, claim: &Claim) -> Result<(), Refusal> {
        if self.settings.keys.is_empty() && self.users.is_empty() {
            return Ok(());
        }
        if !self.attempts.may(claim.address) {
            return Err(Refusal::Attempts);
        }
        let by_user = |name: &str| {
            let password = claim.key.as_deref().unwrap_or("");
            // A hash takes long on purpose.
            tokio::task::block_in_place(|| self.users.open(name, password, stream))
        };
        let user = claim.user.as_deref().filter(|_| !self.users.is_empty());
        if self.settings.opens(stream, claim.key.as_deref()) || user.is_some_and(by_user) {
            return Ok(());
        }
        self.attempts.failed(claim.address);
        Err(Refusal::Key)
    }

    /// Asks the hook, if there is one. Gives the name under which the stream is published.
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

    /// Tells the hook that a publisher is gone.
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
