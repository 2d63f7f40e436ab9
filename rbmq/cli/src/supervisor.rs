//! Notifications of systemd, if it started the broker (`Type=notify`).

use rbmq_broker::Broker;
use sd_notify::NotifyState;

/// How long the supervisor waits until it hears of a process again that waits, at most.
const WAIT_USEC: u32 = 60_000_000;

/// The broker is ready. The status says what clients do not get of it.
pub(super) fn ready(broker: &Broker) {
    let status = match broker.watch().unavailable_topics() {
        0 => String::new(),
        n => format!("{n} topics on the disk are not available: the log says why"),
    };
    up(&status);
}

/// The process is ready.
pub(super) fn up(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// The process waits for something that may come at any time.
pub(super) fn waiting(status: &str) {
    notify(&[NotifyState::Status(status), NotifyState::ExtendTimeoutUsec(WAIT_USEC)]);
}

/// The process waits for the same as before.
pub(super) fn still_waiting() {
    notify(&[NotifyState::ExtendTimeoutUsec(WAIT_USEC)]);
}

/// The broker reloads its configuration. [`ready`] follows.
pub(super) fn reloading() {
    // The time distinguishes this message from that of an earlier reload.
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        notify(&[NotifyState::Reloading, now]);
    }
}

/// The broker is stopping: subscribers receive the remaining messages.
pub(super) fn stopping() {
    notify(&[NotifyState::Stopping]);
}

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!("cannot notify the supervisor: {error}");
    }
}
