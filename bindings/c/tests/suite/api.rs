//! Each public method of Rust is a function in C, and each function of C is used by a class in C++; or the reason why not stands
//! here.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use syn::{Attribute, ImplItem, Item, Type, Visibility};

/// The folder of the crate of a Rust type, and the prefix of its functions.
const TYPES: &[(&str, &str, &str)] = &[
    ("Budget", "rocketbufs/framework", "rb_budget_"),
    ("BufSeg", "rocketbufs/framework", "rb_buf_seg_"),
    ("Cmq", "cmq/library", "cmq_"),
    ("Config", "rocketbufs/framework", "rb_config_"),
    ("Confirmation", "rbmq/client", "rbmq_confirmation_"),
    ("Conn", "rocketbufs/framework", "rb_conn_"),
    ("Context", "rocketbufs/framework", "rb_context_"),
    ("DeferredBatch", "rbmq/client", "rbmq_deferred_"),
    ("GroupBuilder", "rbmq/client", "rbmq_group_"),
    ("GroupMessage", "rbmq/client", "rbmq_group_message_"),
    ("GroupWorker", "rbmq/client", "rbmq_group_worker_"),
    ("Groups", "rbmq/client", "rbmq_groups_"),
    ("InReader", "rocketbufs/framework", "rb_reader_"),
    ("InView", "rocketbufs/framework", "rb_view_"),
    ("Listener", "rocketbufs/framework", "rb_listener_"),
    ("Mailbox", "cmq/library", "cmq_mailbox_"),
    ("MessageSegment", "rbmq/client", "rbmq_segment_"),
    ("Multicast", "cmq/library", "cmq_"),
    ("Observer", "rbmq/client", "rbmq_observer_"),
    ("OutBuffer", "rocketbufs/framework", "rb_buffer_"),
    ("OutSegment", "rocketbufs/framework", "rb_segment_"),
    ("OutWriter", "rocketbufs/framework", "rb_writer_"),
    ("Batch", "rbmq/client", "rbmq_subscriber_batch_"),
    ("PublicKey", "cmq/library", "cmq_public_key_"),
    ("Publisher", "rbmq/client", "rbmq_publisher_"),
    ("RIn", "rocketbufs/framework", "rb_rin_"),
    ("ROut", "rocketbufs/framework", "rb_rout_"),
    ("SecretKey", "cmq/library", "cmq_secret_key_"),
    ("SpaceBatch", "rbmq/client", "rbmq_space_batch_"),
    ("SpaceWriter", "rbmq/client", "rbmq_space_"),
    ("Subscriber", "rbmq/client", "rbmq_subscriber_"),
    ("Subscription", "rocketbufs/framework", "rb_subscription_"),
    ("TopicWriter", "rbmq/client", "rbmq_topic_"),
    ("WriteBatch", "rbmq/client", "rbmq_topic_batch_"),
];

