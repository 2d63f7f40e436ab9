//! `probe`: on machines without RDMA it finds nothing and does not fail; in scripts/rdma-vm it finds both devices.

use rocketnet_rdma::{Access, probe};

/// The addresses of the test devices, if there are any (scripts/rdma-vm sets the variable).
fn test_addresses() -> Option<Vec<String>> {
    let text = std::env::var("ROCKETBUFS_TEST_RDMA").ok()?;
    Some(text.split_whitespace().map(str::to_owned).collect())
}

#[test]
fn probing_needs_neither_libraries_nor_devices() {
    let report = probe();
    assert_eq!(report.libraries.len(), 2);
    for library in &report.libraries {
        assert!(library.error.as_ref().is_none_or(|error| error.contains(library.name)), "{library:?}");
    }
    if report.libraries.iter().any(|library| library.error.is_some()) {
        assert!(report.devices.iter().all(|device| device.limits.is_err()));
    }
}

#[test]
fn devices_are_found_with_their_addresses() {
    let Some(addresses) = test_addresses() else {
        println!("skipped: no RDMA devices to test with; scripts/rdma-vm has some");
        return;
    };
    let report = probe();
    assert!(report.libraries.iter().all(|library| library.error.is_none()), "{report:?}");
    assert_eq!(report.connections, Access::Yes);
    assert_eq!(report.devices.len(), addresses.len());
    for (device, address) in report.devices.iter().zip(&addresses) {
        assert_eq!(device.node, Access::Yes, "{device:?}");
        let limits = device.limits.as_ref().expect("the device answers");
        assert!(limits.queue_pairs > 1 && limits.completions > 1_000 && limits.work_requests > 1_000);
        assert_eq!(limits.ports.len(), 1);
        assert!(
            limits.ports[0].active && limits.ports[0].mtu == 4096 && limits.ports[0].max_message > 1 << 20
        );
        let port = &device.ports[0];
        assert!(port.is_active() && port.link_layer == "Ethernet", "{port:?}");
        assert!(port.reachable().any(|gid| gid.address.to_string() == *address), "{port:?}");
        assert!(port.gids.iter().all(|gid| gid.interface.starts_with("rdma")));
    }
}
