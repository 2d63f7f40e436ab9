// RocketBufs, RBMQ's client and CMQ for C and C++. docs/C.md is the guide.
//
// Handles (rb_context, rb_rout, ...) are pointers that only the library looks behind. NULL, a handle of another kind, and a
// handle that was freed are errors of every call that takes one, and never undefined behaviour.
//
// Calls return an rb_status: 0 for success, above 0 for an outcome that is no failure (RB_TIMED_OUT, RB_FULL), below 0 for an
// error. rb_last_error() has the text of this thread's last error.
//
// Time-outs are nanoseconds (5 * RB_MS): below 0 is no limit (RB_NO_LIMIT), 0 does not wait (RB_NO_WAIT).
//
// A callback runs on a worker thread, one call of a callback at a time. The callback must not wait, and must not leave by
// longjmp or by an exception. No call takes NULL as a callback: rb_..._unset_..._cb removes one.
//
// Order of this file: constants, types, functions. A name begins with its part: rb_ (RocketBufs), rbmq_ (the broker's client) or
// cmq_ (the message queue), and then the handle that the function takes, so that a search for rb_rout_ finds all of an rOut.
//
// Generated from bindings/c: UPDATE=1 cargo test -p rocketbufs-c --test suite header writes it.

#ifndef ROCKETBUFS_H
#define ROCKETBUFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

// No limit, as a time-out.
#define RB_NO_LIMIT INT64_C(-1)
// A call that does not wait, as a time-out.
#define RB_NO_WAIT INT64_C(0)
// A microsecond, a millisecond and a second in nanoseconds, for time-outs: 5 * RB_MS.
#define RB_US INT64_C(1000)
#define RB_MS INT64_C(1000000)
#define RB_S INT64_C(1000000000)

// The longest name of a subscription, in bytes.
#define RB_MAX_NAME_BYTES 255

// Large batches, at most 5 ms old.
#define CMQ_PRESET_DEFAULT 0

// The paper's settings: batches of 512 bytes or 200 ms.
#define CMQ_PRESET_PAPER 1

// Every message is sent at once.
#define CMQ_PRESET_IMMEDIATE 2

// A lost message is sent again, while it is in the history of its key.
#define CMQ_REPAIR_REPLAY 0

// The newest message of its slot is sent in place of a lost one. Older ones are not sent again.
#define CMQ_REPAIR_REPLACE 1

// The application closed the connection.
#define RB_CLOSE_NORMAL 0

// The ends have no protocol version in common.
#define RB_CLOSE_VERSION 1

// The other end violated the protocol.
#define RB_CLOSE_PROTOCOL 2

// The application rejected the connection.
#define RB_CLOSE_NOT_ACCEPTED 3

// The other end was silent or too slow.
#define RB_CLOSE_TIMEOUT 4

// A limit was reached.
#define RB_CLOSE_LIMIT 5

// The process shuts down.
#define RB_CLOSE_SHUTTING_DOWN 6

// Another connection took over.
#define RB_CLOSE_TAKEN_OVER 7

// The subscription holds the writer back (with flow control only). Nothing is lost.
#define RB_POLICY_BLOCK 0

// At a lag of `max_lag_bytes` the subscription skips to the newest complete delivery, and is told what it lost.
#define RB_POLICY_DROP 1

// At a lag of `max_lag_bytes` the connection is closed, with the reason.
#define RB_POLICY_DISCONNECT 2

// Without flow control: the writer never waits; a receiver that was lapped is told by how much.
#define RB_POLICY_OVERWRITE 3

// At the end of the last complete delivery.
#define RB_START_NEWEST 0

// At the oldest delivery that is still retained.
#define RB_START_OLDEST 1

// At the last complete delivery.
#define RB_START_LAST 2

// `start_ago_ms` milliseconds ago, by the sender's clock.
#define RB_START_AGO 3

// With the first byte that the log ever had at the sender. Bytes that are gone are reported as lost.
#define RB_START_FIRST 4

// At `start_position` of the log `start_epoch`.
#define RB_START_POSITION 5

// Data has landed when it is in this process's memory.
#define RB_CONFIRM_ON_ARRIVAL 0

// Data has landed when the application releases it.
#define RB_CONFIRM_ON_CONSUME 1

// In the memory of every subscriber.
#define RB_LEVEL_LANDED 0

// In the memory of every receiver at the end of a chain of splices.
#define RB_LEVEL_DELIVERED 1

// Released by the application of every such receiver.
#define RB_LEVEL_CONSUMED 2

// The records are in the broker's memory. They are lost if the broker dies.
#define RBMQ_LEVEL_ACCEPTED 0

// The records are in the memory of every subscriber that had a place when the broker accepted them.
#define RBMQ_LEVEL_DELIVERED 1

// Every such subscriber has consumed the records.
#define RBMQ_LEVEL_CONSUMED 2

// The records are in the file of a topic that the broker keeps (`keep = true`), and survive the death of the broker. Other topics fail
// with `RB_ERR_REFUSED`. This level says nothing about subscribers.
#define RBMQ_LEVEL_STORED 3

// The records are on the disk (`fdatasync`) of a topic that the broker keeps, and survive a crash of its machine.
#define RBMQ_LEVEL_SYNCED 4

// The records are in the archive below the disk of a topic that has one, and survive the broker's machine. Other topics fail with
// `RB_ERR_REFUSED`.
#define RBMQ_LEVEL_ARCHIVED 5

// A group begins anew with the oldest message that is kept.
#define RBMQ_GROUP_OLDEST 0

// A group begins anew with the next message that is published.
#define RBMQ_GROUP_NEWEST 1

// A group begins anew with the first message at a position of the log, or behind it.
#define RBMQ_GROUP_POSITION 2

// Publishers do not wait, or wait for a slow subscriber.
#define RBMQ_BLOCKED_BY_NOTHING 0

// Fewer subscribers than the publisher requires.
#define RBMQ_BLOCKED_BY_TOO_FEW_SUBSCRIBERS 1

// The table of a merged topic is full.
#define RBMQ_BLOCKED_BY_MERGE_TABLE 2

// A reason that this version of the library cannot describe.
#define RBMQ_BLOCKED_BY_OTHER 3

// The disk of a kept topic has no room or fails.
#define RBMQ_BLOCKED_BY_DISK 4

// The broker has requested the buffer, and the publisher has not answered.
#define RBMQ_STAGE_OPENING 0

// The log may grow.
#define RBMQ_STAGE_LIVE 1

// The publisher closed the topic. The buffer is still readable.
#define RBMQ_STAGE_CLOSED 2

// The publisher was offline for too long. Complete deliveries are still readable.
#define RBMQ_STAGE_GONE 3

// Publishers wait for the subscriber, and nothing is lost.
#define RBMQ_SLOW_BLOCK 0

// The subscriber skips messages, and learns how many bytes it lost.
#define RBMQ_SLOW_DROP 1

// The broker ends the subscription.
#define RBMQ_SLOW_DISCONNECT 2

// With the next published message.
#define RBMQ_START_NEWEST 0

// With the oldest message that the broker still has.
#define RBMQ_START_OLDEST 1

// With the last delivery: a subscriber that joins late gets the last value.
#define RBMQ_START_LAST 2

// With the first message that reached the broker at `unix_ns` or later.
#define RBMQ_START_TIME 3

// At `position` of any log.
#define RBMQ_START_POSITION 4

// At the positions of the logs in `positions`; other logs begin with their oldest message.
#define RBMQ_START_POSITIONS 5

// Records, each a message with its length.
#define RBMQ_FRAMING_RECORDS 0

// Plain bytes, a stream without boundaries.
#define RBMQ_FRAMING_RAW 1

// Records of many publishers; only brokers write such topics.
#define RBMQ_FRAMING_MERGED 2

// The result of a call: 0 if it did what it says, above 0 if nothing went wrong and nothing was done (`RB_TIMED_OUT`,
// `RB_FULL`), below 0 if the call failed. `rb_strerror` describes a code, and `rb_last_error` what happened.
enum rb_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // The call succeeded.
    RB_OK = 0,
    // An outcome: nothing came, or there was no room, within the time-out.
    RB_TIMED_OUT = 1,
    // An outcome: there is no room now. Try again later, or with a time-out.
    RB_FULL = 2,
    // An outcome: there is nothing more.
    RB_END = 3,
    // A pointer that must point at something is NULL.
    RB_ERR_NULL = -1,
    // A pointer is not a handle of the kind that the call takes.
    RB_ERR_HANDLE = -2,
    // The handle was freed.
    RB_ERR_FREED = -3,
    // The handle belongs to the process that this one was forked from.
    RB_ERR_FORKED = -4,
    // Another call uses an object that one thread may use at a time, or a batch of it is open.
    RB_ERR_BUSY = -5,
    // An argument is out of its range: a size, an enumeration, text that is not UTF-8, the size of a structure.
    RB_ERR_ARGUMENT = -6,
    // A bug in this library. The call had no effect, or a part of its effect.
    RB_ERR_BUG = -7,
    // A call that waits was made inside a callback, which must not wait.
    RB_ERR_CALLED_FROM_CALLBACK = -8,
    // The system refuses a thread, a descriptor or random numbers.
    RB_ERR_SYSTEM = -9,
    // The configuration is not valid; the text names the setting.
    RB_ERR_CONFIG = -10,
    // The memory for a ring is missing, or a limit of the configuration is reached.
    RB_ERR_MEMORY = -11,
    // The transport cannot be set up.
    RB_ERR_TRANSPORT = -12,
    // The buffer was destroyed, or the object that the call waits for ended.
    RB_ERR_CLOSED = -13,
    // The connection is down.
    RB_ERR_DOWN = -14,
    // The other end refuses.
    RB_ERR_REFUSED = -15,
    // Another socket listens on the address.
    RB_ERR_ADDRESS_IN_USE = -16,
    // The address is not valid, or the system refuses it.
    RB_ERR_ADDRESS = -17,
    // The id is taken.
    RB_ERR_EXISTS = -18,
    // No buffer has this id.
    RB_ERR_NO_SUCH_BUFFER = -19,
    // The buffer has no subscription here, or the subscription was not answered yet.
    RB_ERR_NOT_SUBSCRIBED = -20,
    // The buffer or the subscription is spliced.
    RB_ERR_SPLICED = -21,
    // The subscription of the buffer was not answered yet.
    RB_ERR_NOT_ANSWERED = -22,
    // Another owner has the writer of the buffer.
    RB_ERR_WRITER_TAKEN = -23,
    // Another owner has the reader of the rIn.
    RB_ERR_READER_TAKEN = -24,
    // Something is larger than it may be.
    RB_ERR_TOO_LARGE = -25,
    // A number of things has reached its limit.
    RB_ERR_TOO_MANY = -26,
    // More was released than was received.
    RB_ERR_TOO_MUCH = -27,
    // Only the newest open segment may be delivered short or given back.
    RB_ERR_SHORT_DELIVER = -28,
    // The segment belongs to another buffer, or its buffer's writer was taken.
    RB_ERR_FOREIGN = -29,
    // A segment was freed undelivered while newer ones are open: the log cannot go on.
    RB_ERR_SEGMENT_LOST = -30,
    // A segment or a batch of no bytes was asked for.
    RB_ERR_EMPTY = -31,
    // The writer of an overwritable buffer was faster: the bytes are not valid.
    RB_ERR_LAPPED = -32,
    // The subscription shares a budget, which the call does not allow.
    RB_ERR_BUDGETED = -33,
    // A name is not valid.
    RB_ERR_NAME = -34,
    // Messages are lost. The next call continues.
    RB_ERR_LOST = -35,
    // A publisher died without closing its topic. The next call continues.
    RB_ERR_GONE = -36,
    // Received bytes are malformed, and are skipped. The next call continues.
    RB_ERR_MALFORMED = -37,
    // Another client took over the place of this one. Every later call fails too.
    RB_ERR_TAKEN_OVER = -38,
    // The topic was opened for records, and the call is for raw bytes, or the other way round.
    RB_ERR_WRONG_FRAMING = -39,
    // The topic has fewer subscribers than required.
    RB_ERR_TOO_FEW = -40,
    // The position was not published yet.
    RB_ERR_NOT_PUBLISHED = -41,
    // The answer of the other end does not fit the question.
    RB_ERR_PROTOCOL = -42,
    // Any other reason; the text says it.
    RB_ERR_OTHER = -43,
    // Messages of CMQ's reliable mode were given up. They may have arrived all the same.
    RB_ERR_UNDELIVERED = -44,
    // Another thread ended the wait. Nothing is lost, and the next call continues.
    RB_ERR_INTERRUPTED = -45,
    // Acknowledgements of a group's messages do not count: the messages come again. The next call continues.
    RB_ERR_IN_VAIN = -46,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum rb_status rb_status;
#else
typedef int32_t rb_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The kinds of events of a queue. More kinds may be added: ignore those that you do not know.
enum cmq_event_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // The first datagram of a sender's stream arrived: `count` messages went before it, `restarted`.
    CMQ_EVENT_JOINED = 1,
    // `count` messages were lost, from number `first` on.
    CMQ_EVENT_LOST = 2,
    // `count` messages arrived after their loss was reported, and were dropped.
    CMQ_EVENT_LATE = 3,
    // `count` messages arrived a second time, and were dropped.
    CMQ_EVENT_DUPLICATED = 4,
    // `count` messages arrived after messages that were sent later.
    CMQ_EVENT_REORDERED = 5,
    // The sender closed its stream of `count` messages, and each was received or reported; or its link of the reliable mode.
    CMQ_EVENT_CLOSED = 6,
    // The stream was evicted because there are too many.
    CMQ_EVENT_EVICTED = 7,
    // A mailbox (`peer.id`) was full: `count` messages were dropped.
    CMQ_EVENT_OVERFLOWED = 8,
    // A datagram does not follow the protocol.
    CMQ_EVENT_MALFORMED = 9,
    // The system did not send `count` messages to `peer`: `errno_value`.
    CMQ_EVENT_SEND_FAILED = 10,
    // An event that this version of the library cannot describe.
    CMQ_EVENT_OTHER = 11,
    // A handshake with the queue at `peer` succeeded, whose public key is `key`: its datagrams are encrypted and authentic
    // from here on. `renewed` if a session with it gets new keys.
    CMQ_EVENT_SECURED = 12,
    // A handshake with the queue at `peer` failed (`why`), and the `count` messages that waited for it are lost.
    CMQ_EVENT_HANDSHAKE_FAILED = 13,
    // A queue with a key refused a datagram (`why`). `peer` is the source address, which may be forged; `key` is that of a stranger.
    CMQ_EVENT_REFUSED = 14,
    // `count` messages of the reliable mode to `peer`, from number `first` of that key on, were given up (`why`). They may have
    // arrived all the same.
    CMQ_EVENT_UNDELIVERED = 15,
    // The receiving queue at `peer` was restarted, or has forgotten this one. Later messages of the reliable mode go to the new queue.
    CMQ_EVENT_PEER_RESTARTED = 16,
    // The queue at `peer` has a key and refuses the datagrams of this queue, since this queue has none. The report may be
    // forged.
    CMQ_EVENT_ENCRYPTION_REQUIRED = 17,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum cmq_event_kind cmq_event_kind;
#else
typedef int32_t cmq_event_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Why messages were given up (`CMQ_EVENT_UNDELIVERED`, `cmq_fate`), a handshake failed (`CMQ_EVENT_HANDSHAKE_FAILED`), or a datagram was
// refused (`CMQ_EVENT_REFUSED`). More reasons may be added.
enum cmq_reason
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // No reason: the message was not given up.
    CMQ_REASON_NONE = 0,
    // The other queue did not answer in time: it is down or cannot be reached; or it has the reliable mode off; or it has another key,
    // another shared secret or none, or does not allow this queue.
    CMQ_REASON_NO_ANSWER = 1,
    // Given up: the receiver answers, and has had no room for the messages for too long.
    CMQ_REASON_FULL = 2,
    // Given up: the receiver was restarted, or has forgotten the sender.
    CMQ_REASON_RESTARTED = 3,
    // No handshake: the public key of the queue at the address is not known. Set `peers` or `default_peer`.
    CMQ_REASON_NO_KEY = 4,
    // No handshake: the public key of the queue at the address is no key.
    CMQ_REASON_BAD_KEY = 5,
    // No handshake: too many run at a time. Push the messages again later.
    CMQ_REASON_BUSY = 6,
    // Refused: the sender does not encrypt.
    CMQ_REASON_PLAIN = 7,
    // Refused: the datagram is forged or damaged, or meant for another key.
    CMQ_REASON_FORGED = 8,
    // Refused: the datagram has arrived before, or is too old to tell.
    CMQ_REASON_REPLAYED = 9,
    // Refused: the session is not known. The sender begins another one.
    CMQ_REASON_UNKNOWN_SESSION = 10,
    // Refused: the key of the sender is not allowed.
    CMQ_REASON_STRANGER = 11,
    // Refused: too many handshakes of the sender's host are incomplete.
    CMQ_REASON_CROWDED = 12,
    // A reason that this version of the library cannot describe.
    CMQ_REASON_OTHER = 13,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum cmq_reason cmq_reason;
#else
typedef int32_t cmq_reason;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The outcome of a message of the reliable mode.
enum cmq_message_fate
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // The key has no message with this number, or is forgotten.
    CMQ_FATE_UNKNOWN = 0,
    // The message is on its way.
    CMQ_FATE_PENDING = 1,
    // The receiving queue has the message, and all earlier ones of its key.
    CMQ_FATE_CONFIRMED = 2,
    // The message was given up. The message may have arrived all the same.
    CMQ_FATE_FAILED = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum cmq_message_fate cmq_message_fate;
#else
typedef int32_t cmq_message_fate;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Which end brought a connection down.
enum rb_down_by
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // This end closed it.
    RB_DOWN_BY_LOCAL = 0,
    // The peer closed it.
    RB_DOWN_BY_PEER = 1,
    // The network, the transport or the peer's machine failed, or the connection could not be made.
    RB_DOWN_BY_TRANSPORT = 2,
    // The connection could not be begun, or was used after it was down.
    RB_DOWN_BY_NOT_STARTED = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum rb_down_by rb_down_by;
#else
typedef int32_t rb_down_by;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The kinds of events of a connection: up at most once, then down once.
enum rb_conn_event_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // Both ends have accepted the connection.
    RB_CONN_UP = 1,
    // The connection is down and does not come back.
    RB_CONN_DOWN = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum rb_conn_event_kind rb_conn_event_kind;
#else
typedef int32_t rb_conn_event_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The kinds of events of a publisher. More kinds may be added: ignore those that you do not know.
enum rbmq_publisher_event_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // The connection is lost; the publisher reconnects by itself: `text`.
    RBMQ_PUBLISHER_DISCONNECTED = 1,
    // The connection is back.
    RBMQ_PUBLISHER_RECONNECTED = 2,
    // The broker refuses a topic, possibly after a reconnect: `topic`, `text`.
    RBMQ_PUBLISHER_TOPIC_REFUSED = 3,
    // The number of a topic's subscribers changed: `topic`, `count`.
    RBMQ_PUBLISHER_SUBSCRIBERS = 4,
    // A topic has room again, after a call with `RB_TIMED_OUT`: `topic`.
    RBMQ_PUBLISHER_ROOM = 5,
    // `count` events before the next one were dropped, since they were not taken in time.
    RBMQ_PUBLISHER_MISSED = 6,
    // An event that this version of the library cannot describe.
    RBMQ_PUBLISHER_OTHER = 7,
    // The broker's disk takes nothing of a kept topic, since it is full or fails: `topic`, `text`. The broker tries again every second.
    RBMQ_PUBLISHER_DISK_FAILED = 8,
    // The broker's disk works again: `topic`.
    RBMQ_PUBLISHER_DISK_RECOVERED = 9,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum rbmq_publisher_event_kind rbmq_publisher_event_kind;
#else
typedef int32_t rbmq_publisher_event_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The kinds of batches and events that a subscriber gets. More kinds may be added: ignore those that you do not know.
enum rbmq_event_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // Messages: `batch`, as of `rbmq_subscriber_next_batch`.
    RBMQ_EVENT_BATCH = 1,
    // The subscription of a buffer is active: `topic`, `epoch`, `from` (the first position that will come).
    RBMQ_EVENT_JOINED = 2,
    // Messages are lost: `topic`, `epoch`, `from`, `to`.
    RBMQ_EVENT_LOST = 3,
    // The publisher closed the topic: `topic`, `epoch`, `to` (the end of its log).
    RBMQ_EVENT_CLOSED = 4,
    // The publisher died, or was offline for too long: `topic`, `epoch`, `to` (the end of the last complete delivery).
    RBMQ_EVENT_GONE = 5,
    // The broker refused a request or ended a subscription: `topic` (NULL if it is about several), `text`.
    RBMQ_EVENT_REFUSED = 6,
    // The broker limits an option: `text`.
    RBMQ_EVENT_OPTION_CLAMPED = 7,
    // The connection is lost; the subscriber reconnects by itself: `text`.
    RBMQ_EVENT_DISCONNECTED = 8,
    // The connection is back.
    RBMQ_EVENT_RECONNECTED = 9,
    // An event that this version of the library cannot describe.
    RBMQ_EVENT_OTHER = 10,
    // A merged topic has another log after a restart of its broker, from which messages may be missing: `topic`, `epoch`.
    RBMQ_EVENT_LOG_REPLACED = 11,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum rbmq_event_kind rbmq_event_kind;
#else
typedef int32_t rbmq_event_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The kinds of data and events that an rIn receives. More kinds may be added: ignore those that you do not know, and free
// their view.
enum rb_in_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // One or several whole deliveries: `data`. The caller consumes or frees `data.view`.
    RB_IN_DATA = 1,
    // A subscription was accepted: `bid`, `epoch`, `from` (the first position that is sent).
    RB_IN_SUBSCRIBED = 2,
    // The sender has no place for a durable subscription, whose data arrives all the same: `bid`.
    RB_IN_NOT_DURABLE = 3,
    // A range is lost: `bid`, `from`, `to`.
    RB_IN_LOST = 4,
    // The writer destroyed the buffer; the log is complete: `bid`, `to` (its end).
    RB_IN_CLOSED = 5,
    // The writer does not return: `bid`, `to` (the end of the last complete delivery).
    RB_IN_GONE = 6,
    // The writer was restarted and has another log; subscribe again to receive it: `bid`, `epoch`.
    RB_IN_RESTARTED = 7,
    // The sender refused or ended the subscription: `bid`, `status` (`RB_ERR_…`), `text`.
    RB_IN_REFUSED = 8,
    // A control message of the peer: `message`, `message_len`. Only while there is no callback for it.
    RB_IN_CONTROL = 9,
    // The connection is down: `down`. `rb_rin_resume` continues over another one.
    RB_IN_CONN_DOWN = 10,
    // An event that this version of the library cannot describe.
    RB_IN_OTHER = 11,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum rb_in_kind rb_in_kind;
