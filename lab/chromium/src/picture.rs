//! Pictures of the pages, for people to look at.

use std::path::PathBuf;

use super::driver::Browser;

/// Keeps how the page looks, in the folder that the variable SCREENSHOTS names.
pub fn keep(browser: &Browser, name: &str) {
    let Some(folder) = std::env::var_os("SCREENSHOTS").map(PathBuf::from) else { return };
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(format!("{name}.webp")), decode(&browser.screenshot())).unwrap();
}

/// The bytes of a text in Base64.
fn decode(text: &str) -> Vec<u8> {
    let value = |letter: u8| match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let letters: Vec<u8> = text.bytes().filter(|letter| *letter != b'=').map(value).collect();
    let mut bytes = Vec::with_capacity(letters.len() / 4 * 3);
    for group in letters.chunks(4) {
        let bits =
            group.iter().fold(0_u32, |bits, own| bits << 6 | u32::from(*own)) << (6 * (4 - group.len()));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    bytes
}
