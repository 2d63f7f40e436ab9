// A publish/subscribe broker: Listing 3 of paper 1. docs/CPP.md compares them line by line.
//
// ./broker 127.0.0.1:7400; then ./subscribe 7 and ./publish 7 TOPIC in other terminals.

#include <rocketbufs.hpp>

#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unistd.h>

using namespace rocketbufs;

static const std::size_t buffer_size = 1 << 20;
static rOut out; // Dissemination object

// The topics, by the buffer that each of a publisher's topics is in.
static std::mutex topics_lock;
static std::map<bid_t, std::string> topics;

static bool from_publisher(const Conn &conn) { return conn.peer_hello() == "publisher"; }
static bool from_subscriber(const Conn &conn) { return conn.peer_hello() == "subscriber"; }

static bool verify_topic_mapping(bid_t bid, const buf_seg &) {
    std::lock_guard<std::mutex> locked(topics_lock);
    return topics.count(bid) != 0;
}

// A topic is created by its buffer's id and its name.
static bool is_topic_creation(const iovec &msg) { return msg.iov_len > sizeof(bid_t); }

static bid_t bid_from_msg(const iovec &msg) {
    const unsigned char *bytes = static_cast<const unsigned char *>(msg.iov_base);
    bid_t bid = bytes[0] | bid_t(bytes[1]) << 8 | bid_t(bytes[2]) << 16 | bid_t(bytes[3]) << 24;
    std::lock_guard<std::mutex> locked(topics_lock);
    topics[bid] = std::string(reinterpret_cast<const char *>(bytes) + 4, msg.iov_len - 4);
    return bid;
}

// Callback for data ingest (from publisher)
static void publisher_data_cb(bid_t bid, buf_seg data) {
    if (!verify_topic_mapping(bid, data)) throw std::runtime_error("InvalidMapping");
    // Splice prevents the need for other logic here
}

// Callback for handling control messages
static void on_ctrl_msg(rIn *in, iovec msg) {
    if (is_topic_creation(msg)) {
        bid_t bid = bid_from_msg(msg);
        in->subscribe(bid, buffer_size); // Subscribe to publisher
        out.splice(*in, bid);            // Deliver data to subscribers
    }
}

// Callback for handling new connections
static void on_conn(Conn &conn) {
    if (from_publisher(conn)) {
        rIn *in = new rIn(conn);
        // Set callback to handle control messages
        in->set_control_msg_cb(std::bind(on_ctrl_msg, in, std::placeholders::_1));
        // Set callback to handle application data
        in->set_data_arrived_cb(publisher_data_cb);
    }
    // Add subscriber connections
    if (from_subscriber(conn)) out.add_conn(conn);
}

int main(int argc, char **argv) {
    const char *broker_address = argc > 1 ? argv[1] : "127.0.0.1:7400";
    // Listen for connections (from publishers and subscribers)
    Listener listener(broker_address, "tcp");
    listener.set_conn_cb(on_conn);
    std::printf("a broker on %s; Ctrl-C ends it\n", listener.local_addr().c_str());
    std::fflush(stdout);
    for (;;) pause();
}
