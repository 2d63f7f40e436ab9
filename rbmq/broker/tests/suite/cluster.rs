//! Members of a cluster: who has a topic, and who is sent to whom.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use locks::Mutex;
use rbmq::{Publisher, TopicOpenError};
use rbmq_broker::{Broker, BrokerConfig, Cluster, ClusterMember, Owner, Parts, Rule, TopicName};
use rbmq_wire::RefuseCode;
use testkit::own_addr;

/// The map as one member sees it: a table that the test changes. A topic that is not in it is here, with the first term.
#[derive(Default)]
struct Table {
    owners: Mutex<HashMap<TopicName, Owner>>,
}

impl Table {
    fn set(&self, topic: &str, owner: Owner) {
        self.owners.lock().insert(topic.parse().unwrap(), owner);
    }
}

impl Cluster for Table {
    fn owner(&self, topic: &TopicName) -> Owner {
        self.owners.lock().get(topic).cloned().unwrap_or(Owner::Here { term: 1 })
    }

    fn members(&self) -> Vec<ClusterMember> {
        Vec::new()
    }
}

fn config(dir: &Path) -> BrokerConfig {
    let mut rule = Rule::new("k/#".parse().unwrap());
    rule.keep = true;
    let mut config = BrokerConfig::default();
    config.broker.listen = own_addr();
    config.broker.keep_dir = dir.to_str().unwrap().into();
    config.broker.topics = vec![rule].into();
    config
}

fn member(dir: &Path, cluster: &Arc<Table>) -> Broker {
    let parts = Parts { cluster: Some(cluster.clone()), ..Parts::default() };
    Broker::start_with(config(dir), parts).unwrap()
}

/// The code and the reason with which a topic is refused.
fn refusal(at: &str, topic: &str) -> (RefuseCode, String) {
    match Publisher::connect(at).unwrap().topic(topic) {
        Err(TopicOpenError::Refused { code, reason, .. }) => (code, reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_kept_topic_that_another_member_has_is_refused_with_its_addresses() {
    let (dir, table) = (tempfile::tempdir().unwrap(), Arc::new(Table::default()));
    table.set("k/far", Owner::Elsewhere { addresses: vec!["one:7411".into(), "two:7411".into()] });
    let broker = member(dir.path(), &table);
    let (code, reason) = refusal(&broker.addr(), "k/far");
    assert_eq!((code, RefuseCode::addresses(&reason)), (RefuseCode::Elsewhere, "one:7411,two:7411"));
    // What is not kept has no owner.
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    table.set("far", Owner::Elsewhere { addresses: vec!["one:7411".into()] });
    publisher.topic("far").unwrap().publish(b"here").unwrap();
    publisher.topic("k/here").unwrap().publish(b"here").unwrap();
}
