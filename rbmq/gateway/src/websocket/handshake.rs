//! The request with which a client of HTTP becomes one of WebSocket.
//!
//! Any page that a browser shows can connect to any address, also of the user's own machine, and the browser sends along which site the page is
//! of: its `Origin`. So pages connect only if their site is allowed, or is the address of the request itself, as with a proxy before both. Other
//! programs send no origin.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use httparse::{EMPTY_HEADER, Header, Request, Status};
use peers::{BrowserFields, ForeignPage};

/// The longest request.
pub const MAX_REQUEST_BYTES: usize = 8 << 10;

/// The most fields of a request.
const MAX_FIELDS: usize = 64;

/// What the key of a client is hashed with, so that the answer is one of WebSocket and of nothing else.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

const VERSION: &str = "Sec-WebSocket-Version: 13\r\n";

/// A request that is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The answer for the client.
    pub answer: Vec<u8>,
    /// The reason, for the log.
    pub why: String,
}

impl Refused {
    fn new(status: &str, fields: &str, why: impl Into<String>) -> Self {
        let why = why.into();
        let answer = format!(
            "HTTP/1.1 {status}\r\n{fields}Connection: close\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\r\n{why}\n",
            why.len() + 1
        );
        Self { answer: answer.into_bytes(), why }
    }

    fn bad(why: &str) -> Self {
        Self::new("400 Bad Request", "", why)
    }
}

/// The answer to a request for a protocol, and the number of bytes that the request has; none while a part of it is missing.
///
/// # Errors
/// The client gets another answer, and is disconnected.
pub fn answer(bytes: &[u8], protocol: &str, origins: &[String]) -> Result<Option<(Vec<u8>, usize)>, Refused> {
    let mut fields = [EMPTY_HEADER; MAX_FIELDS];
    let mut request = Request::new(&mut fields);
    let used = match request.parse(bytes) {
        Ok(Status::Complete(used)) if used <= MAX_REQUEST_BYTES => used,
        Ok(Status::Partial) if bytes.len() < MAX_REQUEST_BYTES => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => {
            return Err(Refused::new(
                "431 Request Header Fields Too Large",
                "",
                "the request has more than 8 KiB or 64 fields",
            ));
        }
        Err(_) => return Err(Refused::bad("this is no HTTP request; this gateway takes WebSocket")),
    };
    check(&request, protocol)?;
    check_origin(request.headers, origins)?;
    let key = key(request.headers)?;
    let accept = base64(digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key.as_bytes(), GUID].concat()).as_ref());
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\
         Sec-WebSocket-Protocol: {protocol}\r\n\r\n"
    );
    Ok(Some((answer.into_bytes(), used)))
}

fn check(request: &Request<'_, '_>, protocol: &str) -> Result<(), Refused> {
    let fields: &[Header<'_>] = request.headers;
    if request.method != Some("GET") || request.version != Some(1) {
        return Err(Refused::new(
            "405 Method Not Allowed",
            "Allow: GET\r\n",
            "WebSocket begins with GET and HTTP/1.1",
        ));
    }
    if values(fields, "host").count() != 1 {
        return Err(Refused::bad("the request needs one Host"));
    }
    if !has(fields, "upgrade", "websocket") || !has(fields, "connection", "upgrade") {
        let fields = format!("Upgrade: websocket\r\n{VERSION}");
        return Err(Refused::new(
            "426 Upgrade Required",
            &fields,
            "this gateway takes WebSocket, and the request does not ask for it",
        ));
    }
    if values(fields, "sec-websocket-version").ne(["13"]) {
        return Err(Refused::new("426 Upgrade Required", VERSION, "the version of WebSocket must be 13"));
    }
    if !has(fields, "sec-websocket-protocol", protocol) {
        return Err(Refused::bad(&format!("Sec-WebSocket-Protocol must offer {protocol}")));
    }
    Ok(())
}

/// Refuses pages of other sites than those of a proxy before this address, and those that are allowed.
fn check_origin(fields: &[Header<'_>], origins: &[String]) -> Result<(), Refused> {
    let raw = |name: &str| {
        let name = name.to_owned();
        fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(&name)).map(|field| field.value)
    };
    let mut all = raw("origin");
    let (Some(origin), rest) = (all.next(), all.next()) else { return Ok(()) };
    let origin = String::from_utf8_lossy(origin);
    if origins.iter().any(|own| own == "*" || own.eq_ignore_ascii_case(&origin)) && rest.is_none() {
        return Ok(());
    }
    let browser = BrowserFields::of(|name| raw(name).next());
    let remedy = "add the site of the page to gateway.origins";
    match browser.check_site().and_then(|()| browser.check_name([], remedy)) {
        Ok(()) if rest.is_none() => Ok(()),
        Ok(()) => Err(Refused::bad("the request has several Origins")),
        Err(ForeignPage::Site) => {
            let why = format!(
                "gateway.origins does not have {origin:?}, the site of the page that sends this request"
            );
            Err(Refused::new("403 Forbidden", "", why))
        }
        Err(other) => Err(Refused::new("403 Forbidden", "", other.to_string())),
    }
}

/// The key of the client: 16 bytes in base64.
fn key<'a>(fields: &'a [Header<'_>]) -> Result<&'a str, Refused> {
    let mut keys = values(fields, "sec-websocket-key");
    let is_key = |key: &&str| {
        let digits = key.strip_suffix("==").unwrap_or_default();
        digits.len() == 22
            && digits.bytes().all(|digit| digit.is_ascii_alphanumeric() || matches!(digit, b'+' | b'/'))
    };
    match (keys.next().filter(is_key), keys.next()) {
        (Some(key), None) => Ok(key),
        _ => Err(Refused::bad("Sec-WebSocket-Key must be there once, with 16 bytes in base64")),
    }
}

/// The values of a field that are text.
fn values<'a>(fields: &'a [Header<'_>], name: &'a str) -> impl Iterator<Item = &'a str> {
    let own = fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name));
    own.filter_map(|field| std::str::from_utf8(field.value).ok()).map(str::trim)
}

