//! Machines that are as they should be, and one thing wrong at a time.

use super::*;

fn good() -> Facts {
    Facts {
        descriptors: Limit { soft: Some(1024), hard: Some(1 << 20) },
        file_size: Limit::default(),
        address_space: Limit::default(),
        max_map_count: Some(65_530),
        somaxconn: Some(4096),
        rmem_max: Some(212_992),
        wmem_max: Some(212_992),
        congestion_control: Some("cubic".into()),
        congestion_controls: vec!["reno".into(), "cubic".into()],
        shmem_huge_pages: Some("never".into()),
        governor: Some("schedutil".into()),
        clock: Some("tsc".into()),
        cores: 8,
        memory_bytes: Some(16 << 30),
        group_memory_bytes: None,
        ports: vec![("broker.listen", "127.0.0.1:7411".into(), Port::Free)],
    }
}

/// The configuration that the machine is good for.
fn config() -> BrokerConfig {
    let mut config = BrokerConfig::default();
    config.framework.buffers.max_ring_bytes = 4 << 30;
    config.framework.buffers.reservation_bytes = 1 << 30;
    config.framework.limits.max_connections = 10_000;
    config.http.max_connections = 64;
    config.broker.max_topics = 10_000;
    config.framework.tcp.backlog = 1024;
    config
}

fn kept(pattern: &str) -> Rule {
    let mut rule = Rule::new(pattern.parse().expect("a pattern"));
    rule.keep = true;
    rule
}

/// The findings that are not OK: name, level, and remedy.
fn wrong(facts: &Facts, config: &BrokerConfig) -> Vec<(&'static str, Level, String)> {
    let findings = findings(facts, config).into_iter();
    let wrong: Vec<Finding> = findings.filter(|finding| finding.level != Level::Ok).collect();
    assert!(
        wrong.iter().all(|finding| finding.consequence.ends_with('.')),
        "every finding has a consequence: {wrong:?}"
    );
    wrong.into_iter().map(|f| (f.check, f.level, f.fix.expect("a way to fix it"))).collect()
}

/// The only thing that is wrong after a change of the facts.
fn only(change: impl FnOnce(&mut Facts)) -> (&'static str, Level, String) {
    let mut facts = good();
    change(&mut facts);
    let mut wrong = wrong(&facts, &config());
    assert_eq!(wrong.len(), 1, "{wrong:?}");
    wrong.remove(0)
}

#[test]
fn a_good_machine_has_nothing_to_mend() {
    let findings = findings(&good(), &config());
    assert!(findings.iter().all(|f| f.level == Level::Ok && f.fix.is_none()), "{findings:?}");
    assert!(findings.len() >= 12, "{findings:?}");
}

#[test]
fn a_fact_that_the_system_does_not_tell_is_not_judged() {
    let facts = Facts {
        max_map_count: None,
        somaxconn: None,
        rmem_max: None,
        wmem_max: None,
        congestion_control: None,
        congestion_controls: Vec::new(),
        shmem_huge_pages: None,
        governor: None,
        clock: None,
        memory_bytes: None,
        ..good()
    };
    assert_eq!(wrong(&facts, &config()), []);
}

#[test]
fn limits_of_the_process() {
    let limit = |n| Limit { soft: Some(n), hard: Some(n) };
    let (check, level, fix) = only(|facts| facts.descriptors = limit(4096));
    assert_eq!((check, level), ("descriptors", Level::Warn));
    assert!(fix.contains("LimitNOFILE=10168"), "{fix}");
    assert_eq!(only(|facts| facts.descriptors = limit(64)).1, Level::Bad);
    let mut keeps = config();
    keeps.broker.topics = vec![kept("one"), kept("many/#")].into();
    let facts = Facts { descriptors: limit(20_000), ..good() };
    let found = wrong(&facts, &keeps);
    assert!(found[0].2.contains("LimitNOFILE=51192"), "kept topics have descriptors too: {found:?}");
    keeps.broker.topics = vec![kept("one")].into();
    assert_eq!(wrong(&facts, &keeps), []);
    let (check, level, fix) = only(|facts| facts.file_size = limit(1 << 20));
    assert_eq!((check, level), ("file size", Level::Bad));
    assert!(fix.contains("ulimit -f unlimited"), "{fix}");
    assert_eq!(only(|facts| facts.address_space = limit(4 << 30)).0, "address space");
    let (check, _, fix) = only(|facts| facts.max_map_count = Some(10_000));
    assert_eq!((check, fix.as_str()), ("memory mappings", "sysctl -w vm.max_map_count=21000"));
}

#[test]
fn memory_of_the_machine_and_of_its_group() {
    let (check, level, fix) = only(|facts| facts.memory_bytes = Some(2 << 30));
    assert_eq!((check, level), ("memory", Level::Warn));
    assert!(fix.contains("max_ring_bytes = 1717986912"), "{fix}");
    assert_eq!(only(|facts| facts.group_memory_bytes = Some(9 << 29)).0, "memory");
    let (check, level, _) = only(|facts| facts.shmem_huge_pages = Some("always".into()));
    assert_eq!((check, level), ("huge pages", Level::Warn));
}

#[test]
fn the_network() {
    let (check, level, fix) = only(|facts| facts.congestion_control = Some("bbr".into()));
    assert_eq!((check, level), ("congestion control", Level::Warn));
    assert!(fix.contains("congestion_control = \"cubic\""), "{fix}");
    let (check, _, fix) = only(|facts| facts.somaxconn = Some(128));
    assert_eq!((check, fix.as_str()), ("accept queue", "sysctl -w net.core.somaxconn=1024"));
    let mut config = self::config();
    config.framework.tcp.congestion_control = Some("vegas".into());
    config.framework.tcp.receive_buffer_bytes = Some(1 << 20);
    let wrong = wrong(&good(), &config);
    assert_eq!((wrong[0].0, wrong[0].1), ("congestion control", Level::Bad));
    assert!(wrong[0].2.contains("modprobe tcp_vegas"), "{wrong:?}");
    assert!(wrong[1].2.contains("net.core.rmem_max=1048576"), "{wrong:?}");
}

#[test]
fn addresses_cores_and_clocks() {
    let port = |port| move |facts: &mut Facts| facts.ports[0].2 = port;
    let (check, level, fix) = only(port(Port::Taken));
    assert_eq!((check, level), ("address", Level::Warn));
    assert!(fix.contains("sport = :7411") && fix.contains("broker.listen"), "{fix}");
    assert_eq!(only(port(Port::Refused("no such address".into()))).1, Level::Bad);
    assert_eq!(only(|facts| facts.governor = Some("powersave".into())).0, "processor clock");
    assert_eq!(only(|facts| facts.clock = Some("hpet".into())).0, "clock");
    let mut config = self::config();
    config.framework.tcp.tcp_num_threads = 16;
    assert_eq!(wrong(&good(), &config)[0].2, "[tcp] tcp_num_threads = 8");
    config.framework.tcp.tcp_num_threads = 0;
    assert_eq!(wrong(&good(), &config), []);
}
