// RocketBufs, RBMQ's client and CMQ for C++17 and later: header-only, on rocketbufs.h. docs/CPP.md is the guide.
//
// The classes own handles of the C API: they can be moved and not copied, and their destructors free the handle. The methods
// are those of the C functions, whose documentation applies: threads, errors, and when memory is whose.
//
// Errors. A call that fails throws rocketbufs::error. Without exceptions (-fno-exceptions, or ROCKETBUFS_NO_EXCEPTIONS defined),
// it returns a status that is false, or an empty object, which is false too; rocketbufs::last_error() has the text. Outcomes
// that are no failures (no room, nothing in time) are never thrown: they are a status, or an empty optional or object.
//
// Callbacks are std::functions, owned by the object on which they were set, and removed by its destructor. An exception that
// leaves a callback closes the connection that the callback was called for, with the exception's text; where there is none,
// the program ends.
//
// Order of this file. Namespace rocketbufs: errors, time-outs and bytes; Config, RateLimit, Context, Budget; Conn and Listener; View, InEvent,
// OutEvent; Writer and Buffer; Subscription, rIn, Reader; rOut; EventLoop, and Task with C++20. Namespace rbmq: Topic, Publisher;
// Message, Subscriber; GroupMessage, GroupWorker, Groups; Observer. Namespace cmq: Key, Message; PublicKey, SecretKey; Mailbox, Queue; Caller,
// Responder; Repair.

#ifndef ROCKETBUFS_HPP
#define ROCKETBUFS_HPP

#include "rocketbufs.h"

#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(__has_include)
#if __has_include(<version>)
#include <version>
#endif
#endif
#if defined(__cpp_lib_span)
#include <cstddef>
#include <span>
#endif
#if defined(__cpp_impl_coroutine) && defined(__cpp_lib_coroutine)
#include <coroutine>
#include <sys/epoll.h>
#include <unistd.h>
#define ROCKETBUFS_COROUTINES 1
#endif

#if !defined(ROCKETBUFS_NO_EXCEPTIONS) && !defined(__cpp_exceptions)
#define ROCKETBUFS_NO_EXCEPTIONS 1
#endif
#if !defined(ROCKETBUFS_NO_EXCEPTIONS)
#include <stdexcept>
#endif

namespace rocketbufs {

// The id of a buffer (paper 1, section 3.1).
using bid_t = std::uint32_t;
// A position in a log.
using position_t = std::uint64_t;

// The text of this thread's last error.
inline const char *last_error() noexcept { return rb_last_error(); }

#if !defined(ROCKETBUFS_NO_EXCEPTIONS)
// A call failed. what() is the text of rb_last_error().
class error : public std::runtime_error {
public:
    error(rb_status code, const char *text) : std::runtime_error(text), code_(code) {}
    // RB_ERR_...
    rb_status code() const noexcept { return code_; }

private:
    rb_status code_;
};
#endif

// The result of a call: true for success.
class status {
public:
    constexpr status(rb_status code = RB_OK) noexcept : code_(code) {}
    // RB_OK, an outcome, or without exceptions an error.
    constexpr rb_status code() const noexcept { return code_; }
    constexpr explicit operator bool() const noexcept { return code_ == RB_OK; }
    // An outcome: nothing in time, no room, nothing more.
    constexpr bool is_outcome() const noexcept { return code_ > RB_OK; }
    const char *message() const noexcept { return rb_strerror(code_); }

private:
    rb_status code_;
};

namespace detail {

// Throws an error, or returns it.
inline status check(rb_status code) {
#if !defined(ROCKETBUFS_NO_EXCEPTIONS)
    if (code < RB_OK) throw error(code, rb_last_error());
#endif
    return status(code);
}

// A descriptor, or an error.
inline int check_number(int number) {
    if (number < 0) check(static_cast<rb_status>(number));
    return number;
}

// Owns a handle of the C API.
template <class T, rb_status (*Free)(T *)> class Handle {
public:
    Handle() noexcept = default;
    explicit Handle(T *handle) noexcept : handle_(handle) {}
    Handle(Handle &&other) noexcept : handle_(other.release()) {}
    Handle &operator=(Handle &&other) noexcept {
        if (this != &other) {
            if (handle_) Free(handle_);
            handle_ = other.release();
        }
        return *this;
    }
    ~Handle() {
        if (handle_) Free(handle_);
    }

    // Whether there is an object.
    explicit operator bool() const noexcept { return handle_ != nullptr; }
    // The handle of the C API, which stays the object's.
    T *get() const noexcept { return handle_; }
    // The handle of the C API, which is the caller's from here on.
    T *release() noexcept { return std::exchange(handle_, nullptr); }

protected:
    T *handle_ = nullptr;
};

// Calls a text function of the C API.
template <class F> std::string text(F &&call) {
    std::size_t len = 0;
    if (!check(call(nullptr, 0, &len))) return {};
    for (;;) {
        std::string to(len + 1, '\0');
        std::size_t needed = 0;
        if (!check(call(to.data(), to.size(), &needed))) return {};
        to.resize(needed < to.size() ? needed : to.size() - 1);
        if (needed <= len) return to;
        len = needed;
    }
}

// Calls a function of the C API that lists something.
template <class T, class F> std::vector<T> list(F &&call) {
    std::vector<T> all;
    std::size_t count = 0;
    do {
        all.resize(count);
        if (!check(call(all.data(), all.size(), &count))) return {};
    } while (count > all.size());
    all.resize(count);
    return all;
}

inline std::string string(const char *text) { return text ? std::string(text) : std::string(); }

// A callback, shared with the call that runs: it may be removed inside itself.
template <class F> struct Callback {
    std::shared_ptr<std::function<F>> function;
    void *owner; // The handle of the object that it was set on.
};
template <class F> using CallbackSlot = std::unique_ptr<Callback<F>>;

// Runs a callback. An exception that the callback throws goes to `failed`.
template <class F, class Failed> void guarded(F &&run, Failed &&failed) noexcept {
#if !defined(ROCKETBUFS_NO_EXCEPTIONS)
    try {
        run();
    } catch (const std::exception &thrown) {
        failed(thrown.what());
    } catch (...) {
        failed("a callback threw");
    }
#else
    (void)failed;
    run();
#endif
}

inline void close_rin(void *rin, const char *why) noexcept {
    rb_conn *conn = nullptr;
    if (rb_rin_conn(static_cast<rb_rin *>(rin), &conn) == RB_OK) rb_conn_close(conn, why);
    rb_conn_free(conn);
}

[[noreturn]] inline void give_up(const char *) noexcept { std::terminate(); }

} // namespace detail

// How long a call waits.
class Timeout {
public:
    template <class Rep, class Period>
    constexpr Timeout(std::chrono::duration<Rep, Period> limit)
        : nanos_(std::chrono::duration_cast<std::chrono::nanoseconds>(limit).count()) {
        if (nanos_ < 0) nanos_ = 0;
    }
    static constexpr Timeout no_limit() { return Timeout(RB_NO_LIMIT); }
    static constexpr Timeout no_wait() { return Timeout(RB_NO_WAIT); }
    constexpr std::int64_t nanos() const noexcept { return nanos_; }

private:
    constexpr explicit Timeout(std::int64_t nanos) : nanos_(nanos) {}
    std::int64_t nanos_;
};
inline constexpr Timeout no_limit = Timeout::no_limit();
inline constexpr Timeout no_wait = Timeout::no_wait();

// Bytes of the caller, during a call.
struct Bytes {
    const void *data = nullptr;
    std::size_t size = 0;

    Bytes() = default;
    Bytes(const void *bytes, std::size_t count) : data(bytes), size(count) {}
    Bytes(std::string_view text) : data(text.data()), size(text.size()) {}
    Bytes(const char *text) : Bytes(std::string_view(text)) {}
    Bytes(const std::string &text) : Bytes(std::string_view(text)) {}
    Bytes(const iovec &piece) : data(piece.iov_base), size(piece.iov_len) {}
    template <class T, class = std::enable_if_t<std::is_trivially_copyable_v<T>>>
    Bytes(const std::vector<T> &items) : data(items.data()), size(items.size() * sizeof(T)) {}
#if defined(__cpp_lib_span)
    template <class T, std::size_t N> Bytes(std::span<T, N> items) : data(items.data()), size(items.size_bytes()) {}
#endif
};

// A piece of a buffer's memory (paper 1, Listing 1). A copy is the same piece. Received bytes are valid until the callback
// returns, and a segment to fill until it is delivered.
class View;
struct buf_seg : rb_buf_seg {
    buf_seg() : rb_buf_seg{} { vec_count = -1; }
    buf_seg(const rb_buf_seg &seg) : rb_buf_seg(seg) {}

