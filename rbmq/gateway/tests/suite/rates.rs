//! Limits on bytes per second: what is beyond them waits, and nothing is lost.

use std::time::{Duration, Instant};

use rbmq_broker::{BrokerConfig, GatewayProtocol};

use crate::site::Site;

const RATE: u64 = 200_000;
const BURST: u64 = 20_000;
const MESSAGES: usize = 100;

fn limited(limit: impl FnOnce(&mut BrokerConfig, Option<u64>)) -> Site {
    Site::with(GatewayProtocol::Resp, |config| {
        limit(config, Some(RATE));
        config.quotas.rate_burst_ms = Some(u32::try_from(BURST * 1_000 / RATE).expect("milliseconds"));
    })
}

/// The least time that so many bytes take. The last piece is charged when it is there, and delays nobody here.
fn least(bytes: usize) -> Duration {
    let beyond = bytes as u64 - BURST - (8 << 10);
    Duration::from_millis(beyond * 1_000 / RATE)
}

fn publish(at: usize) -> String {
    format!("*3\r\n$7\r\nPUBLISH\r\n$4\r\nnews\r\n$1000\r\n{at:1000}\r\n")
}

#[test]
fn what_clients_send_beyond_the_limit_of_their_address_waits() {
    let site = limited(|config, rate| config.quotas.address_in_bytes_per_s = rate);
    let began = Instant::now();
    // Both have the same bucket.
    let mut clients = [site.client(), site.client()];
    let commands: String = (0..MESSAGES / 2).map(publish).collect();
    clients.iter_mut().for_each(|client| client.send(&commands));
    clients.iter_mut().for_each(|client| client.expect(":0\r\n".repeat(MESSAGES / 2)));
    assert!(began.elapsed() >= least(2 * commands.len()), "{:?}", began.elapsed());
}

#[test]
fn what_waits_for_clients_beyond_the_limit_of_their_address_comes_later() {
    let site = limited(|config, rate| config.quotas.address_out_bytes_per_s = rate);
    let mut clients = [site.client(), site.client()];
    for client in &mut clients {
        client.ask("SUBSCRIBE news\r\n", "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n");
    }
    let began = Instant::now();
    let commands: String = (0..MESSAGES / 2).map(publish).collect();
    let mut publisher = site.client();
    publisher.send(&commands);
    let messages = commands.replace("$7\r\nPUBLISH", "$7\r\nmessage");
    clients.iter_mut().for_each(|client| client.expect(&messages));
    publisher.expect(":2\r\n".repeat(MESSAGES / 2));
    assert!(began.elapsed() >= least(2 * messages.len()), "{:?}", began.elapsed());
}
