//! The ingest servers over real sockets: encoders, their mistakes, and peers that are none.

mod encoders;
mod hostile;
mod http;
mod material;
mod node;
mod rtmp;
