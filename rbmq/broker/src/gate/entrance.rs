//! The entrance for the clients of a gateway: logins, rights, quotas, and the audit log.
//!
//! ```text
//!   arrive ──▶ anonymous or by certificate: in ─┐
//!      └─▶ log_in ──▶ token, a known password ──┤──▶ may_publish, may_subscribe ──▶ left
//!             └──▶ password ─▶ broker's threads ─▶ next_event ─┘
//!   reload, time ──▶ next_event: cut off, or other rights
//! ```
//!
//! The thread of the gateway owns the entrance, and decides here without a lock. Passwords are checked on the broker's threads for them, in
//! the same queue as those of all clients.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Instant, SystemTime};

use access::{AuditEvent, Login, Method, Operation, Refused, Step};
use peers::LogLimiter;
use rbmq_wire::{Credentials, Secret, TopicFilter, TopicName};
use rocketbufs::{Meter, MeterClock};
use tracing::{error, info, warn};

use super::clients::{Client, Due, Waiting, What, is_same};
use super::counters::{Count, GatewayCounters};
use super::desk::Desk;
use crate::admission::{grants, not_allowed};
use crate::groups::GroupCharge;
use crate::in_force::{Rules, Wake};
use crate::password_check::PasswordCheck;

/// The outcome of a login, for now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// The client is let in.
    In,
    /// The client is refused. The text is for the client, and does not reveal which users exist.
    Refused(String),
    /// A password is being checked: [`EntranceEvent::LoginDecided`] follows.
    Wait,
}

/// Something that has changed for a client.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntranceEvent {
    /// A login that had to wait is decided: [`Entry::In`] or [`Entry::Refused`].
    LoginDecided {
        /// The client.
        client: u64,
        /// The outcome.
        entry: Entry,
    },
    /// The client's login has ended, or its user was removed: it has no rights any more, and must be disconnected.
    CutOff {
        /// The client.
        client: u64,
        /// The reason, also for the client.
        reason: String,
    },
    /// The client has other rights.
    RightsChanged {
        /// The client.
        client: u64,
    },
}

/// The result of a check, with the client and its attempt.
type Checked = (u64, u64, Result<Login, Refused>);

/// The clients of one gateway.
pub struct Entrance {
    desk: Desk,
    rules: Rules,
    /// The number of the rules that are known here.
    seen: u64,
    counters: Arc<GatewayCounters>,
    clients: HashMap<u64, Client>,
    attempts: u64,
    results: mpsc::Receiver<Checked>,
    tell: mpsc::SyncSender<Checked>,
    wake: Arc<Wake>,
    events: VecDeque<EntranceEvent>,
    /// When a password must have been checked, and when logins end by themselves.
    due: Due,
    clock: MeterClock,
    /// Who has logged in, and what limits their bytes per second.
    meters: Vec<(u64, Option<Meter>)>,
    lines: Lines,
}

/// The limits of lines in the log that any client can cause, as often as it likes.
#[derive(Default)]
struct Lines {
    refused: LogLimiter,
    over_quota: LogLimiter,
    logged_in: LogLimiter,
}

/// More results than passwords that can wait: a thread that checks passwords never waits for a gateway.
const MAX_RESULTS: usize = 1 << 16;

impl Entrance {
    pub(super) fn new(
        desk: Desk,
        counters: Arc<GatewayCounters>,
        wake: Arc<Wake>,
        clock: MeterClock,
    ) -> Self {
        let (tell, results) = mpsc::sync_channel(MAX_RESULTS);
        desk.in_force.wake_on_change(&wake);
        let (seen, rules) = (desk.in_force.changes(), desk.in_force.rules());
        Self {
            desk,
            rules,
            seen,
            counters,
            clients: HashMap::new(),
            attempts: 0,
            results,
            tell,
            wake,
            events: VecDeque::new(),
            due: Due::default(),
            clock,
            meters: Vec::new(),
            lines: Lines::default(),
        }
    }

    /// The counters of the gateway.
    pub fn counters(&self) -> &Arc<GatewayCounters> {
        &self.counters
    }

    /// Whether clients without credentials are let in, because the broker has no users.
    pub fn lets_in_anonymous(&self) -> bool {
        !self.rules.authenticator.has_users()
    }

