//! `rbmq check rdma`: from a report on RDMA and a configuration to findings.

use rbmq_broker::BrokerConfig;
use rocketnet_rdma::{Access, Device, Port, Report};

use super::finding::{Finding, Level};
use crate::bytes;

/// The smallest reasonable path MTU. Below it, the overhead of packets dominates.
const SMALL_MTU: u32 = 1024;

pub(super) fn findings(report: &Report, config: &BrokerConfig) -> Vec<Finding> {
    let mut findings = vec![libraries(report)];
    findings.extend(devices(report));
    findings.push(connections(report));
    findings.push(locked_memory(report, config));
    findings
}

fn libraries(report: &Report) -> Finding {
    let missing: Vec<_> = report.libraries.iter().filter(|library| library.error.is_some()).collect();
    if missing.is_empty() {
        let names: Vec<_> = report.libraries.iter().map(|library| library.name).collect();
        return Finding::ok("rdma libraries", names.join(", "));
    }
    let errors: Vec<_> = missing.iter().filter_map(|library| library.error.clone()).collect();
    let packages: Vec<_> = missing.iter().map(|library| library.package).collect();
    Finding::new(
        "rdma libraries",
        Level::Bad,
        errors.join("; "),
        "Without them, everything except RDMA works.",
        format!("apt-get install {} ibverbs-providers", packages.join(" ")),
    )
}

fn devices(report: &Report) -> Vec<Finding> {
    if report.devices.is_empty() {
        return vec![Finding::new(
            "rdma device",
            Level::Bad,
            "the kernel has no RDMA device (/sys/class/infiniband)".into(),
            "The machine has no RDMA adapter, or its driver is not loaded.",
            "load the adapter's driver (modprobe mlx5_ib); for a test with any network interface: \
             modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0"
                .into(),
        )];
    }
    report.devices.iter().flat_map(device).collect()
}

fn device(device: &Device) -> Vec<Finding> {
    let name = &device.name;
    match (&device.node, &device.limits) {
        (Access::Missing, _) => {
            return vec![Finding::new(
                "rdma device",
                Level::Bad,
                format!("{name} has no node in /dev/infiniband"),
                "Programs cannot use it.",
                "modprobe ib_uverbs; in a container: pass /dev/infiniband to it".into(),
            )];
        }
        (Access::Denied, _) => {
            return vec![Finding::new(
                "rdma device",
                Level::Bad,
                format!("{name}: this user has no access to /dev/infiniband/uverbs*"),
                "Connections over it cannot be made.",
                "chmod 666 /dev/infiniband/uverbs* (Debian's rdma-core does it by a udev rule)".into(),
            )];
        }
        (Access::Yes, Err(error)) => {
            return vec![Finding::new(
                "rdma device",
                Level::Bad,
                format!("{name}: {error}"),
                "Connections over it cannot be made.",
                "apt-get install ibverbs-providers, which has the drivers of all adapters".into(),
            )];
        }
        (Access::Yes, Ok(_)) => {}
    }
    device.ports.iter().map(|port| self::port(device, port)).collect()
}

fn port(device: &Device, port: &Port) -> Finding {
    let place = format!("{} port {} ({})", device.name, port.number, port.link_layer);
    if !port.is_active() {
        return Finding::new(
            "rdma port",
            Level::Warn,
            format!("{place} is {}", port.state),
            "No connection can be made over it.",
            "connect the cable, and set the network interface up (rdma link; ip link)".into(),
        );
    }
    let addresses: Vec<_> =
        port.reachable().map(|gid| format!("{} (GID {})", gid.address, gid.index)).collect();
    if addresses.is_empty() {
        return Finding::new(
            "rdma port",
            Level::Bad,
            format!("{place} has no address"),
            "Peers cannot connect: connections are made to an address of the interface.",
            "ip address add ADDRESS/24 dev INTERFACE (rdma link shows the interface)".into(),
        );
    }
    let limits = device.limits.as_ref().ok();
    let mtu = limits.and_then(|limits| limits.ports.get(port.number.checked_sub(1)? as usize)).map(|p| p.mtu);
    let found = format!("{place} is active, MTU {}, {}", mtu.unwrap_or(0), addresses.join(", "));
    match mtu {
        Some(mtu) if mtu < SMALL_MTU => Finding::new(
            "rdma port",
            Level::Warn,
            found,
            "Each packet has few bytes, so more packets and more work are needed.",
            "ip link set INTERFACE mtu 9000 at both ends and on the switches between, for an RDMA MTU of 4096".into(),
        ),
        _ => Finding::ok("rdma port", found),
    }
}

fn connections(report: &Report) -> Finding {
    match report.connections {
        Access::Yes => Finding::ok("rdma connections", "/dev/infiniband/rdma_cm can be used"),
        Access::Missing => Finding::new(
            "rdma connections",
            Level::Bad,
            "/dev/infiniband/rdma_cm does not exist".into(),
            "Connections cannot be made.",
            "modprobe rdma_ucm; in a container: pass /dev/infiniband to it".into(),
        ),
        Access::Denied => Finding::new(
            "rdma connections",
            Level::Bad,
            "this user has no access to /dev/infiniband/rdma_cm".into(),
            "Connections cannot be made.",
            "chmod 666 /dev/infiniband/rdma_cm (Debian's rdma-core does it by a udev rule)".into(),
        ),
    }
}