    // Whether there is a segment. The papers' vec_count = -1 is none.
    explicit operator bool() const noexcept { return vec_count >= 0; }
    // The bytes in one piece; nullptr where vec_count is 0 (see rb_buf_seg).
    unsigned char *data() const noexcept {
        return vec_count > 0 ? static_cast<unsigned char *>(vecs[0].iov_base) : nullptr;
    }
    std::size_t size() const noexcept { return len; }
    // Holds received bytes for longer than the callback.
    View to_view() const;
    // Copies received bytes, inside the callback.
    status copy(void *to, std::size_t count, std::size_t offset = 0) const {
        return detail::check(rb_buf_seg_copy(this, offset, to, count));
    }
#if defined(__cpp_lib_span)
    std::span<std::byte> span() const noexcept { return {reinterpret_cast<std::byte *>(data()), data() ? len : 0}; }
#endif
};

// The settings of a context.
class Config : public detail::Handle<rb_config, rb_config_free> {
public:
    explicit Config(rb_config *handle) : Handle(handle) {}
    // The default settings.
    Config() { detail::check(rb_config_new(&handle_)); }
    // A file, if there is one, overridden by the environment.
    static Config load(const char *path = nullptr) {
        Config config{Empty{}};
        detail::check(rb_config_load(path, &config.handle_));
        return config;
    }
    static Config from_toml(const std::string &text) {
        Config config{Empty{}};
        detail::check(rb_config_from_toml(text.c_str(), &config.handle_));
        return config;
    }
    status set(const std::string &name, const std::string &value) {
        return detail::check(rb_config_set(handle_, name.c_str(), value.c_str()));
    }
    std::string to_toml() const {
        return detail::text([&](char *to, std::size_t size, std::size_t *len) {
            return rb_config_to_toml(handle_, to, size, len);
        });
    }

private:
    struct Empty {};
    explicit Config(Empty) {}
};

// A limit on bytes per second, which any number of connections of one context share. Bytes beyond it are delayed and never
// dropped. 0 bytes per second: no limit.
class RateLimit : public detail::Handle<rb_rate_limit, rb_rate_limit_free> {
public:
    RateLimit(std::uint64_t bytes_per_second, std::uint64_t burst_bytes) {
        detail::check(rb_rate_limit_new(bytes_per_second, burst_bytes, &handle_));
    }
    status set(std::uint64_t bytes_per_second, std::uint64_t burst_bytes) const {
        return detail::check(rb_rate_limit_set(handle_, bytes_per_second, burst_bytes));
    }
    // The limit and what it has counted so far.
    rb_rate_limit_info info() const {
        rb_rate_limit_info info{};
        detail::check(rb_rate_limit_get_info(handle_, &info));
        return info;
    }
};

// Memory, configuration and worker threads of a process.
class Context : public detail::Handle<rb_context, rb_context_free> {
public:
    explicit Context(const Config &config) { detail::check(rb_context_new(config.get(), &handle_)); }
    static Context load(const char *path = nullptr) {
        Context context;
        detail::check(rb_context_load(path, &context.handle_));
        return context;
    }
    // The context of objects that are made without one: with the settings of the environment. Lives as long as the program.
    static Context &shared() { return shared_with(nullptr); }
    // As shared(), which must have the transport ("tcp", "shm", "auto", "rdma") if that is not nullptr. The first use decides.
    static Context &shared_with(const char *transport) {
        static std::mutex lock;
        static Context *context = nullptr;
        static std::string settings;
        static Context none;
        std::lock_guard<std::mutex> locked(lock);
        std::uint64_t bytes;
        // A child process has a context of its own, and cannot free its parent's.
        if (context && rb_context_memory_in_use(context->get(), &bytes) == RB_ERR_FORKED) context = nullptr;
        if (!context) {
            Config config = Config::load();
            if (transport) config.set("transport", transport);
            settings = config.to_toml();
            Context made(config);
            if (!made) return none;
            context = new Context(std::move(made));
        }
        if (transport && settings.find("transport = \"" + std::string(transport) + "\"") == std::string::npos) {
#if !defined(ROCKETBUFS_NO_EXCEPTIONS)
            throw error(RB_ERR_CONFIG, "the shared context has another transport: the first object that used it decided");
#else
            return none;
#endif
        }
        return *context;
    }
    // A copy of the settings that the context was made with.
    Config config() const {
        rb_config *config = nullptr;
        detail::check(rb_context_config(handle_, &config));
        return Config(config);
    }
    // The random name of this process.
    rb_id128 instance() const {
        rb_id128 instance{};
        detail::check(rb_context_instance(handle_, &instance));
        return instance;
    }
    // Rings of other processes that are mapped, and their bytes.
    std::pair<std::size_t, std::uint64_t> mapped() const {
        std::pair<std::size_t, std::uint64_t> mapped{};
        detail::check(rb_context_mapped(handle_, &mapped.first, &mapped.second));
        return mapped;
    }
    std::uint64_t memory_in_use() const {
        std::uint64_t bytes = 0;
        detail::check(rb_context_memory_in_use(handle_, &bytes));
        return bytes;
    }
    // Whether the bucket of a limit of the context's connections is full: a new limit would delay no less.
    bool is_rate_limit_full(const RateLimit &limit) const {
        return detail::check_number(rb_context_is_rate_limit_full(handle_, limit.get())) > 0;
    }
    status allow_callbacks_in_calls() { return detail::check(rb_context_allow_callbacks_in_calls(handle_)); }
    status shutdown(std::chrono::nanoseconds grace) { return detail::check(rb_context_shutdown(handle_, grace.count())); }

private:
    Context() = default;
};

// Bytes that the rings of many subscriptions share: `budget.get()` in their options.
class Budget : public detail::Handle<rb_budget, rb_budget_free> {
public:
    explicit Budget(std::uint64_t bytes) { detail::check(rb_budget_new(bytes, &handle_)); }
    // The bytes that the rings have now.
    std::uint64_t in_use() const {
        std::uint64_t bytes = 0, in_use = 0;
        detail::check(rb_budget_info(handle_, &bytes, &in_use));
        return in_use;
    }
};

// Why a connection is down.
struct Down {
    rb_down_by by;
    int code; // RB_CLOSE_..., or -1.
    std::string text;
};

// A process of this machine, as the kernel knew it when the process connected or listened.
struct Process {
    std::uint32_t pid, uid, gid;
};

// The facts that the transport has verified about the other end of a connection. Nothing of it is the other end's own word.
struct PeerIdentity {
    bool encrypted = false;         // Bytes on the way are encrypted and authenticated (TLS).
    std::optional<Process> process; // The process at the other end (shared memory).
    std::string certificate;        // The other end's certificate in DER; empty if it presented none.
};

// A connection to a peer.
class Conn : public detail::Handle<rb_conn, rb_conn_free> {
public:
    Conn() = default;
    explicit Conn(rb_conn *handle) : Handle(handle) {}
    // Connects, and waits until the other end has accepted.
    Conn(const Context &context, const std::string &address, Bytes hello = {}) {
        detail::check(rb_conn_connect(context.get(), address.c_str(), hello.data, hello.size, &handle_));
    }
    explicit Conn(const std::string &address, Bytes hello = {}) : Conn(Context::shared(), address, hello) {}
    // Begins to connect, and returns at once.
    static Conn connect_start(const Context &context, const std::string &address, Bytes hello = {}) {
        Conn conn;
        detail::check(rb_conn_connect_start(context.get(), address.c_str(), hello.data, hello.size, &conn.handle_));
        return conn;
    }
    status wait_up(Timeout timeout) const { return detail::check(rb_conn_wait_up(handle_, timeout.nanos())); }
    std::optional<Down> wait_down(Timeout timeout) const {
        rb_down down;
        if (!detail::check(rb_conn_wait_down(handle_, &down, timeout.nanos()))) return std::nullopt;
        return Down{down.by, down.code, detail::string(down.text)};
    }
    bool is_up() const { return detail::check_number(rb_conn_is_up(handle_)) > 0; }
    std::uint64_t id() const {
        std::uint64_t id = 0;
        detail::check(rb_conn_id(handle_, &id));
        return id;
    }
    std::string peer_hello() const {
        return detail::text([&](char *to, std::size_t size, std::size_t *len) {
            return rb_conn_peer_hello(handle_, to, size, len);
        });
    }
    std::string peer_addr() const {
        return detail::text([&](char *to, std::size_t size, std::size_t *len) {
            return rb_conn_peer_addr(handle_, to, size, len);
        });
    }
    std::string carrier() const {
        return detail::text([&](char *to, std::size_t size, std::size_t *len) {
            return rb_conn_carrier(handle_, to, size, len);
        });
    }
    // Known before the callback of a listener gets the connection.
    PeerIdentity peer_identity() const {
        rb_peer_identity known{};
        PeerIdentity identity;
        if (!detail::check(rb_conn_peer_identity(handle_, &known))) return identity;
        identity.encrypted = known.encrypted;
        if (known.has_process) identity.process = Process{known.pid, known.uid, known.gid};
        if (known.certificate_len == 0) return identity;
        identity.certificate = detail::text([&](char *to, std::size_t size, std::size_t *len) {
            return rb_conn_peer_certificate(handle_, to, size, len);
        });
        return identity;
    }
    // Limits the bytes per second of what arrives and of what is sent, in place of earlier limits. The connection keeps them.
    status set_rate_limits(const std::vector<std::reference_wrapper<const RateLimit>> &received,
                           const std::vector<std::reference_wrapper<const RateLimit>> &sent) const {
        std::vector<const rb_rate_limit *> limits;
        for (const RateLimit &limit : received) limits.push_back(limit.get());
        for (const RateLimit &limit : sent) limits.push_back(limit.get());
        return detail::check(rb_conn_set_rate_limits(handle_, limits.data(), received.size(), limits.data() + received.size(), sent.size()));
    }
    // The random name of the peer's process.
    rb_id128 peer_instance() const {
        rb_id128 instance{};
        detail::check(rb_conn_peer_instance(handle_, &instance));
        return instance;
    }
    // The longest control message that the peer takes.
    std::size_t max_control_bytes() const {
        std::size_t bytes = 0;
        detail::check(rb_conn_control_info(handle_, &bytes, nullptr));
        return bytes;
    }
    // The bytes of control messages that wait to be sent.
    std::size_t control_waiting() const {
        std::size_t bytes = 0;
        detail::check(rb_conn_control_info(handle_, nullptr, &bytes));
        return bytes;
    }
    // The next event. The event's texts are valid until this thread's next call that receives something.
    std::optional<rb_conn_event> recv_event(Timeout timeout) const {
        rb_conn_event event;
        if (!detail::check(rb_conn_recv_event(handle_, &event, timeout.nanos()))) return std::nullopt;
        return event;
    }
    status send_control(Bytes message) const {
        return detail::check(rb_conn_send_control(handle_, message.data, message.size));
    }
    status close(const std::string &why = "closed") const { return detail::check(rb_conn_close(handle_, why.c_str())); }
    status reject(const std::string &why) const { return detail::check(rb_conn_reject(handle_, why.c_str())); }
    // Readable while rb_conn_recv_event would return an event.
    int fd() const { return detail::check_number(rb_conn_fd(handle_)); }
};

// An address that takes connections (paper 1, Listing 3).
class Listener : public detail::Handle<rb_listener, rb_listener_free> {
public:
    Listener(const Context &context, const std::string &address) {
        detail::check(rb_listener_bind(context.get(), address.c_str(), &handle_));
    }
    // In the shared context, which has the transport `protocol` if this is its first use.
    explicit Listener(const std::string &address, const char *protocol = nullptr)
        : Listener(Context::shared_with(protocol), address) {}
    Listener(Listener &&) noexcept = default;
    Listener &operator=(Listener &&other) noexcept {
        unset_all();
        Handle::operator=(std::move(other));
        conn_cb_ = std::move(other.conn_cb_);
        foreign_cb_ = std::move(other.foreign_cb_);
        return *this;
    }
    ~Listener() { unset_all(); }

    std::string local_addr() const {
        return detail::text([&](char *to, std::size_t size, std::size_t *len) {
            return rb_listener_local_addr(handle_, to, size, len);
        });
    }
    // The callback may move the connection away.
    status set_conn_cb(std::function<void(Conn &)> callback) {
        unset_conn_cb();
        conn_cb_ = detail::CallbackSlot<void(Conn &)>(new detail::Callback<void(Conn &)>{
            std::make_shared<std::function<void(Conn &)>>(std::move(callback)), handle_});
        return detail::check(rb_listener_set_conn_cb(handle_, on_conn, conn_cb_.get()));
    }
    void unset_conn_cb() noexcept {
        if (conn_cb_) rb_listener_unset_conn_cb(handle_);
        conn_cb_.reset();
    }
    // Called with the address, and the reason in one word and as a text, of each connection that was not for RocketBufs.
    status set_foreign_conn_cb(std::function<void(const char *, const char *, const char *)> callback) {
        unset_foreign_conn_cb();
        foreign_cb_.reset(new detail::Callback<Foreign>{std::make_shared<std::function<Foreign>>(std::move(callback)), handle_});
        return detail::check(rb_listener_set_foreign_conn_cb(handle_, on_foreign, foreign_cb_.get()));
    }
    void unset_foreign_conn_cb() noexcept {
        if (foreign_cb_) rb_listener_unset_foreign_conn_cb(handle_);
        foreign_cb_.reset();
    }
    // The next connection; an empty one if none came.
    Conn accept(Timeout timeout) const {
        rb_conn *conn = nullptr;
        detail::check(rb_listener_accept(handle_, &conn, timeout.nanos()));
        return Conn(conn);
    }
    int fd() const { return detail::check_number(rb_listener_fd(handle_)); }

private:
    static void on_conn(void *ctx, rb_conn *handle) {
        auto function = static_cast<detail::Callback<void(Conn &)> *>(ctx)->function;
        Conn conn(handle);
        detail::guarded([&] { (*function)(conn); }, [&](const char *why) {
            // Also if the callback has moved the connection away.
            rb_conn_reject(handle, why);
        });
    }
    using Foreign = void(const char *, const char *, const char *);
    static void on_foreign(void *ctx, const char *peer, const char *reason, const char *why) {
        auto function = static_cast<detail::Callback<Foreign> *>(ctx)->function;
        detail::guarded([&] { (*function)(peer, reason, why); }, detail::give_up);
    }
    void unset_all() noexcept {
        unset_conn_cb();
        unset_foreign_conn_cb();
    }
    detail::CallbackSlot<void(Conn &)> conn_cb_;
    detail::CallbackSlot<Foreign> foreign_cb_;
};

// Received bytes that are held in place. The destructor does not release them: consume() does.
class View : public detail::Handle<rb_view, rb_view_free> {
public:
    View() = default;
    explicit View(const rb_data &data) : Handle(data.view), data_(data) {}
    View(View &&other) noexcept : Handle(std::move(other)), data_(std::exchange(other.data_, rb_data{})) {}
    View &operator=(View &&other) noexcept {
        Handle::operator=(std::move(other));
        data_ = std::exchange(other.data_, rb_data{});
        return *this;
    }

    bid_t bid() const noexcept { return data_.bid; }
    // The bytes in place; nullptr where other processes may write the memory (see rb_data).
    const unsigned char *data() const noexcept { return static_cast<const unsigned char *>(data_.data); }
    std::size_t size() const noexcept { return data_.len; }
    position_t position() const noexcept { return data_.position; }
    position_t end() const noexcept { return data_.end; }
    rb_id128 epoch() const noexcept { return data_.epoch; }
    std::string_view text() const noexcept { return {static_cast<const char *>(data_.data), data_.data ? data_.len : 0}; }
#if defined(__cpp_lib_span)
    std::span<const std::byte> span() const noexcept {
        return {static_cast<const std::byte *>(data_.data), data_.data ? data_.len : 0};
    }
#endif
    status copy(void *to, std::size_t count, std::size_t offset = 0) const {
        return detail::check(rb_view_copy(handle_, offset, to, count));
    }
    // The bytes in place, also where other processes may write them: see rb_view_trusting.
    iovec trusting() const {
        iovec piece{};
        detail::check(rb_view_trusting(handle_, &piece));
        return piece;
    }
    // A copy of all bytes, also where data() is nullptr.
    std::string to_string() const {
        std::string bytes(size(), '\0');
        if (!bytes.empty()) copy(bytes.data(), bytes.size());
        return bytes;
    }
    // Releases everything up to the end of the view.
    status consume() { return detail::check(rb_view_consume(release())); }
    status consume_up_to(position_t position) { return detail::check(rb_view_consume_up_to(release(), position)); }
    status consume_part(position_t position) {
        status done = detail::check(rb_view_consume_part(handle_, position));
        if (done) rb_view_data(handle_, &data_);
        return done;
    }

private:
    rb_data data_{};
};

inline View buf_seg::to_view() const {
    rb_data data{};
    detail::check(rb_buf_seg_to_view(this, &data));
    return View(data);
}

// Data or an event of an rIn; rb_in_kind says which fields have a meaning.
struct InEvent {
    rb_in_kind kind = RB_IN_OTHER;
    bid_t bid = 0;
    View view;
    rb_id128 epoch{};
    position_t from = 0, to = 0;
    rb_status refused = RB_OK;
    std::string text;    // Of RB_IN_REFUSED and RB_IN_CONN_DOWN.
    std::string message; // Of RB_IN_CONTROL.

    InEvent() = default;
    explicit InEvent(const rb_in_event &event)
        : kind(event.kind), bid(event.bid), view(event.data), epoch(event.epoch), from(event.from), to(event.to),
          refused(static_cast<rb_status>(event.status)),
          text(detail::string(event.kind == RB_IN_CONN_DOWN ? event.down.text : event.text)),
          message(static_cast<const char *>(event.message), event.message_len) {}
};

// An event of an rOut; rb_out_kind says which fields have a meaning.
struct OutEvent {
    rb_out_kind kind = RB_OUT_OTHER;
    bid_t bid = 0;
    std::uint64_t conn = 0;
    position_t from = 0, to = 0;
    std::uint64_t count = 0;
    std::uint32_t policy = 0;
    bool resumed = false;
    std::string name, message, text;
    void *delivery = nullptr;
    rb_subscriber_progress progress{};

