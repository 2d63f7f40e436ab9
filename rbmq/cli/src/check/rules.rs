//! The rules: from facts and a configuration to findings. No function here reads from the system.

use rbmq_broker::{BrokerConfig, Exposed, MOST_RESERVED, OF_KEPT_TOPIC, Rule};

use super::facts::{Facts, Limit, Port};
use super::finding::{Finding, Level};
use crate::bytes;

/// Descriptors and mappings that a process needs besides the counted ones.
const SPARE: u64 = 100;

/// Returns all findings, the most important first.
pub(super) fn findings(facts: &Facts, config: &BrokerConfig) -> Vec<Finding> {
    let mut findings = ports(facts);
    findings.extend(exposure(config));
    findings.extend([descriptors(facts.descriptors, config, kept_topics(config)), memory(facts, config)]);
    findings.extend(file_size(facts, config));
    findings.extend(address_space(facts, config));
    findings.extend(mappings(facts, config));
    findings.extend(congestion(facts, config));
    findings.extend(backlog(facts, config));
    findings.extend(socket_buffers(facts, config));
    findings.push(threads(facts, config));
    findings.extend(huge_pages(facts));
    findings.extend(governor(facts));
    findings.extend(clock(facts));
    findings.push(Finding::ok("locked memory", "not needed: rings over TCP are not locked"));
    findings
}

/// Listeners that `rbmq serve` refuses.
fn exposure(config: &BrokerConfig) -> Vec<Finding> {
    let exposed = config.exposed();
    let finding = |exposed: &Exposed| {
        let text = exposed.to_string();
        let (found, fix) = text.split_once('\n').unwrap_or((&text, ""));
        let fix = fix.lines().map(str::trim).collect::<Vec<_>>().join("; ");
        Finding::new("exposure", Level::Bad, found.to_owned(), "`rbmq serve` refuses to start.", fix)
    };
    exposed.iter().map(finding).collect()
}

fn ports(facts: &Facts) -> Vec<Finding> {
    let finding = |(name, addr, port): &(&'static str, String, Port)| match port {
        Port::Free => Finding::ok("address", format!("{addr} is free")),
        Port::Taken => Finding::new(
            "address",
            Level::Warn,
            format!("{addr} is in use"),
            "A broker cannot listen there now. Another broker may be running.",
            format!(
                "ss -ltnp 'sport = :{}' shows the process; or set another {name}",
                addr.rsplit(':').next().unwrap_or_default()
            ),
        ),
        Port::Refused(why) => Finding::new(
            "address",
            Level::Bad,
            format!("{addr} cannot be used: {why}"),
            "The broker will not start.",
            format!("set {name} to an address of this machine (ip address)"),
        ),
    };
    facts.ports.iter().map(finding).collect()
}

/// Whether the descriptors are enough, with so many kept topics.
pub(super) fn descriptors(limit: Limit, config: &BrokerConfig, kept: u64) -> Finding {
    let buffers = &config.framework.buffers;
    let reservations = buffers.max_ring_bytes.div_ceil(buffers.reservation_bytes);
    let of_gateways = config.gateways().iter().map(|gateway| gateway.max_connections as u64).sum::<u64>();
    let clients = config.framework.limits.max_connections as u64 + config.http.max_connections as u64;
    let clients = clients + of_gateways;
    // While clients are connected, the broker leaves as many free for further ones before it opens a kept topic.
    let reserve = if kept > 0 { MOST_RESERVED } else { 0 };
    let others = reservations + kept * OF_KEPT_TOPIC + reserve + SPARE;
    let needed = clients + others;
    let Limit { soft, hard } = limit;
    let Some(hard) = hard.filter(|hard| *hard < needed) else {
        let soft = soft.map_or("no limit is known".to_owned(), |soft| soft.to_string());
        return Finding::ok("descriptors", format!("{soft}, raised automatically; {needed} are needed"));
    };
    let level = if hard < 256 { Level::Bad } else { Level::Warn };
    let served = hard.saturating_sub(others);
    let beside = match kept {
        0 => String::new(),
        kept => format!(" beside {kept} kept topics"),
    };
    Finding::new(
        "descriptors",
        level,
        format!("{hard} at most; {needed} are needed"),
        format!(
            "About {served} connections can be served{beside}, fewer than the limits of the configuration."
        ),
        format!("LimitNOFILE={needed} in the unit, or ulimit -Hn {needed} as root before the broker starts"),
    )
}

