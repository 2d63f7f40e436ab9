//! Queues, mailboxes and messages.

use std::ffi::{c_char, c_int, c_void};
use std::net::{IpAddr, SocketAddr, SocketAddrV6, ToSocketAddrs};

use bytes::Bytes;
use cmq::{Cmq, Interface, Key, Mailbox, OpenError, PushError};
use libc::iovec;

use crate::cmq_api::options::{cmq_options, config};
use crate::cmq_api::readiness::Readiness;
use crate::conn::function;
use crate::failures::failures;
use crate::raw::{
    array, array_mut, bytes, copy_out, get, iovec_bytes, optional_text, place, put, text, timeout,
};
use crate::status::rb_status::*;
use crate::status::{Failure, Outcome, call, call_number, rb_status};
use crate::table::{free_shared, insert, kinds, shared, take};

/// A message queue at an address. Any number of threads may use it.
pub struct cmq_queue(());
/// The messages for one integer. Any number of threads may use it.
pub struct cmq_mailbox(());
/// The memory of a popped message. One thread uses it at a time.
pub struct cmq_memory(());

pub(crate) struct Queue {
    pub(crate) cmq: Cmq<Bytes>,
    readiness: Readiness,
}

/// A mailbox, which its close takes away.
pub(crate) struct OpenMailbox {
    mailbox: Mailbox<Bytes>,
    readiness: Readiness,
}

/// The bytes of a message.
pub(crate) struct Memory(#[expect(dead_code, reason = "keeps the bytes of a message alive")] Bytes);

kinds! {
    cmq_queue => Queue, 30, "queue";
    cmq_mailbox => OpenMailbox, 31, "mailbox";
    cmq_memory => Memory, 32, "message";
}

failures! {
    OpenError: |e| match &e {
        OpenError::Bind(error) if error.kind() == std::io::ErrorKind::AddrInUse => RB_ERR_ADDRESS_IN_USE,
        OpenError::Bind(_) => RB_ERR_ADDRESS,
        OpenError::Config(_) => RB_ERR_CONFIG,
        _ => RB_ERR_SYSTEM,
    };
    PushError: |e| match &e {
        PushError::Full => RB_FULL,
        PushError::TooLarge { .. } => RB_ERR_TOO_LARGE,
        PushError::Address => RB_ERR_ADDRESS,
        _ => RB_ERR_OTHER,
    };
}

/// An address and an integer: of a push, the receiving queue and the mailbox there; of a pop, the sender and the mailbox that the
/// message was sent to. An answer is pushed to the key that its question was popped with.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct cmq_key {
    /// 4 or 6: the version of the address.
    pub family: u8,
    /// The address in network order: the first 4 bytes for IPv4.
    pub ip: [u8; 16],
    /// The port.
    pub port: u16,
    /// The scope of an IPv6 address that is local to an interface.
    pub scope: u32,
    /// The mailbox.
    pub id: u32,
}

impl cmq_key {
    pub(crate) fn of(addr: SocketAddr, id: u32) -> Self {
        let mut ip = [0; 16];
        let (family, scope) = match addr {
            SocketAddr::V4(addr) => {
                ip[..4].copy_from_slice(&addr.ip().octets());
                (4, 0)
            }
            SocketAddr::V6(addr) => {
                ip = addr.ip().octets();
                (6, addr.scope_id())
            }
        };
        Self { family, ip, port: addr.port(), scope, id }
    }

    #[inline]
    fn addr(&self) -> Result<SocketAddr, Failure> {
        match self.family {
            4 => {
                let ip = [self.ip[0], self.ip[1], self.ip[2], self.ip[3]];
                Ok(SocketAddr::from((ip, self.port)))
            }
            6 => Ok(SocketAddr::V6(SocketAddrV6::new(self.ip.into(), self.port, 0, self.scope))),
            other => Err(Failure::of(RB_ERR_ARGUMENT, format!("{other} is no version of IP: 4 or 6"))),
        }
    }
}

/// A popped message.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct cmq_message {
    /// The bytes, until `cmq_message_free`.
    pub data: *const c_void,
    /// The number of bytes.
    pub len: usize,
    /// The sender, and the mailbox that the message was sent to.
    pub from: cmq_key,
    /// The memory of the message.
    pub memory: *mut cmq_memory,
}

/// Hands a message to the caller.
fn give((bytes, from): (Bytes, Key)) -> Result<cmq_message, Failure> {
    let (data, len) = (bytes.as_ptr().cast(), bytes.len());
    Ok(cmq_message { data, len, from: cmq_key::of(from.addr, from.id), memory: insert(Memory(bytes))? })
}

