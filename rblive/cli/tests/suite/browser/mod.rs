//! The pages in Chromium, one browser at a time. Without Chromium and its driver the tests say that they are skipped.

mod control;
mod glass;
mod moves;
mod node;
mod page;
mod recordings;