/// Each ring that the adapter reads or writes is locked in memory.
fn locked_memory(report: &Report, config: &BrokerConfig) -> Finding {
    let ring = config.framework.buffers.size_bytes;
    let Some(limit) = report.locked_bytes else {
        return Finding::ok("locked memory", "no limit");
    };
    let found = format!("at most {} can be locked", bytes::show(limit as f64));
    let rings = limit / ring.max(1);
    let (level, consequence) = match rings {
        0 | 1 => (Level::Bad, format!("Fewer than two rings of {} fit.", bytes::show(ring as f64))),
        _ => (
            Level::Warn,
            format!(
                "About {rings} rings of {} fit. Each connection needs its own.",
                bytes::show(ring as f64)
            ),
        ),
    };
    let fix = "ulimit -l unlimited; under systemd: LimitMEMLOCK=infinity".into();
    Finding::new("locked memory", level, found, consequence, fix)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use rocketnet_rdma::sys::{DeviceLimits, PortState};
    use rocketnet_rdma::{Gid, Library};

    use super::*;

    fn good() -> Report {
        let port = PortState { active: true, mtu: 4096, max_mtu: 4096, max_message: 1 << 30 };
        let limits = DeviceLimits {
            firmware: "1.0".into(),
            queue_pairs: 1000,
            work_requests: 1000,
            completions: 1000,
            registrations: 1000,
            registration_bytes: 1 << 40,
            ports: vec![port],
        };
        let gid = Gid {
            index: 3,
            address: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)),
            kind: "RoCE v2".into(),
            interface: "eth0".into(),
        };
        let port = Port { number: 1, state: "ACTIVE".into(), link_layer: "Ethernet".into(), gids: vec![gid] };
        let device =
            Device { name: "mlx5_0".into(), node: Access::Yes, ports: vec![port], limits: Ok(limits) };
        let libraries = vec![Library { name: "libibverbs.so.1", package: "libibverbs1", error: None }];
        Report { libraries, connections: Access::Yes, devices: vec![device], locked_bytes: None }
    }

    /// The findings that are not OK: name, level, finding and remedy.
    fn wrong(change: impl FnOnce(&mut Report)) -> Vec<(&'static str, Level, String)> {
        let mut report = good();
        change(&mut report);
        let findings = findings(&report, &BrokerConfig::default()).into_iter();
        let bad = findings.filter(|finding| finding.level != Level::Ok);
        bad.map(|f| (f.check, f.level, format!("{} | {}", f.found, f.fix.unwrap_or_default()))).collect()
    }

    fn only(change: impl FnOnce(&mut Report), check: &str, level: Level, parts: &[&str]) {
        let found = wrong(change);
        assert!(matches!(&found[..], [(name, of, _)] if *name == check && *of == level), "{found:?}");
        assert!(parts.iter().all(|part| found[0].2.contains(part)), "{found:?}");
    }

    #[test]
    fn a_machine_with_everything_is_well() {
        assert!(wrong(|_| ()).is_empty());
    }

    #[test]
    fn each_missing_piece_is_named_with_its_remedy() {
        use Level::{Bad, Warn};
        let lacks = |r: &mut Report| r.libraries[0].error = Some("libibverbs.so.1: no such file".into());
        only(lacks, "rdma libraries", Bad, &["no such file", "libibverbs1"]);
        only(|r| r.devices.clear(), "rdma device", Bad, &["rdma_rxe", "modprobe"]);
        only(|r| r.devices[0].node = Access::Missing, "rdma device", Bad, &["mlx5_0", "ib_uverbs"]);
        only(|r| r.devices[0].node = Access::Denied, "rdma device", Bad, &["uverbs"]);
        only(|r| r.devices[0].limits = Err("no driver".into()), "rdma device", Bad, &["ibverbs-providers"]);
        only(|r| r.devices[0].ports[0].state = "DOWN".into(), "rdma port", Warn, &["DOWN", "cable"]);
        only(|r| r.devices[0].ports[0].gids.clear(), "rdma port", Bad, &["ip address add"]);
        let small =
            |r: &mut Report| r.devices[0].limits.as_mut().expect("the device has limits").ports[0].mtu = 256;
        only(small, "rdma port", Warn, &["MTU 256", "9000"]);
        only(|r| r.connections = Access::Missing, "rdma connections", Bad, &["rdma_ucm"]);
        only(|r| r.connections = Access::Denied, "rdma connections", Bad, &["chmod"]);
        only(|r| r.locked_bytes = Some(8 << 20), "locked memory", Warn, &["8.39 MB", "LimitMEMLOCK"]);
        only(|r| r.locked_bytes = Some(1 << 20), "locked memory", Bad, &["1.05 MB", "ulimit -l"]);
    }
}
