//! Addresses of playlists and media.

use std::fmt;

/// A server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Whether it speaks TLS.
    pub tls: bool,
    /// Its name or address, without the brackets of IPv6.
    pub host: String,
    pub port: u16,
}

/// An address at a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    pub origin: Origin,
    /// Path and query.
    pub target: String,
}

impl Address {
    /// Reads an absolute address. `None`: it is none of `http` or `https`.
    pub fn parse(text: &str) -> Option<Self> {
        let (tls, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return None,
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
            _ => (authority, if tls { 443 } else { 80 }),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let target = target.split('#').next().unwrap_or("");
        let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        let good = !host.is_empty() && plain(host) && plain(&target);
        good.then(|| Self { origin: Origin { tls, host: host.to_owned(), port }, target })
    }

    /// The address that `reference` means in a document at this address. `None`: it is none at the same server.
    pub fn join(&self, reference: &str) -> Option<Self> {
        let scheme = if self.origin.tls { "https" } else { "http" };
        if reference.contains("://") {
            return Self::parse(reference).filter(|own| own.origin == self.origin);
        }
        if reference.starts_with("//") {
            return self.join(&format!("{scheme}:{reference}"));
        }
        let (reference, query) = match reference.split_once('?') {
            Some((path, query)) => (path, format!("?{query}")),
            None => (reference, String::new()),
        };
        let path = self.target.split('?').next().unwrap_or("/");
        let folder = &path[..path.rfind('/').map_or(0, |at| at + 1)];
        let whole =
            if reference.starts_with('/') { reference.to_owned() } else { format!("{folder}{reference}") };
        let target = format!("{}{query}", without_dots(&whole));
        let plain = target.bytes().all(|byte| byte.is_ascii_graphic());
        plain.then(|| Self { origin: self.origin.clone(), target })
    }

    /// The same address with more in its query.
    pub fn with_query(&self, more: &str) -> String {
        let mark = if self.target.contains('?') { '&' } else { '?' };
        format!("{}{mark}{more}", self.target)
    }
}

/// Removes `.` and `..` from a path (RFC 3986, 5.2.4).
fn without_dots(path: &str) -> String {
    if !path.contains("/.") {
        return path.to_owned();
    }
    let mut kept = Vec::new();
    for part in path.split('/').skip(1) {
        match part {
            "." => {}
            ".." => drop(kept.pop()),
            part => kept.push(part),
        }
    }
    format!("/{}", kept.join("/"))
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{open}{}{close}:{}", self.host, self.port)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.origin.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.origin, self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn an_address_is_read_and_written() {
        for text in ["https://a:1/live/x/index.m3u8?token=1", "http://[::1]:80/", "https://b:443/x"] {
            assert_eq!(Address::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Address::parse("https://a").unwrap().to_string(), "https://a:443/");
        assert!(
            ["a/b", "ftp://a/", "https:///x", "http://a:b/", "http://a/ b"]
                .iter()
                .all(|bad| Address::parse(bad).is_none())
        );
    }

    #[test]
    fn references_are_resolved() {
        let base = Address::parse("https://a:1/live/x/1/media.m3u8?token=1").unwrap();
        let joined = |reference: &str| base.join(reference).map(|own| own.target);
        assert_eq!(joined("12.m4s?token=1").as_deref(), Some("/live/x/1/12.m4s?token=1"));
        assert_eq!(joined("../2/./media.m3u8").as_deref(), Some("/live/x/2/media.m3u8"));
        assert_eq!(joined("/y").as_deref(), Some("/y"));
        assert_eq!(joined("https://a:1/z").as_deref(), Some("/z"));
        assert_eq!(joined("//a:1/z").as_deref(), Some("/z"));
        assert_eq!(joined("https://b:1/z"), None);
        assert_eq!(joined("a b"), None);
        assert_eq!(base.with_query("_HLS_msn=1"), "/live/x/1/media.m3u8?token=1&_HLS_msn=1");
    }
}
