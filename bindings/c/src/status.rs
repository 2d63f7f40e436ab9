//! Status codes, and the text of the last error of each thread.

use std::cell::Cell;
use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The result of a call: 0 if it did what it says, above 0 if nothing went wrong and nothing was done (`RB_TIMED_OUT`,
/// `RB_FULL`), below 0 if the call failed. `rb_strerror` describes a code, and `rb_last_error` what happened.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum rb_status {
    /// The call succeeded.
    RB_OK = 0,
    /// An outcome: nothing came, or there was no room, within the time-out.
    RB_TIMED_OUT = 1,
    /// An outcome: there is no room now. Try again later, or with a time-out.
    RB_FULL = 2,
    /// An outcome: there is nothing more.
    RB_END = 3,
    /// A pointer that must point at something is NULL.
    RB_ERR_NULL = -1,
    /// A pointer is not a handle of the kind that the call takes.
    RB_ERR_HANDLE = -2,
    /// The handle was freed.
    RB_ERR_FREED = -3,
    /// The handle belongs to the process that this one was forked from.
    RB_ERR_FORKED = -4,
    /// Another call uses an object that one thread may use at a time, or a batch of it is open.
    RB_ERR_BUSY = -5,
    /// An argument is out of its range: a size, an enumeration, text that is not UTF-8, the size of a structure.
    RB_ERR_ARGUMENT = -6,
    /// A bug in this library. The call had no effect, or a part of its effect.
    RB_ERR_BUG = -7,
    /// A call that waits was made inside a callback, which must not wait.
    RB_ERR_CALLED_FROM_CALLBACK = -8,
    /// The system refuses a thread, a descriptor or random numbers.
    RB_ERR_SYSTEM = -9,
    /// The configuration is not valid; the text names the setting.
    RB_ERR_CONFIG = -10,
    /// The memory for a ring is missing, or a limit of the configuration is reached.
    RB_ERR_MEMORY = -11,
    /// The transport cannot be set up.
    RB_ERR_TRANSPORT = -12,
    /// The buffer was destroyed, or the object that the call waits for ended.
    RB_ERR_CLOSED = -13,
    /// The connection is down.
    RB_ERR_DOWN = -14,
    /// The other end refuses.
    RB_ERR_REFUSED = -15,
    /// Another socket listens on the address.
    RB_ERR_ADDRESS_IN_USE = -16,
    /// The address is not valid, or the system refuses it.
    RB_ERR_ADDRESS = -17,
    /// The id is taken.
    RB_ERR_EXISTS = -18,
    /// No buffer has this id.
    RB_ERR_NO_SUCH_BUFFER = -19,
    /// The buffer has no subscription here, or the subscription was not answered yet.
    RB_ERR_NOT_SUBSCRIBED = -20,
    /// The buffer or the subscription is spliced.
    RB_ERR_SPLICED = -21,
    /// The subscription of the buffer was not answered yet.
    RB_ERR_NOT_ANSWERED = -22,
    /// Another owner has the writer of the buffer.
    RB_ERR_WRITER_TAKEN = -23,
    /// Another owner has the reader of the rIn.
    RB_ERR_READER_TAKEN = -24,
    /// Something is larger than it may be.
    RB_ERR_TOO_LARGE = -25,
    /// A number of things has reached its limit.
    RB_ERR_TOO_MANY = -26,
    /// More was released than was received.
    RB_ERR_TOO_MUCH = -27,
    /// Only the newest open segment may be delivered short or given back.
    RB_ERR_SHORT_DELIVER = -28,
    /// The segment belongs to another buffer, or its buffer's writer was taken.
    RB_ERR_FOREIGN = -29,
    /// A segment was freed undelivered while newer ones are open: the log cannot go on.
    RB_ERR_SEGMENT_LOST = -30,
    /// A segment or a batch of no bytes was asked for.
    RB_ERR_EMPTY = -31,
    /// The writer of an overwritable buffer was faster: the bytes are not valid.
    RB_ERR_LAPPED = -32,
    /// The subscription shares a budget, which the call does not allow.
    RB_ERR_BUDGETED = -33,
    /// A name is not valid.
    RB_ERR_NAME = -34,
    /// Messages are lost. The next call continues.
    RB_ERR_LOST = -35,
    /// A publisher died without closing its topic. The next call continues.
    RB_ERR_GONE = -36,
    /// Received bytes are malformed, and are skipped. The next call continues.
    RB_ERR_MALFORMED = -37,
    /// Another client took over the place of this one. Every later call fails too.
    RB_ERR_TAKEN_OVER = -38,
    /// The topic was opened for records, and the call is for raw bytes, or the other way round.
    RB_ERR_WRONG_FRAMING = -39,
    /// The topic has fewer subscribers than required.
    RB_ERR_TOO_FEW = -40,
    /// The position was not published yet.
    RB_ERR_NOT_PUBLISHED = -41,
    /// The answer of the other end does not fit the question.
    RB_ERR_PROTOCOL = -42,
    /// Any other reason; the text says it.
    RB_ERR_OTHER = -43,
    /// Messages of CMQ's reliable mode were given up. They may have arrived all the same.
    RB_ERR_UNDELIVERED = -44,
    /// Another thread ended the wait. Nothing is lost, and the next call continues.
    RB_ERR_INTERRUPTED = -45,
    /// Acknowledgements of a group's messages do not count: the messages come again. The next call continues.
    RB_ERR_IN_VAIN = -46,
}

