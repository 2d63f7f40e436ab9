//! Requests that a web browser sends for a page of somebody else.
//!
//! A browser reaches whatever its machine reaches, 127.0.0.1 too, and sends requests for every page that it shows:
//!
//! | A page of another web site | What the browser says then | What refuses it |
//! |---|---|---|
//! | sends a request that needs no permission of the server, as a POST of text | `Sec-Fetch-Site: cross-site`, `Origin: http://evil.example` | [`BrowserFields::check_site`] |
//! | lets the own name lead to this machine (DNS rebinding), so that both are one site for the browser | `Host: evil.example` | [`BrowserFields::check_name`] |
//!
//! A page cannot change these fields. Other clients need none of them but `Host`.

use std::borrow::Cow;
use std::net::IpAddr;

/// The longest name that an error repeats.
const SHOWN: usize = 100;

/// Fields of a request over HTTP that a browser sets by itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct BrowserFields<'a> {
    host: Option<&'a [u8]>,
    origin: Option<&'a [u8]>,
    fetch_site: Option<&'a [u8]>,
}

/// A request is refused, because a browser seems to send it for a page of somebody else. The page is at fault, not the user of the browser.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ForeignPage {
    /// The page has another origin.
    #[error("a web page of another address sends this request: pages of this address alone may do that")]
    Site,
    /// The name in the address of the page may be anybody's.
    #[error(
        "this server does not know itself as '{name}', which may be the name of a foreign web site: if the name is this server's, or that of a \
         proxy before it, {remedy}; or use an IP address, localhost or a name without a dot; where the server asks for a token or a \
         key, any name is good"
    )]
    Name {
        /// The name of the request.
        name: String,
        /// The setting that makes the name known, as an instruction.
        remedy: &'static str,
    },
}

impl<'a> BrowserFields<'a> {
    /// The fields of a request, whose fields `field` returns by name.
    ///
    /// ```
    /// use peers::BrowserFields;
    /// let fields = [("host", "127.0.0.1:7480"), ("origin", "http://evil.example")];
    /// let request =
    ///     BrowserFields::of(|name| fields.iter().find(|own| own.0 == name).map(|own| own.1.as_bytes()));
    /// assert!(request.check_site().is_err() && request.check_name([], "add it to http.names").is_ok());
    /// ```
    pub fn of(field: impl Fn(&'static str) -> Option<&'a [u8]>) -> Self {
        Self { host: field("host"), origin: field("origin"), fetch_site: field("sec-fetch-site") }
    }

    /// Whether a script of a page sends the request.
    pub fn is_of_page(&self) -> bool {
        self.origin.is_some()
    }

    /// Refuses the request of a page of another origin. For requests that change something: a page may show links to all addresses.
    ///
    /// # Errors
    /// [`ForeignPage::Site`].
    pub fn check_site(&self) -> Result<(), ForeignPage> {
        // Behind a proxy, Host may be the proxy's own. So it decides only in browsers that do not say the site.
        let is_own = match (self.fetch_site, self.origin) {
            (Some(site), _) => [&b"same-origin"[..], b"none"].contains(&site),
            (None, Some(origin)) => self
                .host
                .is_some_and(|host| authority(origin).is_some_and(|own| own.eq_ignore_ascii_case(host))),
            (None, None) => true,
        };
        if is_own { Ok(()) } else { Err(ForeignPage::Site) }
    }

    /// Refuses a request for a name that a foreign page may have: any but an IP address, `localhost`, a name without a dot, which is
    /// none of the public DNS, and `names`, by which the listener is known (`NAME` or `NAME:PORT`), and `remedy` is how it gets to know one.
    ///
    /// A listener that asks for a secret, or shows a certificate, needs no such check: the browser has no secret to send for the foreign
    /// name, and the certificate is not for it.
    ///
    /// # Errors
    /// [`ForeignPage::Name`].
    pub fn check_name<'n>(
        &self,
        names: impl IntoIterator<Item = &'n str>,
        remedy: &'static str,
    ) -> Result<(), ForeignPage> {
        // All browsers send Host.
        let Some(host) = self.host else { return Ok(()) };
        let host = String::from_utf8_lossy(host);
        let name = host_of(&host);
        let is_known = name.parse::<IpAddr>().is_ok()
            || !name.contains('.')
            || name.to_ascii_lowercase().ends_with(".localhost")
            || names.into_iter().any(|own| host_of(own).eq_ignore_ascii_case(name));
        match is_known {
            true => Ok(()),
            false => Err(ForeignPage::Name { name: shown(name).into_owned(), remedy }),
        }
    }
}