    OutEvent() = default;
    explicit OutEvent(const rb_out_event &event)
        : kind(event.kind), bid(event.bid), conn(event.conn), from(event.from), to(event.to), count(event.count),
          policy(event.policy), resumed(event.resumed), name(static_cast<const char *>(event.name), event.name_len),
          message(static_cast<const char *>(event.message), event.message_len),
          text(detail::string(event.kind == RB_OUT_CONN_DOWN ? event.down.text : event.text)), delivery(event.delivery),
          progress(event.progress) {}
};

// The right to write into a buffer alone.
class Writer : public detail::Handle<rb_writer, rb_writer_free> {
public:
    Writer() = default;
    explicit Writer(rb_writer *handle) : Handle(handle) {}

    // Copies one delivery. False if there was no room in time.
    status append(Bytes data, Timeout timeout = no_limit, position_t *end = nullptr) {
        return detail::check(rb_writer_append(handle_, data.data, data.size, timeout.nanos(), end));
    }
    // Copies one delivery that is made of parts.
    status appendv(const std::vector<iovec> &parts, Timeout timeout = no_limit, position_t *end = nullptr) {
        return detail::check(rb_writer_appendv(handle_, parts.data(), parts.size(), timeout.nanos(), end));
    }
    // Copies many deliveries.
    status append_many(const std::vector<iovec> &deliveries, Timeout timeout = no_limit, std::size_t *appended = nullptr,
                       position_t *end = nullptr) {
        return detail::check(rb_writer_append_many(handle_, deliveries.data(), deliveries.size(), timeout.nanos(), appended, end));
    }
    // A segment to fill; an empty one if there was no room in time.
    buf_seg segment(std::size_t size, Timeout timeout = no_limit) {
        buf_seg seg;
        detail::check(rb_writer_segment(handle_, size, timeout.nanos(), &seg));
        return seg;
    }
    status deliver(buf_seg &seg, std::size_t size, void *delivery = nullptr, position_t *end = nullptr) {
        return detail::check(rb_writer_deliver(handle_, &seg, size, delivery, end));
    }
    position_t head() const {
        position_t head = 0;
        detail::check(rb_writer_info(handle_, &head, nullptr));
        return head;
    }
    // The bytes that could be appended now without waiting.
    std::uint64_t free_bytes() const {
        std::uint64_t bytes = 0;
        detail::check(rb_writer_info(handle_, nullptr, &bytes));
        return bytes;
    }
    status note_time() { return detail::check(rb_writer_note_time(handle_)); }
};

// A buffer of an rOut. The destructor frees the handle, and does not end the buffer.
class Buffer : public detail::Handle<rb_buffer, rb_buffer_free> {
public:
    Buffer() = default;
    explicit Buffer(rb_buffer *handle) : Handle(handle) {}

    bid_t bid() const {
        bid_t bid = 0;
        detail::check(rb_buffer_bid(handle_, &bid));
        return bid;
    }
    buf_seg segment(std::size_t size, Timeout timeout = no_limit) const {
        buf_seg seg;
        detail::check(rb_buffer_segment(handle_, size, timeout.nanos(), &seg));
        return seg;
    }
    status deliver(buf_seg &seg, std::size_t size, void *delivery = nullptr, position_t *end = nullptr) const {
        return detail::check(rb_buffer_deliver(handle_, &seg, size, delivery, end));
    }
    // Copies one delivery.
    status append(Bytes data, Timeout timeout = no_limit, position_t *end = nullptr) const {
        buf_seg seg;
        status made = detail::check(rb_buffer_segment(handle_, data.size, timeout.nanos(), &seg));
        if (!made) return made;
        auto from = static_cast<const char *>(data.data);
        for (int i = 0; i < seg.vec_count; i++) {
            std::memcpy(seg.vecs[i].iov_base, from, seg.vecs[i].iov_len);
            from += seg.vecs[i].iov_len;
        }
        return deliver(seg, data.size, nullptr, end);
    }
    Writer writer() const {
        rb_writer *writer = nullptr;
        detail::check(rb_buffer_writer(handle_, &writer));
        return Writer(writer);
    }
    status set_limits(const rb_limits &limits) const { return detail::check(rb_buffer_set_limits(handle_, &limits)); }
    rb_confirmed_positions confirmed() const {
        rb_confirmed_positions confirmed{};
        detail::check(rb_buffer_confirmed(handle_, &confirmed));
        return confirmed;
    }
    // level: RB_LEVEL_...
    status wait(std::uint32_t level, position_t position, Timeout timeout) const {
        return detail::check(rb_buffer_wait(handle_, level, position, timeout.nanos()));
    }
    // Asks the subscribers to report when `position` is confirmed at RB_LEVEL_..., without waiting for it.
    status request_confirm(std::uint32_t level, position_t position) const {
        return detail::check(rb_buffer_request_confirm(handle_, level, position));
    }
    status notify_room() const { return detail::check(rb_buffer_notify_room(handle_)); }
    status notify_consumed(position_t position) const { return detail::check(rb_buffer_notify_consumed(handle_, position)); }
    status drain(Timeout timeout) const { return detail::check(rb_buffer_drain(handle_, timeout.nanos())); }
    position_t destroy() const {
        position_t end = 0;
        detail::check(rb_buffer_destroy(handle_, &end));
        return end;
    }
    rb_buffer_info info() const {
        rb_buffer_info info{};
        detail::check(rb_buffer_get_info(handle_, &info));
        return info;
    }
    // The connected subscriptions.
    std::size_t subscriber_count() const {
        std::size_t count = 0;
        detail::check(rb_buffer_subscriber_count(handle_, &count));
        return count;
    }
    // Asks the subscribers how far they are; a later subscribers() shows their answers.
    status refresh_subscribers() const { return detail::check(rb_buffer_refresh_subscribers(handle_)); }
    // The connected subscriptions, and the durable ones that are offline.
    std::vector<rb_subscriber_info> subscribers() const {
        return detail::list<rb_subscriber_info>([&](rb_subscriber_info *infos, std::size_t capacity, std::size_t *count) {
            return rb_buffer_subscribers(handle_, infos, capacity, count);
        });
    }
};

class rOut;

// A subscription of an rIn. The destructor frees the handle, and does not end the subscription.
class Subscription : public detail::Handle<rb_subscription, rb_subscription_free> {
public:
    Subscription() = default;
    explicit Subscription(rb_subscription *handle) : Handle(handle) {}

    bid_t bid() const {
        bid_t bid = 0;
        detail::check(rb_subscription_bid(handle_, &bid));
        return bid;
    }
    std::optional<InEvent> recv(Timeout timeout) const {
        rb_in_event event;
        if (!detail::check(rb_subscription_recv(handle_, &event, timeout.nanos()))) return std::nullopt;
        return InEvent(event);
    }
    status consume(std::uint64_t size) const { return detail::check(rb_subscription_consume(handle_, size)); }
    View buf_ref() const {
        rb_data data{};
        detail::check(rb_subscription_buf_ref(handle_, &data));
        return View(data);
    }
    rb_subscription_info info() const {
        rb_subscription_info info{};
        detail::check(rb_subscription_get_info(handle_, &info));
        return info;
    }
    status unsubscribe() const { return detail::check(rb_subscription_unsubscribe(handle_)); }
};

// The receiving end (paper 1, Listing 2).
class rIn : public detail::Handle<rb_rin, rb_rin_free> {
public:
    explicit rIn(const Conn &conn) { detail::check(rb_rin_new(conn.get(), &handle_)); }
    rIn(rIn &&) noexcept = default;
    rIn &operator=(rIn &&other) noexcept {
        unset_all();
        Handle::operator=(std::move(other));
        data_cb_ = std::move(other.data_cb_);
        event_cb_ = std::move(other.event_cb_);
        control_cb_ = std::move(other.control_cb_);
        return *this;
    }
    ~rIn() { unset_all(); }

    Subscription subscribe(bid_t bid, std::size_t size) const {
        rb_subscription *subscription = nullptr;
        detail::check(rb_rin_subscribe(handle_, bid, size, &subscription));
        return Subscription(subscription);
    }
    Subscription subscribe_with(bid_t bid, const rb_subscribe_options &options) const {
        rb_subscription *subscription = nullptr;
        detail::check(rb_rin_subscribe_with(handle_, bid, &options, &subscription));
        return Subscription(subscription);
    }
    status unsubscribe(bid_t bid) const { return detail::check(rb_rin_unsubscribe(handle_, bid)); }
    // The subscription of a buffer.
    Subscription subscription(bid_t bid) const {
        rb_subscription *subscription = nullptr;
        detail::check(rb_rin_subscription(handle_, bid, &subscription));
        return Subscription(subscription);
    }
    // The buffers that are subscribed to.
    std::vector<bid_t> subscriptions() const {
        return detail::list<bid_t>([&](bid_t *bids, std::size_t capacity, std::size_t *count) {
            return rb_rin_subscriptions(handle_, bids, capacity, count);
        });
    }
    status data_consumed(bid_t bid, std::size_t size) const { return detail::check(rb_rin_data_consumed(handle_, bid, size)); }
    // All received bytes that were not released.
    View get_buf_ref(bid_t bid) const {
        rb_data data{};
        detail::check(rb_rin_get_buf_ref(handle_, bid, &data));
        return View(data);
    }
    // The next data or event; none if nothing arrived.
    std::optional<InEvent> recv(Timeout timeout) const {
        rb_in_event event;
        if (!detail::check(rb_rin_recv(handle_, &event, timeout.nanos()))) return std::nullopt;
        return InEvent(event);
    }
    int fd() const { return detail::check_number(rb_rin_fd(handle_)); }
    status send_control(Bytes message) const { return detail::check(rb_rin_send_control(handle_, message.data, message.size)); }
    status resume(const Conn &conn) const { return detail::check(rb_rin_resume(handle_, conn.get())); }
    Conn conn() const {
        rb_conn *conn = nullptr;
        detail::check(rb_rin_conn(handle_, &conn));
        return Conn(conn);
    }

    status set_data_in_cb(std::function<void(bid_t, buf_seg)> callback) {
        unset_data_in_cb();
        data_cb_.reset(new detail::Callback<void(bid_t, buf_seg)>{share(std::move(callback)), handle_});
        return detail::check(rb_rin_set_data_in_cb(handle_, on_data, data_cb_.get()));
    }
    // The name in Listing 3.
    status set_data_arrived_cb(std::function<void(bid_t, buf_seg)> callback) { return set_data_in_cb(std::move(callback)); }
    void unset_data_in_cb() noexcept {
        if (data_cb_) rb_rin_unset_data_in_cb(handle_);
        data_cb_.reset();
    }
    status set_event_cb(std::function<void(const InEvent &)> callback) {
        unset_event_cb();
        event_cb_.reset(new detail::Callback<void(const InEvent &)>{share(std::move(callback)), handle_});
        return detail::check(rb_rin_set_event_cb(handle_, on_event, event_cb_.get()));
    }
    void unset_event_cb() noexcept {
        if (event_cb_) rb_rin_unset_event_cb(handle_);
        event_cb_.reset();
    }
    status set_control_msg_cb(std::function<void(iovec)> callback) {
        unset_control_msg_cb();
        control_cb_.reset(new detail::Callback<void(iovec)>{share(std::move(callback)), handle_});
        return detail::check(rb_rin_set_control_msg_cb(handle_, on_control, control_cb_.get()));
    }
    void unset_control_msg_cb() noexcept {
        if (control_cb_) rb_rin_unset_control_msg_cb(handle_);
        control_cb_.reset();
    }

private:
    template <class F> static std::shared_ptr<std::function<F>> share(std::function<F> &&callback) {
        return std::make_shared<std::function<F>>(std::move(callback));
    }
    void unset_all() noexcept {
        unset_data_in_cb();
        unset_event_cb();
        unset_control_msg_cb();
    }
    static void on_data(void *ctx, std::uint32_t bid, const rb_buf_seg *seg) {
        auto *callback = static_cast<detail::Callback<void(bid_t, buf_seg)> *>(ctx);
        auto function = callback->function;
        void *rin = callback->owner;
        detail::guarded([&] { (*function)(bid, buf_seg(*seg)); }, [&](const char *why) { detail::close_rin(rin, why); });
    }
    static void on_event(void *ctx, const rb_in_event *event) {
        auto *callback = static_cast<detail::Callback<void(const InEvent &)> *>(ctx);
        auto function = callback->function;
        void *rin = callback->owner;
        detail::guarded([&] { (*function)(InEvent(*event)); }, [&](const char *why) { detail::close_rin(rin, why); });
    }
    static void on_control(void *ctx, rb_rin *rin, const void *message, std::size_t len) {
        auto function = static_cast<detail::Callback<void(iovec)> *>(ctx)->function;
        detail::guarded([&] { (*function)(iovec{const_cast<void *>(message), len}); },
                        [&](const char *why) { detail::close_rin(rin, why); });
    }

