//! Logins: the check which user a client is, before anything of it is accepted.
//!
//! ```text
//!   hello ─▶ arrive ─▶ token, certificate, Unix user, nothing ──────────────▶ let in, or refused
//!                 └──▶ password ─▶ queue ─▶ thread ─▶ LoginChecked ─▶ checked ──▶ let in, or refused
//!   reload, time ─▶ connected clients are looked at again ─▶ cut off
//! ```
//!
//! Until it is let in, nothing is read from a connection but its hello, and it has no place in any table but this one, which is
//! bounded. All refused clients are told the same, whatever was wrong.

mod checks;
mod queue;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use access::{Audit, AuditEvent, Authenticator, Identity, Login, Peer, Refused, Source, Step};
use peers::LogLimiter;
use rbmq_wire::{Credentials, Hello};
use rocketbufs::{Conn, RateLimits};
use rocketnet::PeerIdentity;
use tracing::{info, warn};

pub(super) use self::checks::Checks;
use super::config::UsersSettings;
use super::counters::{Counters, Refusal};
use super::inbox::{Event, Sender};
use super::password_check::PasswordCheck;
use super::vouchers::Vouchers;

/// Logins of connections that have ended are forgotten when there are so many more than before.
const FORGET_AT_LEAST: usize = 64;

/// The longest time until a login that has an end is looked at again.
const LONGEST_LOOK: Duration = Duration::from_secs(60);

/// A client that was let in.
pub(super) struct AcceptedClient {
    pub(super) conn: Conn,
    pub(super) hello: Hello,
    pub(super) identity: Arc<Identity>,
    /// Where the client is, as its quotas count it.
    pub(super) address: Arc<str>,
}

/// A client whose password is being checked.
struct Waiting {
    conn: Conn,
    hello: Hello,
    deadline: Instant,
}

/// A client that was let in, and by what.
struct LoggedIn {
    conn: Conn,
    login: Login,
}

/// The clients that log in, and those that did.
pub(super) struct Logins {
    authenticator: Authenticator,
    settings: UsersSettings,
    events: Sender,
    /// None until there are users.
    checks: Option<Checks>,
    waiting: HashMap<u64, Waiting>,
    deadlines: BTreeSet<(Instant, u64)>,
    /// The clients that were let in, by connection. Some of the connections have ended.
    logged_in: HashMap<u64, LoggedIn>,
    /// The number of those clients at which those that have left are forgotten.
    forget_at: usize,
    /// When logins end by themselves.
    ends: BTreeSet<(Instant, u64)>,
    refused_log: LogLimiter,
    logged_in_log: LogLimiter,
    audit: Audit,
    vouchers: Vouchers,
}

