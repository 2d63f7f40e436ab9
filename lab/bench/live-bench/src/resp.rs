//! Redis' protocol, as much of it as publishing and subscribing need.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::failure::Result;

/// Appends a command.
pub fn command(words: &[&[u8]], to: &mut Vec<u8>) {
    let _ = write!(to, "*{}\r\n", words.len());
    for word in words {
        let _ = write!(to, "${}\r\n", word.len());
        to.extend_from_slice(word);
        to.extend_from_slice(b"\r\n");
    }
}

/// Reads answers. A large text goes from the socket into its own memory, without a copy in between but for its beginning.
pub struct Reader {
    socket: TcpStream,
    memory: Vec<u8>,
    from: usize,
    to: usize,
}

impl Reader {
    pub fn new(socket: TcpStream) -> Self {
        Self { socket, memory: vec![0; 64 << 10], from: 0, to: 0 }
    }

    /// The next answer, if it is a list of texts; other answers are passed over.
    pub fn list(&mut self) -> Result<Vec<Vec<u8>>> {
        loop {
            let line = self.line()?;
            match line.split_first() {
                Some((b'*', count)) => {
                    let count: usize = number(count)?;
                    let mut list = Vec::with_capacity(count.min(16));
                    for _ in 0..count {
                        match self.line()?.split_first() {
                            Some((b'$', size)) => list.push(self.text(number(size)?)?),
                            _ => list.push(Vec::new()),
                        }
                    }
                    return Ok(list);
                }
                Some((b'-', error)) => return Err(String::from_utf8_lossy(error).into()),
                _ => {}
            }
        }
    }

    /// Reads past one simple answer.
    pub fn pass(&mut self) -> Result<()> {
        match self.line()?.split_first() {
            Some((b'-', error)) => Err(String::from_utf8_lossy(error).into()),
            _ => Ok(()),
        }
    }

    fn fill(&mut self) -> Result<()> {
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
        } else if self.to == self.memory.len() {
            self.memory.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        match self.socket.read(&mut self.memory[self.to..])? {
            0 => Err("Redis closed the connection".into()),
            read => {
                self.to += read;
                Ok(())
            }
        }
    }

    fn line(&mut self) -> Result<Vec<u8>> {
        loop {
            let waiting = &self.memory[self.from..self.to];
            if let Some(end) = waiting.windows(2).position(|two| two == b"\r\n") {
                let line = waiting[..end].to_vec();
                self.from += end + 2;
                return Ok(line);
            }
            self.fill()?;
        }
    }

    fn text(&mut self, size: usize) -> Result<Vec<u8>> {
        let mut text = Vec::with_capacity(size + 2);
        let now = (self.to - self.from).min(size + 2);
        text.extend_from_slice(&self.memory[self.from..self.from + now]);
        self.from += now;
        let left = (size + 2 - now) as u64;
        if (&mut self.socket).take(left).read_to_end(&mut text)? as u64 != left {
            return Err("Redis closed the connection".into());
        }
        text.truncate(size);
        Ok(text)
    }
}

fn number(text: &[u8]) -> Result<usize> {
    Ok(std::str::from_utf8(text)?.parse()?)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn lists_are_read_and_other_answers_passed_over() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut reader = Reader::new(listener.accept().unwrap().0);
        let large = vec![7; 300_000];
        let mut bytes = b":1\r\n+OK\r\n".to_vec();
        command(&[b"message", b"s1", &large], &mut bytes);
        bytes.extend(b"*3\r\n$9\r\nsubscribe\r\n$2\r\ns1\r\n:1\r\n-ERR no\r\n");
        let sending = std::thread::spawn(move || {
            for piece in bytes.chunks(1000) {
                sender.write_all(piece).unwrap();
            }
        });
        reader.pass().unwrap();
        assert_eq!(reader.list().unwrap(), [b"message".to_vec(), b"s1".to_vec(), large]);
        assert_eq!(reader.list().unwrap()[0], b"subscribe");
        assert_eq!(reader.list().unwrap_err().to_string(), "ERR no");
        sending.join().unwrap();
        assert!(reader.pass().is_err());
    }
}
