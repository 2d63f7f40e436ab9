//! The values that C passes: pointers, texts, structures that grow, and callbacks with their context.
//!
//! The functions here read and write through pointers of the caller. They are only called with what an exported function was
//! given, and the contract of every exported function is: a pointer is NULL, or it points at what its documentation says and
//! nobody else writes that meanwhile. NULL is an error here, where the documentation does not allow it.

use std::ffi::{CStr, c_char, c_void};
use std::time::Duration;

use libc::iovec;

use crate::status::rb_status::{RB_ERR_ARGUMENT, RB_ERR_NULL};
use crate::status::{Failure, Outcome, call, rb_status};

/// A time-out: below 0 is no limit, 0 does not wait, and otherwise nanoseconds.
#[inline]
pub(crate) fn timeout(nanos: i64) -> Option<Duration> {
    match nanos {
        // Without the division of `from_nanos`.
        0 => Some(Duration::ZERO),
        _ => u64::try_from(nanos).ok().map(Duration::from_nanos),
    }
}

/// A duration that must not be negative.
pub(crate) fn duration(nanos: i64, what: &str) -> Result<Duration, Failure> {
    timeout(nanos).ok_or_else(|| Failure::of(RB_ERR_ARGUMENT, format!("{what} is negative")))
}

/// Calls the setters of the options that are not zero: `set!(made, given: numbers; times = their nanoseconds)`. An error names the field.
macro_rules! set {
    ($made:ident, $given:ident: $($field:ident),* $(; $($time:ident = $nanos:ident),*)?) => {
        $(if $given.$field != 0 {
            $made = $made.$field($given.$field.into());
        })*
        $($(if $given.$nanos != 0 {
            $made = $made.$time($crate::raw::duration($given.$nanos, stringify!($nanos))?);
        })*)?
    };
}
pub(crate) use set;

/// Makes a structure of C: `copied!(counts => cmq_counts { received, lost, key: none() })` takes the fields without a value from the
/// Rust structure, where they have the same names.
macro_rules! copied {
    (@ $from:expr, $field:ident) => { $from.$field };
    (@ $from:expr, $field:ident, $value:expr) => { $value };
    ($from:expr => $to:ident { $($field:ident $(: $value:expr)?),* $(,)? }) => {
        $to { $($field: $crate::raw::copied!(@ $from, $field $(, $value)?)),* }
    };
}
pub(crate) use copied;

/// A duration as nanoseconds.
pub(crate) fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

#[cold]
fn null(what: &str) -> Failure {
    Failure::of(RB_ERR_NULL, format!("{what} is NULL"))
}

/// A text that ends with a zero.
pub(crate) fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Failure> {
    optional_text(text, what)?.ok_or_else(|| null(what))
}

/// A text that ends with a zero, or none.
pub(crate) fn optional_text<'a>(text: *const c_char, what: &str) -> Result<Option<&'a str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's text ends with a zero and is not changed during the call.
    let text = unsafe { CStr::from_ptr(text) };
    let wrong = |_| Failure::of(RB_ERR_ARGUMENT, format!("{what} is not UTF-8"));
    text.to_str().map(Some).map_err(wrong)
}

/// Bytes of the caller. NULL is allowed if there are none.
#[inline]
pub(crate) fn bytes<'a>(data: *const c_void, len: usize, what: &str) -> Result<&'a [u8], Failure> {
    if data.is_null() || len > TOO_LONG {
        return if len == 0 { Ok(&[]) } else { Err(not_bytes(data, what)) };
    }
    // SAFETY: by the contract, `len` bytes are at `data`, and nobody writes them during the call.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), len) })
}

#[cold]
fn not_bytes(data: *const c_void, what: &str) -> Failure {
    if data.is_null() { null(what) } else { too_long(what) }
}

/// More bytes than an address space has: a negative length that became a `size_t`, or garbage.
const TOO_LONG: usize = 1 << 52;

#[cold]
fn too_long(what: &str) -> Failure {
    Failure::of(RB_ERR_ARGUMENT, format!("{what} is longer than any memory"))
}

/// Memory of the caller that is filled. NULL is allowed if there is none.
pub(crate) fn bytes_mut<'a>(data: *mut c_void, len: usize, what: &str) -> Result<&'a mut [u8], Failure> {
    if len == 0 {
        return Ok(&mut []);
    }
    if data.is_null() || len > TOO_LONG {
        return Err(if data.is_null() { null(what) } else { too_long(what) });
    }
    // SAFETY: by the contract, `len` bytes at `data` may be written, and nobody else uses them during the call.
    Ok(unsafe { std::slice::from_raw_parts_mut(data.cast(), len) })
}