#else
typedef int32_t rb_in_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The kinds of events of an rOut. More kinds may be added: ignore those that you do not know.
enum rb_out_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // A peer subscribed: `conn`, `bid`, `name`, `from` (the first position that is sent), `resumed`.
    RB_OUT_SUBSCRIBED = 1,
    // A subscription ended: `conn`, `bid`, `name`, `text` (why).
    RB_OUT_UNSUBSCRIBED = 2,
    // A subscriber does not get a range: `conn`, `bid`, `from`, `to`, `policy`.
    RB_OUT_DROPPED = 3,
    // A slow subscriber was disconnected: `conn`, `bid`, `policy`, `count` (its lag in bytes).
    RB_OUT_TOO_SLOW = 4,
    // The hold time of a durable subscription is over: `bid`.
    RB_OUT_DURABLE_EXPIRED = 5,
    // A connection is down: `conn`, `down`.
    RB_OUT_CONN_DOWN = 6,
    // The condition of `rb_buffer_notify_…` has become true: `bid`.
    RB_OUT_PROGRESS = 7,
    // A delivery with a context has landed at every subscriber: `bid`, `delivery`. Only while there is no data-out callback.
    RB_OUT_DATA_OUT = 8,
    // A subscriber has reported its positions: `conn`, `bid`, `progress`. Only while there is no callback for it.
    RB_OUT_SUBSCRIBER_PROGRESS = 9,
    // A control message of a peer: `conn`, `message`, `message_len`. Only while there is no callback for it.
    RB_OUT_CONTROL = 10,
    // `count` events before the next one were dropped, since they were not received in time.
    RB_OUT_MISSED = 11,
    // The log of a spliced buffer has ended, and every present subscriber has all of it: `bid`.
    RB_OUT_ENDED = 12,
    // An event that this version of the library cannot describe.
    RB_OUT_OTHER = 13,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum rb_out_kind rb_out_kind;
#else
typedef int32_t rb_out_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// A request, and its response once that has arrived. Any number of threads may use it.
typedef struct cmq_call cmq_call;

// Sends requests from a queue of its own. Any number of threads may use it.
typedef struct cmq_caller cmq_caller;

// The messages for one integer. Any number of threads may use it.
typedef struct cmq_mailbox cmq_mailbox;

// The memory of a popped message. One thread uses it at a time.
typedef struct cmq_memory cmq_memory;

// A message queue at an address. Any number of threads may use it.
typedef struct cmq_queue cmq_queue;

// A queue that recovers lost messages. Any number of threads may use it.
typedef struct cmq_repair cmq_repair;

// Answers requests that arrive at a queue of its own. Any number of threads may use it.
typedef struct cmq_responder cmq_responder;

// Bytes that the rings of many subscriptions share. Any number of threads may use it.
typedef struct rb_budget rb_budget;

// A buffer of an rOut. Any number of threads may use it.
typedef struct rb_buffer rb_buffer;

// The settings of a context. One thread uses it at a time.
typedef struct rb_config rb_config;

// A connection to a peer. Any number of threads may use it.
typedef struct rb_conn rb_conn;

// Memory, configuration and worker threads of a process. Any number of threads may use it.
typedef struct rb_context rb_context;

// An address that takes connections. Any number of threads may use it.
typedef struct rb_listener rb_listener;

// Bytes per second that any number of connections share. Any number of threads may use it.
typedef struct rb_rate_limit rb_rate_limit;

// The right to read an rIn alone. One thread uses it at a time.
typedef struct rb_reader rb_reader;

// The receiving end. Any number of threads may use it.
typedef struct rb_rin rb_rin;

// The sending end. Any number of threads may use it.
typedef struct rb_rout rb_rout;

// A free piece of a buffer, between `rb_buffer_segment` and `rb_buffer_deliver`. One thread uses it at a time.
typedef struct rb_segment rb_segment;

// A subscription of an rIn. Any number of threads may use it.
typedef struct rb_subscription rb_subscription;

// Received bytes that are held in place. One thread uses it at a time.
typedef struct rb_view rb_view;

// The right to write into a buffer alone. One thread uses it at a time.
typedef struct rb_writer rb_writer;

// Room for a message, between `rbmq_topic_claim` and `rbmq_topic_publish_segment`. One thread uses it at a time.
typedef struct rbmq_claim rbmq_claim;

// A confirmation that was begun. Any number of threads may use it.
typedef struct rbmq_confirmation rbmq_confirmation;

// A received batch that is not consumed yet. One thread uses it at a time.
typedef struct rbmq_deferred rbmq_deferred;

// A message that a worker of a group has. Any thread may use it, one at a time, also when the worker is gone.
typedef struct rbmq_group_message rbmq_group_message;

// Receives messages of a group, and reconnects by itself. One thread uses it at a time.
typedef struct rbmq_group_worker rbmq_group_worker;

// Lists, resets and deletes the groups of a broker. One thread uses it at a time.
typedef struct rbmq_groups rbmq_groups;

// Asks a broker for its state. One thread uses it at a time.
typedef struct rbmq_observer rbmq_observer;

// A connection that publishes to a broker, and reconnects by itself. Any number of threads may use it.
typedef struct rbmq_publisher rbmq_publisher;

// Publishes to the topics of a space: those of a pattern that the broker keeps in one log (`space = true` in its rule). One thread uses it at
// a time.
typedef struct rbmq_space rbmq_space;

// Receives topics from a broker, and reconnects by itself. One thread uses it at a time.
typedef struct rbmq_subscriber rbmq_subscriber;

// Publishes to one topic. One thread uses it at a time.
typedef struct rbmq_topic rbmq_topic;

// A peer that asks to subscribe.
typedef struct rb_asking {
    // The number of the connection, as `rb_conn_id` returns it.
    uint64_t conn;
    // The buffer.
    uint32_t bid;
    // The name of the subscription.
    const void *name;
    // The bytes of the name; 0: the subscription has none.
    size_t name_len;
} rb_asking;

// The policies and the owner that a peer may subscribe with.
typedef struct rb_admitted {
    // The allowed policies, besides those of `rb_buffer_set_limits`: the bit `1 << RB_POLICY_…` for each. The peer is told which
    // are allowed if it asks for another.
    uint32_t policies;
    // The owner of the subscription's name: subscriptions of different owners with the same name have nothing to do with each
    // other. Otherwise a peer that knows a name takes over the subscription and its held position.
    uint64_t owner;
} rb_admitted;

// A callback that decides whether a peer may subscribe. `asking` and `admitted` are valid until the callback returns.
// `admitted` has all policies and the owner 0, and the callback may change them. Returns whether the peer may subscribe: to a
// peer that may not, the buffer looks as if it did not exist.
typedef bool (*rb_admission_fn)(void *ctx, const struct rb_asking *asking, struct rb_admitted *admitted);

// A piece of a buffer's memory (paper 1, Listing 1, `buf_seg`).
//
// Of `rb_buffer_segment`: memory to fill, the caller's until `rb_buffer_deliver`. In a data callback: received bytes, valid
// until the callback returns. A copy of the structure is the same piece.
typedef struct rb_buf_seg {
    // The pieces of memory.
    struct iovec *vecs;
    // Their number: 1, as rings are mapped twice. 0 where other processes may write the memory while it is read (transport
    // `shm` without `shm.trust_writers`, transport `rdma`, buffers without flow control): use `rb_buf_seg_copy` there.
    int vec_count;
    // The buffer.
    uint32_t bid;
    // The position of the first byte in the log.
    uint64_t position;
    // The number of bytes.
    size_t len;
    // The handle of a segment to fill; NULL otherwise.
    struct rb_segment *segment;
    // The library's.
    const void *reserved;
} rb_buf_seg;

// The limits for options that subscriptions of a buffer ask for. Zeros allow everything:
// `rb_limits limits = {.size = sizeof limits};`
typedef struct rb_limits {
    // `sizeof(rb_limits)`.
    size_t size;
    // The allowed policies: the bit `1 << RB_POLICY_…` for each; 0: all.
    uint32_t policies;
    // The largest lag in bytes; 0: no limit.
    uint64_t max_lag_bytes;
    // The longest block time-out in nanoseconds; 0: the default, below 0: without a limit.
    int64_t block_timeout_ns;
    // The longest hold time in nanoseconds; 0: no limit but `limits.max_hold_ms`.
    int64_t max_hold_ns;
} rb_limits;

// The receivers that positions speak for.
typedef struct rb_coverage {
    // The receivers at the ends of all chains.
    uint32_t receivers;
    // Such receivers that have gone and count no more.
    uint32_t left;
    // How often such a receiver was told that it lost a range.
    uint32_t lost;
    // All of these receivers have what is confirmed from here on.
    uint64_t covered_from;
} rb_coverage;

// How far a buffer is confirmed.
typedef struct rb_confirmed_positions {
    // Everything below is in the memory of every subscriber.
    uint64_t landed;
    // Everything below is in the memory of every last receiver of a chain.
    uint64_t delivered;
    // Everything below was released by every such receiver.
    uint64_t consumed;
    // The receivers that the positions speak for.
    struct rb_coverage coverage;
    // Connected subscriptions, and durable ones that are offline. Without any, everything written counts as confirmed.
    size_t subscriptions;
} rb_confirmed_positions;

// A 128-bit name: of a log (its epoch), or of a process.
typedef struct rb_id128 {
    // The upper 64 bits.
    uint64_t high;
    // The lower 64 bits.
    uint64_t low;
} rb_id128;

// Bytes that went through.
typedef struct rb_traffic {
    // Written bytes.
    uint64_t received_bytes;
    // Bytes that landed at all present and past subscribers.
    uint64_t delivered_bytes;
    // Bytes that subscribers lost because they were too slow for their policy.
    uint64_t dropped_bytes;
} rb_traffic;

// The state of a buffer.
typedef struct rb_buffer_info {
    // The log's name.
    struct rb_id128 epoch;
    // Where this ring's part of the log begins.
    uint64_t start;
    // The end of the written bytes.
    uint64_t head;
    // The end of the last complete delivery.
    uint64_t boundary;
    // The first position that is still there.
    uint64_t tail;
    // How far the writer may write now.
    uint64_t horizon;
    // Bytes of the ring.
    uint64_t capacity_bytes;
    // Bytes of history that are kept although nobody holds them.
    uint64_t retain_bytes;
    // Bytes of the largest delivery.
    uint64_t max_delivery_bytes;
    // The number of subscriptions.
    size_t subscribers;
    // Whether the log has ended.
    bool ended;
    // The traffic of the buffer so far.
    struct rb_traffic traffic;
} rb_buffer_info;

// One subscription of a buffer, or a place that is kept for a durable one.
typedef struct rb_subscriber_info {
    // Its connection; 0 if it is offline.
    uint64_t conn;
    // Whether it is offline: its place is kept for `expires_in_ns`.
    bool offline;
    // `RB_POLICY_…`.
    uint32_t policy;
    // Where it began; 0 if it is offline.
    uint64_t start;
    // Everything below was given to the transport; 0 if it is offline.
    uint64_t sent;
    // Everything below is in its memory.
    uint64_t landed;
    // Everything below is in the memory of all receivers behind it.
    uint64_t delivered;
    // Everything below was released by its application.
    uint64_t consumed;
    // Bytes of the log that it was not yet sent; 0 if it is offline.
    uint64_t lag_bytes;
    // Bytes that it lost by its policy; 0 if it is offline.
    uint64_t dropped_bytes;
    // Whether it holds the writer, at `retains_from`.
    bool retains;
    // Where it holds the writer.
    uint64_t retains_from;
    // How long it has released nothing, in nanoseconds; 0 if it is offline.
    int64_t idle_ns;
    // How long its place is still kept, in nanoseconds, if it is offline.
    int64_t expires_in_ns;
    // The bytes of its name.
    size_t name_len;
    // Its name, with a zero behind it.
    uint8_t name[256];
} rb_subscriber_info;

// An address and an integer: of a push, the receiving queue and the mailbox there; of a pop, the sender and the mailbox that the
// message was sent to. An answer is pushed to the key that its question was popped with.
typedef struct cmq_key {
    // 4 or 6: the version of the address.
    uint8_t family;
    // The address in network order: the first 4 bytes for IPv4.
    uint8_t ip[16];
    // The port.
    uint16_t port;
    // The scope of an IPv6 address that is local to an interface.
    uint32_t scope;
    // The mailbox.
    uint32_t id;
} cmq_key;

// The public key of a queue, which its senders know.
typedef struct cmq_public_key {
    // The key.
    uint8_t bytes[32];
} cmq_public_key;

// An event of a queue.
typedef struct cmq_event {
    // The kind of the event.
    cmq_event_kind kind;
    // The sender, or the destination.
    struct cmq_key peer;
    // A number of messages.
    uint64_t count;
    // The number of the first lost message, or of the first one that was given up.
    uint64_t first;
    // Whether another run of the sender was known.
    bool restarted;
    // The system's error number.
    int32_t errno_value;
    // The reason.
    cmq_reason why;
    // The public key of the peer.
    struct cmq_public_key key;
    // Whether the session of the peer existed, and got new keys.
    bool renewed;
} cmq_event;

// Messages that were received.
typedef struct cmq_counts {
    // Messages that arrived in time, including those that a mailbox dropped as overflowed.
    uint64_t received;
    // Messages that were lost. After the sender closed, `received + lost + missed` is the number that it sent.
    uint64_t lost;
    // Messages that were sent before the first one that arrived.
    uint64_t missed;
    // Messages that arrived a second time.
    uint64_t duplicated;
    // Messages that arrived after later ones, and in time.
    uint64_t reordered;
    // Messages that arrived after they were reported as lost.
    uint64_t late;
    // Messages that a full mailbox dropped.
    uint64_t overflowed;
} cmq_counts;

// The counters of a queue with a key.
typedef struct cmq_security_counts {
    // Handshakes that succeeded.
    uint64_t handshakes;
    // Handshakes that gave a session new keys.
    uint64_t renewals;
    // Handshakes that this queue began and that got no answer.
    uint64_t failed;
    // Sessions that exist now.
    uint64_t sessions;
    // Sessions that made room for others.
    uint64_t evicted;
    // Plain datagrams, which were refused.
    uint64_t plain;
    // Datagrams that are not authentic.
    uint64_t forged;
    // Datagrams that arrived a second time, or too late to tell.
    uint64_t replayed;
    // Datagrams for sessions that are not known.
    uint64_t unknown_sessions;
    // Handshakes of queues that are not allowed.
    uint64_t strangers;
    // Handshakes that were refused because too many of the same host are incomplete.
    uint64_t crowded;
    // Handshakes that were answered with the demand for a cookie.
    uint64_t cookies;
    // Reports of peers that do not know a session.
    uint64_t resets;
    // Encrypted datagrams that do not follow the format.
    uint64_t malformed;
} cmq_security_counts;

// The counters of a queue with the reliable mode.
typedef struct cmq_reliable_counts {
    // Messages pushed.
    uint64_t pushed;
    // Messages that their receivers confirmed.
    uint64_t confirmed;
    // Messages that were given up.
    uint64_t failed;
    // Segments sent, those that were sent again included.
    uint64_t segments;
    // Segments that were sent again.
    uint64_t repeated;
    // Time-outs: nothing was acknowledged for too long. The oldest segments were sent again.
    uint64_t timeouts;
    // Segments that receivers had no room for. They leave again when there is room.
    uint64_t postponed;
    // Bytes of messages that are not confirmed now.
    uint64_t unconfirmed_bytes;
    // Messages received.
    uint64_t received;
    // Segments that arrived a second time.
    uint64_t duplicated;
    // Segments that were refused for want of memory or credit. They come again.
    uint64_t refused;
    // Acknowledgements sent.
    uint64_t acks;
    // Datagrams for links that are not known, and acknowledgements that are not true.
    uint64_t strange;
    // Bytes that wait for missing ones, or for room in a mailbox, now.
    uint64_t waiting_bytes;
    // Senders that are remembered now.
    uint64_t links;
} cmq_reliable_counts;

// The counters of a queue since it was opened.
typedef struct cmq_stats {
    // Messages handed to the network.
    uint64_t sent;
    // Datagrams sent.
    uint64_t sent_datagrams;
    // Messages that the system did not send.
    uint64_t send_failed;
    // Messages received from all senders.
    struct cmq_counts counts;
    // Datagrams received.
    uint64_t datagrams;
    // Received datagrams that do not follow the protocol.
    uint64_t malformed;
    // Incomplete messages that were dropped.
    uint64_t incomplete;
    // Events that found no room in the event queue.
    uint64_t events_dropped;
    // Bytes that wait to be sent now.
    uint64_t pending_bytes;
    // Streams that are remembered now.
    uint64_t senders;
    // Encryption. All zero without a key.
    struct cmq_security_counts security;
    // The reliable mode. All zero without it.
    struct cmq_reliable_counts reliable;
} cmq_stats;

// A stream that the queue receives: the messages of one sender to one address.
typedef struct cmq_sender {
    // The sender's address.
    struct cmq_key from;
    // The random name of the sender's run.
    uint64_t epoch;
    // The sender's number for the destination.
    uint32_t stream;
    // Whether the sender closed the stream, and each of its messages was received or reported.
    bool closed;
    // Whether the stream is a link of the reliable mode.
    bool reliable;
    // Bytes of its datagrams.
    uint64_t bytes;
    // The messages of the stream.
    struct cmq_counts counts;
} cmq_sender;

// A popped message.
typedef struct cmq_message {
    // The bytes, until `cmq_message_free`.
    const void *data;
    // The number of bytes.
    size_t len;
    // The sender, and the mailbox that the message was sent to.
    struct cmq_key from;
    // The memory of the message.
    struct cmq_memory *memory;
} cmq_message;

// A callback that says whether a message is wanted. `message` is valid until the callback returns, and is not to be freed.
typedef bool (*cmq_wanted_fn)(void *ctx, const struct cmq_message *message);

// The secret key of a queue. Erase it with `cmq_secret_key_erase` when no call needs it any more.
typedef struct cmq_secret_key {
    // The key.
    uint8_t bytes[32];
} cmq_secret_key;

// The public key of the queue at an address.
typedef struct cmq_peer {
    // The address of the queue. The mailbox counts for nothing.
    struct cmq_key at;
    // Its public key.
    struct cmq_public_key key;
} cmq_peer;

// The settings of a queue that encrypts, which docs/CMQ.md explains: its own key (`key_file` or `secret`), the keys of others, and
// limits. Zeros are defaults. Everything is copied by the call that opens the queue. `cmq_security security = {.size = sizeof
// security, .key_file = "server.key"};`
typedef struct cmq_security {
    // `sizeof(cmq_security)`.
    size_t size;
    // The file with the secret key of this queue, as `cmq keygen` writes it. Only its owner may have a right to it. NULL: `secret`.
    const char *key_file;
    // The secret key of this queue; NULL: `key_file`.
    const struct cmq_secret_key *secret;
    // The file with a secret that both ends know beside their keys; NULL: `shared_secret`.
    const char *shared_secret_file;
    // A secret that both ends know beside their keys, against an attacker who will break X25519; NULL: none, or the file's.
    const struct cmq_secret_key *shared_secret;
    // The public key of the queues at all addresses that `peers` does not have; NULL: messages to them fail.
    const struct cmq_public_key *default_peer;
    // The public keys of the queues at some addresses; NULL if there are none.
    const struct cmq_peer *peers;
    // The number of `peers`.
    size_t peer_count;
    // The public keys of the queues that may begin a session with this one, beside those of `peers` and `default_peer`; NULL if
    // there are none.
    const struct cmq_public_key *allowed;
    // The number of `allowed`. 0: every queue that knows the public key of this one may, unless `only_known` is set.
    size_t allowed_count;
    // Lets only the queues of `peers`, `default_peer` and `allowed` begin a session.
    bool only_known;
    // A session gets new keys after this time in nanoseconds; 0: 120 s. 1 s to 1 h.
    int64_t rekey_after_ns;
    // A session gets new keys after this many bytes; 0: 4 GiB. At least 64 KiB.
    uint64_t rekey_bytes;
    // How long a handshake is tried before the messages that wait for it fail, in nanoseconds; 0: 5 s. 100 ms to 60 s.
    int64_t handshake_timeout_ns;
    // Sessions that are remembered, about 2.5 KiB each; 0: 16,384.
    size_t max_sessions;
    // Handshakes that were answered and not yet completed; 0: 1,024. At least 16.
    size_t max_half_open;
} cmq_security;

// The settings of the reliable mode, which docs/CMQ.md explains. Zeros are defaults: `cmq_reliable reliable = {.size = sizeof
// reliable};`
typedef struct cmq_reliable {
    // `sizeof(cmq_reliable)`.
    size_t size;
    // Bytes that may be sent for a key before the receiver's mailbox has taken them; 0: 1 MiB. 64 KiB to 1 GiB.
    size_t window;
    // Bytes that wait for a confirmation, over all keys; 0: 64 MiB.
    size_t send_bytes;
    // Bytes that a receiver keeps because earlier ones are missing, or a mailbox is full; 0: 64 MiB. At least `window`.
    // A host may have eight times what is then free, or one window.
    size_t receive_bytes;
    // A key whose messages were not confirmed for this long gives them up, in nanoseconds; 0: 30 s. 100 ms to 1 h.
    int64_t give_up_ns;
    // A receiver forgets a sender that is silent for this long, in nanoseconds; 0: 10 min. 3 s to 1 day, and at least three times
    // `give_up_ns`.
    int64_t idle_ns;
    // Keys that are sent to, and keys of senders that are received for, about 300 bytes each; 0: 65,536.
    size_t max_keys;
    // Senders that are remembered, about 1 KiB each; 0: 16,384.
    size_t max_links;
} cmq_reliable;

