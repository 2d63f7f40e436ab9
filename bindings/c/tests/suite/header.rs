//! The headers in `bindings/include` are what cbindgen makes of the crates.

use std::path::Path;

/// Compares `include/NAME` with the header of the crate in a folder of `bindings`. UPDATE=1 writes the committed header.
fn is_up_to_date(folder: &str, name: &str) {
    let bindings = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = bindings.join(folder);
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).expect("cbindgen.toml is valid");
    let mut generated = Vec::new();
    cbindgen::Builder::new()
        .with_crate(folder)
        .with_config(config)
        .generate()
        .expect("cbindgen understands the crate")
        .write(&mut generated);
    let header = bindings.join("include").join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&header, &generated).expect("the header can be written");
    }
    let committed = std::fs::read(&header).unwrap_or_default();
    assert!(committed == generated, "bindings/include/{name} is out of date; UPDATE=1 cargo test writes it");
}

#[test]
fn the_header_of_rocketbufs_is_up_to_date() {
    is_up_to_date("c", "rocketbufs.h");
}

#[test]
fn the_header_of_rocketstreams_is_up_to_date() {
    is_up_to_date("rblive-c", "rocketstreams.h");
}