/// Checks names that a setting lists for [`BrowserFields::check_name`]: `NAME` or `NAME:PORT`. Others would never be the name of a request.
///
/// ```
/// assert_eq!(peers::check_known_names(["control.example.org", "node1:7480", "[2001:db8::1]:7480"]), Ok(()));
/// assert!(peers::check_known_names(["https://control.example.org"]).unwrap_err().contains("'https://control.example.org'"));
/// ```
///
/// # Errors
/// The first wrong one, and the form that it must have.
pub fn check_known_names<'n>(names: impl IntoIterator<Item = &'n str>) -> Result<(), String> {
    let is_name = |name: &str| {
        let host = host_of(name);
        let rest = name.rsplit_once(host).map_or("", |(_, rest)| rest.trim_start_matches(['.', ']']));
        let is_port =
            rest.is_empty() || rest.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
        let of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        let is_host = host.parse::<IpAddr>().is_ok() || !host.is_empty() && host.chars().all(of_name);
        is_host && is_port
    };
    match names.into_iter().find(|name| !is_name(name)) {
        None => Ok(()),
        Some(wrong) => Err(format!(
            "'{}' is no name of a server: it must be NAME or NAME:PORT, as control.example.org, and * stands for nothing",
            shown(wrong)
        )),
    }
}

/// The host and the port of an origin, `SCHEME://HOST:PORT`.
fn authority(origin: &[u8]) -> Option<&[u8]> {
    let at = origin.windows(3).position(|three| three == b"://")?;
    origin.get(at + 3..)
}

/// The host of `HOST:PORT`, without the brackets of IPv6 and the dot at the end.
fn host_of(address: &str) -> &str {
    let host = match address.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => address.split(':').next().unwrap_or_default(),
    };
    host.strip_suffix('.').unwrap_or(host)
}

fn shown(name: &str) -> Cow<'_, str> {
    match name.chars().all(|own| own.is_ascii_graphic()) && name.len() <= SHOWN {
        true => name.into(),
        false => name.chars().filter(char::is_ascii_graphic).take(SHOWN).collect::<String>().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request<'a>(fields: &'a [(&'a str, &'a str)]) -> BrowserFields<'a> {
        BrowserFields::of(|name| fields.iter().find(|own| own.0 == name).map(|own| own.1.as_bytes()))
    }

    #[test]
    fn pages_of_another_origin_are_refused() {
        let host = ("host", "127.0.0.1:8935");
        for own in [
            &[host][..],
            &[host, ("origin", "http://127.0.0.1:8935")],
            &[("host", "Example.org"), ("origin", "https://example.org")],
            &[host, ("sec-fetch-site", "same-origin")],
            &[host, ("sec-fetch-site", "none")],
            // A proxy has put its own Host there.
            &[host, ("origin", "https://example.org"), ("sec-fetch-site", "same-origin")],
        ] {
            assert_eq!(request(own).check_site(), Ok(()), "{own:?}");
        }
        for foreign in [
            &[host, ("origin", "http://evil.example")][..],
            &[host, ("origin", "http://127.0.0.1:8936")],
            &[host, ("origin", "http://127.0.0.1")],
            &[host, ("origin", "null")],
            &[host, ("origin", "")],
            &[("origin", "http://evil.example")],
            &[host, ("sec-fetch-site", "cross-site")],
            &[host, ("sec-fetch-site", "same-site")],
            &[host, ("sec-fetch-site", "something-new")],
            &[host, ("origin", "http://127.0.0.1:8935"), ("sec-fetch-site", "cross-site")],
        ] {
            assert_eq!(request(foreign).check_site(), Err(ForeignPage::Site), "{foreign:?}");
        }
    }

    #[test]
    fn names_that_no_request_has_are_refused() {
        for name in [
            "a.example",
            "A.example.",
            "a.example:80",
            "a_b-c",
            "localhost:1",
            "127.0.0.1:80",
            "[::1]",
            "[::1]:80",
        ] {
            assert_eq!(check_known_names(["x", name]), Ok(()), "{name}");
        }
        for name in [
            "",
            "::1",
            "http://a.example",
            "a.example/",
            "*.example",
            "a b",
            "a.example:",
            "a.example:http",
            "a:1:2",
            ":80",
            "ä.example",
        ] {
            assert!(check_known_names(["x", name]).is_err(), "{name}");
        }
    }

    #[test]
    fn a_name_of_the_public_dns_is_known_only_from_the_settings() {
        let names = ["127.0.0.1:7480", "Control.example.org:7480", "proxy.example.org"];
        for known in [
            "127.0.0.1:7480",
            "192.0.2.7",
            "[::1]:7480",
            "[2001:db8::1]",
            "localhost:7480",
            "LOCALHOST",
            "rblive.localhost:1",
            "node1:7480",
            "control.example.org",
            "control.EXAMPLE.org.:7480",
            "Proxy.example.org",
            "proxy.example.org:8080",
        ] {
            assert_eq!(request(&[("host", known)]).check_name(names, "x.names"), Ok(()), "{known}");
        }
        for foreign in [
            "evil.example:7480",
            "evil.example",
            "127.0.0.1.evil.example",
            "evil.example.",
            "localhost.evil.example:80",
            "1.2.3.4.5",
        ] {
            let refused = request(&[("host", foreign)]).check_name(names, "x.names").unwrap_err();
            assert!(matches!(refused, ForeignPage::Name { .. }), "{foreign}");
        }
        assert_eq!(request(&[]).check_name(names, "x.names"), Ok(()), "no browser");
        let long = format!("a\u{9b}b.{}", "x".repeat(1000));
        let refused = request(&[("host", &long)]).check_name([], "x.names").unwrap_err().to_string();
        assert!(
            refused.contains("'ab.xxx") && refused.contains(", x.names;") && refused.len() < 500,
            "{refused}"
        );
    }
}
