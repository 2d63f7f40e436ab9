//! The groups of a broker, for those who look after them.

use std::ffi::c_char;

use rbmq::{GroupStart, GroupStats, Groups, Subscriber};
use rocketbufs::Config;

use crate::handles::rb_config;
use crate::kept::Kept;
use crate::raw::{Versioned, copied, optional_text, options, place, put, text};
use crate::rbmq::login::{login_of, rbmq_login};
use crate::status::rb_status::RB_ERR_ARGUMENT;
use crate::status::{Failure, call, rb_status};
use crate::table::{exclusive, insert, kinds, take};

/// Lists, resets and deletes the groups of a broker. One thread uses it at a time.
pub struct rbmq_groups(());

/// The groups of a broker, and what the last answer points at.
pub(crate) struct Admin {
    groups: Groups,
    kept: Kept,
    rows: Vec<rbmq_group_stats>,
}

// SAFETY: the pointers in the rows point at what `kept` owns, which moves with them.
unsafe impl Send for Admin {}

kinds! { rbmq_groups => Admin, 39, "client of groups"; }

/// Options of a client that looks after groups. Zeros are defaults: `rbmq_groups_options options = {.size = sizeof options};`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rbmq_groups_options {
    /// `sizeof(rbmq_groups_options)`.
    pub size: usize,
    /// The name in the broker's log; NULL: none.
    pub name: *const c_char,
    /// The framework's configuration; NULL: the default. Read during the call.
    pub config: *const rb_config,
    /// The login of the client; NULL: none. Read during the call.
    pub login: *const rbmq_login,
}

// SAFETY: integers and pointers, and the first field is the size.
unsafe impl Versioned for rbmq_groups_options {}

/// The state of a group. Counts without another word are since the broker started.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rbmq_group_stats {
    /// The topic.
    pub topic: *const c_char,
    /// The group.
    pub group: *const c_char,
    /// Its workers, now.
    pub workers: u32,
    /// Messages that were read and are not done, now.
    pub pending: u64,
    /// Messages of those that workers have.
    pub held: u64,
    /// Everything below this position is done.
    pub floor: u64,
    /// Everything below this position was read.
    pub next: u64,
    /// The end of the topic's log.
    pub end: u64,
    /// Messages that were handed out, each time.
    pub delivered: u64,
    /// Messages that were acknowledged.
    pub acked: u64,
    /// Failed attempts.
    pub failed: u64,
    /// Messages that went to the dead-letter topic.
    pub dead: u64,
    /// Messages that the log had no more before they were done.
    pub lost: u64,
    /// Bytes that the log had no more before they were read.
    pub lost_bytes: u64,
    /// Bytes of the journal that were damaged: acknowledged messages may come twice.
    pub damaged_bytes: u64,
    /// Bytes of the log that are not done: from the floor to the end.
    pub lag_bytes: u64,
    /// Bytes of the log that were not read yet.
    pub unread_bytes: u64,
    /// The time for which a worker may have a message, in milliseconds.
    pub ack_ms: u32,
    /// The most failed attempts; 0: no limit.
    pub max_attempts: u16,
    /// Messages with the same key are handed out one after the other.
    pub ordered: bool,
    /// The limit of pending messages is reached, and nothing more is read.
    pub full: bool,
    /// The disk does not take acknowledgements, or does not give messages.
    pub failing: bool,
    /// The dead-letter topic; NULL: none.
    pub dead_letters: *const c_char,
}

/// A group begins anew with the oldest message that is kept.
pub const RBMQ_GROUP_OLDEST: u32 = 0;
/// A group begins anew with the next message that is published.
pub const RBMQ_GROUP_NEWEST: u32 = 1;
/// A group begins anew with the first message at a position of the log, or behind it.
pub const RBMQ_GROUP_POSITION: u32 = 2;

fn row(stats: &GroupStats, kept: &mut Kept) -> rbmq_group_stats {
    let letters = Some(stats.dead_letter.as_str()).filter(|topic| !topic.is_empty());
    copied!(stats => rbmq_group_stats {
        topic: kept.text(stats.topic.as_str()), group: kept.text(stats.group.as_str()), workers, pending, held, floor, next, end,
        delivered, acked, failed, dead, lost, lost_bytes, damaged_bytes, lag_bytes: stats.lag_bytes(),
        unread_bytes: stats.unread_bytes(), ack_ms, max_attempts, ordered, full, failing,
        dead_letters: letters.map_or(std::ptr::null(), |topic| kept.text(topic)),
    })
}

