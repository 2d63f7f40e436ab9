//! Opening the libraries, once for the process.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use super::abi::{
    IbvAsyncEvent, IbvCompChannel, IbvContext, IbvCq, IbvDevice, IbvDeviceAttr, IbvMr, IbvPd, IbvPortAttr,
    IbvQpInitAttr, RdmaCmEvent, RdmaCmId, RdmaConnParam, RdmaEventChannel, SockAddr,
};

/// The libraries, and their Debian packages.
pub const LIBRARIES: [(&str, &str); 2] =
    [("libibverbs.so.1", "libibverbs1"), ("librdmacm.so.1", "librdmacm1")];

const VERBS: &CStr = c"libibverbs.so.1";
const CM: &CStr = c"librdmacm.so.1";

/// Why a library cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The dynamic linker does not find the library, or one of its dependencies.
    #[error("{0}")]
    Missing(String),
    /// The library lacks a function: another library of that name, or an old version.
    #[error("{library} has no {symbol}; it is too old")]
    Symbol {
        /// The library's name.
        library: &'static str,
        /// The function.
        symbol: String,
    },
}

/// Declares the table of functions and fills it: one line for each, as the library's header declares it.
macro_rules! functions {
    ($($library:ident { $($name:ident: fn($($arg:ty),*) -> $result:ty;)+ })+) => {
        /// The functions of both libraries.
        #[derive(Debug)]
        pub struct Functions {
            $($(pub $name: unsafe extern "C" fn($($arg),*) -> $result,)+)+
        }

        impl Functions {
            fn load() -> Result<Self, LoadError> {
                Ok(Self {
                    $($($name: {
                        let found = symbol(open($library)?, stringify!($name))?;
                        // SAFETY: the library's header declares this function so.
                        unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) -> $result>(found)
                        }
                    },)+)+
                })
            }
        }
    };
}

functions! {
    VERBS {
        ibv_get_device_list: fn(*mut c_int) -> *mut *mut IbvDevice;
        ibv_free_device_list: fn(*mut *mut IbvDevice) -> ();
        ibv_get_device_name: fn(*mut IbvDevice) -> *const c_char;
        ibv_open_device: fn(*mut IbvDevice) -> *mut IbvContext;
        ibv_close_device: fn(*mut IbvContext) -> c_int;
        ibv_query_device: fn(*mut IbvContext, *mut IbvDeviceAttr) -> c_int;
        ibv_query_port: fn(*mut IbvContext, u8, *mut IbvPortAttr) -> c_int;
        ibv_alloc_pd: fn(*mut IbvContext) -> *mut IbvPd;
        ibv_dealloc_pd: fn(*mut IbvPd) -> c_int;
        ibv_reg_mr: fn(*mut IbvPd, *mut c_void, usize, c_int) -> *mut IbvMr;
        ibv_dereg_mr: fn(*mut IbvMr) -> c_int;
        ibv_create_comp_channel: fn(*mut IbvContext) -> *mut IbvCompChannel;
        ibv_destroy_comp_channel: fn(*mut IbvCompChannel) -> c_int;
        ibv_create_cq: fn(*mut IbvContext, c_int, *mut c_void, *mut IbvCompChannel, c_int) -> *mut IbvCq;
        ibv_destroy_cq: fn(*mut IbvCq) -> c_int;
        ibv_get_cq_event: fn(*mut IbvCompChannel, *mut *mut IbvCq, *mut *mut c_void) -> c_int;
        ibv_ack_cq_events: fn(*mut IbvCq, u32) -> ();
        ibv_get_async_event: fn(*mut IbvContext, *mut IbvAsyncEvent) -> c_int;
        ibv_ack_async_event: fn(*mut IbvAsyncEvent) -> ();
        ibv_wc_status_str: fn(u32) -> *const c_char;
    }
    CM {
        rdma_create_event_channel: fn() -> *mut RdmaEventChannel;
        rdma_destroy_event_channel: fn(*mut RdmaEventChannel) -> ();
        rdma_get_cm_event: fn(*mut RdmaEventChannel, *mut *mut RdmaCmEvent) -> c_int;
        rdma_ack_cm_event: fn(*mut RdmaCmEvent) -> c_int;
        rdma_event_str: fn(c_int) -> *const c_char;
        rdma_create_id: fn(*mut RdmaEventChannel, *mut *mut RdmaCmId, *mut c_void, c_int) -> c_int;
        rdma_destroy_id: fn(*mut RdmaCmId) -> c_int;
        rdma_migrate_id: fn(*mut RdmaCmId, *mut RdmaEventChannel) -> c_int;
        rdma_set_option: fn(*mut RdmaCmId, c_int, c_int, *mut c_void, usize) -> c_int;
        rdma_bind_addr: fn(*mut RdmaCmId, *mut SockAddr) -> c_int;
        rdma_listen: fn(*mut RdmaCmId, c_int) -> c_int;
        rdma_get_src_port: fn(*mut RdmaCmId) -> u16;
        rdma_resolve_addr: fn(*mut RdmaCmId, *mut SockAddr, *mut SockAddr, c_int) -> c_int;
        rdma_resolve_route: fn(*mut RdmaCmId, c_int) -> c_int;
        rdma_create_qp: fn(*mut RdmaCmId, *mut IbvPd, *mut IbvQpInitAttr) -> c_int;
        rdma_destroy_qp: fn(*mut RdmaCmId) -> ();
        rdma_connect: fn(*mut RdmaCmId, *mut RdmaConnParam) -> c_int;
        rdma_accept: fn(*mut RdmaCmId, *mut RdmaConnParam) -> c_int;
        rdma_reject: fn(*mut RdmaCmId, *const c_void, u8) -> c_int;
        rdma_disconnect: fn(*mut RdmaCmId) -> c_int;
    }
}

