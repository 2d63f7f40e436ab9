// The C++ API: compiled as C++17 and C++20, with and without exceptions. The argument is the address of an RBMQ broker.

#include <rocketbufs.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <unistd.h>

using namespace rocketbufs;
using namespace std::chrono_literals;

#define CHECK(condition)                                                                                             \
    do {                                                                                                             \
        if (!(condition)) {                                                                                          \
            std::fprintf(stderr, "%s:%d: %s (last error: %s)\n", __FILE__, __LINE__, #condition, last_error());     \
            std::exit(1);                                                                                            \
        }                                                                                                            \
    } while (0)

// A call that fails with a code: it throws, or without exceptions it returns what is false.
#if defined(ROCKETBUFS_NO_EXCEPTIONS)
#define FAILS(call, wanted) CHECK(!(call))
#else
#define FAILS(call, wanted)                                                                                          \
    do {                                                                                                             \
        rb_status code_ = RB_OK;                                                                                     \
        try {                                                                                                        \
            (void)(call);                                                                                            \
        } catch (const error &failed) {                                                                              \
            code_ = failed.code();                                                                                   \
            CHECK(std::string(failed.what()) == last_error());                                                       \
        }                                                                                                            \
        CHECK(code_ == (wanted));                                                                                    \
    } while (0)
#endif

static const auto wait = 60s;

template <class T> constexpr bool moves_only = std::is_nothrow_move_constructible_v<T> && !std::is_copy_constructible_v<T>;
static_assert(moves_only<Context> && moves_only<Conn> && moves_only<Listener> && moves_only<rOut> && moves_only<rIn>);
static_assert(moves_only<Buffer> && moves_only<Writer> && moves_only<Subscription> && moves_only<View> && moves_only<Reader>);
static_assert(moves_only<rbmq::Publisher> && moves_only<rbmq::Topic> && moves_only<rbmq::Subscriber> && moves_only<rbmq::Space>);
static_assert(moves_only<RateLimit> && moves_only<cmq::Queue> && moves_only<cmq::Message> && moves_only<cmq::SecretKey>);
static_assert(moves_only<rbmq::GroupWorker> && moves_only<rbmq::GroupMessage> && moves_only<rbmq::Groups>);
static_assert(std::is_trivially_copyable_v<buf_seg> && sizeof(buf_seg) == sizeof(rb_buf_seg));

// Listings 1 and 2: a producer, a consumer by callback, and the completion of a delivery.
static void listings(const Context &context, const std::string &address, const rOut &out) {
    out.create_buffer(7, 1 << 16);
    std::atomic<void *> delivered{nullptr};
    std::atomic<int> received{0};
    rOut &sender = const_cast<rOut &>(out);
    sender.set_data_out_cb([&](void *ctx) { delivered = ctx; });
    rIn in(Conn(context, address, "subscriber"));
    in.set_data_in_cb([&](bid_t bid, buf_seg seg) {
        CHECK(bid == 7 && seg.vec_count == 1 && seg.size() == 5 && !std::memcmp(seg.data(), "hello", 5));
        char copy[4];
        CHECK(seg.copy(copy, 4, 1) && !std::memcmp(copy, "ello", 4));
        received++;
    });
    in.subscribe(7, 1 << 16);
    while (out.buffer(7).subscribers().empty()) usleep(1000);
    buf_seg segs = out.get_output_segment(7, 100, true);
    CHECK(segs && segs.size() == 100);
    std::memcpy(segs.vecs[0].iov_base, "hello", 5);
    int token = 0;
    out.deliver(segs, 5, &token);
    while (!received) usleep(1000);
    CHECK(in.get_buf_ref(7).text() == "hello");
    in.data_consumed(7, 5);
    CHECK(in.get_buf_ref(7).size() == 0);
    while (delivered != &token) usleep(1000);
    sender.unset_data_out_cb();
    // No room, and the call does not block.
    buf_seg full;
    while ((full = out.get_output_segment(7, 10000, false))) {}
    CHECK(full.vec_count == -1);
}

static void calls(const Context &context, const std::string &address, const rOut &out) {
    Buffer buffer = out.create_buffer(8, 1 << 16);
    rIn in(Conn(context, address, Bytes("subscriber")));
    Subscription subscription = in.subscribe(8, 1 << 16);
    auto event = in.recv(wait);
    CHECK(event && event->kind == RB_IN_SUBSCRIBED && event->bid == 8);
    CHECK(!in.recv(no_wait) && !in.recv(1ms));
    // Properties of both ends.
    CHECK(buffer.subscriber_count() == 1 && buffer.subscribers().size() == 1 && buffer.refresh_subscribers());
    CHECK(in.subscriptions() == std::vector<bid_t>{8} && in.subscription(8).bid() == 8 && !out.buffers().empty());
    Conn conn = in.conn();
    CHECK(conn.peer_instance().low == context.instance().low && conn.max_control_bytes() > 0 && conn.control_waiting() == 0);
    while (conn.recv_event(no_wait)) {}
    CHECK(conn.is_up() && context.mapped().first == 0 && Budget(1 << 20).in_use() == 0);
    CHECK(context.config().to_toml().find("transport") != std::string::npos);
    position_t end = 0;
    {
        Writer writer = buffer.writer();
        CHECK(writer.append("one", wait, &end) && end == 3);
        CHECK(writer.free_bytes() > 0 && writer.note_time() && buffer.request_confirm(RB_LEVEL_LANDED, end));
        FAILS(buffer.writer(), RB_ERR_WRITER_TAKEN);
    }
    event = subscription.recv(wait);
    CHECK(event && event->kind == RB_IN_DATA && event->view.text() == "one" && event->view.to_string() == "one");
#if defined(__cpp_lib_span)
    CHECK(event->view.span().size() == 3);
    CHECK(buffer.writer().append(std::span<const char>("two", 3)));
    event->view.consume();
    event = in.recv(wait);
    CHECK(event->view.text() == "two");
#endif
    View moved = std::move(event->view);
    CHECK(!event->view && moved && moved.size() == 3);
    CHECK(moved.consume() && !moved);
    CHECK(buffer.wait(RB_LEVEL_CONSUMED, end, wait));
    CHECK(!buffer.wait(RB_LEVEL_CONSUMED, end + 1000, 1ms));
    CHECK(buffer.info().head >= 3 && buffer.confirmed().subscriptions == 1);
    std::optional<InEvent> other;
    {
        Reader reader(in);
        FAILS(in.recv(no_wait), RB_ERR_READER_TAKEN);
        CHECK(buffer.writer().append("three"));
        std::string got;
        while (got.empty()) CHECK(reader.recv([&](bid_t, buf_seg seg) { got.assign(reinterpret_cast<char *>(seg.data()), seg.size()); }, other, wait));
        CHECK(got == "three" && !other);
    }
    buffer.destroy();
    while ((event = in.recv(wait)) && event->kind != RB_IN_CLOSED) {}
    CHECK(event);
    FAILS(out.create_buffer(7, 1 << 16), RB_ERR_EXISTS);
    FAILS(out.buffer(1234), RB_ERR_NO_SUCH_BUFFER);
    FAILS(Conn(context, "127.0.0.1:1"), RB_ERR_DOWN);
    FAILS(Config().set("tcp.nodeley", "1"), RB_ERR_CONFIG);
    CHECK(Config::from_toml("[tcp]\nnodelay = false").to_toml().find("nodelay = false") != std::string::npos);
}

// An exception that a callback throws closes its connection, and no other.
static void throwing(const Context &context, const std::string &address, const rOut &out) {
#if !defined(ROCKETBUFS_NO_EXCEPTIONS)
    Buffer buffer = out.create_buffer(9, 1 << 16);
    Conn conn(context, address, "subscriber");
    rIn in(conn);
    in.set_data_in_cb([](bid_t, buf_seg) { throw std::runtime_error("InvalidMapping"); });
    in.subscribe(9, 1 << 16);
    while (buffer.subscribers().empty()) usleep(1000);
    CHECK(buffer.append("x"));
    auto down = conn.wait_down(wait);
    CHECK(down && down->by == RB_DOWN_BY_LOCAL && down->text == "InvalidMapping");
    auto refused = std::string();
    try {
        Conn(context, address, "throw");
    } catch (const error &failed) {
        refused = failed.what();
    }
    CHECK(refused.find("no such role") != std::string::npos);
#else
    (void)context, (void)address, (void)out;
#endif
}

// The identities of peers, their admission to subscriptions, and their rates.
static void peers() {
    Context context{Config::from_toml("transport = \"auto\"")}, over_tcp{Config()};
    rOut out(context);
    Listener listener(context, "127.0.0.1:0");
    RateLimit slow(200000, 1), fast(0, 1 << 20);
    listener.set_conn_cb([&](Conn &conn) {
        PeerIdentity identity = conn.peer_identity();
        CHECK(identity.certificate.empty() && !identity.encrypted);
        CHECK(!identity.process || (identity.process->pid == static_cast<std::uint32_t>(getpid()) && identity.process->uid == geteuid()));
        CHECK(conn.set_rate_limits({}, {slow, fast}));
        out.add_conn(conn);
    });
    Buffer open = out.create_buffer(1, 1 << 16), closed = out.create_buffer(2, 1 << 16);
    std::atomic<bool> is_open{true};
    out.set_admission([&](const Asking &asking) -> std::optional<Admitted> {
#if !defined(ROCKETBUFS_NO_EXCEPTIONS)
        if (asking.name == "throws") throw std::runtime_error("no such name");
#endif
        if (asking.bid == 2 || !is_open) return std::nullopt;
        return Admitted{1u << RB_POLICY_BLOCK, asking.conn};
    });
    CHECK(Conn(context, listener.local_addr()).peer_identity().process->gid == getegid());
    rIn in(Conn(over_tcp, listener.local_addr()));
    CHECK(!in.conn().peer_identity().process);
    in.subscribe(2, 1 << 16);
    auto event = in.recv(wait);
    CHECK(event && event->kind == RB_IN_REFUSED && event->refused == RB_ERR_NO_SUCH_BUFFER);
    rb_subscribe_options options{};
    options.size = sizeof options;
    options.name = "throws";
    options.name_len = 6;
#if !defined(ROCKETBUFS_NO_EXCEPTIONS)
    in.subscribe_with(1, options);
    event = in.recv(wait);
    CHECK(event && event->kind == RB_IN_REFUSED && event->refused == RB_ERR_NO_SUCH_BUFFER);
#endif
    in.subscribe(1, 1 << 16);
    event = in.recv(wait);
    CHECK(event && event->kind == RB_IN_SUBSCRIBED);
    CHECK(open.writer().append(std::string(16000, 'x')));
    for (std::size_t got = 0; got < 16000; got += event->view.size(), event->view.consume()) {
        event = in.recv(wait);
        CHECK(event && event->kind == RB_IN_DATA);
    }
    while (slow.info().bytes < 16000 || fast.info().bytes < 16000) usleep(1000);
    CHECK(slow.info().delayed_ns > 0 && fast.info().delayed_ns == 0 && slow.info().in_use);
    CHECK(slow.set(1000, 8000) && slow.info().burst_bytes == 8000 && context.is_rate_limit_full(RateLimit(5, 5)));
    is_open = false;
    CHECK(out.review_admissions());
    event = in.recv(wait);
    CHECK(event && event->kind == RB_IN_REFUSED && event->bid == 1);
    out.unset_admission();
    in.subscribe(2, 1 << 16);
    event = in.recv(wait);
    CHECK(event && event->kind == RB_IN_SUBSCRIBED && closed.subscriber_count() == 1);
    listener.unset_conn_cb();
}

// A buffer for nobody is for nobody while the decision is replaced, and after the rOut is gone.
static void nobody_gets_in() {
    Context context{Config()};
    auto out = std::make_unique<rOut>(context);
    Listener listener(context, "127.0.0.1:0");
    listener.set_conn_cb([&](Conn &conn) { out->add_conn(conn); });
    auto nobody = [](const Asking &) { return std::optional<Admitted>(); };
    CHECK(out->set_admission(nobody));
    Buffer buffer = out->create_buffer(1, 1 << 16);
    rIn in(Conn(context, listener.local_addr()));
    auto refused = [&] {
        in.subscribe(1, 1 << 16);
        auto event = in.recv(wait);
        CHECK(event && event->kind == RB_IN_REFUSED && event->refused == RB_ERR_NO_SUCH_BUFFER);
    };
    refused();
    std::atomic<bool> ends{false};
    std::thread replacing([&] {
        while (!ends) CHECK(out->set_admission(nobody));
    });
    for (int n = 0; n < 300; ++n) refused();
    ends = true;
    replacing.join();
    listener.unset_conn_cb();
    out.reset();
    refused();
    CHECK(buffer.subscriber_count() == 0);
}

static void topics(const std::string &broker) {
    rbmq_subscriber_options options{};
    options.size = sizeof options;
    options.until_ended = true;
    std::string name = "cpp/" + std::to_string(getpid());
    rbmq::Publisher publisher(broker);
    rbmq::Topic topic = publisher.topic(name);
    rbmq::Subscriber subscriber(broker, &options);
    CHECK(subscriber.subscribe(name) && topic.wait_subscribers(1, wait));
    rbmq::position_t end = 0;
    CHECK(topic.publish("one"));
    auto message = subscriber.recv(wait);
    CHECK(message && message->text() == "one" && message->topic_name() == name);
    {
        rbmq::Subscriber calls(broker), moved(broker);
        std::atomic<int> called{0};
        CHECK(calls.subscribe(name) && topic.wait_subscribers(2, wait));
        calls.set_message_cb([&](rb_status code, const rbmq::Message &called_with) {
            called += code == RB_OK ? called_with.text() == "two" || called_with.text() == "three" : 10;
        });
        moved = std::move(calls);
        topic.publish("two");
        while (called != 1) usleep(1000);
        moved.interrupt();
        while (called != 11) usleep(1000);
        moved.unset_message_cb();
        topic.publish("three");
        CHECK(moved.recv(wait)->text() == "three");
        moved.set_message_cb([](rb_status, const rbmq::Message &) {});
        subscriber.recv(wait), subscriber.recv(wait);
    }
    while (topic.info().subscribers != 1) usleep(1000);
    {
        rbmq::WriteBatch batch(topic, 64, wait);
        CHECK(batch && batch.push("two") && batch.push("three") && batch.deliver(&end));
        rbmq::WriteBatch dropped(topic, 64);
        CHECK(dropped.push("never") && !dropped.push(std::string(100, 'x')));
    }
    std::string got;
    while (got.size() < 8) subscriber.for_each_record([&](Bytes record) { got.append(static_cast<const char *>(record.data), record.size); }, wait);
    CHECK(got == "twothree");
    rbmq_confirmed confirmed{};
    CHECK(topic.confirm(end, RBMQ_LEVEL_DELIVERED, wait, &confirmed) && confirmed.subscribers == 1);
    CHECK(topic.confirmation(end, RBMQ_LEVEL_ACCEPTED).wait(wait));
    CHECK(topic.confirmed(RBMQ_LEVEL_ACCEPTED) >= end && topic.accept_lost(RBMQ_LEVEL_ACCEPTED).second == 0);
    {
        rbmq::Segment segment = topic.claim(64, wait), none;
        std::memcpy(segment.data(), "four", 4);
        CHECK(segment && segment.size() == 64 && !none && topic.publish_segment(segment, 4) && !segment);
        segment = topic.claim(8, wait);
        CHECK(topic.return_segment(segment));
        auto batch = subscriber.next_batch(wait);
        CHECK(batch && batch->len == 8);
        rbmq::DeferredBatch deferred = subscriber.defer();
        CHECK(deferred && deferred.epoch().low == batch->epoch.low && deferred.consume_up_to(batch->end) && !deferred);
    }
    {
        rbmq::Attributes says;
        says.reply_to("answers").content_type("").property("k", "1").property("k", "2").key(Bytes("\xff", 1));
        says.topic("t").correlation_data("c").time_ms(5).expiry_ms(6).payload_is_utf8().retain().qos(0);
        rbmq::Segment segment = topic.claim_with(says, 64, wait);
        std::memcpy(segment.data(), "five", 4);
        CHECK(segment.size() == 64 && topic.publish_segment(segment, 4) && topic.publish_with(rbmq::Attributes(), "six", wait));
        auto five = subscriber.recv(wait);
        rbmq::ReadAttributes read = five->read_attributes();
        CHECK(five->text() == "five" && read.reply_to() == "answers" && read.content_type() == "" && read.topic() == "t");
        CHECK(read.properties().size() == 2 && read.properties()[1].second == "2" && read.key()->size == 1);
        CHECK(read.correlation_data()->size == 1 && read.time_ms() == 5 && read.expiry_ms() == 6);
        CHECK(read.payload_is_utf8() && read.retain() && read.qos() == 0);
        rbmq::WriteBatch batch(topic, 500, wait);
        CHECK(batch.push_with(rbmq::Attributes().pass_on(*five).reply_to("others"), "seven") && batch.deliver());
        auto six = subscriber.recv(wait);
        CHECK(six->text() == "six" && !six->read_attributes().reply_to() && six->read_attributes().properties().empty());
        auto seven = subscriber.recv(wait);
        CHECK(seven->text() == "seven" && seven->read_attributes().reply_to() == "others" && seven->read_attributes().topic() == "t");
        CHECK(topic.confirm(topic.info().position, RBMQ_LEVEL_DELIVERED, wait));
    }
    for (std::size_t size : {std::size_t{1} << 20, std::size_t{16} << 20}) {
        std::string large(size, 'l');
        CHECK(topic.publish(large, wait) && subscriber.recv(wait)->text() == large);
    }
    rbmq_topic_options small{};
    small.size = sizeof small;
    small.ring_bytes = 1 << 16;
    rbmq::Topic kept = publisher.topic("kept/" + name, &small);
    rbmq::position_t stored = 0;
    CHECK(kept.publish("kept", wait, &stored) && kept.confirm(stored, RBMQ_LEVEL_SYNCED, wait));
    CHECK(kept.confirmed(RBMQ_LEVEL_STORED) >= stored && kept.disk_failure().empty() && kept.close(wait));
    FAILS(topic.confirm(end, RBMQ_LEVEL_STORED, wait), RB_ERR_REFUSED);
    rbmq::Observer observer(broker);
    CHECK(observer.summary()->topics >= 1);
    for (const rbmq_topic_stats &row : observer.topics(name.c_str())) CHECK(row.topic == name && row.subscribers == 1);
    CHECK(observer.topics(name.c_str()).size() == 1 && observer.topic(name).begin()->subscriptions_count == 1);
    CHECK(topic.close(wait) && !topic);
    CHECK(!subscriber.recv(wait) && subscriber.ended());
    FAILS(publisher.topic("a+b"), RB_ERR_NAME);
}

// Workers of a group: their words, what comes again, the order of keys, and those who look after groups.
static void groups(const char *broker) {
    const std::string topic = "kept/" + std::to_string(getpid()) + "/jobs", letters = "kept/" + std::to_string(getpid()) + "/letters";
    rbmq::Publisher publisher(broker);
    rbmq_topic_options small{};
    small.size = sizeof small;
    small.ring_bytes = 1 << 16;
    rbmq::Topic jobs = publisher.topic(topic, &small), buried = publisher.topic(letters, &small);
    rbmq::position_t end = 0;
    for (const char *text : {"a1", "a2", "b1"}) CHECK(jobs.publish_with(rbmq::Attributes().key(Bytes(text, 1)), text, wait, &end));
    CHECK(jobs.confirm(end, RBMQ_LEVEL_STORED, wait) && jobs.close(wait) && buried.close(wait));

    rbmq_group_options options{};
    options.size = sizeof options;
    options.ack_time_ns = 3600 * RB_S;
    options.max_attempts = 2;
    options.dead_letters = letters.c_str();
    options.ordered = true;
    rbmq::GroupWorker first(broker, topic, "g", &options), worker(std::move(first));
    CHECK(!first && worker.is_joined() && worker.ack_time() == 1h);
    rbmq::GroupMessage a1 = worker.recv(wait), b1 = worker.recv(wait), none;
    CHECK(a1.text() == "a1" && a1.attempt() == 1 && b1.text() == "b1" && !none && none.text().empty());
    CHECK(a1.read_attributes().key()->size == 1 && b1.position() > a1.position() && b1.bytes().size == 2);
    CHECK(!worker.recv(no_wait) && a1.extend(2h));
    FAILS(a1.nack(-1s), RB_ERR_ARGUMENT);
    rbmq::GroupMessage moved = std::move(a1);
    CHECK(moved && moved.text() == "a1" && !a1 && a1.text().empty());
    CHECK(moved.give_back() && !moved && moved.text().empty() && b1.ack());
    FAILS(b1.ack(), RB_ERR_NULL);
    // A released message is the first attempt again. What a worker had when it is closed is a failed one.
    moved = worker.recv(wait);
    CHECK(moved.text() == "a1" && moved.attempt() == 1 && worker.flush(wait) && worker.close() && !worker);
    {
        rbmq::GroupWorker next(broker, topic, "g");
        moved = next.recv(wait);
        CHECK(moved.text() == "a1" && moved.attempt() == 2 && moved.nack(1ms));
        rbmq::GroupMessage a2 = next.recv(wait);
        CHECK(a2.text() == "a2" && a2.attempt() == 1 && a2.ack() && next.flush(wait));
        rbmq::GroupWorker dead(broker, letters, "g");
        rbmq::GroupMessage letter = dead.recv(wait);
        auto properties = letter.read_attributes().properties();
        CHECK(letter.text() == "a1" && properties.size() == 4 && properties[0].first == "rbmq-topic" && properties[0].second == topic);
        CHECK(letter.ack() && dead.close());
    }
    rbmq::Groups all(broker);
    bool found = false;
    for (const rbmq_group_stats &row : all.list()) {
        if (row.topic != topic) continue;
        found = row.group == std::string("g") && row.acked == 2 && row.dead == 1 && row.lag_bytes == 0 && row.ordered && row.dead_letters == letters;
    }
    CHECK(found && all.reset(topic, "g", RBMQ_GROUP_OLDEST) && all.forget(topic, "g"));
    FAILS(all.forget(topic, "g"), RB_ERR_REFUSED);
    FAILS(rbmq::GroupWorker(broker, topic, "a group"), RB_ERR_NAME);
    FAILS(rbmq::GroupWorker(broker, "not/kept", "g"), RB_ERR_REFUSED);
}

static void queues() {
    cmq_options immediate{};
    immediate.size = sizeof immediate;
    immediate.preset = CMQ_PRESET_IMMEDIATE;
    cmq::Queue receiver = cmq::new_rq("127.0.0.1:0"), sender = cmq::new_rq("127.0.0.1:0", &immediate);
    cmq::Key to(receiver.local_addr().address(), 7);
    CHECK(!receiver.cw_pop() && sender.cw_push(to, "hello"));
    auto message = receiver.pop(wait);
    CHECK(message && message->text() == "hello" && message->from().id == 7);
    CHECK(receiver.cw_push(message->from(), std::string("answer")) && receiver.flush());
    CHECK(sender.pop(wait)->text() == "answer");

    cmq::Mailbox mailbox = receiver.mailbox(9);
    cmq::Key box(to.address(), 9);
    std::vector<iovec> three = {{const_cast<char *>("a"), 1}, {const_cast<char *>("b"), 1}, {const_cast<char *>("c"), 1}};
    auto is_b = [](std::string_view bytes, const cmq::Key &from) { return bytes == "b" && from.id != 0; };
    CHECK(mailbox.id() == 9 && !mailbox.cw_pop() && !mailbox.pop_where(is_b, no_wait));
    CHECK(sender.cw_push_many(box, three) == 3 && mailbox.pop_where(is_b, wait)->text() == "b");
    std::size_t got = 0;
    while (got < 2) got += mailbox.pop_many(5, wait).size();
    CHECK(got == 2 && mailbox.waiting() == 0 && mailbox.pop_many(5, no_wait).empty() && mailbox.close());
    CHECK(sender.cw_push_many(to, three) == 3 && receiver.pop_where(is_b, wait) && receiver.pop_many(1, wait).size() == 1);
    CHECK(receiver.senders().size() == 1 && receiver.senders_at(sender.local_addr()).size() == 1);
    CHECK(receiver.senders()[0].epoch == sender.epoch() && sender.senders_at(to).size() <= 1);
}

// Encryption and the reliable mode.
static void secure_queues() {
    cmq::SecretKey one = cmq::SecretKey::generate(), other = cmq::SecretKey::generate();
    cmq::PublicKey to = other.public_key(), copy(to.text());
    CHECK(copy == to && copy != one.public_key() && to.text().size() == 64);
    std::string file = "/tmp/cmq_key." + std::to_string(getpid());
    CHECK(one.write_new(file));
    FAILS(one.write_new(file), RB_ERR_CONFIG);
    cmq::SecretKey moved = cmq::SecretKey::read(file), kept = std::move(moved);
    CHECK(kept.public_key() == one.public_key() && !unlink(file.c_str()));
    FAILS(cmq::PublicKey("no key") != cmq::PublicKey(), RB_ERR_ARGUMENT);
    FAILS(cmq::PublicKey::read(file) != cmq::PublicKey(), RB_ERR_CONFIG);

    cmq_reliable reliable{};
    reliable.size = sizeof reliable;
    cmq_security sending{}, receiving{};
    sending.size = receiving.size = sizeof sending;
    sending.secret = one.get();
    sending.default_peer = &to;
    receiving.secret = other.get();
    cmq_options send{}, receive{};
    send.size = receive.size = sizeof send;
    send.reliable = receive.reliable = &reliable;
    send.security = &sending;
    receive.security = &receiving;
    cmq::Queue receiver("127.0.0.1:0", &receive), sender("127.0.0.1:0", &send), plain("127.0.0.1:0");
    cmq::Key key(receiver.local_addr().address(), 7);
    CHECK(!receiver.peer_key(sender.local_addr()));
    auto number = sender.push_reliable(key, "hello");
    CHECK(number == 0 && sender.wait_confirmed(key, *number, wait) && sender.wait_all_confirmed(wait));
    CHECK(receiver.cw_pop()->text() == "hello");
    CHECK(sender.fate(key, *number).first == CMQ_FATE_CONFIRMED && sender.fate(key, 9).first == CMQ_FATE_UNKNOWN);
    CHECK(receiver.peer_key(sender.local_addr()) == one.public_key());
    CHECK(sender.stats().reliable.confirmed == 1 && receiver.stats().security.sessions == 1);
    FAILS(plain.push_reliable(key, "x"), RB_ERR_CONFIG);
    FAILS(sender.wait_confirmed(key, 9, no_wait), RB_ERR_ARGUMENT);
}

#if defined(ROCKETBUFS_COROUTINES)
static Task receive(EventLoop &loop, const rIn &in, std::string &got) {
    for (;;) {
        auto event = co_await async_recv(loop, in);
        if (event->kind == RB_IN_DATA) {
            got += event->view.to_string();
            event->view.consume();
        }
        if (event->kind == RB_IN_CLOSED) co_return;
    }
}

static Task publish(EventLoop &loop, const rOut &out, bid_t bid) {
    for (int subscribers = 0; subscribers < 2;) {
        auto event = co_await async_recv_event(loop, out);
        if (event->kind == RB_OUT_SUBSCRIBED && event->bid == bid) subscribers++;
    }
    Buffer buffer = out.buffer(bid);
    for (int i = 0; i < 10; i++) CHECK(buffer.writer().append(std::to_string(i)));
    buffer.destroy();
}

// Several coroutines in one thread.
static void coroutines(const Context &context, const std::string &address, const rOut &out) {
    EventLoop loop;
    std::string first, second;
    out.create_buffer(10, 1 << 16);
    rIn one(Conn(context, address, "subscriber")), two(Conn(context, address, "subscriber"));
    one.subscribe(10, 1 << 16);
    two.subscribe(10, 1 << 16);
    receive(loop, one, first);
    receive(loop, two, second);
    publish(loop, out, 10);
    loop.run();
    CHECK(first == "0123456789" && second == first);
}
#else
static void coroutines(const Context &, const std::string &, const rOut &) {}
#endif

// CMQ's strategies.
static void strategies() {
    cmq_options immediate{};
    immediate.size = sizeof immediate;
    immediate.preset = CMQ_PRESET_IMMEDIATE;
    cmq::Responder responder("127.0.0.1:0", &immediate);
    cmq::Caller caller("127.0.0.1:0", nullptr, &immediate);
    cmq::Call call = caller.call(responder.local_addr(), "four");
    CHECK(call && !call.wait(no_wait));
    auto length = [](std::string_view request) { return std::optional<std::string>(std::to_string(request.size())); };
    CHECK(responder.serve(length, 60s));
    CHECK(call.wait(60s)->text() == "4");
    CHECK(!responder.serve(length, no_wait));
#if !defined(ROCKETBUFS_NO_EXCEPTIONS)
    cmq::Call second = caller.call(responder.local_addr(), "x");
    auto throws = [](std::string_view) -> std::optional<std::string> { throw std::runtime_error("not this one"); };
    std::string why;
    try {
        responder.serve(throws, 60s);
    } catch (const std::runtime_error &thrown) {
        why = thrown.what();
    }
    CHECK(why == "not this one");
#endif
    cmq::Repair sender("127.0.0.1:0", nullptr, &immediate), receiver("127.0.0.1:0", nullptr, &immediate);
    CHECK(sender.push(receiver.local_addr(), 3, "price") && sender.notify_end(receiver.local_addr()));
    auto got = receiver.pop(60s);
    CHECK(got->message.text() == "price" && got->slot == 3 && got->number == 0 && !got->repaired);
}

// All topics of a space by one writer. What is received has the topic's own name.
static void spaces(const std::string &broker) {
    const std::string prefix = "space/cpp/" + std::to_string(getpid()), temp = prefix + "/temp", door = prefix + "/door";
    rbmq::Publisher publisher(broker);
    rbmq::Space space = publisher.space("space/#");
    rbmq_subscriber_options options{};
    options.size = sizeof options;
    options.confirm_consumed = true;
    rbmq::Subscriber subscriber(broker, &options);
    CHECK(subscriber.subscribe(prefix + "/+") && space.wait_subscribers(1, wait));
    CHECK(space.contains(temp) && !space.contains("kept/1") && space.covers(prefix + "/#") && !space.covers("#"));
    rbmq::position_t end = 0;
    CHECK(space.publish_to(temp, "21.5") && space.publish_to(door, rbmq::Attributes().reply_to("answers"), "open", wait));
    {
        rbmq::SpaceBatch batch(space, 64, wait);
        CHECK(batch && batch.push(temp, "22") && batch.push(door, rbmq::Attributes().property("by", "hand"), "shut"));
        CHECK(!batch.push(temp, std::string(100, 'x')) && batch.deliver(&end));
        rbmq::SpaceBatch dropped(space, 64);
        CHECK(dropped.push(temp, "never"));
    }
    const char *expected[] = {"21.5", "open", "22", "shut"};
    for (int i = 0; i < 4; ++i) {
        auto message = subscriber.recv(wait);
        CHECK(message && message->text() == expected[i] && message->topic_name() == (i % 2 ? door : temp));
        CHECK(message->read_attributes().reply_to().has_value() == (i == 1));
        CHECK(message->read_attributes().properties().size() == (i == 3 ? 1u : 0u));
    }
    CHECK(!subscriber.recv(rbmq::no_wait));
    rbmq_confirmed confirmed{};
    CHECK(space.confirm(end, RBMQ_LEVEL_CONSUMED, wait, &confirmed) && confirmed.subscribers == 1);
    CHECK(space.confirmation(end, RBMQ_LEVEL_DELIVERED).wait(wait) && space.confirmed(RBMQ_LEVEL_DELIVERED) >= end);
    CHECK(space.accept_lost(RBMQ_LEVEL_DELIVERED).second == 0 && space.disk_failure().empty() && space.info().position == end);
    FAILS(space.publish_to("kept/1", "x"), RB_ERR_NAME);
    FAILS(space.publish_to(temp, rbmq::Attributes().topic(temp), "x"), RB_ERR_ARGUMENT);
    FAILS(space.contains("a/#"), RB_ERR_NAME);
    CHECK(space.flush(wait) && space.close(wait) && !space);
    FAILS(publisher.space("unknown/#"), RB_ERR_REFUSED);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    Context context{Config()};
    rOut out(context);
    Listener listener(context, "127.0.0.1:0");
    listener.set_conn_cb([&](Conn &conn) {
        std::string role = conn.peer_hello();
#if !defined(ROCKETBUFS_NO_EXCEPTIONS)
        if (role == "throw") throw std::runtime_error("no such role");
#endif
        CHECK(role == "subscriber");
        out.add_conn(conn);
    });
    std::string address = listener.local_addr();
    listings(context, address, out);
    calls(context, address, out);
    throwing(context, address, out);
    coroutines(context, address, out);
    peers();
    nobody_gets_in();
    topics(argv[1]);
    spaces(argv[1]);
    groups(argv[1]);
    queues();
    secure_queues();
    strategies();
    listener.unset_conn_cb();
    std::printf("C++ %ld%s: ok\n", __cplusplus / 100 % 100,
#if defined(ROCKETBUFS_NO_EXCEPTIONS)
                " without exceptions"
#else
                ""
#endif
    );
    return 0;
}
