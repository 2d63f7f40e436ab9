//! First messages of TLS with faults: what a client offers, how it cuts its records, and what it sends instead.

use std::io::Read;

use super::exchange::Outcome;
use super::tls::{Attack, Step, outcome_of};
use crate::common::secure::{config, connect};

const SERVER_NAME: u16 = 0;
const GROUPS: u16 = 10;
const SIGNATURES: u16 = 13;
const PROTOCOLS: u16 = 16;
const PRE_SHARED_KEY: u16 = 41;
const EARLY_DATA: u16 = 42;
const VERSIONS: u16 = 43;
const COOKIE: u16 = 44;
const MODES: u16 = 45;
const KEY_SHARE: u16 = 51;

const X25519: u16 = 0x001d;
const HANDSHAKE: u8 = 22;
/// The length of a good first message without its extensions.
const WITHOUT_EXTENSIONS: usize = 77;

const ILLEGAL: Outcome = Outcome::Alert(47);
const DECODE: Outcome = Outcome::Alert(50);
const UNEXPECTED: Outcome = Outcome::Alert(10);
const VERSION: Outcome = Outcome::Alert(70);
const NO_COMMON: Outcome = Outcome::Alert(40);
const MISSING: Outcome = Outcome::Alert(109);
const NO_PROTOCOL: Outcome = Outcome::Alert(120);

/// A list with a length of one byte before it.
fn short(bytes: &[u8]) -> Vec<u8> {
    [&[bytes.len() as u8][..], bytes].concat()
}

/// A list with a length of two bytes before it.
fn long(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat()
}

fn words(words: &[u16]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn share(group: u16, key: &[u8]) -> Vec<u8> {
    [words(&[group]), long(key)].concat()
}

fn protocols(names: &[&[u8]]) -> Vec<u8> {
    long(&names.iter().flat_map(|name| short(name)).collect::<Vec<_>>())
}

fn server_name(kind: u8, name: &[u8]) -> Vec<u8> {
    long(&[&[kind][..], &long(name)].concat())
}

/// A pre-shared key that no server gave, and its binder.
fn stolen_key() -> Vec<u8> {
    let identity = [long(&[0x5a; 200]), vec![0, 0, 0, 1]].concat();
    [long(&identity), long(&short(&[7; 32]))].concat()
}

/// The parts of a ClientHello.
#[derive(Clone)]
struct Hello {
    version: u16,
    session_id: Vec<u8>,
    suites: Vec<u16>,
    compression: Vec<u8>,
    extensions: Vec<(u16, Vec<u8>)>,
}

impl Hello {
    /// A hello that a server answers.
    fn good() -> Self {
        Self {
            version: 0x0303,
            session_id: vec![7; 32],
            suites: vec![0x1301, 0x1302, 0x1303],
            compression: vec![0],
            extensions: vec![
                (VERSIONS, short(&words(&[0x0304]))),
                (GROUPS, long(&words(&[X25519]))),
                (SIGNATURES, long(&words(&[0x0403, 0x0804, 0x0807]))),
                (KEY_SHARE, long(&share(X25519, &[9; 32]))),
                (PROTOCOLS, protocols(&[b"rocketbufs/1"])),
            ],
        }
    }

    fn with(mut self, kind: u16, content: Vec<u8>) -> Self {
        match self.extensions.iter_mut().find(|(own, _)| *own == kind) {
            Some((_, own)) => *own = content,
            None => self.extensions.push((kind, content)),
        }
        self
    }

    fn without(mut self, kind: u16) -> Self {
        self.extensions.retain(|(own, _)| *own != kind);
        self
    }

    fn body(&self) -> Vec<u8> {
        let extensions: Vec<u8> = self
            .extensions
            .iter()
            .flat_map(|(kind, content)| [words(&[*kind]), long(content)].concat())
            .collect();
        [
            words(&[self.version]),
            vec![0x42; 32],
            short(&self.session_id),
            long(&words(&self.suites)),
            short(&self.compression),
            long(&extensions),
        ]
        .concat()
    }

    /// As a message of the handshake.
    fn message(&self) -> Vec<u8> {
        message(1, &self.body())
    }

    /// In one record.
    fn record(&self) -> Vec<u8> {
        record(HANDSHAKE, &self.message())
    }
}

/// The bytes of a good first message.
pub fn good() -> Vec<u8> {
    Hello::good().record()
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &(body.len() as u32).to_be_bytes()[1..], body].concat()
}

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    [&[kind, 3, 1][..], &long(content)].concat()
}