/// A handle of the dynamic linker. The handle is never closed, since its symbols are used until the process ends.
#[derive(Clone, Copy)]
struct Handle {
    name: &'static CStr,
    handle: *mut c_void,
}

fn open(name: &'static CStr) -> Result<Handle, LoadError> {
    // SAFETY: the name ends with a zero; the libraries' initialisers may run in any thread.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if handle.is_null() { Err(LoadError::Missing(last_error())) } else { Ok(Handle { name, handle }) }
}

fn symbol(library: Handle, name: &str) -> Result<*mut c_void, LoadError> {
    let symbol = std::ffi::CString::new(name).unwrap_or_default();
    // SAFETY: the handle is open and the name ends with a zero.
    let found = unsafe { libc::dlsym(library.handle, symbol.as_ptr()) };
    if found.is_null() {
        let library = library.name.to_str().unwrap_or("the library");
        return Err(LoadError::Symbol { library, symbol: name.into() });
    }
    Ok(found)
}

fn last_error() -> String {
    // SAFETY: it points to a text of this thread, or is null.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the dynamic linker does not say why".into();
    }
    // SAFETY: as above; it ends with a zero and is copied at once.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

static FUNCTIONS: OnceLock<Result<Functions, LoadError>> = OnceLock::new();

/// The functions, loaded by the first call.
pub(super) fn functions() -> Result<&'static Functions, LoadError> {
    FUNCTIONS.get_or_init(Functions::load).as_ref().map_err(LoadError::clone)
}

/// Whether one library of [`LIBRARIES`] can be loaded.
///
/// # Errors
/// [`LoadError`], with the dynamic linker's message.
pub fn is_loaded(library: &str) -> Result<(), LoadError> {
    match [VERBS, CM].into_iter().find(|name| name.to_str() == Ok(library)) {
        Some(name) => open(name).map(|_| ()),
        None => Err(LoadError::Missing(format!("{library} is none of the libraries that are used"))),
    }
}