    /// A client has connected, from an address as `192.0.2.1:5000`, with the certificate in DER that its TLS connection has checked.
    /// True: it need not log in, because the broker has no users or a user has its certificate.
    ///
    /// # Errors
    /// The client must be disconnected: its address or user has too many connections. The text is for the client.
    pub fn arrive(
        &mut self,
        client: u64,
        address: &str,
        certificate: Option<Arc<[u8]>>,
    ) -> Result<bool, String> {
        self.clients.insert(client, Client::new(client, address, certificate));
        self.count_connections();
        self.counters.count(Count::Accepted);
        let of_connection = match self.clients.get(&client) {
            Some(known) if self.lets_in_anonymous() || known.peer.certificate.is_some() => {
                self.rules.authenticator.of_connection(&known.peer)
            }
            _ => return Ok(false),
        };
        match of_connection {
            Ok(login) => match self.enter(client, login) {
                Entry::Refused(why) => Err(why),
                _ => Ok(true),
            },
            // The certificate is of no user, but the client may have a password.
            Err(_) => Ok(false),
        }
    }

    /// A client shows who it is: with a name and a password, or with a token if there is no name. A client that was let in before stays
    /// who it was until the login is accepted. Where that user has too many connections, it is refused, and nobody from then on.
    pub fn log_in(&mut self, client: u64, user: Option<&str>, secret: &str) -> Entry {
        let secret = Secret::from(secret.to_owned());
        let credentials = match user {
            Some(user) => Credentials::password(user, secret),
            None => Credentials::token(secret),
        };
        let Some(known) = self.clients.get_mut(&client) else {
            return Entry::Refused(Refused::Left.for_client());
        };
        known.end_wait(&mut self.due);
        if !self.rules.authenticator.has_users() {
            return Entry::In;
        }
        let Ok(credentials) = credentials else {
            return self.refuse(client, &Refused::NoCredentials);
        };
        match self.rules.authenticator.begin(credentials, &known.peer) {
            Step::Done(login) => self.decided(client, login),
            Step::Check(check) => {
                self.attempts += 1;
                let (attempt, deadline) = (self.attempts, Instant::now() + self.rules.login_timeout);
                let (waiting, left) = Waiting::begin(attempt, deadline);
                known.wait(waiting, &mut self.due);
                let (tell, wake) = (self.tell.clone(), self.wake.clone());
                let check = PasswordCheck {
                    source: known.peer.source,
                    check,
                    has_left: Box::new(move || left.load(Ordering::Relaxed)),
                    done: Box::new(move |login| {
                        // The entrance may be closed.
                        let _ = tell.try_send((client, attempt, login));
                        wake();
                    }),
                };
                (self.desk.checker)(check);
                Entry::Wait
            }
        }
    }

    /// Forgets who a client is: it has the rights of everybody, if clients need not log in, and none otherwise.
    pub fn log_out(&mut self, client: u64) {
        let anonymous = self.lets_in_anonymous();
        let Some(known) = self.clients.get_mut(&client) else { return };
        known.end_wait(&mut self.due);
        if anonymous {
            // It was let in before, and has a place in the quotas, or gives it back for this.
            self.enter(client, Login::anonymous());
        } else {
            known.forget_login(&mut self.due);
        }
    }

    /// A client has left.
    pub fn left(&mut self, client: u64) {
        if let Some(mut known) = self.clients.remove(&client) {
            known.end_wait(&mut self.due);
            known.forget_login(&mut self.due);
            self.meters.retain(|(of, _)| *of != client);
            self.count_connections();
        }
    }

    /// What limits the bytes per second of clients that have logged in since the last call; none: nothing. Limits that a reload sets where there were none
    /// are those of clients that log in later.
    #[doc(hidden)]
    pub fn take_meters(&mut self) -> Vec<(u64, Option<Meter>)> {
        std::mem::take(&mut self.meters)
    }

    /// The name of the client's user, empty on a broker without users. None: it has not logged in.
    pub fn user(&self, client: u64) -> Option<&str> {
        Some(&self.clients.get(&client)?.identity()?.user)
    }

    /// Whether a client may publish a topic. A refusal is counted, and recorded in the audit log.
    pub fn may_publish(&mut self, client: u64, topic: &TopicName) -> bool {
        self.may(client, Operation::Publish, topic)
    }