fn says(family: &'static str, name: &str, bytes: Vec<u8>, outcome: Outcome) -> Attack {
    Attack::raw(family, name, vec![Step::Send(bytes)], outcome)
}

/// The offers that a client may make, and those it may not.
pub fn offers() -> Vec<Attack> {
    let good = Hello::good;
    let ok = Outcome::Harmless;
    let of = |name: &str, hello: Hello, outcome| says("what a client offers", name, hello.record(), outcome);
    let mut all = vec![
        of("nothing wrong, to compare", good(), ok),
        of("TLS 1.2 alone", good().with(VERSIONS, short(&words(&[0x0303]))), VERSION),
        of("TLS 1.1 alone", good().with(VERSIONS, short(&words(&[0x0302]))), VERSION),
        of("SSL 3.0 alone", good().with(VERSIONS, short(&words(&[0x0300]))), VERSION),
        of("TLS 1.2 in the way of TLS 1.2", good().without(VERSIONS), VERSION),
        of("TLS 1.0 in the way of TLS 1.0", Hello { version: 0x0301, ..good() }.without(VERSIONS), VERSION),
        of(
            "versions that do not exist",
            good().with(VERSIONS, short(&words(&[0x0a0a, 0x7f1c, 0xffff]))),
            VERSION,
        ),
        of("127 versions, the last of them TLS 1.3", many_versions(), ok),
        of("no cipher suite", Hello { suites: vec![], ..good() }, DECODE),
        of("suites of TLS 1.2 alone", Hello { suites: vec![0xc02b, 0xc02f, 0x009c], ..good() }, NO_COMMON),
        of("suites with CCM alone", Hello { suites: vec![0x1304, 0x1305], ..good() }, NO_COMMON),
        of("the suite without encryption", Hello { suites: vec![0x0000, 0xc0b4], ..good() }, NO_COMMON),
        of("5,000 suites that do not exist", Hello { suites: vec![0x7a7a; 5_000], ..good() }, NO_COMMON),
        of("compression", Hello { compression: vec![1], ..good() }, ILLEGAL),
        of("no compression method", Hello { compression: vec![], ..good() }, DECODE),
        of("a session ID of 33 bytes", Hello { session_id: vec![1; 33], ..good() }, DECODE),
        of("the same extension twice", twice(), ILLEGAL),
        of("a cookie that nobody gave", good().with(COOKIE, long(&[1; 300])), ok),
        of("the extension of heartbeats", good().with(15, vec![1]), ok),
        of("renegotiation", good().with(0xff01, short(&[1; 24])), ok),
        of("300 unknown extensions", unknown_extensions(300), ok),
        of("15,000 bytes of padding", good().with(21, vec![0; 15_000]), ok),
    ];
    all.extend(groups());
    all.extend(names());
    all.extend(keys());
    all
}

