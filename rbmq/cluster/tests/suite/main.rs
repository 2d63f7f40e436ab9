//! Tests with a real etcd, and with a model of it.

mod members;
mod model;

use std::time::Duration;

use rbmq_cluster::etcd::{Client, ClientSettings, Endpoint};

/// A client of these endpoints.
fn client(endpoints: &[String], timeout: Duration) -> Client {
    Client::new(settings(endpoints, timeout))
}

fn settings(endpoints: &[String], timeout: Duration) -> ClientSettings {
    let endpoints = endpoints.iter().map(|url| url.parse::<Endpoint>().expect("an endpoint")).collect();
    ClientSettings { endpoints, tls: None, login: None, timeout }
}
