//! Gateways with a broker, over sockets. `cargo test -p rbmq-gateway --test suite resp::` runs one protocol.

mod chains;
mod interop;
mod people;
mod rates;
mod resp;
mod site;
mod websocket;