// The settings of a queue, which docs/CMQ.md explains. Zeros are those of the preset: `cmq_options options = {.size = sizeof
// options};`
typedef struct cmq_options {
    // `sizeof(cmq_options)`.
    size_t size;
    // `CMQ_PRESET_…`: the meaning of zeros below.
    uint32_t preset;
    // Bytes at which a batch leaves.
    size_t qthresh;
    // Messages at which a batch leaves; `SIZE_MAX`: no limit.
    size_t qmessages;
    // The age in nanoseconds at which a batch leaves.
    int64_t timeout_ns;
    // Does not send pending messages when a thread begins to wait for a message.
    bool no_flush_on_wait;
    // How long a thread that waits polls the socket before it sleeps, in nanoseconds.
    int64_t spin_ns;
    // Bytes that may wait to be sent.
    size_t pending_bytes;
    // Messages that each mailbox may hold.
    size_t mailbox_messages;
    // Bytes that each mailbox may hold.
    size_t mailbox_bytes;
    // A full mailbox drops the message that has waited longest, and not the arriving one.
    bool drop_oldest;
    // Messages are popped as they arrive, and not in the order in which they were pushed.
    bool unordered;
    // Whether `wait_ns` is set.
    bool has_wait;
    // The longest time in nanoseconds in which a missing message may still arrive.
    int64_t wait_ns;
    // The datagrams that may arrive before it.
    size_t window;
    // Memory for messages that arrived before a missing one.
    size_t reorder_bytes;
    // Refuses messages that do not fit into a datagram, instead of sending them in fragments.
    bool reject_oversize;
    // Sends a parity fragment for each 16 or fewer fragments.
    bool parity_fragments;
    // The largest message in bytes.
    size_t max_message;
    // Memory for incomplete messages.
    size_t fragment_bytes;
    // How long a message may stay incomplete, in nanoseconds.
    int64_t fragment_timeout_ns;
    // The largest datagram in bytes; 0: the path's.
    size_t max_datagram;
    // Sends the datagrams of a batch with `sendmmsg`, and does not let the kernel cut it.
    bool no_segmentation_offload;
    // Streams of senders that are remembered.
    size_t max_senders;
    // Destination addresses that are remembered.
    size_t max_destinations;
    // Events that wait to be read.
    size_t max_events;
    // The socket's receive buffer in bytes.
    size_t receive_buffer;
    // The socket's send buffer in bytes.
    size_t send_buffer;
    // Lets several sockets share the address, as receivers of one multicast group on one machine do.
    bool reuse_address;
    // Encrypts and authenticates every datagram; NULL: the queue sends and takes plain datagrams only.
    const struct cmq_security *security;
    // Turns the reliable mode on (`cmq_push_reliable`); NULL: it is off.
    const struct cmq_reliable *reliable;
} cmq_options;

// The settings of a queue that recovers lost messages. Zeros are defaults: `cmq_repair_options options = {.size = sizeof options};`
typedef struct cmq_repair_options {
    // `sizeof(cmq_repair_options)`.
    size_t size;
    // The replacement of a lost message: `CMQ_REPAIR_…`.
    uint32_t policy;
    // The messages in the history of each key, or the slots that are kept for each key; 0: 1,024.
    size_t kept;
    // How often one message is sent again; 0: 3.
    uint32_t max_repairs;
    // How long a receiver waits for an answer before it asks the same sender again, in nanoseconds; 0: 100 ms.
    int64_t request_interval_ns;
    // Keys sent to, and senders received from, that are remembered; 0: 4,096.
    size_t max_peers;
} cmq_repair_options;

// A message of a queue that recovers lost ones.
typedef struct cmq_repaired {
    // The message.
    struct cmq_message message;
    // The slot: the subject of the message.
    uint64_t slot;
    // The number of the message, among those of this sender for this key.
    uint64_t number;
    // Whether the message takes the place of a lost one, and so is out of order.
    bool repaired;
} cmq_repaired;

// The settings of a caller. Zeros are defaults: `cmq_call_options options = {.size = sizeof options};`
typedef struct cmq_call_options {
    // `sizeof(cmq_call_options)`.
    size_t size;
    // How long an attempt waits for the response, in nanoseconds; 0: 500 ms.
    int64_t timeout_ns;
    // How often a request is sent before the call is lost; 0: 3.
    uint32_t max_attempts;
    // Bytes of the largest response; 0: 64. Each request is padded by as much, so that nobody can use a responder to send an
    // address more than it sent.
    size_t max_response_bytes;
    // Calls that may be outstanding; 0: 65,536.
    size_t max_outstanding;
} cmq_call_options;

// A callback that answers a request: it lets `*response` point at the response, which is copied when the callback has returned, and
// returns true; or it returns false, and there is no response. `request` is valid until the callback returns.
typedef bool (*cmq_respond_fn)(void *ctx, const struct cmq_message *request, struct iovec *response);

// Why a connection is down.
typedef struct rb_down {
    // Which end brought it down.
    rb_down_by by;
    // `RB_CLOSE_…` of an orderly close; -1 otherwise.
    int32_t code;
    // The reason, for people. Valid until this thread's next call that receives something.
    const char *text;
} rb_down;

// An event of a connection.
typedef struct rb_conn_event {
    // The kind of the event.
    rb_conn_event_kind kind;
    // With `RB_CONN_DOWN`: why.
    struct rb_down down;
} rb_conn_event;

// A callback for new connections. `conn` is the callback's: it frees the handle with `rb_conn_free`, now or later.
typedef void (*rb_conn_fn)(void *ctx, struct rb_conn *conn);

// A callback for connections that ended before they could be offered: `peer` is their address, `reason` a word (`protocol`,
// `version`, `silent`, `left`, `tls`, `limit`), `why` a text for people. All three are valid until the callback returns.
typedef void (*rb_foreign_conn_fn)(void *ctx, const char *peer, const char *reason, const char *why);

// The facts that the transport has verified about the other end of a connection. Nothing of it is the other end's own word.
typedef struct rb_peer_identity {
    // Whether bytes on the way are encrypted and authenticated (TLS).
    bool encrypted;
    // Whether the other end is a process of this machine that the kernel has named: `pid`, `uid` and `gid`.
    bool has_process;
    // The process, as it connected or listened. The number may be another process's by now. 0: outside of this pid namespace.
    uint32_t pid;
    // The effective user of the process.
    uint32_t uid;
    // The effective group of the process.
    uint32_t gid;
    // The bytes of the other end's certificate, which `rb_conn_peer_certificate` copies; 0 if the other end presented none.
    size_t certificate_len;
} rb_peer_identity;

// A limit and what it has counted.
typedef struct rb_rate_limit_info {
    // Bytes per second; 0: no limit.
    uint64_t bytes_per_second;
    // The bytes that may go at once after a pause.
    uint64_t burst_bytes;
    // Bytes that counted for the limit since it was made.
    uint64_t bytes;
    // How long anything was delayed, in nanoseconds. A present delay is in it from its beginning, up to its expected end.
    int64_t delayed_ns;
    // Whether a connection has the limit.
    bool in_use;
} rb_rate_limit_info;

// A property of a record. Texts are UTF-8, without a zero at their end.
typedef struct rbmq_property {
    // The key, which may come several times.
    const char *key;
    // The bytes of the key.
    size_t key_len;
    // The value.
    const char *value;
    // The bytes of the value.
    size_t value_len;
} rbmq_property;

// What a record says about its content, to be published with it, or as `rbmq_attributes_read` reads it. NULL, zero and false: the record does
// not say it. Texts are UTF-8, without a zero at their end. `rbmq_attributes attributes = {.size = sizeof attributes};`
typedef struct rbmq_attributes {
    // `sizeof(rbmq_attributes)`.
    size_t size;
    // Attributes of a received message, which are passed on, also those that this library does not know. Fields that are set replace
    // them, and properties come behind them.
    const void *encoded;
    // The number of bytes.
    size_t encoded_len;
    // The name of the message inside a space.
    const char *topic;
    // The bytes of the name.
    size_t topic_len;
    // The topic for answers.
    const char *reply_to;
    // The bytes of the topic for answers.
    size_t reply_to_len;
    // What an answer repeats.
    const void *correlation_data;
    // The number of bytes.
    size_t correlation_data_len;
    // The type of the content, such as "application/json".
    const char *content_type;
    // The bytes of the type.
    size_t content_type_len;
    // The key of the record.
    const void *key;
    // The number of bytes.
    size_t key_len;
    // The properties, to be published. `rbmq_attributes_read` leaves it NULL: `rbmq_attributes_properties` has those of a message.
    const struct rbmq_property *properties;
    // How many there are.
    size_t properties_count;
    // The time of the record, in ms since 1970.
    uint64_t time_ms;
    // When the record becomes worthless, in ms since 1970.
    uint64_t expiry_ms;
    // Whether the content is said to be UTF-8. Nobody has checked it.
    bool payload_is_utf8;
    // Whether gateways keep the record for new subscribers.
    bool retain;
    // Whether `qos` is set.
    bool has_qos;
    // The quality of service with which the record came to a gateway.
    uint8_t qos;
} rbmq_attributes;

// Room for one message, in the memory that the message is sent from.
typedef struct rbmq_segment {
    // The memory to fill: the caller's until the message is published. Its content is arbitrary until it is written.
    void *data;
    // The number of bytes.
    size_t len;
    // The handle of the room; NULL after the message was published.
    struct rbmq_claim *claim;
} rbmq_segment;

// The outcome of a confirmation.
typedef struct rbmq_confirmed {
    // `RBMQ_LEVEL_…`.
    uint32_t level;
    // Everything below is confirmed: the position that was asked for, or a later one.
    uint64_t position;
    // The number of subscribers that the confirmation covers. 0: no subscriber was required to have the records, or the level is one of
    // the disk.
    uint32_t subscribers;
    // The number of subscribers that left after the broker accepted the position.
    uint32_t left;
    // How often, since then, a subscriber lost records.
    uint32_t lost;
} rbmq_confirmed;

// How a client logs in, also after every reconnect: with the name of a user and a password, or with a token. Its texts are read
// during the call that connects; overwrite them afterwards. `rbmq_login login = {.size = sizeof login};`
typedef struct rbmq_login {
    // `sizeof(rbmq_login)`.
    size_t size;
    // The name of the user, 1 to 128 bytes; NULL: none.
    const char *user;
    // The password of the user, 1 to 512 bytes; NULL: none.
    const char *password;
    // A token, instead of user and password, 1 to 3,072 bytes; NULL: none.
    const char *token;
    // Sends the password or token also over connections that leave this machine and are not encrypted, where everybody on the way
    // reads it. Otherwise connecting fails with `RB_ERR_CONFIG`.
    bool allow_plaintext;
} rbmq_login;

// Options of a worker, and of the group that it makes if there is none. Zeros are defaults:
// `rbmq_group_options options = {.size = sizeof options};`
typedef struct rbmq_group_options {
    // `sizeof(rbmq_group_options)`.
    size_t size;
    // The name in the broker's log; NULL: none.
    const char *name;
    // The most messages that this worker has at a time: those that wait here, and those whose handles are neither acknowledged, given back
    // nor freed; 0: 100.
    uint32_t credit;
    // Of a new group: a message whose attempts have failed so many times goes to `dead_letters`; 0: it comes again without a limit.
    uint16_t max_attempts;
    // Of a new group: messages with the same key are handed out one after the other, in the order of the log.
    bool ordered;
    // Of a new group: it begins with the next message that is published, and not with the oldest one that is kept.
    bool from_newest;
    // Of a new group: how long a worker may have a message before others get it, in nanoseconds, at least 1 ms and at most 49 days; 0: 30 s.
    int64_t ack_time_ns;
    // Of a new group: the kept topic of messages that have failed, which a publisher has made; NULL: none. Together with `max_attempts`.
    const char *dead_letters;
    // The configuration for a context of the worker's own; NULL: the default. Read during the call.
    const struct rb_config *config;
    // Shares the memory and the threads of this context; NULL: a context of the worker's own.
    const struct rb_context *context;
    // The login of the client; NULL: none. Read during the call.
    const struct rbmq_login *login;
} rbmq_group_options;

// A message of a group: valid as long as its handle.
typedef struct rbmq_group_content {
    // The content.
    const void *data;
    // The number of bytes.
    size_t len;
    // The attributes of the message, for `rbmq_attributes_read`; no bytes if it has none.
    const void *attributes;
    // The number of bytes.
    size_t attributes_len;
    // The position in the log of the topic: the name of the message among those of the group.
    uint64_t position;
    // 1, or more if earlier attempts have failed.
    uint16_t attempt;
} rbmq_group_content;

// Options of a client that looks after groups. Zeros are defaults: `rbmq_groups_options options = {.size = sizeof options};`
typedef struct rbmq_groups_options {
    // `sizeof(rbmq_groups_options)`.
    size_t size;
    // The name in the broker's log; NULL: none.
    const char *name;
    // The framework's configuration; NULL: the default. Read during the call.
    const struct rb_config *config;
    // The login of the client; NULL: none. Read during the call.
    const struct rbmq_login *login;
} rbmq_groups_options;

// The state of a group. Counts without another word are since the broker started.
typedef struct rbmq_group_stats {
    // The topic.
    const char *topic;
    // The group.
    const char *group;
    // Its workers, now.
    uint32_t workers;
    // Messages that were read and are not done, now.
    uint64_t pending;
    // Messages of those that workers have.
    uint64_t held;
    // Everything below this position is done.
    uint64_t floor;
    // Everything below this position was read.
    uint64_t next;
    // The end of the topic's log.
    uint64_t end;
    // Messages that were handed out, each time.
    uint64_t delivered;
    // Messages that were acknowledged.
    uint64_t acked;
    // Failed attempts.
    uint64_t failed;
    // Messages that went to the dead-letter topic.
    uint64_t dead;
    // Messages that the log had no more before they were done.
    uint64_t lost;
    // Bytes that the log had no more before they were read.
    uint64_t lost_bytes;
    // Bytes of the journal that were damaged: acknowledged messages may come twice.
    uint64_t damaged_bytes;
    // Bytes of the log that are not done: from the floor to the end.
    uint64_t lag_bytes;
    // Bytes of the log that were not read yet.
    uint64_t unread_bytes;
    // The time for which a worker may have a message, in milliseconds.
    uint32_t ack_ms;
    // The most failed attempts; 0: no limit.
    uint16_t max_attempts;
    // Messages with the same key are handed out one after the other.
    bool ordered;
    // The limit of pending messages is reached, and nothing more is read.
    bool full;
    // The disk does not take acknowledgements, or does not give messages.
    bool failing;
    // The dead-letter topic; NULL: none.
    const char *dead_letters;
} rbmq_group_stats;

// Options of an observer. Zeros are defaults: `rbmq_observer_options options = {.size = sizeof options};`
typedef struct rbmq_observer_options {
    // `sizeof(rbmq_observer_options)`.
    size_t size;
    // The name in the broker's log; NULL: none.
    const char *name;
    // The framework's configuration; NULL: the default. Read during the call.
    const struct rb_config *config;
    // How long a call waits for an answer, in nanoseconds; 0: 10 s, below 0: without a limit. A list takes several answers.
    int64_t timeout_ns;
    // The login of the client; NULL: none. Read during the call.
    const struct rbmq_login *login;
} rbmq_observer_options;

// The state of a broker as a whole.
typedef struct rbmq_broker_summary {
    // The uptime in milliseconds.
    uint64_t uptime_ms;
    // The version of the broker.
    const char *version;
    // Publishers that are connected, or offline for less than the linger time.
    uint32_t publishers;
    // Subscribers that are connected.
    uint32_t subscribers;
    // Observers that are connected, including this one.
    uint32_t observers;
    // Topics that have a buffer.
    uint32_t topics;
    // Buffers of all topics.
    uint32_t buffers;
    // The size of all rings in bytes (memory is allocated on first use).
    uint64_t ring_bytes;
    // The limit for the size of all rings.
    uint64_t max_ring_bytes;
    // Bytes that publishers sent since the start.
    uint64_t received_bytes;
    // Bytes that subscribers got since the start.
    uint64_t delivered_bytes;
    // Bytes that slow subscribers lost since the start.
    uint64_t dropped_bytes;
} rbmq_broker_summary;

// The state of a topic.
typedef struct rbmq_topic_stats {
    // Its name.
    const char *topic;
    // Buffers that have not ended.
    uint32_t publishers;
    // Buffers that have ended and are still readable.
    uint32_t ended;
    // Subscriptions of all its buffers.
    uint32_t subscribers;
    // Durable subscriptions that are offline.
    uint32_t offline;
    // Bytes of its rings.
    uint64_t ring_bytes;
    // Sum of the positions of its buffers' heads.
    uint64_t head_bytes;
    // Bytes that its buffers received: two samples give a rate.
    uint64_t received_bytes;
    // Bytes that all of its subscribers got, including former ones: two samples give a rate.
    uint64_t delivered_bytes;
    // Bytes that its subscribers lost by their policies.
    uint64_t dropped_bytes;
    // The lag of its slowest subscriber in bytes.
    uint64_t max_lag_bytes;
    // The name of the subscriber with the largest lag, or its address; NULL if none lags.
    const char *slowest;
    // Whether that subscriber blocks the publisher, now or soon.
    bool slowest_blocks_publisher;
    // How long that subscriber has consumed nothing.
    uint64_t slowest_idle_ms;
    // Why its publishers wait, if not for a slow subscriber: `RBMQ_BLOCKED_BY_…`.
    uint32_t blocked_by;
} rbmq_topic_stats;

// A subscription of a buffer, connected or offline.
typedef struct rbmq_subscription_stats {
    // Its connection at the broker; 0 if it is offline.
    uint64_t conn;
    // The client's name; may be empty.
    const char *client;
    // The client's address; empty if it is offline.
    const char *address;
    // The durable name; may be empty.
    const char *name;
    // Its policy: `RB_POLICY_…`.
    uint32_t policy;
    // Whether it is offline. Its position is kept for another `expires_in_ms`.
    bool offline;
    // Its first position.
    uint64_t start;
    // Everything below was given to the transport.
    uint64_t sent;
    // Everything below is in its memory.
    uint64_t landed;
    // Its application has consumed everything below.
    uint64_t consumed;
    // Bytes that it lost by its policy.
    uint64_t dropped_bytes;
    // How long it has consumed nothing.
    uint64_t idle_ms;
    // How long the position of an offline subscription is still kept.
    uint64_t expires_in_ms;
} rbmq_subscription_stats;

// A buffer of a topic: the log of one publisher, or of a merged topic.
typedef struct rbmq_buffer_stats {
    // The broker's id.
    uint32_t bid;
    // The random name of the log.
    struct rb_id128 epoch;
    // The publisher's name; may be empty. For a merged topic: the number of publishers, and the first names.
    const char *publisher;
    // The publisher's address.
    const char *address;
    // Whether the publisher is connected.
    bool connected;
    // `RBMQ_FRAMING_…`.
    uint32_t framing;
    // `RBMQ_STAGE_…`.
    uint32_t stage;
    // How long an ended buffer is still readable.
    uint64_t expires_in_ms;
    // The first position of the log in this ring.
    uint64_t start;
    // The oldest position in the ring.
    uint64_t tail;
    // The end of the last complete delivery.
    uint64_t boundary;
    // The end of the received bytes.
    uint64_t head;
    // How far the publisher may write.
    uint64_t horizon;
    // The size of the ring; 0 while the buffer is opening.
    uint64_t capacity_bytes;
    // The bytes of history that the ring keeps for later subscribers.
    uint64_t retain_bytes;
    // The largest delivery in bytes.
    uint64_t max_delivery_bytes;
    // Bytes that it received.
    uint64_t received_bytes;
    // Bytes that its subscribers got.
    uint64_t delivered_bytes;
    // Bytes that its subscribers lost.
    uint64_t dropped_bytes;
    // The least number of subscribers that the publisher requires; 0: none.
    uint32_t min_subscribers;
    // Why its publisher waits, now or soon, if not for a slow subscriber: `RBMQ_BLOCKED_BY_…`.
    uint32_t blocked_by;
    // The subscriptions, and the places of offline durable subscribers: the slowest first.
    const struct rbmq_subscription_stats *subscriptions;
    // Their number.
    size_t subscriptions_count;
} rbmq_buffer_stats;

// Options of a publisher. Zeros are defaults: `rbmq_publisher_options options = {.size = sizeof options};`
typedef struct rbmq_publisher_options {
    // `sizeof(rbmq_publisher_options)`.
    size_t size;
    // The name in the broker's log and in `rbmq top`; NULL: none.
    const char *name;
    // The configuration for a context of the publisher's own; NULL: the default. Read during the call.
    const struct rb_config *config;
    // Shares the memory and the threads of this context; NULL: a context of the publisher's own.
    const struct rb_context *context;
    // The login of the client; NULL: none. Read during the call.
    const struct rbmq_login *login;
} rbmq_publisher_options;

// An event of a publisher. Its texts are valid until this thread's next call that receives something.
typedef struct rbmq_publisher_event {
    // The kind of the event.
    rbmq_publisher_event_kind kind;
    // The topic; NULL if the event is about none.
    const char *topic;
    // The reason, for people; NULL if there is none.
    const char *text;
    // A number.
    uint64_t count;
} rbmq_publisher_event;

// How a topic is opened. Zeros are defaults: `rbmq_topic_options options = {.size = sizeof options};`
typedef struct rbmq_topic_options {
    // `sizeof(rbmq_topic_options)`.
    size_t size;
    // The capacity of the topic's ring, in this process and at the broker, in bytes; 0: `buffers.size_bytes`.
    uint64_t ring_bytes;
    // The largest delivery in bytes, including 4 bytes of header for each record; 0: a quarter of the ring.
    uint64_t max_delivery_bytes;
    // `RBMQ_FRAMING_RECORDS` or `RBMQ_FRAMING_RAW`.
    uint32_t framing;
    // How long opening waits for the broker, in nanoseconds; 0: 10 s, below 0: without a limit.
    int64_t open_timeout_ns;
    // Keeps records in this process until they are delivered, and not only until the broker has them: a broker that dies
    // loses nothing.
    bool keep_until_delivered;
    // The least number of subscribers. While there are fewer, publishing waits, and nothing is confirmed as delivered.
    uint32_t min_subscribers;
    // The most confirmations that wait at a time; 0: 65,536.
    size_t max_confirmations;
} rbmq_topic_options;

