//! ZeroMQ's PAIR over TCP, with the installed library.

use std::{
    ffi::{CString, c_char, c_int, c_void},
    io,
    time::Duration,
};

use benchkit::{
    ends::{End, Role},
    exchange::Link,
};

const PAIR: c_int = 0;
const LINGER: c_int = 17;
const SEND_HIGH_WATER: c_int = 23;
const RECEIVE_HIGH_WATER: c_int = 24;
const RECEIVE_TIMEOUT: c_int = 27;
const EAGAIN: c_int = 11;

/// The functions in use, with the types of zmq.h 4.3.
pub struct Library {
    ctx_new: unsafe extern "C" fn() -> *mut c_void,
    socket: unsafe extern "C" fn(*mut c_void, c_int) -> *mut c_void,
    setsockopt: unsafe extern "C" fn(*mut c_void, c_int, *const c_void, usize) -> c_int,
    bind: unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int,
    connect: unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int,
    send: unsafe extern "C" fn(*mut c_void, *const c_void, usize, c_int) -> c_int,
    recv: unsafe extern "C" fn(*mut c_void, *mut c_void, usize, c_int) -> c_int,
    errno: unsafe extern "C" fn() -> c_int,
    _library: libloading::Library,
}

impl Library {
    /// Loads the library.
    pub fn load() -> io::Result<Library> {
        let library = crate::load(&["libzmq.so.5", "libzmq.so"])?;
        // SAFETY: the types are those of zmq.h. The function pointers live no longer than the library beside
        // them.
        unsafe {
            Ok(Library {
                ctx_new: *library.get(b"zmq_ctx_new").map_err(io::Error::other)?,
                socket: *library.get(b"zmq_socket").map_err(io::Error::other)?,
                setsockopt: *library.get(b"zmq_setsockopt").map_err(io::Error::other)?,
                bind: *library.get(b"zmq_bind").map_err(io::Error::other)?,
                connect: *library.get(b"zmq_connect").map_err(io::Error::other)?,
                send: *library.get(b"zmq_send").map_err(io::Error::other)?,
                recv: *library.get(b"zmq_recv").map_err(io::Error::other)?,
                errno: *library.get(b"zmq_errno").map_err(io::Error::other)?,
                _library: library,
            })
        }
    }
}

/// An end of a connected pair.
pub struct Pair {
    zmq: Library,
    socket: *mut c_void,
    wait: Option<Duration>,
}

impl Pair {
    /// The answerer binds, the driver connects.
    pub fn open(end: &End) -> io::Result<Pair> {
        let zmq = Library::load()?;
        // SAFETY: a new context and a new socket in it. Both live until the process ends.
        let socket = unsafe { (zmq.socket)((zmq.ctx_new)(), PAIR) };
        if socket.is_null() {
            return Err(io::Error::other("zmq_socket failed"));
        }
        let mut pair = Pair { zmq, socket, wait: None };
        // No message is held back or dropped: the exchange limits the outstanding messages.
        for (option, value) in [(SEND_HIGH_WATER, 0), (RECEIVE_HIGH_WATER, 0), (LINGER, 0)] {
            pair.set(option, value)?;
        }
        let (addr, begin) = match end.role {
            Role::Answer => (end.bind, pair.zmq.bind),
            Role::Drive => (end.to, pair.zmq.connect),
        };
        let url = CString::new(format!("tcp://{addr}")).expect("an address has no zero byte");
        // SAFETY: the socket is open and the text ends with zero.
        let code = unsafe { begin(pair.socket, url.as_ptr()) };
        pair.done(code).map(|_| pair)
    }

    fn set(&mut self, option: c_int, value: c_int) -> io::Result<()> {
        // SAFETY: the options used here take an int.
        let code = unsafe {
            (self.zmq.setsockopt)(self.socket, option, (&raw const value).cast(), size_of::<c_int>())
        };
        self.done(code).map(drop)
    }

    fn done(&self, code: c_int) -> io::Result<usize> {
        usize::try_from(code).map_err(|_| {
            // SAFETY: reads a number of this thread.
            io::Error::from_raw_os_error(unsafe { (self.zmq.errno)() })
        })
    }
}

impl Link for Pair {
    #[inline]
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        // SAFETY: the library copies the message.
        let code = unsafe { (self.zmq.send)(self.socket, message.as_ptr().cast(), message.len(), 0) };
        self.done(code).map(drop)
    }

    #[inline]
    fn receive(&mut self, into: &mut [u8], wait: Duration) -> io::Result<Option<usize>> {
        if self.wait != Some(wait) {
            self.set(RECEIVE_TIMEOUT, wait.as_millis() as c_int)?;
            self.wait = Some(wait);
        }
        // SAFETY: the library writes at most this many bytes.
        let code = unsafe { (self.zmq.recv)(self.socket, into.as_mut_ptr().cast(), into.len(), 0) };
        match self.done(code) {
            Ok(len) => Ok(Some(len)),
            Err(error) if error.raw_os_error() == Some(EAGAIN) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
