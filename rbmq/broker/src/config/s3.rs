//! The `[s3]` section: an object store below the disk of kept topics.

use super::archive_section::archive_section;
use super::error::BrokerConfigError;

archive_section! {
    /// The `[s3]` section: an object store with the interface of Amazon S3 that gets what kept topics have on disk, for topics with
    /// `archive = "s3"` in their rule. Subscribers then begin at positions that the disk has no more.
    "s3" S3Settings {
        /// The address of the store, as "https://s3.eu-central-1.amazonaws.com" or "http://10.0.0.7:9000". Default "": that of Amazon for the
        /// region. The bucket is the first part of the path.
        endpoint: String = String::new();
        /// The bucket. It must be there, and its store must know "If-None-Match: *". Default "": there is no store.
        bucket: String = String::new();
        /// The beginning of the names of objects. Default "rbmq". The topic `plant/a` has the objects `rbmq/plant_a/LOG/POSITION`, with the
        /// name of its log (its epoch). So brokers that share a bucket have objects of their own, also with the same prefix.
        prefix: String = "rbmq".into();
        /// The region of the bucket, which is a part of each signature. Default "us-east-1"; other stores mostly take any word.
        region: String = "us-east-1".into();
        /// A file with the access key's id in its first line, the secret in the second, and the token of a session in the third if there is
        /// one. It must not be readable by all. It is read again when the store refuses the key. Default "": the variables AWS_ACCESS_KEY_ID,
        /// AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN.
        access_key_file: String = String::new();
    }
    /// Largest batch, which is one object, in bytes. Default 4 MiB, 4 KiB to 256 MiB. A larger delivery is an object alone. Too small: more
    /// requests for the same bytes. Too large: a subscriber that reads the store gets its first byte later, and more memory for up to four
    /// objects.
    batch_bytes = 4 << 20, range [4096 to 268_435_456];
}

impl S3Settings {
    pub(super) fn validate(&self) -> Result<(), BrokerConfigError> {
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let word =
            |name, value: &String, expects| BrokerConfigError::Word { name, value: value.clone(), expects };
        if self.bucket.len() > 255 || !self.bucket.chars().all(legal) {
            return Err(word("s3.bucket", &self.bucket, "at most 255 letters, digits, '.', '_' and '-'"));
        }
        let parts = || self.prefix.split('/');
        if self.prefix.len() > 200
            || !parts().all(|part| part.chars().all(legal) && part.chars().any(|c| c != '.'))
        {
            return Err(word(
                "s3.prefix",
                &self.prefix,
                "1 to 200 letters, digits, '.', '_' and '-', in parts with '/' between them",
            ));
        }
        if self.region.is_empty() || self.region.len() > 60 || !self.region.chars().all(legal) {
            return Err(word("s3.region", &self.region, "1 to 60 letters, digits, '.', '_' and '-'"));
        }
        let host = ["http://", "https://"].iter().find_map(|scheme| self.endpoint.strip_prefix(scheme));
        let in_host = |c: char| legal(c) || matches!(c, ':' | '[' | ']');
        if !self.endpoint.is_empty()
            && !host.is_some_and(|host| !host.is_empty() && host.chars().all(in_host))
        {
            return Err(word(
                "s3.endpoint",
                &self.endpoint,
                "http:// or https://, a host, and a port if it is not 80 or 443",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::BrokerConfig;
    use super::*;

    #[test]
    fn values_that_a_store_would_refuse_are_refused_here() {
        let problem = |change: fn(&mut S3Settings)| {
            let mut config = BrokerConfig::default();
            change(&mut config.s3);
            config.validate().map_err(|error| error.to_string())
        };
        problem(|s| (s.bucket, s.prefix) = ("b".into(), "a/b-1".into())).unwrap();
        problem(|s| s.endpoint = "http://[::1]:9000".into()).unwrap();
        for (change, expected) in [
            ((|s| s.bucket = "a/b".into()) as fn(&mut S3Settings), "s3.bucket = \"a/b\""),
            (|s| s.prefix = "a//b".into(), "s3.prefix"),
            (|s| s.prefix = "../b".into(), "s3.prefix"),
            (|s| s.prefix.clear(), "s3.prefix"),
            (|s| s.region.clear(), "s3.region"),
            (|s| s.endpoint = "10.0.0.7:9000".into(), "s3.endpoint"),
            (|s| s.endpoint = "http://a/b".into(), "s3.endpoint"),
            (|s| s.batch_bytes = 1 << 30, "s3.batch_bytes = 1073741824"),
        ] {
            let error = problem(change).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
