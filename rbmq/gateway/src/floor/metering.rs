//! What limits the bytes per second of a connection, and until when.

use std::time::Instant;

use rocketbufs::Meter;

/// The limits of a connection, and what waits because of them.
pub(crate) struct Metering {
    meter: Meter,
    /// Until when nothing is read.
    receive_at: Option<Instant>,
    /// Until when nothing is sent.
    send_at: Option<Instant>,
    /// Until when nothing was sent, the last time.
    sent_at: Option<Instant>,
}

impl Metering {
    /// Nothing waits yet.
    pub(crate) fn new(meter: Meter) -> Self {
        Self { meter, receive_at: None, send_at: None, sent_at: None }
    }

    /// How many bytes may be read at once.
    pub(crate) fn most_to_receive(&self) -> usize {
        self.meter.most_to_receive()
    }

    /// So many bytes were read. Returns until when nothing more is.
    pub(crate) fn arrived(&mut self, bytes: usize) -> Option<Instant> {
        let wait = self.meter.arrived(bytes);
        self.receive_at = (!wait.is_zero()).then(|| Instant::now() + wait);
        self.receive_at
    }

    /// Whether bytes may be read.
    pub(crate) fn receives(&self) -> bool {
        self.receive_at.is_none()
    }

    /// Whether bytes may be sent.
    pub(crate) fn sends(&self) -> bool {
        self.send_at.is_none()
    }

    /// Until when nothing is sent.
    pub(crate) fn send_at(&self) -> Option<Instant> {
        self.send_at
    }

    /// Since when the client alone decides when something is sent, if the limits did before.
    pub(crate) fn sends_since(&self) -> Option<Instant> {
        self.sent_at
    }

    /// How many of the queued bytes may be sent now.
    ///
    /// # Errors
    /// None may be sent before.
    pub(crate) fn may_send(&mut self, queued: u64, now: Instant) -> Result<usize, Instant> {
        if let Some(at) = self.send_at.filter(|at| *at > now) {
            return Err(at);
        }
        self.send_at = None;
        self.meter.may_send(queued).map_err(|wait| {
            self.sent_at = Some(now + wait);
            *self.send_at.insert(now + wait)
        })
    }

    /// So many bytes were sent.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.meter.sent(bytes);
    }

    /// What is due goes on.
    pub(crate) fn wake(&mut self, now: Instant) {
        self.receive_at = self.receive_at.filter(|at| *at > now);
        self.send_at = self.send_at.filter(|at| *at > now);
    }
}