/// Connects to a broker, to look after its groups, and waits until it accepts, at most `session.connect_timeout_ms`. `options` may be NULL. The
/// connection is not made again: after `RB_ERR_DOWN` make another one.
///
/// `*out` is the caller's, until `rbmq_groups_free`. Any thread. Fails as `rbmq_subscriber_connect`.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_groups_connect(
    address: *const c_char,
    given: *const rbmq_groups_options,
    out: *mut *mut rbmq_groups,
) -> rb_status {
    call(|| {
        place(out, "the place for the groups")?;
        let given = options(given, "the options of the groups")?;
        let mut builder = Subscriber::builder().login(login_of(given.login)?);
        if let Some(name) = optional_text(given.name, "the name")? {
            builder = builder.name(name);
        }
        if !given.config.is_null() {
            builder = builder.config(exclusive::<Config>(given.config)?.clone());
        }
        let groups = builder.groups(text(address, "the address")?)?;
        put(out, insert(Admin { groups, kept: Kept::default(), rows: Vec::new() })?);
        Ok(())
    })
}

/// All groups of the topics that the user may subscribe to, sorted by topic and name: `*rows` gets the first of `*count` rows.
///
/// The rows belong to `groups`, and are valid until the next call with it. One thread uses it at a time. `RB_TIMED_OUT` if the broker does not
/// answer within 10 s. Fails with `RB_ERR_DOWN`.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_groups_list(
    groups: *mut rbmq_groups,
    rows: *mut *const rbmq_group_stats,
    count: *mut usize,
) -> rb_status {
    call(|| {
        place(rows, "the place for the rows")?;
        place(count, "the place for the number of rows")?;
        let admin = &mut *exclusive::<Admin>(groups)?;
        admin.rows.clear();
        admin.kept = Kept::default();
        let answer = admin.groups.list()?;
        admin.rows = answer.iter().map(|stats| row(stats, &mut admin.kept)).collect();
        put(rows, admin.rows.as_ptr());
        put(count, admin.rows.len());
        Ok(())
    })
}

/// Lets a group begin anew: at `start` (`RBMQ_GROUP_…`), with `RBMQ_GROUP_POSITION` at `position`. Its workers connect again, and what they have
/// not acknowledged is forgotten.
///
/// Calls with `groups` come from one thread at a time. Outcomes and errors as of `rbmq_groups_list`, and `RB_ERR_NAME`, or `RB_ERR_REFUSED` if there is no such
/// group.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_groups_reset(
    groups: *mut rbmq_groups,
    topic: *const c_char,
    group: *const c_char,
    start: u32,
    position: u64,
) -> rb_status {
    call(|| {
        let start = match start {
            RBMQ_GROUP_OLDEST => GroupStart::Oldest,
            RBMQ_GROUP_NEWEST => GroupStart::Newest,
            RBMQ_GROUP_POSITION => GroupStart::Position(position),
            other => return Err(Failure::of(RB_ERR_ARGUMENT, format!("{other} is no start of a group"))),
        };
        let mut admin = exclusive::<Admin>(groups)?;
        Ok(admin.groups.reset(text(topic, "the topic")?, text(group, "the group")?, start)?)
    })
}

/// Forgets a group: its workers end with an error. Calls with `groups` come from one thread at a time. Outcomes and errors as of `rbmq_groups_reset`.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_groups_delete(
    groups: *mut rbmq_groups,
    topic: *const c_char,
    group: *const c_char,
) -> rb_status {
    call(|| {
        let mut admin = exclusive::<Admin>(groups)?;
        Ok(admin.groups.delete(text(topic, "the topic")?, text(group, "the group")?)?)
    })
}

/// Closes the connection, and frees the handle. NULL does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn rbmq_groups_free(groups: *mut rbmq_groups) -> rb_status {
    call(|| if groups.is_null() { Ok(()) } else { take::<Admin>(groups).map(drop) })
}
