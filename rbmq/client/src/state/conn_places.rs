//! Which broker a connection of a publisher leads to.

use std::collections::HashMap;
use std::sync::Mutex;

use rocketbufs::Conn;

use crate::connection::lock;

/// Numbers the brokers to which a publisher has connections.
pub(crate) type PlaceId = u64;

/// The broker that the publisher was told to connect to.
pub(crate) const HOME: PlaceId = 0;

/// No broker: a topic is on its way from one to another.
pub(crate) const NOWHERE: PlaceId = PlaceId::MAX;

/// Which broker a connection leads to.
#[derive(Default)]
pub(crate) struct ConnPlaces(Mutex<HashMap<u64, PlaceId>>);

impl ConnPlaces {
    /// A connection begins, in place of those that led there before.
    pub(crate) fn begin(&self, conn: &Conn, place: PlaceId) {
        let mut places = lock(&self.0);
        places.retain(|_, of| *of != place);
        places.insert(conn.id(), place);
    }

    /// No connection leads there any more.
    pub(crate) fn forget(&self, place: PlaceId) {
        lock(&self.0).retain(|_, of| *of != place);
    }

    pub(crate) fn of(&self, conn: &Conn) -> Option<PlaceId> {
        lock(&self.0).get(&conn.id()).copied()
    }
}