// The state of a topic.
typedef struct rbmq_topic_info {
    // The largest delivery in bytes.
    uint64_t max_delivery_bytes;
    // The position behind the last published record.
    uint64_t position;
    // The number of subscribers, as last reported by the broker.
    uint32_t subscribers;
} rbmq_topic_info;

// Options of a subscriber. Zeros are defaults: `rbmq_subscriber_options options = {.size = sizeof options};`
typedef struct rbmq_subscriber_options {
    // `sizeof(rbmq_subscriber_options)`.
    size_t size;
    // The name in the broker's log and in `rbmq top`; NULL: none.
    const char *name;
    // Makes the subscriber durable: the broker keeps its place under `name` for this long while it is offline, in nanoseconds.
    // 0: not durable.
    int64_t hold_ns;
    // The broker keeps everything that was not consumed. Durable subscribers always have this set.
    bool confirm_consumed;
    // Calls that wait for messages return `RB_END` as soon as every topic has ended.
    bool until_ended;
    // The broker's treatment of a slow subscriber: `RBMQ_SLOW_…`.
    uint32_t slow;
    // With `RBMQ_SLOW_BLOCK`: the longest time without progress in nanoseconds; 0: the broker's, below 0: without a limit.
    int64_t block_timeout_ns;
    // With the other policies: the lag in bytes at which they act; 0: the broker's default.
    uint64_t max_lag_bytes;
    // The capacity of the ring of each buffer in this process, in bytes; 0: `buffers.size_bytes`.
    uint64_t ring_bytes;
    // The largest batch in bytes; 0: a quarter of the ring.
    uint64_t batch_bytes;
    // The memory in bytes for the rings of all topics that only patterns match; 0: 64 MiB.
    uint64_t budget_bytes;
    // The configuration for a context of the subscriber's own; NULL: the default. Read during the call.
    const struct rb_config *config;
    // Shares the memory and the threads of this context; NULL: a context of the subscriber's own.
    const struct rb_context *context;
    // The login of the client; NULL: none. Read during the call.
    const struct rbmq_login *login;
    // The largest message in bytes for which the ring of a topic grows when it comes; 0: 64 MiB.
    uint64_t max_message_bytes;
} rbmq_subscriber_options;

// A position of a log.
typedef struct rbmq_position {
    // The log.
    struct rb_id128 epoch;
    // The position.
    uint64_t position;
} rbmq_position;

// Where a subscription begins. Zeros are the next published message.
typedef struct rbmq_start {
    // `sizeof(rbmq_start)`.
    size_t size;
    // `RBMQ_START_…`.
    uint32_t kind;
    // With `RBMQ_START_TIME`: nanoseconds since 1970.
    uint64_t unix_ns;
    // With `RBMQ_START_POSITION`.
    uint64_t position;
    // With `RBMQ_START_POSITIONS`. Read during the call.
    const struct rbmq_position *positions;
    // The number of positions.
    size_t positions_count;
} rbmq_start;

// A message in the memory where it landed: valid until the next call on the subscriber.
typedef struct rbmq_message {
    // The content: a record, or in a raw topic the bytes that arrived together.
    const void *data;
    // The number of bytes.
    size_t len;
    // The topic, without a zero at its end: print it with `%.*s`.
    const char *topic;
    // The bytes of the topic.
    size_t topic_len;
    // The log of its publisher.
    struct rb_id128 epoch;
    // The position at which to resume behind this message.
    uint64_t end;
    // In a merged topic: the number of the publisher; -1 otherwise.
    int64_t publisher;
    // What the message says about its content, for `rbmq_attributes_read`; no bytes if it says nothing.
    const void *attributes;
    // The number of bytes.
    size_t attributes_len;
} rbmq_message;

// Whole deliveries of one buffer, in the memory where they landed: valid until the batch is consumed.
typedef struct rbmq_batch {
    // All bytes, including the headers of records.
    const void *data;
    // The number of bytes.
    size_t len;
    // The topic, without a zero at its end: print it with `%.*s`.
    const char *topic;
    // The bytes of the topic.
    size_t topic_len;
    // `RBMQ_FRAMING_…`.
    uint32_t framing;
    // The log of the publisher.
    struct rb_id128 epoch;
    // The position of the first byte.
    uint64_t position;
    // The position behind the last byte, at which to resume.
    uint64_t end;
} rbmq_batch;

// A record of a batch.
typedef struct rbmq_record {
    // The content.
    const void *data;
    // The number of bytes.
    size_t len;
    // The position behind the record, for `rbmq_subscriber_batch_consume_part`.
    uint64_t end;
    // In a merged topic: the number of the publisher; -1 otherwise.
    int64_t publisher;
    // What the record says about its content, for `rbmq_attributes_read`; no bytes if it says nothing.
    const void *attributes;
    // The number of bytes.
    size_t attributes_len;
} rbmq_record;

// An event of a subscriber. Its texts are valid until this thread's next call that receives something.
typedef struct rbmq_event {
    // The kind of the event.
    rbmq_event_kind kind;
    // Messages.
    struct rbmq_batch batch;
    // The topic; NULL if the event is about none. Of a batch, see there.
    const char *topic;
    // A reason, for people; NULL if there is none.
    const char *text;
    // A publisher's log.
    struct rb_id128 epoch;
    // A position.
    uint64_t from;
    // One past the last position of a range.
    uint64_t to;
} rbmq_event;

// A callback for the messages of a subscriber: `status` is `RB_OK`, and `message` is valid until the callback returns; or `message` is NULL,
// and `status` is what `rbmq_subscriber_recv` would have returned, with its text in `rb_last_error`.
typedef void (*rbmq_message_fn)(void *ctx, rb_status status, const struct rbmq_message *message);

// Fills raw bytes of a topic in place: `fill(ctx, to, capacity)` writes up to `capacity` bytes to
// `to` and returns how many it wrote; below 0 publishes nothing.
typedef ptrdiff_t (*rbmq_fill_fn)(void *ctx, void *to, size_t capacity);

// Options of a subscription. Zeros are defaults: `rb_subscribe_options options = {.size = sizeof options};`
typedef struct rb_subscribe_options {
    // `sizeof(rb_subscribe_options)`.
    size_t size;
    // The capacity of the receiving ring in bytes, rounded up to a power of two; 0: `buffers.size_bytes`. At least twice the
    // buffer's largest delivery.
    uint64_t size_bytes;
    // The most bytes that one view shows where more than one delivery has landed; 0: all of them.
    uint64_t max_view_bytes;
    // The budget that provides the ring while there is data; NULL: the subscription has a ring of its own. Kept alive by the
    // subscription.
    const struct rb_budget *budget;
    // Receives into memory that no other process writes, at the cost of a copy: views then always have a plain pointer.
    bool own_memory;
    // `RB_START_…`.
    uint32_t start;
    // With `RB_START_AGO`.
    uint64_t start_ago_ms;
    // With `RB_START_POSITION`: the log.
    struct rb_id128 start_epoch;
    // With `RB_START_POSITION`: the position.
    uint64_t start_position;
    // The sender's treatment of this subscription while this end is slow: `RB_POLICY_…`.
    uint32_t policy;
    // The lag in bytes at which `RB_POLICY_DROP` and `RB_POLICY_DISCONNECT` act; 0: the sender's default.
    uint64_t max_lag_bytes;
    // How long `RB_POLICY_BLOCK` may hold the writer without progress while others wait, in nanoseconds; 0: the sender's
    // default, below 0: without a limit.
    int64_t block_timeout_ns;
    // A name, which another subscription of the same name replaces; NULL: none. Copied.
    const void *name;
    // The bytes of the name.
    size_t name_len;
    // How long the sender keeps the place of a named subscription after its connection is gone, in nanoseconds.
    int64_t hold_ns;
    // When data counts as landed: `RB_CONFIRM_…`.
    uint32_t confirm;
    // Whether `retain_bytes` is set.
    bool has_retain_bytes;
    // History that a spliced buffer keeps for subscribers that join, in bytes. Otherwise half the ring if spliced, and nothing
    // if not.
    uint64_t retain_bytes;
    // Whether `linger_ns` is set.
    bool has_linger;
    // How long a spliced subscription waits for its writer to come back; otherwise `session.linger_ms`.
    int64_t linger_ns;
} rb_subscribe_options;

// A callback for received data: one or several whole deliveries. `seg` and its memory are valid until the callback returns;
// `rb_rin_data_consumed` releases the bytes.
typedef void (*rb_data_in_fn)(void *ctx, uint32_t bid, const struct rb_buf_seg *seg);

// The bytes that a view shows. The memory belongs to the ring.
typedef struct rb_data {
    // The bytes in place, until the view is consumed or freed. NULL where other processes may write the memory while it is
    // read (see `rb_view_copy` and `rb_view_trusting`).
    const void *data;
    // The number of bytes.
    size_t len;
    // The buffer.
    uint32_t bid;
    // The position of the first byte.
    uint64_t position;
    // The position behind the last byte.
    uint64_t end;
    // The writer's log.
    struct rb_id128 epoch;
    // The view, which the caller consumes or frees.
    struct rb_view *view;
} rb_data;

// Data or an event of an rIn. The description of its kind says which fields have a meaning.
typedef struct rb_in_event {
    // The kind of the event.
    rb_in_kind kind;
    // The buffer.
    uint32_t bid;
    // Received bytes.
    struct rb_data data;
    // The writer's log.
    struct rb_id128 epoch;
    // A position.
    uint64_t from;
    // One past the last position of a range.
    uint64_t to;
    // Why a subscription was refused.
    int32_t status;
    // A reason, for people.
    const char *text;
    // A control message.
    const void *message;
    // The bytes of the message.
    size_t message_len;
    // Why a connection is down.
    struct rb_down down;
} rb_in_event;

// A callback for the events of an rIn that are not data. `event` is valid until the callback returns.
typedef void (*rb_in_event_fn)(void *ctx, const struct rb_in_event *event);

// A callback for control messages of the peer. `rin` and `message` are valid until the callback returns; the handle is the
// library's.
typedef void (*rb_rin_control_fn)(void *ctx, struct rb_rin *rin, const void *message, size_t len);

// The state of a subscription.
typedef struct rb_subscription_info {
    // The writer's log.
    struct rb_id128 epoch;
    // The end of the complete data received so far, with which `RB_START_POSITION` continues elsewhere.
    uint64_t boundary;
    // The bytes of the ring into which data is received.
    uint64_t capacity_bytes;
    // Bytes that were copied into the ring: 0 if it is the sender's memory, or an adapter writes it.
    uint64_t copied_bytes;
} rb_subscription_info;

// Options of a buffer. Zeros are defaults: `rb_buffer_options options = {.size = sizeof options};`
typedef struct rb_buffer_options {
    // `sizeof(rb_buffer_options)`.
    size_t size;
    // The capacity of the ring in bytes, rounded up to a power of two; 0: `buffers.size_bytes`.
    uint64_t size_bytes;
    // Whether `retain_bytes` is set.
    bool has_retain_bytes;
    // History that is kept for joins and resumes, in bytes; otherwise `buffers.retain_bytes`, or half the capacity.
    uint64_t retain_bytes;
    // The largest delivery in bytes; 0: a quarter of the capacity.
    uint64_t max_delivery_bytes;
    // Overwrites the oldest data instead of waiting for slow subscribers. Deliveries then carry markers.
    bool without_flow_control;
    // Keeps everything until it is in the memory of every receiver at the end of a chain, and not only of the first one.
    bool keep_until_delivered;
    // The position where the log begins.
    uint64_t start;
} rb_buffer_options;

// A callback for deliveries with a context: `delivery` is the context that `rb_rout_deliver` was given (paper 1, Listing 2).
typedef void (*rb_data_out_fn)(void *ctx, uint32_t bid, void *delivery);

// The positions that one subscriber has confirmed.
typedef struct rb_subscriber_progress {
    // The buffer.
    uint32_t bid;
    // The subscriber's connection.
    uint64_t conn;
    // Everything below is in the subscriber's memory.
    uint64_t landed;
    // Everything below is in the memory of every receiver downstream of it.
    uint64_t delivered;
    // Everything below was released by every such receiver.
    uint64_t consumed;
    // The receivers that the subscriber speaks for.
    struct rb_coverage coverage;
} rb_subscriber_progress;

// A callback for the progress of subscribers. `progress` is valid until the callback returns.
typedef void (*rb_subscriber_progress_fn)(void *ctx, const struct rb_subscriber_progress *progress);

// A callback for control messages of peers. `conn` and `message` are valid until the callback returns; the handle is the
// library's.
typedef void (*rb_rout_control_fn)(void *ctx, struct rb_conn *conn, const void *message, size_t len);

// An event of an rOut. The description of its kind says which fields have a meaning.
typedef struct rb_out_event {
    // The kind of the event.
    rb_out_kind kind;
    // The buffer.
    uint32_t bid;
    // The number of the connection (`rb_conn_id`).
    uint64_t conn;
    // A position.
    uint64_t from;
    // One past the last position of a range.
    uint64_t to;
    // A number.
    uint64_t count;
    // `RB_POLICY_…`.
    uint32_t policy;
    // Whether a subscription continues with this log.
    bool resumed;
    // The subscription's name.
    const void *name;
    // The bytes of the name.
    size_t name_len;
    // A control message.
    const void *message;
    // The bytes of the message.
    size_t message_len;
    // The context of a delivery.
    void *delivery;
    // A reason, for people.
    const char *text;
    // Why a connection is down.
    struct rb_down down;
    // The positions of a subscriber.
    struct rb_subscriber_progress progress;
} rb_out_event;

// A callback for the events of an rOut. `event` is valid until the callback returns.
typedef void (*rb_out_event_fn)(void *ctx, const struct rb_out_event *event);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Asks `decide` on a worker thread about each subscription of a peer before it is accepted, one call at a time. Without it
// everything is allowed. Existing subscriptions stay until `rb_rout_review_admissions`. A callback in place of an earlier one
// leaves no moment without either.
//
// `ctx` is the caller's, and is used until `rb_rout_unset_admission`, or another call of this, has returned. Inside the callback
// itself: until that call has returned. Any thread.
rb_status rb_rout_set_admission(const struct rb_rout *rout,
                                rb_admission_fn decide,
                                void *ctx);

// Removes the callback: everything is allowed again. When this has returned, no call of it runs on another thread and none
// begins: `ctx` may be freed. Inside the callback itself: once that call has returned. Any thread.
rb_status rb_rout_unset_admission(const struct rb_rout *rout);

// Asks the callback of `rb_rout_set_admission` again about all subscriptions, because its decisions may have changed. A
// subscription that is not allowed any more ends, and its peer is told (`RB_IN_REFUSED`); its position is not kept. Everything
// else on the connection goes on. Returns at once. Any thread.
rb_status rb_rout_review_admissions(const struct rb_rout *rout);

// The id of a buffer. Any thread.
rb_status rb_buffer_bid(const struct rb_buffer *buffer, uint32_t *bid);

// A free segment of exactly `size` bytes, to be filled and delivered. Waits for room at most `timeout_ns`.
//
// The memory of `*seg` is the caller's until `rb_buffer_deliver`. Several segments may be open; they become visible in the
// order in which they were taken. Any thread. `RB_FULL` if there is no room and the time-out is 0, `RB_TIMED_OUT` if there was
// none in time. Fails with `RB_ERR_TOO_LARGE`, `RB_ERR_CLOSED`, `RB_ERR_SPLICED`, `RB_ERR_WRITER_TAKEN`, `RB_ERR_EMPTY`,
// `RB_ERR_TOO_MANY` (open segments) or `RB_ERR_SEGMENT_LOST`.
rb_status rb_buffer_segment(const struct rb_buffer *buffer,
                            uint64_t size,
                            int64_t timeout_ns,
                            struct rb_buf_seg *seg);

// Makes the first `size` bytes of a segment one delivery; size 0 gives the segment back. `delivery`, if it is not NULL, comes
// back in the data-out callback when the delivery has landed with every subscriber. `*end` gets the end of the delivery; `end`
// may be NULL. Never waits.
//
// The memory is the library's again, and `*seg` is nothing. Any thread. After `RB_ERR_SHORT_DELIVER`, `RB_ERR_TOO_LARGE` and
// `RB_ERR_FOREIGN` the segment is still the caller's, and `*seg` was updated. After `RB_ERR_CLOSED` and `RB_ERR_TOO_MANY`
// (contexts) it is gone.
rb_status rb_buffer_deliver(const struct rb_buffer *buffer,
                            struct rb_buf_seg *seg,
                            uint64_t size,
                            void *delivery,
                            uint64_t *end);

// Takes the right to write, which only one writer has: no lock for each delivery. Until the writer is freed,
// `rb_buffer_segment` fails with `RB_ERR_WRITER_TAKEN`.
//
// `*out` is the caller's, until `rb_writer_free`. Any thread. Fails with `RB_ERR_WRITER_TAKEN`, `RB_ERR_SPLICED` or
// `RB_ERR_CLOSED`.
rb_status rb_buffer_writer(const struct rb_buffer *buffer, struct rb_writer **out);

// Sets what subscriptions may ask for from now on; NULL allows everything. Any thread.
rb_status rb_buffer_set_limits(const struct rb_buffer *buffer, const struct rb_limits *allowed);

// How far the buffer is confirmed, and for which receivers. Any thread.
rb_status rb_buffer_confirmed(const struct rb_buffer *buffer, struct rb_confirmed_positions *confirmed);

// Waits until everything below `position` is confirmed at `level` (`RB_LEVEL_…`) by every subscriber present, at most
// `timeout_ns`. Any thread, and not inside a callback. `RB_TIMED_OUT`: `rb_buffer_confirmed` says how far it is.
rb_status rb_buffer_wait(const struct rb_buffer *buffer, uint32_t at_level, uint64_t position, int64_t timeout_ns);

// Asks the subscribers to report as soon as `position` is confirmed at `level`, without waiting for it. The reports come by
// the subscriber-progress callback or event. Any thread.
rb_status rb_buffer_request_confirm(const struct rb_buffer *buffer,
                                    uint32_t at_level,
                                    uint64_t position);

// Reports `RB_OUT_PROGRESS` once, when there is room for the segment that `RB_FULL` refused last, or the buffer has ended. For
// writers that must not wait. The last call of `rb_buffer_notify_…` for a buffer counts. Any thread.
rb_status rb_buffer_notify_room(const struct rb_buffer *buffer);

// Reports `RB_OUT_PROGRESS` once, when every present subscriber has released everything below `position`, or the buffer has
// ended. The last call of `rb_buffer_notify_…` for a buffer counts. Any thread.
rb_status rb_buffer_notify_consumed(const struct rb_buffer *buffer,
                                    uint64_t position);

// Waits until every subscriber present has everything that was delivered and, of a destroyed buffer, has heard that this was
// all; at most `timeout_ns`. Without a subscriber it returns at once. Any thread, and not inside a callback.
rb_status rb_buffer_drain(const struct rb_buffer *buffer,
                          int64_t timeout_ns);

// Ends the buffer: its subscribers get the rest and then `RB_IN_CLOSED`. `*end` gets the end of its log; `end` may be
// NULL. A second call changes nothing. Any thread.
rb_status rb_buffer_destroy(const struct rb_buffer *buffer, uint64_t *end);

// Frees a buffer's handle, which does not end the buffer. NULL does nothing. Any thread.
rb_status rb_buffer_free(struct rb_buffer *buffer);

// The state of the buffer. Any thread. Fails with `RB_ERR_NOT_ANSWERED` if it is spliced and its subscription was not answered
// yet.
rb_status rb_buffer_get_info(const struct rb_buffer *buffer,
                             struct rb_buffer_info *info);

// The subscriptions of the buffer, and the places that are kept for durable ones that are offline: at most `capacity` of them
// into `infos`, and `*count` gets how many there are. `infos` may be NULL if `capacity` is 0. Any thread.
rb_status rb_buffer_subscribers(const struct rb_buffer *buffer,
                                struct rb_subscriber_info *infos,
                                size_t capacity,
                                size_t *count);

// The number of connected subscriptions of the buffer: `rb_buffer_subscribers` lists those that are offline too. Any thread.
rb_status rb_buffer_subscriber_count(const struct rb_buffer *buffer,
                                     size_t *count);

// Asks the subscribers how far they are; a later look shows their answers. Any thread.
rb_status rb_buffer_refresh_subscribers(const struct rb_buffer *buffer);

// Copies `len` bytes into one delivery, waiting for room at most `timeout_ns`. `*end` gets the end of the delivery; `end` may be
// NULL.
//
// One thread uses a writer at a time. `RB_FULL` if there is no room and the time-out is 0, `RB_TIMED_OUT` if there was none in
// time: nothing was written then. Fails as `rb_buffer_segment`.
rb_status rb_writer_append(struct rb_writer *writer,
                           const void *data,
                           size_t len,
                           int64_t timeout_ns,
                           uint64_t *end);

// As `rb_writer_append`, of a delivery that is made of `count` parts.
rb_status rb_writer_appendv(struct rb_writer *writer,
                            const struct iovec *parts,
                            size_t count,
                            int64_t timeout_ns,
                            uint64_t *end);

// Copies `count` deliveries of one part each: for tiny messages, as one call costs more than a message. Waits for room at most
// `timeout_ns` for each. `*appended` gets how many were written, also if the call fails or times out; `*end` the end of the
// last one. Both may be NULL.
//
// One thread uses a writer at a time. Fails as `rb_writer_append`.
rb_status rb_writer_append_many(struct rb_writer *writer,
                                const struct iovec *deliveries,
                                size_t count,
                                int64_t timeout_ns,
                                size_t *appended,
                                uint64_t *end);

// A segment to fill; see `rb_buffer_segment`. One thread uses a writer at a time.
rb_status rb_writer_segment(struct rb_writer *writer, uint64_t size, int64_t timeout_ns, struct rb_buf_seg *seg);

// Makes the first `size` bytes of a segment one delivery; see `rb_buffer_deliver`. One thread uses a writer at a time.
rb_status rb_writer_deliver(struct rb_writer *writer,
                            struct rb_buf_seg *seg,
                            uint64_t size,
                            void *delivery,
                            uint64_t *end);

// The end of the written bytes, and how many bytes could be appended now without waiting. Either place may be NULL. One
// thread uses a writer at a time.
rb_status rb_writer_info(struct rb_writer *writer, uint64_t *head, uint64_t *free_bytes);

// Notes the time, so that `RB_START_AGO` finds later deliveries. Workers note the time where there are subscribers. One
// thread uses a writer at a time.
rb_status rb_writer_note_time(struct rb_writer *writer);

