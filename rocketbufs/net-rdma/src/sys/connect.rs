//! rdma_cm: listening, connecting, and the events of both.

use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::Arc;

use super::abi::*;
use super::load::{Functions, functions};

/// The return value of a function of rdma_cm as a result.
fn check(code: c_int) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub(super) fn set_nonblocking(fd: c_int) -> io::Result<()> {
    // SAFETY: the descriptor belongs to an object that outlives the call.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let flags = rustix::fs::fcntl_getfl(fd)?;
    Ok(rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)?)
}

/// The channel for events of a worker's connections.
#[derive(Debug)]
pub struct Events {
    functions: &'static Functions,
    raw: *mut RdmaEventChannel,
}

// SAFETY: the library's functions may be called from any thread.
unsafe impl Send for Events {}
// SAFETY: as above.
unsafe impl Sync for Events {}

/// The kind of an event.
#[derive(Debug)]
pub enum Kind {
    /// The peer's address and the device that reaches it are known.
    AddressResolved,
    /// The route is known.
    RouteResolved,
    /// A peer requests a connection.
    Request(Incoming),
    /// The connection is established.
    Established,
    /// The peer ended the connection, or died.
    Disconnected,
    /// The device is being removed.
    DeviceRemoved,
    /// The connection could not be made.
    Failed(String),
    /// An event without relevance here.
    Other,
}

/// An event.
#[derive(Debug)]
pub struct CmEvent {
    /// The number of its connection or listener.
    pub number: u64,
    /// The kind of an event.
    pub kind: Kind,
    /// The peer's private data.
    pub private: Vec<u8>,
}

impl Events {
    /// A new channel.
    ///
    /// # Errors
    /// The libraries are missing, or the kernel has no rdma_cm for this user.
    pub fn new() -> io::Result<Arc<Self>> {
        let functions = functions().map_err(io::Error::other)?;
        // SAFETY: takes nothing.
        let raw = unsafe { (functions.rdma_create_event_channel)() };
        if raw.is_null() {
            return Err(io::Error::last_os_error());
        }
        let events = Self { functions, raw };
        // SAFETY: just made.
        set_nonblocking(unsafe { (*raw).fd })?;
        Ok(Arc::new(events))
    }

    /// Readable while there are events.
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel lives as long as `self`, and its descriptor with it.
        unsafe { BorrowedFd::borrow_raw((*self.raw).fd) }
    }

    /// The next event, if there is one.
    pub fn next(self: &Arc<Self>) -> Option<CmEvent> {
        let mut raw = ptr::null_mut();
        // SAFETY: the channel is there, and `raw` takes the event.
        if unsafe { (self.functions.rdma_get_cm_event)(self.raw, &mut raw) } != 0 {
            return None;
        }
        // SAFETY: an event that is not acknowledged yet; everything of it is copied.
        let event = unsafe { self.copy(&*raw) };
        // SAFETY: acknowledged once. Its connection cannot be destroyed before that.
        unsafe { (self.functions.rdma_ack_cm_event)(raw) };
        Some(event)
    }

    /// # Safety
    /// The event has not been acknowledged.
    unsafe fn copy(self: &Arc<Self>, event: &RdmaCmEvent) -> CmEvent {
        let conn = &event.conn;
        let carries = matches!(event.event, RDMA_CM_EVENT_CONNECT_REQUEST | RDMA_CM_EVENT_ESTABLISHED);
        let private = if carries && !conn.private_data.is_null() {
            // SAFETY: the pointer's target has this length.
            unsafe {
                std::slice::from_raw_parts(conn.private_data.cast::<u8>(), conn.private_data_len.into())
            }
            .to_vec()
        } else {
            Vec::new()
        };
        let owner = if event.listen_id.is_null() { event.id } else { event.listen_id };
        // SAFETY: an id is not destroyed before its events are acknowledged.
        let number = unsafe { (*owner).context }.addr() as u64;
        let kind = match event.event {
            RDMA_CM_EVENT_ADDR_RESOLVED => Kind::AddressResolved,
            RDMA_CM_EVENT_ROUTE_RESOLVED => Kind::RouteResolved,
            RDMA_CM_EVENT_CONNECT_REQUEST => {
                let id = Id { functions: self.functions, raw: event.id, events: self.clone() };
                Kind::Request(Incoming { peer: id.peer(), id: Some(id), private: private.clone() })
            }
            RDMA_CM_EVENT_ESTABLISHED => Kind::Established,
            RDMA_CM_EVENT_DISCONNECTED => Kind::Disconnected,
            RDMA_CM_EVENT_DEVICE_REMOVAL => Kind::DeviceRemoved,
            RDMA_CM_EVENT_ADDR_ERROR
            | RDMA_CM_EVENT_ROUTE_ERROR
            | RDMA_CM_EVENT_CONNECT_ERROR
            | RDMA_CM_EVENT_UNREACHABLE
            | RDMA_CM_EVENT_REJECTED => Kind::Failed(self.describe(event)),
            _ => Kind::Other,
        };
        CmEvent { number, kind, private }
    }

    fn describe(&self, event: &RdmaCmEvent) -> String {
        let why = match event.event {
            RDMA_CM_EVENT_ADDR_ERROR => "no RDMA device leads to that address (rbmq check rdma)",
            RDMA_CM_EVENT_ROUTE_ERROR => "the device knows no way to that address",
            RDMA_CM_EVENT_UNREACHABLE => "no host answers at this address",
            RDMA_CM_EVENT_REJECTED => "no process listens there, or the peer refused",
            _ => "the connection could not be made",
        };
        // SAFETY: a text that is the library's and stays.
        let name = unsafe { CStr::from_ptr((self.functions.rdma_event_str)(event.event)) };
        format!("{why} ({}, status {})", name.to_string_lossy(), event.status)
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // SAFETY: every id of it holds it, so none is left.
        unsafe { (self.functions.rdma_destroy_event_channel)(self.raw) };
    }
}

