//! `include/rocketstreams.h` is what cbindgen makes of the crate.

use std::path::Path;

/// Compares the committed header with the generated one; UPDATE=1 writes it.
#[test]
fn the_header_is_up_to_date() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).expect("cbindgen.toml is valid");
    let mut generated = Vec::new();
    cbindgen::Builder::new()
        .with_crate(folder)
        .with_config(config)
        .generate()
        .expect("cbindgen understands the crate")
        .write(&mut generated);
    let header = folder.join("../../include/rocketstreams.h");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&header, &generated).expect("the header can be written");
    }
    let committed = std::fs::read(&header).unwrap_or_default();
    assert!(committed == generated, "include/rocketstreams.h is out of date; UPDATE=1 cargo test writes it");
}