/// Groups, and shares of keys.
fn groups() -> Vec<Attack> {
    let (good, ok) = (Hello::good, Outcome::Harmless);
    let of = |name: &str, hello: Hello, outcome| says("groups", name, hello.record(), outcome);
    vec![
        of("no group that the broker has", foreign_group(), NO_COMMON),
        of("no group", good().without(GROUPS), NO_COMMON),
        of("no way to sign", good().without(SIGNATURES), NO_COMMON),
        of("no key share", good().without(KEY_SHARE), NO_COMMON),
        of("an empty list of key shares", good().with(KEY_SHARE, long(&[])), ok),
        of("a key share of zeros", good().with(KEY_SHARE, long(&share(X25519, &[0; 32]))), ILLEGAL),
        of("a key share of 31 bytes", good().with(KEY_SHARE, long(&share(X25519, &[9; 31]))), ILLEGAL),
        of("a key share of 33 bytes", good().with(KEY_SHARE, long(&share(X25519, &[9; 33]))), ILLEGAL),
        of("a key share without a byte", good().with(KEY_SHARE, long(&share(X25519, &[]))), DECODE),
        of(
            "two key shares of one group",
            good().with(KEY_SHARE, long(&share(X25519, &[9; 32]).repeat(2))),
            ILLEGAL,
        ),
        of("a point that is on no curve", off_the_curve(), ILLEGAL),
    ]
}

fn many_versions() -> Hello {
    let mut versions = vec![0x0a0a; 126];
    versions.push(0x0304);
    Hello::good().with(VERSIONS, short(&words(&versions)))
}

fn foreign_group() -> Hello {
    let hello = Hello::good().with(GROUPS, long(&words(&[0x0100, 0x001e])));
    hello.with(KEY_SHARE, long(&share(0x0100, &[9; 256])))
}

fn off_the_curve() -> Hello {
    let hello = Hello::good().with(GROUPS, long(&words(&[0x0017])));
    hello.with(KEY_SHARE, long(&share(0x0017, &[&[4][..], &[9; 64]].concat())))
}

fn twice() -> Hello {
    let mut hello = Hello::good();
    hello.extensions.push(hello.extensions[1].clone());
    hello
}

fn unknown_extensions(count: u16) -> Hello {
    let mut hello = Hello::good();
    hello.extensions.extend((0..count).map(|n| (0x3a00 + n, vec![1; 3])));
    hello
}

/// A whole handshake whose protocols are these.
fn named(name: &str, names: &'static [&'static [u8]]) -> Attack {
    Attack::new("names", name, NO_PROTOCOL, move |target| {
        let client = config(&target.setup.file("tls/ca.pem"), None, names);
        match connect(client, &target.open).and_then(|mut stream| stream.read(&mut [0])) {
            Ok(_) => Outcome::Closed,
            Err(error) => outcome_of(&error),
        }
    })
}

/// Names of protocols and of servers.
fn names() -> Vec<Attack> {
    let good = Hello::good;
    let of = |name: &str, hello: Hello, outcome| says("names", name, hello.record(), outcome);
    let many: Vec<Vec<u8>> = (0..1000).map(|n| format!("protocol/{n}").into_bytes()).collect();
    let mut many: Vec<&[u8]> = many.iter().map(Vec::as_slice).collect();
    many.push(b"rocketbufs/1");
    vec![
        named("no protocol", &[]),
        named("the protocol of web sites", &[b"h2", b"http/1.1"]),
        named("a later version of the protocol", &[b"rocketbufs/2"]),
        named("the protocol in capitals", &[b"ROCKETBUFS/1"]),
        of(
            "1,000 other protocols before the right one",
            good().with(PROTOCOLS, protocols(&many)),
            Outcome::Harmless,
        ),
        of("an empty list of protocols", good().with(PROTOCOLS, long(&[])), DECODE),
        of("a protocol without a name", good().with(PROTOCOLS, protocols(&[b""])), DECODE),
        of("a protocol whose name is longer than its list", good().with(PROTOCOLS, long(b"\xffx")), DECODE),
        of(
            "another server's name",
            good().with(SERVER_NAME, server_name(0, b"bank.example")),
            Outcome::Harmless,
        ),
        of("a server's name of 300 letters", good().with(SERVER_NAME, server_name(0, &[b'a'; 300])), ILLEGAL),
        of("a server's name with a NUL", good().with(SERVER_NAME, server_name(0, b"a\0b")), ILLEGAL),
        of("an empty server's name", good().with(SERVER_NAME, server_name(0, b"")), DECODE),
        of(
            "an address as the server's name",
            good().with(SERVER_NAME, server_name(0, b"127.0.0.1")),
            Outcome::Harmless,
        ),
    ]
}

