//! Addresses that other machines can reach, and at which no identity is required.

use std::net::SocketAddr;

use super::config::Config;

/// Checks that only clients that prove their right can send streams to the node, or control it.
///
/// # Errors
/// The first address that is open, and the settings that close it.
pub fn check(config: &Config) -> Result<(), String> {
    let node = config.node.this_node().map_err(|error| error.to_string())?;
    if is_reachable(&node.address) && !config.node.requires_proof() {
        return Err(format!(
            "other machines reach the address {} for nodes, and whoever does can give viewers streams: set dissemination.token_file, or \
             [tls] with mode and client_certificates = \"require\" (docs/security/RBLIVE.md)",
            node.address
        ));
    }
    if is_reachable(&config.control.listen) && config.control.token.is_empty() {
        return Err(format!(
            "other machines reach the control page at {}, and whoever does decides which node gets which stream: set control.token",
            config.control.listen
        ));
    }
    Ok(())
}

/// Whether other machines can reach an address. An address that cannot be resolved is not reachable, since the node cannot listen
/// there.
fn is_reachable(address: &str) -> bool {
    let is_remote = |address: SocketAddr| !address.ip().to_canonical().is_loopback();
    peers::resolve(address).is_ok_and(|all| all.into_iter().any(is_remote))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_other_machines_reach_asks_who_it_is() {
        let config = |change: fn(&mut Config)| {
            let mut config = Config::load(None).unwrap();
            change(&mut config);
            check(&config)
        };
        assert_eq!(config(|_| ()), Ok(()));
        let open = |config: &mut Config| config.node.nodes[0].address = "0.0.0.0:7501".into();
        assert!(config(open).unwrap_err().contains("token_file"));
        assert_eq!(
            config(|config| {
                config.node.nodes[0].address = "192.0.2.1:7501".into();
                config.node.dissemination.token_file = "/etc/rblive/token".into();
            }),
            Ok(())
        );
        let tls = |config: &mut Config| {
            config.node.nodes[0].address = "[::]:7501".into();
            config.node.framework.tls.mode = "require".into();
        };
        assert!(config(tls).is_err(), "whoever has no certificate comes in");
        assert!(
            config(|config| config.control.listen = "0.0.0.0:7480".into())
                .unwrap_err()
                .contains("control.token")
        );
        assert_eq!(
            config(|config| {
                config.control.listen = "0.0.0.0:7480".into();
                config.control.token = "secret".into();
            }),
            Ok(())
        );
        for own in ["127.0.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "localhost:1", ""] {
            assert!(!is_reachable(own), "{own}");
        }
    }
}
