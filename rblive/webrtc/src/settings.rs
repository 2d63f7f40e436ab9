//! Settings of the peers of WebRTC.

use ::settings::section;

section! {
    /// Peers of WebRTC: viewers that need the picture within half a second.
    "webrtc" Settings {
        /// The address for datagrams, as `0.0.0.0:8443`; all viewers share this port. Empty: no WebRTC. Port 0 takes any free port.
        listen: String = String::new();
        /// The addresses at which viewers reach `listen`, as `203.0.113.7`, if others than its own: behind a router that translates addresses,
        /// or in a container. A port may follow, as `203.0.113.7:8443`. Empty: the address of `listen`, or the one at which the viewer's request for the stream
        /// arrived.
        addresses: Vec<String> = Vec::new();
        /// The most viewers. Each takes about half a MiB, and the work of encrypting the stream once more.
        max_viewers: usize = 1000, range [at least 0];
        /// The most viewers of one address. 0: three quarters of `max_viewers`, so that others get in. Of an IPv6 address the first 64 bits
        /// count.
        max_viewers_per_address: usize = 0, range [at least 0];
    }
}

impl Settings {
    /// Whether there is WebRTC.
    pub fn is_used(&self) -> bool {
        !self.listen.is_empty()
    }
}
