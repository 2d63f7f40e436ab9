//! Errors.

use std::path::PathBuf;

use access::ReadableByAll;

/// Why the settings of an object store cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum S3Error {
    /// There is no key.
    #[error(
        "there is no access key: set s3.access_key_file, or the variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )]
    NoKeys,
    /// The file with the key cannot be read.
    #[error("{path}: {source} (s3.access_key_file)", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file with the key can be read by others.
    #[error("{0} (s3.access_key_file)")]
    Mode(#[from] ReadableByAll),
    /// The file with the key, or the variables, have something else.
    #[error("{0} has no access key: the id, and then the secret, without spaces")]
    Keys(String),
    /// The address wants TLS, which this program has not, or which cannot be had.
    #[error("s3.endpoint cannot be reached over TLS: {0}")]
    Tls(String),
    /// The system has no random numbers.
    #[error("the system has no random numbers: {0}")]
    Random(getrandom::Error),
}
