//! Signatures of requests: AWS Signature Version 4. This module does no I/O.
//!
//! The well-known crates bring a parser of URLs with all of Unicode, and a library of calendars, for what is four keyed hashes.

use aws_lc_rs::{digest, hmac};
use data_encoding::HEXLOWER;

/// What is signed of a request.
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    /// The path, with its octets encoded.
    pub(crate) path: &'a str,
    /// The query, encoded and sorted.
    pub(crate) query: &'a str,
    /// Names in small letters, and sorted; `host` is one of them.
    pub(crate) headers: &'a [Header<'a>],
    /// The hash of the body, see [`hash`].
    pub(crate) body: &'a str,
}

/// A header that is signed.
#[derive(Clone, Copy)]
pub(crate) struct Header<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: &'a str,
}

/// What a signature is valid for.
pub(crate) struct Scope<'a> {
    /// The time as `20150830T123600Z`.
    pub(crate) time: &'a str,
    pub(crate) region: &'a str,
    pub(crate) service: &'a str,
}

/// The SHA-256 of a body in hexadecimal digits.
pub(crate) fn hash(body: &[u8]) -> String {
    HEXLOWER.encode(digest::digest(&digest::SHA256, body).as_ref())
}

/// The value of the header `authorization`.
pub(crate) fn authorization(request: &Request<'_>, scope: &Scope<'_>, id: &str, secret: &str) -> String {
    let Scope { time, region, service } = scope;
    let date = &time[..8];
    let names: Vec<&str> = request.headers.iter().map(|header| header.name).collect();
    let names = names.join(";");
    let lines: String =
        request.headers.iter().map(|Header { name, value }| format!("{name}:{}\n", value.trim())).collect();
    let Request { method, path, query, body, .. } = request;
    let canonical = format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{body}");
    let within = format!("{date}/{region}/{service}/aws4_request");
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{within}\n{}", hash(canonical.as_bytes()));
    let first = hmac::Key::new(hmac::HMAC_SHA256, format!("AWS4{secret}").as_bytes());
    let key = [date, region, service, "aws4_request"].into_iter().fold(first, |key, part| {
        hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&key, part.as_bytes()).as_ref())
    });
    let signature = HEXLOWER.encode(hmac::sign(&key, text.as_bytes()).as_ref());
    format!("AWS4-HMAC-SHA256 Credential={id}/{within}, SignedHeaders={names}, Signature={signature}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "AKIAIOSFODNN7EXAMPLE";
    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

    fn signature(request: &Request<'_>, scope: &Scope<'_>, id: &str, secret: &str) -> String {
        authorization(request, scope, id, secret).rsplit_once('=').unwrap().1.to_owned()
    }

    fn headers<'a>(of: &[&'a str]) -> Vec<Header<'a>> {
        of.iter()
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| Header { name, value })
            .collect()
    }

    /// The examples of Amazon's description of signatures for S3.
    #[test]
    fn the_examples_of_the_description_have_their_signatures() {
        let empty = hash(b"");
        let content = format!("x-amz-content-sha256: {empty}");
        let (host, date) = ("host: examplebucket.s3.amazonaws.com", "x-amz-date: 20130524T000000Z");
        let scope = Scope { time: "20130524T000000Z", region: "us-east-1", service: "s3" };
        let sign = |method, path, query, lines: &[&str], body: &str| {
            let headers = headers(lines);
            signature(&Request { method, path, query, headers: &headers, body }, &scope, ID, SECRET)
        };
        assert_eq!(
            sign("GET", "/test.txt", "", &[host, "range: bytes=0-9", &content, date], &empty),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        assert_eq!(
            sign("GET", "/", "lifecycle=", &[host, &content, date], &empty),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
        );
        assert_eq!(
            sign("GET", "/", "max-keys=2&prefix=J", &[host, &content, date], &empty),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
        );
        let body = hash(b"Welcome to Amazon S3.");
        let content = format!("x-amz-content-sha256: {body}");
        let sent = "date: Fri, 24 May 2013 00:00:00 GMT";
        let class = "x-amz-storage-class: REDUCED_REDUNDANCY";
        assert_eq!(
            sign("PUT", "/test%24file.text", "", &[sent, host, &content, date, class], &body),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"
        );
    }

    /// The first vectors of Amazon's test suite of the version.
    #[test]
    fn the_test_suite_has_its_signatures() {
        let scope = Scope { time: "20150830T123600Z", region: "us-east-1", service: "service" };
        let (host, date) = ("host: example.amazonaws.com", "x-amz-date: 20150830T123600Z");
        let headers = headers(&[host, date]);
        let (secret, body) = ("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", hash(b""));
        let sign = |method, query| {
            let request = Request { method, path: "/", query, headers: &headers, body: &body };
            signature(&request, &scope, "AKIDEXAMPLE", secret)
        };
        for (method, query, expected) in [
            ("GET", "", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
            ("POST", "", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
            (
                "GET",
                "Param1=value1&Param2=value2",
                "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
            ),
        ] {
            assert_eq!(sign(method, query), expected, "{method} {query}");
        }
    }
}