    detail::CallbackSlot<void(bid_t, buf_seg)> data_cb_;
    detail::CallbackSlot<void(const InEvent &)> event_cb_;
    detail::CallbackSlot<void(iovec)> control_cb_;
};

// The right to read an rIn alone.
class Reader : public detail::Handle<rb_reader, rb_reader_free> {
public:
    explicit Reader(const rIn &rin) { detail::check(rb_rin_reader(rin.get(), &handle_)); }

    // Hands the next data to `each(bid, buf_seg)`, and releases it when that returns; or puts an event into `event`. Returns
    // whether anything arrived in time. `each` must not throw.
    template <class F> bool recv(F &&each, std::optional<InEvent> &event, Timeout timeout) {
        rb_in_event received;
        bool has_event = false;
        event.reset();
        auto call = [](void *ctx, std::uint32_t bid, const rb_buf_seg *seg) {
            (*static_cast<std::remove_reference_t<F> *>(ctx))(bid, buf_seg(*seg));
        };
        void *ctx = const_cast<void *>(static_cast<const void *>(std::addressof(each)));
        if (!detail::check(rb_reader_recv(handle_, call, ctx, &received, &has_event, timeout.nanos()))) return false;
        if (has_event) event.emplace(received);
        return true;
    }
};

// A peer that asks to subscribe. The name is valid until the callback returns.
struct Asking {
    std::uint64_t conn; // Conn::id() of its connection.
    bid_t bid;
    std::string_view name; // Of the subscription; empty if it has none.
};

// The policies and the owner that a peer may subscribe with.
struct Admitted {
    // The allowed policies: the bit 1 << RB_POLICY_... for each.
    std::uint32_t policies =
        1u << RB_POLICY_BLOCK | 1u << RB_POLICY_DROP | 1u << RB_POLICY_DISCONNECT | 1u << RB_POLICY_OVERWRITE;
    // The owner of the subscription's name: names of different owners have nothing to do with each other.
    std::uint64_t owner = 0;
};

// The sending end (paper 1, Listing 2).
class rOut : public detail::Handle<rb_rout, rb_rout_free> {
public:
    explicit rOut(const Context &context) { detail::check(rb_rout_new(context.get(), &handle_)); }
    // In the shared context.
    rOut() : rOut(Context::shared()) {}
    rOut(rOut &&) noexcept = default;
    rOut &operator=(rOut &&other) noexcept {
        unset_all();
        Handle::operator=(std::move(other));
        data_cb_ = std::move(other.data_cb_);
        event_cb_ = std::move(other.event_cb_);
        control_cb_ = std::move(other.control_cb_);
        progress_cb_ = std::move(other.progress_cb_);
        admission_ = std::move(other.admission_);
        return *this;
    }
    ~rOut() { unset_all(); }

    status add_conn(const Conn &conn) const { return detail::check(rb_rout_add_conn(handle_, conn.get())); }
    Buffer create_buffer(bid_t bid, std::size_t size) const {
        rb_buffer *buffer = nullptr;
        detail::check(rb_rout_create_buffer(handle_, bid, size, &buffer));
        return Buffer(buffer);
    }
    Buffer create_buffer_with(bid_t bid, const rb_buffer_options &options) const {
        rb_buffer *buffer = nullptr;
        detail::check(rb_rout_create_buffer_with(handle_, bid, &options, &buffer));
        return Buffer(buffer);
    }
    Buffer buffer(bid_t bid) const {
        rb_buffer *buffer = nullptr;
        detail::check(rb_rout_buffer(handle_, bid, &buffer));
        return Buffer(buffer);
    }
    // The ids of the buffers.
    std::vector<bid_t> buffers() const {
        return detail::list<bid_t>([&](bid_t *bids, std::size_t capacity, std::size_t *count) {
            return rb_rout_buffers(handle_, bids, capacity, count);
        });
    }
    position_t destroy_buffer(bid_t bid) const {
        position_t end = 0;
        detail::check(rb_rout_destroy_buffer(handle_, bid, &end));
        return end;
    }
    // A segment to fill; vec_count is -1 if there is no room and the call does not block.
    buf_seg get_output_segment(bid_t bid, std::size_t size, bool blocking) const {
        buf_seg seg;
        detail::check(rb_rout_get_output_segment(handle_, bid, size, blocking, &seg));
        return seg;
    }
    // Makes the first `size` bytes one delivery. `ctx` comes back in the data-out callback.
    status deliver(buf_seg &segs, std::size_t size, void *ctx = nullptr, position_t *end = nullptr) const {
        return detail::check(rb_rout_deliver(handle_, &segs, size, ctx, end));
    }
    Buffer splice(const rIn &in, bid_t bid) const {
        rb_buffer *buffer = nullptr;
        detail::check(rb_rout_splice(handle_, in.get(), bid, &buffer));
        return Buffer(buffer);
    }
    Buffer splice_as(const rIn &in, bid_t bid, bid_t out_bid) const {
        rb_buffer *buffer = nullptr;
        detail::check(rb_rout_splice_as(handle_, in.get(), bid, out_bid, &buffer));
        return Buffer(buffer);
    }
    // Subscribes and splices in one step, with history for subscribers that join later.
    Buffer splice_with(const rIn &in, bid_t bid, bid_t out_bid, const rb_subscribe_options &options) const {
        rb_buffer *buffer = nullptr;
        detail::check(rb_rout_splice_with(handle_, in.get(), bid, out_bid, &options, &buffer));
        return Buffer(buffer);
    }
    std::optional<OutEvent> recv_event(Timeout timeout) const {
        rb_out_event event;
        if (!detail::check(rb_rout_recv_event(handle_, &event, timeout.nanos()))) return std::nullopt;
        return OutEvent(event);
    }
    int fd() const { return detail::check_number(rb_rout_fd(handle_)); }
    status drain(Timeout timeout) const { return detail::check(rb_rout_drain(handle_, timeout.nanos())); }
    status send_control(const Conn &conn, Bytes message) const {
        return detail::check(rb_rout_send_control(handle_, conn.get(), message.data, message.size));
    }
    rb_traffic traffic() const {
        rb_traffic traffic{};
        detail::check(rb_rout_traffic(handle_, &traffic));
        return traffic;
    }

    status set_data_out_cb(std::function<void(void *)> callback) {
        unset_data_out_cb();
        data_cb_.reset(new detail::Callback<void(void *)>{share(std::move(callback)), handle_});
        return detail::check(rb_rout_set_data_out_cb(handle_, on_data_out, data_cb_.get()));
    }
    void unset_data_out_cb() noexcept {
        if (data_cb_) rb_rout_unset_data_out_cb(handle_);
        data_cb_.reset();
    }
    status set_event_cb(std::function<void(const OutEvent &)> callback) {
        unset_event_cb();
        event_cb_.reset(new detail::Callback<void(const OutEvent &)>{share(std::move(callback)), handle_});
        return detail::check(rb_rout_set_event_cb(handle_, on_event, event_cb_.get()));
    }
    void unset_event_cb() noexcept {
        if (event_cb_) rb_rout_unset_event_cb(handle_);
        event_cb_.reset();
    }
    // The connection is valid until the callback returns.
    status set_control_msg_cb(std::function<void(const Conn &, iovec)> callback) {
        unset_control_msg_cb();
        control_cb_.reset(new detail::Callback<void(const Conn &, iovec)>{share(std::move(callback)), handle_});
        return detail::check(rb_rout_set_control_msg_cb(handle_, on_control, control_cb_.get()));
    }
    void unset_control_msg_cb() noexcept {
        if (control_cb_) rb_rout_unset_control_msg_cb(handle_);
        control_cb_.reset();
    }
    status set_subscriber_progress_cb(std::function<void(const rb_subscriber_progress &)> callback) {
        unset_subscriber_progress_cb();
        progress_cb_.reset(new detail::Callback<void(const rb_subscriber_progress &)>{share(std::move(callback)), handle_});
        return detail::check(rb_rout_set_subscriber_progress_cb(handle_, on_progress, progress_cb_.get()));
    }
    void unset_subscriber_progress_cb() noexcept {
        if (progress_cb_) rb_rout_unset_subscriber_progress_cb(handle_);
        progress_cb_.reset();
    }
    // Asks `decide` about each subscription of a peer before it is accepted. To a peer for which it returns nothing, or throws, the
    // buffer looks as if it did not exist. Existing subscriptions stay until review_admissions(). After this object nobody may
    // subscribe, if it had a decision and connections go on.
    status set_admission(std::function<std::optional<Admitted>(const Asking &)> decide) {
        // An earlier decision holds until the new one does.
        detail::CallbackSlot<Decide> next(new detail::Callback<Decide>{share(std::move(decide)), handle_});
        const status set = detail::check(rb_rout_set_admission(handle_, on_asking, next.get()));
        if (set) admission_.swap(next);
        return set;
    }
    // Everything is allowed again.
    void unset_admission() noexcept {
        if (admission_) rb_rout_unset_admission(handle_);
        admission_.reset();
    }
    // Asks again about all subscriptions. A subscription that is not allowed any more ends, and its peer is told.
    status review_admissions() const { return detail::check(rb_rout_review_admissions(handle_)); }

private:
    template <class F> static std::shared_ptr<std::function<F>> share(std::function<F> &&callback) {
        return std::make_shared<std::function<F>>(std::move(callback));
    }
    void unset_all() noexcept {
        unset_data_out_cb();
        unset_event_cb();
        unset_control_msg_cb();
        unset_subscriber_progress_cb();
        // Connections may go on with the buffers, which were not for everybody.
        if (admission_) rb_rout_set_admission(handle_, nobody, nullptr);
        admission_.reset();
    }
    static bool nobody(void *, const rb_asking *, rb_admitted *) { return false; }
    static void on_data_out(void *ctx, std::uint32_t, void *delivery) {
        auto function = static_cast<detail::Callback<void(void *)> *>(ctx)->function;
        detail::guarded([&] { (*function)(delivery); }, detail::give_up);
    }
    static void on_event(void *ctx, const rb_out_event *event) {
        auto function = static_cast<detail::Callback<void(const OutEvent &)> *>(ctx)->function;
        detail::guarded([&] { (*function)(OutEvent(*event)); }, detail::give_up);
    }
    static void on_control(void *ctx, rb_conn *handle, const void *message, std::size_t len) {
        auto function = static_cast<detail::Callback<void(const Conn &, iovec)> *>(ctx)->function;
        Conn conn(handle);
        detail::guarded([&] { (*function)(conn, iovec{const_cast<void *>(message), len}); },
                        [&](const char *why) { rb_conn_close(handle, why); });
        // The handle is the library's.
        conn.release();
    }
    static void on_progress(void *ctx, const rb_subscriber_progress *progress) {
        auto function = static_cast<detail::Callback<void(const rb_subscriber_progress &)> *>(ctx)->function;
        detail::guarded([&] { (*function)(*progress); }, detail::give_up);
    }
    using Decide = std::optional<Admitted>(const Asking &);
    static bool on_asking(void *ctx, const rb_asking *asking, rb_admitted *admitted) {
        auto function = static_cast<detail::Callback<Decide> *>(ctx)->function;
        std::optional<Admitted> decided;
        std::string_view name(static_cast<const char *>(asking->name), asking->name_len);
        detail::guarded([&] { decided = (*function)(Asking{asking->conn, asking->bid, name}); },
                        [&](const char *) { decided.reset(); });
        if (!decided) return false;
        admitted->policies = decided->policies;
        admitted->owner = decided->owner;
        return true;
    }

    detail::CallbackSlot<void(void *)> data_cb_;
    detail::CallbackSlot<void(const OutEvent &)> event_cb_;
    detail::CallbackSlot<void(const Conn &, iovec)> control_cb_;
    detail::CallbackSlot<void(const rb_subscriber_progress &)> progress_cb_;
    detail::CallbackSlot<Decide> admission_;
};

#if defined(ROCKETBUFS_COROUTINES)

// An event loop on epoll for coroutines. Any class with the method `void when_readable(int fd, std::function<void()> then)`,
// which calls `then` once, serves as well: for libuv, Asio, or a loop of your own.
class EventLoop {
public:
    EventLoop() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {}
    EventLoop(const EventLoop &) = delete;
    EventLoop &operator=(const EventLoop &) = delete;
    ~EventLoop() { ::close(epoll_); }

    void when_readable(int fd, std::function<void()> then) {
        auto waiting = new Waiting{fd, std::move(then)};
        epoll_event event{};
        event.events = EPOLLIN | EPOLLONESHOT;
        event.data.ptr = waiting;
        if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) ::epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &event);
        ++waiting_;
    }
    // Runs until nothing waits.
    void run() {
        while (waiting_ > 0) {
            epoll_event event{};
            if (::epoll_wait(epoll_, &event, 1, -1) != 1) continue;
            std::unique_ptr<Waiting> ready(static_cast<Waiting *>(event.data.ptr));
            --waiting_;
            ::epoll_ctl(epoll_, EPOLL_CTL_DEL, ready->fd, nullptr);
            ready->then();
        }
    }

private:
    struct Waiting {
        int fd;
        std::function<void()> then;
    };
    int epoll_;
    std::size_t waiting_ = 0;
};

