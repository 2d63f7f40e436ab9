//! Multicast groups of a queue.

use std::ffi::c_char;
use std::net::IpAddr;

use cmq::Interface;

use crate::cmq_api::queue::{Queue, cmq_queue};
use crate::raw::{optional_text, text};
use crate::status::rb_status::RB_ERR_ADDRESS;
use crate::status::{Failure, call, rb_status};
use crate::table::shared;

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

/// Receives the datagrams that are sent to a multicast group, at an interface: its name, one of its IPv4 addresses, or NULL
/// for any. Any thread. Fails with `RB_ERR_ADDRESS` or `RB_ERR_SYSTEM`.
#[unsafe(no_mangle)]
pub extern "C" fn cmq_join(
    queue: *const cmq_queue,
    address: *const c_char,
    interface: *const c_char,
) -> rb_status {
    call(|| {
        let (address, interface) = group(address, interface)?;
        Ok(shared::<Queue>(queue)?.from.multicast().join(address, &interface)?)
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
        Ok(shared::<Queue>(queue)?.from.multicast().leave(address, &interface)?)
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
        queue.from.multicast().set_interface(&interface_of(interface)?, ttl)?;
        Ok(queue.from.multicast().set_loopback(loopback)?)
    })
}
