//! A poll: the kernel's events of connections, the adapters' completions, and deadlines.

use std::time::{Duration, Instant};

use rocketnet::contract::AcceptedHandle;
use rocketnet::{Accepted, ConnId, Down, Event};
use rustix::event::epoll;

use crate::conn::State;
use crate::frame;
use crate::sys::{CmEvent, DeviceFailure, Incoming, Kind};
use crate::transport::{DEVICE, EVENTS, LISTENER, Rdma, TROUBLE, WAKER, Waiting};

/// Descriptors and connections' events handled in one poll.
const READY_PER_POLL: usize = 64;
const EVENTS_PER_POLL: usize = 256;

/// The reason of connections whose device was removed, or whose driver was unloaded.
pub(crate) const GONE: &str = "the RDMA device is gone";

impl Rdma {
    /// See [`rocketnet::Transport::poll`].
    pub(crate) fn drive(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) {
        events.append(&mut self.backlog);
        let before = events.len();
        self.wait(if before > 0 { Some(Duration::ZERO) } else { timeout }, events);
        if self.config.polling {
            for id in self.conns.ids().collect::<Vec<_>>() {
                self.serve_again(id);
            }
        }
        for id in std::mem::take(&mut self.again) {
            if let Some(conn) = self.conns.get_mut(id) {
                conn.listed = false;
                self.serve(id, events);
            }
        }
        self.expire(events);
        events.append(&mut self.backlog);
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) {
        let timeout = match (timeout, self.within()) {
            (Some(timeout), Some(within)) => Some(timeout.min(within)),
            (timeout, within) => timeout.or(within),
        };
        // The kernel counts in milliseconds or finer; the rest of the time is waited for.
        let timeout = timeout.and_then(|timeout| rustix::event::Timespec::try_from(timeout).ok());
        let mut ready = Vec::with_capacity(READY_PER_POLL);
        let waited = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut ready), timeout.as_ref());
        if waited.is_err() {
            return; // interrupted: the caller polls again
        }
        for token in ready.iter().map(|event: &epoll::Event| event.data.u64()) {
            match token {
                WAKER => {}
                EVENTS => self.take_events(events),
                index if index & TROUBLE != 0 => self.take_trouble((index & !TROUBLE) as usize),
                index => self.take_completions(index as usize),
            }
        }
    }

    /// How long the thread may sleep; None: until a descriptor is readable.
    pub(crate) fn within(&self) -> Option<Duration> {
        if !self.again.is_empty() || !self.backlog.is_empty() || self.config.polling {
            return Some(Duration::ZERO);
        }
        let (at, _) = self.deadlines.first()?;
        Some(at.saturating_duration_since(Instant::now()))
    }

    /// Connections with completions: their queues are armed again, and are then handled.
    fn take_completions(&mut self, index: usize) {
        let Some(completions) = self.devices.get(index).map(|device| device.completions.clone()) else {
            return;
        };
        for _ in 0..EVENTS_PER_POLL {
            let Some(number) = completions.next() else { return };
            let id = ConnId(number);
            if let Some(queue_pair) = self.conns.get_mut(id).and_then(|conn| conn.queue_pair.as_mut()) {
                queue_pair.arm();
            }
            self.serve_again(id);
        }
    }

    /// A device or a port has failed: its connections end once everything that arrived before was handled.
    fn take_trouble(&mut self, index: usize) {
        let Some(device) = self.devices.get(index) else { return };
        let failures = std::iter::from_fn(|| device.watch.next()).take(EVENTS_PER_POLL).flatten();
        let (context, failures) = (device.context, failures.collect::<Vec<_>>());
        for DeviceFailure { port, what } in failures {
            tracing::warn!(what, "RDMA");
            for id in self.conns.ids().collect::<Vec<_>>() {
                let Some(conn) = self.conns.get_mut(id) else { continue };
                if conn.queue_pair.as_ref().is_some_and(|queue_pair| queue_pair.goes_over(context, port)) {
                    conn.ended.get_or_insert_with(|| Down::Broken(what.clone()));
                    self.serve_again(id);
                }
            }
        }
    }

    fn take_events(&mut self, events: &mut Vec<Event>) {
        for _ in 0..EVENTS_PER_POLL {
            let Some(event) = self.events.next() else { return };
            self.on_event(event, events);
        }
    }

    pub(crate) fn on_event(&mut self, event: CmEvent, events: &mut Vec<Event>) {
        match (event.number, event.kind) {
            (number, Kind::Request(incoming)) if number & LISTENER != 0 => {
                self.come_in((number & !LISTENER) as usize, incoming, events);
            }
            (number, Kind::DeviceRemoved) if number & LISTENER != 0 => {
                self.lose_listener((number & !LISTENER) as usize);
            }
            (number, Kind::DeviceRemoved) if number & DEVICE != 0 => {
                self.lose_device((number & !DEVICE) as usize, events);
            }
            (number, _) if number & (LISTENER | DEVICE) != 0 => {}
            (number, kind) => self.on_cm(ConnId(number), kind, &event.private, events),
        }
    }

    fn come_in(&mut self, listener: usize, incoming: Incoming, events: &mut Vec<Event>) {
        let Some(listening) = self.listeners.get(listener) else { return };
        if let Err(reason) = frame::read_greeting(&incoming.private) {
            tracing::debug!(peer = incoming.peer, reason, "refused over RDMA");
            return;
        }
        let (peer, local) = (incoming.peer.clone(), listening.addr.clone());
        let handle = AcceptedHandle::Other(Box::new(Waiting(incoming)));
        events.push(Event::Incoming(Accepted { peer, local, handle }));
    }

    /// The next step of a connection.
    fn on_cm(&mut self, id: ConnId, kind: Kind, private: &[u8], events: &mut Vec<Event>) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let stepped = match (kind, &conn.state) {
            (Kind::AddressResolved, State::Resolving) => self.route(id),
            (Kind::RouteResolved, State::Routing) => self.ask(id),
            (Kind::Established, State::Connecting) => {
                self.established(id, private).map(|()| events.push(Event::Connected(id)))
            }
            (Kind::Established, State::Accepting) => {
                conn.state = State::Open;
                Ok(())
            }
            (Kind::Disconnected, _) => {
                conn.ended.get_or_insert(Down::Broken("the peer ended it without a word, or died".into()));
                Ok(())
            }
            (Kind::DeviceRemoved, _) => Err(GONE.into()),
            (Kind::Failed(reason), _) => Err(reason),
            _ => Ok(()),
        };
        match stepped {
            Ok(()) => {
                if let Some(conn) = self.conns.get_mut(id).filter(|conn| conn.state == State::Open) {
                    conn.set_deadline(None, &mut self.deadlines);
                }
                self.serve_again(id);
            }
            Err(reason) => self.fail(id, Down::Broken(reason), events),
        }
    }

    fn route(&mut self, id: ConnId) -> Result<(), String> {
        let timeout = self.config.connect_timeout.as_millis().min(u128::from(u32::MAX)) as u32;
        let Some(conn) = self.conns.get_mut(id) else { return Ok(()) };
        conn.state = State::Routing;
        conn.cm.as_ref().map_or(Ok(()), |cm| cm.resolve_route(timeout)).map_err(|e| e.to_string())
    }

    fn ask(&mut self, id: ConnId) -> Result<(), String> {
        let Some(cm) = self.conns.get_mut(id).and_then(|conn| conn.cm.take()) else { return Ok(()) };
        let queue_pair = self.open_queue_pair(id, cm)?;
        let greeting = frame::greeting(self.config.receive_depth);
        queue_pair.go(false, &greeting).map_err(|e| e.to_string())?;
        let Some(conn) = self.conns.get_mut(id) else { return Ok(()) };
        conn.state = State::Connecting;
        conn.set_queue_pair(queue_pair)
    }

    fn established(&mut self, id: ConnId, private: &[u8]) -> Result<(), String> {
        let receives = frame::read_greeting(private)?;
        if let Some(conn) = self.conns.get_mut(id) {
            conn.open(&self.config, receives);
        }
        Ok(())
    }

    /// Takes and handles a connection's completions, posts the items that there is room for, and reports events.
    fn serve(&mut self, id: ConnId, events: &mut Vec<Event>) {
        let Some(conn) = self.conns.get_mut(id).filter(|conn| !conn.is_down()) else { return };
        let all = conn.take_completions();
        if conn.state == State::Accepting && !conn.intake.is_empty() {
            // A message of the peer shows that it got the answer; its own acknowledgement can be lost.
            conn.state = State::Open;
            conn.set_deadline(None, &mut self.deadlines);
        }
        match conn.serve(events) {
            Ok(more) => {
                events.extend(conn.out.take_writable().then_some(Event::Writable(id)));
                if conn.is_finished() {
                    let why = conn.reason(Down::PeerClosed);
                    self.fail(id, why, events);
                } else if more || !all {
                    self.serve_again(id);
                }
            }
            Err(down) => self.fail(id, down, events),
        }
    }

    fn expire(&mut self, events: &mut Vec<Event>) {
        while let Some(&(at, number)) = self.deadlines.first() {
            if at > Instant::now() {
                return;
            }
            self.deadlines.remove(&(at, number));
            if number & LISTENER != 0 {
                self.listen_again((number & !LISTENER) as usize);
                continue;
            }
            let Some(conn) = self.conns.get_mut(ConnId(number)) else { continue };
            conn.deadline = None;
            let reason = format!("no answer within {:?}", self.config.connect_timeout);
            self.fail(ConnId(number), Down::Broken(reason), events);
        }
    }

    pub(crate) fn set_deadline(&mut self, id: ConnId, after: Option<Duration>) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        let at = after.and_then(|after| Instant::now().checked_add(after));
        conn.set_deadline(at, &mut self.deadlines);
    }

    /// Ends a connection outside of a poll. The next poll reports it.
    pub(crate) fn fail_later(&mut self, id: ConnId, down: Down) {
        let mut backlog = std::mem::take(&mut self.backlog);
        self.fail(id, down, &mut backlog);
        self.backlog = backlog;
    }

    /// Ends a connection and reports why.
    pub(crate) fn fail(&mut self, id: ConnId, seen: Down, events: &mut Vec<Event>) {
        let Some(conn) = self.conns.get_mut(id).filter(|conn| !conn.is_down()) else { return };
        let reason = conn.reason(seen);
        tracing::debug!(conn = id.0, %reason, "RDMA connection down");
        conn.end();
        conn.set_deadline(None, &mut self.deadlines);
        events.push(Event::Down(id, reason));
    }
}