// Gives the right to write back to the buffer, and frees the handle. NULL does nothing. Fails with `RB_ERR_BUSY` while another
// thread uses the writer.
rb_status rb_writer_free(struct rb_writer *writer);

// The next event, if there is one: `RB_TIMED_OUT` if there is none. Never waits. Any thread.
rb_status cmq_next_event(const struct cmq_queue *queue, struct cmq_event *event);

// The counters of the queue. Any thread.
rb_status cmq_get_stats(const struct cmq_queue *queue, struct cmq_stats *stats);

// Every stream that the queue remembers: at most `capacity` of them into `senders`, and `*count` gets how many there are. `senders`
// may be NULL if `capacity` is 0. Any thread.
rb_status cmq_senders(const struct cmq_queue *queue,
                      struct cmq_sender *senders,
                      size_t capacity,
                      size_t *count);

// The streams of one sender address (the mailbox of `from` counts for nothing), as `cmq_senders`: one for each run of the sender, and
// for each address and group that it sends to. Any thread.
rb_status cmq_senders_at(const struct cmq_queue *queue,
                         const struct cmq_key *from,
                         struct cmq_sender *senders,
                         size_t capacity,
                         size_t *count);

// Opens a mailbox of its own for an integer: messages for it that arrive from now on are popped there.
//
// `*out` is the caller's, until `cmq_mailbox_close` or `cmq_mailbox_free`; it keeps the queue alive. Any thread.
rb_status cmq_mailbox_open(const struct cmq_queue *queue, uint32_t id, struct cmq_mailbox **out);

// The next message of the mailbox, waiting at most `timeout_ns`. `*message` is the caller's, until `cmq_message_free`. Any thread.
rb_status cmq_mailbox_pop(const struct cmq_mailbox *mailbox,
                          struct cmq_message *message,
                          int64_t timeout_ns);

// The next messages of the mailbox, as `cmq_pop_many`. Any thread.
rb_status cmq_mailbox_pop_many(const struct cmq_mailbox *mailbox,
                               struct cmq_message *messages,
                               size_t max,
                               size_t *count,
                               int64_t timeout_ns);

// The oldest message of the mailbox that `wanted` accepts, as `cmq_pop_where`: `wanted` must not use the queue or the mailbox. Any
// thread. Not to be combined with `cmq_mailbox_fd`.
rb_status cmq_mailbox_pop_where(const struct cmq_mailbox *mailbox,
                                cmq_wanted_fn wanted,
                                void *ctx,
                                struct cmq_message *message,
                                int64_t timeout_ns);

// The number of messages that wait in the mailbox. Any thread.
rb_status cmq_mailbox_waiting(const struct cmq_mailbox *mailbox, size_t *count);

// The integer of the mailbox. Any thread.
rb_status cmq_mailbox_id(const struct cmq_mailbox *mailbox, uint32_t *id);

// As `cmq_fd`, of the mailbox. Any thread.
int cmq_mailbox_fd(const struct cmq_mailbox *mailbox);

// Closes the mailbox, drops the messages that wait there, and frees the handle: messages for its integer are popped with
// `cmq_cw_pop` from now on. Fails with `RB_ERR_BUSY` while another call uses the mailbox.
rb_status cmq_mailbox_close(struct cmq_mailbox *mailbox);

// Frees the handle of a mailbox, which stays open. NULL does nothing. Any thread.
rb_status cmq_mailbox_free(struct cmq_mailbox *mailbox);

// The key of an address such as "127.0.0.1:4711" and a mailbox. A name is looked up, and its first address taken. Any thread.
// Fails with `RB_ERR_ADDRESS`.
rb_status cmq_key_parse(const char *address,
                        uint32_t id,
                        struct cmq_key *key);

// The address of a key as text, as `snprintf` would write it. Any thread.
rb_status cmq_key_format(const struct cmq_key *key, char *to, size_t capacity, size_t *len);

// Frees a popped message, and makes `*message` empty. An empty message does nothing. Any thread.
rb_status cmq_message_free(struct cmq_message *message);

// Frees `count` popped messages, as `cmq_message_free` does. Any thread.
rb_status cmq_messages_free(struct cmq_message *messages, size_t count);

// Receives the datagrams that are sent to a multicast group, at an interface: its name, one of its IPv4 addresses, or NULL
// for any. Any thread. Fails with `RB_ERR_ADDRESS` or `RB_ERR_SYSTEM`.
rb_status cmq_join(const struct cmq_queue *queue,
                   const char *address,
                   const char *interface);

// Leaves a multicast group. Any thread.
rb_status cmq_leave(const struct cmq_queue *queue, const char *address, const char *interface);

// Sends multicast messages by this interface, across at most `ttl - 1` routers; and `loopback`: whether queues of this machine
// receive them. Any thread.
rb_status cmq_set_multicast(const struct cmq_queue *queue,
                            const char *interface,
                            uint32_t ttl,
                            bool loopback);

// Opens a queue at a local address such as "0.0.0.0:4711" (paper, `newRq`). Port 0 takes a free port. `options` may be NULL.
//
// `*out` is the caller's, until `cmq_free`. Any thread. Fails with `RB_ERR_ADDRESS_IN_USE`, `RB_ERR_ADDRESS`, `RB_ERR_CONFIG` (also if
// a file with a key cannot be used), `RB_ERR_ARGUMENT` or `RB_ERR_SYSTEM`.
rb_status cmq_new_rq(const char *address,
                     const struct cmq_options *given,
                     struct cmq_queue **out);

// Frees the queue's handle. Pending messages are sent at once, and each receiver learns the number of messages, when the handles of
// its mailboxes are freed too. NULL does nothing. Any thread.
rb_status cmq_free(struct cmq_queue *queue);

// Queues a message for a key (paper, `cwPush`); it leaves with its batch. Never waits. The message is copied.
//
// Any thread. `RB_FULL` if too many bytes wait to be sent. Fails with `RB_ERR_TOO_LARGE` or `RB_ERR_ADDRESS`; nothing is sent then.
rb_status cmq_cw_push(const struct cmq_queue *queue,
                      const struct cmq_key *key,
                      const void *message,
                      size_t len);

// Queues `count` messages for a key, as `cmq_cw_push` does one after the other. `*pushed` gets how many, also if the call fails;
// `pushed` may be NULL. Any thread.
rb_status cmq_cw_push_many(const struct cmq_queue *queue,
                           const struct cmq_key *key,
                           const struct iovec *messages,
                           size_t count,
                           size_t *pushed);

// The next message, if there is one (paper, `cwPop`), of any mailbox that was not opened with `cmq_mailbox_open`. Never waits:
// `RB_TIMED_OUT` if there is none.
//
// `*message` is the caller's, until `cmq_message_free`. Any thread.
rb_status cmq_cw_pop(const struct cmq_queue *queue,
                     struct cmq_message *message);

// As `cmq_cw_pop`, waiting at most `timeout_ns`. Any thread.
rb_status cmq_pop(const struct cmq_queue *queue, struct cmq_message *message, int64_t timeout_ns);

// The next messages: waits at most `timeout_ns` for one, and takes at most `max` that are there. `*count` gets how many.
//
// The messages are the caller's, until `cmq_messages_free`. Any thread. `RB_TIMED_OUT` if none came.
rb_status cmq_pop_many(const struct cmq_queue *queue,
                       struct cmq_message *messages,
                       size_t max,
                       size_t *count,
                       int64_t timeout_ns);

// The oldest message that `wanted` accepts (a selective receive), waiting at most `timeout_ns`. The other messages stay in their
// order. `wanted` runs inside this call, and must not use the queue.
//
// `*message` is the caller's, until `cmq_message_free`. Any thread. Not to be combined with `cmq_fd`.
rb_status cmq_pop_where(const struct cmq_queue *queue,
                        cmq_wanted_fn wanted,
                        void *ctx,
                        struct cmq_message *message,
                        int64_t timeout_ns);

// A descriptor that is readable while `cmq_cw_pop` would return a message, for an event loop, which only polls it. When it is
// readable, pop until `RB_TIMED_OUT`: only then it is not readable any more. Returns a status below 0 if it fails.
//
// The descriptor belongs to the library and lives as long as the queue's handle. Any thread.
int cmq_fd(const struct cmq_queue *queue);

// The number of messages that wait in the common mailbox. Any thread.
rb_status cmq_waiting(const struct cmq_queue *queue, size_t *count);

// Sends all pending messages now. Any thread.
rb_status cmq_flush(const struct cmq_queue *queue);

// Sends all pending messages now and closes all streams: each receiver learns the number of messages, those of the reliable mode once
// everything is confirmed or given up. Later messages begin new streams. Any thread.
rb_status cmq_finish(const struct cmq_queue *queue);

// The address of this queue, with the mailbox 0. Any thread.
rb_status cmq_local_addr(const struct cmq_queue *queue, struct cmq_key *key);

// The random name of the queue, which each of its datagrams carries. Any thread.
rb_status cmq_epoch(const struct cmq_queue *queue, uint64_t *epoch);

// The public key of the queue at an address (the mailbox of `at` counts for nothing), while there is a session with it: what came
// from there is its. `RB_TIMED_OUT` if there is no session, also if this queue does not encrypt. Any thread.
rb_status cmq_peer_key(const struct cmq_queue *queue,
                       const struct cmq_key *at,
                       struct cmq_public_key *key);

// Queues a message of the reliable mode for a key. The queue sends the message until the receiving queue confirms it, and
// the receiver pops the messages of a key in their order. Both queues have `cmq_options.reliable`. Never waits. The
// message is copied.
//
// `*number` gets the number of the message among the reliable ones of its key, for `cmq_fate` and `cmq_wait_confirmed`; `number` may be
// NULL. Any thread. `RB_FULL` if too many bytes wait to be confirmed. Fails with `RB_ERR_TOO_LARGE`, `RB_ERR_ADDRESS`, or
// `RB_ERR_CONFIG` if the mode is off; nothing is sent then.
rb_status cmq_push_reliable(const struct cmq_queue *queue,
                            const struct cmq_key *key,
                            const void *message,
                            size_t len,
                            uint64_t *number);

// The outcome of a message of the reliable mode: its key, and the number that `cmq_push_reliable` gave. Never waits.
//
// `*fate` gets it, and `*why` the reason if the message was given up; `why` may be NULL. Any thread.
rb_status cmq_fate(const struct cmq_queue *queue,
                   const struct cmq_key *key,
                   uint64_t number,
                   cmq_message_fate *fate,
                   cmq_reason *why);

// Waits until a message of the reliable mode is confirmed, at most `timeout_ns`, and sends all pending messages before. `RB_OK`: the
// receiving queue has the message. `RB_TIMED_OUT`: it is still on its way.
//
// Any thread. Fails with `RB_ERR_UNDELIVERED` if the message was given up: the text and `cmq_fate` say why. `RB_ERR_ARGUMENT` if the key
// has no message with this number, or is forgotten.
rb_status cmq_wait_confirmed(const struct cmq_queue *queue,
                             const struct cmq_key *key,
                             uint64_t number,
                             int64_t timeout_ns);

// Waits until each message of the reliable mode is confirmed or given up, at most `timeout_ns`, and sends all pending messages before.
// `RB_TIMED_OUT` if some are neither. The counters (`cmq_get_stats`) and events say which were given up. Any thread.
rb_status cmq_wait_all_confirmed(const struct cmq_queue *queue,
                                 int64_t timeout_ns);

// Opens a queue at a local address that recovers lost messages; both ends must be such queues. `options` and `repairs` may be NULL.
//
// `*out` is the caller's, until `cmq_repair_free`. Any thread. Fails as `cmq_new_rq`.
rb_status cmq_repair_new(const char *address,
                         const struct cmq_options *given,
                         const struct cmq_repair_options *repairs,
                         struct cmq_repair **out);

// Queues a message about `slot` for a key. With `CMQ_REPAIR_REPLACE` a later message about the same slot replaces it. Never waits.
//
// The message is copied. Any thread. `RB_FULL` if too many bytes wait, or too many keys are remembered. Fails with
// `RB_ERR_TOO_LARGE` or `RB_ERR_ADDRESS`.
rb_status cmq_repair_push(const struct cmq_repair *repair,
                          const struct cmq_key *key,
                          uint64_t slot,
                          const void *message,
                          size_t len);

// Tells the receiver of a key how many messages there are, so that it notices the loss of the last ones. For when no further message
// follows for a while. Any thread. Fails as `cmq_repair_push`.
rb_status cmq_repair_notify_end(const struct cmq_repair *repair,
                                const struct cmq_key *key);

// The next message, waiting at most `timeout_ns`; `RB_TIMED_OUT` if none came. Lost messages are requested and sent again inside this
// call, so senders must call it too.
//
// `received->message` is the caller's, until `cmq_message_free`. Any thread.
rb_status cmq_repair_pop(const struct cmq_repair *repair,
                         struct cmq_repaired *received,
                         int64_t timeout_ns);

// The messages of all senders that are missing now, and those that were missing and do not come any more: they are lost, or were
// replaced. Either place may be NULL. Any thread.
rb_status cmq_repair_counts(const struct cmq_repair *repair,
                            uint64_t *missing,
                            uint64_t *unrecoverable);

// The address of the queue, with the mailbox 0. Any thread.
rb_status cmq_repair_local_addr(const struct cmq_repair *repair, struct cmq_key *key);

// Frees the handle of a queue that recovers lost messages. NULL does nothing. Any thread.
rb_status cmq_repair_free(struct cmq_repair *repair);

// Makes a caller with a queue of its own at a local address such as "0.0.0.0:0". `options` and `calls` may be NULL.
//
// `*out` is the caller's, until `cmq_caller_free`. Any thread. Fails as `cmq_new_rq`.
rb_status cmq_caller_new(const char *address,
                         const struct cmq_options *given,
                         const struct cmq_call_options *calls,
                         struct cmq_caller **out);

// Sends a request to a responder. Never waits: `cmq_call_wait` gives the response. A request without a response in time is sent
// again, so a responder may get it more than once.
//
// The request is copied. `*out` is the caller's, until `cmq_call_free`; it keeps the caller alive. Any thread. `RB_FULL` if too many
// bytes wait to be sent. Fails with `RB_ERR_TOO_LARGE`, `RB_ERR_ADDRESS` or `RB_ERR_TOO_MANY` (outstanding calls).
rb_status cmq_caller_call(const struct cmq_caller *caller,
                          const struct cmq_key *key,
                          const void *request,
                          size_t len,
                          struct cmq_call **out);

// The response to a call, waiting at most `timeout_ns`; `RB_TIMED_OUT` if it may still arrive. Requests of the caller are sent again
// only while a thread waits for one of its calls, or makes another call. `response->from` is the key that was called.
//
// `*response` is the caller's, until `cmq_message_free`. Any thread. Fails with `RB_ERR_LOST` if no attempt got a response.
rb_status cmq_call_wait(const struct cmq_call *pending,
                        struct cmq_message *response,
                        int64_t timeout_ns);

// Forgets a call, whose response is then dropped. NULL does nothing. Any thread.
rb_status cmq_call_free(struct cmq_call *pending);

// The address of the caller's queue, with the mailbox 0. Any thread.
rb_status cmq_caller_local_addr(const struct cmq_caller *caller, struct cmq_key *key);

// Frees a caller's handle. NULL does nothing. Any thread.
rb_status cmq_caller_free(struct cmq_caller *caller);

// Makes a responder with a queue of its own at a local address. `options` may be NULL.
//
// `*out` is the caller's, until `cmq_responder_free`. Any thread. Fails as `cmq_new_rq`.
rb_status cmq_responder_new(const char *address, const struct cmq_options *given, struct cmq_responder **out);

// Waits for a request, at most `timeout_ns`, and answers it with what `respond` returns. `respond` runs inside this call.
//
// Any thread. `RB_TIMED_OUT` if no request came; `RB_FULL` if too many bytes wait to be sent, and the request then comes again. Fails
// with `RB_ERR_TOO_LARGE` if the response is larger than the caller's `max_response_bytes`.
rb_status cmq_responder_serve(const struct cmq_responder *responder,
                              cmq_respond_fn respond,
                              void *ctx,
                              int64_t timeout_ns);

// The address of the responder's queue, with the mailbox 0. Any thread.
rb_status cmq_responder_local_addr(const struct cmq_responder *responder, struct cmq_key *key);

// Frees a responder's handle. NULL does nothing. Any thread.
rb_status cmq_responder_free(struct cmq_responder *responder);

// Makes a random secret key. Any thread. Fails with `RB_ERR_SYSTEM` if the system has no random bytes.
rb_status cmq_secret_key_generate(struct cmq_secret_key *key);

// Reads a secret key from a file that only its owner has a right to. Any thread. Fails with `RB_ERR_CONFIG`: the text names the file.
rb_status cmq_secret_key_read(const char *path,
                              struct cmq_secret_key *key);

// Writes a secret key into a new file that only its owner may read. Any thread. Fails with `RB_ERR_CONFIG`, also if the file exists.
rb_status cmq_secret_key_write_new(const struct cmq_secret_key *key,
                                   const char *path);

// The public key that belongs to a secret key. Any thread.
rb_status cmq_secret_key_public(const struct cmq_secret_key *key, struct cmq_public_key *public_key);

// Overwrites a secret key with zeros. Any thread.
rb_status cmq_secret_key_erase(struct cmq_secret_key *key);

// Reads a public key from a file, as `cmq keygen` writes it. Any thread. Fails with `RB_ERR_CONFIG`: the text names the file.
rb_status cmq_public_key_read(const char *path,
                              struct cmq_public_key *key);

// The public key of a text of 64 hexadecimal digits. Any thread. Fails with `RB_ERR_ARGUMENT`.
rb_status cmq_public_key_parse(const char *digits, struct cmq_public_key *key);

// A public key as 64 hexadecimal digits, as `snprintf` would write them. Any thread.
rb_status cmq_public_key_format(const struct cmq_public_key *key, char *to, size_t capacity, size_t *len);

// Connects, and waits until the other end has accepted, at most `session.connect_timeout_ms`. `hello` are up to 4,096 bytes
// of the application's, which the other end reads before it accepts.
//
// `*out` is the caller's, until `rb_conn_free`. Any thread, and not inside a callback. Fails with `RB_ERR_REFUSED`,
// `RB_ERR_DOWN` (the text has the reason), or `RB_TIMED_OUT`.
rb_status rb_conn_connect(const struct rb_context *context,
                          const char *address,
                          const void *hello,
                          size_t hello_len,
                          struct rb_conn **out);

// Begins to connect and returns at once. The connection can be given to an rIn or rOut while it is not up yet.
//
// `*out` is the caller's, until `rb_conn_free`. Any thread. `rb_conn_wait_up` and `rb_conn_recv_event` tell of later
// failures.
rb_status rb_conn_connect_start(const struct rb_context *context,
                                const char *address,
                                const void *hello,
                                size_t hello_len,
                                struct rb_conn **out);

// Waits until the connection is up, at most `timeout_ns`. Any thread, and not inside a callback. Fails with `RB_ERR_DOWN` or
// `RB_ERR_REFUSED`, and the text has the reason.
rb_status rb_conn_wait_up(const struct rb_conn *conn,
                          int64_t timeout_ns);

// Waits until the connection is down, at most `timeout_ns`; `RB_TIMED_OUT` if it is not. Any thread.
//
// `reason` may be NULL. Its text is valid until this thread's next call that receives something.
rb_status rb_conn_wait_down(const struct rb_conn *conn, struct rb_down *reason, int64_t timeout_ns);

// The next event, waiting at most `timeout_ns`; `RB_TIMED_OUT` if nothing happened, and at once after the last event, `RB_CONN_DOWN`. Each
// event is given once.
//
// The text of `*event` is valid until this thread's next call that receives something. Any thread.
rb_status rb_conn_recv_event(const struct rb_conn *conn,
                             struct rb_conn_event *event,
                             int64_t timeout_ns);

// A descriptor that is readable while `rb_conn_recv_event` would return an event, for an event loop, which only polls it.
// Returns a status below 0 if it fails.
//
// The descriptor belongs to the library and lives as long as the connection's handle. Any thread.
int rb_conn_fd(const struct rb_conn *conn);

// 1 if both ends have accepted the connection and it is not down, 0 if not; below 0 is a status. Any thread.
int rb_conn_is_up(const struct rb_conn *conn);

// The number of the connection in this process, which the events of an rOut name. Any thread.
rb_status rb_conn_id(const struct rb_conn *conn, uint64_t *id);

// The other end's hello: its bytes, cut to `capacity - 1`, with a zero behind them. `*len` gets their number. Empty until it
// was read. Any thread.
rb_status rb_conn_peer_hello(const struct rb_conn *conn,
                             char *to,
                             size_t capacity,
                             size_t *len);

// The other end's address as text, as `snprintf` would write it. Any thread.
rb_status rb_conn_peer_addr(const struct rb_conn *conn, char *to, size_t capacity, size_t *len);

// The transport that carries the connection ("tcp", "shm", "rdma"), as `snprintf` would write it; empty until the other
// end's hello was read. Any thread.
rb_status rb_conn_carrier(const struct rb_conn *conn, char *to, size_t capacity, size_t *len);

// The random name of the other end's process; the same when it connects again. Any thread.
rb_status rb_conn_peer_instance(const struct rb_conn *conn, struct rb_id128 *out);

// The bytes of the largest control message that both ends take, and the bytes of those that wait to be sent. Either place
// may be NULL. Any thread.
rb_status rb_conn_control_info(const struct rb_conn *conn,
                               size_t *max_bytes,
                               size_t *waiting);

// Sends a control message of the application, in order with the data. The message is copied. Returns at once: `RB_FULL` if
// too many wait, `RB_ERR_TOO_LARGE`, `RB_ERR_DOWN`. Any thread.
rb_status rb_conn_send_control(const struct rb_conn *conn,
                               const void *message,
                               size_t len);

// Closes the connection in order: queued bytes leave first, and the peer is told why. The handle stays valid. Any thread.
rb_status rb_conn_close(const struct rb_conn *conn,
                        const char *why);

// Refuses a connection that was offered: the peer's attempt to connect fails with the reason. Any thread.
rb_status rb_conn_reject(const struct rb_conn *conn, const char *why);

// Frees a connection's handle, which does not close the connection. NULL does nothing. Any thread.
rb_status rb_conn_free(struct rb_conn *conn);

