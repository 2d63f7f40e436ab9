//! Connections and sessions: CONNECT, take-over, DISCONNECT, keep alive, wills.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rbmq_wire::TopicName;

use crate::protocol::{ConnId, Cx, Entry, FilterCount};

use super::codec::{Connack, Connect, Ending, Packet, Properties, Property, Version, Will, reason};
use super::session::{Held, Link, Session};
use super::settings::MAX_CLIENT_ID;
use super::state::{Alarm, Client, FOREVER, Fault, Mqtt, Opening, Stage, Step};
use super::will::OwnedWill;

impl Mqtt {
    /// Executes CONNECT.
    pub(super) fn connect(
        &mut self,
        conn: ConnId,
        connect: Connect<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<Step, Fault> {
        if let Some(client) = self.clients.get_mut(&conn) {
            client.version = connect.version;
        }
        let opening = match self.opening(conn, &connect) {
            Ok(opening) => opening,
            Err(fault) => {
                self.refuse(conn, fault, cx);
                return Ok(Step::Done);
            }
        };
        let entry = match (connect.user, connect.password) {
            // With a certificate, the client is somebody by now.
            (None, None) if cx.door.user(conn).is_some() || cx.door.lets_in_anonymous() => Entry::In,
            (None, None) => {
                let fault =
                    Fault::new(reason::NOT_AUTHORIZED, "this gateway lets nobody in without a user or token");
                self.refuse(conn, fault, cx);
                return Ok(Step::Done);
            }
            (user, password) => match std::str::from_utf8(password.unwrap_or_default()) {
                Ok(secret) => cx.door.log_in(conn, user.filter(|user| !user.is_empty()), secret),
                Err(_) => Entry::Refused,
            },
        };
        match entry {
            Entry::In => self.establish(conn, opening, cx),
            Entry::Refused => self.refuse_login(conn, cx),
            Entry::Wait => {
                if let Some(client) = self.clients.get_mut(&conn) {
                    client.stage = Stage::LoggingIn(Box::new(opening));
                }
            }
        }
        Ok(Step::Done)
    }

    /// A password was checked.
    pub(super) fn logged_in(&mut self, conn: ConnId, accepted: bool, cx: &mut Cx<'_>) {
        let Some(client) = self.clients.get_mut(&conn) else { return };
        let Stage::LoggingIn(opening) = std::mem::replace(&mut client.stage, Stage::New) else { return };
        match accepted {
            true => self.establish(conn, *opening, cx),
            false => self.refuse_login(conn, cx),
        }
        cx.out.resume(conn);
    }

    fn refuse_login(&mut self, conn: ConnId, cx: &mut Cx<'_>) {
        self.refuse(conn, Fault::new(reason::CREDENTIALS, "wrong user, password or token"), cx);
    }

    /// What a CONNECT asks for, checked.
    fn opening(&mut self, conn: ConnId, connect: &Connect<'_>) -> Result<Opening, Fault> {
        let version = connect.version;
        let mut opening = Opening {
            version,
            clean_start: connect.clean_start,
            client_id: connect.client_id.to_owned(),
            assigned: false,
            keep_alive: connect.keep_alive,
            asked_expiry: if version == Version::V311 && !connect.clean_start { FOREVER } else { 0 },
            expiry: None,
            receive_maximum: u16::MAX,
            max_packet: usize::MAX,
            will: None,
        };
        let mut method = false;
        for property in connect.properties.iter() {
            match property {
                Property::SessionExpiry(seconds) => opening.asked_expiry = seconds,
                Property::ReceiveMaximum(most) => opening.receive_maximum = most,
                Property::MaximumPacketSize(most) => {
                    opening.max_packet = most as usize;
                    if let Some(client) = self.clients.get_mut(&conn) {
                        client.max_packet = most as usize;
                    }
                }
                Property::AuthMethod(_) => method = true,
                Property::RequestProblem(wants) => {
                    if let Some(client) = self.clients.get_mut(&conn) {
                        client.wants_reasons = wants;
                    }
                }
                _ => {}
            }
        }
        if method {
            return Err(Fault::new(
                reason::AUTH_METHOD,
                "only user and password, or a token as the password",
            ));
        }
        opening.expiry = self.life(opening.asked_expiry);
        self.name(&mut opening)?;
        opening.will = connect.will.map(owned_will).transpose()?;
        Ok(opening)
    }

    /// Checks the client id, and gives one to a client without.
    fn name(&mut self, opening: &mut Opening) -> Result<(), Fault> {
        if opening.client_id.is_empty() {
            if opening.version == Version::V311 && !opening.clean_start {
                return Err(Fault::new(reason::CLIENT_ID, "a session needs a client id"));
            }
            // The number says nothing of those by which the gateway knows its messages.
            self.named += 1;
            opening.client_id = format!("rbmq-{:016x}-{}", self.name_seed, self.named);
            opening.assigned = true;
        }
        if opening.client_id.len() > MAX_CLIENT_ID {
            return Err(Fault::new(reason::CLIENT_ID, "the client id is longer than 1,024 bytes"));
        }
        Ok(())
    }

    /// Refuses a CONNECT and closes.
    pub(super) fn refuse(&mut self, conn: ConnId, fault: Fault, cx: &mut Cx<'_>) {
        let tells = self.tells(conn, fault.text);
        let Some(client) = self.clients.get_mut(&conn) else { return };
        client.stage = Stage::Closed;
        let mut properties = Vec::new();
        if tells {
            Property::ReasonString(fault.text).put(&mut properties);
        }
        let reason = match client.version {
            Version::V5 => fault.reason,
            Version::V311 => reason::connack_v311(fault.reason),
        };
        let properties = Properties::new(&properties);
        let connack = Packet::Connack(Connack { session_present: false, reason, properties });
        cx.out.send(conn, &connack.encode(client.version));
        cx.out.close(conn, fault.text);
    }

    /// Lets a client in: finds or makes its session.
    fn establish(&mut self, conn: ConnId, mut opening: Opening, cx: &mut Cx<'_>) {
        if let Some(will) = &opening.will
            && !cx.door.may_publish(conn, &will.topic)
        {
            return self.refuse(conn, Fault::new(reason::NOT_AUTHORIZED, "no right to publish the will"), cx);
        }
        let key =
            format!("{}\0{}", cx.door.user(conn).unwrap_or_default(), opening.client_id).into_boxed_str();
        if let Some(&slot) = self.names.get(&key) {
            self.take_over(slot, cx);
        }
        if opening.clean_start
            && let Some(&slot) = self.names.get(&key)
        {
            self.end_session(slot, cx);
        }
        let present = self.names.get(&key).copied();
        let filters = present.map(|slot| self.sessions[slot].filter_count()).unwrap_or_default();
        if filters.all > 0 && cx.door.ask_for_filters(conn, filters).is_err() {
            let text = "the filters of the session are beyond a quota";
            return self.refuse(conn, Fault::new(reason::QUOTA, text), cx);
        }
        if present.is_none() && !self.make_room_for_session(&opening, cx) {
            return self.refuse(conn, Fault::new(reason::QUOTA, "there are too many sessions"), cx);
        }
        let slot = present.unwrap_or_else(|| {
            self.serials += 1;
            let slot = self.sessions.insert(Session::new(self.serials, key.clone(), Held::of(&self.held)));
            self.names.insert(key, slot);
            slot
        });
        self.disarm(slot);
        let session = &mut self.sessions[slot];
        session.expiry = opening.expiry;
        session.set_will(opening.will.take());
        session.attach(Link {
            conn,
            version: opening.version,
            window: opening.receive_maximum.min(self.settings.max_inflight).into(),
            outstanding: 0,
            max_packet: opening.max_packet,
        });
        self.keep_session(slot);
        self.admit(conn, slot, &opening, cx.now);
        self.send_connack(conn, present.is_some(), &opening, cx);
        cx.out.known(conn);
        self.resume_session(slot, cx);
    }

    /// Makes room for one more session: those that are without a connection for the longest time end, as many as there are too many, and as hold
    /// what the new one needs. Without any, a session that ends with its connection has room like that.
    fn make_room_for_session(&mut self, opening: &Opening, cx: &mut Cx<'_>) -> bool {
        let needed = opening.will.as_ref().map_or(0, OwnedWill::bytes) + size_of::<Session>();
        let excess =
            (self.held.load(Ordering::Relaxed) + needed).saturating_sub(self.settings.max_session_bytes);
        let mut excess = excess.min(needed);
        while self.sessions.len() >= self.settings.max_sessions || excess > 0 {
            let Some((_, &slot)) = self.away.first_key_value() else {
                return opening.expiry == Some(Duration::ZERO);
            };
            excess = excess.saturating_sub(self.sessions[slot].held.own());
            self.counts.sessions_expired += 1;
            self.end_session(slot, cx);
        }
        true
    }

    /// The connection has its session.
    fn admit(&mut self, conn: ConnId, slot: usize, opening: &Opening, now: Instant) {
        let Some(client) = self.clients.get_mut(&conn) else { return };
        client.stage = Stage::Live(slot);
        client.heard = now;
        let keep_alive = u64::from(opening.keep_alive);
        client.patience = (keep_alive > 0).then(|| Duration::from_millis(keep_alive * 1500));
        let due = client.patience.map(|patience| now + patience);
        self.set_silence(conn, due);
    }

    fn send_connack(&self, conn: ConnId, session_present: bool, opening: &Opening, cx: &mut Cx<'_>) {
        let mut bytes = Vec::new();
        let granted = opening.expiry.map_or(FOREVER, |expiry| expiry.as_secs() as u32);
        if granted != opening.asked_expiry {
            Property::SessionExpiry(granted).put(&mut bytes);
        }
        if opening.assigned {
            Property::AssignedClientId(&opening.client_id).put(&mut bytes);
        }
        let settings = &self.settings;
        let most = u32::try_from(settings.max_packet()).unwrap_or(u32::MAX);
        // Without «maximum QoS» it is 2, which the property cannot say.
        for property in [
            Property::ReceiveMaximum(settings.receive_maximum),
            Property::RetainAvailable(true),
            Property::MaximumPacketSize(most),
            Property::TopicAliasMaximum(settings.topic_alias_maximum),
            Property::WildcardAvailable(true),
            Property::SubscriptionIdAvailable(true),
            Property::SharedAvailable(true),
        ] {
            property.put(&mut bytes);
        }
        let connack =
            Connack { session_present, reason: reason::SUCCESS, properties: Properties::new(&bytes) };
        cx.out.send(conn, &Packet::Connack(connack).encode(opening.version));
    }

    /// Another connection wants the session: the present one ends.
    fn take_over(&mut self, slot: usize, cx: &mut Cx<'_>) {
        let Some(old) = self.sessions[slot].link.as_ref().map(|link| link.conn) else { return };
        self.fail(old, Fault::new(reason::TAKEN_OVER, "another connection has the session now"), cx);
    }

    /// Ends a connection by a fault of the client, or of the gateway.
    pub(super) fn fail(&mut self, conn: ConnId, fault: Fault, cx: &mut Cx<'_>) {
        let tells = self.tells(conn, fault.text);
        let Some(client) = self.clients.get_mut(&conn) else { return };
        let slot = match client.stage {
            Stage::Live(slot) => slot,
            Stage::Closed => return,
            Stage::New | Stage::LoggingIn(_) => {
                client.stage = Stage::Closed;
                return cx.out.close(conn, fault.text);
            }
        };
        client.stage = Stage::Closed;
        if client.version == Version::V5 {
            let mut bytes = Vec::new();
            if tells {
                Property::ReasonString(fault.text).put(&mut bytes);
            }
            let ending = Ending { reason: fault.reason, properties: Properties::new(&bytes) };
            cx.out.send(conn, &Packet::Disconnect(ending).encode(Version::V5));
        }
        cx.out.close(conn, fault.text);
        self.detach(slot, cx);
    }

    /// The gateway stops. Wills are not published: nobody died.
    pub(super) fn say_goodbye(&mut self, conn: ConnId, cx: &mut Cx<'_>) {
        if let Some(slot) = self.clients.get(&conn).and_then(Client::slot) {
            self.sessions[slot].set_will(None);
            self.fail(conn, Fault::new(reason::SHUTTING_DOWN, "the gateway stops"), cx);
        }
    }

    /// Executes DISCONNECT.
    pub(super) fn disconnect(
        &mut self,
        conn: ConnId,
        slot: usize,
        ending: Ending<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<Step, Fault> {
        for property in ending.properties.iter() {
            match property {
                Property::SessionExpiry(seconds) => {
                    let life = self.life(seconds);
                    let session = &mut self.sessions[slot];
                    if session.expiry == Some(Duration::ZERO) && seconds > 0 {
                        return Err(Fault::protocol("a session without expiry gets none at its end"));
                    }
                    session.expiry = life;
                }
                Property::ServerReference(_) => return Err(Fault::protocol("a property of servers")),
                _ => {}
            }
        }
        if ending.reason == reason::SUCCESS {
            self.sessions[slot].set_will(None);
        }
        if let Some(client) = self.clients.get_mut(&conn) {
            client.stage = Stage::Closed;
        }
        cx.out.close(conn, "the client disconnected");
        self.detach(slot, cx);
        Ok(Step::Done)
    }

    /// The session's connection is gone.
    pub(super) fn detach(&mut self, slot: usize, cx: &mut Cx<'_>) {
        let now = cx.now;
        self.stalled.remove(&slot);
        let session = &mut self.sessions[slot];
        let link = session.link.take();
        if let Some(link) = &link {
            // They count for the next connection of the session, which may be there before this one has sent its last byte.
            cx.door.set_filters(link.conn, FilterCount::default());
        }
        if let (Some(link), Some(will)) = (link, session.will())
            && !cx.door.may_publish(link.conn, &will.topic)
        {
            // The right was taken since CONNECT.
            session.set_will(None);
            self.counts.refused += 1;
        }
        if session.expiry == Some(Duration::ZERO) {
            return self.end_session(slot, cx);
        }
        session.ends_at = session.expiry.map(|expiry| now + expiry);
        session.will_at = session.will().map(|will| now + will.delay);
        let serial = session.serial;
        self.departures += 1;
        session.away = Some(self.departures);
        self.away.insert(self.departures, slot);
        self.keep_session(slot);
        self.look_at_session(slot, serial, cx);
        // The end publishes the will if it comes first.
        let Some(session) = self.session(slot, serial) else { return };
        for at in [session.ends_at, session.will_at].into_iter().flatten() {
            self.alarms.insert((at, Alarm::Session { slot, serial }));
        }
    }

    /// Publishes the will of a session without connection or ends the session, if it is time.
    pub(super) fn look_at_session(&mut self, slot: usize, serial: u64, cx: &mut Cx<'_>) {
        let now = cx.now;
        let Some(session) = self.session(slot, serial) else { return };
        if session.will_at.is_some_and(|at| at <= now) {
            session.will_at = None;
            self.publish_will(slot, cx);
        }
        if self.session(slot, serial).is_some_and(|session| session.ends_at.is_some_and(|at| at <= now)) {
            self.counts.sessions_expired += 1;
            self.end_session(slot, cx);
        }
    }

    /// Forgets a session, and publishes its will.
    pub(super) fn end_session(&mut self, slot: usize, cx: &mut Cx<'_>) {
        self.disarm(slot);
        let filters: Vec<_> = self.sessions[slot].filters().cloned().collect();
        for filter in &filters {
            self.leave_route(slot, filter, cx);
        }
        // Before the end is noted, which takes the will out of the journal.
        self.publish_will(slot, cx);
        let mut session = self.sessions.remove(slot);
        session.note_end();
        session.numbers_on_their_way().for_each(|number| drop(self.awaited.remove(&number)));
        self.names.remove(&session.key);
        self.stalled.remove(&slot);
    }

    /// Looks whether a connection was silent for too long.
    pub(super) fn look_at_silence(&mut self, conn: ConnId, cx: &mut Cx<'_>) {
        let Some(client) = self.clients.get_mut(&conn) else { return };
        client.alarm = None;
        let waits = client.subscribing.as_ref().is_some_and(|subscribing| !subscribing.waits.is_empty());
        if client.blocked || waits || matches!(client.stage, Stage::LoggingIn(_)) {
            // Nothing was read.
            client.heard = cx.now;
        }
        let patience = match client.stage {
            Stage::Closed => return,
            Stage::New => Some(self.settings.connect_timeout),
            _ => client.patience,
        };
        let Some(patience) = patience else { return };
        let due = client.heard + patience;
        if due > cx.now {
            self.set_silence(conn, Some(due));
        } else {
            self.fail(conn, Fault::new(reason::KEEP_ALIVE, "nothing was received for too long"), cx);
        }
    }
}

fn owned_will(will: Will<'_>) -> Result<OwnedWill, Fault> {
    let topic: TopicName = will
        .topic
        .parse()
        .map_err(|_| Fault::new(reason::TOPIC_INVALID, "the topic of the will is not acceptable"))?;
    if topic.as_str().starts_with('$') {
        return Err(Fault::new(reason::NOT_AUTHORIZED, "topics that begin with '$' are the broker's"));
    }
    let (mut properties, mut delay) = (Vec::new(), Duration::ZERO);
    for property in will.properties.iter() {
        match property {
            Property::WillDelay(seconds) => delay = Duration::from_secs(seconds.into()),
            Property::ResponseTopic(topic) if topic.contains(['+', '#']) => {
                return Err(Fault::protocol("a response topic with wildcards"));
            }
            other => other.put(&mut properties),
        }
    }
    Ok(OwnedWill {
        topic,
        qos: will.qos,
        retain: will.retain,
        properties,
        payload: will.payload.to_vec(),
        delay,
        is_restored: false,
    })
}