    /// Whether a user may publish a topic who is not connected: a client that has logged in before has asked for it, as with a will. The roles are those
    /// of now; a user of another issuer's tokens has none here. The empty name is that of all clients of a broker without users. A refusal is counted,
    /// and recorded in the audit log.
    pub fn may_user_publish(&mut self, user: &str, topic: &TopicName) -> bool {
        let identity = self.rules.authenticator.identity_of(user);
        let grants = identity.as_ref().map(|identity| grants(self.rules.rights.as_ref(), identity));
        let may = grants.is_some_and(|grants| grants.is_none_or(|grants| grants.may_publish(topic)));
        if !may {
            self.counters.count(Count::Denied);
            self.desk.audit.record(&AuditEvent {
                user: Some(user),
                operation: Some(&Operation::Publish.to_string()),
                topic: Some(topic.as_str()),
                reason: Some("the user has no right to publish it any more"),
                ..AuditEvent::new("refused")
            });
        }
        may
    }

    /// Whether a client may subscribe to a topic. A refusal is counted, and recorded in the audit log.
    pub fn may_subscribe(&mut self, client: u64, topic: &TopicName) -> bool {
        self.may(client, Operation::Subscribe, topic)
    }

    /// Whether a client may receive messages of a topic, of which a filter of it has a match. Nothing is counted.
    pub fn may_receive(&self, client: u64, topic: &TopicName) -> bool {
        self.clients.get(&client).is_some_and(|known| known.may(|grants| grants.may_subscribe(topic)))
    }

    /// The same for a user who is not connected, as [`Entrance::may_user_publish`] has it. A user of another issuer's tokens may: whether its roles of then
    /// are those of now is known when it comes back.
    pub fn may_user_receive(&self, user: &str, topic: &TopicName) -> bool {
        self.rules.authenticator.identity_of(user).is_some_and(|identity| {
            let grants = grants(self.rules.rights.as_ref(), &identity);
            identity.method == Method::Jwt || grants.is_none_or(|grants| grants.may_subscribe(topic))
        })
    }

    /// Whether a client may receive messages of everything that there is, so that it need not be asked for each topic.
    pub fn may_receive_all(&self, client: u64) -> bool {
        self.clients.get(&client).is_some_and(|known| known.may(|_| false))
    }

    /// Whether a client may subscribe to a filter: there may be a topic that the filter matches and that the client may read. A refusal is
    /// counted, and recorded in the audit log.
    pub fn may_subscribe_to_some(&mut self, client: u64, filter: &TopicFilter) -> bool {
        let Some(known) = self.clients.get(&client) else { return false };
        if known.may(|grants| grants.may_subscribe_to_some(filter)) {
            return true;
        }
        self.denied(client, Operation::Subscribe, filter.as_str());
        false
    }

    /// A client asks for filters: it would have so many then, and so many with wildcards among them. They count for its user and its address until the
    /// next call, or until the client leaves. A refusal is counted, and recorded in the audit log.
    ///
    /// # Errors
    /// A quota does not allow so many, and nothing has changed. The text is for the client.
    pub fn ask_for_filters(&mut self, client: u64, filters: u64, patterns: u64) -> Result<(), String> {
        let Some(known) = self.clients.get_mut(&client) else { return Ok(()) };
        known.set_filters([filters, patterns], true).map_err(|exceeded| {
            let reason = exceeded.to_string();
            self.refused(client, Operation::Subscribe, exceeded.resource.as_str(), None, &reason);
            reason
        })
    }

    /// A client has so many filters: fewer than before, or those that it had on a former connection, which count also beyond a quota.
    pub fn set_filters(&mut self, client: u64, filters: u64, patterns: u64) {
        if let Some(known) = self.clients.get_mut(&client) {
            // Only what a client asks for is refused.
            let _ = known.set_filters([filters, patterns], false);
        }
    }

    /// A client makes a group, which counts as a topic in the quotas of its user and its address, as long as somebody has the result. None: the client has
    /// left.
    ///
    /// # Errors
    /// A quota does not allow it. The text is for the client.
    pub fn charge_group(&mut self, client: u64) -> Result<Option<GroupCharge>, String> {
        let Some(known) = self.clients.get(&client) else { return Ok(None) };
        let Some(identity) = known.identity().cloned() else { return Ok(None) };
        let charge = self.desk.admission.charge_group_of(&identity, &known.address);
        charge.map(|charge| Some(GroupCharge(charge))).map_err(|exceeded| {
            let reason = exceeded.to_string();
            self.refused(client, Operation::Subscribe, exceeded.resource.as_str(), None, &reason);
            reason
        })
    }

