//! The commands of clients: arrays of bulk strings, and lines.
//!
//! ```text
//!   *3 ⏎ $7 ⏎ PUBLISH ⏎ $4 ⏎ news ⏎ $5 ⏎ hello ⏎          an array: each argument has its length
//!            └─span──┘      └span┘      └span─┘
//!   publish news "hello"⏎                                 a line, as people type it
//! ```
//!
//! An argument is a [`Span`] of the received bytes; nothing is copied, except from lines. A [`Parser`] remembers how far it came with an incomplete
//! command, and how many bytes it needs to get on: no byte is looked at twice, however small the pieces are that it comes in.

use std::fmt;

/// Most bytes of a line, and of the text of a number.
pub const MAX_LINE_BYTES: usize = 64 << 10;

/// Most arguments of a client that has not logged in.
pub const STRANGERS_ARGUMENTS: usize = 10;

/// Most bytes of an argument of a client that has not logged in.
pub const STRANGERS_BULK_BYTES: usize = 16 << 10;

/// Where an argument is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    start: u32,
    len: u32,
}

impl Span {
    fn new(start: usize, len: usize) -> Self {
        // A command has less than 4 GiB (`Limits::command`).
        Self { start: start as u32, len: len as u32 }
    }

    fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start as usize..][..self.len as usize]
    }
}

/// How large a command may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most arguments.
    pub arguments: usize,
    /// Most bytes of an argument.
    pub bulk: usize,
    /// Most bytes of a command, which a connection has to keep until it is complete; less than 4 GiB.
    pub command: u32,
    /// Whether the client has not logged in, and may send only what a login needs.
    pub is_stranger: bool,
}

/// The client does not speak the protocol. It gets the text, and its connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// A line has no end.
    Line,
    /// The number of arguments has no end.
    CountLine,
    /// The number of arguments is none, or too large.
    Count,
    /// The number of arguments is too large for a client that has not logged in.
    StrangersCount,
    /// The length of an argument has no end.
    LengthLine,
    /// The length of an argument is none, or too large.
    Length,
    /// An argument is too long for a client that has not logged in.
    StrangersLength,
    /// An argument begins with another byte than `$`.
    Expected(u8),
    /// All arguments together are too long.
    Command,
    /// A line has a quote that does not end where an argument ends.
    Quotes,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol error: ")?;
        f.write_str(match self {
            Self::Line => "too big inline request",
            Self::CountLine => "too big mbulk count string",
            Self::Count => "invalid multibulk length",
            Self::StrangersCount => "unauthenticated multibulk length",
            Self::LengthLine => "too big bulk count string",
            Self::Length => "invalid bulk length",
            Self::StrangersLength => "unauthenticated bulk length",
            Self::Command => "too big request",
            Self::Quotes => "unbalanced quotes in request",
            Self::Expected(byte) => {
                let shown = if byte.is_ascii_control() { ' ' } else { char::from(*byte) };
                return write!(f, "expected '$', got '{shown}'");
            }
        })
    }
}

/// The arguments of a command, as places. One value serves all connections of a thread.
#[derive(Debug, Default)]
pub struct Arguments {
    spans: Vec<Span>,
    /// What a line says, without quotes and escapes.
    text: Vec<u8>,
    /// Whether the spans are places in `text`.
    is_line: bool,
}

impl Arguments {
    /// The arguments of the command that was parsed from these bytes.
    pub fn of<'a>(&'a self, bytes: &'a [u8]) -> Command<'a> {
        Command { bytes: if self.is_line { &self.text } else { bytes }, spans: &self.spans }
    }

    /// Gives back memory that an unusual command took.
    fn shrink(&mut self) {
        const USUAL: usize = 4096;
        if self.spans.capacity() > USUAL {
            self.spans.clear();
            self.spans.shrink_to(USUAL);
        }
    }
}

/// A command: at least one argument, of which the first is its name.
#[derive(Debug, Clone, Copy)]
pub struct Command<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Command<'a> {
    /// The number of arguments, with the name.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there is no name. A parsed command has one.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// An argument, if there are so many.
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.spans.get(index).map(|span| span.of(self.bytes))
    }

    /// The arguments from an index on.
    pub fn from(&self, index: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let bytes = self.bytes;
        self.spans.get(index..).unwrap_or_default().iter().map(move |span| span.of(bytes))
    }
}

