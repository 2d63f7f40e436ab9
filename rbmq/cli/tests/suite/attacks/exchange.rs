//! A hostile exchange with a broker, and its required outcome.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU32, Ordering};

use rbmq::wire::{Control, Hello as ClientHello, Observe, Role};
use rocketbufs::proto::{CloseCode, Hello, Message, VERSION};
use testkit::LONG;

/// The wire id of control messages.
pub const CONTROL: u32 = 0x7fff_ffff;

/// The bid of the question that shows that the broker has handled everything before.
const LAST_BID: u32 = 0x00AB_CDEF;

/// The required end of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// The broker closes the connection, without a word or with a BYE of any code: the bytes are those of another protocol.
    Closed,
    /// The broker says why, and closes.
    Bye(Code),
    /// The framework refuses a subscription with this code, and the connection goes on.
    Refused(u16),
    /// The broker refuses the message with a reason, and the connection goes on.
    Rejected,
    /// Nothing happens, and the connection goes on.
    Harmless,
    /// TLS ends with this alert, and the connection is closed.
    Alert(u8),
}

/// The code of a BYE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    Normal,
    Version,
    Protocol,
    NotAccepted,
    Timeout,
    Limit,
    Other,
}

impl From<CloseCode> for Code {
    fn from(code: CloseCode) -> Self {
        match code {
            CloseCode::Normal => Self::Normal,
            CloseCode::Version => Self::Version,
            CloseCode::Protocol => Self::Protocol,
            CloseCode::NotAccepted => Self::NotAccepted,
            CloseCode::Timeout => Self::Timeout,
            CloseCode::Limit => Self::Limit,
            _ => Self::Other,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => write!(f, "closed"),
            Self::Bye(code) => write!(f, "BYE({code:?})"),
            Self::Refused(code) => write!(f, "REFUSED({code}), and the connection goes on"),
            Self::Rejected => write!(f, "refused with a reason, and the connection goes on"),
            Self::Harmless => write!(f, "nothing, and the connection goes on"),
            Self::Alert(number) => write!(f, "alert {}, and closed", alert_name(*number)),
        }
    }
}

/// The name of an alert of TLS (RFC 8446, 6).
fn alert_name(number: u8) -> &'static str {
    match number {
        10 => "unexpected_message",
        20 => "bad_record_mac",
        22 => "record_overflow",
        40 => "handshake_failure",
        42 => "bad_certificate",
        43 => "unsupported_certificate",
        44 => "certificate_revoked",
        45 => "certificate_expired",
        46 => "certificate_unknown",
        47 => "illegal_parameter",
        48 => "unknown_ca",
        50 => "decode_error",
        51 => "decrypt_error",
        70 => "protocol_version",
        80 => "internal_error",
        109 => "missing_extension",
        116 => "certificate_required",
        120 => "no_application_protocol",
        _ => "of another kind",
    }
}

/// A hostile exchange: the bytes of a peer, and what must come of them.
pub struct Exchange {
    pub family: &'static str,
    pub name: String,
    /// The peer is welcome in this role before it sends the bytes; None: the bytes are its first.
    pub role: Option<Role>,
    pub bytes: Vec<u8>,
    pub outcome: Outcome,
}

/// A frame with one control message of the framework.
pub fn control(message: &[u8]) -> Vec<u8> {
    data(CONTROL, message)
}

/// A frame with an encoded message of the framework.
pub fn said(message: &Message) -> Vec<u8> {
    control(&message.encode())
}

/// A frame with a message of the application.
pub fn app(message: &[u8]) -> Vec<u8> {
    said(&Message::App(message.to_vec()))
}

/// A frame with this id.
pub fn data(wire: u32, bytes: &[u8]) -> Vec<u8> {
    [&wire.to_le_bytes(), &(bytes.len() as u32).to_le_bytes(), bytes].concat()
}

/// The first message of a client with this role, which was never seen before.
pub fn hello(role: Role) -> Hello {
    static CLIENTS: AtomicU32 = AtomicU32::new(0x1234_5678);
    let client = CLIENTS.fetch_add(1, Ordering::Relaxed).into();
    let client = ClientHello { role, client, name: "attacker".into() };
    hello_with(client.encode())
}

/// The first message with these bytes of the application.
pub fn hello_with(hello: Vec<u8>) -> Hello {
    Hello {
        min_version: VERSION,
        max_version: VERSION,
        capabilities: 0,
        instance: 0x9999,
        heartbeat_ms: 0,
        max_control_bytes: 65_536,
        hello,
    }
}

impl Exchange {
    /// Runs the exchange. Returns its outcome, and the reason that the broker gave.
    pub fn run(&self, addr: &str) -> (Outcome, String) {
        let stream = TcpStream::connect(addr).expect("a broker listens");
        stream.set_read_timeout(Some(LONG)).expect("a time");
        stream.set_write_timeout(Some(LONG)).expect("a time");
        self.run_over(stream)
    }

