//! A broker with a gateway, and clients that write bytes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rbmq_broker::{Broker, BrokerConfig, GatewayProtocol, GatewaySettings};
use rbmq_gateway::Gateways;

pub const LONG: Duration = Duration::from_secs(60);

/// A broker with one gateway.
pub struct Site {
    // Dropped first.
    gateways: Gateways,
    pub broker: Broker,
}

impl Site {
    /// With everybody's rights for everybody.
    pub fn new(protocol: GatewayProtocol) -> Self {
        Self::with(protocol, |_| {})
    }

    pub fn with(protocol: GatewayProtocol, set: impl FnOnce(&mut BrokerConfig)) -> Self {
        let mut config = BrokerConfig::default();
        config.broker.listen = "127.0.0.1:0".into();
        let mut gateway = GatewaySettings::new(protocol);
        gateway.listen = Some("127.0.0.1:0".into());
        config.outside.gateway.push(gateway);
        set(&mut config);
        let broker = Broker::start(config).expect("a broker starts");
        let gateways = Gateways::start(&broker).expect("its gateway starts");
        Self { gateways, broker }
    }

    pub fn address(&self) -> SocketAddr {
        self.gateways.list()[0].address()
    }

    /// The addresses of all gateways.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.gateways.list().iter().map(|gateway| gateway.address()).collect()
    }

    /// The address of the gateway of another protocol, which `set` has added.
    pub fn address_of(&self, protocol: GatewayProtocol) -> SocketAddr {
        let mut all = self.gateways.list().iter();
        all.find(|gateway| gateway.protocol() == protocol).expect("it was added").address()
    }

    pub fn client(&self) -> Client {
        Client::to(self.address())
    }
}

/// A connection.
pub struct Client(BufReader<TcpStream>);

impl Client {
    pub fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the gateway listens");
        stream.set_read_timeout(Some(LONG)).expect("a socket");
        stream.set_nodelay(true).expect("a socket");
        Self(BufReader::with_capacity(1 << 20, stream))
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.get_mut().write_all(bytes.as_ref()).expect("the gateway reads");
    }

    /// The next bytes, as many as are expected.
    pub fn expect(&mut self, expected: impl AsRef<[u8]>) {
        let expected = expected.as_ref();
        let mut got = vec![0; expected.len()];
        self.0.read_exact(&mut got).expect("the gateway sends");
        assert!(got == expected, "{}\nand not\n{}", shown(&got), shown(expected));
    }

    /// The next bytes.
    pub fn take(&mut self, count: usize) -> Vec<u8> {
        let mut got = vec![0; count];
        self.0.read_exact(&mut got).expect("the gateway sends");
        got
    }

    pub fn ask(&mut self, bytes: impl AsRef<[u8]>, expected: impl AsRef<[u8]>) {
        self.send(bytes);
        self.expect(expected);
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("the gateway sends");
        line
    }

    /// Whether the gateway has ended the connection, after what was expected.
    pub fn has_ended(&mut self) -> bool {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).map_or(true, |_| rest.is_empty())
    }

    pub fn split(&self) -> TcpStream {
        self.0.get_ref().try_clone().expect("a descriptor")
    }
}

fn shown(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(500)].escape_ascii().to_string()
}
