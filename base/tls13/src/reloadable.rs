//! Values that are made of files, and made again while they are in use.

use std::fmt;

use locks::RwLock;

use crate::LoadError;

/// A value that comes from files which may change, as the configuration of a listener. Users of the value take a copy for each connection, so
/// that connections which exist keep theirs.
///
/// ```
/// use tls13::{Credentials, LoadError, Reloadable};
/// let credentials = Credentials::default(); // Without a certificate there is no configuration.
/// let server = Reloadable::new(move || credentials.server())?;
/// assert!(server.current().is_none());
/// server.reload()?;
/// # Ok::<(), LoadError>(())
/// ```
pub struct Reloadable<T, E = LoadError> {
    load: Box<dyn Fn() -> Result<T, E> + Send + Sync>,
    current: RwLock<T>,
}

impl<T: Clone, E> Reloadable<T, E> {
    /// Reads the files by `load`, which [`reload`](Self::reload) calls again.
    ///
    /// # Errors
    /// That of `load`.
    pub fn new(load: impl Fn() -> Result<T, E> + Send + Sync + 'static) -> Result<Self, E> {
        let current = RwLock::new(load()?);
        Ok(Self { load: Box::new(load), current })
    }

    /// Reads the files again. After an error the earlier value stays.
    ///
    /// # Errors
    /// That of the function that reads them.
    pub fn reload(&self) -> Result<(), E> {
        let new = (self.load)()?;
        *self.current.write() = new;
        Ok(())
    }

    /// The value for a new connection.
    pub fn current(&self) -> T {
        self.current.read().clone()
    }
}

impl<T, E> fmt::Debug for Reloadable<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloadable").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_failed_reload_changes_nothing() {
        let files = Arc::new(AtomicU32::new(1));
        let read = files.clone();
        let value = Reloadable::new(move || match read.load(Ordering::Relaxed) {
            0 => Err("no file"),
            number => Ok(number),
        });
        let value = value.unwrap();
        for (number, reloaded, current) in [(2, Ok(()), 2), (0, Err("no file"), 2), (3, Ok(()), 3)] {
            files.store(number, Ordering::Relaxed);
            assert_eq!((value.reload(), value.current()), (reloaded, current));
        }
        assert!(Reloadable::<(), _>::new(|| Err("no file")).is_err());
    }
}