use rb_status::*;

/// Every code with its description.
const CODES: [(rb_status, &str); 50] = [
    (RB_OK, "success\0"),
    (RB_TIMED_OUT, "nothing happened within the time-out\0"),
    (RB_FULL, "no room now\0"),
    (RB_END, "nothing more\0"),
    (RB_ERR_NULL, "a pointer is NULL\0"),
    (RB_ERR_HANDLE, "the pointer is no handle of this kind\0"),
    (RB_ERR_FREED, "the handle was freed\0"),
    (RB_ERR_FORKED, "the handle belongs to the process that this one was forked from\0"),
    (RB_ERR_BUSY, "the object is in use\0"),
    (RB_ERR_ARGUMENT, "an argument is out of its range\0"),
    (RB_ERR_BUG, "a bug in the library\0"),
    (RB_ERR_CALLED_FROM_CALLBACK, "a call that waits was made inside a callback\0"),
    (RB_ERR_SYSTEM, "the system refuses a resource\0"),
    (RB_ERR_CONFIG, "the configuration is not valid\0"),
    (RB_ERR_MEMORY, "no memory for a ring\0"),
    (RB_ERR_TRANSPORT, "the transport cannot be set up\0"),
    (RB_ERR_CLOSED, "the buffer was destroyed\0"),
    (RB_ERR_DOWN, "the connection is down\0"),
    (RB_ERR_REFUSED, "the other end refuses\0"),
    (RB_ERR_ADDRESS_IN_USE, "the address is in use\0"),
    (RB_ERR_ADDRESS, "the address cannot be used\0"),
    (RB_ERR_EXISTS, "the id is taken\0"),
    (RB_ERR_NO_SUCH_BUFFER, "there is no such buffer\0"),
    (RB_ERR_NOT_SUBSCRIBED, "there is no such subscription\0"),
    (RB_ERR_SPLICED, "the buffer is spliced\0"),
    (RB_ERR_NOT_ANSWERED, "the subscription was not answered yet\0"),
    (RB_ERR_WRITER_TAKEN, "the writer of the buffer was taken\0"),
    (RB_ERR_READER_TAKEN, "the reader of the rIn was taken\0"),
    (RB_ERR_TOO_LARGE, "larger than allowed\0"),
    (RB_ERR_TOO_MANY, "more than allowed\0"),
    (RB_ERR_TOO_MUCH, "more was released than was received\0"),
    (RB_ERR_SHORT_DELIVER, "only the newest open segment may be delivered short\0"),
    (RB_ERR_FOREIGN, "the segment belongs to another writer\0"),
    (RB_ERR_SEGMENT_LOST, "a segment was freed undelivered\0"),
    (RB_ERR_EMPTY, "no bytes\0"),
    (RB_ERR_LAPPED, "the bytes were overwritten\0"),
    (RB_ERR_BUDGETED, "the subscription shares a budget\0"),
    (RB_ERR_NAME, "the name is not valid\0"),
    (RB_ERR_LOST, "messages are lost\0"),
    (RB_ERR_GONE, "a publisher is gone\0"),
    (RB_ERR_MALFORMED, "malformed bytes were received\0"),
    (RB_ERR_TAKEN_OVER, "another client took over\0"),
    (RB_ERR_WRONG_FRAMING, "the topic has another framing\0"),
    (RB_ERR_TOO_FEW, "too few subscribers\0"),
    (RB_ERR_NOT_PUBLISHED, "the position was not published\0"),
    (RB_ERR_PROTOCOL, "the other end answered something else\0"),
    (RB_ERR_OTHER, "failed\0"),
    (RB_ERR_UNDELIVERED, "messages were given up\0"),
    (RB_ERR_INTERRUPTED, "another thread ended the wait\0"),
    (RB_ERR_IN_VAIN, "acknowledgements do not count\0"),
];

