//! nng's pair0 over TCP, with the installed library.

use std::{
    ffi::{CString, c_char, c_int, c_void},
    io, ptr,
    time::Duration,
};

use benchkit::{
    ends::{End, Role},
    exchange::Link,
};

const TIMED_OUT: c_int = 5;
/// The largest size of nng's buffers: more than the outstanding messages.
const BUFFERED: c_int = 8192;

/// nng.h passes sockets by value: a number in a struct.
#[repr(C)]
#[derive(Clone, Copy)]
struct Socket {
    id: u32,
}

/// The functions in use, with the types of nng.h 1.5.
pub struct Library {
    open: unsafe extern "C" fn(*mut Socket) -> c_int,
    set_int: unsafe extern "C" fn(Socket, *const c_char, c_int) -> c_int,
    set_ms: unsafe extern "C" fn(Socket, *const c_char, i32) -> c_int,
    listen: unsafe extern "C" fn(Socket, *const c_char, *mut c_void, c_int) -> c_int,
    dial: unsafe extern "C" fn(Socket, *const c_char, *mut c_void, c_int) -> c_int,
    send: unsafe extern "C" fn(Socket, *const c_void, usize, c_int) -> c_int,
    recv: unsafe extern "C" fn(Socket, *mut c_void, *mut usize, c_int) -> c_int,
    _library: libloading::Library,
}

impl Library {
    /// Loads the library.
    pub fn load() -> io::Result<Library> {
        let library = crate::load(&["libnng.so.1", "libnng.so"])?;
        // SAFETY: the types are those of nng.h. The function pointers live no longer than the library beside
        // them.
        unsafe {
            Ok(Library {
                open: *library.get(b"nng_pair0_open").map_err(io::Error::other)?,
                set_int: *library.get(b"nng_socket_set_int").map_err(io::Error::other)?,
                set_ms: *library.get(b"nng_socket_set_ms").map_err(io::Error::other)?,
                listen: *library.get(b"nng_listen").map_err(io::Error::other)?,
                dial: *library.get(b"nng_dial").map_err(io::Error::other)?,
                send: *library.get(b"nng_send").map_err(io::Error::other)?,
                recv: *library.get(b"nng_recv").map_err(io::Error::other)?,
                _library: library,
            })
        }
    }
}

/// An end of a connected pair.
pub struct Pair {
    nng: Library,
    socket: Socket,
    wait: Option<Duration>,
}

impl Pair {
    /// The answerer listens, the driver dials.
    pub fn open(end: &End) -> io::Result<Pair> {
        let nng = Library::load()?;
        let mut socket = Socket { id: 0 };
        // SAFETY: the socket is written by the call.
        done(unsafe { (nng.open)(&raw mut socket) })?;
        for option in [c"recv-buffer", c"send-buffer"] {
            // SAFETY: both options take an int.
            done(unsafe { (nng.set_int)(socket, option.as_ptr(), BUFFERED) })?;
        }
        let (addr, begin) = match end.role {
            Role::Answer => (end.bind, nng.listen),
            Role::Drive => (end.to, nng.dial),
        };
        let url = CString::new(format!("tcp://{addr}")).expect("an address has no zero byte");
        // SAFETY: the socket is open, and the text ends with zero. Null is allowed for the listener and the
        // dialer.
        done(unsafe { begin(socket, url.as_ptr(), ptr::null_mut(), 0) })?;
        Ok(Pair { nng, socket, wait: None })
    }
}

fn done(code: c_int) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::other(format!("nng's error {code}"))) }
}

impl Link for Pair {
    #[inline]
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        // SAFETY: the library copies the message.
        done(unsafe { (self.nng.send)(self.socket, message.as_ptr().cast(), message.len(), 0) })
    }

    #[inline]
    fn receive(&mut self, into: &mut [u8], wait: Duration) -> io::Result<Option<usize>> {
        if self.wait != Some(wait) {
            let name = c"recv-timeout";
            // SAFETY: the option takes milliseconds.
            done(unsafe { (self.nng.set_ms)(self.socket, name.as_ptr(), wait.as_millis() as i32) })?;
            self.wait = Some(wait);
        }
        let mut len = into.len();
        // SAFETY: the library writes at most `len` bytes, and their number.
        let code = unsafe { (self.nng.recv)(self.socket, into.as_mut_ptr().cast(), &raw mut len, 0) };
        if code == TIMED_OUT { Ok(None) } else { done(code).map(|()| Some(len)) }
    }
}