/// The most topics that the rules keep on disk.
fn kept_topics(config: &BrokerConfig) -> u64 {
    let most = config.broker.max_topics as u64;
    let of_rule = |rule: &Rule| if rule.pattern.as_topic().is_some() { 1 } else { most };
    config.broker.topics.iter().filter(|rule| rule.keep).map(of_rule).sum::<u64>().min(most)
}

fn memory(facts: &Facts, config: &BrokerConfig) -> Finding {
    let (most, name) = (config.framework.buffers.max_ring_bytes, "memory");
    let show = |bytes: u64| bytes::show(bytes as f64);
    let known = [(facts.memory_bytes, "this machine"), (facts.group_memory_bytes, "this control group")];
    let limits = known.into_iter().filter_map(|(limit, what)| Some((limit?, what)));
    let Some((limit, what)) = limits.min() else { return Finding::ok(name, "unknown") };
    let found = format!("{} in {what}; rings may take {}", show(limit), show(most));
    let fits = limit / 10 * 8;
    if most <= fits {
        return Finding::ok(name, found);
    }
    let consequence = "When the rings are full, the kernel kills the broker or another program, instead of the broker refusing topics.";
    Finding::new(
        name,
        Level::Warn,
        found,
        consequence,
        format!("[buffers] max_ring_bytes = {fits} in the configuration"),
    )
}

fn file_size(facts: &Facts, config: &BrokerConfig) -> Option<Finding> {
    let reservation = config.framework.buffers.reservation_bytes;
    let name = "file size";
    let Some(limit) = facts.file_size.soft.filter(|limit| *limit < reservation) else {
        return Some(Finding::ok(name, "no relevant limit"));
    };
    Some(Finding::new(
        name,
        Level::Bad,
        format!("{limit} bytes; rings are reserved {reservation} at a time"),
        "No ring can be created: rings are in files in memory, and files of this size are not allowed.",
        "ulimit -f unlimited, or LimitFSIZE=infinity in the unit".into(),
    ))
}

fn address_space(facts: &Facts, config: &BrokerConfig) -> Option<Finding> {
    let needed = config.framework.buffers.max_ring_bytes.saturating_mul(2);
    let limit = facts.address_space.soft.filter(|limit| *limit < needed)?;
    Some(Finding::new(
        "address space",
        Level::Warn,
        format!("{limit} bytes; {needed} are needed"),
        "Rings are mapped twice, so topics are refused before buffers.max_ring_bytes is reached.",
        "ulimit -v unlimited, or LimitAS=infinity in the unit".into(),
    ))
}

fn mappings(facts: &Facts, config: &BrokerConfig) -> Option<Finding> {
    let most = facts.max_map_count?;
    // The broker has at most as many rings as topics, and as many as fit the memory for rings.
    let smallest = config.broker.min_ring_bytes.max(1);
    let rings = (config.broker.max_topics as u64).min(config.framework.buffers.max_ring_bytes / smallest);
    let needed = 2 * rings + 10 * SPARE;
    let found = format!("{most}; {needed} are needed");
    if most >= needed {
        return Some(Finding::ok("memory mappings", found));
    }
    let consequence = format!("About {} topics can have a ring, fewer than broker.max_topics.", most / 2);
    let fix = format!("sysctl -w vm.max_map_count={needed}");
    Some(Finding::new("memory mappings", Level::Warn, found, consequence, fix))
}

fn congestion(facts: &Facts, config: &BrokerConfig) -> Option<Finding> {
    let name = "congestion control";
    let configured = config.framework.tcp.congestion_control.as_ref();
    let used = configured.or(facts.congestion_control.as_ref())?;
    if configured.is_some()
        && !facts.congestion_controls.is_empty()
        && !facts.congestion_controls.contains(used)
    {
        return Some(Finding::new(
            name,
            Level::Bad,
            format!("{used} is configured; the kernel has {}", facts.congestion_controls.join(", ")),
            "The broker will not start.",
            format!("modprobe tcp_{used}, or set another tcp.congestion_control"),
        ));
    }
    if !used.starts_with("bbr") {
        return Some(Finding::ok(name, used.as_str()));
    }
    Some(Finding::new(
        name,
        Level::Warn,
        used.clone(),
        "BBR paces its packets: on one machine and on short paths, everything is 1.5 to 2.4 times slower. BBR suits long paths that lose packets.",
        "[tcp] congestion_control = \"cubic\" in the configuration of the broker and its clients, or sysctl -w \
         net.ipv4.tcp_congestion_control=cubic"
            .into(),
    ))
}

