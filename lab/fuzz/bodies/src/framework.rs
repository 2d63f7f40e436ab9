//! RocketBufs: control messages of a peer, and configuration files.

use rocketbufs::Config;
use rocketbufs::proto::Message;

/// Decoding accepts exactly the bytes that encoding produces.
pub fn protocol_message(data: &[u8]) {
    if let Ok(message) = Message::decode(data) {
        assert_eq!(message.encode(), data, "{message:?} is encoded differently");
    }
}

/// Any text is a valid configuration, or an error with a message.
pub fn config_toml(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match Config::from_toml(&text) {
        Ok(config) => config.validate().expect("an accepted configuration is valid"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
