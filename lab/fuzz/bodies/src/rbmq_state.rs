//! The state file beside an output of `rbmq sub`.

use rbmq::OutputState;

/// An accepted text encodes to the same text, and its contents are bounded.
pub fn rbmq_state(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Some(state) = OutputState::parse(text) else { return };
    assert_eq!(OutputState::parse(&state.to_string()).as_ref(), Some(&state));
    let positions = state.positions();
    assert!(positions.len() <= text.lines().count() - 3, "a line for each");
    assert!(positions.iter().all(|(epoch, position)| state.position(*epoch) == Some(*position)));
}