// Listens on an address such as "127.0.0.1:7411"; port 0 takes a free one.
//
// `*out` is the caller's, until `rb_listener_free`, which ends listening. Any thread, and not inside a callback. Fails with
// `RB_ERR_ADDRESS_IN_USE` or `RB_ERR_ADDRESS`.
rb_status rb_listener_bind(const struct rb_context *context,
                           const char *address,
                           struct rb_listener **out);

// The address in use as text, as `snprintf` would write it. Any thread.
rb_status rb_listener_local_addr(const struct rb_listener *listener, char *to, size_t capacity, size_t *len);

// The next connection, waiting at most `timeout_ns`; `RB_TIMED_OUT` if none came.
//
// `*out` is the caller's, until `rb_conn_free`. Any thread.
rb_status rb_listener_accept(const struct rb_listener *listener, struct rb_conn **out, int64_t timeout_ns);

// A descriptor that is readable while `rb_listener_accept` would return a connection, for an event loop, which only polls
// it. Returns a status below 0 if it fails.
//
// The descriptor belongs to the library and lives as long as the listener. Any thread.
int rb_listener_fd(const struct rb_listener *listener);

// Calls `callback(ctx, conn)` on a worker thread for every connection; for those that wait already, inside this call.
//
// `ctx` is the caller's, and is used until `rb_listener_unset_conn_cb` has returned or the listener was freed. Any thread.
rb_status rb_listener_set_conn_cb(const struct rb_listener *listener,
                                  rb_conn_fn callback,
                                  void *ctx);

// Removes the callback. When this has returned, no call of it runs on another thread and none begins: `ctx` may be freed.
// Inside the callback itself: once that call has returned. Any thread.
rb_status rb_listener_unset_conn_cb(const struct rb_listener *listener);

// Calls `callback` on a worker thread for every connection that ended before it could be offered. `ctx` as for
// `rb_listener_set_conn_cb`. Any thread.
rb_status rb_listener_set_foreign_conn_cb(const struct rb_listener *listener, rb_foreign_conn_fn callback, void *ctx);

// Removes the callback, as `rb_listener_unset_conn_cb` does. Any thread.
rb_status rb_listener_unset_foreign_conn_cb(const struct rb_listener *listener);

// Ends listening, and frees the handle; connections that were taken go on. NULL does nothing. Any thread.
//
// A callback may still run when this has returned: remove it first if its `ctx` is to be freed.
rb_status rb_listener_free(struct rb_listener *listener);

// Makes a configuration with the default settings.
//
// `*out` is the caller's, until `rb_config_free`. Any thread.
rb_status rb_config_new(struct rb_config **out);

// Loads a configuration: the TOML file `path`, if it is not NULL, overridden by the environment (`ROCKETBUFS_TCP_NODELAY`
// and so on; docs/CONFIGURATION.md has every setting).
//
// `*out` is the caller's, until `rb_config_free`. Any thread. Fails with `RB_ERR_CONFIG`; the text names file, line and
// setting.
rb_status rb_config_load(const char *path,
                         struct rb_config **out);

// Reads a configuration from a text in TOML. Settings that the text does not name keep their defaults.
//
// `*out` is the caller's, until `rb_config_free`. Any thread. Fails with `RB_ERR_CONFIG`; the text names line and setting.
rb_status rb_config_from_toml(const char *toml,
                              struct rb_config **out);

// Sets one setting from a text: `rb_config_set(config, "tcp.nodelay", "false")`. Sizes and times may have a unit ("64 MiB",
// "10 s").
//
// One thread uses a configuration at a time. Fails with `RB_ERR_CONFIG`, and the configuration is then unchanged.
rb_status rb_config_set(struct rb_config *config,
                        const char *name,
                        const char *value);

// The whole configuration as TOML, as `snprintf` would write it: at most `capacity` bytes with the zero at the end, and
// `*len` gets the length of the whole text.
//
// `to` may be NULL if `capacity` is 0, and `len` may be NULL. One thread uses a configuration at a time.
rb_status rb_config_to_toml(const struct rb_config *config, char *to, size_t capacity, size_t *len);

// Frees a configuration. NULL does nothing. Contexts that were made from it are not affected.
rb_status rb_config_free(struct rb_config *config);

// Reserves memory and starts worker threads: one context for each process is enough. `config` may be NULL for the default
// settings; it is read and not kept.
//
// `*out` is the caller's, until `rb_context_free`. Any thread. Fails with `RB_ERR_CONFIG`, `RB_ERR_MEMORY`,
// `RB_ERR_TRANSPORT` or `RB_ERR_SYSTEM`.
rb_status rb_context_new(const struct rb_config *config,
                         struct rb_context **out);

// As `rb_config_load` and `rb_context_new`: a context from a file, if `path` is not NULL, and the environment.
//
// `*out` is the caller's, until `rb_context_free`. Any thread.
rb_status rb_context_load(const char *path, struct rb_context **out);

// A copy of the configuration that the context was made with.
//
// `*out` is the caller's, until `rb_config_free`. Any thread.
rb_status rb_context_config(const struct rb_context *context, struct rb_config **out);

// The bytes of all present rings. Their memory is backed on first use. Any thread.
rb_status rb_context_memory_in_use(const struct rb_context *context, uint64_t *bytes);

// The number of mapped rings of other processes, and their bytes (transport `shm`). Either place may be NULL. Any thread.
rb_status rb_context_mapped(const struct rb_context *context,
                            size_t *rings,
                            uint64_t *bytes);

// The random name of this process's endpoint, which every peer learns. Any thread.
rb_status rb_context_instance(const struct rb_context *context, struct rb_id128 *out);

// Allows callbacks on threads of the application that wait in `rb_rin_recv`, or for room in a buffer, inside that call. Such
// a thread does a worker's work instead of waiting for it. Callbacks must then not need anything that such a thread holds,
// such as a lock. Any thread.
rb_status rb_context_allow_callbacks_in_calls(const struct rb_context *context);

// Says goodbye to every peer, gives queued data at most `grace` nanoseconds to leave, and stops the threads. Handles stay
// valid; calls on them fail. Any thread. Inside a callback it does not wait for the threads, which stop when the callback has
// returned.
rb_status rb_context_shutdown(const struct rb_context *context,
                              int64_t grace);

// Frees a context's handle. NULL does nothing. The threads stop when the handles of everything in the context are freed too:
// each keeps the context alive. Any thread.
rb_status rb_context_free(struct rb_context *context);

// Makes a budget of so many bytes, which the rings of many subscriptions share (`rb_subscribe_options.budget`).
//
// `*out` is the caller's, until `rb_budget_free`; subscriptions keep the budget alive. Any thread.
rb_status rb_budget_new(uint64_t bytes, struct rb_budget **out);

// The bytes of a budget, and how many of them rings take now. Either place may be NULL. Any thread.
rb_status rb_budget_info(const struct rb_budget *budget, uint64_t *bytes, uint64_t *in_use);

// Frees a budget's handle. NULL does nothing. Any thread.
rb_status rb_budget_free(struct rb_budget *budget);

// The facts that the transport has verified about the other end: its certificate (TLS), or its process (shared memory). Known before the
// callback of a listener gets the connection; all zeros until the other end's hello was read. Any thread.
rb_status rb_conn_peer_identity(const struct rb_conn *conn,
                                struct rb_peer_identity *identity);

// The certificate of the other end in DER: its chain leads to a trusted root, its dates are valid, and the other end has the
// key. Its bytes are cut to `capacity - 1`, with a zero behind them. `*len` gets their number, 0 if there is none. Any thread.
rb_status rb_conn_peer_certificate(const struct rb_conn *conn,
                                   char *to,
                                   size_t capacity,
                                   size_t *len);

// Makes a limit with a full bucket. Any number of connections of one context share it. `bytes_per_second`: 0 is no limit.
// `burst_bytes`: how much may go at once after a pause; at least 4 KiB.
//
// Bytes beyond the limit are delayed and never dropped. In any `t` seconds at most `burst_bytes + t * bytes_per_second` bytes are
// sent. Of what arrives as much more may come as had been granted to the senders before: at most the smaller of the burst and the
// free part of the ring, for each subscription.
//
// `*out` is the caller's, until `rb_rate_limit_free`; connections keep the limit alive. Any thread.
rb_status rb_rate_limit_new(uint64_t bytes_per_second,
                            uint64_t burst_bytes,
                            struct rb_rate_limit **out);

// Sets another rate and burst, for later bytes. A present delay ends when it would have. Any thread.
rb_status rb_rate_limit_set(const struct rb_rate_limit *limit, uint64_t bytes_per_second, uint64_t burst_bytes);

// The limit and what it has counted so far. Any thread.
rb_status rb_rate_limit_get_info(const struct rb_rate_limit *limit, struct rb_rate_limit_info *info);

// Frees a limit's handle. NULL does nothing. Connections that have the limit keep it. Any thread.
rb_status rb_rate_limit_free(struct rb_rate_limit *limit);

// Limits the bytes per second of the connection's payload, in place of earlier limits: of arriving bytes, of sent bytes,
// or of both. Connections that are given the same limit share it, and a connection with several is as slow as the slowest.
// NULL is allowed where a count is 0; without limits the connection has none.
//
// Everything is delayed and nothing dropped: a peer that writes more waits for credit, and bytes for a peer's subscriptions
// waits here, where their policies apply to the lag. Control messages are not delayed. Rings of a connection with limits are not
// shared with its peer (as with `own_memory`, in both directions); limits that come later do not reach rings that the peer maps
// already. The connection keeps the limits alive. Any thread.
rb_status rb_conn_set_rate_limits(const struct rb_conn *conn,
                                  const struct rb_rate_limit *const *received,
                                  size_t received_count,
                                  const struct rb_rate_limit *const *sent,
                                  size_t sent_count);

// 1 if the bucket of a limit of the context's connections is full, so that a new limit would delay no less; 0 if not; below 0 is
// a status. Any thread.
int rb_context_is_rate_limit_full(const struct rb_context *context,
                                  const struct rb_rate_limit *limit);

// Reads the attributes of a message or record: its `attributes` and `attributes_len`. What the message does not say is NULL, zero or false.
//
// The pointers in `*to` are valid as long as the message. Any thread. Fails with `RB_ERR_MALFORMED` for bytes that no message had.
rb_status rbmq_attributes_read(const void *attributes,
                               size_t len,
                               struct rbmq_attributes *to);

// Reads the properties of a message or record, in order: the first `max` of them into `properties`; `*count` gets how many there are.
//
// The pointers are valid as long as the message. Any thread. Fails as `rbmq_attributes_read`.
rb_status rbmq_attributes_properties(const void *attributes,
                                     size_t len,
                                     struct rbmq_property *properties,
                                     size_t max,
                                     size_t *count);

// Room for one message of `bytes` bytes: a record, or in a raw topic plain bytes. Waits at most `timeout_ns` while the ring is full.
//
// The memory of `*segment` is the caller's until `rbmq_topic_publish_segment` or `rbmq_topic_return_segment`; any thread may fill it.
// Several may be open: messages become visible in the order in which their room was taken, and later messages wait for it. One thread
// uses a topic at a time. Outcomes and errors as of `rbmq_topic_publish`.
rb_status rbmq_topic_claim(struct rbmq_topic *topic,
                           uint64_t bytes,
                           int64_t timeout_ns,
                           struct rbmq_segment *segment);

// As `rbmq_topic_claim`, for a message with attributes: `bytes` bytes are for its content. `attributes` may be NULL, and is read during the
// call.
rb_status rbmq_topic_claim_with(struct rbmq_topic *topic,
                                const struct rbmq_attributes *attributes,
                                uint64_t bytes,
                                int64_t timeout_ns,
                                struct rbmq_segment *segment);

// Publishes the first `bytes` bytes of a segment as a message. Only the newest open segment can be published with fewer bytes than it
// has. `*end` gets the position behind the message; `end` may be NULL. Never waits.
//
// `*segment` is nothing afterwards. One thread uses a topic at a time. Fails with `RB_ERR_SHORT_DELIVER` for a segment of another topic,
// for more bytes than there are, and for fewer bytes of a segment that is not the newest: `*segment` is then still the caller's.
rb_status rbmq_topic_publish_segment(struct rbmq_topic *topic,
                                     struct rbmq_segment *segment,
                                     uint64_t bytes,
                                     uint64_t *end);

// Gives the newest open segment back, and publishes nothing. One thread uses a topic at a time. Fails as
// `rbmq_topic_publish_segment`.
rb_status rbmq_topic_return_segment(struct rbmq_topic *topic, struct rbmq_segment *segment);

// Frees a segment that was not published, and makes `*segment` nothing. The topic cannot publish further unless the segment was the
// newest: give it back instead, while the topic is there. An empty segment does nothing. Any thread, one at a time.
rb_status rbmq_segment_free(struct rbmq_segment *segment);

// Waits until everything below `position`, which `rbmq_topic_publish` returned, is confirmed at `level` (`RBMQ_LEVEL_…`), at most
// `timeout_ns`. `confirmed` may be NULL.
//
// One thread uses a topic at a time. `RB_TIMED_OUT`: the text says how far it is confirmed, and the confirmation may still come.
// Fails with `RB_ERR_LOST`, `RB_ERR_TOO_FEW`, `RB_ERR_REFUSED`, `RB_ERR_NOT_PUBLISHED` or `RB_ERR_TOO_MANY`.
rb_status rbmq_topic_confirm(struct rbmq_topic *topic,
                             uint64_t position,
                             uint32_t at_level,
                             int64_t timeout_ns,
                             struct rbmq_confirmed *confirmed);

// Begins a confirmation of everything below `position`, without waiting for it.
//
// `*out` is the caller's, until `rbmq_confirmation_free`. One thread uses a topic at a time.
rb_status rbmq_topic_confirmation(struct rbmq_topic *topic,
                                  uint64_t position,
                                  uint32_t at_level,
                                  struct rbmq_confirmation **out);

// Waits for the result of a confirmation, at most `timeout_ns`; with 0 it only looks. `confirmed` may be NULL. Any thread. Fails as
// `rbmq_topic_confirm`, and with `RB_ERR_CLOSED` if the topic was closed before.
rb_status rbmq_confirmation_wait(const struct rbmq_confirmation *confirmation,
                                 struct rbmq_confirmed *confirmed,
                                 int64_t timeout_ns);

// Frees a confirmation, which has no effect on the records. NULL does nothing. Any thread.
rb_status rbmq_confirmation_free(struct rbmq_confirmation *confirmation);

// The position below which everything is confirmed at `level`. One thread uses a topic at a time.
rb_status rbmq_topic_confirmed(struct rbmq_topic *topic, uint32_t at_level, uint64_t *position);

// Why the broker's disk takes nothing of a kept topic at the moment, as far as the broker has said; an empty text if it works. As
// `snprintf` would write it. One thread uses a topic at a time.
rb_status rbmq_topic_disk_failure(struct rbmq_topic *topic,
                                  char *to,
                                  size_t capacity,
                                  size_t *len);

// Accepts a loss after `RB_ERR_LOST` or `RB_ERR_TOO_FEW`: confirmations of `level` continue behind the lost range, which `*from`
// and `*to` get; both may be NULL. Does nothing, and gives an empty range, if nothing is lost. One thread uses a topic at a time.
rb_status rbmq_topic_accept_lost(struct rbmq_topic *topic,
                                 uint32_t at_level,
                                 uint64_t *from,
                                 uint64_t *to);

// Joins a group of workers that share a kept topic, at a broker such as "127.0.0.1:7411": each message goes to one of them, until it is
// acknowledged. The group is made, with the options of this call, if it does not exist. Waits until the broker answers, at most
// `session.connect_timeout_ms` for the connection and for the group each. `options` may be NULL. The name of a group has 1 to 64 letters,
// digits, and `.`, `_` and `-`.
//
// `*out` is the caller's, until `rbmq_group_worker_close` or `rbmq_group_worker_free`. Any thread. Fails as `rbmq_subscriber_connect`; with
// `RB_ERR_NAME` for a topic or a group, with `RB_ERR_REFUSED` if the broker says no (the topic is not kept or has had no publisher yet, the
// user may not subscribe to it, the broker is a member of a cluster, a limit), and with `RB_ERR_DOWN` if the broker knows no groups.
rb_status rbmq_group_join(const char *address,
                          const char *topic,
                          const char *group,
                          const struct rbmq_group_options *given,
                          struct rbmq_group_worker **out);

// The next message, waiting at most `timeout_ns`. A broker that is away is waited for; one attempt to connect may take longer than the
// time-out. The calls that wait are those that connect again: call one of them now and then.
//
// `*message` is the caller's, until `rbmq_group_message_ack`, `…_nack`, `…_release` or `…_free`. Workers are for one thread at a time.
// `RB_TIMED_OUT` if nothing came. Fails with `RB_ERR_REFUSED` for good: the group was deleted, or the user may not read the topic any more.
rb_status rbmq_group_worker_recv(struct rbmq_group_worker *worker,
                                 struct rbmq_group_message **message,
                                 int64_t timeout_ns);

// Waits until everything that was acknowledged is in the broker's journal, so that a broker that is killed does not forget it; at most
// `timeout_ns`.
//
// Workers are for one thread at a time. `RB_TIMED_OUT`: the acknowledgements are told again when the broker answers. Fails with
// `RB_ERR_IN_VAIN`, once, if acknowledgements do not count, since the group was reset or the broker has no room for them; or as
// `rbmq_group_worker_recv`.
rb_status rbmq_group_worker_flush(struct rbmq_group_worker *worker,
                                  int64_t timeout_ns);

// The time for which a worker may have a message, in nanoseconds: that of the group, also if `ack_time_ns` of the options is another one. One
// thread uses a worker at a time.
rb_status rbmq_group_worker_ack_time(const struct rbmq_group_worker *worker,
                                     int64_t *ack_time_ns);

// 1 if there is a connection and the group is joined, 0 if not; below 0 is a status. Workers are for one thread at a time.
int rbmq_group_worker_is_joined(const struct rbmq_group_worker *worker);

// Gives back what was not received, waits until the broker has everything that was acknowledged, at most 2 s for each, and frees the
// handle in any case. A message that was received and has no word yet is a failed attempt.
//
// Workers are for one thread at a time. Outcomes and errors as of `rbmq_group_worker_flush`.
rb_status rbmq_group_worker_close(struct rbmq_group_worker *worker);

// As `rbmq_group_worker_close`, without an error and within 0.7 s. NULL does nothing.
rb_status rbmq_group_worker_free(struct rbmq_group_worker *worker);

// The content of a message. The pointers in `*content` are valid until the message is acknowledged, given back or freed. One thread uses a message
// at a time.
rb_status rbmq_group_message_get(const struct rbmq_group_message *message,
                                 struct rbmq_group_content *content);

// The message is done, and does not come again. Frees the message, and returns at once: `rbmq_group_worker_flush` waits until the broker has
// it. Any thread, one at a time.
rb_status rbmq_group_message_ack(struct rbmq_group_message *message);

// The message is not done: an attempt has failed. Others, or this worker, get it after `delay_ns`, at most 12 hours. Frees the message. Any
// thread, one at a time. Fails with `RB_ERR_ARGUMENT`, and the message is there as before, if the delay is negative.
rb_status rbmq_group_message_nack(struct rbmq_group_message *message,
                                  int64_t delay_ns);

// The worker gets `time_ns` from now on for the message, at most 12 hours. Without effect if its time was over already. Any thread, one at a
// time. Fails with `RB_ERR_ARGUMENT` if the time is negative.
rb_status rbmq_group_message_extend(const struct rbmq_group_message *message,
                                    int64_t time_ns);

// The worker has not begun with the message and gives it back, which is no failed attempt. Frees the message. Any thread, one at a time.
rb_status rbmq_group_message_release(struct rbmq_group_message *message);

// Frees a message without a word about it: others get it when the time of the group is over, which is a failed attempt. NULL does nothing.
// Any thread, one at a time.
rb_status rbmq_group_message_free(struct rbmq_group_message *message);

// Connects to a broker, to look after its groups, and waits until it accepts, at most `session.connect_timeout_ms`. `options` may be NULL. The
// connection is not made again: after `RB_ERR_DOWN` make another one.
//
// `*out` is the caller's, until `rbmq_groups_free`. Any thread. Fails as `rbmq_subscriber_connect`.
rb_status rbmq_groups_connect(const char *address,
                              const struct rbmq_groups_options *given,
                              struct rbmq_groups **out);

// All groups of the topics that the user may subscribe to, sorted by topic and name: `*rows` gets the first of `*count` rows.
//
// The rows belong to `groups`, and are valid until the next call with it. One thread uses it at a time. `RB_TIMED_OUT` if the broker does not
// answer within 10 s. Fails with `RB_ERR_DOWN`.
rb_status rbmq_groups_list(struct rbmq_groups *groups,
                           const struct rbmq_group_stats **rows,
                           size_t *count);

// Lets a group begin anew: at `start` (`RBMQ_GROUP_…`), with `RBMQ_GROUP_POSITION` at `position`. Its workers connect again, and what they have
// not acknowledged is forgotten.
//
// Calls with `groups` come from one thread at a time. Outcomes and errors as of `rbmq_groups_list`, and `RB_ERR_NAME`, or `RB_ERR_REFUSED` if there is no such
// group.
rb_status rbmq_groups_reset(struct rbmq_groups *groups,
                            const char *topic,
                            const char *group,
                            uint32_t start,
                            uint64_t position);

// Forgets a group: its workers end with an error. Calls with `groups` come from one thread at a time. Outcomes and errors as of `rbmq_groups_reset`.
rb_status rbmq_groups_delete(struct rbmq_groups *groups,
                             const char *topic,
                             const char *group);

// Closes the connection, and frees the handle. NULL does nothing.
rb_status rbmq_groups_free(struct rbmq_groups *groups);

// Connects to a broker, and waits until it accepts, at most `session.connect_timeout_ms`. `options` may be NULL. An observer does not
// reconnect: after `RB_ERR_DOWN` make another one.
//
// `*out` is the caller's, until `rbmq_observer_free`. Any thread. Fails as `rbmq_subscriber_connect`.
rb_status rbmq_observer_connect(const char *address,
                                const struct rbmq_observer_options *given,
                                struct rbmq_observer **out);

