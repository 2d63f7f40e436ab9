//! Playlists and manifests: what an independent parser reads in them, the rules of RFC 8216bis, and random histories.

mod extremes;
mod history;
mod kept;
mod listing;
mod manifests;
mod parsed;
mod rules;
mod tracks;
