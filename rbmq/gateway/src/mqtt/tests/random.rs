//! Whatever clients do in whatever order, the tables agree with each other, and nothing is left when all have gone.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use proptest::prelude::*;

use super::*;
use crate::mqtt::session::Session;
use crate::mqtt::shares::Target;

const TOPICS: [&str; 4] = ["a", "a/b", "b", "$x"];
const FILTERS: [&str; 6] = ["a", "a/#", "+", "#", "$SYS/#", "$share/g/a"];

#[derive(Debug, Clone)]
enum Step {
    Connect(usize, bool, bool),
    Lose(usize),
    Disconnect(usize, u8),
    Subscribe(usize, usize, u8),
    Unsubscribe(usize, usize),
    Publish(usize, usize, u8, bool, u16),
    Ack(usize, u8, u16, bool),
    Pass(u64),
    Slow(usize, bool),
    Late(bool),
    Full(bool),
    Bytes(usize, Vec<u8>),
}

fn step() -> impl Strategy<Value = Step> {
    let who = 0..4_usize;
    let options = prop_oneof![Just(0_u8), 0..3_u8, 0..48_u8];
    prop_oneof![
        4 => (who.clone(), any::<bool>(), any::<bool>()).prop_map(|(who, five, clean)| Step::Connect(who, five, clean)),
        2 => who.clone().prop_map(Step::Lose),
        1 => (who.clone(), 0..5_u8).prop_map(|(who, reason)| Step::Disconnect(who, reason)),
        4 => (who.clone(), 0..FILTERS.len(), options).prop_map(|(who, at, options)| Step::Subscribe(who, at, options)),
        1 => (who.clone(), 0..FILTERS.len()).prop_map(|(who, at)| Step::Unsubscribe(who, at)),
        8 => (who.clone(), 0..TOPICS.len(), 0..3_u8, any::<bool>(), 1..6_u16)
            .prop_map(|(who, topic, qos, retain, id)| Step::Publish(who, topic, qos, retain, id)),
        8 => (who.clone(), 0..4_u8, 1..6_u16, any::<bool>()).prop_map(|(who, kind, id, well)| Step::Ack(who, kind, id, well)),
        1 => (0..2000_u64).prop_map(Step::Pass),
        1 => (who.clone(), any::<bool>()).prop_map(|(who, slow)| Step::Slow(who, slow)),
        1 => any::<bool>().prop_map(Step::Late),
        1 => any::<bool>().prop_map(Step::Full),
        1 => (who, proptest::collection::vec(any::<u8>(), 0..12)).prop_map(|(who, bytes)| Step::Bytes(who, bytes)),
    ]
}

