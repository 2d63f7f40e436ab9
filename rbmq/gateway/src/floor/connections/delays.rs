//! Connections whose bytes per second have limits: sockets that are not read for some time, and queues that wait.

use std::time::Instant;

use rocketbufs::Meter;

use super::super::metering::Metering;
use super::Connections;
use crate::protocol::ConnId;

impl Connections {
    /// Sets what limits the bytes per second of a connection.
    pub(crate) fn set_meter(&mut self, id: ConnId, meter: Option<Meter>) {
        let Some(conn) = self.get_mut(id) else { return };
        let was = conn.metering.take().is_some();
        conn.metering = meter.map(|meter| Box::new(Metering::new(meter)));
        if was {
            // What waited goes on with other limits.
            self.resumed.push(id);
            self.mark(id);
        }
    }

    /// How many bytes of a connection may be read at once.
    pub(crate) fn most_to_read(&self, id: ConnId) -> usize {
        let metering = self.get(id).and_then(|conn| conn.metering.as_ref());
        metering.map_or(usize::MAX, |metering| metering.most_to_receive())
    }

    /// So many bytes of a connection were read.
    pub(crate) fn has_read(&mut self, id: ConnId, bytes: usize) {
        let Some(conn) = self.get_mut(id) else { return };
        if let Some(at) = conn.metering.as_mut().and_then(|metering| metering.arrived(bytes)) {
            self.delayed.insert((at, id));
            self.mark(id);
        }
    }

    /// When a connection goes on that waits.
    pub(crate) fn next_delayed(&self) -> Option<Instant> {
        self.delayed.first().map(|(at, _)| *at)
    }

    /// Connections go on whose time has come.
    pub(crate) fn wake_delayed(&mut self, now: Instant) {
        while let Some((at, id)) = self.delayed.first().copied()
            && at <= now
        {
            self.delayed.pop_first();
            if let Some(metering) = self.get_mut(id).and_then(|conn| conn.metering.as_mut()) {
                metering.wake(now);
                self.resumed.push(id);
                self.mark(id);
            }
        }
    }
}