// The state of the broker as a whole.
//
// Its texts are valid until the next call on the observer. One thread uses an observer at a time. `RB_TIMED_OUT` if the broker did not
// answer in time. Fails with `RB_ERR_DOWN`, `RB_ERR_MALFORMED` or `RB_ERR_PROTOCOL`.
rb_status rbmq_observer_summary(struct rbmq_observer *observer,
                                struct rbmq_broker_summary *summary);

// The topics that a filter matches (NULL: all), sorted by name: `*topics` gets the first of `*count` rows.
//
// The rows are the observer's, and valid until the next call on it. One thread uses an observer at a time. Outcomes and errors as of
// `rbmq_observer_summary`, and `RB_ERR_NAME`.
rb_status rbmq_observer_topics(struct rbmq_observer *observer,
                               const char *filter,
                               const struct rbmq_topic_stats **topics,
                               size_t *count);

// The buffers of a topic with all their subscriptions, the oldest first: `*buffers` gets the first of `*count` rows. A topic that does not
// exist has none.
//
// The rows are the observer's, and valid until the next call on it. One thread uses an observer at a time. Outcomes and errors as of
// `rbmq_observer_topics`.
rb_status rbmq_observer_topic(struct rbmq_observer *observer,
                              const char *topic,
                              const struct rbmq_buffer_stats **buffers,
                              size_t *count);

// Closes the connection, and frees the observer. NULL does nothing.
rb_status rbmq_observer_free(struct rbmq_observer *observer);

// Connects to a broker, such as "127.0.0.1:7411". Waits until it accepts, at most `session.connect_timeout_ms`. `options` may be
// NULL.
//
// `*out` is the caller's, until `rbmq_publisher_close` or `rbmq_publisher_free`. Any thread. Fails with `RB_ERR_DOWN`,
// `RB_ERR_REFUSED`, `RB_ERR_CONFIG` or `RB_ERR_SYSTEM`; the text has the reason.
rb_status rbmq_publisher_connect(const char *address,
                                 const struct rbmq_publisher_options *given,
                                 struct rbmq_publisher **out);

// The next event, waiting at most `timeout_ns`; `RB_TIMED_OUT` if nothing happened. Events are collected from the first call of
// this function or of `rbmq_publisher_fd` on, at most 256. A program that ignores events needs neither. Any thread.
rb_status rbmq_publisher_next_event(const struct rbmq_publisher *publisher,
                                    struct rbmq_publisher_event *event,
                                    int64_t timeout_ns);

// A descriptor that is readable while `rbmq_publisher_next_event` would return an event, for an event loop, which only polls
// it. A program that must not wait publishes with the time-out 0, and tries again after `RBMQ_PUBLISHER_ROOM`. Returns a
// status below 0 if it fails.
//
// The descriptor belongs to the library and lives as long as the publisher. Any thread.
int rbmq_publisher_fd(const struct rbmq_publisher *publisher);

// 1 if the connection to the broker is up, 0 if not; below 0 is a status. Any thread.
int rbmq_publisher_is_connected(const struct rbmq_publisher *publisher);

// Closes the connection after the queued data, waiting at most `timeout_ns`, and frees the handle. Close the topics before. Any
// thread; fails with `RB_ERR_BUSY` while another call uses the publisher.
rb_status rbmq_publisher_close(struct rbmq_publisher *publisher,
                               int64_t timeout_ns);

// Frees a publisher's handle without waiting: the connection closes once its topics are freed too, and records that are still
// on their way may be lost. NULL does nothing. Any thread.
rb_status rbmq_publisher_free(struct rbmq_publisher *publisher);

// Opens a space by its pattern, such as "devices/#", and waits until the broker has taken it. `options` may be NULL; a space has records.
//
// All writers of a publisher to a space, and those of its topics, share one buffer: positions, confirmations, room and the number of
// subscribers are those of the log of the space. A writer costs nothing for each topic. `*out` is the caller's, until `rbmq_space_close` or
// `rbmq_space_free`; it keeps the connection open. Any thread. Fails with `RB_ERR_NAME`, `RB_ERR_MEMORY`, `RB_ERR_TOO_MANY`, or
// `RB_ERR_REFUSED`: the broker has no such space, among others.
rb_status rbmq_publisher_space(const struct rbmq_publisher *publisher,
                               const char *pattern,
                               const struct rbmq_topic_options *given,
                               struct rbmq_space **out);

// Publishes one record to a topic of the space, waiting at most `timeout_ns` while the ring is full. `attributes` may be NULL, and is read
// during the call; it names no topic. `*end` gets the position behind the record, in the log of the space, for `rbmq_space_confirm`; `end`
// may be NULL.
//
// The record is copied. One thread uses a space at a time. `RB_TIMED_OUT`: nothing was published. Fails with `RB_ERR_NAME` for a topic that
// is not in the space, with `RB_ERR_TOO_LARGE`, `RB_ERR_ARGUMENT`, `RB_ERR_REFUSED`, or `RB_ERR_BUSY` while a batch is open.
rb_status rbmq_space_publish_to(struct rbmq_space *space,
                                const char *topic,
                                const struct rbmq_attributes *attributes,
                                const void *record,
                                size_t len,
                                int64_t timeout_ns,
                                uint64_t *end);

// Begins a delivery of records of any topics of the space, with room for `room` bytes of records and their headers of 4 bytes; with the
// names of their topics they have at most `max_delivery_bytes`. Waits at most `timeout_ns` while the ring is full. Until it is delivered or
// cancelled, other calls on the space fail with `RB_ERR_BUSY`.
//
// A space is for one thread at a time. The errors are those of `rbmq_space_publish_to`.
rb_status rbmq_space_batch(struct rbmq_space *space,
                           uint64_t room,
                           int64_t timeout_ns);

// Adds a record of a topic to the open batch; `RB_FULL`, and nothing is added, if there is no room. `attributes` may be NULL, and is read
// during the call. The record is copied. One thread uses a space at a time. Fails as `rbmq_space_publish_to`.
rb_status rbmq_space_batch_push(struct rbmq_space *space,
                                const char *topic,
                                const struct rbmq_attributes *attributes,
                                const void *record,
                                size_t len);

// Publishes the open batch. `*end` gets the position behind it; `end` may be NULL. Other writers of the log may have taken the room: then
// the call waits as long as the one that began the batch was allowed to, and after `RB_TIMED_OUT` the batch is open as before. One thread
// uses a space at a time.
rb_status rbmq_space_batch_deliver(struct rbmq_space *space,
                                   uint64_t *end);

// Drops the open batch, and publishes nothing. Does nothing if none is open. One thread uses a space at a time.
rb_status rbmq_space_batch_cancel(struct rbmq_space *space);

// 1 if a topic is in the space: the pattern matches it, and no earlier rule of the broker does; 0 if not; below 0 is a status. One thread
// uses a space at a time.
int rbmq_space_contains(struct rbmq_space *space,
                        const char *topic);

// 1 if every topic that a filter matches is in the space, 0 if not; below 0 is a status. One thread uses a space at a time.
int rbmq_space_covers(struct rbmq_space *space,
                      const char *filter);

// The state of the log of the space. One thread uses a space at a time.
rb_status rbmq_space_get_info(struct rbmq_space *space, struct rbmq_topic_info *info);

// Waits until everything below `position`, which a call of this space returned, is confirmed at `level` (`RBMQ_LEVEL_…`), at most
// `timeout_ns`. `confirmed` may be NULL. One thread uses a space at a time. Outcomes and errors as of `rbmq_topic_confirm`.
rb_status rbmq_space_confirm(struct rbmq_space *space,
                             uint64_t position,
                             uint32_t at_level,
                             int64_t timeout_ns,
                             struct rbmq_confirmed *confirmed);

// Begins a confirmation of everything below `position`, without waiting for it.
//
// `*out` is the caller's, until `rbmq_confirmation_free`. One thread uses a space at a time.
rb_status rbmq_space_confirmation(struct rbmq_space *space,
                                  uint64_t position,
                                  uint32_t at_level,
                                  struct rbmq_confirmation **out);

// The position below which everything is confirmed at `level`. One thread uses a space at a time.
rb_status rbmq_space_confirmed(struct rbmq_space *space, uint32_t at_level, uint64_t *position);

// Why the broker's disk takes nothing of a kept space at the moment, as `rbmq_topic_disk_failure`. One thread uses a space at a time.
rb_status rbmq_space_disk_failure(struct rbmq_space *space,
                                  char *to,
                                  size_t capacity,
                                  size_t *len);

// Accepts a loss, as `rbmq_topic_accept_lost`, for all writers of the log. One thread uses a space at a time.
rb_status rbmq_space_accept_lost(struct rbmq_space *space, uint32_t at_level, uint64_t *from, uint64_t *to);

// Waits until the log of the space has `count` subscribers, at most `timeout_ns`. They receive everything that is published from then on.
// A space is for one thread at a time. The error is `RB_ERR_REFUSED`.
rb_status rbmq_space_wait_subscribers(struct rbmq_space *space,
                                      uint32_t count,
                                      int64_t timeout_ns);

// Waits until the broker has everything that was published, at most `timeout_ns`. One thread uses a space at a time. Fails with
// `RB_ERR_REFUSED`.
rb_status rbmq_space_flush(struct rbmq_space *space,
                           int64_t timeout_ns);

// Closes the writer: waits until the broker has everything, and if it is the last one of the log, its end, at most `timeout_ns`, and frees
// the handle in any case. `RB_TIMED_OUT`: the broker is away, and the writer was closed without waiting further.
rb_status rbmq_space_close(struct rbmq_space *space,
                           int64_t timeout_ns);

// Closes the writer without waiting, and frees the handle. NULL does nothing.
rb_status rbmq_space_free(struct rbmq_space *space);

// Connects to a broker, such as "127.0.0.1:7411". Waits until it accepts, at most `session.connect_timeout_ms`. `options` may be
// NULL.
//
// `*out` is the caller's, until `rbmq_subscriber_close` or `rbmq_subscriber_free`. Any thread. Fails with `RB_ERR_DOWN`,
// `RB_ERR_REFUSED`, `RB_ERR_NAME`, `RB_ERR_CONFIG` or `RB_ERR_SYSTEM`; the text has the reason.
rb_status rbmq_subscriber_connect(const char *address,
                                  const struct rbmq_subscriber_options *given,
                                  struct rbmq_subscriber **out);

// Subscribes to a topic, or to every topic that a filter matches (`+` is any one level, `#` the rest). `start` may be NULL: from
// the next message on. Topics need not exist yet. Returns without waiting for the broker.
//
// One thread uses a subscriber at a time. Fails with `RB_ERR_NAME`, or `RB_ERR_BUSY` while a batch is open.
rb_status rbmq_subscriber_subscribe(struct rbmq_subscriber *subscriber,
                                    const char *topics,
                                    const struct rbmq_start *start);

// Ends the subscription of a topic or filter, exactly as it was subscribed. Does nothing if there is none. One thread uses a
// subscriber at a time. Fails with `RB_ERR_NAME`, or `RB_ERR_BUSY` while a batch is open.
rb_status rbmq_subscriber_unsubscribe(struct rbmq_subscriber *subscriber,
                                      const char *topics);

// The next message in the memory where it landed, waiting at most `timeout_ns`. Consumes an open batch. The messages of a batch
// are consumed by the call that follows the last one.
//
// `*message` is valid until the next call on the subscriber. One thread uses a subscriber at a time. `RB_TIMED_OUT` if nothing
// came, `RB_END` if nothing came and every topic has ended. Fails with `RB_ERR_LOST`, `RB_ERR_GONE`, `RB_ERR_REFUSED` or
// `RB_ERR_MALFORMED`, once each, and the next call continues; with `RB_ERR_TAKEN_OVER` for good.
rb_status rbmq_subscriber_recv(struct rbmq_subscriber *subscriber,
                               struct rbmq_message *message,
                               int64_t timeout_ns);

// The next messages, several at once and in the memory where they landed, waiting at most `timeout_ns`. Consumes the batch before.
// `rbmq_subscriber_batch_records` has its records. After `rbmq_subscriber_recv` it begins with the messages that arrived together
// with the last one; in a merged topic with all messages of its run, at whose start alone a batch begins.
//
// `*batch` is valid until the batch is consumed: by `rbmq_subscriber_batch_consume`, or by the next call that receives. One thread
// uses a subscriber at a time. Outcomes and errors as of `rbmq_subscriber_recv`.
rb_status rbmq_subscriber_next_batch(struct rbmq_subscriber *subscriber,
                                     struct rbmq_batch *batch,
                                     int64_t timeout_ns);

// The next records of the open batch: at most `max` of them into `records`, and `*count` gets how many. `RB_END` if there are no
// more. A raw topic has none: use the bytes of the batch.
//
// The records are valid as long as the batch. One thread uses a subscriber at a time. Fails with `RB_ERR_MALFORMED`, once for each
// malformed piece, after the records before it; the next call continues behind it.
rb_status rbmq_subscriber_batch_records(struct rbmq_subscriber *subscriber,
                                        struct rbmq_record *records,
                                        size_t max,
                                        size_t *count);

// Consumes the open batch: its space returns to the publisher. Does nothing if none is open. One thread uses a subscriber at a
// time.
rb_status rbmq_subscriber_batch_consume(struct rbmq_subscriber *subscriber);

// Consumes the open batch's messages below `position`, which must be the end of a record. The others stay valid. One thread uses a
// subscriber at a time.
rb_status rbmq_subscriber_batch_consume_part(struct rbmq_subscriber *subscriber,
                                             uint64_t position);

// Ends the open batch, and consumes only its messages below `position`, which must be the end of a record. A durable subscriber
// that returns later resumes there. One thread uses a subscriber at a time.
rb_status rbmq_subscriber_batch_consume_up_to(struct rbmq_subscriber *subscriber,
                                              uint64_t position);

// Ends the open batch without consuming it: no space from here on returns to the publisher before `rbmq_deferred_consume`. The
// bytes of the batch are not valid any more.
//
// `*out` is the caller's, until `rbmq_deferred_consume` or `rbmq_deferred_free`. One thread uses a subscriber at a time.
rb_status rbmq_subscriber_batch_defer(struct rbmq_subscriber *subscriber,
                                      struct rbmq_deferred **out);

// Consumes a deferred batch and all earlier ones of its buffer, and frees it. Any thread, one at a time.
rb_status rbmq_deferred_consume(struct rbmq_deferred *deferred);

// Consumes a deferred batch's messages below `position`, which must be the end of a record, and all earlier batches of its buffer,
// and frees it. Any thread, one at a time.
rb_status rbmq_deferred_consume_up_to(struct rbmq_deferred *deferred,
                                      uint64_t position);

// The log of the publisher of a deferred batch. One thread uses a deferred batch at a time.
rb_status rbmq_deferred_epoch(const struct rbmq_deferred *deferred, struct rb_id128 *epoch);

// Frees a deferred batch without consuming it: consuming a later batch of the buffer consumes it too. NULL does nothing.
rb_status rbmq_deferred_free(struct rbmq_deferred *deferred);

// The next batch or other event, waiting at most `timeout_ns`; `RB_TIMED_OUT` if nothing came. Consumes the batch before.
//
// One thread uses a subscriber at a time. Fails with `RB_ERR_TAKEN_OVER`.
rb_status rbmq_subscriber_next_event(struct rbmq_subscriber *subscriber,
                                     struct rbmq_event *event,
                                     int64_t timeout_ns);

// A descriptor that is readable while a call that receives would return something, for an event loop, which only polls it. When it
// is readable, receive with the time-out 0 until `RB_TIMED_OUT`. Returns a status below 0 if it fails.
//
// The descriptor belongs to the library and lives as long as the subscriber. One thread uses a subscriber at a time.
int rbmq_subscriber_fd(struct rbmq_subscriber *subscriber);

// 1 if all subscribed topics have ended and were received, 0 if not; below 0 is a status. One thread uses a subscriber at a time.
int rbmq_subscriber_ended(struct rbmq_subscriber *subscriber);

// 1 if the connection to the broker is up, 0 if not; below 0 is a status. One thread uses a subscriber at a time.
int rbmq_subscriber_is_connected(struct rbmq_subscriber *subscriber);

// Ends the wait of another thread in a call that receives on the subscriber: that call, or the next one that has to look for more than the
// rest of a batch, fails with `RB_ERR_INTERRUPTED`, once. Nothing is lost, and the next call continues. Any thread, at any time; not in a handler
// of a signal.
rb_status rbmq_subscriber_interrupt(const struct rbmq_subscriber *subscriber);

// Calls `callback(ctx, RB_OK, message)` for every message, on a thread of the subscriber alone, one call at a time. The callback may wait:
// the subscriber's next messages wait too. What `rbmq_subscriber_recv` would return instead of a message is a call too, with its status,
// NULL as the message, and the text in `rb_last_error`. `RB_END`, `RB_ERR_DOWN` and `RB_ERR_TAKEN_OVER` are the last call.
//
// The message is valid until the callback returns, and is consumed by the call that follows the last one of its batch. Consumes an open batch.
// Subscribe before: while a callback is set, other calls on the subscriber fail with `RB_ERR_BUSY`, but `rbmq_subscriber_interrupt`,
// `rbmq_subscriber_unset_message_cb`, `rbmq_subscriber_close` and `rbmq_subscriber_free`. `ctx` is the caller's, and is used until one of the latter three
// has returned. One thread uses a subscriber at a time, and a call in the callback counts. Fails with `RB_ERR_BUSY` if a callback is set, and
// with `RB_ERR_SYSTEM` if the system refuses a thread.
rb_status rbmq_subscriber_set_message_cb(struct rbmq_subscriber *subscriber,
                                         rbmq_message_fn callback,
                                         void *ctx);

// Removes the callback: later messages wait for `rbmq_subscriber_recv`. When this has returned, no call of it runs and none begins: `ctx`
// may be freed. Inside the callback itself: once that call has returned. Does nothing if none is set. One thread uses a subscriber at a
// time.
rb_status rbmq_subscriber_unset_message_cb(struct rbmq_subscriber *subscriber);

// Closes the connection, waiting at most `timeout_ns`, and frees the handle. The messages that were handed out count as consumed. Waits for a
// callback that runs; in the callback it closes without waiting, once the callback has returned.
rb_status rbmq_subscriber_close(struct rbmq_subscriber *subscriber,
                                int64_t timeout_ns);

// Closes the connection without waiting, and frees the handle. The remaining messages of the current batch count as not consumed.
// NULL does nothing. Waits for a callback that runs, unless it is called in the callback.
rb_status rbmq_subscriber_free(struct rbmq_subscriber *subscriber);

// Opens a topic, and waits until the broker has taken it. `options` may be NULL.
//
// `*out` is the caller's, until `rbmq_topic_close` or `rbmq_topic_free`; it keeps the connection open. Any thread. Fails with
// `RB_ERR_NAME`, `RB_ERR_MEMORY`, `RB_ERR_TOO_MANY` or `RB_ERR_REFUSED`.
rb_status rbmq_publisher_topic(const struct rbmq_publisher *publisher,
                               const char *name,
                               const struct rbmq_topic_options *given,
                               struct rbmq_topic **out);

// Publishes one record, waiting at most `timeout_ns` while the ring is full. `*end` gets the position behind the record, for
// `rbmq_topic_confirm`; `end` may be NULL.
//
// The record is copied. One thread uses a topic at a time. `RB_TIMED_OUT`: nothing was published. Fails with `RB_ERR_TOO_LARGE`,
// `RB_ERR_WRONG_FRAMING`, `RB_ERR_REFUSED`, `RB_ERR_TOO_FEW`, or `RB_ERR_BUSY` while a batch is open.
rb_status rbmq_topic_publish(struct rbmq_topic *topic,
                             const void *record,
                             size_t len,
                             int64_t timeout_ns,
                             uint64_t *end);

// As `rbmq_topic_publish`, with what the record says about its content. `attributes` may be NULL, and is read during the call. Fails also with
// `RB_ERR_ARGUMENT` for texts that are not UTF-8.
rb_status rbmq_topic_publish_with(struct rbmq_topic *topic,
                                  const struct rbmq_attributes *attributes,
                                  const void *record,
                                  size_t len,
                                  int64_t timeout_ns,
                                  uint64_t *end);

// Publishes `count` records, as many in each delivery as fit: for tiny messages, as a call costs more than a message. Waits at
// most `timeout_ns` for each delivery. `*published` gets how many were published, also if the call fails or times out; `*end`
// the position behind the last one. Both may be NULL.
//
// One thread uses a topic at a time. Fails as `rbmq_topic_publish`.
rb_status rbmq_topic_publish_many(struct rbmq_topic *topic,
                                  const struct iovec *records,
                                  size_t count,
                                  int64_t timeout_ns,
                                  size_t *published,
                                  uint64_t *end);

// Publishes plain bytes, in a topic with `RBMQ_FRAMING_RAW`. Bytes that do not fit into one delivery make several. Waits without
// a limit while the ring is full. One thread uses a topic at a time. Fails as `rbmq_topic_publish`.
rb_status rbmq_topic_publish_raw(struct rbmq_topic *topic,
                                 const void *data,
                                 size_t len,
                                 uint64_t *end);

// Publishes raw bytes without a copy: `fill(ctx, to, capacity)` writes them into `capacity` bytes of the ring, inside this call,
// and returns how many it wrote. Waits at most `timeout_ns` while the ring is full. `*filled` gets what `fill` returned; below 0,
// nothing was published. `filled` may be NULL. One thread uses a topic at a time, and `fill` must not use it.
rb_status rbmq_topic_fill_raw(struct rbmq_topic *topic,
                              size_t capacity,
                              int64_t timeout_ns,
                              rbmq_fill_fn fill,
                              void *ctx,
                              ptrdiff_t *filled);

// Begins a delivery of many records, with room for `room` bytes of records and their headers of 4 bytes. Waits at most
// `timeout_ns` while the ring is full. Until it is delivered or cancelled, other calls on the topic fail with `RB_ERR_BUSY`.
//
// One thread uses a topic at a time. Fails as `rbmq_topic_publish`.
rb_status rbmq_topic_batch(struct rbmq_topic *topic,
                           uint64_t room,
                           int64_t timeout_ns);

// Adds a record to the open batch; `RB_FULL`, and nothing is added, if there is no room. The record is copied. One thread uses a
// topic at a time.
rb_status rbmq_topic_batch_push(struct rbmq_topic *topic,
                                const void *record,
                                size_t len);

