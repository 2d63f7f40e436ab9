//! rocketbufs
