//! Connecting and opening topics in tasks of tokio.

use std::future::poll_fn;
use std::time::Duration;

use crate::api::publisher::{Opened, Publisher, PublisherBuilder, TopicOptions};
use crate::api::space_writer::SpaceWriter;
use crate::api::writer::TopicWriter;
use crate::connection::on_pool;
use crate::ground::deadline::Deadline;
use crate::ground::error::{ConnectError, TopicOpenError};

impl PublisherBuilder {
    /// As [`PublisherBuilder::connect`], for a task of tokio. The handshake runs on a thread of the runtime's pool. When the
    /// future is dropped, the connection is closed as soon as it is there.
    ///
    /// # Errors
    /// As [`PublisherBuilder::connect`].
    pub async fn connect_async(self, addr: &str) -> Result<Publisher, ConnectError> {
        let addr = addr.to_owned();
        on_pool(move || self.connect(&addr)).await?
    }
}

/// The calls for tasks of tokio. Dropping the future of [`Publisher::topic_async`] closes the topic that was being opened. The
/// publishing calls are in [`TopicWriter`] and work with any runtime.
impl Publisher {
    /// As [`Publisher::connect`], for a task of tokio.
    ///
    /// # Errors
    /// As [`PublisherBuilder::connect`].
    pub async fn connect_async(addr: &str) -> Result<Self, ConnectError> {
        Self::builder().connect_async(addr).await
    }

    /// As [`Publisher::topic`], for a task of tokio.
    ///
    /// # Errors
    /// As [`Publisher::topic_with`].
    pub async fn topic_async(&self, name: &str) -> Result<TopicWriter, TopicOpenError> {
        self.topic_with_async(name, TopicOptions::default()).await
    }

    /// As [`Publisher::topic_with`], for a task of tokio.
    ///
    /// # Errors
    /// As [`Publisher::topic_with`].
    pub async fn topic_with_async(
        &self,
        name: &str,
        options: TopicOptions,
    ) -> Result<TopicWriter, TopicOpenError> {
        self.open_async(self.begin(name, &options)?, &options).await
    }

    /// As [`Publisher::space_with`], for a task of tokio.
    ///
    /// # Errors
    /// As [`Publisher::space_with`].
    pub async fn space_with_async(
        &self,
        pattern: &str,
        options: TopicOptions,
    ) -> Result<SpaceWriter, TopicOpenError> {
        self.open_async(self.begin_space(pattern, &options)?, &options).await.map(SpaceWriter::new)
    }

    async fn open_async(
        &self,
        mut writer: TopicWriter,
        options: &TopicOptions,
    ) -> Result<TopicWriter, TopicOpenError> {
        let deadline = Deadline::after(options.open_timeout);
        loop {
            let (state, id) = (writer.state.clone(), writer.id);
            let answer = poll_fn(|task| state.poll(id, task, |state| state.is_answered()));
            match deadline.left() {
                // The code below checks whether the answer came.
                Some(left) => drop(tokio::time::timeout(left.max(Duration::from_millis(1)), answer).await),
                None => answer.await,
            }
            writer = match self.opened(writer, options)? {
                Opened::Ready(writer) => return Ok(writer),
                Opened::InSpace(writer) => writer,
            };
        }
    }
}