/// The key of an address such as "127.0.0.1:4711" and a mailbox. A name is looked up, and its first address taken. Any thread.
/// Fails with `RB_ERR_ADDRESS`.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_key_parse(address: *const c_char, id: u32, key: *mut cmq_key) -> rb_status {
    call(|| {
        place(key, "the place for the key")?;
        let found = text(address, "the address")?.to_socket_addrs();
        let mut found = found.map_err(|error| Failure::of(RB_ERR_ADDRESS, error))?;
        let first = found.next().ok_or(Failure::new(RB_ERR_ADDRESS, "the name has no address"))?;
        put(key, cmq_key::of(first, id));
        Ok(())
    })
}

/// The address of a key as text, as `snprintf` would write it. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_key_format(
    key: *const cmq_key,
    to: *mut c_char,
    capacity: usize,
    len: *mut usize,
) -> rb_status {
    call(|| copy_out(get(key, "the key")?.addr()?.to_string().as_bytes(), to, capacity, len))
}

/// Opens a queue at a local address such as "0.0.0.0:4711" (paper, `newRq`). Port 0 takes a free port. `options` may be NULL.
///
/// `*out` is the caller's, until `cmq_free`. Any thread. Fails with `RB_ERR_ADDRESS_IN_USE`, `RB_ERR_ADDRESS`, `RB_ERR_CONFIG` or
/// `RB_ERR_SYSTEM`.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_new_rq(
    address: *const c_char,
    given: *const cmq_options,
    out: *mut *mut cmq_queue,
) -> rb_status {
    call(|| {
        place(out, "the place for the queue")?;
        let cmq = cmq::new_raw_rq(text(address, "the address")?, config(given)?)?;
        put(out, insert(Queue { cmq, readiness: Readiness::default() })?);
        Ok(())
    })
}

/// Frees the queue's handle. Pending messages are sent at once, and each receiver learns the number of messages, when the handles of
/// its mailboxes are freed too. NULL does nothing. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_free(queue: *mut cmq_queue) -> rb_status {
    call(|| if queue.is_null() { Ok(()) } else { free_shared::<Queue>(queue) })
}

/// Queues a message for a key (paper, `cwPush`); it leaves with its batch. Never waits. The message is copied.
///
/// Any thread. `RB_FULL` if too many bytes wait to be sent. Fails with `RB_ERR_TOO_LARGE` or `RB_ERR_ADDRESS`; nothing is sent then.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_cw_push(
    queue: *const cmq_queue,
    key: *const cmq_key,
    message: *const c_void,
    len: usize,
) -> rb_status {
    call(|| {
        let key = get(key, "the key")?;
        let message = bytes(message, len, "the message")?;
        Ok(shared::<Queue>(queue)?.cmq.push_bytes((key.addr()?, key.id), message)?)
    })
}

/// Queues `count` messages for a key, as `cmq_cw_push` does one after the other. `*pushed` gets how many, also if the call fails;
/// `pushed` may be NULL. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_cw_push_many(
    queue: *const cmq_queue,
    key: *const cmq_key,
    messages: *const iovec,
    count: usize,
    pushed: *mut usize,
) -> rb_status {
    call(|| {
        put(pushed, 0);
        let key = get(key, "the key")?;
        let to = Key::from((key.addr()?, key.id));
        let queue = shared::<Queue>(queue)?;
        for (before, message) in array(messages, count, "the messages")?.iter().enumerate() {
            queue.cmq.push_bytes(to, iovec_bytes(message)?)?;
            put(pushed, before + 1);
        }
        Ok(())
    })
}

impl Queue {
    fn pop(&self, timeout_ns: i64) -> Result<(Bytes, Key), Failure> {
        if let Some(found) = self.readiness.found() {
            return Ok(found);
        }
        let popped = match timeout(timeout_ns) {
            None => Some(self.cmq.pop()),
            Some(limit) if limit.is_zero() => self.cmq.cw_pop(),
            Some(limit) => self.cmq.pop_timeout(limit),
        };
        popped.ok_or_else(|| {
            self.readiness.emptied(self.cmq.stream());
            Failure::outcome(RB_TIMED_OUT)
        })
    }
}

impl OpenMailbox {
    fn pop(&self, timeout_ns: i64) -> Result<(Bytes, Key), Failure> {
        if let Some(found) = self.readiness.found() {
            return Ok(found);
        }
        let popped = match timeout(timeout_ns) {
            Some(limit) if limit.is_zero() => self.mailbox.cw_pop(),
            Some(limit) => self.mailbox.pop_timeout(limit),
            None => self.mailbox.pop_timeout(std::time::Duration::MAX),
        };
        popped.ok_or_else(|| {
            self.readiness.emptied(self.mailbox.stream());
            Failure::outcome(RB_TIMED_OUT)
        })
    }
}

/// The next message, if there is one (paper, `cwPop`), of any mailbox that was not opened with `cmq_mailbox_open`. Never waits:
/// `RB_TIMED_OUT` if there is none.
///
/// `*message` is the caller's, until `cmq_message_free`. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_cw_pop(queue: *const cmq_queue, message: *mut cmq_message) -> rb_status {
    cmq_pop(queue, message, 0)
}