    fn may(&mut self, client: u64, operation: Operation, topic: &TopicName) -> bool {
        let Some(known) = self.clients.get(&client) else { return false };
        let may = known.may(|grants| match operation {
            Operation::Publish => grants.may_publish(topic),
            _ => grants.may_subscribe(topic),
        });
        if !may {
            self.denied(client, operation, topic.as_str());
        }
        may
    }

    fn denied(&mut self, client: u64, operation: Operation, topic: &str) {
        let identity = self.clients.get(&client).and_then(|known| known.identity().cloned());
        let reason =
            identity.map_or_else(String::new, |who| not_allowed(&who, &operation.to_string(), topic));
        self.refused(client, operation, topic, Some(topic), &reason);
    }

    /// Counts a refusal, and records it once for what it is about.
    fn refused(&mut self, client: u64, operation: Operation, about: &str, topic: Option<&str>, reason: &str) {
        self.counters.count(Count::Denied);
        let Some(known) = self.clients.get_mut(&client) else { return };
        let Some(identity) = known.identity().cloned() else { return };
        if !known.is_news(operation, about) {
            return;
        }
        self.desk.audit.record(&AuditEvent {
            user: Some(&identity.user),
            address: Some(&*known.address),
            operation: Some(&operation.to_string()),
            topic,
            reason: Some(reason),
            ..AuditEvent::new("refused")
        });
    }

    /// When [`Entrance::next_event`] has something to do, besides after a wake.
    pub fn next_due(&self) -> Option<Instant> {
        self.due.next()
    }

    /// The next change. Call this until there is none, after each wake and when it is due.
    pub fn next_event(&mut self, now: Instant) -> Option<EntranceEvent> {
        while let Ok((client, attempt, login)) = self.results.try_recv() {
            self.checked(client, attempt, login);
        }
        self.look_at_rules();
        while let Some((client, what)) = self.due.take(now) {
            self.expire(client, what);
        }
        self.events.pop_front()
    }

    fn checked(&mut self, client: u64, attempt: u64, login: Result<Login, Refused>) {
        let Some(known) = self.clients.get_mut(&client) else { return };
        // The client may have begun another attempt, or its time was over.
        if !known.waits_for(attempt) {
            return;
        }
        known.end_wait(&mut self.due);
        // The users may have been read again meanwhile.
        let login = login.and_then(|login| {
            let looked = self.rules.authenticator.look_again(&login, SystemTime::now());
            looked.map_err(|_| Refused::NoCredentials)
        });
        let entry = self.decided(client, login);
        self.events.push_back(EntranceEvent::LoginDecided { client, entry });
    }

    fn expire(&mut self, client: u64, what: What) {
        match what {
            What::Login => self.look_again(client),
            What::Password => {
                let Some(known) = self.clients.get_mut(&client) else { return };
                known.end_wait(&mut self.due);
                let entry = self.refuse(client, &Refused::Busy);
                self.events.push_back(EntranceEvent::LoginDecided { client, entry });
            }
        }
    }

    fn decided(&mut self, client: u64, login: Result<Login, Refused>) -> Entry {
        match login {
            Ok(login) => self.enter(client, login),
            Err(why) => self.refuse(client, &why),
        }
    }

    /// Refuses a login. Floods of them do not flood the log.
    fn refuse(&mut self, client: u64, why: &Refused) -> Entry {
        self.counters.count(Count::LoginsRefused);
        let address = self.clients.get(&client).map_or("", |known| &*known.address);
        let reason = why.to_string();
        self.desk.audit.record(&AuditEvent {
            address: Some(address),
            operation: Some("log in"),
            reason: Some(&reason),
            ..AuditEvent::new("refused")
        });
        if let Some(more) = self.lines.refused.allow(Instant::now()) {
            let gateway = self.counters.protocol().as_str();
            warn!(peer = address, gateway, more, "login refused: {why}");
        }
        Entry::Refused(why.for_client())
    }

