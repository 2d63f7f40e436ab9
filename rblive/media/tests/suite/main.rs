//! The formats of live video, as their users call them.

mod ffmpeg;
mod ladder;
mod playlists;
mod still;
mod timeline;
mod timing;