/// Methods whose C function has another name: a function with more arguments, or one that fills a structure.
const OTHERWISE: &[(&str, &str)] = &[
    ("Batch.as_slice", "rbmq_subscriber_next_batch"),
    ("Batch.checked_records", "rbmq_subscriber_batch_records"),
    ("Batch.end", "rbmq_subscriber_next_batch"),
    ("Batch.epoch", "rbmq_subscriber_next_batch"),
    ("Batch.framing", "rbmq_subscriber_next_batch"),
    ("Batch.pieces", "rbmq_subscriber_batch_records"),
    ("Batch.position", "rbmq_subscriber_next_batch"),
    ("Batch.published_records", "rbmq_subscriber_batch_records"),
    ("Batch.topic", "rbmq_subscriber_next_batch"),
    ("BufSeg.as_slice", "rb_rin_set_data_in_cb"),
    ("BufSeg.copy_to", "rb_buf_seg_copy"),
    ("BufSeg.end", "rb_rin_set_data_in_cb"),
    ("BufSeg.is_empty", "rb_rin_set_data_in_cb"),
    ("BufSeg.len", "rb_rin_set_data_in_cb"),
    ("BufSeg.position", "rb_rin_set_data_in_cb"),
    ("BufSeg.vec_count", "rb_rin_set_data_in_cb"),
    ("BufSeg.vecs", "rb_rin_set_data_in_cb"),
    ("Cmq.iter", "cmq_pop"),
    ("Cmq.mailbox", "cmq_mailbox_open"),
    ("Cmq.multicast", "cmq_set_multicast"),
    ("Cmq.pop_all", "cmq_pop_many"),
    ("Cmq.pop_timeout", "cmq_pop"),
    ("Cmq.pop_where_timeout", "cmq_pop_where"),
    ("Cmq.push_bytes", "cmq_cw_push"),
    ("Cmq.push_reliable_bytes", "cmq_push_reliable"),
    ("Cmq.stats", "cmq_get_stats"),
    ("Cmq.try_iter", "cmq_cw_pop"),
    ("Confirmation.try_get", "rbmq_confirmation_wait"),
    ("Conn.control_waiting", "rb_conn_control_info"),
    ("Conn.down_reason", "rb_conn_wait_down"),
    ("Conn.max_control_bytes", "rb_conn_control_info"),
    ("GroupBuilder.dead_letters", "rbmq_group_join"),
    ("InView.as_slice", "rb_view_data"),
    ("InView.bid", "rb_view_data"),
    ("InView.copy_to", "rb_view_copy"),
    ("InView.end", "rb_view_data"),
    ("InView.epoch", "rb_view_data"),
    ("InView.is_empty", "rb_view_data"),
    ("InView.len", "rb_view_data"),
    ("InView.position", "rb_view_data"),
    ("InView.to_vec", "rb_view_copy"),
    ("Mailbox.cw_pop", "cmq_mailbox_pop"),
    ("Mailbox.pop_all", "cmq_mailbox_pop_many"),
    ("Mailbox.pop_timeout", "cmq_mailbox_pop"),
    ("Mailbox.pop_where_timeout", "cmq_mailbox_pop_where"),
    ("MessageSegment.bytes_mut", "rbmq_topic_claim"),
    ("MessageSegment.is_empty", "rbmq_topic_claim"),
    ("MessageSegment.len", "rbmq_topic_claim"),
    ("Multicast.set_interface", "cmq_set_multicast"),
    ("Multicast.set_loopback", "cmq_set_multicast"),
    ("Observer.builder", "rbmq_observer_connect"),
    ("OutBuffer.durable_cursors", "rb_buffer_subscribers"),
    ("OutBuffer.info", "rb_buffer_get_info"),
    ("OutBuffer.notify_progress", "rb_buffer_notify_room"),
    ("OutSegment.bid", "rb_buffer_segment"),
    ("OutSegment.bytes_mut", "rb_buffer_segment"),
    ("OutSegment.is_empty", "rb_buffer_segment"),
    ("OutSegment.len", "rb_buffer_segment"),
    ("OutSegment.position", "rb_buffer_segment"),
    ("OutWriter.append_blocking", "rb_writer_append"),
    ("OutWriter.free_bytes", "rb_writer_info"),
    ("OutWriter.head", "rb_writer_info"),
    ("Publisher.builder", "rbmq_publisher_connect"),
    ("Publisher.close_timeout", "rbmq_publisher_close"),
    ("Publisher.space_with", "rbmq_publisher_space"),
    ("Publisher.topic_with", "rbmq_publisher_topic"),
    ("SpaceWriter.close_timeout", "rbmq_space_close"),
    ("SpaceWriter.max_delivery_bytes", "rbmq_space_get_info"),
    ("SpaceWriter.position", "rbmq_space_get_info"),
    ("SpaceWriter.publish_to_timeout", "rbmq_space_publish_to"),
    ("SpaceWriter.subscribers", "rbmq_space_get_info"),
    ("Subscriber.builder", "rbmq_subscriber_connect"),
    ("Subscriber.close_timeout", "rbmq_subscriber_close"),
    ("Subscriber.interrupter", "rbmq_subscriber_interrupt"),
    ("Subscriber.recv_ref", "rbmq_subscriber_recv"),
    ("Subscriber.subscribe_from", "rbmq_subscriber_subscribe"),
    ("Subscription.info", "rb_subscription_get_info"),
    ("Subscription.position", "rb_subscription_get_info"),
    ("TopicWriter.batch_timeout", "rbmq_topic_batch"),
    ("TopicWriter.close_timeout", "rbmq_topic_close"),
    ("TopicWriter.max_delivery_bytes", "rbmq_topic_get_info"),
    ("TopicWriter.position", "rbmq_topic_get_info"),
    ("TopicWriter.publish_timeout", "rbmq_topic_publish"),
    ("TopicWriter.publish_with_timeout", "rbmq_topic_publish_with"),
    ("TopicWriter.subscribers", "rbmq_topic_get_info"),
];