impl Site {
    fn execute(&mut self, step: &Step, conns: &mut [Option<ConnId>; 4]) {
        match *step {
            Step::Connect(who, five, clean) => {
                let (version, id) = (if five { V5 } else { V311 }, ["w", "x", "y", "z"][who]);
                let properties: &[Property<'_>] =
                    if five { &[Property::SessionExpiry(500), Property::ReceiveMaximum(2)] } else { &[] };
                let will = Will {
                    qos: 1,
                    retain: clean,
                    properties: Properties::default(),
                    topic: "a",
                    payload: b"will",
                };
                if let Some(old) = conns[who].take() {
                    self.hello(Hello { clean, properties, will: Some(will), ..Hello::new(version, id) });
                    self.lose(old);
                }
                conns[who] = Some(self.hello(Hello {
                    clean,
                    properties,
                    will: Some(will),
                    ..Hello::new(version, id)
                }));
            }
            Step::Pass(seconds) => self.pass(seconds),
            Step::Late(late) => {
                self.0.bus.is_late = late;
                self.0.subscribed();
            }
            Step::Full(true) => self.0.bus.room = Some(2),
            Step::Full(false) => self.0.make_room(1000),
            Step::Lose(who) => conns[who].take().into_iter().for_each(|conn| self.lose(conn)),
            Step::Disconnect(who, _)
            | Step::Subscribe(who, ..)
            | Step::Unsubscribe(who, _)
            | Step::Publish(who, ..)
            | Step::Ack(who, ..)
            | Step::Slow(who, _)
            | Step::Bytes(who, _) => {
                if let Some(conn) = conns[who] {
                    self.execute_for(conn, step);
                }
            }
        }
    }

    fn execute_for(&mut self, conn: ConnId, step: &Step) {
        let version = self.0.protocol.clients[&conn].version;
        match step {
            Step::Disconnect(_, reason) => {
                self.disconnect(conn, if version == V5 { *reason & 4 } else { 0 }, &[])
            }
            Step::Subscribe(_, at, options) => {
                let options = if version == V5 { *options } else { *options & 1 };
                self.subscribe_with(conn, u32::from(options & 1), &[(FILTERS[*at], options & !2)]);
            }
            Step::Unsubscribe(_, at) => {
                let mut bytes = vec![0, FILTERS[*at].len() as u8];
                bytes.extend_from_slice(FILTERS[*at].as_bytes());
                let filters = Filters::of_unsubscribe(&bytes);
                let request = Request { packet_id: 3, properties: Properties::default(), filters };
                self.send(conn, Packet::Unsubscribe(request));
            }
            Step::Publish(_, topic, qos, retain, id) => {
                let packet_id = if *qos > 0 { *id } else { 0 };
                let payload = if *id == 1 { "" } else { "payload" };
                let publish =
                    Publish { retain: *retain, packet_id, ..message(TOPICS[*topic], *qos, payload) };
                self.publish_with(conn, publish, &[]);
            }
            Step::Ack(_, kind, id, well) => {
                let kinds = [AckKind::Puback, AckKind::Pubrec, AckKind::Pubrel, AckKind::Pubcomp];
                let refused = *kind < 2 && !well;
                self.ack(conn, kinds[usize::from(*kind)], *id, if refused { 0x80 } else { 0 });
            }
            Step::Slow(_, true) => drop(self.0.out.slow.insert(conn)),
            Step::Slow(_, false) => {
                self.0.out.slow.remove(&conn);
                self.0.with(|protocol, cx| protocol.on_drained(conn, cx));
            }
            Step::Bytes(_, bytes) => {
                self.0.feed(conn, bytes);
                self.0.deliver();
            }
            _ => {}
        }
    }

    /// The tables of the machine agree.
    fn check(&self) {
        let machine = &self.0.protocol;
        assert_eq!(machine.names.len(), machine.sessions.len());
        for (slot, session) in &machine.sessions {
            assert_eq!(machine.names[&session.key], slot);
            let sent = session.inflight.iter().filter(|inflight| inflight.sent).count();
            if let Some(link) = &session.link {
                assert_eq!(link.outstanding, sent);
                assert!(link.outstanding <= link.window);
                assert_eq!(machine.clients[&link.conn].slot(), Some(slot));
            }
            session.check();
            for filter in session.filters() {
                let target = Target::of(filter.as_str()).expect("a filter that was granted");
                let route = machine.routes.get(target.filter.as_str()).expect("a subscription has a route");
                let members = route.members(target.group.as_deref());
                assert!(members.iter().any(|subscriber| subscriber.slot == slot));
            }
        }
        let held: usize = machine.sessions.iter().map(|(_, session)| session.held.own()).sum();
        let wills: usize = machine.owed.iter().map(|due| due._held.own()).sum();
        assert_eq!(machine.held.load(Ordering::Relaxed), held + wills);
        let away: Vec<usize> =
            machine.sessions.iter().filter(|(_, s)| s.link.is_none()).map(|(slot, _)| slot).collect();
        assert_eq!(machine.away.values().copied().collect::<BTreeSet<_>>(), away.into_iter().collect());
        let due = |session: &Session| {
            usize::from(session.ends_at.is_some()) + usize::from(session.will_at.is_some())
        };
        let dues: usize = machine.sessions.iter().map(|(_, session)| due(session)).sum();
        assert!(machine.alarms.len() <= machine.clients.len() + dues);
        let joined: usize = machine.routes.values().map(|route| route.all().count()).sum();
        assert_eq!(
            joined,
            machine.sessions.iter().map(|(_, session)| session.filters().len()).sum::<usize>()
        );
        assert_eq!(self.0.bus.filters.len() + machine.own_routes, machine.routes.len());
    }
}

proptest! {
    #[test]
    fn tables_agree_and_nothing_is_left(steps in proptest::collection::vec(step(), 1..80)) {
        let mut site = Site::with(Settings { receive_maximum: 3, max_queued_messages: 4, ..Settings::default() });
        let mut conns = [None; 4];
        for step in &steps {
            site.execute(step, &mut conns);
            site.check();
            for conn in &mut conns {
                if let Some(closed) = conn.take_if(|conn| site.is_closed(*conn)) {
                    site.lose(closed);
                }
            }
        }
        site.0.bus.room = None;
        let open: Vec<ConnId> = site.0.protocol.clients.keys().copied().collect();
        open.into_iter().for_each(|conn| site.lose(conn));
        site.pass(24 * 3600);
        let machine = &site.0.protocol;
        prop_assert!(machine.sessions.is_empty() && machine.names.is_empty() && machine.routes.is_empty());
        prop_assert!(machine.alarms.is_empty() && machine.stalled.is_empty() && machine.owed.is_empty());
        prop_assert!(site.0.bus.filters.is_empty());
    }
}