/// Why a call did not do what it says. Its text is where `rb_last_error` finds it from the moment it is made: so a result is one
/// register, and a call that succeeds moves no more than that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Failure(rb_status);

impl Failure {
    #[cold]
    #[inline(never)]
    pub(crate) fn new(status: rb_status, text: &str) -> Self {
        let text = &text[..text.floor_char_boundary(LONGEST - 1)];
        let bytes = text.bytes().map(|byte| if byte == 0 { b' ' } else { byte });
        LAST.with(|last| last.iter().zip(bytes.chain([0])).for_each(|(place, byte)| place.set(byte)));
        Self(status)
    }

    #[cold]
    pub(crate) fn of(status: rb_status, text: impl ToString) -> Self {
        Self::new(status, &text.to_string())
    }

    /// An outcome leaves the text of the last error as it is.
    #[inline]
    pub(crate) const fn outcome(status: rb_status) -> Self {
        Self(status)
    }

    #[inline]
    pub(crate) fn status(self) -> rb_status {
        self.0
    }
}

/// The result inside of an exported function.
pub(crate) type Outcome = Result<(), Failure>;

/// The bytes of the longest text, with the zero behind it.
const LONGEST: usize = 1024;

thread_local! {
    /// At the same place as long as the thread lives, and without a destructor: a pointer to it is good whatever fails meanwhile, also while
    /// the thread ends.
    static LAST: [Cell<u8>; LONGEST] = const { [const { Cell::new(0) }; LONGEST] };
}

/// Runs the body of an exported function: no panic leaves it, and a failure becomes its code, with its text in
/// `rb_last_error`.
#[inline]
pub(crate) fn call(body: impl FnOnce() -> Outcome) -> rb_status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => RB_OK,
        Ok(Err(failure)) => failure.status(),
        Err(_) => Failure::new(RB_ERR_BUG, "the call panicked; this is a bug of the library").status(),
    }
}

/// As [`call`], for functions that return a number: the code of a failure is below 0.
#[inline]
pub(crate) fn call_number(body: impl FnOnce() -> Result<i32, Failure>) -> i32 {
    let mut number = 0;
    let status = call(|| {
        number = body()?;
        Ok(())
    });
    if status == RB_OK { number } else { status as i32 }
}

/// The description of a status code.
///
/// Returns text that lives as long as the program, also for numbers that are no code. Any thread, at any time.
#[unsafe(no_mangle)]
pub extern "C" fn rb_strerror(status: i32) -> *const c_char {
    let known = CODES.iter().find(|(code, _)| *code as i32 == status);
    known.map_or("unknown status\0", |(_, text)| text).as_ptr().cast()
}

/// The text for people about the last call of this thread that failed (its code is below 0).
///
/// Returns text that belongs to the library: always the same place for a thread, which is there until the thread has ended, and has the
/// text of the last failure, at most 1,023 bytes. Empty if no call failed yet. Calls that succeed, and outcomes such as `RB_TIMED_OUT`,
/// do not change it. Any thread, at any time.
#[unsafe(no_mangle)]
pub extern "C" fn rb_last_error() -> *const c_char {
    LAST.with(|last| last.as_ptr().cast())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_description() {
        for (place, (code, text)) in CODES.iter().enumerate() {
            let number = if place < 4 { place as i32 } else { 3 - place as i32 };
            assert_eq!(*code as i32, number, "{text}");
            assert!(text.ends_with('\0') && text.matches('\0').count() == 1);
        }
    }

    #[test]
    fn a_panic_is_a_status() {
        assert_eq!(call(|| panic!("a test")), RB_ERR_BUG);
        assert_eq!(call(|| Err(Failure::outcome(RB_FULL))), RB_FULL);
        assert_eq!(call_number(|| Err(Failure::new(RB_ERR_NAME, "n"))), RB_ERR_NAME as i32);
    }
}