/// Early data, and keys of connections before.
fn keys() -> Vec<Attack> {
    let good = Hello::good;
    let ok = Outcome::Harmless;
    let of = |name: &str, hello: Hello, outcome| says("early data", name, hello.record(), outcome);
    let modes = |hello: Hello| hello.with(MODES, short(&[1]));
    let early = || modes(good()).with(EARLY_DATA, vec![]).with(PRE_SHARED_KEY, stolen_key());
    let data: Vec<u8> = (0..20).flat_map(|_| record(23, &[0x33; 1000])).collect();
    let uneven = [long(&[long(&[1; 10]), vec![0; 4]].concat().repeat(3)), long(&short(&[7; 32]))].concat();
    let many = [long(&[long(&[1; 40]), vec![0; 4]].concat().repeat(100)), long(&short(&[7; 32]).repeat(100))]
        .concat();
    vec![
        of(
            "a key of a connection that there never was",
            modes(good()).with(PRE_SHARED_KEY, stolen_key()),
            ok,
        ),
        of("early data with such a key", early(), ok),
        of("early data without a key", modes(good()).with(EARLY_DATA, vec![]), ok),
        Attack::raw(
            "early data",
            "20 records of early data behind it",
            vec![Step::Send(early().record()), Step::Send(data), Step::End],
            Outcome::Closed,
        ),
        of("a key that is not the last extension", modes(good().with(PRE_SHARED_KEY, stolen_key())), ILLEGAL),
        of("a key without its modes", good().with(PRE_SHARED_KEY, stolen_key()), MISSING),
        of(
            "a key without an exchange of keys",
            good().with(MODES, short(&[0])).with(PRE_SHARED_KEY, stolen_key()),
            ok,
        ),
        of(
            "no identity of a key",
            modes(good()).with(PRE_SHARED_KEY, [long(&[]), long(&[])].concat()),
            DECODE,
        ),
        of("three identities and one binder", modes(good()).with(PRE_SHARED_KEY, uneven), ILLEGAL),
        of("100 keys", modes(good()).with(PRE_SHARED_KEY, many), ok),
    ]
}

/// Messages that are cut, late, too long, or not the first.
pub fn messages() -> Vec<Attack> {
    let good = Hello::good();
    let (whole, body) = (good.message(), good.body());
    let of = |name: &str, bytes: Vec<u8>, outcome| says("first records of TLS", name, bytes, outcome);
    let ccs = || record(20, &[1]);
    let mut all: Vec<Attack> = (0..whole.len())
        .step_by(7)
        .map(|at| {
            let name = format!("a ClientHello cut after {at} of {} bytes", whole.len());
            let steps = vec![Step::Send(good.record()[..5 + at].to_vec()), Step::End];
            Attack::raw("first records of TLS", &name, steps, Outcome::Closed)
        })
        .collect();
    all.extend((0..body.len()).step_by(7).map(|at| {
        let name = format!("a shorter ClientHello cut after {at} of {} bytes", body.len());
        // Without extensions it is one of TLS 1.2.
        let outcome = if at == WITHOUT_EXTENSIONS { NO_COMMON } else { DECODE };
        of(&name, record(HANDSHAKE, &message(1, &body[..at])), outcome)
    }));
    let pieces: Vec<u8> = whole.iter().flat_map(|byte| record(HANDSHAKE, &[*byte])).collect();
    let padded = Hello::good().with(21, vec![0; 60_000]).message();
    let parts =
        |bytes: &[u8]| bytes.chunks(16_384).flat_map(|part| record(HANDSHAKE, part)).collect::<Vec<_>>();
    let announced = [&[1, 255, 255, 255][..], &body].concat();
    all.extend([
        of("a ClientHello in records of a byte", pieces, Outcome::Harmless),
        of("a ClientHello of 60 KiB", parts(&padded), Outcome::Harmless),
        of("a message of 16 MiB, announced", record(HANDSHAKE, &announced), Outcome::Closed),
        of(
            "a ClientHello with a byte more",
            record(HANDSHAKE, &message(1, &[&body[..], b"\0"].concat())),
            DECODE,
        ),
        of("two ClientHellos in a record", record(HANDSHAKE, &whole.repeat(2)), UNEXPECTED),
        of("a record of 65,535 bytes, announced", b"\x16\x03\x01\xff\xff\x01".to_vec(), DECODE),
        of("an empty record of the handshake", record(HANDSHAKE, b""), DECODE),
        of("a record of TLS 4", b"\x16\x04\x00\x00\x01\x01".to_vec(), DECODE),
        of("a change of ciphers before all", ccs(), UNEXPECTED),
        of("data before the handshake", record(23, b"hello"), UNEXPECTED),
        of("a heartbeat that asks for 64 KiB", record(24, b"\x01\xff\xff"), DECODE),
        of("an alert at once", record(21, &[2, 40]), Outcome::Closed),
        of("close_notify at once", record(21, &[1, 0]), Outcome::Closed),
        of("an alert of a byte", record(21, &[2]), DECODE),
    ]);
    all.extend(others());
    all.extend(second());
    all
}

