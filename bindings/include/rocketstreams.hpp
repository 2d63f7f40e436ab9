// RocketStreams (RBLive's library) for C++17, over rocketstreams.h. Errors are thrown as rs::Error.
#ifndef ROCKETSTREAMS_HPP
#define ROCKETSTREAMS_HPP

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include "rocketstreams.h"

namespace rs {

// The id of a stream, unique across nodes.
using RsId = std::uint64_t;
// The number of a node in the configuration.
using RsNode = std::uint16_t;

class Error : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

namespace detail {
inline void check(int status) {
    if (status != 0) throw Error(rs_last_error());
}
} // namespace detail

// A one-shot chunk. A chunk that is not disseminated is given back when it is destroyed, before its manager.
class RsChunk {
  public:
    RsChunk(RsChunk &&other) noexcept : manager_(other.manager_), chunk_(std::exchange(other.chunk_, nullptr)) {}
    RsChunk(const RsChunk &) = delete;
    RsChunk &operator=(const RsChunk &) = delete;
    RsChunk &operator=(RsChunk &&) = delete;
    ~RsChunk() { rs_chunk_free(manager_, chunk_); }

    // The memory to fill.
    void *data() { return rs_chunk_data(chunk_); }
    std::size_t size() const { return rs_chunk_size(chunk_); }

  private:
    friend class RsManager;
    RsChunk(rs_manager *manager, rs_chunk *chunk) : manager_(manager), chunk_(chunk) {}
    rs_manager *manager_;
    rs_chunk *chunk_;
};

// The streams of a node. Callbacks run on worker threads and must not wait or throw; destroying the manager ends them.
class RsManager {
  public:
    explicit RsManager(const std::string &config_file) { detail::check(rs_manager_new(config_file.c_str(), &manager_)); }
    RsManager(const RsManager &) = delete;
    RsManager &operator=(const RsManager &) = delete;
    ~RsManager() { rs_manager_free(manager_); }

    RsId create_stream(const std::string &name) {
        RsId id = 0;
        detail::check(rs_create_stream(manager_, name.c_str(), &id));
        return id;
    }
    void destroy_stream(RsId id) { detail::check(rs_destroy_stream(manager_, id)); }
    void set_outbound(RsNode node, RsId id) { detail::check(rs_set_outbound(manager_, node, id)); }
    void remove_outbound(RsNode node, RsId id) { detail::check(rs_remove_outbound(manager_, node, id)); }

    RsChunk allocate_chunk(RsId id, std::size_t size) {
        rs_chunk *chunk = nullptr;
        detail::check(rs_allocate_chunk(manager_, id, size, &chunk));
        return RsChunk(manager_, chunk);
    }
    // The chunk is empty afterwards.
    void disseminate_chunk(RsChunk &chunk, std::size_t size, void *context) {
        detail::check(rs_disseminate_chunk(manager_, std::exchange(chunk.chunk_, nullptr), size, context));
    }
    void disseminate_chunk(RsChunk &&chunk, std::size_t size, void *context) { disseminate_chunk(chunk, size, context); }

    // Set once, before streams are created.
    void outbound_callback(std::function<void(RsId, void *)> callback) {
        outbound_ = std::move(callback);
        auto call = [](void *self, std::uint64_t id, void *context) {
            static_cast<RsManager *>(self)->outbound_(id, context);
        };
        detail::check(rs_outbound_callback(manager_, call, this));
    }
    // Set once, before streams arrive. The data must not be written.
    void inbound_callback(std::function<void(RsId, void *, std::size_t)> callback) {
        inbound_ = std::move(callback);
        auto call = [](void *self, std::uint64_t id, const void *data, std::size_t size) {
            static_cast<RsManager *>(self)->inbound_(id, const_cast<void *>(data), size);
        };
        detail::check(rs_inbound_callback(manager_, call, this));
    }
    // Whether received data was not overwritten so far.
    bool data_intact(RsId id, const void *data) const { return rs_data_intact(manager_, id, data); }
    void data_consumed(RsId id, std::size_t size) { detail::check(rs_data_consumed(manager_, id, size)); }

  private:
    rs_manager *manager_ = nullptr;
    std::function<void(RsId, void *)> outbound_;
    std::function<void(RsId, void *, std::size_t)> inbound_;
};

} // namespace rs

#endif
