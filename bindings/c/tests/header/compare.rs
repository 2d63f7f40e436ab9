//! The comparison of a committed header with the one that cbindgen generates. The crate of RBLive's C API uses it too.

use std::path::Path;

/// Compares `include/NAME` with the header of the crate in `folder`. UPDATE=1 writes the committed header.
pub fn is_up_to_date(folder: &Path, name: &str) {
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).expect("cbindgen.toml is valid");
    let mut generated = Vec::new();
    cbindgen::Builder::new()
        .with_crate(folder)
        .with_config(config)
        .generate()
        .expect("cbindgen understands the crate")
        .write(&mut generated);
    let header = folder.join("../include").join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&header, &generated).expect("the header can be written");
    }
    let committed = std::fs::read(&header).unwrap_or_default();
    assert!(committed == generated, "bindings/include/{name} is out of date; UPDATE=1 cargo test writes it");
}