    /// The same over a connection that is there already.
    pub fn run_over(&self, stream: impl Read + Write) -> (Outcome, String) {
        let mut peer = Peer(stream);
        if let Some(role) = self.role {
            peer.send(&said(&Message::Hello(hello(role))));
            assert!(matches!(peer.hear(), Heard::Said(Message::Welcome(_))), "{}: not welcome", self.name);
        }
        peer.send(&self.bytes);
        if let Some(role) = self.role {
            peer.send(&last_question(role));
        }
        peer.outcome(self.role, self.questions())
    }

    /// The number of requests for topics among the bytes: each has one answer.
    fn questions(&self) -> usize {
        let (mut rest, mut count) = (&self.bytes[..], 0);
        while let Some((head, tail)) = rest.split_at_checked(8) {
            let size = u32::from_le_bytes(head[4..].try_into().expect("4")) as usize;
            let Some((message, tail)) = tail.split_at_checked(size) else { break };
            let is_question = matches!(Message::decode(message), Ok(Message::App(bytes))
                if matches!(Control::decode(&bytes), Ok(Control::Topics { .. })));
            count += usize::from(is_question);
            rest = tail;
        }
        count
    }
}

/// A question whose answer comes after everything before was handled.
fn last_question(role: Role) -> Vec<u8> {
    match role {
        Role::Publisher => {
            app(&Control::AskStored { bid: LAST_BID, position: 1, synced: 0, archived: 0 }.encode())
        }
        Role::Subscriber | Role::Broker => {
            app(&Control::Topics { filters: vec!["$last".parse().expect("a filter")] }.encode())
        }
        Role::Observer => app(&Observe::GetSummary { request: LAST_BID }.encode()),
    }
}

/// A CREATE with any name.
pub fn create(bid: u32, ring_bytes: u64, max_delivery_bytes: u64, topic: &[u8]) -> Vec<u8> {
    let mut bytes = vec![1];
    bytes.extend(bid.to_le_bytes());
    bytes.push(0);
    bytes.extend(ring_bytes.to_le_bytes());
    bytes.extend(max_delivery_bytes.to_le_bytes());
    bytes.extend(0_u32.to_le_bytes());
    bytes.push(topic.len() as u8);
    bytes.extend(topic);
    bytes
}

enum Heard {
    Said(Message),
    Data,
    End,
}

struct Peer<S>(S);

impl<S: Read + Write> Peer<S> {
    /// Sends bytes. The broker may close the connection in the middle.
    fn send(&mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes).and_then(|()| self.0.flush());
    }

    fn hear(&mut self) -> Heard {
        let mut head = [0; 8];
        match self.0.read_exact(&mut head) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock) => panic!("the broker hangs"),
            Err(_) => return Heard::End,
        }
        let [wire, size] =
            [&head[..4], &head[4..]].map(|word| u32::from_le_bytes(word.try_into().expect("4")));
        let mut bytes = vec![0; size as usize];
        match self.0.read_exact(&mut bytes) {
            Err(_) => Heard::End,
            Ok(()) if wire == CONTROL => Heard::Said(Message::decode(&bytes).expect("a broker's message")),
            Ok(()) => Heard::Data,
        }
    }

    /// Listens up to the end, or to the answer of the last question, behind this number of answers about topics.
    fn outcome(&mut self, role: Option<Role>, mut before: usize) -> (Outcome, String) {
        let mut found = (Outcome::Harmless, String::new());
        loop {
            match self.hear() {
                Heard::End => return (Outcome::Closed, String::new()),
                Heard::Data => {}
                Heard::Said(Message::Bye { code, text }) => return (Outcome::Bye(code.into()), text),
                Heard::Said(Message::Welcome(_)) if role.is_none() => return found,
                Heard::Said(Message::Refused { code, .. }) => {
                    found = (Outcome::Refused(code as u16), format!("{code:?}"));
                }
                Heard::Said(Message::App(bytes)) => match answer(&bytes) {
                    Answer::Last => return found,
                    Answer::Topics(_) if before == 0 => return found,
                    Answer::Topics(refusal) => {
                        before -= 1;
                        found = refusal.map_or(found, |reason| (Outcome::Rejected, reason));
                    }
                    Answer::Refusal(reason) => found = (Outcome::Rejected, reason),
                    Answer::Other => {}
                },
                Heard::Said(_) => {}
            }
        }
    }
}

enum Answer {
    /// To the last question of a publisher or an observer.
    Last,
    /// To a request for topics, with the reason of a refusal.
    Topics(Option<String>),
    Refusal(String),
    Other,
}

fn answer(bytes: &[u8]) -> Answer {
    if let Ok(Observe::Summary { request, .. }) = Observe::decode(bytes) {
        return if request == LAST_BID { Answer::Last } else { Answer::Other };
    }
    match Control::decode(bytes) {
        Ok(Control::NotStored { bid: LAST_BID, .. }) => Answer::Last,
        Ok(Control::TopicsDone) => Answer::Topics(None),
        Ok(Control::Rejected { reason, .. }) => Answer::Topics(Some(reason)),
        Ok(Control::Refused { reason, .. } | Control::NotStored { reason, .. }) => Answer::Refusal(reason),
        _ => Answer::Other,
    }
}
