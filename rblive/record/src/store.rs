//! The recordings, for the programs that play them back.

use std::fs;
use std::io;
use std::path::PathBuf;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};

use crate::layout::{ABOUT, Place, folder_of, is_begin, names, stream_of};
use crate::recording::{About, read_about};

/// The folders of recorders, of this process or of others.
///
/// ```
/// use rblive_record::{Place, Store};
/// let store = Store::new(vec!["/var/lib/rblive".into()]);
/// for recording in store.list(None, 100) {
///     println!("{} {}: {} s", recording.name, recording.begin, recording.seconds);
/// }
/// let place = Place::parse("camera/20261125T214822Z/index.m3u8").unwrap();
/// assert!(store.open(&place).is_err());
/// ```
#[derive(Debug, Clone, Default)]
pub struct Store {
    folders: Vec<PathBuf>,
}

impl Store {
    /// The recordings in these folders. Folders that do not exist yet are empty.
    pub fn new(folders: Vec<PathBuf>) -> Self {
        Self { folders }
    }

    /// Whether there are no folders.
    pub fn is_empty(&self) -> bool {
        self.folders.is_empty()
    }

    /// Opens a file for reading. A symbolic link within a folder is not followed, and nothing outside of the folders is opened.
    ///
    /// # Errors
    /// No folder has the file, or it cannot be read.
    pub fn open(&self, place: &Place) -> io::Result<fs::File> {
        let path = place.path();
        let mut failure = io::Error::from(io::ErrorKind::NotFound);
        for folder in &self.folders {
            let opened =
                openat(CWD, folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
                    .and_then(|folder| {
                        let how = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
                        let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
                        openat2(folder, &path, how, Mode::empty(), within)
                    });
            match opened.map(fs::File::from) {
                Ok(file) if file.metadata()?.is_file() => return Ok(file),
                Ok(_) => {}
                Err(error) if error == rustix::io::Errno::NOENT => {}
                Err(error) => failure = error.into(),
            }
        }
        Err(failure)
    }

    /// The recordings of a stream, or of all, the newest first, and at most `most` of them.
    pub fn list(&self, stream: Option<&str>, most: usize) -> Vec<About> {
        let mut found = Vec::new();
        for folder in &self.folders {
            let streams: Vec<PathBuf> = match stream {
                Some(stream) => vec![folder.join(folder_of(stream))],
                None => names(folder)
                    .into_iter()
                    .filter(|name| stream_of(name).is_some())
                    .map(|name| folder.join(name))
                    .collect(),
            };
            for path in streams {
                let begins = names(&path).into_iter().filter(|name| is_begin(name));
                found.extend(begins.map(|begin| (begin, path.clone())));
            }
        }
        found.sort_unstable_by(|a, b| b.cmp(a));
        let abouts = found.into_iter().filter_map(|(begin, path)| {
            let about = read_about(&path.join(&begin).join(ABOUT)).ok()?;
            let own = path.file_name().and_then(|name| stream_of(name.to_str()?)) == Some(about.name.clone());
            (own && about.begin == begin && about.segments > 0).then_some(about)
        });
        abouts.take(most).collect()
    }
}
