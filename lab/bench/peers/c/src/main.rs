//! The program runs one publisher, subscriber, pinger or echoer with a C client library. `rbmq-bench libraries` starts it.
//!
//! The loops, the messages and their checks are those of `benchkit::library`, which all ends run. The code that calls a
//! library is C (`ends/*.c`), compiled by the same compiler for all of them, and costs one call through a pointer more for
//! each message.

use std::{
    cell::Cell,
    ffi::{CStr, CString, c_char, c_int, c_void},
    future::Future,
    io,
    pin::pin,
    process::ExitCode,
    slice,
    task::{Context, Poll, Waker},
};

use benchkit::library::{self, End, Role};
use clap::{Parser, ValueEnum};

#[derive(Parser)]
#[command(name = "c-library-peers")]
enum Command {
    /// Runs one end of a measurement
    End {
        #[arg(value_enum)]
        library: Name,
        #[command(flatten)]
        end: End,
    },
    /// ZeroMQ's proxy, until standard input ends
    Proxy,
}

#[derive(Clone, Copy, ValueEnum)]
enum Name {
    RbmqC,
    Hiredis,
    NatsC,
    Librabbitmq,
    Libzmq,
}

/// `struct end_library` of ends/end.h.
#[repr(C)]
struct CLibrary {
    version: extern "C" fn() -> *const c_char,
    publisher: extern "C" fn(*const c_char, u16, *const c_char, u32, c_int) -> *mut c_void,
    publish: extern "C" fn(*mut c_void, *const c_void, usize) -> c_int,
    flush: extern "C" fn(*mut c_void) -> c_int,
    subscriber: extern "C" fn(*const c_char, u16, *const c_char) -> *mut c_void,
    receive: extern "C" fn(*mut c_void, *mut usize) -> *const c_void,
}

unsafe extern "C" {
    static end_rbmq: CLibrary;
    static end_hiredis: CLibrary;
    static end_nats: CLibrary;
    static end_rabbitmq: CLibrary;
    static end_zeromq: CLibrary;
    fn zeromq_proxy(ready: extern "C" fn(u16));
}

impl Name {
    fn library(self) -> &'static CLibrary {
        // SAFETY: ends/*.c define these constants, of the layout that ends/end.h declares.
        unsafe {
            match self {
                Name::RbmqC => &end_rbmq,
                Name::Hiredis => &end_hiredis,
                Name::NatsC => &end_nats,
                Name::Librabbitmq => &end_rabbitmq,
                Name::Libzmq => &end_zeromq,
            }
        }
    }
}

fn main() -> ExitCode {
    match run(Command::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("c-library-peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<(), benchkit::Error> {
    match command {
        Command::Proxy => {
            // The proxy never returns: the process ends with its standard input.
            std::thread::spawn(|| {
                let _ = io::copy(&mut io::stdin(), &mut io::sink());
                std::process::exit(0);
            });
            // SAFETY: The function is given one that stays valid.
            unsafe { zeromq_proxy(say_ready) };
            Err(io::Error::other("the proxy has no port").into())
        }
        // The libraries block their callers, so that no future here is ever pending.
        Command::End { library, end } => {
            let ends = Ends(library.library());
            match pin!(library::run(&ends, &end)).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(result) => result,
                Poll::Pending => Err(io::Error::other("a blocking library returned without a result").into()),
            }
        }
    }
}

extern "C" fn say_ready(port: u16) {
    println!("ready 127.0.0.1:{port}");
}

/// The ends of a library.
struct Ends(&'static CLibrary);

struct Publisher(&'static CLibrary, *mut c_void);

struct Subscriber(&'static CLibrary, *mut c_void, Cell<usize>);

fn address(end: &End) -> io::Result<(CString, u16)> {
    let (host, port) = end.addr.rsplit_once(':').ok_or(io::ErrorKind::InvalidInput)?;
    Ok((CString::new(host)?, port.parse().map_err(io::Error::other)?))
}

/// The library has printed its reason.
fn failed() -> io::Error {
    io::Error::other("the library failed")
}

impl library::Library for Ends {
    type Publisher = Publisher;
    type Subscriber = Subscriber;

    fn version(&self) -> String {
        // SAFETY: The function gives a constant text.
        unsafe { CStr::from_ptr((self.0.version)()) }.to_string_lossy().into_owned()
    }

    async fn publisher(&self, end: &End, topic: &str) -> io::Result<Publisher> {
        let ((host, port), topic) = (address(end)?, CString::new(topic)?);
        let at_once = matches!(end.role, Role::Ping | Role::Echo);
        let made = (self.0.publisher)(host.as_ptr(), port, topic.as_ptr(), end.subscribers, at_once.into());
        if made.is_null() { Err(failed()) } else { Ok(Publisher(self.0, made)) }
    }

    async fn subscriber(&self, end: &End, topic: &str) -> io::Result<Subscriber> {
        let ((host, port), topic) = (address(end)?, CString::new(topic)?);
        let made = (self.0.subscriber)(host.as_ptr(), port, topic.as_ptr());
        if made.is_null() { Err(failed()) } else { Ok(Subscriber(self.0, made, Cell::default())) }
    }
}

impl library::Publisher for Publisher {
    async fn publish(&mut self, message: &[u8]) -> io::Result<()> {
        match (self.0.publish)(self.1, message.as_ptr().cast(), message.len()) {
            0 => Ok(()),
            _ => Err(failed()),
        }
    }

    async fn flush(&mut self) -> io::Result<()> {
        if (self.0.flush)(self.1) == 0 { Ok(()) } else { Err(failed()) }
    }
}

impl library::Subscriber for Subscriber {
    async fn receive<R>(&mut self, each: impl FnOnce(&[u8]) -> R) -> io::Result<R> {
        let data = (self.0.receive)(self.1, self.2.as_ptr());
        if data.is_null() {
            return Err(failed());
        }
        // SAFETY: The message has so many bytes, and stays until the next call.
        Ok(each(unsafe { slice::from_raw_parts(data.cast(), self.2.get()) }))
    }
}