/// A listener or a connection; destroyed when dropped, after its queue pair.
#[derive(Debug)]
pub struct Id {
    pub(super) functions: &'static Functions,
    pub(super) raw: *mut RdmaCmId,
    events: Arc<Events>,
}

// SAFETY: the library's functions may be called from any thread.
unsafe impl Send for Id {}

impl Id {
    fn new(events: &Arc<Events>, number: u64) -> io::Result<Self> {
        let (functions, mut raw) = (events.functions, ptr::null_mut());
        let context = ptr::without_provenance_mut::<c_void>(number as usize);
        // SAFETY: the channel is there, and `raw` takes the id.
        check(unsafe { (functions.rdma_create_id)(events.raw, &mut raw, context, RDMA_PS_TCP) })?;
        Ok(Self { functions, raw, events: events.clone() })
    }

    /// Listens, and returns the address with the port in use.
    ///
    /// # Errors
    /// The address is not this machine's, is taken, or belongs to no RDMA device.
    pub fn listen(
        events: &Arc<Events>,
        addr: SocketAddr,
        backlog: u32,
        number: u64,
    ) -> io::Result<(Self, SocketAddr)> {
        let id = Self::new(events, number)?;
        let mut raw = to_raw(addr);
        // SAFETY: the id is there; the address is copied.
        check(unsafe { (id.functions.rdma_bind_addr)(id.raw, &mut raw) })?;
        // SAFETY: as above.
        check(unsafe { (id.functions.rdma_listen)(id.raw, backlog.min(i32::MAX as u32) as c_int) })?;
        // SAFETY: as above.
        let port = u16::from_be(unsafe { (id.functions.rdma_get_src_port)(id.raw) });
        Ok((id, SocketAddr::new(addr.ip(), port)))
    }

    /// An idle id on the same device: the device's context stays open while one of its ids exists, and the id gets an event
    /// when the device is removed. (Without it rdma_cm closes the context of a removed device with its last connection,
    /// although other objects still use it.)
    ///
    /// # Errors
    /// The address no longer exists.
    pub fn beside(&self, number: u64) -> io::Result<Self> {
        let id = Self::new(&self.events, number)?;
        // SAFETY: the id is there; a connection's address has been known since it has a device.
        let mut addr = unsafe { (*self.raw).src_addr };
        // Any port.
        addr.0[2..4].fill(0);
        // SAFETY: both are there; the address is copied.
        check(unsafe { (id.functions.rdma_bind_addr)(id.raw, &mut addr) })?;
        Ok(id)
    }

    /// Begins to resolve the route to an address.
    ///
    /// # Errors
    /// No device reaches the address.
    pub fn dial(events: &Arc<Events>, addr: SocketAddr, timeout_ms: u32, number: u64) -> io::Result<Self> {
        let id = Self::new(events, number)?;
        let mut raw = to_raw(addr);
        let timeout = timeout_ms.min(i32::MAX as u32) as c_int;
        // SAFETY: the id is valid; the address is copied, and the source address may be null.
        check(unsafe { (id.functions.rdma_resolve_addr)(id.raw, ptr::null_mut(), &mut raw, timeout) })?;
        Ok(id)
    }

    /// Resolves the route, after the address.
    ///
    /// # Errors
    /// The device refuses.
    pub fn resolve_route(&self, timeout_ms: u32) -> io::Result<()> {
        let timeout = timeout_ms.min(i32::MAX as u32) as c_int;
        // SAFETY: the id is there.
        check(unsafe { (self.functions.rdma_resolve_route)(self.raw, timeout) })
    }