fn backlog(facts: &Facts, config: &BrokerConfig) -> Option<Finding> {
    let (most, asked) = (facts.somaxconn?, u64::from(config.framework.tcp.backlog));
    let found = format!("{most} connections can wait; tcp.backlog is {asked}");
    if most >= asked {
        return Some(Finding::ok("accept queue", found));
    }
    let consequence =
        "When many clients connect at once, as after a restart, some of them wait for a second or more.";
    let fix = format!("sysctl -w net.core.somaxconn={asked}");
    Some(Finding::new("accept queue", Level::Warn, found, consequence, fix))
}

fn socket_buffers(facts: &Facts, config: &BrokerConfig) -> Vec<Finding> {
    let tcp = &config.framework.tcp;
    let asked = [
        ("net.core.wmem_max", facts.wmem_max, "tcp.send_buffer_bytes", tcp.send_buffer_bytes),
        ("net.core.rmem_max", facts.rmem_max, "tcp.receive_buffer_bytes", tcp.receive_buffer_bytes),
    ];
    let small = asked.into_iter().filter_map(|(limit, most, setting, asked)| {
        let (most, asked) = (most?, u64::from(asked?));
        (asked > most).then(|| {
            Finding::new(
                "socket buffers",
                Level::Warn,
                format!("{limit} is {most}; {setting} is {asked}"),
                "The kernel uses a smaller buffer than configured, without an error.",
                format!("sysctl -w {limit}={asked}, or remove {setting}: the kernel then tunes the buffer"),
            )
        })
    });
    let small: Vec<Finding> = small.collect();
    if small.is_empty() { vec![Finding::ok("socket buffers", "as configured")] } else { small }
}

fn threads(facts: &Facts, config: &BrokerConfig) -> Finding {
    let cores = facts.cores;
    let threads = match config.framework.tcp.tcp_num_threads {
        0 => cores,
        threads => threads,
    };
    let found = format!("{threads} worker threads, {cores} usable cores");
    if threads <= cores {
        return Finding::ok("threads", found);
    }
    let consequence = "Several threads share a core, which costs context switches.";
    Finding::new("threads", Level::Warn, found, consequence, format!("[tcp] tcp_num_threads = {cores}"))
}

fn huge_pages(facts: &Facts) -> Option<Finding> {
    let word = facts.shmem_huge_pages.as_ref()?;
    if !["always", "within_size", "force"].contains(&word.as_str()) {
        return Some(Finding::ok("huge pages", format!("{word} for shared memory")));
    }
    Some(Finding::new(
        "huge pages",
        Level::Warn,
        format!("{word} for shared memory"),
        "The first byte of a ring uses 2 MiB: ten thousand idle topics use 20 GiB instead of 40 MiB.",
        "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled".into(),
    ))
}

fn governor(facts: &Facts) -> Option<Finding> {
    let word = facts.governor.as_ref()?;
    if word != "powersave" {
        return Some(Finding::ok("processor clock", word.as_str()));
    }
    Some(Finding::new(
        "processor clock",
        Level::Warn,
        word.clone(),
        "Idle cores are slow when a message arrives: the latency is higher and varies.",
        "cpupower frequency-set -g performance".into(),
    ))
}

fn clock(facts: &Facts) -> Option<Finding> {
    let word = facts.clock.as_ref()?;
    if !["hpet", "acpi_pm", "jiffies", "refined-jiffies"].contains(&word.as_str()) {
        return Some(Finding::ok("clock", word.as_str()));
    }
    Some(Finding::new(
        "clock",
        Level::Warn,
        word.clone(),
        "Each reading of the clock is a system call of about a microsecond.",
        "boot with clocksource=tsc if the processor's clock is stable (dmesg | grep -i tsc)".into(),
    ))
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
