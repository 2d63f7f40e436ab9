//! Servers that take live video from encoders and write it into the streams of a dissemination node.
//!
//! The bytes go into chunks of [`rblive`], which disseminates them to the delivery nodes.

#![forbid(unsafe_code)]