/// An array of the caller.
pub(crate) fn array<'a, T>(items: *const T, len: usize, what: &str) -> Result<&'a [T], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    if items.is_null() || len > TOO_LONG / size_of::<T>().max(1) {
        return Err(if items.is_null() { null(what) } else { too_long(what) });
    }
    // SAFETY: by the contract, `len` items are there, and nobody writes them during the call.
    Ok(unsafe { std::slice::from_raw_parts(items, len) })
}

/// An array of the caller that is filled.
pub(crate) fn array_mut<'a, T>(items: *mut T, len: usize, what: &str) -> Result<&'a mut [T], Failure> {
    if len == 0 {
        return Ok(&mut []);
    }
    if items.is_null() || len > TOO_LONG / size_of::<T>().max(1) {
        return Err(if items.is_null() { null(what) } else { too_long(what) });
    }
    // SAFETY: by the contract, `len` items are there, and nobody else uses them during the call.
    Ok(unsafe { std::slice::from_raw_parts_mut(items, len) })
}

/// The bytes of one of the caller's iovecs.
pub(crate) fn iovec_bytes(piece: &iovec) -> Result<&[u8], Failure> {
    bytes(piece.iov_base, piece.iov_len, "a piece")
}

/// The caller's iovecs as slices. At most a few, so that no memory is allocated for the usual ones.
pub(crate) fn pieces<R>(
    parts: *const iovec,
    count: usize,
    then: impl FnOnce(&[&[u8]]) -> Result<R, Failure>,
) -> Result<R, Failure> {
    const FEW: usize = 8;
    let parts = array(parts, count, "the array of pieces")?;
    if parts.len() <= FEW {
        let mut few: [&[u8]; FEW] = [&[]; FEW];
        for (slice, part) in few.iter_mut().zip(parts) {
            *slice = iovec_bytes(part)?;
        }
        return then(&few[..parts.len()]);
    }
    let many: Result<Vec<&[u8]>, Failure> = parts.iter().map(iovec_bytes).collect();
    then(&many?)
}

/// Checks a place for a result before the call does anything.
#[inline]
pub(crate) fn place<T>(out: *mut T, what: &str) -> Outcome {
    if out.is_null() { Err(null(what)) } else { Ok(()) }
}

/// Writes a result to its place, if the caller gave one.
#[inline]
pub(crate) fn put<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: by the contract, the place may be written and nobody else uses it during the call.
        unsafe { out.write(value) };
    }
}

/// Runs the body of an exported function with one result, which goes to `out`; `what` names this place.
#[inline]
pub(crate) fn answer<T>(out: *mut T, what: &str, body: impl FnOnce() -> Result<T, Failure>) -> rb_status {
    call(|| {
        place(out, what)?;
        put(out, body()?);
        Ok(())
    })
}

/// Reads what a pointer of the caller points at.
#[inline]
pub(crate) fn get<'a, T>(value: *const T, what: &str) -> Result<&'a T, Failure> {
    // SAFETY: by the contract, a pointer that is not NULL points at a value that nobody writes during the call.
    unsafe { value.as_ref() }.ok_or_else(|| null(what))
}

/// Changes what a pointer of the caller points at.
#[inline]
pub(crate) fn get_mut<'a, T>(value: *mut T, what: &str) -> Result<&'a mut T, Failure> {
    // SAFETY: by the contract, a pointer that is not NULL points at a value that nobody else uses during the call.
    unsafe { value.as_mut() }.ok_or_else(|| null(what))
}

/// Copies a text or bytes into memory of the caller, with a zero behind them, as `snprintf` does: `len` gets their length
/// without the zero, also if they do not fit and are cut.
pub(crate) fn copy_out(from: &[u8], to: *mut c_char, capacity: usize, len: *mut usize) -> Outcome {
    let to = bytes_mut(to.cast(), capacity, "the buffer for the text")?;
    if let Some(room) = to.len().checked_sub(1) {
        let fits = from.len().min(room);
        to[..fits].copy_from_slice(&from[..fits]);
        to[fits] = 0;
    }
    put(len, from.len());
    Ok(())
}

/// A structure of options that may grow: `size` says how much of it the caller knows. Zeros are defaults.
///
/// # Safety
/// Every pattern of bits is a value of the type, and its first field is `size: usize`.
pub(crate) unsafe trait Versioned: Copy {}