// A coroutine that runs by itself: its frame goes when it ends. An exception that leaves it ends the program.
struct Task {
    struct promise_type {
        Task get_return_object() noexcept { return {}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_never final_suspend() noexcept { return {}; }
        void return_void() noexcept {}
        void unhandled_exception() noexcept { std::terminate(); }
    };
};

// `co_await` until `take` returns something: at once, or when the descriptor of the object is readable.
template <class Loop, class Fd, class Take> class WhenReadable {
public:
    WhenReadable(Loop &loop, Fd fd, Take take) : loop_(loop), fd_(std::move(fd)), take_(std::move(take)) {}
    bool await_ready() {
        taken_ = take_();
        return static_cast<bool>(taken_);
    }
    void await_suspend(std::coroutine_handle<> waits) {
        loop_.when_readable(fd_(), [this, waits] {
            if (await_ready())
                waits.resume();
            else
                await_suspend(waits);
        });
    }
    auto await_resume() { return std::move(taken_); }

private:
    Loop &loop_;
    Fd fd_;
    Take take_;
    std::invoke_result_t<Take &> taken_{};
};

// The next data or event of an rIn, for a coroutine: std::optional<InEvent>, which has a value.
template <class Loop> auto async_recv(Loop &loop, const rIn &in) {
    return WhenReadable(loop, [&in] { return in.fd(); }, [&in] { return in.recv(no_wait); });
}
// The next event of an rOut, for a coroutine.
template <class Loop> auto async_recv_event(Loop &loop, const rOut &out) {
    return WhenReadable(loop, [&out] { return out.fd(); }, [&out] { return out.recv_event(no_wait); });
}

// The next connection of a listener, for a coroutine.
template <class Loop> auto async_accept(Loop &loop, const Listener &listener) {
    return WhenReadable(loop, [&listener] { return listener.fd(); }, [&listener] {
        Conn conn = listener.accept(no_wait);
        return conn ? std::optional<Conn>(std::move(conn)) : std::nullopt;
    });
}

#endif

} // namespace rocketbufs

// RBMQ's client: publishers and subscribers of topics.
namespace rbmq {

using rocketbufs::Bytes;
using rocketbufs::no_limit;
using rocketbufs::no_wait;
using rocketbufs::position_t;
using rocketbufs::status;
using rocketbufs::Timeout;
namespace detail = rocketbufs::detail;

// A confirmation that was begun.
class Confirmation : public detail::Handle<rbmq_confirmation, rbmq_confirmation_free> {
public:
    explicit Confirmation(rbmq_confirmation *handle) : Handle(handle) {}
    // False if the confirmation did not come in time.
    status wait(Timeout timeout, rbmq_confirmed *confirmed = nullptr) const {
        return detail::check(rbmq_confirmation_wait(handle_, confirmed, timeout.nanos()));
    }
};

// Room for one message in the memory that it is sent from. Publish it, or give it back: the destructor frees it, and the topic
// cannot publish further unless the segment was the newest.
class Segment {
public:
    Segment() : segment_{} {}
    Segment(Segment &&other) noexcept : segment_(std::exchange(other.segment_, rbmq_segment{})) {}
    Segment &operator=(Segment &&other) noexcept {
        std::swap(segment_, other.segment_);
        return *this;
    }
    ~Segment() { rbmq_segment_free(&segment_); }

    explicit operator bool() const noexcept { return segment_.claim != nullptr; }
    unsigned char *data() const noexcept { return static_cast<unsigned char *>(segment_.data); }
    std::size_t size() const noexcept { return segment_.len; }
#if defined(__cpp_lib_span)
    std::span<std::byte> span() const noexcept { return {static_cast<std::byte *>(segment_.data), segment_.len}; }
#endif

private:
    friend class Topic;
    rbmq_segment segment_;
};

// What a record says about its content, to be published with it. Texts and bytes are the caller's, and are read when it is published.
class Attributes {
public:
    Attributes() : attributes_{} { attributes_.size = sizeof attributes_; }

    // Passes the attributes of a received message on; what is set replaces them.
    Attributes &pass_on(const rbmq_message &message) {
        attributes_.encoded = message.attributes, attributes_.encoded_len = message.attributes_len;
        return *this;
    }
    Attributes &topic(std::string_view name) { return set(name, attributes_.topic, attributes_.topic_len); }
    Attributes &reply_to(std::string_view name) { return set(name, attributes_.reply_to, attributes_.reply_to_len); }
    Attributes &content_type(std::string_view type) { return set(type, attributes_.content_type, attributes_.content_type_len); }
    Attributes &correlation_data(Bytes data) {
        attributes_.correlation_data = there(data.data), attributes_.correlation_data_len = data.size;
        return *this;
    }
    Attributes &key(Bytes key) {
        attributes_.key = there(key.data), attributes_.key_len = key.size;
        return *this;
    }
    // Adds a property. A key may come several times.
    Attributes &property(std::string_view key, std::string_view value) {
        properties_.push_back({key.data(), key.size(), value.data(), value.size()});
        return *this;
    }
    // In ms since 1970.
    Attributes &time_ms(std::uint64_t ms) { return attributes_.time_ms = ms, *this; }
    Attributes &expiry_ms(std::uint64_t ms) { return attributes_.expiry_ms = ms, *this; }
    Attributes &payload_is_utf8(bool yes = true) { return attributes_.payload_is_utf8 = yes, *this; }
    Attributes &retain(bool yes = true) { return attributes_.retain = yes, *this; }
    Attributes &qos(std::uint8_t qos) { return attributes_.qos = qos, attributes_.has_qos = true, *this; }

private:
    friend class Topic;
    friend class WriteBatch;
    friend class Space;
    friend class SpaceBatch;
    rbmq_attributes attributes_;
    std::vector<rbmq_property> properties_;

    // An empty value is not no value.
    static const void *there(const void *data) noexcept { return data ? data : ""; }
    Attributes &set(std::string_view from, const char *&to, std::size_t &len) {
        to = static_cast<const char *>(there(from.data())), len = from.size();
        return *this;
    }
    rbmq_attributes get() const noexcept {
        rbmq_attributes attributes = attributes_;
        attributes.properties = properties_.data(), attributes.properties_count = properties_.size();
        return attributes;
    }
};

// Publishes to one topic.
class Topic : public detail::Handle<rbmq_topic, rbmq_topic_free> {
public:
    explicit Topic(rbmq_topic *handle) : Handle(handle) {}

    // Publishes one record. False if the ring stayed full.
    status publish(Bytes record, Timeout timeout = no_limit, position_t *end = nullptr) {
        return detail::check(rbmq_topic_publish(handle_, record.data, record.size, timeout.nanos(), end));
    }
    // Publishes one record with what it says about its content.
    status publish_with(const Attributes &attributes, Bytes record, Timeout timeout = no_limit, position_t *end = nullptr) {
        rbmq_attributes given = attributes.get();
        return detail::check(rbmq_topic_publish_with(handle_, &given, record.data, record.size, timeout.nanos(), end));
    }
    // Publishes many records.
    status publish_many(const std::vector<iovec> &records, Timeout timeout = no_limit, std::size_t *published = nullptr,
                        position_t *end = nullptr) {
        return detail::check(rbmq_topic_publish_many(handle_, records.data(), records.size(), timeout.nanos(), published, end));
    }
    status publish_raw(Bytes data, position_t *end = nullptr) {
        return detail::check(rbmq_topic_publish_raw(handle_, data.data, data.size, end));
    }
    // Raw bytes in place: `fill(void *to, size_t capacity)` returns how many bytes it wrote. `fill` must not throw.
    template <class F> status fill_raw(std::size_t capacity, F &&fill, Timeout timeout = no_limit) {
        auto call = [](void *ctx, void *to, std::size_t room) -> std::ptrdiff_t {
            return static_cast<std::ptrdiff_t>((*static_cast<std::remove_reference_t<F> *>(ctx))(to, room));
        };
        void *ctx = const_cast<void *>(static_cast<const void *>(std::addressof(fill)));
        return detail::check(rbmq_topic_fill_raw(handle_, capacity, timeout.nanos(), call, ctx, nullptr));
    }
    // Room for one message in the memory that the message is sent from; an empty one if the ring stayed full.
    Segment claim(std::uint64_t bytes, Timeout timeout = no_limit) {
        Segment segment;
        detail::check(rbmq_topic_claim(handle_, bytes, timeout.nanos(), &segment.segment_));
        return segment;
    }
    // As claim(), for a message with attributes: `bytes` bytes are for its content.
    Segment claim_with(const Attributes &attributes, std::uint64_t bytes, Timeout timeout = no_limit) {
        Segment segment;
        rbmq_attributes given = attributes.get();
        detail::check(rbmq_topic_claim_with(handle_, &given, bytes, timeout.nanos(), &segment.segment_));
        return segment;
    }
    // Publishes the first `bytes` bytes of a segment as a message.
    status publish_segment(Segment &segment, std::uint64_t bytes, position_t *end = nullptr) {
        return detail::check(rbmq_topic_publish_segment(handle_, &segment.segment_, bytes, end));
    }
    // Gives the newest open segment back, and publishes nothing.
    status return_segment(Segment &segment) { return detail::check(rbmq_topic_return_segment(handle_, &segment.segment_)); }
    // Waits until everything below `position` is confirmed at RBMQ_LEVEL_...
    status confirm(position_t position, std::uint32_t level, Timeout timeout, rbmq_confirmed *confirmed = nullptr) {
        return detail::check(rbmq_topic_confirm(handle_, position, level, timeout.nanos(), confirmed));
    }
    Confirmation confirmation(position_t position, std::uint32_t level) {
        rbmq_confirmation *confirmation = nullptr;
        detail::check(rbmq_topic_confirmation(handle_, position, level, &confirmation));
        return Confirmation(confirmation);
    }
    // The position below which everything is confirmed at RBMQ_LEVEL_...
    position_t confirmed(std::uint32_t level) {
        position_t position = 0;
        detail::check(rbmq_topic_confirmed(handle_, level, &position));
        return position;
    }
    // Why the broker's disk takes nothing of a kept topic at the moment; empty if it works.
    std::string disk_failure() {
        return detail::text([&](char *to, std::size_t size, std::size_t *len) {
            return rbmq_topic_disk_failure(handle_, to, size, len);
        });
    }
    // Accepts a loss: confirmations of the level continue behind the range that is returned.
    std::pair<position_t, position_t> accept_lost(std::uint32_t level) {
        std::pair<position_t, position_t> range{};
        detail::check(rbmq_topic_accept_lost(handle_, level, &range.first, &range.second));
        return range;
    }
    rbmq_topic_info info() {
        rbmq_topic_info info{};
        detail::check(rbmq_topic_get_info(handle_, &info));
        return info;
    }
    status wait_subscribers(std::uint32_t count, Timeout timeout) {
        return detail::check(rbmq_topic_wait_subscribers(handle_, count, timeout.nanos()));
    }
    status flush(Timeout timeout) { return detail::check(rbmq_topic_flush(handle_, timeout.nanos())); }
    // Waits until the broker has everything, and ends the topic.
    status close(Timeout timeout) { return detail::check(rbmq_topic_close(release(), timeout.nanos())); }
};

// A delivery of many records, filled in place. The destructor publishes nothing; deliver() does.
class WriteBatch {
public:
    // Room for `bytes` bytes of records and their headers of 4 bytes. Empty if the ring stayed full.
    WriteBatch(Topic &topic, std::size_t bytes, Timeout timeout = no_limit) {
        if (detail::check(rbmq_topic_batch(topic.get(), bytes, timeout.nanos()))) topic_ = topic.get();
    }
    WriteBatch(const WriteBatch &) = delete;
    WriteBatch &operator=(const WriteBatch &) = delete;
    ~WriteBatch() {
        if (topic_) rbmq_topic_batch_cancel(topic_);
    }
    explicit operator bool() const noexcept { return topic_ != nullptr; }
    // False, and nothing is added, if there is no room.
    bool push(Bytes record) { return static_cast<bool>(detail::check(rbmq_topic_batch_push(topic_, record.data, record.size))); }
    bool push_with(const Attributes &attributes, Bytes record) {
        rbmq_attributes given = attributes.get();
        return static_cast<bool>(detail::check(rbmq_topic_batch_push_with(topic_, &given, record.data, record.size)));
    }
    // Any number of encoded records. False, and nothing is added, if there is no room.
    bool push_encoded(Bytes records) {
        return static_cast<bool>(detail::check(rbmq_topic_batch_push_encoded(topic_, records.data, records.size)));
    }
    // In a topic of a space, other writers may have taken the room. After a time-out, and while another thread uses the topic, the batch is there as
    // before.
    status deliver(position_t *end = nullptr) {
        const rb_status code = rbmq_topic_batch_deliver(topic_, end);
        if (code != RB_TIMED_OUT && code != RB_ERR_BUSY) topic_ = nullptr;
        return detail::check(code);
    }

private:
    rbmq_topic *topic_ = nullptr;
};

// Publishes to the topics of a space: those of a pattern that the broker keeps in one log. The attributes of a record name no topic.
class Space : public detail::Handle<rbmq_space, rbmq_space_free> {
public:
    explicit Space(rbmq_space *handle) : Handle(handle) {}

