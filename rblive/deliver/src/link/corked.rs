//! A connection for a library of HTTP/2, which writes and flushes each frame. Here the frames of one step are sent with one write.
//!
//! ```text
//!   library ── poll_write, poll_flush ──▶ Out
//!   driver: one step of the library, then ──▶ socket
//! ```

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use locks::Mutex;
use tls13::{MAX_PLAIN, OVERHEAD, Out};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection::Link;

/// The free space that a record should have. With less, the buffered bytes are written first.
const LEAST_ROOM: usize = 1 << 10;

/// A connection that the library and its driver share.
#[derive(Debug, Clone)]
pub(crate) struct Corked(Arc<Mutex<Link>>);

pub(crate) fn corked(link: Link) -> Corked {
    Corked(Arc::new(Mutex::new(link)))
}

impl Corked {
    /// Writes the buffered bytes. The driver calls this after each step.
    pub fn poll_written(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.lock().poll_flush(cx)
    }

    /// The bytes that the socket took so far.
    pub fn written(&self) -> u64 {
        self.0.lock().written
    }

    /// Lets the client send `more` bytes than before, but at most `most` from now on.
    pub fn allow(&self, more: u64, most: u64) {
        let mut link = self.0.lock();
        link.allowed = link.allowed.saturating_add(more).min(link.received + most);
    }

    /// Whether the client sent more than it was allowed to. Reading ends then.
    pub fn is_flooded(&self) -> bool {
        let link = self.0.lock();
        link.received > link.allowed
    }

    /// As [`Link::abort`].
    pub fn abort(&self) {
        self.0.lock().abort();
    }
}

impl Link {
    fn poll_read(&mut self, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut got = Vec::new();
        while self.try_read(&mut got)?.is_none() {
            ready!(self.socket.poll_read_ready(cx))?;
        }
        let count = got.len().min(to.remaining());
        to.put_slice(&got[..count]);
        self.plain = got.split_off(count);
        Poll::Ready(Ok(()))
    }

    /// Puts the first bytes of `data` into a record.
    fn poll_put(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if self.room() < LEAST_ROOM {
            ready!(self.poll_flush(cx))?;
        }
        let count = data.len().min(MAX_PLAIN).min(self.room());
        self.put(&data[..count])?;
        Poll::Ready(Ok(count))
    }

    /// The free space for the data of one more record. The space for a change of keys is reserved.
    fn room(&mut self) -> usize {
        self.out.get_or_insert_with(Out::take).room().len().saturating_sub(3 * OVERHEAD)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.try_flush()? {
            ready!(self.socket.poll_write_ready(cx))?;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Corked {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.0.lock().poll_read(cx, to)
    }
}

impl AsyncWrite for Corked {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.0.lock().poll_put(cx, data)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        all: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut link = self.0.lock();
        let mut taken = 0;
        for data in all.iter().filter(|data| !data.is_empty()) {
            if taken > 0 && link.room() < LEAST_ROOM {
                break;
            }
            let count = ready!(link.poll_put(cx, data))?;
            taken += count;
            if count < data.len() {
                break;
            }
        }
        Poll::Ready(Ok(taken))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// The driver flushes after the step.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut link = self.0.lock();
        link.end()?;
        ready!(link.poll_flush(cx))?;
        Pin::new(&mut link.socket).poll_shutdown(cx)
    }
}
