//! A delivery server in front of real rings: an ingest node disseminates, viewers fetch.

mod answers;
mod bad_requests;
mod frames;
mod kept;
mod lab;
mod ladders;
mod lives;
mod overtaken;
mod players;
mod protocols;
mod viewer;
mod webrtc;
