//! Where frames come from.

use std::sync::Arc;

use rblive_media::unit::Input;

/// What is new of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// A configuration, or a frame.
    Input(Input),
    /// The wall clock minus the presentation times that follow, in nanoseconds: viewers learn from it how late they are.
    Clock(i128),
    /// The frames that follow do not continue those before: viewers need a key frame.
    Break,
    /// The stream has ended, or cannot be sent any more. Its viewers are disconnected.
    End(String),
}

/// A stream that viewers watch. All viewers of a stream share one source, on the thread of the peers.
pub trait Source: Send {
    /// Whether the stream can be sent, or why not. Asked once for each viewer, when its offer can be answered and it has a place: the answer
    /// may take a while.
    ///
    /// # Errors
    /// The reason, for the viewer.
    fn check(&mut self) -> Result<(), &'static str> {
        Ok(())
    }

    /// The source is used from now on. It rings the bell whenever it has news, and may ring more often.
    fn start(&mut self, bell: Bell);

    /// Takes the news since the last call. What is too old to be of use is left out. The call is short, and does not wait.
    fn take(&mut self, news: &mut Vec<News>);
}

/// A viewer of a stream, as its owner counts it. The viewer is gone when this is dropped.
pub trait Watcher: Send {
    /// So many bytes were sent to the viewer.
    fn sent(&self, bytes: usize);
}

/// Wakes the thread of the peers for the source of one stream.
#[derive(Clone)]
pub struct Bell(Arc<dyn Fn() + Send + Sync>);

impl Bell {
    pub(crate) fn new(ring: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(ring))
    }

    /// The source has news. The call is cheap while the thread has not taken the news before.
    pub fn ring(&self) {
        (self.0)();
    }
}

impl std::fmt::Debug for Bell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Bell")
    }
}
