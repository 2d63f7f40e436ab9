//! A reverse proxy in front of a node: nginx, as Debian has it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use testkit::{LONG, Process, awaited, own_addr, skip, until};

use crate::http;
use crate::process::{Serving, serve};
use crate::publish::{Publisher, RATE};

/// nginx: that of the machine, or the package of its distribution, unpacked into a folder.
fn nginx(folder: &Path) -> Option<PathBuf> {
    let runs =
        |program: &Path| Command::new(program).arg("-v").output().is_ok_and(|said| said.status.success());
    let unpacked = folder.join("usr/sbin/nginx");
    let installed = ["nginx", "/usr/sbin/nginx"].map(PathBuf::from).into_iter().find(|program| runs(program));
    let found = installed.or_else(|| {
        let unpack =
            "apt-get -qq download nginx && for package in *.deb; do dpkg-deb -x $package . || exit 1; done";
        let mut command = Command::new("sh");
        command.args(["-c", unpack]).current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null());
        let is_there = command.status().is_ok_and(|status| status.success()) && runs(&unpacked);
        is_there.then_some(unpacked)
    });
    if found.is_none() {
        skip("a proxy in front (there is no nginx, and apt-get cannot download it)");
    }
    found
}

/// nginx with the viewers' address of a node below `/tv/`, as docs/RBLIVE.md has it.
fn front(program: &Path, folder: &Path, viewers: &str) -> (Process, String) {
    let address = own_addr();
    let at = folder.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {at}/{kind};"))
        .concat();
    // One process: what ends the test ends it with all that it has.
    let text = format!(
        "daemon off; master_process off; pid {at}/nginx.pid; error_log {at}/error.log; events {{ }}\n\
         http {{ access_log off; {temporary}\n\
         server {{ listen {address}; location /tv/ {{\n\
         proxy_pass https://{viewers}/;\n\
         proxy_http_version 1.1;\n\
         proxy_set_header Connection \"\";\n\
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n\
         proxy_buffering off;\n\
         }} }} }}\n"
    );
    let file = folder.join("nginx.conf");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(program);
    command.arg("-p").arg(folder).arg("-c").arg(&file).arg("-e").arg(folder.join("error.log"));
    (Process::start(command), address)
}

/// The node has its default TLS, which nginx of Debian 12 speaks in version 1.2.
#[test]
#[ignore = "long: needs nginx, which it downloads"]
fn debians_nginx_in_front_below_a_path_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = nginx(folder.path()) else { return };
    let file = folder.path().join("node.toml");
    let text = "[control]\nlisten = ''\n[deliver]\nlisten = '127.0.0.1:0'\nproxies = ['127.0.0.1']\n\
                max_connections = 8\n[ingest]\nrtmp = '127.0.0.1:0'\nsegment_ms = 1000\n\
                [[rules]]\nstreams = '*'\nnodes = ['local']\n";
    std::fs::write(&file, text).unwrap();
    let serving = Serving::start(serve(&file));
    let [encoders, viewers] =
        ["encoders at rtmp://", "viewers at https://"].map(|before| serving.address(before));
    let (_nginx, address) = front(&program, folder.path(), &viewers);
    until("nginx answers", || http::get(&address, "/tv/health", "").is_some());
    let mut publisher = Publisher::connect(&encoders, "camera");
    (0..3 * RATE + 1).for_each(|number| publisher.push(number));
    let list = awaited(LONG, "three segments", || {
        let (status, list) = http::get(&address, "/tv/live/camera/1/media.m3u8", "")?;
        let list = String::from_utf8(list).unwrap();
        (status == 200 && list.matches("#EXTINF").count() >= 3).then_some(list)
    });
    for uri in list.lines().filter(|line| line.ends_with(".m4s")) {
        let (status, segment) = http::get(&address, &format!("/tv/live/camera/1/{uri}"), "").unwrap();
        assert!(status == 200 && !segment.is_empty(), "{uri}");
    }
    for path in ["", "page.js", "page.css", "player.js", "hls.js", "icon.svg", "streams", "vod"] {
        assert_eq!(http::get(&address, &format!("/tv/{path}"), "").map(|got| got.0), Some(200), "{path}");
    }
    assert_eq!(http::get(&address, "/tv/live/camera", "").map(|got| got.0), Some(302));
    serving.process.signal("INT");
    serving.process.finish().good();
}