// As `rbmq_topic_batch_push`, with what the record says about its content. `attributes` may be NULL, and is read during the call.
rb_status rbmq_topic_batch_push_with(struct rbmq_topic *topic,
                                     const struct rbmq_attributes *attributes,
                                     const void *record,
                                     size_t len);

// Adds any number of encoded records (a length of 4 bytes, little endian, and as many bytes, for each) to the open batch as one
// copy; `RB_FULL`, and nothing is added, if there is no room. They are not checked: malformed ones are errors at the subscribers.
// One thread uses a topic at a time.
rb_status rbmq_topic_batch_push_encoded(struct rbmq_topic *topic,
                                        const void *records,
                                        size_t len);

// Publishes the open batch. `*end` gets the position behind it; `end` may be NULL. In a topic of a space other writers may have taken the
// room: then the call waits as long as the one that began the batch was allowed to, and after `RB_TIMED_OUT` the batch is open as before.
// One thread uses a topic at a time.
rb_status rbmq_topic_batch_deliver(struct rbmq_topic *topic,
                                   uint64_t *end);

// Drops the open batch, and publishes nothing. Does nothing if none is open. One thread uses a topic at a time.
rb_status rbmq_topic_batch_cancel(struct rbmq_topic *topic);

// The state of the topic. One thread uses a topic at a time.
rb_status rbmq_topic_get_info(struct rbmq_topic *topic, struct rbmq_topic_info *info);

// Waits until the topic has `count` subscribers, at most `timeout_ns`. They receive everything that is published from then on.
// One thread uses a topic at a time. Fails with `RB_ERR_REFUSED`.
rb_status rbmq_topic_wait_subscribers(struct rbmq_topic *topic,
                                      uint32_t count,
                                      int64_t timeout_ns);

// Waits until the broker has everything that was published, at most `timeout_ns`. One thread uses a topic at a time. Fails with
// `RB_ERR_REFUSED`.
rb_status rbmq_topic_flush(struct rbmq_topic *topic,
                           int64_t timeout_ns);

// Closes the topic: waits until the broker has everything and the end of the topic, at most `timeout_ns`, and frees the handle in
// any case. `RB_TIMED_OUT`: the broker is away, and the topic was closed without waiting further.
rb_status rbmq_topic_close(struct rbmq_topic *topic,
                           int64_t timeout_ns);

// Closes the topic without waiting, and frees the handle. NULL does nothing.
rb_status rbmq_topic_free(struct rbmq_topic *topic);

// Makes the receiving end of this connection, which may already be up or not.
//
// `*out` is the caller's, until `rb_rin_free`. Any thread.
rb_status rb_rin_new(const struct rb_conn *conn, struct rb_rin **out);

// Frees an rIn's handle, which ends no subscription: the connection keeps them alive. NULL does nothing. Any thread.
//
// Callbacks that were set go on: remove those first whose `ctx` is to be freed.
rb_status rb_rin_free(struct rb_rin *rin);

// Resumes over another connection: every subscription continues where it stopped, or reports its loss. Any thread.
rb_status rb_rin_resume(const struct rb_rin *rin, const struct rb_conn *conn);

// A handle of the present connection.
//
// `*out` is the caller's, until `rb_conn_free`. Any thread.
rb_status rb_rin_conn(const struct rb_rin *rin, struct rb_conn **out);

// Subscribes to a buffer, from now on, into a ring of `size_bytes`. Returns at once; the sender's answer is an event:
// `RB_IN_SUBSCRIBED` or `RB_IN_REFUSED`.
//
// `out` may be NULL; `*out` is the caller's, until `rb_subscription_free`. Any thread. Fails with `RB_ERR_EXISTS`,
// `RB_ERR_TOO_LARGE` or `RB_ERR_TOO_MANY`.
rb_status rb_rin_subscribe(const struct rb_rin *rin, uint32_t bid, uint64_t size_bytes, struct rb_subscription **out);

// As `rb_rin_subscribe`, with options; NULL is the defaults. Any thread.
rb_status rb_rin_subscribe_with(const struct rb_rin *rin,
                                uint32_t bid,
                                const struct rb_subscribe_options *options,
                                struct rb_subscription **out);

// Ends the subscription of this buffer; see `rb_subscription_unsubscribe`. Does nothing if there is none. Any thread.
rb_status rb_rin_unsubscribe(const struct rb_rin *rin, uint32_t bid);

// A handle of the subscription of this buffer.
//
// `*out` is the caller's, until `rb_subscription_free`. Any thread. Fails with `RB_ERR_NOT_SUBSCRIBED`.
rb_status rb_rin_subscription(const struct rb_rin *rin, uint32_t bid, struct rb_subscription **out);

// The ids of the subscribed buffers in ascending order: at most `capacity` of them into `bids`, and `*count` gets how many
// there are. `bids` may be NULL if `capacity` is 0. Any thread.
rb_status rb_rin_subscriptions(const struct rb_rin *rin,
                               uint32_t *bids,
                               size_t capacity,
                               size_t *count);

// Calls `callback(ctx, bid, seg)` on a worker thread whenever new complete deliveries arrive: one or several, never part of
// one. Set it before subscribing. The bytes stay until `rb_rin_data_consumed` releases them.
//
// `ctx` is used until `rb_rin_unset_data_in_cb` has returned. Any thread.
rb_status rb_rin_set_data_in_cb(const struct rb_rin *rin,
                                rb_data_in_fn callback,
                                void *ctx);

// Removes the callback: later data waits for `rb_rin_recv`. When this has returned, no call of it runs on another thread and
// none begins: `ctx` may be freed. Inside the callback itself: once that call has returned. Any thread.
rb_status rb_rin_unset_data_in_cb(const struct rb_rin *rin);

// Calls `callback` on a worker thread for every event that is not data, including unreceived events from before it was set.
// Without a data callback, `RB_IN_CLOSED`, `RB_IN_GONE` and `RB_IN_LOST` wait until the data before them was received. `ctx` as for `rb_rin_set_data_in_cb`. Any thread.
rb_status rb_rin_set_event_cb(const struct rb_rin *rin,
                              rb_in_event_fn callback,
                              void *ctx);

// Removes the callback, as `rb_rin_unset_data_in_cb` does. Any thread.
rb_status rb_rin_unset_event_cb(const struct rb_rin *rin);

// Calls `callback` on a worker thread for every control message of the peer's application, including unread messages from
// before it was set. `ctx` as for `rb_rin_set_data_in_cb`. Any thread.
rb_status rb_rin_set_control_msg_cb(const struct rb_rin *rin,
                                    rb_rin_control_fn callback,
                                    void *ctx);

// Removes the callback, as `rb_rin_unset_data_in_cb` does. Any thread.
rb_status rb_rin_unset_control_msg_cb(const struct rb_rin *rin);

// Releases the oldest `size_bytes` of a buffer, so that the writer may use their space again (paper 1, section 3.3). Any
// thread. Fails with `RB_ERR_TOO_MUCH` or `RB_ERR_NOT_SUBSCRIBED`.
rb_status rb_rin_data_consumed(const struct rb_rin *rin,
                               uint32_t bid,
                               uint64_t size_bytes);

// All received bytes of a buffer that were not released.
//
// `data->view` is the caller's, until it is consumed or freed. Any thread. Fails with `RB_ERR_NOT_SUBSCRIBED`, also before the
// subscription was accepted.
rb_status rb_rin_get_buf_ref(const struct rb_rin *rin,
                             uint32_t bid,
                             struct rb_data *data);

// The next data or event of any subscription, waiting at most `timeout_ns`; `RB_TIMED_OUT` if nothing arrived. Not to be
// combined with a data callback.
//
// The view of data is the caller's. All other memory that `*event` points at is valid until this thread's next call that
// receives something. Any thread, and in a callback only with the time-out 0. Fails with `RB_ERR_READER_TAKEN`.
rb_status rb_rin_recv(const struct rb_rin *rin,
                      struct rb_in_event *event,
                      int64_t timeout_ns);

// A descriptor that is readable while `rb_rin_recv` would return something, for an event loop, which only polls it. Returns a
// status below 0 if it fails.
//
// The descriptor belongs to the library and lives as long as the rIn. Any thread.
int rb_rin_fd(const struct rb_rin *rin);

// Sends a control message of the application to the peer, in order with the data; see `rb_conn_send_control`. Any thread.
rb_status rb_rin_send_control(const struct rb_rin *rin,
                              const void *message,
                              size_t len);

// The exclusive reader of the rIn, which takes no lock for each delivery. While it exists `rb_rin_recv` fails.
//
// `*out` is the caller's, until `rb_reader_free`. Any thread. Fails with `RB_ERR_READER_TAKEN`.
rb_status rb_rin_reader(const struct rb_rin *rin, struct rb_reader **out);

// Hands the next data of any buffer to `each(ctx, bid, seg)`, which runs inside this call, and whose bytes are released when it
// returns. Or puts an event into `*event`. Waits at most `timeout_ns`. `*has_event` says which of both happened.
//
// The memory that `*event` points at is valid until this thread's next call that receives something. One thread uses a
// reader at a time, and `each` must not use the reader. `RB_TIMED_OUT` if nothing arrived.
rb_status rb_reader_recv(struct rb_reader *reader,
                         rb_data_in_fn each,
                         void *ctx,
                         struct rb_in_event *event,
                         bool *has_event,
                         int64_t timeout_ns);

// Gives the rIn back to `rb_rin_recv`, and frees the handle. NULL does nothing. Fails with `RB_ERR_BUSY` while another thread
// uses the reader.
rb_status rb_reader_free(struct rb_reader *reader);

// The id of a subscription's buffer. Any thread.
rb_status rb_subscription_bid(const struct rb_subscription *subscription, uint32_t *bid);

// The next data or event of this subscription, as `rb_rin_recv`. Everything else waits for its own call.
rb_status rb_subscription_recv(const struct rb_subscription *subscription,
                               struct rb_in_event *event,
                               int64_t timeout_ns);

// Releases the oldest `size_bytes`; see `rb_rin_data_consumed`. Any thread.
rb_status rb_subscription_consume(const struct rb_subscription *subscription, uint64_t size_bytes);

// All received bytes that were not released; see `rb_rin_get_buf_ref`. Any thread.
rb_status rb_subscription_buf_ref(const struct rb_subscription *subscription, struct rb_data *data);

// The state of the subscription. Any thread. Fails with `RB_ERR_NOT_ANSWERED` before the subscription is accepted.
rb_status rb_subscription_get_info(const struct rb_subscription *subscription, struct rb_subscription_info *info);

// Ends the subscription. Unread data and unreceived events are dropped. A second call changes nothing. Any thread.
rb_status rb_subscription_unsubscribe(const struct rb_subscription *subscription);

// Frees a subscription's handle, which does not end the subscription. NULL does nothing. Any thread.
rb_status rb_subscription_free(struct rb_subscription *subscription);

// Makes an rOut without buffers and connections.
//
// `*out` is the caller's, until `rb_rout_free`. Any thread.
rb_status rb_rout_new(const struct rb_context *context, struct rb_rout **out);

// Frees an rOut's handle. NULL does nothing. The buffers and their subscribers go on while a buffer's handle or a connection
// needs them. Any thread.
rb_status rb_rout_free(struct rb_rout *rout);

// Lets the other end of this connection subscribe to the buffers of the rOut. Any thread.
rb_status rb_rout_add_conn(const struct rb_rout *rout, const struct rb_conn *conn);

// Makes a buffer whose ring has `size_bytes`, rounded up to a power of two.
//
// `out` may be NULL; `*out` is the caller's, until `rb_buffer_free`. Any thread. Fails with `RB_ERR_EXISTS`, `RB_ERR_MEMORY`
// or `RB_ERR_TOO_MANY`.
rb_status rb_rout_create_buffer(const struct rb_rout *rout,
                                uint32_t bid,
                                uint64_t size_bytes,
                                struct rb_buffer **out);

// As `rb_rout_create_buffer`, with options; NULL is the defaults. Any thread.
rb_status rb_rout_create_buffer_with(const struct rb_rout *rout,
                                     uint32_t bid,
                                     const struct rb_buffer_options *options,
                                     struct rb_buffer **out);

// A handle of the buffer of this id.
//
// `*out` is the caller's, until `rb_buffer_free`. Any thread. Fails with `RB_ERR_NO_SUCH_BUFFER`.
rb_status rb_rout_buffer(const struct rb_rout *rout, uint32_t bid, struct rb_buffer **out);

// The ids of the buffers, in no order: at most `capacity` of them into `bids`, and `*count` gets how many there are. `bids`
// may be NULL if `capacity` is 0. Any thread.
rb_status rb_rout_buffers(const struct rb_rout *rout,
                          uint32_t *bids,
                          size_t capacity,
                          size_t *count);

// Ends the buffer of this id; see `rb_buffer_destroy`. Any thread. Fails with `RB_ERR_NO_SUCH_BUFFER`.
rb_status rb_rout_destroy_buffer(const struct rb_rout *rout, uint32_t bid, uint64_t *end);

// Takes the rIn's ring of buffer `bid` as a buffer of this rOut, with the same id: bytes that arrive there go out here
// without a copy (paper 1, section 3.4). A ring that exists before it is spliced keeps no history for subscribers that
// join later; see `rb_rout_splice_with`.
//
// `out` may be NULL; `*out` is the caller's, until `rb_buffer_free`. Any thread. Fails with `RB_ERR_EXISTS`,
// `RB_ERR_NO_SUCH_BUFFER`, `RB_ERR_SPLICED`, `RB_ERR_BUDGETED` or `RB_ERR_READER_TAKEN`.
rb_status rb_rout_splice(const struct rb_rout *rout, const struct rb_rin *rin, uint32_t bid, struct rb_buffer **out);

// As `rb_rout_splice`, under another id, as a broker with many publishers does. Any thread.
rb_status rb_rout_splice_as(const struct rb_rout *rout,
                            const struct rb_rin *rin,
                            uint32_t bid,
                            uint32_t out_bid,
                            struct rb_buffer **out);

// Subscribes the rIn to the sender's buffer `bid` and splices it to a buffer `out_bid` of this rOut, in one step: the ring has
// a history for subscribers that join later, and subscribers on this machine can map it. `options` may be NULL.
//
// `out` may be NULL; `*out` is the caller's, until `rb_buffer_free`. Any thread. Fails as `rb_rout_splice` and
// `rb_rin_subscribe`; a refusal of the sender comes as `RB_IN_REFUSED`.
rb_status rb_rout_splice_with(const struct rb_rout *rout,
                              const struct rb_rin *rin,
                              uint32_t bid,
                              uint32_t out_bid,
                              const struct rb_subscribe_options *options,
                              struct rb_buffer **out);

// A free segment of exactly `size` bytes (paper 1, Listing 2): fill it, and call `rb_rout_deliver`. With `blocking` it waits
// for room. `rb_buffer_segment` needs no look-up and has a time-out.
//
// The memory of `*seg` is the caller's until it is delivered. Any thread. `RB_FULL` if there is no room; fails as
// `rb_buffer_segment`.
rb_status rb_rout_get_output_segment(const struct rb_rout *rout,
                                     uint32_t bid,
                                     uint64_t size,
                                     bool blocking,
                                     struct rb_buf_seg *seg);

// Makes the first `size` bytes of a segment one delivery (paper 1, Listing 2); see `rb_buffer_deliver`. Any thread.
rb_status rb_rout_deliver(const struct rb_rout *rout,
                          struct rb_buf_seg *seg,
                          uint64_t size,
                          void *delivery,
                          uint64_t *end);

// Calls `callback(ctx, bid, delivery)` on a worker thread when a delivery that was given a context has landed with every
// subscriber that was there.
//
// `ctx` is used until `rb_rout_unset_data_out_cb` has returned. Any thread.
rb_status rb_rout_set_data_out_cb(const struct rb_rout *rout,
                                  rb_data_out_fn callback,
                                  void *ctx);

// Removes the callback. When this has returned, no call of it runs on another thread and none begins: `ctx` may be freed.
// Inside the callback itself: once that call has returned. Any thread.
rb_status rb_rout_unset_data_out_cb(const struct rb_rout *rout);

// Calls `callback` on a worker thread whenever a subscriber has told how far it is. `ctx` as for `rb_rout_set_data_out_cb`.
// Any thread.
rb_status rb_rout_set_subscriber_progress_cb(const struct rb_rout *rout,
                                             rb_subscriber_progress_fn callback,
                                             void *ctx);

// Removes the callback, as `rb_rout_unset_data_out_cb` does. Any thread.
rb_status rb_rout_unset_subscriber_progress_cb(const struct rb_rout *rout);

// Calls `callback` on a worker thread for every control message of the application at another end, also for those that came
// before it was set and were not received. `ctx` as for `rb_rout_set_data_out_cb`. Any thread.
rb_status rb_rout_set_control_msg_cb(const struct rb_rout *rout,
                                     rb_rout_control_fn callback,
                                     void *ctx);

// Removes the callback, as `rb_rout_unset_data_out_cb` does. Any thread.
rb_status rb_rout_unset_control_msg_cb(const struct rb_rout *rout);

// Calls `callback` on a worker thread for every event; for the events that wait already, inside this call. `ctx` as for
// `rb_rout_set_data_out_cb`. Any thread.
rb_status rb_rout_set_event_cb(const struct rb_rout *rout, rb_out_event_fn callback, void *ctx);

// Removes the callback, as `rb_rout_unset_data_out_cb` does: events wait for `rb_rout_recv_event`. Any thread.
rb_status rb_rout_unset_event_cb(const struct rb_rout *rout);

// The next event, waiting at most `timeout_ns`; `RB_TIMED_OUT` if nothing happened. Events with a callback of their own do not
// come here. At most 4,096 events wait; then the oldest is dropped, and `RB_OUT_MISSED` tells how many were.
//
// The memory that `*event` points at is valid until this thread's next call that receives something. Any thread.
rb_status rb_rout_recv_event(const struct rb_rout *rout,
                             struct rb_out_event *event,
                             int64_t timeout_ns);

// A descriptor that is readable while `rb_rout_recv_event` would return an event, for an event loop, which only polls it.
// Returns a status below 0 if it fails.
//
// The descriptor belongs to the library and lives as long as the rOut. Any thread.
int rb_rout_fd(const struct rb_rout *rout);

// Waits until every subscriber of every buffer has what was delivered, at most `timeout_ns`; see `rb_buffer_drain`. Any
// thread, and not inside a callback.
rb_status rb_rout_drain(const struct rb_rout *rout, int64_t timeout_ns);

// Sends a control message of the application over a connection that was given to this rOut; see `rb_conn_send_control`. Any
// thread.
rb_status rb_rout_send_control(const struct rb_rout *rout,
                               const struct rb_conn *conn,
                               const void *message,
                               size_t len);

// The traffic of all buffers that the rOut ever had. Any thread.
rb_status rb_rout_traffic(const struct rb_rout *rout, struct rb_traffic *traffic);

// The version of the library, such as "0.1.0". Lives as long as the program.
const char *rb_version(void);

// Holds received bytes for longer than the data callback that they were given to: they stay in place until the view is consumed or
// freed, also if they are released with `rb_rin_data_consumed` meanwhile.
//
// `*data` shows the bytes; its view is the caller's. Fails with `RB_ERR_OTHER` if they cannot be held (the buffer is spliced or has no
// flow control, or they were released already), and with `RB_ERR_ARGUMENT` outside of the callback.
rb_status rb_buf_seg_to_view(const struct rb_buf_seg *seg,
                             struct rb_data *data);

// Copies received bytes from `offset` on, inside the data callback that they were given to. Also where `vec_count` is 0.
//
// Fails with `RB_ERR_LAPPED` if the bytes were overwritten: the writer of a buffer without flow control was faster, or, in memory
// that another process writes, the writer gave the bytes up while a connection was lost. The copy is not valid then, and no other
// report of this loss follows. Fails with `RB_ERR_ARGUMENT` if there are fewer bytes, or outside of the callback.
rb_status rb_buf_seg_copy(const struct rb_buf_seg *seg,
                          size_t offset,
                          void *to,
                          size_t len);

// The description of a status code.
//
// Returns text that lives as long as the program, also for numbers that are no code. Any thread, at any time.
const char *rb_strerror(int32_t status);

// The text for people about the last call of this thread that failed (its code is below 0).
//
// Returns text that belongs to the library: always the same place for a thread, which is there until the thread has ended, and has the
// text of the last failure, at most 1,023 bytes. Empty if no call failed yet. Calls that succeed, and outcomes such as `RB_TIMED_OUT`,
// do not change it. Any thread, at any time.
const char *rb_last_error(void);

// Puts the bytes that a view shows now into `*data`, which is valid until the view is consumed or freed. One thread uses a
// view at a time.
rb_status rb_view_data(struct rb_view *view,
                       struct rb_data *data);

// Copies bytes from `offset` on. One thread uses a view at a time.
//
// Fails with `RB_ERR_LAPPED` if the bytes were overwritten: the writer of a buffer without flow control was faster, or, in memory
// that another process writes, the writer gave the bytes up while a connection was lost. The copy is not valid then, and no other
// report of this loss follows. Fails with `RB_ERR_ARGUMENT` if there are fewer bytes.
rb_status rb_view_copy(struct rb_view *view,
                       size_t offset,
                       void *to,
                       size_t len);

// The bytes in place, also in memory that other processes write: for programs that trust the publisher, and the relays on this
// machine, not to overwrite held bytes. Read each byte once: a hostile publisher may change it in between.
//
// `*piece` is valid until the view is consumed or freed. One thread uses a view at a time. Fails with `RB_ERR_LAPPED` if the
// buffer has no flow control.
rb_status rb_view_trusting(struct rb_view *view,
                           struct iovec *piece);

// Releases everything up to the end of the view, so that the writer may use the space again, and frees the handle. One thread
// uses a view at a time.
rb_status rb_view_consume(struct rb_view *view);

// Releases the bytes below `position`. The view no longer shows them; pointers to the others stay valid. One thread uses a view
// at a time.
rb_status rb_view_consume_part(struct rb_view *view,
                               uint64_t position);

// Releases the bytes below `position`, and frees the handle. Bytes after it are not released: a durable subscription that
// resumes gets them again. One thread uses a view at a time.
rb_status rb_view_consume_up_to(struct rb_view *view,
                                uint64_t position);

// Frees a view without releasing its bytes: consuming a later view of the buffer releases them too. NULL does nothing.
rb_status rb_view_free(struct rb_view *view);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ROCKETBUFS_H */
