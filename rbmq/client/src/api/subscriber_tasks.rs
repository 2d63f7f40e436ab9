//! Receiving in tasks of tokio, on the descriptor of [`Subscriber::pollable`]: no thread waits for a subscriber.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use rocketbufs::readiness::Readiness;

use crate::api::subscriber::{Subscriber, Taken, TakenBytes};
use crate::connection::on_pool;
use crate::ground::error::{ConnectError, ReceiveError};
use crate::ground::options::SubscriberBuilder;
use crate::state::batch::{Batch, Message, MessageRef};
use crate::state::batch_cursor::Place;
use crate::state::event::Event;

impl SubscriberBuilder {
    /// As [`SubscriberBuilder::connect`], for a task of tokio. The handshake runs on a thread of the runtime's pool. When the
    /// future is dropped, the connection is closed as soon as it is there.
    ///
    /// # Errors
    /// As [`SubscriberBuilder::connect`].
    pub async fn connect_async(self, addr: &str) -> Result<Subscriber, ConnectError> {
        let addr = addr.to_owned();
        on_pool(move || self.connect(&addr)).await?
    }
}

/// The calls for tasks of tokio. All are cancel-safe: the next call returns the result that a dropped future would have returned.
/// Time limits are the runtime's, such as `tokio::time::timeout`. The runtime needs its I/O driver.
///
/// A task that receives without a pause yields to the other tasks of its thread now and then.
impl Subscriber {
    /// As [`Subscriber::connect`], for a task of tokio.
    ///
    /// # Errors
    /// As [`SubscriberBuilder::connect`].
    pub async fn connect_async(addr: &str) -> Result<Self, ConnectError> {
        Self::builder().connect_async(addr).await
    }

