//! Compiles the ends in C, and links the libraries that they use. pkg-config finds the libraries, RocketBufs' among them.

use std::process::ExitCode;

const LIBRARIES: [(&str, &str); 5] = [
    ("rocketbufs", "rbmq"),
    ("hiredis", "hiredis"),
    ("libnats", "nats"),
    ("librabbitmq", "rabbitmq"),
    ("libzmq", "zeromq"),
];

fn main() -> ExitCode {
    let mut build = cc::Build::new();
    build.std("gnu11").opt_level(3).warnings(true).extra_warnings(true).warnings_into_errors(true);
    for (library, end) in LIBRARIES {
        let file = format!("ends/{end}.c");
        println!("cargo:rerun-if-changed={file}");
        build.file(file);
        match pkg_config::probe_library(library) {
            Ok(found) => {
                build.includes(&found.include_paths);
                for folder in &found.link_paths {
                    println!("cargo:rustc-link-arg=-Wl,-rpath,{}", folder.display());
                }
            }
            Err(error) => {
                eprintln!("{library}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    println!("cargo:rerun-if-changed=ends/end.h");
    build.compile("ends");
    ExitCode::SUCCESS
}