/// Methods that C does not have, and why.
const LEFT_OUT: &[(&str, &str)] = &[
    ("Batch.into_owned", "a batch of a subscriber is kept with rbmq_subscriber_batch_defer, or copied"),
    ("BufSeg.epoch", "rb_subscription_get_info has it, and a view"),
    ("BufSeg.range_ref", "as InView.range_ref"),
    ("BufSeg.trusting", "a view has it, with rb_buf_seg_to_view"),
    ("Cmq.arrivals", "cmq_pop_where waits itself"),
    ("Cmq.stream", "cmq_fd"),
    ("Cmq.wait_arrival", "cmq_pop_where waits itself"),
    ("Config.apply_env", "rb_config_load does it"),
    ("Config.from_table", "as from_toml_shared"),
    (
        "Config.from_toml_shared",
        "settings of the framework in a file of another program: for programs in Rust",
    ),
    ("Config.load_shared", "as from_toml_shared"),
    ("Config.origin", "for messages of the program about its own settings"),
    ("Config.validate", "every way to make or change a configuration does it"),
    ("Confirmation.level", "the program asked for it"),
    ("Confirmation.position", "the program asked for it"),
    ("Conn.take_peer_hello", "rb_conn_peer_hello fills memory of the program, which it can overwrite"),
    ("Context.reload_tls", "a program that renews its certificates makes a context anew"),
    ("InView.range_ref", "what the chunks of RBLive are made of, in Rust"),
    ("Listener.bind_locally", "for programs in Rust that have a broker in them"),
    ("Mailbox.arrivals", "cmq_mailbox_pop_where waits itself"),
    ("Mailbox.stream", "cmq_mailbox_fd"),
    ("Mailbox.wait_arrival", "cmq_mailbox_pop_where waits itself"),
    ("Observer.gateways", "rbmq top --json has them"),
    ("Observer.groups", "rbmq top --json has them"),
    ("Observer.limits", "rbmq top --json has them"),
    ("OutBuffer.context", "the program has it"),
    ("OutBuffer.room", "rb_buffer_notify_room, and the descriptor of the rOut"),
    ("OutWriter.buffer", "the program has it"),
    (
        "OutWriter.grow",
        "for libraries that do not know how large their messages will be, as that of RBMQ, whose topics grow by themselves",
    ),
    ("Conn.peer_grows", "as OutWriter.grow"),
    ("OutWriter.bytes_to_grow", "as OutWriter.grow"),
    ("ROut.context", "the program has it"),
    ("SecretKey.as_bytes", "the structure has them"),
    ("SecretKey.from_bytes", "the structure has them"),
    ("SpaceBatch.is_empty", "the program knows what it added"),
    ("SpaceBatch.len", "the program knows what it added"),
    ("SpaceBatch.try_deliver", "`rbmq_space_batch_deliver` keeps a batch that found no room"),
    ("SpaceWriter.free_bytes", "a call with RB_NO_WAIT"),
    ("SpaceWriter.space", "the program named it"),
    ("Subscriber.context", "a context is shared by making it first, in the options"),
    ("Subscriber.take_refused", "as is_settled"),
    ("Subscriber.is_settled", "for programs in Rust that have a broker in them"),
    ("Subscriber.into_stream", "rbmq_subscriber_fd"),
    ("TopicWriter.epoch", "for gateways in the process of the broker, which are written in Rust"),
    ("TopicWriter.free_bytes", "a call with RB_NO_WAIT"),
    ("TopicWriter.largest_delivery_bytes", "the error of a message that is too large says it"),
    (
        "TopicWriter.has_ended",
        "for programs that open topics for others, as gateways do; RBMQ_PUBLISHER_TOPIC_REFUSED tells of one",
    ),
    ("TopicWriter.space", "as TopicWriter.has_ended"),
    ("SpaceWriter.has_ended", "as TopicWriter.has_ended"),
    ("TopicWriter.topic", "the program named it"),
    ("WriteBatch.is_empty", "the program knows what it added"),
    ("WriteBatch.len", "the program knows what it added"),
    ("WriteBatch.try_deliver", "`rbmq_topic_batch_deliver` keeps a batch that found no room"),
];

/// Functions of C that no class of C++ calls, and why.
const C_ONLY: &[(&str, &str)] = &[
    ("cmq_messages_free", "a vector of messages frees each of them"),
    ("rb_version", "C++ programs call it"),
];