    /// The next event. Waits until there is one.
    ///
    /// # Errors
    /// As [`Subscriber::next_event`], and [`ReceiveError::Runtime`].
    pub async fn next_event_async(&mut self) -> Result<Event<'_>, ReceiveError> {
        let taken =
            poll_fn(|task| self.poll_for(task, |this| this.take_event(Some(Duration::ZERO)).transpose()))
                .await?;
        Ok(taken.into_event(&mut self.spare))
    }

    /// The next messages, several at once, as [`Subscriber::next_batch`]. None only with
    /// [`SubscriberBuilder::until_ended`], when every topic has ended.
    ///
    /// ```no_run
    /// # async fn receive() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut subscriber = rbmq::Subscriber::connect_async("127.0.0.1:7411").await?;
    /// subscriber.subscribe("prices")?;
    /// let mut bytes = 0;
    /// while let Some(batch) = subscriber.next_batch_async().await? {
    ///     bytes += batch.records().map(<[u8]>::len).sum::<usize>();
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Subscriber::next_batch`], and [`ReceiveError::Runtime`].
    pub async fn next_batch_async(&mut self) -> Result<Option<Batch<'_>>, ReceiveError> {
        let taken = poll_fn(|task| self.poll_bytes(task, Subscriber::take_event)).await?;
        Ok(taken.map(|taken| taken.into_batch(&mut self.spare)))
    }

    /// A copy of the next message, as [`Subscriber::recv`]. None only with [`SubscriberBuilder::until_ended`], when every topic
    /// has ended.
    ///
    /// # Errors
    /// As [`Subscriber::next_batch_async`].
    pub async fn recv_async(&mut self) -> Result<Option<Message>, ReceiveError> {
        Ok(self.recv_ref_async().await?.map(MessageRef::to_message))
    }

    /// The next message in the memory where it landed, as [`Subscriber::recv_ref`]. None only with
    /// [`SubscriberBuilder::until_ended`], when every topic has ended.
    ///
    /// # Errors
    /// As [`Subscriber::next_batch_async`].
    pub async fn recv_ref_async(&mut self) -> Result<Option<MessageRef<'_>>, ReceiveError> {
        let place = poll_fn(|task| self.poll_message(task)).await?;
        Ok(place.and_then(|place| Some(self.cursor.as_ref()?.message(place))))
    }

    /// The messages as a stream. The stream ends after an error that [`ReceiveError::is_final`] and, with
    /// [`SubscriberBuilder::until_ended`], when every topic has ended. The stream continues after any other error.
    ///
    /// ```
    /// # use rbmq_broker::{Broker, BrokerConfig};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut config = BrokerConfig::default();
    /// # config.broker.listen = "127.0.0.1:0".into();
    /// # let broker = Broker::start(config)?;
    /// # let addr = broker.addr();
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// use rbmq::{Publisher, Subscriber};
    /// use tokio_stream::StreamExt;
    ///
    /// let mut subscriber = Subscriber::builder().until_ended(true).connect_async(&addr).await?;
    /// subscriber.subscribe("news")?;
    /// let publisher = Publisher::connect_async(&addr).await?;
    /// let mut news = publisher.topic_async("news").await?;
    /// news.wait_subscribers_async(1).await?;
    /// tokio::spawn(async move {
    ///     for n in 0..1000 {
    ///         news.publish_async(format!("message {n}").as_bytes()).await.unwrap();
    ///     }
    ///     news.close_async().await.unwrap();
    /// });
    /// let mut messages = subscriber.into_stream();
    /// let mut count = 0;
    /// while let Some(message) = messages.next().await {
    ///     assert_eq!(message?.bytes, format!("message {count}").as_bytes());
    ///     count += 1;
    /// }
    /// assert_eq!(count, 1000);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub fn into_stream(self) -> MessageStream {
        MessageStream { subscriber: self, over: false }
    }

    /// The place of the next message in the present batch.
    fn poll_message(&mut self, task: &mut Context<'_>) -> Poll<Result<Option<Place>, ReceiveError>> {
        loop {
            if let Some(cursor) = &mut self.cursor
                && let Some(place) = cursor.advance(&mut self.spaces)?
            {
                return Poll::Ready(Ok(Some(place)));
            }
            if let Some(taken) = self.cursor.take() {
                taken.consume(&mut self.spare, &mut self.spaces);
            }
            let next = ready!(self.poll_bytes(task, Subscriber::take_whole))?;
            let Some(next) = next else { return Poll::Ready(Ok(None)) };
            self.cursor = Some(next.into_cursor());
        }
    }

    fn poll_bytes(
        &mut self,
        task: &mut Context<'_>,
        take: impl Fn(&mut Self, Option<Duration>) -> Result<Option<Taken>, ReceiveError>,
    ) -> Poll<Result<Option<TakenBytes>, ReceiveError>> {
        self.poll_for(task, |this| match this.wait_bytes(Some(Duration::ZERO), &take) {
            Ok(None) => (this.driver.options.until_ended && this.ended()).then_some(Ok(None)),
            other => Some(other),
        })
    }

    /// Calls `attempt` until it gives something, at once and whenever the descriptor becomes readable.
    fn poll_for<T>(
        &mut self,
        task: &mut Context<'_>,
        mut attempt: impl FnMut(&mut Self) -> Option<Result<T, ReceiveError>>,
    ) -> Poll<Result<T, ReceiveError>> {
        // The second attempt follows after the runtime of earlier calls has ended: the current runtime may be another one.
        for _ in 0..2 {
            let readiness = match self.readiness.take() {
                Some(readiness) => readiness,
                None => self.pollable().and_then(Readiness::new).map_err(ReceiveError::runtime)?,
            };
            let polled = readiness.poll_for(task, || attempt(self));
            if let Some(polled) = some_or_pending(polled) {
                self.readiness = Some(readiness);
                return polled;
            }
        }
        Poll::Ready(Err(ReceiveError::runtime("the runtime shuts down")))
    }
}

/// None if no item will come.
fn some_or_pending<T>(polled: Poll<Option<T>>) -> Option<Poll<T>> {
    match polled {
        Poll::Ready(got) => got.map(Poll::Ready),
        Poll::Pending => Some(Poll::Pending),
    }
}

/// The messages of a subscriber, from [`Subscriber::into_stream`].
pub struct MessageStream {
    subscriber: Subscriber,
    over: bool,
}

impl MessageStream {
    /// The subscriber, for further topics.
    pub fn get_mut(&mut self) -> &mut Subscriber {
        &mut self.subscriber
    }

    /// The subscriber, without the stream.
    pub fn into_inner(self) -> Subscriber {
        self.subscriber
    }
}

impl Stream for MessageStream {
    type Item = Result<Message, ReceiveError>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.over {
            return Poll::Ready(None);
        }
        let place = ready!(self.subscriber.poll_message(task));
        let message = place.map(|place| {
            let place = place?;
            Some(self.subscriber.cursor.as_ref()?.message(place).to_message())
        });
        let next = message.transpose();
        self.over = next.as_ref().is_none_or(|next| next.as_ref().is_err_and(ReceiveError::is_final));
        Poll::Ready(next)
    }
}

impl std::fmt::Debug for MessageStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MessageStream").field("subscriber", &self.subscriber).finish_non_exhaustive()
    }
}
