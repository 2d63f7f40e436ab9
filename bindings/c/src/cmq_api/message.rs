//! Keys and messages.

use std::ffi::{c_char, c_void};
use std::net::{SocketAddr, SocketAddrV6};

use bytes::Bytes;
use cmq::Key;

use crate::raw::{answer, array_mut, copy_out, get, get_mut, put, text};
use crate::status::rb_status::{RB_ERR_ADDRESS, RB_ERR_ARGUMENT};
use crate::status::{Failure, Outcome, call, rb_status};
use crate::table::{insert, kinds, take};

/// The memory of a popped message. One thread uses it at a time.
pub struct cmq_memory(());

/// The bytes of a message.
pub(crate) struct Memory(#[expect(dead_code, reason = "keeps the bytes of a message alive")] Bytes);

kinds! { cmq_memory => Memory, 32, "message"; }

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
    #[inline]
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
    pub(crate) fn addr(&self) -> Result<SocketAddr, Failure> {
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
#[inline(always)]
pub(crate) fn give(message: *mut cmq_message, bytes: Bytes, from: Key) -> Outcome {
    let (data, len) = (bytes.as_ptr().cast(), bytes.len());
    let memory = insert(Memory(bytes))?;
    put(message, cmq_message { data, len, from: cmq_key::of(from.addr, from.id), memory });
    Ok(())
}

/// The key of an address such as "127.0.0.1:4711" and a mailbox. A name is looked up, and its first address taken. Any thread.
/// Fails with `RB_ERR_ADDRESS`.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_key_parse(address: *const c_char, id: u32, key: *mut cmq_key) -> rb_status {
    answer(key, "the place for the key", || {
        let found = peers::resolve(text(address, "the address")?);
        let found = found.map_err(|error| Failure::of(RB_ERR_ADDRESS, error))?;
        let first = found.first().ok_or_else(|| Failure::new(RB_ERR_ADDRESS, "the name has no address"))?;
        Ok(cmq_key::of(*first, id))
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

/// Frees a popped message, and makes `*message` empty. An empty message does nothing. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_message_free(message: *mut cmq_message) -> rb_status {
    call(|| free(get_mut(message, "the message")?))
}

#[inline(always)]
fn free(message: &mut cmq_message) -> Outcome {
    let memory = std::mem::replace(&mut message.memory, std::ptr::null_mut());
    (message.data, message.len) = (std::ptr::null(), 0);
    if memory.is_null() { Ok(()) } else { take::<Memory>(memory).map(drop) }
}

/// Frees `count` popped messages, as `cmq_message_free` does. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_messages_free(messages: *mut cmq_message, count: usize) -> rb_status {
    call(|| {
        let mut outcome = Ok(());
        for message in array_mut(messages, count, "the messages")? {
            outcome = free(message).and(outcome);
        }
        outcome
    })
}