    // Publishes one record to a topic of the space. False if the ring stayed full.
    status publish_to(const std::string &topic, Bytes record, Timeout timeout = no_limit, position_t *end = nullptr) {
        return detail::check(
            rbmq_space_publish_to(handle_, topic.c_str(), nullptr, record.data, record.size, timeout.nanos(), end));
    }
    // The same with what the record says about its content.
    status publish_to(const std::string &topic, const Attributes &attributes, Bytes record, Timeout timeout = no_limit,
                      position_t *end = nullptr) {
        rbmq_attributes given = attributes.get();
        return detail::check(
            rbmq_space_publish_to(handle_, topic.c_str(), &given, record.data, record.size, timeout.nanos(), end));
    }
    // Whether a topic is in the space: the pattern matches it, and no earlier rule of the broker does.
    bool contains(const std::string &topic) { return detail::check_number(rbmq_space_contains(handle_, topic.c_str())) > 0; }
    // Whether every topic that a filter matches is in the space.
    bool covers(const std::string &filter) { return detail::check_number(rbmq_space_covers(handle_, filter.c_str())) > 0; }
    // Waits until everything below `position`, in the log of the space, is confirmed at RBMQ_LEVEL_...
    status confirm(position_t position, std::uint32_t level, Timeout timeout, rbmq_confirmed *confirmed = nullptr) {
        return detail::check(rbmq_space_confirm(handle_, position, level, timeout.nanos(), confirmed));
    }
    Confirmation confirmation(position_t position, std::uint32_t level) {
        rbmq_confirmation *confirmation = nullptr;
        detail::check(rbmq_space_confirmation(handle_, position, level, &confirmation));
        return Confirmation(confirmation);
    }
    // The position below which everything is confirmed at RBMQ_LEVEL_...
    position_t confirmed(std::uint32_t level) {
        position_t position = 0;
        detail::check(rbmq_space_confirmed(handle_, level, &position));
        return position;
    }
    // Why the broker's disk takes nothing of a kept space at the moment; empty if it works.
    std::string disk_failure() {
        return detail::text([&](char *to, std::size_t size, std::size_t *len) {
            return rbmq_space_disk_failure(handle_, to, size, len);
        });
    }
    // Accepts a loss: confirmations of the level continue behind the range that is returned.
    std::pair<position_t, position_t> accept_lost(std::uint32_t level) {
        std::pair<position_t, position_t> range{};
        detail::check(rbmq_space_accept_lost(handle_, level, &range.first, &range.second));
        return range;
    }
    // The state of the log of the space.
    rbmq_topic_info info() {
        rbmq_topic_info info{};
        detail::check(rbmq_space_get_info(handle_, &info));
        return info;
    }
    status wait_subscribers(std::uint32_t count, Timeout timeout) {
        return detail::check(rbmq_space_wait_subscribers(handle_, count, timeout.nanos()));
    }
    status flush(Timeout timeout) { return detail::check(rbmq_space_flush(handle_, timeout.nanos())); }
    // Waits until the broker has everything. Other writers of the log stay open.
    status close(Timeout timeout) { return detail::check(rbmq_space_close(release(), timeout.nanos())); }
};

// A delivery with records of any topics of a space. The destructor publishes nothing; deliver() does.
class SpaceBatch {
public:
    // Room for `bytes` bytes of records and their headers of 4 bytes. Empty if the ring stayed full.
    SpaceBatch(Space &space, std::size_t bytes, Timeout timeout = no_limit) {
        if (detail::check(rbmq_space_batch(space.get(), bytes, timeout.nanos()))) space_ = space.get();
    }
    SpaceBatch(const SpaceBatch &) = delete;
    SpaceBatch &operator=(const SpaceBatch &) = delete;
    ~SpaceBatch() {
        if (space_) rbmq_space_batch_cancel(space_);
    }
    explicit operator bool() const noexcept { return space_ != nullptr; }
    // False, and nothing is added, if there is no room.
    bool push(const std::string &topic, Bytes record) {
        return static_cast<bool>(detail::check(rbmq_space_batch_push(space_, topic.c_str(), nullptr, record.data, record.size)));
    }
    bool push(const std::string &topic, const Attributes &attributes, Bytes record) {
        rbmq_attributes given = attributes.get();
        return static_cast<bool>(detail::check(rbmq_space_batch_push(space_, topic.c_str(), &given, record.data, record.size)));
    }
    // Other writers of the log may have taken the room. After a time-out, and while another thread uses the space, the batch is there as before.
    status deliver(position_t *end = nullptr) {
        const rb_status code = rbmq_space_batch_deliver(space_, end);
        if (code != RB_TIMED_OUT && code != RB_ERR_BUSY) space_ = nullptr;
        return detail::check(code);
    }

private:
    rbmq_space *space_ = nullptr;
};

// A connection that publishes to a broker.
class Publisher : public detail::Handle<rbmq_publisher, rbmq_publisher_free> {
public:
    explicit Publisher(const std::string &address, const rbmq_publisher_options *options = nullptr) {
        detail::check(rbmq_publisher_connect(address.c_str(), options, &handle_));
    }
    Topic topic(const std::string &name, const rbmq_topic_options *options = nullptr) const {
        rbmq_topic *topic = nullptr;
        detail::check(rbmq_publisher_topic(handle_, name.c_str(), options, &topic));
        return Topic(topic);
    }
    // All topics of a pattern such as "devices/#", which the broker keeps in one log.
    Space space(const std::string &pattern, const rbmq_topic_options *options = nullptr) const {
        rbmq_space *space = nullptr;
        detail::check(rbmq_publisher_space(handle_, pattern.c_str(), options, &space));
        return Space(space);
    }
    bool is_connected() const { return detail::check_number(rbmq_publisher_is_connected(handle_)) > 0; }
    int fd() const { return detail::check_number(rbmq_publisher_fd(handle_)); }
    // The next event. The event's texts are valid until this thread's next call that receives something.
    std::optional<rbmq_publisher_event> next_event(Timeout timeout) const {
        rbmq_publisher_event event;
        if (!detail::check(rbmq_publisher_next_event(handle_, &event, timeout.nanos()))) return std::nullopt;
        return event;
    }
    status close(Timeout timeout) { return detail::check(rbmq_publisher_close(release(), timeout.nanos())); }
};

// What a message says about its content: valid as long as the message.
class ReadAttributes {
public:
    ReadAttributes(const void *attributes, std::size_t len) : attributes_{} {
        if (len > 0) detail::check(rbmq_attributes_read(attributes, len, &attributes_));
    }
    std::optional<std::string_view> topic() const { return text(attributes_.topic, attributes_.topic_len); }
    std::optional<std::string_view> reply_to() const { return text(attributes_.reply_to, attributes_.reply_to_len); }
    std::optional<std::string_view> content_type() const { return text(attributes_.content_type, attributes_.content_type_len); }
    std::optional<Bytes> correlation_data() const { return bytes(attributes_.correlation_data, attributes_.correlation_data_len); }
    std::optional<Bytes> key() const { return bytes(attributes_.key, attributes_.key_len); }
    // The keys and values, in order.
    std::vector<std::pair<std::string_view, std::string_view>> properties() const {
        std::size_t count = 0;
        detail::check(rbmq_attributes_properties(attributes_.encoded, attributes_.encoded_len, nullptr, 0, &count));
        std::vector<rbmq_property> found(count);
        detail::check(rbmq_attributes_properties(attributes_.encoded, attributes_.encoded_len, found.data(), count, &count));
        std::vector<std::pair<std::string_view, std::string_view>> pairs;
        for (const rbmq_property &one : found)
            pairs.emplace_back(std::string_view(one.key, one.key_len), std::string_view(one.value, one.value_len));
        return pairs;
    }
    // In ms since 1970; 0: the message has none.
    std::uint64_t time_ms() const noexcept { return attributes_.time_ms; }
    std::uint64_t expiry_ms() const noexcept { return attributes_.expiry_ms; }
    bool payload_is_utf8() const noexcept { return attributes_.payload_is_utf8; }
    bool retain() const noexcept { return attributes_.retain; }
    std::optional<std::uint8_t> qos() const {
        return attributes_.has_qos ? std::optional<std::uint8_t>(attributes_.qos) : std::nullopt;
    }

private:
    rbmq_attributes attributes_;

    static std::optional<std::string_view> text(const char *data, std::size_t len) {
        return data ? std::optional<std::string_view>(std::string_view(data, len)) : std::nullopt;
    }
    static std::optional<Bytes> bytes(const void *data, std::size_t len) {
        return data ? std::optional<Bytes>(Bytes(data, len)) : std::nullopt;
    }
};

// A message in the memory where it landed: valid until the next call on the subscriber.
struct Message : rbmq_message {
    Message() : rbmq_message{} {}
    // What the message says about its content.
    ReadAttributes read_attributes() const { return ReadAttributes(attributes, attributes_len); }
    std::string_view text() const noexcept { return {static_cast<const char *>(data), len}; }
    std::string_view topic_name() const noexcept { return {topic, topic_len}; }
#if defined(__cpp_lib_span)
    std::span<const std::byte> span() const noexcept { return {static_cast<const std::byte *>(data), len}; }
#endif
};

// A received batch that is not consumed yet. The destructor does not consume it.
class DeferredBatch : public detail::Handle<rbmq_deferred, rbmq_deferred_free> {
public:
    DeferredBatch() = default;
    explicit DeferredBatch(rbmq_deferred *handle) : Handle(handle) {}

    rb_id128 epoch() const {
        rb_id128 epoch{};
        detail::check(rbmq_deferred_epoch(handle_, &epoch));
        return epoch;
    }
    // Consumes the batch, and all earlier ones of its buffer.
    status consume() { return detail::check(rbmq_deferred_consume(release())); }
    status consume_up_to(position_t position) { return detail::check(rbmq_deferred_consume_up_to(release(), position)); }
};

// Receives topics from a broker.
class Subscriber : public detail::Handle<rbmq_subscriber, rbmq_subscriber_free> {
public:
    explicit Subscriber(const std::string &address, const rbmq_subscriber_options *options = nullptr) {
        detail::check(rbmq_subscriber_connect(address.c_str(), options, &handle_));
    }
    Subscriber(Subscriber &&) noexcept = default;
    Subscriber &operator=(Subscriber &&other) noexcept {
        unset_message_cb();
        Handle::operator=(std::move(other));
        message_cb_ = std::move(other.message_cb_);
        return *this;
    }
    ~Subscriber() { unset_message_cb(); }

    status subscribe(const std::string &topics, const rbmq_start *start = nullptr) {
        return detail::check(rbmq_subscriber_subscribe(handle_, topics.c_str(), start));
    }
    status unsubscribe(const std::string &topics) {
        return detail::check(rbmq_subscriber_unsubscribe(handle_, topics.c_str()));
    }
    // The next message; none if nothing came, or every topic has ended (ended()).
    std::optional<Message> recv(Timeout timeout) {
        Message message;
        if (!detail::check(rbmq_subscriber_recv(handle_, &message, timeout.nanos()))) return std::nullopt;
        return message;
    }
    // Hands the records of the next batch to `each(Bytes)`, and consumes the batch. Returns how many; 0 if nothing came.
    template <class F> std::size_t for_each_record(F &&each, Timeout timeout) {
        rbmq_batch batch;
        if (!detail::check(rbmq_subscriber_next_batch(handle_, &batch, timeout.nanos()))) return 0;
        if (batch.framing == RBMQ_FRAMING_RAW) {
            each(Bytes(batch.data, batch.len));
            rbmq_subscriber_batch_consume(handle_);
            return 1;
        }
        std::size_t total = 0, count = 0;
        rbmq_record records[64];
        do {
            rb_status code = rbmq_subscriber_batch_records(handle_, records, 64, &count);
            for (std::size_t i = 0; i < count; i++) each(Bytes(records[i].data, records[i].len));
            total += count;
            if (!detail::check(code)) break;
        } while (count > 0);
        rbmq_subscriber_batch_consume(handle_);
        return total;
    }
    // The next batch, which stays open until it is consumed, deferred, or the next call that receives; none if nothing came.
    std::optional<rbmq_batch> next_batch(Timeout timeout) {
        rbmq_batch batch;
        if (!detail::check(rbmq_subscriber_next_batch(handle_, &batch, timeout.nanos()))) return std::nullopt;
        return batch;
    }
    status consume() { return detail::check(rbmq_subscriber_batch_consume(handle_)); }
    // `position` is the end of a record.
    status consume_part(position_t position) { return detail::check(rbmq_subscriber_batch_consume_part(handle_, position)); }
    status consume_up_to(position_t position) { return detail::check(rbmq_subscriber_batch_consume_up_to(handle_, position)); }
    // Ends the open batch without consuming it.
    DeferredBatch defer() {
        rbmq_deferred *deferred = nullptr;
        detail::check(rbmq_subscriber_batch_defer(handle_, &deferred));
        return DeferredBatch(deferred);
    }
    // The next event; a batch of it is consumed by the next call. The event's texts are valid until this thread's next call
    // that receives.
    std::optional<rbmq_event> next_event(Timeout timeout) {
        rbmq_event event;
        if (!detail::check(rbmq_subscriber_next_event(handle_, &event, timeout.nanos()))) return std::nullopt;
        return event;
    }
    bool ended() const { return detail::check_number(rbmq_subscriber_ended(handle_)) > 0; }
    bool is_connected() const { return detail::check_number(rbmq_subscriber_is_connected(handle_)) > 0; }
    int fd() const { return detail::check_number(rbmq_subscriber_fd(handle_)); }
    status close(Timeout timeout) {
        status closed = detail::check(rbmq_subscriber_close(release(), timeout.nanos()));
        message_cb_.reset();
        return closed;
    }
    // Ends the wait of another thread in a call that receives, which fails with RB_ERR_INTERRUPTED. Any thread.
    status interrupt() const { return detail::check(rbmq_subscriber_interrupt(handle_)); }

