// Shared by the publishers of the framework's examples: a buffer that a broker has subscribed to.
#pragma once

#include <rocketbufs.hpp>

#include <stdexcept>
#include <string>

struct Link {
    rocketbufs::rOut out;
    rocketbufs::Buffer buffer;
    rocketbufs::Conn conn;

    // Connects to a broker, names a topic, and waits until the broker has subscribed.
    Link(rocketbufs::bid_t bid, const std::string &topic, const std::string &broker)
        : buffer(out.create_buffer(bid, 1 << 20)), conn(broker, "publisher") {
        out.add_conn(conn);
        // The id, little endian, and the name.
        std::string message;
        for (int i = 0; i < 4; i++) message += static_cast<char>(bid >> 8 * i);
        conn.send_control(message + topic);
        for (;;) {
            auto event = out.recv_event(std::chrono::seconds(5));
            if (!event) throw std::runtime_error("the broker does not answer");
            if (event->kind == RB_OUT_CONN_DOWN) throw std::runtime_error("the broker: " + event->text);
            if (event->kind == RB_OUT_SUBSCRIBED) return;
        }
    }
    // Ends the buffer, and waits until the broker has all of it.
    void close() {
        buffer.destroy();
        if (!buffer.drain(std::chrono::seconds(10))) throw std::runtime_error("the broker did not take everything");
    }
};
