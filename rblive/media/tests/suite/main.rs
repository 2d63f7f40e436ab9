//! The formats of live video, as their users call them.

mod clocks;
mod ffmpeg;
mod frames;
mod ladder;
mod lengths;
mod live;
mod playlists;
mod sound;
mod still;
mod timeline;
mod timing;