    /// Lets a client in, within the quotas of its user and its address. A client that shows again who it is changes nothing but the end of
    /// its login.
    fn enter(&mut self, client: u64, login: Login) -> Entry {
        let Some(known) = self.clients.get_mut(&client) else {
            return Entry::Refused(Refused::Left.for_client());
        };
        if known.renew(&login, &mut self.due) {
            return Entry::In;
        }
        // A client that is another user now is charged to that one.
        known.forget_login(&mut self.due);
        let identity = login.identity.clone();
        let (user, method, address) = (&*identity.user, identity.method.as_str(), &*known.address);
        let event = AuditEvent { user: Some(user), address: Some(address), ..AuditEvent::new("login") };
        let charge = match self.desk.admission.charge_connection(&identity, address, known.filters()) {
            Ok(charge) => charge,
            Err(exceeded) => {
                let (why, operation) = (exceeded.to_string(), Some("connect"));
                if let Some(more) = self.lines.over_quota.allow(Instant::now()) {
                    info!(more, "refused {address}: {why}");
                }
                self.counters.count(Count::TurnedAway);
                let event = AuditEvent { event: "refused", operation, reason: Some(&why), ..event };
                self.desk.audit.record(&event);
                return Entry::Refused(why);
            }
        };
        let gateway = self.counters.protocol().as_str();
        if !identity.is_anonymous()
            && let Some(more) = self.lines.logged_in.allow(Instant::now())
        {
            info!(peer = address, user, method, gateway, more, "logged in");
        }
        self.desk.audit.record(&AuditEvent { method: Some(method), role: Some(gateway), ..event });
        let meter = self.desk.admission.meter(&identity, address, self.clock);
        if std::mem::replace(&mut known.is_metered, meter.is_some()) || meter.is_some() {
            self.meters.retain(|(of, _)| *of != client);
            self.meters.push((client, meter));
        }
        let grants = grants(self.rules.rights.as_ref(), &identity);
        known.enter(login, grants, charge, &mut self.due);
        Entry::In
    }

    /// Looks at all clients again if users or rules have changed.
    fn look_at_rules(&mut self) {
        let changes = self.desk.in_force.changes();
        if changes == self.seen {
            return;
        }
        (self.seen, self.rules) = (changes, self.desk.in_force.rules());
        let all: Vec<u64> = self.clients.keys().copied().collect();
        all.into_iter().for_each(|client| self.look_again(client));
    }

    /// Looks at a client again, and cuts it off if its login has ended.
    fn look_again(&mut self, client: u64) {
        let Some(known) = self.clients.get_mut(&client) else { return };
        let Some(logged_in) = &mut known.logged_in else { return };
        let user = logged_in.login.identity.clone();
        match self.rules.authenticator.look_again(&logged_in.login, SystemTime::now()) {
            Ok(login) => {
                let after = grants(self.rules.rights.as_ref(), &login.identity);
                let is_same = is_same(logged_in.grants.as_ref(), after.as_ref());
                (logged_in.login, logged_in.grants) = (login, after);
                known.plan_look(&mut self.due);
                if !is_same {
                    known.forget_refusals();
                    self.desk
                        .audit
                        .record(&AuditEvent { user: Some(&user.user), ..AuditEvent::new("rights") });
                    self.events.push_back(EntranceEvent::RightsChanged { client });
                }
            }
            Err(why) => {
                let (reason, address) = (why.to_string(), &*known.address);
                warn!(peer = address, user = user.user, "cut off: {why}");
                self.counters.count(Count::CutOff);
                self.desk.audit.record(&AuditEvent {
                    user: Some(&user.user),
                    address: Some(address),
                    operation: Some("be logged in"),
                    reason: Some(&reason),
                    ..AuditEvent::new("cut")
                });
                known.forget_login(&mut self.due);
                self.events.push_back(EntranceEvent::CutOff { client, reason });
            }
        }
    }

    fn count_connections(&self) {
        self.counters.set_connections(self.clients.len() as u64);
    }
}

impl Drop for Entrance {
    fn drop(&mut self) {
        self.counters.set_connections(0);
        self.counters.set_serving(false);
        if std::thread::panicking() {
            let gateway = self.counters.name();
            error!(
                "the gateway {gateway} has failed, and serves nobody: restart the broker, and report the fault"
            );
        }
    }
}

impl std::fmt::Debug for Entrance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entrance").field("clients", &self.clients.len()).finish_non_exhaustive()
    }
}
