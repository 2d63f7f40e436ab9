//! Redis' C client, loaded at run time: the one that the paper's web server used. The only file of this crate with `unsafe`.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{self, NonNull};

use crate::failure::Result;

/// The beginning of `redisContext`.
#[repr(C)]
struct Context {
    functions: *const c_void,
    error: c_int,
    message: [c_char; 128],
}

/// `redisReply` of hiredis 0.14. Later versions have more fields.
#[repr(C)]
struct Reply {
    kind: c_int,
    integer: i64,
    length: usize,
    text: *const c_char,
    elements: usize,
    element: *const *const Reply,
}

type Connect = unsafe extern "C" fn(*const c_char, c_int) -> *mut Context;
type Append = unsafe extern "C" fn(*mut Context, c_int, *const *const c_char, *const usize) -> c_int;
type Get = unsafe extern "C" fn(*mut Context, *mut *mut Reply) -> c_int;
type Free = unsafe extern "C" fn(*mut Reply);

/// A connection.
pub struct Hiredis {
    context: NonNull<Context>,
    append: Append,
    get: Get,
    free: Free,
}

/// The address of a function of the library.
fn symbol(library: NonNull<c_void>, name: &CStr) -> Result<NonNull<c_void>> {
    // SAFETY: the library is loaded and never unloaded, and the name ends with a zero.
    let found = unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) };
    NonNull::new(found).ok_or_else(|| format!("hiredis has no {}", name.to_string_lossy()).into())
}

impl Hiredis {
    pub fn connect(address: &str) -> Result<Self> {
        // SAFETY: loading hiredis runs no code but its own initialisers.
        let library = NonNull::new(unsafe { libc::dlopen(c"libhiredis.so.0.14".as_ptr(), libc::RTLD_NOW) });
        let library = library.ok_or("there is no libhiredis; see scripts/bench-peers live")?;
        // SAFETY: the symbols are those functions, whose signatures are in hiredis.h.
        let (connect, append, get, free) = unsafe {
            (
                std::mem::transmute::<NonNull<c_void>, Connect>(symbol(library, c"redisConnect")?),
                std::mem::transmute::<NonNull<c_void>, Append>(symbol(library, c"redisAppendCommandArgv")?),
                std::mem::transmute::<NonNull<c_void>, Get>(symbol(library, c"redisGetReply")?),
                std::mem::transmute::<NonNull<c_void>, Free>(symbol(library, c"freeReplyObject")?),
            )
        };
        let (host, port) = address.rsplit_once(':').ok_or("an address has a port")?;
        let host = CString::new(host)?;
        // SAFETY: the host ends with a zero and lives through the call.
        let context = NonNull::new(unsafe { connect(host.as_ptr(), port.parse()?) });
        let own = Self { context: context.ok_or("hiredis has no memory")?, append, get, free };
        // SAFETY: the context is hiredis', and its first fields are these.
        if unsafe { own.context.as_ref() }.error != 0 {
            return Err("hiredis cannot connect to Redis".into());
        }
        Ok(own)
    }

    pub fn subscribe(&self, channels: &[String]) -> Result<()> {
        let words: Vec<&str> =
            std::iter::once("SUBSCRIBE").chain(channels.iter().map(String::as_str)).collect();
        let pointers: Vec<_> = words.iter().map(|word| word.as_ptr().cast::<c_char>()).collect();
        let sizes: Vec<_> = words.iter().map(|word| word.len()).collect();
        let count = c_int::try_from(words.len())?;
        // SAFETY: both arrays have `count` entries and live through the call, which copies the words.
        let code = unsafe { (self.append)(self.context.as_ptr(), count, pointers.as_ptr(), sizes.as_ptr()) };
        if code == 0 { Ok(()) } else { Err("hiredis has no memory".into()) }
    }

    /// Waits for an answer, and gives the channel and the text of a published message to `to`, which copies the text: hiredis frees
    /// it afterwards.
    pub fn message(&self, to: impl FnOnce(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        let mut reply = ptr::null_mut();
        // SAFETY: the context is valid, and the call writes a reply or null.
        let code = unsafe { (self.get)(self.context.as_ptr(), &raw mut reply) };
        let Some(reply) = NonNull::new(reply).filter(|_| code == 0) else {
            return Err("hiredis lost the connection to Redis".into());
        };
        // SAFETY: a list has as many elements as it says, each with its text; all live until the reply is freed below.
        let texts: Vec<&[u8]> = unsafe {
            let list = reply.as_ref();
            let elements = (0..list.elements).map(|at| &**list.element.add(at));
            let text = |own: &Reply| match own.text.is_null() {
                true => &[][..],
                false => std::slice::from_raw_parts(own.text.cast::<u8>(), own.length),
            };
            elements.map(text).collect()
        };
        let taken = match texts[..] {
            [b"message", channel, text] => to(channel, text),
            _ => Ok(()),
        };
        // SAFETY: the reply is hiredis' own, and nothing refers to it any more.
        unsafe { (self.free)(reply.as_ptr()) };
        taken
    }
}