/// Other messages than a ClientHello.
fn others() -> Vec<Attack> {
    let of = |name: &str, bytes: Vec<u8>, outcome| says("first records of TLS", name, bytes, outcome);
    let kinds: [(u8, &str); 8] = [
        (0, "HelloRequest"),
        (2, "ServerHello"),
        (4, "NewSessionTicket"),
        (8, "EncryptedExtensions"),
        (11, "Certificate"),
        (15, "CertificateVerify"),
        (20, "Finished"),
        (99, "an unknown message"),
    ];
    let all = kinds.map(|(kind, name)| {
        // Some are not even read, as 40 zeros are none of them.
        let outcome = if [4, 8, 11, 15].contains(&kind) { DECODE } else { UNEXPECTED };
        of(&format!("{name} as the first message"), record(HANDSHAKE, &message(kind, &[0; 40])), outcome)
    });
    all.into()
}

/// The messages after the first one.
fn second() -> Vec<Attack> {
    let good = Hello::good();
    let retried = Hello::good().with(KEY_SHARE, long(&[]));
    let of =
        |name: &str, steps: Vec<Step>, outcome| Attack::raw("second records of TLS", name, steps, outcome);
    let first = || Step::Send(good.record());
    let send = |kind, content: &[u8]| Step::Send(record(kind, content));
    let ccs = |count: usize| Step::Send(record(20, &[1]).repeat(count));
    vec![
        of("the end of the connection", vec![first(), Step::Hear, Step::End], Outcome::Closed),
        of("the same ClientHello again", vec![first(), Step::Hear, first(), Step::End], Outcome::Closed),
        of("data in plain text", vec![first(), Step::Hear, send(23, &[1; 100]), Step::End], Outcome::Closed),
        of(
            "a record that nobody encrypted",
            vec![first(), Step::Hear, send(23, &[1; 60]), Step::End],
            Outcome::Closed,
        ),
        of("an empty record", vec![first(), Step::Hear, send(23, b""), Step::End], Outcome::Closed),
        of("100 changes of ciphers", vec![first(), Step::Hear, ccs(100), Step::End], Outcome::Closed),
        of("a change of ciphers to 2", vec![first(), Step::Hear, send(20, &[2]), Step::End], Outcome::Closed),
        of(
            "Finished in plain text",
            vec![first(), Step::Hear, send(22, &message(20, &[1; 32])), Step::End],
            Outcome::Closed,
        ),
        of(
            "a second ClientHello without the key share that was asked for",
            vec![Step::Send(retried.record()), Step::Hear, Step::Send(retried.record())],
            ILLEGAL,
        ),
        of(
            "a second ClientHello with other suites",
            vec![
                Step::Send(retried.record()),
                Step::Hear,
                Step::Send(Hello { suites: vec![0x1304], ..good.clone() }.record()),
            ],
            NO_COMMON,
        ),
    ]
}