    /// Moves the id's events to `events`, under this number.
    fn migrate(&mut self, events: &Arc<Events>, number: u64) -> io::Result<()> {
        if !Arc::ptr_eq(&self.events, events) {
            // SAFETY: id and channel are there; no event of the id waits to be acknowledged by this process.
            check(unsafe { (self.functions.rdma_migrate_id)(self.raw, events.raw) })?;
            self.events = events.clone();
        }
        // SAFETY: the field is the application's.
        unsafe { (*self.raw).context = ptr::without_provenance_mut(number as usize) };
        Ok(())
    }

    fn peer(&self) -> String {
        // SAFETY: the id is there.
        from_raw(unsafe { &(*self.raw).dst_addr })
            .map_or_else(|| "an unknown address".into(), |addr| addr.to_string())
    }

    /// Sets how long an acknowledgement may take: 4.096 us times two to this power. Each end sets its own time.
    pub(super) fn set_ack_timeout(&self, exponent: u8) {
        let mut value = exponent;
        let at = (&raw mut value).cast::<c_void>();
        // SAFETY: the id is there, and the option is one byte. A kernel that does not know it keeps its own time.
        unsafe {
            (self.functions.rdma_set_option)(self.raw, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, at, 1)
        };
    }

    /// Requests or accepts a connection, with up to 56 bytes of private data.
    pub(super) fn go(&self, accept: bool, private: &[u8], retries: u8) -> io::Result<()> {
        debug_assert!(private.len() <= 56);
        let mut param = RdmaConnParam {
            private_data: private.as_ptr().cast(),
            private_data_len: private.len() as u8,
            responder_resources: 0,
            initiator_depth: 0,
            flow_control: 0,
            retry_count: retries,
            rnr_retry_count: retries,
            srq: 0,
            qp_num: 0,
        };
        let go = if accept { self.functions.rdma_accept } else { self.functions.rdma_connect };
        // SAFETY: the id is valid; the memory that the parameters point to is copied.
        check(unsafe { go(self.raw, &mut param) })
    }

    /// Disconnects. An error means that the connection has ended already.
    pub(super) fn disconnect(&self) {
        // SAFETY: the id is there.
        unsafe { (self.functions.rdma_disconnect)(self.raw) };
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: the owner of a queue pair of this id has destroyed the pair, and events are acknowledged at once.
        unsafe { (self.functions.rdma_destroy_id)(self.raw) };
    }
}

/// A request of a peer to connect. Dropping it refuses.
#[derive(Debug)]
pub struct Incoming {
    id: Option<Id>,
    /// The peer's address.
    pub peer: String,
    /// The peer's private data.
    pub private: Vec<u8>,
}

impl Incoming {
    /// Accepts the request, to be answered over this channel.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn take(mut self, events: &Arc<Events>, number: u64) -> io::Result<Id> {
        let moved = self.id.as_mut().map(|id| id.migrate(events, number));
        moved.unwrap_or_else(|| Err(io::ErrorKind::NotConnected.into()))?;
        self.id.take().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(id) = &self.id {
            // SAFETY: the id is valid; the rejection has no private data.
            unsafe { (id.functions.rdma_reject)(id.raw, ptr::null(), 0) };
        }
    }
}

fn to_raw(addr: SocketAddr) -> SockAddr {
    let mut raw = SockAddr([0; 128]);
    let (family, port) = (if addr.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }, addr.port());
    raw.0[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    raw.0[2..4].copy_from_slice(&port.to_be_bytes());
    match addr {
        SocketAddr::V4(addr) => raw.0[4..8].copy_from_slice(&addr.ip().octets()),
        SocketAddr::V6(addr) => {
            raw.0[8..24].copy_from_slice(&addr.ip().octets());
            raw.0[24..28].copy_from_slice(&addr.scope_id().to_ne_bytes());
        }
    }
    raw
}

fn from_raw(raw: &SockAddr) -> Option<SocketAddr> {
    let bytes = &raw.0;
    let family = i32::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    let ip = match family {
        libc::AF_INET => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(&bytes[4..8]).ok()?)),
        libc::AF_INET6 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[8..24]).ok()?)),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_go_both_ways() {
        for text in ["192.0.2.1:7411", "[2001:db8::1]:65535", "0.0.0.0:0"] {
            let addr: SocketAddr = text.parse().expect("an address");
            assert_eq!(from_raw(&to_raw(addr)), Some(addr));
        }
        assert_eq!(from_raw(&SockAddr([0; 128])), None);
    }
}
