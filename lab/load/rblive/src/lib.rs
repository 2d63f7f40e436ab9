//! Load for servers of live video. The command `rblive-load` publishes streams whose every byte can be checked, and is many viewers that
//! check what they get, of any server that speaks RTMP and HLS. This library has what other programs need
//! for loads of their own: the frames, and TLS that accepts every certificate.

#![forbid(unsafe_code)]

mod accept_all;
pub mod stamp;

pub use accept_all::AcceptAll;
