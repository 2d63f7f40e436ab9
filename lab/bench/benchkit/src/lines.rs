//! Connections of text protocols, from the client's side, as far as benches speak them by hand: Redis and NATS have lines that end
//! with CR LF, and texts of a length that a line tells. (What a rate is measured with compares whole blocks instead: `rbmq-bench`.)

use std::io::{self, BufRead, BufReader, Read, Write};

/// Reads lines and texts.
pub struct Lines<R> {
    from: BufReader<R>,
    line: String,
    text: Vec<u8>,
}

fn failed<T>(line: &str) -> io::Result<T> {
    Err(io::Error::other(format!("the server said: {line}")))
}

impl<R: Read> Lines<R> {
    /// Reads so many bytes at once. Of longer texts most bytes go into their own memory without a copy.
    pub fn new(bytes: usize, from: R) -> Self {
        Self { from: BufReader::with_capacity(bytes, from), line: String::new(), text: Vec::new() }
    }

    /// The next line, without its end.
    ///
    /// # Errors
    /// The connection failed or ended, or the line is an error of Redis or NATS.
    pub fn line(&mut self) -> io::Result<&str> {
        self.line.clear();
        if self.from.read_line(&mut self.line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match self.line.trim_end() {
            line if line.starts_with('-') => failed(line),
            line => Ok(line),
        }
    }

    /// The next line with these words. Others before it are passed over.
    ///
    /// # Errors
    /// As [`Lines::line`].
    pub fn line_with(&mut self, words: &str) -> io::Result<()> {
        while !self.line()?.contains(words) {}
        Ok(())
    }

    /// The connection that is read.
    pub fn get_mut(&mut self) -> &mut R {
        self.from.get_mut()
    }

    /// The text of so many bytes, behind which a line ends.
    ///
    /// # Errors
    /// The connection failed or ended.
    pub fn text(&mut self, bytes: usize) -> io::Result<&mut Vec<u8>> {
        self.text.clear();
        self.text.reserve(bytes + 2);
        if self.from.by_ref().take(bytes as u64 + 2).read_to_end(&mut self.text)? < bytes + 2 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.text.truncate(bytes);
        Ok(&mut self.text)
    }

    /// Redis: the number of the next line, which begins with the mark of this kind.
    ///
    /// # Errors
    /// As [`Lines::line`], or it is another line.
    pub fn number(&mut self, kind: char) -> io::Result<usize> {
        let line = self.line()?;
        line.strip_prefix(kind).and_then(|rest| rest.parse().ok()).map_or_else(|| failed(line), Ok)
    }

    /// Redis: the next text, whose length is in the line before it.
    ///
    /// # Errors
    /// As [`Lines::number`] and [`Lines::text`].
    pub fn bulk(&mut self) -> io::Result<&mut Vec<u8>> {
        let bytes = self.number('$')?;
        self.text(bytes)
    }

    /// NATS: the next message, of whatever subject; other lines are passed over.
    ///
    /// # Errors
    /// As [`Lines::line`] and [`Lines::text`].
    pub fn message(&mut self) -> io::Result<&mut Vec<u8>> {
        loop {
            let line = self.line()?;
            if line.starts_with("MSG ") {
                let bytes = line.rsplit(' ').next().and_then(|bytes| bytes.parse().ok());
                let bytes = bytes.map_or_else(|| failed(line), Ok)?;
                return self.text(bytes);
            }
        }
    }

    /// NATS: the answer to a request, which is no error.
    ///
    /// # Errors
    /// As [`Lines::message`], or the answer is an error.
    pub fn answer(&mut self) -> io::Result<()> {
        let text = String::from_utf8_lossy(self.message()?);
        if text.contains("\"error\"") { failed(&text) } else { Ok(()) }
    }
}

/// Redis: appends a command.
pub fn command(words: &[&[u8]], to: &mut Vec<u8>) {
    // Writing to memory cannot fail.
    let _ = write!(to, "*{}\r\n", words.len());
    for word in words {
        let _ = write!(to, "${}\r\n", word.len());
        to.extend_from_slice(word);
        to.extend_from_slice(b"\r\n");
    }
}

/// NATS: the first line of a client.
pub const CONNECT: &str = "CONNECT {\"verbose\":false,\"pedantic\":false}\r\n";

/// NATS: a request whose answer is the next message of the subject `answer`.
pub fn request(subject: &str, body: &str) -> String {
    format!("SUB answer 1\r\nPUB {subject} answer {}\r\n{body}\r\n", body.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_texts_of_any_length_are_read_and_errors_told() {
        for capacity in [16, 1 << 10, 1 << 20] {
            let large = vec![7; 300_000];
            let mut bytes = b"INFO {}\r\nPING\r\nMSG d 2 $JS.ACK.M 5\r\na\r\nbc\r\n:7\r\n".to_vec();
            command(&[b"message", &large], &mut bytes);
            bytes.extend(b"MSG answer 1 11\r\n{\"error\":1}\r\n-ERR no\r\n:8\r\n$9\r\nshort\r\n");
            let mut lines = Lines::new(capacity, bytes.as_slice());
            assert_eq!(lines.message().unwrap(), b"a\r\nbc");
            assert_eq!((lines.number(':').unwrap(), lines.number('*').unwrap()), (7, 2));
            assert_eq!(lines.bulk().unwrap(), b"message");
            assert_eq!(*lines.bulk().unwrap(), large);
            assert!(lines.answer().unwrap_err().to_string().contains("{\"error\":1}"));
            assert_eq!(lines.line().unwrap_err().to_string(), "the server said: -ERR no");
            assert_eq!(lines.number('$').unwrap_err().to_string(), "the server said: :8");
            assert_eq!(lines.bulk().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
            assert!(lines.line().is_err());
        }
    }
}