impl Logins {
    /// A table that nobody has logged in to yet, and the threads that check passwords.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(super) fn open(
        authenticator: Authenticator,
        settings: &UsersSettings,
        audit: Audit,
        vouchers: Vouchers,
        events: &Sender,
    ) -> std::io::Result<Self> {
        let mut logins = Self {
            authenticator,
            settings: settings.clone(),
            events: events.clone(),
            checks: None,
            waiting: HashMap::new(),
            deadlines: BTreeSet::new(),
            logged_in: HashMap::new(),
            forget_at: FORGET_AT_LEAST,
            ends: BTreeSet::new(),
            refused_log: LogLimiter::default(),
            logged_in_log: LogLimiter::default(),
            audit,
            vouchers,
        };
        logins.start_checks()?;
        Ok(logins)
    }

    /// Gives a client other limits on its bytes per second.
    pub(super) fn set_rate_limits(&self, conn: u64, limits: RateLimits) {
        if let Some(client) = self.logged_in.get(&conn) {
            client.conn.set_rate_limits(limits);
        }
    }

    fn start_checks(&mut self) -> std::io::Result<()> {
        let UsersSettings { login_threads, max_waiting_logins, .. } = self.settings;
        match &self.checks {
            Some(checks) => checks.set_max_waiting(max_waiting_logins),
            None if self.authenticator.has_users() => {
                self.checks = Some(Checks::start(login_threads, max_waiting_logins)?);
            }
            None => {}
        }
        Ok(())
    }

    /// A client has sent its hello. Returns the client if it is let in at once.
    pub(super) fn arrive(
        &mut self,
        conn: Conn,
        hello: Hello,
        credentials: Credentials,
        counters: &mut Counters,
    ) -> Option<AcceptedClient> {
        let peer = peer(&conn);
        match self.authenticator.begin(credentials, &peer) {
            Step::Done(login) => self.decided(conn, hello, login, counters),
            Step::Check(check) => {
                let (id, deadline) = (conn.id(), Instant::now() + self.settings.login_timeout());
                self.waiting.insert(id, Waiting { conn: conn.clone(), hello, deadline });
                self.deadlines.insert((deadline, id));
                let events = self.events.clone();
                self.check(PasswordCheck {
                    source: peer.source,
                    check,
                    has_left: Box::new(move || conn.down_reason().is_some()),
                    done: Box::new(move |login| events.event(Event::LoginChecked { conn: id, login })),
                });
                None
            }
        }
    }

    /// A part of this process connects for a client, and shows its voucher. Returns the client if it is let in.
    pub(super) fn vouched(
        &mut self,
        conn: Conn,
        hello: Hello,
        token: &str,
        counters: &mut Counters,
    ) -> Option<AcceptedClient> {
        let vouched = self.vouchers.of(token);
        let address = vouched.as_ref().map(|vouched| vouched.address.clone());
        // The users may have been read again since.
        let login = vouched.and_then(|of| self.authenticator.look_again(&of.login, SystemTime::now()).ok());
        let client = self.decided(conn, hello, login.ok_or(Refused::NoCredentials), counters)?;
        Some(AcceptedClient { address: address.unwrap_or_else(|| client.address.clone()), ..client })
    }

    /// Queues the check of a password, also for clients of gateways. It is refused if there are no users.
    pub(super) fn check(&self, check: PasswordCheck) {
        match &self.checks {
            Some(checks) => checks.submit(check),
            None => check.refuse(),
        }
    }

    /// A password was checked. Returns the client if it is let in.
    pub(super) fn checked(
        &mut self,
        conn: u64,
        login: Result<Login, Refused>,
        counters: &mut Counters,
    ) -> Option<AcceptedClient> {
        // A client whose time was over is gone from the table.
        let Waiting { conn, hello, deadline } = self.waiting.remove(&conn)?;
        self.deadlines.remove(&(deadline, conn.id()));
        // The users may have been read again meanwhile.
        let login = login.and_then(|login| {
            self.authenticator.look_again(&login, SystemTime::now()).map_err(|_| Refused::NoCredentials)
        });
        self.decided(conn, hello, login, counters)
    }

    fn decided(
        &mut self,
        conn: Conn,
        hello: Hello,
        login: Result<Login, Refused>,
        counters: &mut Counters,
    ) -> Option<AcceptedClient> {
        let login = match login {
            Ok(login) => login,
            Err(why) => {
                self.refuse(&conn, &why, counters);
                return None;
            }
        };
        let identity = login.identity.clone();
        if self.authenticator.has_users()
            && let Some(more) = self.logged_in_log.allow(Instant::now())
        {
            let (user, method) = (&identity.user, identity.method.as_str());
            info!(peer = conn.peer_addr(), user, method, more, "logged in");
        }
        self.enter(LoggedIn { conn: conn.clone(), login });
        let address = conn.peer_addr().into();
        Some(AcceptedClient { conn, hello, identity, address })
    }

    /// Refuses a client. Floods of them do not flood the log.
    fn refuse(&mut self, conn: &Conn, why: &Refused, counters: &mut Counters) {
        counters.refused(Refusal::Login);
        let (address, reason) = (conn.peer_addr(), why.to_string());
        self.audit.record(&AuditEvent {
            address: Some(&address),
            operation: Some("log in"),
            reason: Some(&reason),
            ..AuditEvent::new("refused")
        });
        if let Some(more) = self.refused_log.allow(Instant::now()) {
            warn!(peer = conn.peer_addr(), more, "login refused: {why}");
        }
        conn.reject(&why.for_client());
    }

    fn enter(&mut self, client: LoggedIn) {
        if self.logged_in.len() >= self.forget_at {
            self.logged_in.retain(|_, client| client.conn.down_reason().is_none());
            self.ends.retain(|(_, id)| self.logged_in.contains_key(id));
            self.forget_at = FORGET_AT_LEAST.max(2 * self.logged_in.len());
        }
        self.note_end(&client);
        self.logged_in.insert(client.conn.id(), client);
    }

    fn note_end(&mut self, client: &LoggedIn) {
        let Some(end) = client.login.expires else { return };
        self.ends.insert((Instant::now() + look_after(end, SystemTime::now()), client.conn.id()));
    }

    /// When [`expire`](Self::expire) has something to do.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let first = |set: &BTreeSet<(Instant, u64)>| set.first().map(|(at, _)| *at);
        first(&self.deadlines).into_iter().chain(first(&self.ends)).min()
    }

    /// Refuses clients whose password was not checked in time, and cuts off those whose login has ended.
    pub(super) fn expire(&mut self, now: Instant, counters: &mut Counters) {
        while let Some((at, id)) = self.deadlines.first().copied()
            && at <= now
        {
            self.deadlines.pop_first();
            if let Some(waiting) = self.waiting.remove(&id) {
                self.refuse(&waiting.conn, &Refused::Busy, counters);
            }
        }
        while let Some((at, id)) = self.ends.first().copied()
            && at <= now
        {
            self.ends.pop_first();
            self.look_again(id);
        }
    }

    /// Other users are in force. Cuts off who is none of them any more. Returns the connections whose users have other roles now.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(super) fn reload(
        &mut self,
        authenticator: Authenticator,
        settings: &UsersSettings,
    ) -> std::io::Result<Vec<(u64, Arc<Identity>)>> {
        let threads = self.settings.login_threads;
        self.authenticator = authenticator;
        self.settings = UsersSettings { login_threads: threads, ..settings.clone() };
        self.start_checks()?;
        self.ends.clear();
        let all: Vec<u64> = self.logged_in.keys().copied().collect();
        Ok(all.into_iter().filter_map(|id| Some((id, self.look_again(id)?))).collect())
    }

    /// Looks at a client again, and cuts it off if its login has ended. Returns its identity if it has changed.
    fn look_again(&mut self, id: u64) -> Option<Arc<Identity>> {
        let mut client = self.logged_in.remove(&id)?;
        if client.conn.down_reason().is_some() {
            return None;
        }
        let before = client.login.identity.clone();
        match self.authenticator.look_again(&client.login, SystemTime::now()) {
            Ok(login) => {
                client.login = login;
                let identity = client.login.identity.clone();
                self.note_end(&client);
                self.logged_in.insert(id, client);
                (identity != before).then_some(identity)
            }
            Err(why) => {
                warn!(peer = client.conn.peer_addr(), user = before.user, "cut off: {why}");
                let (address, reason) = (client.conn.peer_addr(), why.to_string());
                self.audit.record(&AuditEvent {
                    user: Some(&before.user),
                    address: Some(&address),
                    operation: Some("be logged in"),
                    reason: Some(&reason),
                    ..AuditEvent::new("cut")
                });
                client.conn.close(&reason);
                None
            }
        }
    }
}

/// When to look at a login that ends at `end`: the clock may make a step, and the machine may sleep.
pub(super) fn look_after(end: SystemTime, now: SystemTime) -> Duration {
    end.duration_since(now).unwrap_or_default().min(LONGEST_LOOK)
}

/// The other end, as the connection shows it.
fn peer(conn: &Conn) -> Peer {
    let PeerIdentity { certificate, unix, .. } = conn.peer_identity();
    Peer { source: Source::of(&conn.peer_addr()), certificate, uid: unix.map(|peer| peer.uid) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_the_clock_is_noticed_within_a_minute() {
        let now = SystemTime::now();
        let in_s = |s| look_after(now + Duration::from_secs(s), now);
        assert_eq!(in_s(7200), LONGEST_LOOK);
        assert_eq!(in_s(5), Duration::from_secs(5));
        assert_eq!(look_after(now - LONGEST_LOOK, now), Duration::ZERO);
    }
}