    // Calls `callback(RB_OK, message)` for each message, on a thread of the subscriber alone; or with what recv() would have failed
    // with, and an empty message (rocketbufs::last_error() has the text). RB_END, RB_ERR_DOWN and RB_ERR_TAKEN_OVER are the last call.
    // Subscribe before.
    // The callback may wait. If it throws, the program ends.
    status set_message_cb(std::function<void(rb_status, const Message &)> callback) {
        unset_message_cb();
        auto shared = std::make_shared<std::function<OnMessage>>(std::move(callback));
        message_cb_.reset(new detail::Callback<OnMessage>{std::move(shared), handle_});
        return detail::check(rbmq_subscriber_set_message_cb(handle_, on_message, message_cb_.get()));
    }
    void unset_message_cb() noexcept {
        if (message_cb_) rbmq_subscriber_unset_message_cb(handle_);
        message_cb_.reset();
    }

private:
    using OnMessage = void(rb_status, const Message &);
    static void on_message(void *ctx, rb_status code, const rbmq_message *received) {
        auto function = static_cast<detail::Callback<OnMessage> *>(ctx)->function;
        Message message;
        if (received) static_cast<rbmq_message &>(message) = *received;
        detail::guarded([&] { (*function)(code, message); }, detail::give_up);
    }

    detail::CallbackSlot<OnMessage> message_cb_;
};

#if defined(ROCKETBUFS_COROUTINES)
// The next message of a subscriber, for a coroutine.
template <class Loop> auto async_recv(Loop &loop, Subscriber &subscriber) {
    return rocketbufs::WhenReadable(loop, [&subscriber] { return subscriber.fd(); },
                                    [&subscriber] { return subscriber.recv(no_wait); });
}
#endif

// Rows of an answer of Groups or of an Observer, which are valid until the next call on it.
template <class T> struct Rows {
    const T *first = nullptr;
    std::size_t count = 0;

    const T *begin() const noexcept { return first; }
    const T *end() const noexcept { return first + count; }
    std::size_t size() const noexcept { return count; }
};

// A message that a worker of a group has. The destructor says no word of it: others get it when the time of the group is over, which is a
// failed attempt. Any thread may use it, one at a time, also when the worker is gone. A word (ack, nack, release) ends the object, which is
// empty then, and so are its bytes.
class GroupMessage : public detail::Handle<rbmq_group_message, rbmq_group_message_free> {
public:
    GroupMessage() = default;
    explicit GroupMessage(rbmq_group_message *handle) : Handle(handle) { detail::check(rbmq_group_message_get(handle, &content_)); }
    GroupMessage(GroupMessage &&other) noexcept
        : Handle(std::move(other)), content_(std::exchange(other.content_, rbmq_group_content{})) {}
    GroupMessage &operator=(GroupMessage &&other) noexcept {
        Handle::operator=(std::move(other));
        content_ = std::exchange(other.content_, rbmq_group_content{});
        return *this;
    }

    // The content, valid until the message ends.
    std::string_view text() const noexcept { return {static_cast<const char *>(content_.data), content_.len}; }
    Bytes bytes() const noexcept { return Bytes(content_.data, content_.len); }
#if defined(__cpp_lib_span)
    std::span<const std::byte> span() const noexcept { return {static_cast<const std::byte *>(content_.data), content_.len}; }
#endif
    // The attributes of the message, valid until it ends.
    ReadAttributes read_attributes() const { return ReadAttributes(content_.attributes, content_.attributes_len); }
    // The position in the log of the topic.
    position_t position() const noexcept { return content_.position; }
    // 1, or more if earlier attempts have failed.
    std::uint16_t attempt() const noexcept { return content_.attempt; }
    // The message is done. GroupWorker::flush() waits until the broker has it.
    status ack() { return said(rbmq_group_message_ack(handle_)); }
    // An attempt has failed: the message comes again after `delay`, at most 12 hours.
    status nack(std::chrono::nanoseconds delay) { return said(rbmq_group_message_nack(handle_, delay.count())); }
    // The worker gets `time` from now on, at most 12 hours.
    status extend(std::chrono::nanoseconds time) const { return detail::check(rbmq_group_message_extend(handle_, time.count())); }
    // The worker has not begun with the message, and gives it back. That is no failed attempt.
    status give_back() { return said(rbmq_group_message_release(handle_)); }

private:
    // After an error, as that of a negative delay, the message is there as before.
    status said(rb_status code) {
        if (code == RB_OK) {
            content_ = rbmq_group_content{};
            release();
        }
        return detail::check(code);
    }

    rbmq_group_content content_{};
};

// Receives messages of a group: workers share a kept topic, and each message goes to one of them until it is acknowledged. A worker reconnects
// by itself, in the calls that wait.
class GroupWorker : public detail::Handle<rbmq_group_worker, rbmq_group_worker_free> {
public:
    // Joins the group, which is made with these options if it does not exist.
    GroupWorker(const std::string &address, const std::string &topic, const std::string &group,
                const rbmq_group_options *options = nullptr) {
        detail::check(rbmq_group_join(address.c_str(), topic.c_str(), group.c_str(), options, &handle_));
    }
    // The next message; an empty one if nothing came.
    GroupMessage recv(Timeout timeout) {
        rbmq_group_message *message = nullptr;
        if (!detail::check(rbmq_group_worker_recv(handle_, &message, timeout.nanos()))) return {};
        return GroupMessage(message);
    }
    // Waits until everything that was acknowledged is in the broker's journal. An error (RB_ERR_IN_VAIN), once, if acknowledgements do not count.
    status flush(Timeout timeout) { return detail::check(rbmq_group_worker_flush(handle_, timeout.nanos())); }
    // The time for which a worker may have a message, as the group says.
    std::chrono::nanoseconds ack_time() const {
        std::int64_t nanos = 0;
        detail::check(rbmq_group_worker_ack_time(handle_, &nanos));
        return std::chrono::nanoseconds(nanos);
    }
    bool is_joined() const { return detail::check_number(rbmq_group_worker_is_joined(handle_)) > 0; }
    // Gives back what was not received, and waits until the broker has everything that was acknowledged, at most 2 s for each.
    status close() { return detail::check(rbmq_group_worker_close(release())); }
};

// Lists, resets and deletes the groups of a broker. The connection is not made again.
class Groups : public detail::Handle<rbmq_groups, rbmq_groups_free> {
public:
    explicit Groups(const std::string &address, const rbmq_groups_options *options = nullptr) {
        detail::check(rbmq_groups_connect(address.c_str(), options, &handle_));
    }
    // All groups, by topic and name.
    Rows<rbmq_group_stats> list() const {
        Rows<rbmq_group_stats> rows;
        detail::check(rbmq_groups_list(handle_, &rows.first, &rows.count));
        return rows;
    }
    // Lets a group begin anew at RBMQ_GROUP_...
    status reset(const std::string &topic, const std::string &group, std::uint32_t start, position_t position = 0) const {
        return detail::check(rbmq_groups_reset(handle_, topic.c_str(), group.c_str(), start, position));
    }
    // Forgets a group, and ends its workers.
    status forget(const std::string &topic, const std::string &group) const {
        return detail::check(rbmq_groups_delete(handle_, topic.c_str(), group.c_str()));
    }
};

// Asks a broker for its state. An observer does not reconnect.
class Observer : public detail::Handle<rbmq_observer, rbmq_observer_free> {
public:
    explicit Observer(const std::string &address, const rbmq_observer_options *options = nullptr) {
        detail::check(rbmq_observer_connect(address.c_str(), options, &handle_));
    }
    // The state of the broker as a whole; none if it did not answer in time.
    std::optional<rbmq_broker_summary> summary() const {
        rbmq_broker_summary summary;
        if (!detail::check(rbmq_observer_summary(handle_, &summary))) return std::nullopt;
        return summary;
    }
    // The topics that a filter matches (nullptr: all), by name.
    Rows<rbmq_topic_stats> topics(const char *filter = nullptr) const {
        Rows<rbmq_topic_stats> rows;
        detail::check(rbmq_observer_topics(handle_, filter, &rows.first, &rows.count));
        return rows;
    }
    // The buffers of a topic with their subscriptions, the oldest first.
    Rows<rbmq_buffer_stats> topic(const std::string &topic) const {
        Rows<rbmq_buffer_stats> rows;
        detail::check(rbmq_observer_topic(handle_, topic.c_str(), &rows.first, &rows.count));
        return rows;
    }
};

} // namespace rbmq

// CMQ: queues over UDP.
namespace cmq {

using rocketbufs::Bytes;
using rocketbufs::no_limit;
using rocketbufs::no_wait;
using rocketbufs::status;
using rocketbufs::Timeout;
namespace detail = rocketbufs::detail;

// An address and an integer.
struct Key : cmq_key {
    Key() : cmq_key{} {}
    Key(const cmq_key &key) : cmq_key(key) {}
    Key(const std::string &address, std::uint32_t mailbox = 0) : cmq_key{} {
        detail::check(cmq_key_parse(address.c_str(), mailbox, this));
    }
    std::string address() const {
        return detail::text([&](char *to, std::size_t size, std::size_t *len) { return cmq_key_format(this, to, size, len); });
    }
};

// A popped message, which owns its memory.
class Message {
public:
    Message() : message_{} {}
    explicit Message(const cmq_message &message) : message_(message) {}
    Message(Message &&other) noexcept : message_(std::exchange(other.message_, cmq_message{})) {}
    Message &operator=(Message &&other) noexcept {
        std::swap(message_, other.message_);
        return *this;
    }
    ~Message() {
        if (message_.memory) cmq_message_free(&message_);
    }

    const void *data() const noexcept { return message_.data; }
    std::size_t size() const noexcept { return message_.len; }
    std::string_view text() const noexcept { return {static_cast<const char *>(message_.data), message_.len}; }
    Key from() const noexcept { return message_.from; }
#if defined(__cpp_lib_span)
    std::span<const std::byte> span() const noexcept { return {static_cast<const std::byte *>(message_.data), message_.len}; }
#endif

private:
    cmq_message message_;
};

// The public key of a queue, which its senders know.
struct PublicKey : cmq_public_key {
    PublicKey() : cmq_public_key{} {}
    PublicKey(const cmq_public_key &key) : cmq_public_key(key) {}
    // The key of a text of 64 hexadecimal digits.
    explicit PublicKey(const std::string &digits) : cmq_public_key{} { detail::check(cmq_public_key_parse(digits.c_str(), this)); }
    // The key of a file, as `cmq keygen` writes it.
    static PublicKey read(const std::string &path) {
        PublicKey key;
        detail::check(cmq_public_key_read(path.c_str(), &key));
        return key;
    }
    std::string text() const {
        return detail::text([&](char *to, std::size_t size, std::size_t *len) { return cmq_public_key_format(this, to, size, len); });
    }
    bool operator==(const PublicKey &other) const noexcept { return !std::memcmp(bytes, other.bytes, sizeof bytes); }
    bool operator!=(const PublicKey &other) const noexcept { return !(*this == other); }
};

// The secret key of a queue. The destructor erases it.
class SecretKey {
public:
    explicit SecretKey(const cmq_secret_key &key) noexcept : key_(key) {}
    SecretKey(SecretKey &&other) noexcept : key_(other.key_) { cmq_secret_key_erase(&other.key_); }
    SecretKey &operator=(SecretKey &&other) noexcept {
        std::swap(key_, other.key_);
        return *this;
    }
    ~SecretKey() { cmq_secret_key_erase(&key_); }

    // A new random key.
    static SecretKey generate() {
        SecretKey key;
        detail::check(cmq_secret_key_generate(&key.key_));
        return key;
    }
    // The key of a file that only its owner has a right to.
    static SecretKey read(const std::string &path) {
        SecretKey key;
        detail::check(cmq_secret_key_read(path.c_str(), &key.key_));
        return key;
    }
    // Writes the key into a new file that only its owner may read.
    status write_new(const std::string &path) const { return detail::check(cmq_secret_key_write_new(&key_, path.c_str())); }
    PublicKey public_key() const {
        PublicKey key;
        detail::check(cmq_secret_key_public(&key_, &key));
        return key;
    }
    // The key of the C API, which stays the object's: for cmq_security.
    const cmq_secret_key *get() const noexcept { return &key_; }

private:
    SecretKey() noexcept : key_{} {}
    cmq_secret_key key_;
};

namespace popping {

// A choice of messages: `wanted(std::string_view bytes, const Key &from)`. `wanted` must not throw, and must not use the
// queue.
template <class F> bool wanted(void *ctx, const cmq_message *message) {
    std::string_view bytes(static_cast<const char *>(message->data), message->len);
    return (*static_cast<F *>(ctx))(bytes, Key(message->from));
}

template <class F> void *context(F &function) { return const_cast<void *>(static_cast<const void *>(std::addressof(function))); }

// At most `max` messages of a call that takes many.
template <class F> std::vector<Message> many(std::size_t max, F &&call) {
    std::vector<cmq_message> got(max);
    std::size_t count = 0;
    std::vector<Message> messages;
    messages.reserve(max);
    rb_status code = call(got.data(), max, &count);
    for (std::size_t i = 0; i < count; i++) messages.emplace_back(got[i]);
    detail::check(code);
    return messages;
}

} // namespace popping

// The messages for one integer. The destructor frees the handle, and does not close the mailbox.
class Mailbox : public detail::Handle<cmq_mailbox, cmq_mailbox_free> {
public:
    Mailbox() = default;
    explicit Mailbox(cmq_mailbox *handle) : Handle(handle) {}

