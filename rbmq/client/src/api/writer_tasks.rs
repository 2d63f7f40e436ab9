//! Publishing from tasks of any async runtime: a task waits for room, no thread does.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use rocketbufs::{Position, SegmentError};

use crate::api::writer::{TopicWriter, WriteBatch};
use crate::ground::error::{ConfirmError, Over, PublishError, TopicEnd};
use crate::ground::level::ConfirmLevel;
use crate::state::confirm::Confirmation;
use crate::state::space_log::Output;
use crate::state::topic_state::State;
use crate::wire::{Framing, RECORD_HEADER_BYTES, record_header};

/// The calls for tasks. All are cancel-safe: a future that is dropped before it is ready has published nothing, but for
/// [`TopicWriter::publish_raw_async`], which may have published a part. Time limits are the runtime's, such as
/// `tokio::time::timeout`.
impl TopicWriter {
    /// As [`TopicWriter::publish`]. The task waits while the ring is full, or while the topic has too few subscribers.
    ///
    /// ```
    /// # async fn publish(mut prices: rbmq::TopicWriter) -> Result<(), Box<dyn std::error::Error>> {
    /// let position = prices.publish_async(b"EUR 1.07").await?;
    /// prices.confirmation(position, rbmq::ConfirmLevel::Consumed).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`TopicWriter::publish`].
    pub async fn publish_async(&mut self, record: &[u8]) -> Result<Position, PublishError> {
        if let Some(header) = self.ready(Framing::Records, record.len())
            && let Ok(end) = self.output.append_record(&header, record)
        {
            return Ok(end);
        }
        self.check(Framing::Records)?;
        let size = (RECORD_HEADER_BYTES + record.len()) as u64;
        let too_large = || self.too_large(size, self.largest_delivery_bytes());
        let header = record_header(record.len()).ok_or_else(too_large)?;
        self.waiting_async(size, |output| output.append_record(&header, record)).await
    }

    /// As [`TopicWriter::publish_raw`].
    ///
    /// # Errors
    /// As [`TopicWriter::publish_raw`].
    pub async fn publish_raw_async(&mut self, bytes: &[u8]) -> Result<Position, PublishError> {
        self.check(Framing::Raw)?;
        let most = usize::try_from(self.max_delivery).unwrap_or(usize::MAX);
        let mut end = self.output.head();
        for piece in bytes.chunks(most) {
            end = self.waiting_async(piece.len() as u64, |output| output.append_record(&[], piece)).await?;
        }
        Ok(end)
    }

    /// As [`TopicWriter::batch`]. In a topic of a space the room may be gone when the batch is delivered: [`WriteBatch::deliver_async`]
    /// waits for it, and [`WriteBatch::deliver`] does not.
    ///
    /// # Errors
    /// As [`TopicWriter::batch`].
    pub async fn batch_async(&mut self, bytes: u64) -> Result<WriteBatch<'_>, PublishError> {
        self.check(Framing::Records)?;
        let room = self.waiting_async(bytes, |output| output.room(bytes, Duration::ZERO)).await?;
        Ok(WriteBatch::new(self, room, Some(Duration::ZERO)))
    }

    /// Waits until the topic has `count` subscribers, or is refused. They receive everything that is published from then on.
    ///
    /// # Errors
    /// The broker refuses the topic.
    pub async fn wait_subscribers_async(&mut self, count: u32) -> Result<(), PublishError> {
        let state = &self.state;
        poll_fn(|task| state.poll(self.id, task, |state| state.subscribers >= count || state.is_ended()))
            .await;
        self.check(state.framing)
    }

    /// A future that is ready when the broker has everything that was published.
    pub fn flush_async(&self) -> Confirmation {
        self.confirmation(self.position(), ConfirmLevel::Accepted)
    }

    /// As [`TopicWriter::close`]: closes the topic when the broker has everything, and waits until it has the end of the topic.
    /// Dropping the future closes the topic without waiting.
    ///
    /// # Errors
    /// The broker refuses the topic, or records were lost. The topic is closed then.
    pub async fn close_async(self) -> Result<(), ConfirmError> {
        let confirmed = self.flush_async().await?.position;
        let Some(buffer) = self.last() else { return Ok(()) };
        buffer.destroy();
        let state = &self.state;
        poll_fn(|task| state.poll(self.id, task, |state| state.ended || state.is_ended())).await;
        let (topic, level) = (self.topic().clone(), ConfirmLevel::Accepted);
        match state.end().filter(|_| !state.has_ended()) {
            Some(TopicEnd::Refused(_, reason)) => {
                Err(ConfirmError::Refused { topic, level, confirmed, reason })
            }
            Some(TopicEnd::Over(Over::Closed)) => Err(ConfirmError::Closed { topic, level, confirmed }),
            Some(TopicEnd::Over(Over::ShutDown)) => Err(ConfirmError::ShutDown { topic, level, confirmed }),
            None => Ok(()),
        }
    }

    /// Waits for enough subscribers and for room.
    pub(crate) async fn waiting_async<T>(
        &mut self,
        size: u64,
        mut attempt: impl FnMut(&mut Output) -> Result<T, SegmentError>,
    ) -> Result<T, PublishError> {
        let id = self.id;
        loop {
            let state = self.state.clone();
            poll_fn(|task| state.poll(id, task, |now| state.is_settled(now))).await;
            self.check(state.framing)?;
            match attempt(&mut self.output) {
                Ok(done) => return Ok(done),
                Err(SegmentError::Full) => {}
                Err(SegmentError::TooLarge { max, .. }) => {
                    if !self.asks_for_largest() {
                        self.grow(size, self.max_delivery.max(max))?;
                    } else if let Some(largest) = state.answered_largest() {
                        self.grow(size, largest.max(max))?;
                    } else {
                        poll_fn(|task| state.poll(id, task, State::is_answered)).await;
                    }
                    continue;
                }
                Err(error) => return Err(self.refused(&error)),
            }
            let mut room = pin!(self.output.buffer().room());
            poll_fn(|task| {
                // The end of the topic ends the waiting for room.
                if state.poll(id, task, |now| !state.may_publish(now)).is_ready() {
                    return Poll::Ready(());
                }
                room.as_mut().poll(task)
            })
            .await;
        }
    }
}

impl WriteBatch<'_> {
    /// As [`WriteBatch::deliver`]. In a topic of a space the task waits for room, and a future that is dropped has published nothing.
    ///
    /// # Errors
    /// As [`TopicWriter::publish`].
    pub async fn deliver_async(mut self) -> Result<Position, PublishError> {
        match self.take_encoded() {
            None => self.deliver(),
            Some(encoded) => {
                let append = |output: &mut Output| output.append(&[&encoded]);
                self.owner.waiting_async(encoded.len() as u64, append).await
            }
        }
    }
}
