//! `bindings/include/rocketbufs.h` is what cbindgen makes of the crate.

mod compare;

use std::path::Path;

#[test]
fn the_header_is_up_to_date() {
    compare::is_up_to_date(Path::new(env!("CARGO_MANIFEST_DIR")), "rocketbufs.h");
}