/// As `cmq_cw_pop`, waiting at most `timeout_ns`. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_pop(queue: *const cmq_queue, message: *mut cmq_message, timeout_ns: i64) -> rb_status {
    call(|| {
        place(message, "the place for the message")?;
        put(message, give(shared::<Queue>(queue)?.pop(timeout_ns)?)?);
        Ok(())
    })
}

/// The next messages: waits at most `timeout_ns` for one, and takes at most `max` that are there. `*count` gets how many.
///
/// The messages are the caller's, until `cmq_messages_free`. Any thread. `RB_TIMED_OUT` if none came.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_pop_many(
    queue: *const cmq_queue,
    messages: *mut cmq_message,
    max: usize,
    count: *mut usize,
    timeout_ns: i64,
) -> rb_status {
    call(|| {
        place(count, "the place for the number of messages")?;
        put(count, 0);
        let places = array_mut(messages, max, "the place for the messages")?;
        let queue = shared::<Queue>(queue)?;
        let mut limit = timeout_ns;
        for (before, place) in places.iter_mut().enumerate() {
            match queue.pop(limit) {
                Ok(message) => *place = give(message)?,
                Err(_) if before > 0 => break,
                Err(nothing) => return Err(nothing),
            }
            put(count, before + 1);
            limit = 0;
        }
        Ok(())
    })
}

/// Frees a popped message, and makes `*message` empty. An empty message does nothing. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_message_free(message: *mut cmq_message) -> rb_status {
    cmq_messages_free(message, 1)
}

/// Frees `count` popped messages, as `cmq_message_free` does. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_messages_free(messages: *mut cmq_message, count: usize) -> rb_status {
    call(|| {
        let mut outcome: Outcome = Ok(());
        for message in array_mut(messages, count, "the message")? {
            let memory = std::mem::replace(&mut message.memory, std::ptr::null_mut());
            (message.data, message.len) = (std::ptr::null(), 0);
            if !memory.is_null() {
                outcome = take::<Memory>(memory).map(drop).and(outcome);
            }
        }
        outcome
    })
}

/// A callback that says whether a message is wanted. `message` is valid until the callback returns, and is not to be freed.
pub type cmq_wanted_fn = Option<extern "C" fn(ctx: *mut c_void, message: *const cmq_message) -> bool>;

/// The oldest message that `wanted` accepts (a selective receive), waiting at most `timeout_ns`. The other messages stay in their
/// order. `wanted` runs inside this call, and must not use the queue.
///
/// `*message` is the caller's, until `cmq_message_free`. Any thread. Not to be combined with `cmq_fd`.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_pop_where(
    queue: *const cmq_queue,
    wanted: cmq_wanted_fn,
    ctx: *mut c_void,
    message: *mut cmq_message,
    timeout_ns: i64,
) -> rb_status {
    call(|| {
        place(message, "the place for the message")?;
        let wanted = function(wanted)?;
        let queue = shared::<Queue>(queue)?;
        let wants = |bytes: &Bytes, from: &Key| {
            let (data, len) = (bytes.as_ptr().cast(), bytes.len());
            let from = cmq_key::of(from.addr, from.id);
            let shown = cmq_message { data, len, from, memory: std::ptr::null_mut() };
            wanted(ctx, &raw const shown)
        };
        let limit = timeout(timeout_ns).unwrap_or(std::time::Duration::MAX);
        let popped = match limit.is_zero() {
            true => queue.cmq.pop_where(wants),
            false => queue.cmq.pop_where_timeout(limit, wants),
        };
        put(message, give(popped.ok_or(Failure::outcome(RB_TIMED_OUT))?)?);
        Ok(())
    })
}

/// A descriptor that is readable while `cmq_cw_pop` would return a message, for an event loop, which only polls it. When it is
/// readable, pop until `RB_TIMED_OUT`: only then it is not readable any more. Returns a status below 0 if it fails.
///
/// The descriptor belongs to the library and lives as long as the queue's handle. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_fd(queue: *const cmq_queue) -> c_int {
    call_number(|| {
        let queue = shared::<Queue>(queue)?;
        queue.readiness.fd(queue.cmq.stream())
    })
}

/// The number of messages that wait in the common mailbox. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_waiting(queue: *const cmq_queue, count: *mut usize) -> rb_status {
    call(|| {
        place(count, "the place for the number")?;
        put(count, shared::<Queue>(queue)?.cmq.waiting());
        Ok(())
    })
}

/// Sends all pending messages now. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_flush(queue: *const cmq_queue) -> rb_status {
    call(|| {
        shared::<Queue>(queue)?.cmq.flush();
        Ok(())
    })
}

