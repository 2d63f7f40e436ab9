//! What systemd is told, if it started the broker (`Type=notify`). Nobody else is told anything.

use sd_notify::NotifyState;

/// It serves.
pub(super) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// It reads its configuration again; [`ready`] follows.
pub(super) fn reloading() {
    // The time tells this message from one of an earlier reload.
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        tell(&[NotifyState::Reloading, now]);
    }
}

/// It ends: subscribers receive what is there.
pub(super) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!("cannot tell the supervisor: {error}");
    }
}