    std::optional<Message> cw_pop() const { return pop(no_wait); }
    std::optional<Message> pop(Timeout timeout) const {
        cmq_message message;
        if (!detail::check(cmq_mailbox_pop(handle_, &message, timeout.nanos()))) return std::nullopt;
        return Message(message);
    }
    // At most `max` messages; waits for the first one only.
    std::vector<Message> pop_many(std::size_t max, Timeout timeout) const {
        return popping::many(max, [&](cmq_message *messages, std::size_t room, std::size_t *count) {
            return cmq_mailbox_pop_many(handle_, messages, room, count, timeout.nanos());
        });
    }
    // The oldest message that `wanted(std::string_view bytes, const Key &from)` accepts.
    template <class F> std::optional<Message> pop_where(F &&wanted, Timeout timeout) const {
        cmq_message message;
        auto choose = popping::wanted<std::remove_reference_t<F>>;
        if (!detail::check(cmq_mailbox_pop_where(handle_, choose, popping::context(wanted), &message, timeout.nanos())))
            return std::nullopt;
        return Message(message);
    }
    std::size_t waiting() const {
        std::size_t count = 0;
        detail::check(cmq_mailbox_waiting(handle_, &count));
        return count;
    }
    std::uint32_t id() const {
        std::uint32_t id = 0;
        detail::check(cmq_mailbox_id(handle_, &id));
        return id;
    }
    int fd() const { return detail::check_number(cmq_mailbox_fd(handle_)); }
    // Closes the mailbox, and drops the messages that wait there.
    status close() { return detail::check(cmq_mailbox_close(release())); }
};

// A message queue at an address.
class Queue : public detail::Handle<cmq_queue, cmq_free> {
public:
    explicit Queue(const std::string &address, const cmq_options *options = nullptr) {
        detail::check(cmq_new_rq(address.c_str(), options, &handle_));
    }
    // Queues a message. False if too many bytes wait to be sent.
    status cw_push(const cmq_key &key, Bytes message) const {
        return detail::check(cmq_cw_push(handle_, &key, message.data, message.size));
    }
    // Queues messages for one key; how many, as the queue may be full.
    std::size_t cw_push_many(const cmq_key &key, const std::vector<iovec> &messages) const {
        std::size_t pushed = 0;
        detail::check(cmq_cw_push_many(handle_, &key, messages.data(), messages.size(), &pushed));
        return pushed;
    }
    // Queues a message of the reliable mode; its number among those of its key. Empty if too many bytes wait to be confirmed.
    std::optional<std::uint64_t> push_reliable(const cmq_key &key, Bytes message) const {
        std::uint64_t number = 0;
        if (!detail::check(cmq_push_reliable(handle_, &key, message.data, message.size, &number))) return std::nullopt;
        return number;
    }
    // The outcome of a message of the reliable mode, and the reason if it was given up.
    std::pair<cmq_message_fate, cmq_reason> fate(const cmq_key &key, std::uint64_t number) const {
        std::pair<cmq_message_fate, cmq_reason> found{CMQ_FATE_UNKNOWN, CMQ_REASON_NONE};
        detail::check(cmq_fate(handle_, &key, number, &found.first, &found.second));
        return found;
    }
    // True if the receiving queue has the message, false if it is still on its way. An error if the message was given up.
    status wait_confirmed(const cmq_key &key, std::uint64_t number, Timeout timeout) const {
        return detail::check(cmq_wait_confirmed(handle_, &key, number, timeout.nanos()));
    }
    // True once each message of the reliable mode is confirmed or given up.
    status wait_all_confirmed(Timeout timeout) const { return detail::check(cmq_wait_all_confirmed(handle_, timeout.nanos())); }
    // The public key of the queue at an address, while there is a session with it.
    std::optional<PublicKey> peer_key(const cmq_key &at) const {
        PublicKey key;
        if (!detail::check(cmq_peer_key(handle_, &at, &key))) return std::nullopt;
        return key;
    }
    // The next message, if there is one.
    std::optional<Message> cw_pop() const {
        cmq_message message;
        if (!detail::check(cmq_cw_pop(handle_, &message))) return std::nullopt;
        return Message(message);
    }
    // At most `max` messages; waits for the first one only.
    std::vector<Message> pop_many(std::size_t max, Timeout timeout) const {
        return popping::many(max, [&](cmq_message *messages, std::size_t room, std::size_t *count) {
            return cmq_pop_many(handle_, messages, room, count, timeout.nanos());
        });
    }
    // The oldest message that `wanted(std::string_view bytes, const Key &from)` accepts.
    template <class F> std::optional<Message> pop_where(F &&wanted, Timeout timeout) const {
        cmq_message message;
        auto choose = popping::wanted<std::remove_reference_t<F>>;
        if (!detail::check(cmq_pop_where(handle_, choose, popping::context(wanted), &message, timeout.nanos()))) return std::nullopt;
        return Message(message);
    }
    // A mailbox of its own for an integer.
    Mailbox mailbox(std::uint32_t id) const {
        cmq_mailbox *mailbox = nullptr;
        detail::check(cmq_mailbox_open(handle_, id, &mailbox));
        return Mailbox(mailbox);
    }
    std::size_t waiting() const {
        std::size_t count = 0;
        detail::check(cmq_waiting(handle_, &count));
        return count;
    }
    std::uint64_t epoch() const {
        std::uint64_t epoch = 0;
        detail::check(cmq_epoch(handle_, &epoch));
        return epoch;
    }
    // Every stream that the queue remembers.
    std::vector<cmq_sender> senders() const {
        return detail::list<cmq_sender>([&](cmq_sender *senders, std::size_t capacity, std::size_t *count) {
            return cmq_senders(handle_, senders, capacity, count);
        });
    }
    // The streams of one sender address.
    std::vector<cmq_sender> senders_at(const cmq_key &from) const {
        return detail::list<cmq_sender>([&](cmq_sender *senders, std::size_t capacity, std::size_t *count) {
            return cmq_senders_at(handle_, &from, senders, capacity, count);
        });
    }
    // Receives a multicast group: see cmq_join.
    status join(const std::string &group, const char *interface_name = nullptr) const {
        return detail::check(cmq_join(handle_, group.c_str(), interface_name));
    }
    status leave(const std::string &group, const char *interface_name = nullptr) const {
        return detail::check(cmq_leave(handle_, group.c_str(), interface_name));
    }
    // How messages to groups are sent: see cmq_set_multicast.
    status set_multicast(const char *interface_name, std::uint32_t ttl, bool loopback) const {
        return detail::check(cmq_set_multicast(handle_, interface_name, ttl, loopback));
    }
    std::optional<Message> pop(Timeout timeout) const {
        cmq_message message;
        if (!detail::check(cmq_pop(handle_, &message, timeout.nanos()))) return std::nullopt;
        return Message(message);
    }
    std::optional<cmq_event> next_event() const {
        cmq_event event;
        if (!detail::check(cmq_next_event(handle_, &event))) return std::nullopt;
        return event;
    }
    Key local_addr() const {
        Key key;
        detail::check(cmq_local_addr(handle_, &key));
        return key;
    }
    cmq_stats stats() const {
        cmq_stats stats{};
        detail::check(cmq_get_stats(handle_, &stats));
        return stats;
    }
    status flush() const { return detail::check(cmq_flush(handle_)); }
    status finish() const { return detail::check(cmq_finish(handle_)); }
    int fd() const { return detail::check_number(cmq_fd(handle_)); }
};

// A request, and its response once that has arrived (the paper's future). Outlives its Caller.
class Call : public detail::Handle<cmq_call, cmq_call_free> {
public:
    Call() = default;
    explicit Call(cmq_call *handle) : Handle(handle) {}
    // The response; none if it may still arrive. Fails with RB_ERR_LOST if no attempt got one.
    std::optional<Message> wait(Timeout timeout) const {
        cmq_message response;
        if (!detail::check(cmq_call_wait(handle_, &response, timeout.nanos()))) return std::nullopt;
        return Message(response);
    }
};

// Sends requests from a queue of its own.
class Caller : public detail::Handle<cmq_caller, cmq_caller_free> {
public:
    explicit Caller(const std::string &address, const cmq_call_options *calls = nullptr, const cmq_options *options = nullptr) {
        detail::check(cmq_caller_new(address.c_str(), options, calls, &handle_));
    }
    // Sends a request; never waits. The call is false if too many bytes wait to be sent.
    Call call(const cmq_key &to, Bytes request) const {
        cmq_call *made = nullptr;
        detail::check(cmq_caller_call(handle_, &to, request.data, request.size, &made));
        return Call(made);
    }
    Key local_addr() const {
        Key key;
        detail::check(cmq_caller_local_addr(handle_, &key));
        return key;
    }
};

namespace serving {

// One call of Responder::serve.
template <class F> struct Serving {
    F *respond;
    std::optional<std::string> response;
#if !defined(ROCKETBUFS_NO_EXCEPTIONS)
    std::exception_ptr thrown;
#endif

    explicit Serving(F *function) : respond(function) {}

    static bool run(void *ctx, const cmq_message *request, iovec *response) noexcept {
        auto &self = *static_cast<Serving *>(ctx);
        std::string_view bytes(static_cast<const char *>(request->data), request->len);
#if !defined(ROCKETBUFS_NO_EXCEPTIONS)
        try {
            self.response = (*self.respond)(bytes);
        } catch (...) {
            self.thrown = std::current_exception();
        }
#else
        self.response = (*self.respond)(bytes);
#endif
        if (self.response) *response = {self.response->data(), self.response->size()};
        return self.response.has_value();
    }
};

} // namespace serving

// Answers requests that arrive at a queue of its own.
class Responder : public detail::Handle<cmq_responder, cmq_responder_free> {
public:
    explicit Responder(const std::string &address, const cmq_options *options = nullptr) {
        detail::check(cmq_responder_new(address.c_str(), options, &handle_));
    }
    // Waits for a request, and answers it with the result of `respond` for its bytes, a std::optional<std::string>: an
    // empty one is no answer. An exception that `respond` throws leaves this call.
    template <class F> status serve(F &&respond, Timeout timeout) const {
        serving::Serving<std::remove_reference_t<F>> call(&respond);
        rb_status served = cmq_responder_serve(handle_, call.run, &call, timeout.nanos());
#if !defined(ROCKETBUFS_NO_EXCEPTIONS)
        if (call.thrown) std::rethrow_exception(call.thrown);
#endif
        return detail::check(served);
    }
    Key local_addr() const {
        Key key;
        detail::check(cmq_responder_local_addr(handle_, &key));
        return key;
    }
};

// A message of a Repair.
struct Repaired {
    Message message;
    std::uint64_t slot;
    std::uint64_t number;
    bool repaired; // In the place of a lost message, and out of order.
};

// A queue that recovers lost messages; both ends are such queues.
class Repair : public detail::Handle<cmq_repair, cmq_repair_free> {
public:
    explicit Repair(const std::string &address, const cmq_repair_options *repairs = nullptr, const cmq_options *options = nullptr) {
        detail::check(cmq_repair_new(address.c_str(), options, repairs, &handle_));
    }
    // Queues a message about `slot`. False if too many bytes wait to be sent, or too many keys are remembered.
    status push(const cmq_key &key, std::uint64_t slot, Bytes message) const {
        return detail::check(cmq_repair_push(handle_, &key, slot, message.data, message.size));
    }
    // Tells the receiver how many messages there are, when no further one follows for a while.
    status notify_end(const cmq_key &key) const { return detail::check(cmq_repair_notify_end(handle_, &key)); }
    // Messages that are missing now, and those that can no longer be recovered.
    std::pair<std::uint64_t, std::uint64_t> counts() const {
        std::pair<std::uint64_t, std::uint64_t> counts{};
        detail::check(cmq_repair_counts(handle_, &counts.first, &counts.second));
        return counts;
    }
    // The next message. Lost ones are requested and sent again inside this call, so senders call it too.
    std::optional<Repaired> pop(Timeout timeout) const {
        cmq_repaired got;
        if (!detail::check(cmq_repair_pop(handle_, &got, timeout.nanos()))) return std::nullopt;
        return Repaired{Message(got.message), got.slot, got.number, got.repaired};
    }
    Key local_addr() const {
        Key key;
        detail::check(cmq_repair_local_addr(handle_, &key));
        return key;
    }
};

// The paper's name.
inline Queue new_rq(const std::string &address, const cmq_options *options = nullptr) { return Queue(address, options); }

} // namespace cmq

#endif
