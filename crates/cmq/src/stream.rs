//! Messages for async code, whatever its runtime: a task is woken by the thread behind.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use crate::io::mailbox::Queue;
use crate::key::Key;

/// The messages of one mailbox, one after the other; it has no end. Made by [`Cmq::stream`](crate::Cmq::stream).
pub struct MessageStream<'a, T> {
    queue: &'a Queue<T>,
}

impl<T> std::fmt::Debug for MessageStream<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MessageStream").finish_non_exhaustive()
    }
}

impl<'a, T> MessageStream<'a, T> {
    pub(crate) fn new(queue: &'a Queue<T>) -> MessageStream<'a, T> {
        MessageStream { queue }
    }
}

impl<T> Stream for MessageStream<'_, T> {
    type Item = (T, Key);

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<(T, Key)>> {
        if let Some(message) = self.queue.pop() {
            return Poll::Ready(Some(message));
        }
        self.queue.wake_later(context.waker());
        // It may have come before the waker was there.
        self.queue.pop().map_or(Poll::Pending, |message| Poll::Ready(Some(message)))
    }
}
