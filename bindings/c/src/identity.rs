//! The facts that the transport has verified about the other end of a connection.

use std::ffi::c_char;

use rocketbufs::Conn;

use crate::handles::rb_conn;
use crate::raw::{copy_out, place, put};
use crate::status::{call, rb_status};
use crate::table::shared;

/// The facts that the transport has verified about the other end of a connection. Nothing of it is the other end's own word.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rb_peer_identity {
    /// Whether bytes on the way are encrypted and authenticated (TLS).
    pub encrypted: bool,
    /// Whether the other end is a process of this machine that the kernel has named: `pid`, `uid` and `gid`.
    pub has_process: bool,
    /// The process, as it connected or listened. The number may be another process's by now. 0: outside of this pid namespace.
    pub pid: u32,
    /// The effective user of the process.
    pub uid: u32,
    /// The effective group of the process.
    pub gid: u32,
    /// The bytes of the other end's certificate, which `rb_conn_peer_certificate` copies; 0 if the other end presented none.
    pub certificate_len: usize,
}

/// The facts that the transport has verified about the other end: its certificate (TLS), or its process (shared memory). Known before the
/// callback of a listener gets the connection; all zeros until the other end's hello was read. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_conn_peer_identity(conn: *const rb_conn, identity: *mut rb_peer_identity) -> rb_status {
    call(|| {
        place(identity, "the place for the identity")?;
        let known = shared::<Conn>(conn)?.peer_identity();
        let (pid, uid, gid) = known.unix.map_or((0, 0, 0), |peer| (peer.pid, peer.uid, peer.gid));
        let told = rb_peer_identity {
            encrypted: known.encrypted,
            has_process: known.unix.is_some(),
            pid,
            uid,
            gid,
            certificate_len: known.certificate.map_or(0, |der| der.len()),
        };
        put(identity, told);
        Ok(())
    })
}

/// The certificate of the other end in DER: its chain leads to a trusted root, its dates are valid, and the other end has the
/// key. Its bytes are cut to `capacity - 1`, with a zero behind them. `*len` gets their number, 0 if there is none. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rb_conn_peer_certificate(
    conn: *const rb_conn,
    to: *mut c_char,
    capacity: usize,
    len: *mut usize,
) -> rb_status {
    call(|| {
        let certificate = shared::<Conn>(conn)?.peer_identity().certificate;
        copy_out(certificate.as_deref().unwrap_or_default(), to, capacity, len)
    })
}