/// What came of a look at the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A command of so many bytes.
    Command(usize),
    /// So many bytes that say nothing, as an empty line.
    Nothing(usize),
    /// The beginning of a command.
    More,
    /// No command.
    Broken(ProtocolError),
}

/// What the next bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    /// A new command.
    #[default]
    Start,
    /// A line.
    Line,
    /// The number of arguments.
    Count,
    /// The length of an argument.
    Length,
    /// An argument of so many bytes.
    Bulk(usize),
}

/// How far a connection came with a command. The next call gets the same bytes, and more.
#[derive(Debug, Default)]
pub struct Parser {
    stage: Stage,
    /// The bytes of the command that are done.
    at: usize,
    /// The bytes in which the end of a line was looked for.
    searched: usize,
    /// The bytes that are needed to get on.
    needed: usize,
    /// The number of arguments that come.
    left: usize,
    /// The arguments so far, while the command is incomplete.
    spans: Vec<Span>,
}

impl Parser {
    /// Looks for a command at the beginning of the bytes. Its arguments are then in `arguments`.
    pub fn parse(&mut self, bytes: &[u8], limits: &Limits, arguments: &mut Arguments) -> Step {
        let Some(&first) = bytes.first() else { return Step::More };
        if bytes.len() < self.needed {
            return Step::More;
        }
        if self.stage == Stage::Start {
            arguments.shrink();
            arguments.spans.clear();
            (self.stage, self.at) = if first == b'*' { (Stage::Count, 1) } else { (Stage::Line, 0) };
        } else {
            std::mem::swap(&mut arguments.spans, &mut self.spans);
        }
        arguments.is_line = self.stage == Stage::Line;
        let step = if arguments.is_line {
            self.line(bytes, arguments)
        } else {
            self.array(bytes, limits, &mut arguments.spans)
        };
        let step = step.unwrap_or_else(Step::Broken);
        if step == Step::More {
            self.spans = std::mem::take(&mut arguments.spans);
        } else {
            *self = Self::default();
        }
        step
    }

    /// Whether no command has begun: the next bytes may be parsed by other means.
    pub fn is_at_start(&self) -> bool {
        self.stage == Stage::Start
    }

    fn array(&mut self, bytes: &[u8], limits: &Limits, spans: &mut Vec<Span>) -> Result<Step, ProtocolError> {
        loop {
            if self.at > limits.command as usize {
                return Err(ProtocolError::Command);
            }
            match self.stage {
                Stage::Bulk(len) => {
                    let end = self.at + len + 2;
                    if bytes.len() < end {
                        self.needed = end;
                        return Ok(Step::More);
                    }
                    spans.push(Span::new(self.at, len));
                    (self.at, self.left, self.stage) = (end, self.left - 1, Stage::Length);
                    if self.left == 0 {
                        return Ok(Step::Command(end));
                    }
                }
                Stage::Length => {
                    let Some(&sign) = bytes.get(self.at) else { return Ok(self.more(bytes.len())) };
                    if sign != b'$' {
                        return Err(ProtocolError::Expected(sign));
                    }
                    let Some((text, next)) = self.number(bytes, self.at + 1, ProtocolError::LengthLine)?
                    else {
                        return Ok(Step::More);
                    };
                    self.stage = Stage::Bulk(length(text, next, limits)?);
                    self.at = next;
                }
                Stage::Start | Stage::Line | Stage::Count => {
                    let Some((text, next)) = self.number(bytes, 1, ProtocolError::CountLine)? else {
                        return Ok(Step::More);
                    };
                    self.left = count(text, limits)?;
                    if self.left == 0 {
                        return Ok(Step::Nothing(next));
                    }
                    (self.stage, self.at) = (Stage::Length, next);
                }
            }
        }
    }