/// Whether a list of words has one, in whatever case.
fn has(fields: &[Header<'_>], name: &str, word: &str) -> bool {
    values(fields, name).flat_map(|list| list.split(',')).any(|own| own.trim().eq_ignore_ascii_case(word))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let at = |index: usize| u32::from(three.get(index).copied().unwrap_or(0));
        let word = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            let value = (word >> (18 - 6 * digit)) as usize & 63;
            text.push(if digit <= three.len() { char::from(DIGITS[value]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "GET /mqtt HTTP/1.1\r\nHost: server.example.com\r\nUpgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n\
                        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: x, mqtt\r\nSec-WebSocket-Version: 13\r\n\r\n";

    fn refused(request: &str, origins: &[&str]) -> String {
        let origins: Vec<String> = origins.iter().map(|&origin| origin.into()).collect();
        match answer(request.as_bytes(), "mqtt", &origins) {
            Err(refused) => String::from_utf8(refused.answer).expect("text"),
            Ok(_) => String::new(),
        }
    }

    #[test]
    fn the_example_of_the_standard_however_much_of_it_has_come() {
        let bytes = [GOOD.as_bytes(), b"\x82"].concat();
        for end in 0..GOOD.len() {
            assert_eq!(answer(&bytes[..end], "mqtt", &[]), Ok(None));
        }
        let (text, used) = answer(&bytes, "mqtt", &[]).expect("a good request").expect("all of it");
        assert_eq!(used, GOOD.len());
        let text = String::from_utf8(text).expect("text");
        assert!(
            text.starts_with("HTTP/1.1 101 ") && text.contains("Sec-WebSocket-Protocol: mqtt\r\n"),
            "{text}"
        );
        assert!(text.contains("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), "{text}");
    }

    #[test]
    fn other_requests_are_refused_with_the_reason() {
        for (from, to, says) in [
            ("GET", "POST", "405 "),
            ("HTTP/1.1", "HTTP/1.0", "405 "),
            ("HTTP/1.1", "HTTX", "400 Bad Request"),
            ("Host: server.example.com\r\n", "", "needs one Host"),
            ("Upgrade: WebSocket", "Upgrade: h2c", "426 Upgrade Required\r\nUpgrade: websocket\r\n"),
            ("keep-alive, Upgrade", "keep-alive", "does not ask for it"),
            ("Version: 13", "Version: 8", "426 Upgrade Required\r\nSec-WebSocket-Version: 13\r\n"),
            ("x, mqtt", "mqttv3.1", "must offer mqtt"),
            ("Sec-WebSocket-Protocol: x, mqtt\r\n", "", "must offer mqtt"),
            ("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZQ", "16 bytes in base64"),
            ("Key: ", "Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Key: ", "must be there once"),
        ] {
            let text = refused(&GOOD.replace(from, to), &[]);
            assert!(text.contains(says), "{from} -> {to}: {text}");
        }
        let long = GOOD.replace("/mqtt", &"/".repeat(MAX_REQUEST_BYTES));
        assert!(refused(&long, &[]).starts_with("HTTP/1.1 431 "));
        assert!(refused(&long[..MAX_REQUEST_BYTES], &[]).starts_with("HTTP/1.1 431 "));
        assert!(
            refused(&GOOD.replace("\r\nHost", &format!("{}\r\nHost", "\r\na: b".repeat(70))), &[])
                .starts_with("HTTP/1.1 431 ")
        );
    }

    #[test]
    fn pages_need_an_allowed_origin() {
        let page = GOOD.replace("\r\nHost", "\r\nOrigin: https://Dash.example\r\nHost");
        for origins in [&[][..], &["https://dash.example:8443"], &["http://dash.example", "null"]] {
            let text = refused(&page, origins);
            assert!(text.starts_with("HTTP/1.1 403 ") && text.contains("gateway.origins"), "{text}");
        }
        for origins in [&["http://a", "https://dash.example"][..], &["*"]] {
            assert_eq!(refused(&page, origins), "");
        }
        // A proxy has the page and the gateway under one address, which is no name that anybody can have.
        let own = |host: &str| {
            let page = GOOD.replace("server.example.com", host);
            refused(&page.replace("\r\nHost", &format!("\r\nOrigin: http://{host}\r\nHost")), &[])
        };
        assert_eq!(own("localhost:8080"), "");
        assert!(
            own("evil.example").contains("add the site of the page to gateway.origins"),
            "{}",
            own("evil.example")
        );
        let two = page.replace("\r\nHost", "\r\nOrigin: http://other\r\nHost");
        assert!(refused(&two, &["https://dash.example"]).starts_with("HTTP/1.1 403 "));
        assert_eq!(refused(GOOD, &[]), "", "no page");
    }
}
