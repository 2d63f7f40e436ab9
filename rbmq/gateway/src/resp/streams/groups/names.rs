//! Names of groups are bytes for clients, and letters, digits and `. _ -` for the broker: other bytes are written as `_XX`, reversibly.
//!
//! ```text
//!   client   billing   a_b   my:group     _3A       .x
//!   broker   billing   a_b   my_3Agroup   _5F3A     _2Ex
//! ```
//!
//! A `_` is written as `_5F` only where it would be read as an escape.

use rbmq_wire::GroupName;

use crate::resp::parse::hex_byte;

/// The group of a name. None: it is empty, or too long.
pub fn group_of(name: &[u8]) -> Option<GroupName> {
    const LONGEST: usize = 64;
    if name.len() > LONGEST {
        return None;
    }
    let mut text = String::with_capacity(name.len());
    for (at, byte) in name.iter().enumerate() {
        let is_plain = match byte {
            b'.' => at > 0,
            b'_' => escaped(&name[at..]).is_none(),
            other => other.is_ascii_alphanumeric() || *other == b'-',
        };
        match is_plain {
            true => text.push(char::from(*byte)),
            false => text.push_str(&format!("_{byte:02X}")),
        }
    }
    text.parse().ok()
}

/// The name of a group.
pub fn name_of(group: &GroupName) -> Vec<u8> {
    let (mut rest, mut name) = (group.as_str().as_bytes(), Vec::new());
    while let Some((&first, behind)) = rest.split_first() {
        match escaped(rest) {
            Some(byte) => {
                name.push(byte);
                rest = &rest[3..];
            }
            None => {
                name.push(first);
                rest = behind;
            }
        }
    }
    name
}

/// The byte whose escape is here, if there is one.
fn escaped(text: &[u8]) -> Option<u8> {
    let [b'_', digits @ ..] = text.get(..3)? else { return None };
    if digits.iter().any(u8::is_ascii_lowercase) {
        return None;
    }
    hex_byte(digits)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_that_the_broker_has_too_are_their_own() {
        for (name, group) in [
            (&b"billing"[..], "billing"),
            (b"a_b", "a_b"),
            (b"a_", "a_"),
            (b"my:group", "my_3Agroup"),
            (b"_3A", "_5F3A"),
            (b".x", "_2Ex"),
            (b"x.y", "x.y"),
            (b"\xFF", "_FF"),
        ] {
            let found = group_of(name).expect("a name");
            assert_eq!((found.as_str(), name_of(&found)), (group, name.to_vec()));
        }
        assert!(
            group_of(b"").is_none() && group_of(&[b'x'; 65]).is_none() && group_of(&[b':'; 22]).is_none()
        );
    }

    proptest! {
        #[test]
        fn each_name_is_found_again(name in proptest::collection::vec(prop_oneof![any::<u8>(), Just(b'_'), Just(b'A')], 1..20)) {
            let group = group_of(&name).expect("20 bytes have room");
            prop_assert_eq!(name_of(&group), name);
        }
    }
}