    /// The text between `begin` and the end of the line, and where the next line begins.
    fn number<'a>(
        &mut self,
        bytes: &'a [u8],
        begin: usize,
        endless: ProtocolError,
    ) -> Result<Option<(&'a [u8], usize)>, ProtocolError> {
        let from = begin.max(self.searched);
        let Some(found) = bytes.get(from..).and_then(|rest| rest.iter().position(|&byte| byte == b'\r'))
        else {
            self.searched = bytes.len();
            self.more(bytes.len());
            return if bytes.len().saturating_sub(begin) > MAX_LINE_BYTES { Err(endless) } else { Ok(None) };
        };
        let end = from + found;
        if bytes.len() < end + 2 {
            (self.searched, self.needed) = (end, end + 2);
            return Ok(None);
        }
        self.searched = 0;
        Ok(Some((&bytes[begin..end], end + 2)))
    }

    fn line(&mut self, bytes: &[u8], arguments: &mut Arguments) -> Result<Step, ProtocolError> {
        let Some(found) = bytes[self.searched..].iter().position(|&byte| byte == b'\n') else {
            self.searched = bytes.len();
            return if bytes.len() > MAX_LINE_BYTES {
                Err(ProtocolError::Line)
            } else {
                Ok(self.more(bytes.len()))
            };
        };
        let end = self.searched + found;
        if end > MAX_LINE_BYTES {
            return Err(ProtocolError::Line);
        }
        let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
        split(line, arguments).ok_or(ProtocolError::Quotes)?;
        Ok(if arguments.spans.is_empty() { Step::Nothing(end + 1) } else { Step::Command(end + 1) })
    }

    /// One byte more is needed.
    fn more(&mut self, have: usize) -> Step {
        self.needed = have + 1;
        Step::More
    }
}

fn count(text: &[u8], limits: &Limits) -> Result<usize, ProtocolError> {
    let count = integer(text).ok_or(ProtocolError::Count)?;
    let count = usize::try_from(count.max(0)).map_err(|_| ProtocolError::Count)?;
    if count > limits.arguments {
        Err(ProtocolError::Count)
    } else if limits.is_stranger && count > STRANGERS_ARGUMENTS {
        Err(ProtocolError::StrangersCount)
    } else {
        Ok(count)
    }
}

/// The length of an argument that begins at `at`.
fn length(text: &[u8], at: usize, limits: &Limits) -> Result<usize, ProtocolError> {
    let length = integer(text).and_then(|length| usize::try_from(length).ok());
    let length = length.filter(|length| *length <= limits.bulk).ok_or(ProtocolError::Length)?;
    if limits.is_stranger && length > STRANGERS_BULK_BYTES {
        Err(ProtocolError::StrangersLength)
    } else if at + length + 2 > limits.command as usize {
        Err(ProtocolError::Command)
    } else {
        Ok(length)
    }
}

/// A number as Redis writes it: without leading zeros, plus signs or spaces.
pub fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_canonical = match digits {
        [] => false,
        [b'0'] => digits.len() == text.len(),
        [first, ..] => *first != b'0' && digits.iter().all(u8::is_ascii_digit),
    };
    if !is_canonical {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Splits a line as a shell would: blanks separate, `"…"` has escapes, `'…'` has only `\'`. None: a quote does not end, or not at the end of an
/// argument.
fn split(line: &[u8], arguments: &mut Arguments) -> Option<()> {
    let is_blank = |byte: u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let Arguments { spans, text, .. } = arguments;
    text.clear();
    let mut at = 0;
    loop {
        at += line[at..].iter().take_while(|&&byte| is_blank(byte)).count();
        if at == line.len() {
            return Some(());
        }
        let begin = text.len();
        while let Some(&byte) = line.get(at) {
            at += 1;
            match byte {
                b'"' | b'\'' => {
                    at = quoted(line, at, byte, text)?;
                    if line.get(at).is_some_and(|&next| !is_blank(next)) {
                        return None;
                    }
                    break;
                }
                b' ' | b'\n' | b'\r' | b'\t' | 0 => break,
                _ => text.push(byte),
            }
        }
        spans.push(Span::new(begin, text.len() - begin));
    }
}

/// Appends what is between quotes. Returns where the line goes on.
fn quoted(line: &[u8], mut at: usize, quote: u8, text: &mut Vec<u8>) -> Option<usize> {
    loop {
        let byte = *line.get(at)?;
        let next = line.get(at + 1).copied();
        at += 1;
        match (byte, next) {
            (b'\\', Some(b'\'')) if quote == b'\'' => {
                text.push(b'\'');
                at += 1;
            }
            (b'\\', Some(escaped)) if quote == b'"' => {
                let hex = line.get(at + 1..at + 3).filter(|_| escaped == b'x').and_then(hex_byte);
                text.push(hex.unwrap_or(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => other,
                }));
                at += if hex.is_some() { 3 } else { 1 };
            }
            _ if byte == quote => return Some(at),
            _ => text.push(byte),
        }
    }
}