/// Sends all pending messages now and closes all streams: each receiver learns the number of messages. Later messages begin new
/// streams. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_finish(queue: *const cmq_queue) -> rb_status {
    call(|| {
        shared::<Queue>(queue)?.cmq.finish();
        Ok(())
    })
}

/// The address of this queue, with the mailbox 0. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_local_addr(queue: *const cmq_queue, key: *mut cmq_key) -> rb_status {
    call(|| {
        place(key, "the place for the key")?;
        put(key, cmq_key::of(shared::<Queue>(queue)?.cmq.local_addr(), 0));
        Ok(())
    })
}

/// Opens a mailbox of its own for an integer: messages for it that arrive from now on are popped there.
///
/// `*out` is the caller's, until `cmq_mailbox_close` or `cmq_mailbox_free`; it keeps the queue alive. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_mailbox_open(
    queue: *const cmq_queue,
    id: u32,
    out: *mut *mut cmq_mailbox,
) -> rb_status {
    call(|| {
        place(out, "the place for the mailbox")?;
        let mailbox = shared::<Queue>(queue)?.cmq.mailbox(id);
        put(out, insert(OpenMailbox { mailbox, readiness: Readiness::default() })?);
        Ok(())
    })
}

/// The next message of the mailbox, waiting at most `timeout_ns`. `*message` is the caller's, until `cmq_message_free`. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_mailbox_pop(
    mailbox: *const cmq_mailbox,
    message: *mut cmq_message,
    timeout_ns: i64,
) -> rb_status {
    call(|| {
        place(message, "the place for the message")?;
        put(message, give(shared::<OpenMailbox>(mailbox)?.pop(timeout_ns)?)?);
        Ok(())
    })
}

/// As `cmq_fd`, of the mailbox. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_mailbox_fd(mailbox: *const cmq_mailbox) -> c_int {
    call_number(|| {
        let mailbox = shared::<OpenMailbox>(mailbox)?;
        mailbox.readiness.fd(mailbox.mailbox.stream())
    })
}

/// Closes the mailbox, drops the messages that wait there, and frees the handle: messages for its integer are popped with
/// `cmq_cw_pop` from now on. Fails with `RB_ERR_BUSY` while another call uses the mailbox.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_mailbox_close(mailbox: *mut cmq_mailbox) -> rb_status {
    call(|| {
        drop(take::<OpenMailbox>(mailbox)?.mailbox.close());
        Ok(())
    })
}

/// Frees the handle of a mailbox, which stays open. NULL does nothing. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_mailbox_free(mailbox: *mut cmq_mailbox) -> rb_status {
    call(|| if mailbox.is_null() { Ok(()) } else { free_shared::<OpenMailbox>(mailbox) })
}

/// The group of a text, and an interface: an IPv4 address, a name, or NULL for any.
fn group(group: *const c_char, interface: *const c_char) -> Result<(IpAddr, Interface), Failure> {
    let group = text(group, "the group")?.parse();
    let group = group.map_err(|_| Failure::new(RB_ERR_ADDRESS, "the group is no address"))?;
    Ok((group, interface_of(interface)?))
}

fn interface_of(interface: *const c_char) -> Result<Interface, Failure> {
    Ok(match optional_text(interface, "the interface")? {
        None => Interface::Any,
        Some(interface) => {
            let ip = interface.parse();
            ip.map_or_else(|_| Interface::Name(interface.to_owned()), Interface::Address)
        }
    })
}

/// Receives what is sent to a multicast group, at an interface: its name, one of its IPv4 addresses, or NULL for any. Any thread.
/// Fails with `RB_ERR_ADDRESS` or `RB_ERR_SYSTEM`.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_join(
    queue: *const cmq_queue,
    address: *const c_char,
    interface: *const c_char,
) -> rb_status {
    call(|| {
        let (address, interface) = group(address, interface)?;
        Ok(shared::<Queue>(queue)?.cmq.multicast().join(address, &interface)?)
    })
}

/// Leaves a multicast group. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_leave(
    queue: *const cmq_queue,
    address: *const c_char,
    interface: *const c_char,
) -> rb_status {
    call(|| {
        let (address, interface) = group(address, interface)?;
        Ok(shared::<Queue>(queue)?.cmq.multicast().leave(address, &interface)?)
    })
}

/// Sends multicast messages by this interface, across at most `ttl - 1` routers; and `loopback`: whether queues of this machine
/// receive them. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_set_multicast(
    queue: *const cmq_queue,
    interface: *const c_char,
    ttl: u32,
    loopback: bool,
) -> rb_status {
    call(|| {
        let queue = shared::<Queue>(queue)?;
        queue.cmq.multicast().set_interface(&interface_of(interface)?, ttl)?;
        Ok(queue.cmq.multicast().set_loopback(loopback)?)
    })
}