/// Reads a structure of options. The part that the caller does not know is zero. NULL is all zeros.
pub(crate) fn options<T: Versioned>(options: *const T, what: &str) -> Result<T, Failure> {
    // SAFETY: zeros are a value of a `Versioned` type.
    let mut known: T = unsafe { std::mem::zeroed() };
    if options.is_null() {
        return Ok(known);
    }
    // SAFETY: the caller's structure has at least its first field, `size`.
    let size = unsafe { options.cast::<usize>().read() };
    if size < size_of::<usize>() || size > 4096 {
        return Err(Failure::of(RB_ERR_ARGUMENT, format!("{what}: size is {size}; set it to sizeof")));
    }
    // SAFETY: the caller's structure has `size` bytes.
    let all = unsafe { std::slice::from_raw_parts(options.cast::<u8>(), size) };
    let (ours, more) = all.split_at(size.min(size_of::<T>()));
    if more.iter().any(|byte| *byte != 0) {
        let text = format!("{what}: it has options that this version of the library does not know");
        return Err(Failure::of(RB_ERR_ARGUMENT, text));
    }
    // SAFETY: as many bytes as the type has at most, and every pattern of bits is a value.
    unsafe { std::ptr::copy_nonoverlapping(ours.as_ptr(), (&raw mut known).cast(), ours.len()) };
    Ok(known)
}

/// A `bool` in a structure of the caller: a byte, which a program may have filled with anything. 0 is false.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub struct rb_bool(u8);

impl From<bool> for rb_bool {
    fn from(value: bool) -> Self {
        Self(value.into())
    }
}

impl rb_bool {
    pub(crate) fn is_set(self) -> bool {
        self.0 != 0
    }
}

/// The context pointer of a callback.
#[derive(Clone, Copy)]
pub(crate) struct CallbackContext(pub(crate) *mut c_void);

// SAFETY: the library passes the pointer on and never follows it; the documentation of callbacks says that they run on other
// threads.
unsafe impl Send for CallbackContext {}

impl CallbackContext {
    /// The pointer. A method, so that closures capture the whole context.
    pub(crate) fn pointer(self) -> *mut c_void {
        self.0
    }
}

/// A 128-bit name: of a log (its epoch), or of a process.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct rb_id128 {
    /// The upper 64 bits.
    pub high: u64,
    /// The lower 64 bits.
    pub low: u64,
}

impl From<u128> for rb_id128 {
    fn from(id: u128) -> Self {
        Self { high: (id >> 64) as u64, low: id as u64 }
    }
}

impl From<rb_id128> for u128 {
    fn from(id: rb_id128) -> Self {
        u128::from(id.high) << 64 | u128::from(id.low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Small {
        size: usize,
        a: u64,
    }
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Large {
        size: usize,
        a: u64,
        b: u64,
    }
    // SAFETY: only integers, and the first field is the size.
    unsafe impl Versioned for Small {}
    // SAFETY: as above.
    unsafe impl Versioned for Large {}

    #[test]
    fn options_of_older_and_newer_programs() {
        let small = Small { size: size_of::<Small>(), a: 7 };
        let read = options((&raw const small).cast::<Large>(), "options").unwrap();
        assert_eq!((read.a, read.b), (7, 0));
        let mut large = Large { size: size_of::<Large>(), a: 7, b: 0 };
        assert_eq!(options((&raw const large).cast::<Small>(), "options").unwrap().a, 7);
        large.b = 1;
        assert!(options((&raw const large).cast::<Small>(), "options").is_err());
        large.size = 3;
        assert!(options(&raw const large, "options").is_err());
        assert_eq!(options(std::ptr::null::<Large>(), "options").unwrap().a, 0);
    }

    #[test]
    fn texts_are_cut_and_measured() {
        let (mut to, mut len) = ([1_u8 as c_char; 4], 0);
        copy_out(b"hello", to.as_mut_ptr(), to.len(), &raw mut len).unwrap();
        assert_eq!((to.map(|c| c as u8), len), (*b"hel\0", 5));
        copy_out(b"hello", std::ptr::null_mut(), 0, &raw mut len).unwrap();
        assert!(copy_out(b"hello", std::ptr::null_mut(), 4, &raw mut len).is_err());
        assert_eq!(timeout(-1), None);
        assert_eq!(timeout(3_000_000), Some(Duration::from_millis(3)));
    }
}
