//! Requests of the tests.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// How long an answer may take on a busy machine.
const WAIT: Duration = Duration::from_secs(120);

/// An answer.
pub struct Answer {
    pub status: u16,
    /// The lines of the head.
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    /// A field by its name in small letters.
    pub fn field(&self, name: &str) -> Option<&str> {
        let own =
            |line: &'_ str| line.split_once(": ").filter(|(own, _)| own.eq_ignore_ascii_case(name)).is_some();
        self.head.lines().find(|line| own(line)).and_then(|line| Some(line.split_once(": ")?.1))
    }
}

/// A request of its own connection, with these fields: the status and the body. None without a whole answer.
pub fn get(address: &str, path: &str, fields: &str) -> Option<(u16, Vec<u8>)> {
    whole(address, path, fields).map(|answer| (answer.status, answer.body))
}

/// As [`get`], with the head of the answer.
pub fn whole(address: &str, path: &str, fields: &str) -> Option<Answer> {
    ask(address, "GET", path, fields)
}

/// As [`whole`], by another method.
pub fn ask(address: &str, method: &str, path: &str, fields: &str) -> Option<Answer> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(WAIT)).ok()?;
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: node\r\n{fields}Connection: close\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    let body = answer.split_off(end + 4);
    let head = String::from_utf8(answer).ok()?;
    let fields = head.to_ascii_lowercase();
    let length =
        fields.lines().find_map(|line| line.strip_prefix("content-length: "))?.parse::<usize>().ok()?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    (length == body.len()).then_some(Answer { status, head, body })
}

/// As [`get`], of a file that is text.
pub fn text(address: &str, path: &str, fields: &str) -> (u16, String) {
    let (status, body) = get(address, path, fields).unwrap_or_else(|| panic!("{path}: no answer"));
    (status, String::from_utf8(body).unwrap())
}
