//! The web server of a delivery node: playlists and segments for viewers, straight from the rings of [`rblive`].

#![deny(unsafe_code)]
