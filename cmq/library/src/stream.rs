//! Messages for async code on any runtime: the thread that receives a message wakes the task.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use crate::io::mailbox::MailboxQueue;
use crate::io::receive_half::ReceiveHalf;
use crate::key::Key;

/// The messages of one mailbox, as a stream without an end. Returned by [`Cmq::stream`](crate::Cmq::stream).
pub struct MessageStream<'a, T> {
    receive_half: &'a ReceiveHalf<T>,
    queue: &'a MailboxQueue<T>,
}

impl<T> std::fmt::Debug for MessageStream<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MessageStream").finish_non_exhaustive()
    }
}

impl<'a, T> MessageStream<'a, T> {
    pub(crate) fn new(receive_half: &'a ReceiveHalf<T>, queue: &'a MailboxQueue<T>) -> MessageStream<'a, T> {
        MessageStream { receive_half, queue }
    }
}

impl<T> Stream for MessageStream<'_, T> {
    type Item = (T, Key);

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<(T, Key)>> {
        if let Some(message) = self.queue.pop() {
            return Poll::Ready(Some(message));
        }
        self.queue.register_waker(context.waker());
        self.receive_half.refill();
        // A message may have arrived before the waker was registered.
        self.queue.pop().map_or(Poll::Pending, |message| Poll::Ready(Some(message)))
    }
}
