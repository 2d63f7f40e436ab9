//! The conformance suite over TLS: as it comes, with the smallest buffers, and cut at every byte.

use rocketnet::tcp::{Carry, TcpConfig};

use crate::authority::{Authority, tls};
use crate::lab::{Cut, TcpLab};

fn over_tls(lab: TcpLab) -> TcpLab {
    let config = TcpConfig { tls: Some(tls(Authority::new().server())), ..lab.config.clone() };
    TcpLab { config, ..lab }
}

/// Local sockets are off here, as the addresses of the proxies are no listener's.
fn auto() -> TcpLab {
    let config = TcpConfig { carry: Carry::Auto, ..TcpConfig::default() };
    let cut = Cut { max_write: 1 << 20, max_read: 1 << 20 };
    over_tls(TcpLab { cut: Some(cut), ..TcpLab::new(config, 4 << 20) })
}

rocketnet::conformance_tests!(plain, over_tls(TcpLab::plain()));
rocketnet::conformance_tests!(auto, auto());
rocketnet::conformance_tests!(smallest_buffers, over_tls(TcpLab::smallest_buffers()));
rocketnet::conformance_tests!(every_byte, over_tls(TcpLab::cut(1, 4_096, 100_000)));
rocketnet::conformance_tests!(odd_pieces, over_tls(TcpLab::cut(13, 7_000, 400_000)));