/// Files with items that only other crates of the workspace use, or that are in no public type.
const HIDDEN: &[&str] = &["relay.rs", "ends", "logs", "records", "workers", "proto", "worker", "strategy"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of sources").flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if HIDDEN.iter().any(|hidden| name == *hidden) {
            continue;
        }
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn is_hidden(attributes: &[Attribute]) -> bool {
    let hides = |attribute: &Attribute| {
        attribute.path().is_ident("doc")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|word| word == "hidden")
    };
    attributes.iter().any(hides)
}

/// The public methods of the types of a crate, as `Type.method`.
fn methods(of: &str) -> Vec<String> {
    let mut files = Vec::new();
    sources(&root().join(of).join("src"), &mut files);
    let mut found = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a source");
        for item in syn::parse_file(&text).expect("Rust").items {
            let Item::Impl(block) = item else { continue };
            let Type::Path(path) = &*block.self_ty else { continue };
            let Some(name) = path.path.segments.last().map(|last| last.ident.to_string()) else { continue };
            if block.trait_.is_some() || is_hidden(&block.attrs) {
                continue;
            }
            for item in block.items {
                let ImplItem::Fn(method) = item else { continue };
                if matches!(method.vis, Visibility::Public(_)) && !is_hidden(&method.attrs) {
                    found.push(format!("{name}.{}", method.sig.ident));
                }
            }
        }
    }
    found
}

/// The functions that a text names: `rb_…(`, `rbmq_…(` and `cmq_…(`.
fn functions(file: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("bindings/include").join(file)).expect("a header");
    let code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = BTreeSet::new();
    for word in code.flat_map(|line| line.split(|c| !is_name(c))) {
        if ["rb_", "rbmq_", "cmq_"].iter().any(|prefix| word.starts_with(prefix)) {
            found.insert(word.to_owned());
        }
    }
    found
}

/// The functions of the C header.
fn declared() -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("bindings/include/rocketbufs.h")).expect("the header");
    functions("rocketbufs.h").into_iter().filter(|name| text.contains(&format!("{name}("))).collect()
}

/// The name of a method in C.
fn in_c(method: &str, prefix: &str) -> String {
    let otherwise = OTHERWISE.iter().find(|(name, _)| *name == method);
    let name = method.split_once('.').map_or(method, |(_, name)| name);
    let name = if name == "pollable" { "fd" } else { name };
    otherwise.map_or_else(|| format!("{prefix}{name}"), |(_, function)| (*function).to_owned())
}

/// The reason for each name of a list that is not needed any more.
fn superfluous<'a>(list: &'a [(&str, &str)], missing: &BTreeSet<String>) -> Vec<&'a str> {
    list.iter().map(|(name, _)| *name).filter(|name| !missing.contains(*name)).collect()
}

#[test]
fn c_has_each_method_of_rust() {
    let declared = declared();
    let mut missing = BTreeSet::new();
    for of in ["rocketbufs/framework", "rbmq/client", "cmq/library"] {
        for method in methods(of) {
            let known = |(name, home, _): &&(&str, &str, &str)| {
                *home == of && method.starts_with(&format!("{name}."))
            };
            let Some((_, _, prefix)) = TYPES.iter().find(known) else { continue };
            // An event loop waits for a descriptor, where a task awaits.
            if !method.ends_with("_async") && !declared.contains(&in_c(&method, prefix)) {
                missing.insert(method);
            }
        }
    }
    let left_out: BTreeSet<_> = LEFT_OUT.iter().map(|(name, _)| (*name).to_owned()).collect();
    let unexplained: Vec<_> = missing.difference(&left_out).collect();
    assert!(unexplained.is_empty(), "no function in C, and no reason: {unexplained:#?}");
    assert_eq!(superfluous(LEFT_OUT, &missing), [""; 0], "C has it, or Rust no longer has it");
}

#[test]
fn cpp_uses_each_function_of_c() {
    let used = functions("rocketbufs.hpp");
    let missing: BTreeSet<_> = declared().difference(&used).cloned().collect();
    let c_only: BTreeSet<_> = C_ONLY.iter().map(|(name, _)| (*name).to_owned()).collect();
    let unexplained: Vec<_> = missing.difference(&c_only).collect();
    assert!(unexplained.is_empty(), "no class of C++ calls it, and no reason: {unexplained:#?}");
    assert_eq!(superfluous(C_ONLY, &missing), [""; 0], "C++ calls it, or C no longer has it");
}
