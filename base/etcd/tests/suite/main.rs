//! Tests with a real etcd, and with one that lies.

mod hostile;
mod presence;
mod real;

use std::time::{Duration, Instant};

use etcd::{Client, ClientSettings, Endpoint};

/// A client of these endpoints.
fn client(endpoints: &[String], timeout: Duration) -> Client {
    Client::new(settings(endpoints, timeout))
}

fn settings(endpoints: &[String], timeout: Duration) -> ClientSettings {
    let endpoints = endpoints.iter().map(|url| url.parse::<Endpoint>().expect("an endpoint")).collect();
    ClientSettings { endpoints, tls: None, login: None, timeout }
}

/// The time at which a wait is over.
fn long() -> Instant {
    Instant::now() + testkit::LONG
}
