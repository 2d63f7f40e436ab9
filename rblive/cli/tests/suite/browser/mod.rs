//! The pages in Chromium, one browser at a time. Without Chromium and its driver the tests say that they are skipped.

mod accessible;
mod control;
mod driver;
mod glass;
mod moves;
mod node;
mod page;
mod picture;
mod recordings;
