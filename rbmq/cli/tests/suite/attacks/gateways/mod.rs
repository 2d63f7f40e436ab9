//! Hostile exchanges with the gateways: each has a required answer in the words of its protocol, and others lose nothing meanwhile.
//!
//! docs/security/GATEWAY_ATTACKS.md has them as a table, which `ATTACKS_WRITE=1` writes anew.

mod floods;
mod mqtt;
mod mqtt_connect;
mod peer;
mod resp;
mod resp_commands;
mod web;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use testkit::{LONG, own_addr, resident_kib, until};

use super::table::{self, Row};
use crate::common::BrokerProcess;
use mqtt::{body, connect, text};
use peer::Peer;

/// The most memory that the exchanges may add to the broker, whose gateways have it back from clients that are gone only as far as the allocator
/// gives it to the system.
const MAX_GROWTH_KIB: u64 = 256 << 10;

/// How an exchange begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begin {
    /// A client of Redis.
    Redis,
    /// A client of MQTT, which sends the bytes first.
    Stranger,
    /// A client of MQTT 3.1.1 or 5, after a good CONNECT.
    Mqtt(u8),
    /// A client that sends the bytes as its request for WebSocket.
    Request,
    /// A client of WebSocket, after a good request.
    Web,
}

/// An exchange, and what must come of it.
struct Case {
    family: &'static str,
    name: String,
    begin: Begin,
    bytes: Vec<u8>,
    /// The client sends nothing behind the bytes, and closes its side. Otherwise a last question shows whether the connection goes on.
    ends: bool,
    required: String,
}

impl Case {
    fn new(
        family: &'static str,
        begin: Begin,
        name: &str,
        bytes: impl Into<Vec<u8>>,
        required: &str,
    ) -> Self {
        Self { family, name: name.into(), begin, bytes: bytes.into(), ends: false, required: required.into() }
    }

    /// The client closes its side behind the bytes.
    fn ending(self) -> Self {
        Self { ends: true, ..self }
    }

    /// The same bytes cut after each of them but the last.
    fn cuts(family: &'static str, begin: Begin, name: &str, bytes: &[u8], required: &str) -> Vec<Self> {
        let cut = |end: usize| {
            Self::new(family, begin, &format!("{name} cut after {end} bytes"), &bytes[..end], required)
                .ending()
        };
        (1..bytes.len()).map(cut).collect()
    }
}

impl<'a> From<&'a Case> for Row<'a> {
    fn from(case: &'a Case) -> Self {
        Self { family: case.family, name: &case.name, outcome: case.required.clone() }
    }
}

/// A broker with a gateway for each protocol.
struct Site {
    broker: BrokerProcess,
    resp: String,
    mqtt: String,
    web: String,
    _folder: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let [resp, mqtt, web] = [(); 3].map(|()| own_addr());
        let keep = folder.path().join("kept");
        let config = format!(
            "[broker]\nkeep_dir = '{}'\n[[broker.topics]]\npattern = 'k/#'\nkeep = true\n\
             [[gateway]]\nprotocol = 'resp'\nlisten = '{resp}'\n[[gateway]]\nprotocol = 'mqtt'\nlisten = '{mqtt}'\n\
             [[gateway]]\nprotocol = 'mqtt'\nwebsocket = true\nlisten = '{web}'\n",
            keep.display()
        );
        let path = folder.path().join("rbmq.toml");
        std::fs::write(&path, config).expect("a file");
        let broker = BrokerProcess::start_with(&["--config", path.to_str().expect("UTF-8")]);
        for addr in [&resp, &mqtt, &web] {
            until("the gateway listens", || TcpStream::connect(addr).is_ok());
        }
        Self { broker, resp, mqtt, web, _folder: folder }
    }

    fn connect(&self, begin: Begin) -> Peer {
        let addr = match begin {
            Begin::Redis => &self.resp,
            Begin::Stranger | Begin::Mqtt(_) => &self.mqtt,
            Begin::Request | Begin::Web => &self.web,
        };
        Peer::connect(addr, begin)
    }
}

