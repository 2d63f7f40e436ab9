//! The ingest servers over real sockets: encoders, their mistakes, and peers that are none.

mod access;
mod encoders;
mod floods;
mod hostile;
mod http;
mod ladders;
mod material;
mod mp4;
mod node;
mod operators;
mod oversized;
mod passthrough;
mod rtmp;