/// The byte that two digits write.
pub(crate) fn hex_byte(digits: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    match digits {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    }
}

/// A complete `PUBLISH channel message`, as all clients write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Publish<'a> {
    /// The channel.
    pub channel: &'a [u8],
    /// The message.
    pub payload: &'a [u8],
    /// The bytes of the command.
    pub used: usize,
}

/// Looks for a complete `PUBLISH channel message` at the beginning of the bytes, without state. None: it is something else, incomplete, or
/// above the limits, which [`Parser`] decides.
pub fn publish<'a>(bytes: &'a [u8], limits: &Limits) -> Option<Publish<'a>> {
    const SHAPE: &[u8] = b"*3\r\n$7\r\nPUBLISH\r\n";
    let head = bytes.get(..SHAPE.len())?;
    if !head.eq_ignore_ascii_case(SHAPE) {
        return None;
    }
    let (channel, at) = short_bulk(bytes, SHAPE.len(), limits)?;
    let (payload, used) = short_bulk(bytes, at, limits)?;
    (used <= limits.command as usize).then_some(Publish { channel, payload, used })
}

/// An argument and where the next one begins.
fn short_bulk<'a>(bytes: &'a [u8], at: usize, limits: &Limits) -> Option<(&'a [u8], usize)> {
    const MOST_DIGITS: usize = 9;
    if *bytes.get(at)? != b'$' {
        return None;
    }
    let mut len = 0;
    let mut end = at + 1;
    while let digit @ b'0'..=b'9' = *bytes.get(end)? {
        len = len * 10 + usize::from(digit - b'0');
        end += 1;
        if end - at > MOST_DIGITS {
            return None;
        }
    }
    let digits = &bytes[at + 1..end];
    if digits.is_empty() || (digits[0] == b'0' && digits.len() > 1) || *bytes.get(end)? != b'\r' {
        return None;
    }
    if len > limits.bulk {
        return None;
    }
    let begin = end + 2;
    // The end of the argument lies behind it, and is there too.
    let bulk = bytes.get(begin..begin + len + 2)?;
    Some((&bulk[..len], begin + len + 2))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits { arguments: 100, bulk: 1000, command: 5000, is_stranger: false };

    /// What all commands in the bytes say, and how it ends.
    fn parse_all(bytes: &[u8], limits: &Limits) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
        let (mut parser, mut arguments, mut commands, mut at) =
            (Parser::default(), Arguments::default(), Vec::new(), 0);
        loop {
            match parser.parse(&bytes[at..], limits, &mut arguments) {
                Step::Command(used) => {
                    let command = arguments.of(&bytes[at..]);
                    commands.push(command.from(0).map(<[u8]>::to_vec).collect());
                    at += used;
                }
                Step::Nothing(used) => at += used,
                Step::More => return (commands, None),
                Step::Broken(error) => return (commands, Some(error)),
            }
        }
    }

    fn texts(line: &str) -> Option<Vec<String>> {
        let (commands, error) = parse_all(format!("{line}\r\n").as_bytes(), &LIMITS);
        let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
        error.is_none().then(|| commands.first().map(|c| c.iter().map(text).collect()).unwrap_or_default())
    }

    #[test]
    fn lines_are_split_as_in_redis() {
        assert_eq!(texts("ping").unwrap(), ["ping"]);
        assert_eq!(texts(" publish\t a  'b c' ").unwrap(), ["publish", "a", "b c"]);
        assert_eq!(texts(r#"a "\x41\n\q\"" '\'x\n'"#).unwrap(), ["a", "A\nq\"", r"'x\n"]);
        assert_eq!(texts(r#"a b"c d""#).unwrap(), ["a", "bc d"]);
        assert_eq!(texts("a \"\"").unwrap(), ["a", ""]);
        assert_eq!(texts("").unwrap(), Vec::<String>::new());
        for unbalanced in ["a \"", "a 'b", "a \"b\"c", "'a'b", "a \"\\"] {
            assert_eq!(texts(unbalanced), None, "{unbalanced}");
        }
    }

    #[test]
    fn errors_have_the_texts_of_redis() {
        let error = |bytes: &[u8]| parse_all(bytes, &LIMITS).1.map(|error| error.to_string());
        let stranger = Limits { is_stranger: true, bulk: 1 << 20, command: 1 << 20, ..LIMITS };
        let strangers = |bytes: &[u8]| parse_all(bytes, &stranger).1.map(|error| error.to_string());
        for (bytes, text) in [
            (&b"*x\r\n"[..], "invalid multibulk length"),
            (b"*101\r\n", "invalid multibulk length"),
            (b"*01\r\n", "invalid multibulk length"),
            (b"*99999999999999999999\r\n", "invalid multibulk length"),
            (b"*1\r\nping\r\n", "expected '$', got 'p'"),
            (b"*1\r\n\r\n", "expected '$', got ' '"),
            (b"*1\r\n$x\r\n", "invalid bulk length"),
            (b"*1\r\n$-1\r\n", "invalid bulk length"),
            (b"*1\r\n$1001\r\n", "invalid bulk length"),
            (b"a \"b\r\n", "unbalanced quotes in request"),
        ] {
            assert_eq!(error(bytes), Some(format!("Protocol error: {text}")), "{}", bytes.escape_ascii());
        }
        let long = vec![b'1'; MAX_LINE_BYTES + 2];
        assert_eq!(error(&long).unwrap(), "Protocol error: too big inline request");
        assert_eq!(error(&[b"*", &long[..]].concat()).unwrap(), "Protocol error: too big mbulk count string");
        let length = [b"*1\r\n$", &long[..]].concat();
        assert_eq!(error(&length).unwrap(), "Protocol error: too big bulk count string");
        let full = format!("$1000\r\n{}\r\n", "x".repeat(1000)).repeat(6);
        assert_eq!(error(format!("*6\r\n{full}").as_bytes()).unwrap(), "Protocol error: too big request");
        assert_eq!(strangers(b"*11\r\n").unwrap(), "Protocol error: unauthenticated multibulk length");
        assert_eq!(strangers(b"*1\r\n$16385\r\n").unwrap(), "Protocol error: unauthenticated bulk length");
        assert_eq!(strangers(b"*1\r\n$16384\r\n"), None);
    }

    #[test]
    fn empty_and_negative_arrays_say_nothing() {
        let (commands, error) = parse_all(b"*0\r\n*-1\r\n\r\n*1\r\n$4\r\nPING\r\n", &LIMITS);
        assert_eq!((commands, error), (vec![vec![b"PING".to_vec()]], None));
    }

    #[test]
    fn an_incomplete_command_is_looked_at_again_only_when_enough_has_come() {
        let (mut parser, mut arguments) = (Parser::default(), Arguments::default());
        let bytes = b"*2\r\n$4\r\nECHO\r\n$500\r\n";
        assert_eq!(parser.parse(bytes, &LIMITS, &mut arguments), Step::More);
        assert_eq!((parser.at, parser.needed), (bytes.len(), bytes.len() + 502));
        let mut whole = bytes.to_vec();
        whole.extend([b'x'; 502]);
        assert_eq!(parser.parse(&whole[..whole.len() - 1], &LIMITS, &mut arguments), Step::More);
        assert_eq!(parser.at, bytes.len(), "what is done is not done again");
        assert_eq!(parser.parse(&whole, &LIMITS, &mut arguments), Step::Command(whole.len()));
        assert_eq!(arguments.of(&whole).get(1).unwrap(), [b'x'; 500]);
        assert_eq!((arguments.of(&whole).len(), arguments.of(&whole).get(2)), (2, None));
    }

    #[test]
    fn the_short_way_of_publish_takes_what_all_clients_write() {
        let bytes = b"*3\r\n$7\r\npublish\r\n$1\r\nc\r\n$0\r\n\r\nrest";
        let found = publish(bytes, &LIMITS).unwrap();
        assert_eq!((found.channel, found.payload, found.used), (&b"c"[..], &b""[..], bytes.len() - 4));
        for other in [
            &b"*3\r\n$7\r\npublish\r\n$1\r\nc\r\n$1\r\nx\r"[..],
            b"*3\r\n$7\r\npublish\r\n$01\r\nc\r\n$0\r\n\r\n",
            b"*3\r\n$7\r\npublish\r\n$-1\r\nc\r\n$0\r\n\r\n",
            b"*3\r\n$7\r\npublish\r\n$1001\r\n",
            b"*3\r\n$7\r\npublisx\r\n$1\r\nc\r\n$0\r\n\r\n",
            b"*3\r\n$7\r\n",
        ] {
            assert_eq!(publish(other, &LIMITS), None, "{}", other.escape_ascii());
        }
    }

    /// Commands as clients write them.
    fn array(arguments: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in arguments {
            bytes.extend(format!("${}\r\n", argument.len()).into_bytes());
            bytes.extend(argument);
            bytes.extend(b"\r\n");
        }
        bytes
    }

    proptest! {
        #[test]
        fn pieces_give_the_same_commands_as_the_whole(
            commands in proptest::collection::vec(
                proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..30), 1..5), 0..5),
            line in "[a-z \"'\\\\]{0,10}",
            cuts in proptest::collection::vec(0usize..200, 0..20),
            damage in proptest::option::of((0usize..200, any::<u8>())),
        ) {
            let mut bytes: Vec<u8> = commands.iter().flat_map(|command| array(command)).collect();
            bytes.extend(line.as_bytes());
            bytes.extend(b"\r\n");
            if let Some((at, byte)) = damage && at < bytes.len() {
                bytes[at] = byte;
            } else {
                let parsed = parse_all(&bytes, &LIMITS).0;
                prop_assert_eq!(&parsed[..commands.len()], &commands[..]);
            }
            let (mut parser, mut arguments, mut parsed) = (Parser::default(), Arguments::default(), Vec::new());
            let (mut at, mut error) = (0, None);
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut < bytes.len()).collect();
            cuts.sort_unstable();
            for end in cuts.into_iter().chain([bytes.len()]) {
                while error.is_none() {
                    match parser.parse(&bytes[at.min(end)..end], &LIMITS, &mut arguments) {
                        Step::Command(used) => {
                            let command = arguments.of(&bytes[at..end]);
                            parsed.push(command.from(0).map(<[u8]>::to_vec).collect::<Vec<_>>());
                            at += used;
                        }
                        Step::Nothing(used) => at += used,
                        Step::More => break,
                        Step::Broken(found) => error = Some(found),
                    }
                }
            }
            prop_assert_eq!((parsed, error), parse_all(&bytes, &LIMITS));
        }

        #[test]
        fn the_short_way_of_publish_says_the_same_as_the_long_one(
            name in "(PUBLISH|publish|PUBLISX)", channel in "[a-z]{0,12}", payload in proptest::collection::vec(any::<u8>(), 0..50),
            damage in proptest::option::of((0usize..60, any::<u8>())),
        ) {
            let mut bytes = array(&[name.into_bytes(), channel.into_bytes(), payload]);
            if let Some((at, byte)) = damage && at < bytes.len() {
                bytes[at] = byte;
            }
            if let Some(found) = publish(&bytes, &LIMITS) {
                let (commands, _) = parse_all(&bytes, &LIMITS);
                prop_assert!(commands[0][0].eq_ignore_ascii_case(b"publish"));
                prop_assert_eq!(&commands[0][1..], &[found.channel.to_vec(), found.payload.to_vec()][..]);
            }
        }
    }
}
