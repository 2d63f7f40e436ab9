// RocketStreams (RBLive's library) for C. docs/RBLIVE.md is the guide.
//
// Calls return 0 for success and -1 for an error, of which rs_last_error() has the text. NULL is an error wherever a pointer is
// taken. A handle that was freed must not be used again. Callbacks run on worker threads, one call of a callback at a time, and must
// not wait, throw or leave by longjmp.
//
// Generated from bindings/rblive-c: UPDATE=1 cargo test -p rocketbufs-c --test suite header writes it.

#ifndef ROCKETSTREAMS_H
#define ROCKETSTREAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A one-shot chunk of a stream's buffer.
typedef struct rs_chunk rs_chunk;

// A node: its streams, connections and threads.
typedef struct rs_manager rs_manager;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The text of this thread's last error, at most 1,023 bytes: always at the same place for a thread, until the thread has ended.
const char *rs_last_error(void);

// Starts a node from a configuration file.
//
// # Safety
// `config_file` is a text that ends with 0, `manager` points at memory for a pointer.
int rs_manager_new(const char *config_file, struct rs_manager **manager);

// Ends a node: its connections and threads. NULL is allowed. A callback must not call this. When the call has returned, no callback
// begins; free what callbacks use after that.
//
// # Safety
// The manager is not used again, and no other thread uses it.
void rs_manager_free(struct rs_manager *manager);

// Creates a stream and gives its id, which is unique across nodes.
//
// # Safety
// `name` is a text that ends with 0, `id` points at memory for a number.
int rs_create_stream(const struct rs_manager *manager, const char *name, uint64_t *id);

// Ends a stream that was created here.
//
// # Safety
// The manager is live.
int rs_destroy_stream(const struct rs_manager *manager, uint64_t id);

// Lets a node, by its number in the configuration, have a stream.
//
// # Safety
// The manager is live.
int rs_set_outbound(const struct rs_manager *manager, uint16_t node, uint64_t id);

// Takes a stream away from a node.
//
// # Safety
// The manager is live.
int rs_remove_outbound(const struct rs_manager *manager, uint16_t node, uint64_t id);

// Gives a one-shot chunk of `size` bytes. Never waits. The application owns the chunk until it disseminates or frees it.
//
// # Safety
// The manager is live, `chunk` points at memory for a pointer.
int rs_allocate_chunk(const struct rs_manager *manager,
                      uint64_t id,
                      size_t size,
                      struct rs_chunk **chunk);

// The memory of a chunk. NULL for NULL.
//
// # Safety
// The chunk is live, and no other thread uses it.
void *rs_chunk_data(struct rs_chunk *chunk);

// The bytes of a chunk. 0 for NULL.
//
// # Safety
// The chunk is live.
size_t rs_chunk_size(const struct rs_chunk *chunk);

// Frees a chunk that is not disseminated. NULL is allowed. Only the newest open chunk of a stream can be given back so.
//
// # Safety
// The chunk is not used again.
int rs_chunk_free(const struct rs_manager *manager, struct rs_chunk *chunk);

// Disseminates the first `size` bytes of a chunk. Returns at once. The chunk is freed, also if the call fails. With a context that
// is not NULL, the outbound callback gets it when every node has the chunk.
//
// # Safety
// The manager is live, the chunk is not used again.
int rs_disseminate_chunk(const struct rs_manager *manager,
                         struct rs_chunk *chunk,
                         size_t size,
                         void *context);

// Sets the callback for chunks that are at every node of their stream.
//
// # Safety
// The manager is live; `user` may be passed to other threads.
int rs_outbound_callback(const struct rs_manager *manager,
                         void (*callback)(void *user, uint64_t id, void *context),
                         void *user);

// Sets the callback for chunks that arrive. `data` lies in the stream's buffer and stays mapped until the application returns it with
// `rs_data_consumed`. New data overwrites it nevertheless: check with `rs_data_intact` after the bytes were used.
//
// # Safety
// The manager is live; `user` may be passed to other threads.
int rs_inbound_callback(const struct rs_manager *manager,
                        void (*callback)(void *user, uint64_t id, const void *data, size_t size),
                        void *user);

// Whether received data was not overwritten so far. Ask after the bytes were used. False also for data that was returned.
//
// # Safety
// The manager is live.
bool rs_data_intact(const struct rs_manager *manager,
                    uint64_t id,
                    const void *data);

// Returns the oldest `size` bytes of a stream's received data, in whole chunks. The memory of these chunks may be
// unmapped.
//
// # Safety
// The manager is live.
int rs_data_consumed(const struct rs_manager *manager, uint64_t id, size_t size);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ROCKETSTREAMS_H */