/// Clients that no exchange may disturb: what one of Redis publishes comes to another one, and to one of MQTT.
struct Bystanders {
    publisher: BufReader<TcpStream>,
    redis: BufReader<TcpStream>,
    mqtt: Peer,
    channel: &'static str,
    rounds: u64,
}

impl Bystanders {
    fn new(site: &Site) -> Self {
        Self::of(site, "bystanders")
    }

    fn of(site: &Site, channel: &'static str) -> Self {
        let connect = |addr: &str| {
            let stream = TcpStream::connect(addr).expect("the gateway listens");
            stream.set_read_timeout(Some(LONG)).expect("a time");
            stream.set_nodelay(true).expect("a socket");
            BufReader::new(stream)
        };
        let mut redis = connect(&site.resp);
        redis.get_mut().write_all(format!("SUBSCRIBE {channel}\r\n").as_bytes()).expect("sent");
        let subscribed = (0..6).map(|_| line(&mut redis)).collect::<Vec<_>>();
        assert_eq!(subscribed[5], ":1");
        let mut mqtt = site.connect(Begin::Mqtt(5));
        mqtt.send(&body(0x82, &[&[0, 1, 0], &text(channel)[..], &[0]]));
        assert_eq!(mqtt.packet().expect("an answer").0, 0x90);
        Self { publisher: connect(&site.resp), redis, mqtt, channel, rounds: 0 }
    }

    /// A message arrives at both, and none was lost or repeated since the round before.
    fn go_on(&mut self, after: &str) {
        self.rounds += 1;
        let text = format!("round {}", self.rounds);
        self.publisher
            .get_mut()
            .write_all(format!("PUBLISH {} '{text}'\r\n", self.channel).as_bytes())
            .expect("sent");
        assert_eq!(line(&mut self.publisher), ":1", "after {after}");
        let got = (0..7).map(|_| line(&mut self.redis)).last();
        assert_eq!(got.as_ref(), Some(&text), "after {after}");
        let (_, publish) = self.mqtt.packet().expect("a message");
        assert!(publish.ends_with(text.as_bytes()), "after {after}: {}", publish.escape_ascii());
    }
}

fn line(from: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    from.read_line(&mut line).expect("a line in time");
    line.trim_end().to_owned()
}

fn corpus() -> Vec<Case> {
    let families = [
        resp::frames(),
        resp::lengths(),
        resp::lines(),
        resp::names(),
        resp::long_names(),
        resp::patterns(),
        resp_commands::server(),
        resp_commands::logins(),
        resp_commands::transactions(),
        resp_commands::appends(),
        resp_commands::reads(),
        resp_commands::groups(),
        mqtt_connect::first_packets(),
        mqtt_connect::connects(),
        mqtt_connect::clients(),
        mqtt_connect::wills(),
        mqtt_connect::properties(),
        mqtt::headers(),
        mqtt::publishes(),
        mqtt::aliases(),
        mqtt::properties(),
        mqtt::subscribes(),
        mqtt::filters(),
        mqtt::acknowledgements(),
        mqtt::old(),
        web::requests(),
        web::fields(),
        web::pages(),
        web::cut_requests(),
        web::frames(),
        web::lengths(),
        web::whole_frames(),
        web::closes(),
    ];
    families.into_iter().flatten().collect()
}

#[test]
fn every_client_of_a_gateway_is_answered_as_required_and_others_lose_nothing() {
    let mut site = Site::new();
    let mut bystanders = Bystanders::new(&site);
    bystanders.go_on("the start");
    let before = resident_kib(site.broker.process.id());
    let (corpus, mut wrong) = (corpus(), Vec::new());
    for case in &corpus {
        let found = site.connect(case.begin).answer(case);
        if found != case.required {
            wrong.push(format!("{}: {}: {found:?} instead of {:?}", case.family, case.name, case.required));
        }
        bystanders.go_on(&case.name);
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), corpus.len(), wrong.join("\n"));
    assert!(site.broker.process.is_running());
    let growth = resident_kib(site.broker.process.id()).saturating_sub(before);
    assert!(growth < MAX_GROWTH_KIB, "the broker has {growth} KiB more than before the exchanges");
    table::check("GATEWAY_ATTACKS.md", table::GATEWAYS, &corpus);
}
