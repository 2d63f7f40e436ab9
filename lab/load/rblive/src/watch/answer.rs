//! Answers of HTTP/1.1, read as they arrive.

use std::time::Instant;

use super::fault::Fault;

/// The longest head of an answer.
const MAX_HEAD: usize = 32 << 10;
/// The most fields of an answer.
const MAX_FIELDS: usize = 64;
/// The longest line with the size of a chunk.
const MAX_SIZE_LINE: usize = 256;

/// A body that is checked while it arrives, and kept only on request.
#[derive(Debug, Default)]
pub struct Body {
    pub bytes: u64,
    /// CRC-32C of the bytes so far.
    pub crc: u32,
    /// When the first byte was there.
    pub first: Option<Instant>,
    kept: Option<Vec<u8>>,
    most: usize,
}

impl Body {
    /// A body of which only size and check sum are of interest.
    pub fn counted() -> Self {
        Self { most: usize::MAX, ..Self::default() }
    }

    /// A body that is kept, up to `most` bytes.
    pub fn kept(most: usize) -> Self {
        Self { kept: Some(Vec::new()), most, ..Self::default() }
    }

    pub fn push(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.first.is_none() {
            self.first = Some(Instant::now());
        }
        self.bytes += bytes.len() as u64;
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        if let Some(kept) = &mut self.kept {
            if kept.len() + bytes.len() > self.most {
                return Err(Fault::connection(format!("the answer has more than {} bytes", self.most)));
            }
            kept.extend_from_slice(bytes);
        }
        Ok(())
    }

    /// The bytes, if they were kept.
    pub fn bytes_kept(&self) -> Option<&[u8]> {
        self.kept.as_deref()
    }
}

/// The head of an answer.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Head {
    pub status: u16,
    pub location: Option<String>,
    pub cookie: Option<String>,
    /// Whether the connection may take another request.
    pub keep: bool,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Head,
    Length(u64),
    /// Chunked: a line with a size comes next, or bytes of a chunk, or the end of one, or the lines after the last.
    Size,
    Chunk(u64),
    ChunkEnd,
    Trailer,
    UntilClose,
    Done,
}

/// Reads one answer.
#[derive(Debug, Default)]
pub struct Answer {
    pub head: Head,
    state: State,
    line: Vec<u8>,
}

impl Answer {
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Reads bytes of the answer, and appends its body to `body`.
    pub fn push(&mut self, mut bytes: &[u8], body: &mut Body) -> Result<(), Fault> {
        while !bytes.is_empty() {
            bytes = match self.state {
                State::Head => self.read_head(bytes)?,
                State::Length(left) => {
                    let (now, rest) =
                        bytes.split_at(bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
                    body.push(now)?;
                    let left = left - now.len() as u64;
                    self.state = if left == 0 { State::Done } else { State::Length(left) };
                    rest
                }
                State::Chunk(left) => {
                    let (now, rest) =
                        bytes.split_at(bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
                    body.push(now)?;
                    let left = left - now.len() as u64;
                    self.state = if left == 0 { State::ChunkEnd } else { State::Chunk(left) };
                    rest
                }
                State::Size | State::ChunkEnd | State::Trailer => self.read_line(bytes)?,
                State::UntilClose => {
                    body.push(bytes)?;
                    &[]
                }
                State::Done => return Err(Fault::connection("the server sent more than its answer")),
            };
        }
        Ok(())
    }

    /// The connection has ended.
    pub fn end(&mut self) -> Result<(), Fault> {
        match self.state {
            State::Done => Ok(()),
            State::UntilClose => {
                self.state = State::Done;
                Ok(())
            }
            State::Head if self.line.is_empty() => {
                Err(Fault::connection("the server closed the connection instead of an answer"))
            }
            _ => Err(Fault::connection("the server closed the connection within an answer")),
        }
    }

    fn read_head<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], Fault> {
        let before = self.line.len();
        self.line.extend_from_slice(&bytes[..bytes.len().min(MAX_HEAD + 1 - before)]);
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut parsed = httparse::Response::new(&mut fields);
        let head = match parsed.parse(&self.line) {
            Ok(httparse::Status::Complete(head)) => head,
            Ok(httparse::Status::Partial) if self.line.len() <= MAX_HEAD => return Ok(&[]),
            Ok(httparse::Status::Partial) => {
                return Err(Fault::connection("the head of the answer is too long"));
            }
            Err(error) => return Err(Fault::connection(format!("the answer is no HTTP: {error}"))),
        };
        let field = |name: &str| {
            let mut own = parsed.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
            own.next().and_then(|field| std::str::from_utf8(field.value).ok()).map(str::trim)
        };
        let says = |name: &str, word: &str| {
            field(name).is_some_and(|value| value.split(',').any(|own| own.trim().eq_ignore_ascii_case(word)))
        };
        let status = parsed.code.unwrap_or(0);
        let http11 = parsed.version == Some(1);
        self.head = Head {
            status,
            location: field("location").map(str::to_owned),
            cookie: field("set-cookie").and_then(|own| own.split(';').next()).map(str::to_owned),
            keep: if http11 { !says("connection", "close") } else { says("connection", "keep-alive") },
        };
        self.state = match field("content-length") {
            _ if matches!(status, 100..200 | 204 | 304) => State::Done,
            _ if says("transfer-encoding", "chunked") => State::Size,
            Some(length) => match length.parse() {
                Ok(0) => State::Done,
                Ok(length) => State::Length(length),
                Err(_) => return Err(Fault::connection("the answer has a length that is no number")),
            },
            None => State::UntilClose,
        };
        self.head.keep &= !matches!(self.state, State::UntilClose);
        self.line = Vec::new();
        Ok(&bytes[head - before..])
    }

    /// Reads to the end of a line of chunked coding.
    fn read_line<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], Fault> {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            self.line.extend_from_slice(bytes);
            return if self.line.len() > MAX_SIZE_LINE { Err(bad_chunk()) } else { Ok(&[]) };
        };
        self.line.extend_from_slice(&bytes[..end]);
        let line = std::mem::take(&mut self.line);
        let line = std::str::from_utf8(&line).map_err(|_| bad_chunk())?.trim_end_matches('\r');
        self.state = match (&self.state, line) {
            (State::Size, line) => {
                let size = line.split(';').next().unwrap_or("").trim();
                match u64::from_str_radix(size, 16).map_err(|_| bad_chunk())? {
                    0 => State::Trailer,
                    size => State::Chunk(size),
                }
            }
            (State::ChunkEnd, "") => State::Size,
            (State::Trailer, "") => State::Done,
            (State::Trailer, _) => State::Trailer,
            _ => return Err(bad_chunk()),
        };
        Ok(&bytes[end + 1..])
    }
}

