//! Every level and every subset of levels, by the conformance suite; and a level beside a plain vector, with drawn operations.

use multimqc::{Batch, Epoch, TopicId};
use multimqc_conformance::{Disk, Lab, Model, User, pattern};
use proptest::prelude::*;

#[test]
fn the_user_level_conforms() {
    multimqc_conformance::level(&User);
}

#[test]
fn the_disk_level_conforms() {
    multimqc_conformance::level(&Disk::default());
}

#[test]
fn every_subset_of_levels_conforms() {
    let labs = crate::labs();
    multimqc_conformance::stack(&labs.iter().map(|lab| &**lab).collect::<Vec<_>>());
}

#[derive(Debug, Clone)]
enum Op {
    Append(Vec<usize>),
    Write { distance: i64, length: usize },
    Read { back: u64, length: usize },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        proptest::collection::vec(0..40_000_usize, 0..4).prop_map(Op::Append),
        (prop_oneof![Just(0), -70_000..70_000_i64], 0..40_000_usize)
            .prop_map(|(distance, length)| Op::Write { distance, length }),
        (0..900_000_u64, 0..70_000_usize).prop_map(|(back, length)| Op::Read { back, length }),
    ];
    proptest::collection::vec(op, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever is done to it, the level has the bytes of the vector, or says why not.
    #[test]
    fn the_user_level_is_a_vector_that_forgets(ops in ops()) {
        let (level, mut model) = (User.level(1 << 19, 4096), Model::default());
        let topic = TopicId(1);
        level.open(topic, 0, Epoch(1)).expect("a topic");
        for op in ops {
            match op {
                Op::Append(lengths) => {
                    let messages: Vec<Vec<u8>> = lengths.iter().map(|&n| pattern(n as u64, n)).collect();
                    let appended = level.append(topic, &mut messages.iter().map(|m| &m[..])).expect("room");
                    prop_assert_eq!(appended.offset, model.head());
                    messages.iter().for_each(|message| model.append(message));
                }
                Op::Write { distance, length } => {
                    let offset = model.head().saturating_add_signed(distance);
                    let bytes = pattern(offset, length);
                    let batch = Batch { offset, bytes: &bytes };
                    let placed = batch.place(model.head());
                    let written = level.write(topic, batch).expect("room");
                    prop_assert_eq!((written.hole, written.repeated), (placed.hole, placed.repeated));
                    model.write(batch);
                }
                Op::Read { back, length } => {
                    let from = model.head().saturating_sub(back);
                    let mut bytes = vec![0; length];
                    let found = level.read(topic, from, &mut bytes).expect("it works");
                    // Of 512 KiB an eighth is announced, and a batch may be announced beyond that.
                    model.check(from, length, found, &bytes, (1 << 19) * 3 / 4);
                }
            }
            let window = level.window(topic).expect("open");
            prop_assert_eq!(window.head, model.head());
        }
    }
}
