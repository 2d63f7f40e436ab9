//! Load for servers of live video. The command `rblive-load` publishes streams whose every byte can be checked, and is many viewers that
//! check what they get, of any server that speaks RTMP and HLS. This library has the frames, for programs that make them themselves.

#![forbid(unsafe_code)]

pub mod stamp;