fn bad_chunk() -> Fault {
    Fault::connection("the chunked answer is damaged")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `text` in pieces of every size.
    fn read(text: &[u8], until_close: bool) -> Result<(Head, Vec<u8>), Fault> {
        let mut all = Vec::new();
        for piece in 1..=text.len() {
            let (mut answer, mut body) = (Answer::default(), Body::kept(1 << 20));
            for bytes in text.chunks(piece) {
                answer.push(bytes, &mut body)?;
            }
            assert_eq!(answer.is_done(), !until_close);
            answer.end()?;
            assert_eq!(body.crc, crc32c::crc32c(body.bytes_kept().unwrap()));
            all.push((answer.head, body.bytes_kept().unwrap().to_vec()));
        }
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]));
        Ok(all.remove(0))
    }

    #[test]
    fn answers_are_read_in_pieces() {
        let (head, body) = read(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", false).unwrap();
        assert_eq!((head.status, head.keep, &body[..]), (200, true, &b"hello"[..]));
        let chunked = b"HTTP/1.1 404 No\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n3;x=y\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\nx: y\r\n\r\n";
        let (head, body) = read(chunked, false).unwrap();
        assert_eq!((head.status, head.keep, &body[..]), (404, false, &b"abc0123456789abcdef"[..]));
        let (head, body) = read(b"HTTP/1.0 200 OK\r\n\r\nuntil the end", true).unwrap();
        assert_eq!((head.keep, &body[..]), (false, &b"until the end"[..]));
        let moved =
            b"HTTP/1.1 302 Found\r\nLocation: /x\r\nSet-Cookie: a=b; Path=/\r\nContent-Length: 0\r\n\r\n";
        let (head, _) = read(moved, false).unwrap();
        assert_eq!((head.location.as_deref(), head.cookie.as_deref()), (Some("/x"), Some("a=b")));
    }

    #[test]
    fn damaged_answers_are_faults() {
        for bad in [
            &b"SSH-2.0-x\r\n"[..],
            b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        ] {
            assert!(Answer::default().push(bad, &mut Body::counted()).is_err(), "{bad:?}");
        }
        let mut cut = Answer::default();
        cut.push(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", &mut Body::counted()).unwrap();
        assert!(cut.end().is_err());
        let long = [b"HTTP/1.1 200 OK\r\nx: ".as_slice(), &[b'a'; MAX_HEAD]].concat();
        assert!(Answer::default().push(&long, &mut Body::counted()).is_err());
        assert!(Body::kept(3).push(b"four").is_err());
    }
}
