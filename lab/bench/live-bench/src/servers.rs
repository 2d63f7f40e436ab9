//! Servers of others, each with what it needs for a measurement.

use std::fs;
use std::path::{Path, PathBuf};

use testkit::own_addr;

use crate::failure::Result;
use crate::lab::{Program, SERVER, listening, on};

pub fn redis(core: &str) -> Result<(Program, String)> {
    let address = own_addr();
    let port = address.rsplit_once(':').map_or("", |(_, port)| port);
    let program = benchkit::server::find("redis-server").ok_or("there is no redis-server")?;
    let mut command = on(core, &program);
    command.args(["--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    command.args(["--client-output-buffer-limit", "pubsub 0 0 0"]);
    Ok((listening(command, &address)?, address))
}

/// A certificate of the kind that RBLive makes for itself.
pub fn certificate(folder: &Path) -> Result<(PathBuf, PathBuf)> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    let (certificate, key) = (folder.join("chain.pem"), folder.join("key.pem"));
    fs::write(&certificate, made.cert.pem())?;
    fs::write(&key, made.signing_key.serialize_pem())?;
    Ok((certificate, key))
}

/// The configuration of nginx: a single worker, no log, files stay open.
fn nginx_configuration(folder: &Path, address: &str) -> Result<PathBuf> {
    let text = format!(
        "daemon off; worker_processes 1; pid nginx.pid; error_log stderr crit; user root;\n\
         events {{ worker_connections 20000; }}\n\
         http {{ access_log off; sendfile on; tcp_nodelay on; keepalive_timeout 75; keepalive_requests 1000000;\n\
         open_file_cache max=10000 inactive=30s; open_file_cache_valid 1s; types {{ video/mp4 m4s; }}\n\
         client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi;\n\
         scgi_temp_path scgi;\n\
         server {{ listen {address} ssl backlog=4096; ssl_certificate chain.pem; ssl_certificate_key key.pem;\n\
         ssl_protocols TLSv1.3; root www; location ~ m3u8$ {{ open_file_cache off; }} }} }}\n"
    );
    let file = folder.join("nginx.conf");
    fs::write(&file, text)?;
    Ok(file)
}

pub fn stunnel(folder: &Path, certificate: &Path, key: &Path, to: &str) -> Result<(Program, String)> {
    let program = benchkit::server::find("stunnel4").or_else(|| benchkit::server::find("stunnel"));
    let address = own_addr();
    let text = format!(
        "foreground = quiet\npid =\n[redis]\naccept = {address}\nconnect = {to}\ncert = {}\nkey = {}\n\
         sslVersionMin = TLSv1.3\nsocket = l:TCP_NODELAY=1\nsocket = r:TCP_NODELAY=1\n",
        certificate.display(),
        key.display()
    );
    let file = folder.join("stunnel.conf");
    fs::write(&file, text)?;
    let mut command = on(SERVER, &program.ok_or("there is no stunnel")?);
    command.arg(&file);
    Ok((listening(command, &address)?, address))
}

/// Starts nginx for the folder `www`. `None`: it is not installed.
pub fn nginx(folder: &Path) -> Result<Option<(Program, String)>> {
    let Some(nginx) = benchkit::server::find("nginx") else { return Ok(None) };
    let address = own_addr();
    let mut command = on(SERVER, &nginx);
    command.arg("-p").arg(folder).arg("-c").arg(nginx_configuration(folder, &address)?);
    Ok(Some((listening(command, &address)?, address)))
}
