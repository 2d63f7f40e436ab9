//! rocketring
