//! Texts and messages that events point at.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_void};

/// The memory that an event points at, for as long as the event is valid: inside a callback until it returns, and otherwise
/// until the thread's next call that receives something.
#[derive(Default)]
pub(crate) struct Kept {
    texts: Vec<CString>,
    messages: Vec<Vec<u8>>,
}

impl Kept {
    /// A text that ends with a zero. A zero inside becomes a space.
    pub(crate) fn text(&mut self, text: &str) -> *const c_char {
        let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
        let pointer = text.as_ptr();
        self.texts.push(text);
        pointer
    }

    /// Bytes, which stay where they are.
    pub(crate) fn message(&mut self, message: Vec<u8>) -> (*const c_void, usize) {
        let place = (message.as_ptr().cast(), message.len());
        self.messages.push(message);
        place
    }

    fn clear(&mut self) {
        self.texts.clear();
        self.messages.clear();
    }
}

thread_local! {
    static KEPT: RefCell<Kept> = const { RefCell::new(Kept { texts: Vec::new(), messages: Vec::new() }) };
}

/// Replaces what this thread's last event points at.
pub(crate) fn with_kept<R>(fill: impl FnOnce(&mut Kept) -> R) -> R {
    KEPT.with(|kept| {
        let mut kept = kept.borrow_mut();
        kept.clear();
        fill(&mut kept)
    })
}
