/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * The rings: maps, and how programs on many CPUs write them and read them.
 *
 *	position      tail                    stable           head
 *	              |  can be read          |  being written |
 *	  ring  ------+-----------------------+----------------+------
 *	                                      ^ lowest slot of all CPUs
 *
 * A writer reserves with one fetch_add of `head` and never waits:
 *
 *	slot = head;  s = fetch_add(head, n);  copy to s;  fence;  slot = IDLE
 *
 * Its slot is not above s, so the bytes below min(head, slots) are complete. A reader loads `head` before the slots.
 * A reader checks `head` again after its copy: bytes below head - ring size may have been overwritten meanwhile.
 *
 * A writer that is stopped for long (a virtual CPU loses its core) may be lapped: then its late copy damages newer bytes. The
 * writer looks at `head` after its copy, and before it clears its slot it raises `floor` above the bytes that it may have
 * damaged. No reader was given those bytes before, since the slot held `stable` back.
 *
 * Memory of one topic:
 *
 *	| ring, a power of two | mirror of the first MIRROR bytes | room for a copy that begins in the mirror |
 *
 * so that every range of up to MIRROR bytes is one piece of memory for programs. User space maps the ring twice instead.
 */
#ifndef RING_H
#define RING_H

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "include/multimqc.h"

#define MIRROR (MULTIMQC_MAX_MESSAGE + 1)
#define IDLE (~0ULL)
/* Bytes of a length before a message. */
#define RECORD_HEADER 4
#define MAX_CPUS 1024
#define PORTS 65536
#define IDS 65536

#define READ_ONCE(x) (*(volatile typeof(x) *)&(x))
#define WRITE_ONCE(x, v) (*(volatile typeof(x) *)&(x) = (v))

/* A full fence: an atomic operation whose result is used is ordered in both directions on all machines. */
#define COUNT_AND_FENCE(x)                                            \
	do {                                                          \
		__u64 was = __sync_fetch_and_add(&(x), 1);            \
		asm volatile("" ::"r"(was) : "memory");               \
	} while (0)

/* Keeps the compiler from computing a value again, in a form that the verifier refuses. */
#define KEEP(x) asm volatile("" : "+r"(x))

/* Set before loading; constants for the verifier. */
const volatile __u64 ring_mask = 4095;
/* Slots of a topic: of each CPU, and of user space. */
const volatile __u32 writers_of_topic = 2;
/* Longest payload of a push that is stored, and of a reply. */
const volatile __u32 max_message = MULTIMQC_MAX_MESSAGE;
const volatile __u32 max_reply = 1472;
const volatile __u32 verify_checksums = 1;
/* Only datagrams to this address, if it is not 0. Network byte order. */
const volatile __u32 only_address = 0;
/* Requests of `address & trusted_mask == trusted_network` may get replies that are longer. Nobody: a network without mask. */
const volatile __u32 trusted_network = 1;
const volatile __u32 trusted_mask = 0;
/* Whether each message is stored behind its length, so that the log keeps where messages end. */
const volatile __u32 records = 0;
const volatile __u32 has_input_function = 0;
const volatile __u32 has_output_function = 0;
/* A program of the same topics runs before this one: it has stored the pushes and counted the misses. */
const volatile __u32 behind_xdp = 0;

struct topic {
	/* The end of what is reserved. */
	__u64 head;
	__u64 pad0[7];
	/* Raised by lapped writers: bytes below it may be damaged. */
	__u64 floor;
	/* A lower bound of the stable end; saves readers in the kernel the look at all slots. */
	__u64 stable;
	__u32 epoch;
	__u16 id;
	__u16 open;
	/* Notes of a reader in user space. */
	__u64 marks[4];
	__u64 pad1[1];
	/* User space is woken when the head reaches this position. Written by user space, taken by the kernel. */
	__u64 wake_at;
	__u64 pad2[7];
};

struct cpu {
	__u64 slot;
	__u64 stored;
	__u64 stored_bytes;
	__u64 hits;
	__u64 hit_bytes;
	__u64 misses;
	__u64 overwritten;
	__u64 lapped;
	__u64 dropped;
	__u64 oversize;
	__u64 corrupt;
	__u64 fragments;
	__u64 malformed;
	__u64 refused;
	__u64 pad[2];
};

/* A message on its way through a function, and room that lets the verifier bound a start and a length by themselves. */
struct scratch {
	struct multimqc_message message;
	__u8 room[MULTIMQC_MAX_MESSAGE + 1];
};

struct wake {
	__u32 topic;
	__u32 pad;
	__u64 head;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct topic);
} topics SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

/* The loader sets the size of a value. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, 4096 + 4096);
} rings SEC(".maps");

/* What a UDP port is for. */
enum port_kind {
	PORT_NONE = 0,
	PORT_PUSH = 1,
	PORT_PULL = 2,
	PORT_HEADER = 3,
};

struct port {
	__u16 kind;
	__u16 topic;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, PORTS);
	__type(key, __u32);
	__type(value, struct port);
} ports SEC(".maps");

/* The index of a topic id, plus 1. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, IDS);
	__type(key, __u32);
	__type(value, __u32);
} ids SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
} wakes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratch SEC(".maps");

/* The loader puts the code of a user's functions in the place of these. Weak: the compiler concludes nothing from their bodies. */
__attribute__((noinline, weak)) int multimqc_input(struct multimqc_message *message)
{
	volatile int verdict = MULTIMQC_KEEP;

	if (!message)
		return MULTIMQC_DROP;
	return verdict;
}

__attribute__((noinline, weak)) int multimqc_output(struct multimqc_message *message)
{
	volatile int verdict = MULTIMQC_KEEP;

	if (!message)
		return MULTIMQC_DROP;
	return verdict;
}

/* A length, with a bound that the verifier sees even where the compiler knows it already. */
static __always_inline __u32 bounded(__u32 n)
{
	KEEP(n);
	return n & MULTIMQC_MAX_MESSAGE;
}

static __always_inline struct cpu *cpu_of(__u32 topic, __u32 cpu)
{
	__u32 at = topic * writers_of_topic + cpu;

	return bpf_map_lookup_elem(&cpus, &at);
}

static __always_inline struct cpu *this_cpu(__u32 topic)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return cpu < writers_of_topic ? cpu_of(topic, cpu) : 0;
}

/* A writer was lapped: bytes up to the last that it may have damaged are lost. */
static __always_inline void raise_floor(struct topic *topic, __u64 to)
{
	for (int i = 0; i < 64; i++) {
		__u64 floor = READ_ONCE(topic->floor);

		if (floor >= to || __sync_val_compare_and_swap(&topic->floor, floor, to) == floor)
			return;
	}
}

static __always_inline void wake_reader(struct topic *topic, __u32 index, __u64 end)
{
	struct wake wake = { .topic = index, .head = end };

	/* One event for each wish to be woken. */
	if (__sync_lock_test_and_set(&topic->wake_at, IDLE) != IDLE)
		bpf_ringbuf_output(&wakes, &wake, sizeof(wake), BPF_RB_FORCE_WAKEUP);
}

/* Copies n bytes from a packet to memory: each kind of program has a helper of its own. */
static __always_inline int copy_in(void *context, __u32 from, void *to, __u32 n);

static __always_inline int copy_memory(__u8 *from, void *to, __u32 n)
{
	struct bpf_dynptr place;

	return bpf_dynptr_from_mem(to, n, 0, &place) || bpf_dynptr_write(&place, 0, from, n, 0);
}

/* Copies a part of what is stored: of `memory`, or of the packet if there is none. */
static __always_inline void copy_part(void *context, __u8 *memory, __u32 from, void *to, __u32 n)
{
	if (memory)
		copy_memory(memory + bounded(from), to, n);
	else
		copy_in(context, from, to, n);
}

/* Stores the length of a record, little endian, in the ring and where it falls on the mirror. */
static __always_inline void store_length(__u8 *ring, __u64 start, __u32 n)
{
	for (int i = 0; i < RECORD_HEADER; i++) {
		__u64 at = (start + i) & ring_mask;
		__u8 byte = n >> (8 * i);

		KEEP(at);
		at &= ring_mask;
		ring[at] = byte;
		if (at < MIRROR)
			ring[ring_mask + 1 + (at & (MIRROR - 1))] = byte;
	}
}

/* Stores n bytes from `from` on, of a packet, or of a struct multimqc_message's data. */
static __always_inline int ring_store(void *context, __u8 *memory, __u32 index, __u32 from, __u32 n)
{
	struct topic *topic = bpf_map_lookup_elem(&topics, &index);
	__u8 *ring = bpf_map_lookup_elem(&rings, &index);
	struct cpu *cpu = this_cpu(index);
	__u64 outer, start, at, size = ring_mask + 1;
	__u32 before = records ? RECORD_HEADER : 0;

	n = bounded(n);
	if (!topic || !ring || !cpu || !n)
		return -1;
	/* A program that interrupts another on its CPU leaves the slot of that one, which is lower, in place. */
	outer = cpu->slot;
	if (outer == IDLE)
		WRITE_ONCE(cpu->slot, READ_ONCE(topic->head));
	start = __sync_fetch_and_add(&topic->head, before + n);
	if (records)
		store_length(ring, start, n);
	at = (start + before) & ring_mask;
	copy_part(context, memory, from, ring + at, n);
	if (at + n > size) {
		__u32 rest = bounded(at + n - size);

		if (rest)
			copy_part(context, memory, from + n - rest, ring, rest);
	} else if (at < MIRROR) {
		copy_part(context, memory, from, ring + size + (at & (MIRROR - 1)), n);
	}
	COUNT_AND_FENCE(cpu->stored);
	if (READ_ONCE(topic->head) - start > size) {
		__u64 laps = (READ_ONCE(topic->head) - start) & ~ring_mask;

		cpu->lapped++;
		raise_floor(topic, start + laps + before + n);
	}
	/* Pairs with the acquire load of the slots in readers; the fence above orders the copy before it. */
	if (outer == IDLE)
		WRITE_ONCE(cpu->slot, IDLE);
	cpu->stored_bytes += before + n;
	if (start + before + n >= READ_ONCE(topic->wake_at))
		wake_reader(topic, index, start + before + n);
	return 0;
}

/* The end of the bytes that no writer is still copying. */
static __always_inline __u64 stable_end(struct topic *topic, struct cpu *cpu, __u32 index)
{
	__u64 end = READ_ONCE(topic->head);

	/* The slots are loaded after the head. */
	COUNT_AND_FENCE(cpu->pad[0]);
	for (__u32 i = 0; i < MAX_CPUS && i < writers_of_topic; i++) {
		struct cpu *other = cpu_of(index, i);
		__u64 slot;

		if (!other)
			break;
		slot = READ_ONCE(other->slot);
		if (slot < end)
			end = slot;
	}
	if (end > READ_ONCE(topic->stable))
		WRITE_ONCE(topic->stable, end);
	return end;
}

static __always_inline int is_overwritten(struct topic *topic, __u64 start)
{
	return READ_ONCE(topic->head) - start > ring_mask + 1 || start < READ_ONCE(topic->floor);
}

/* Whether all bytes of [start, start + n) are in the ring now. Counts the miss if they are not. */
static __always_inline int holds(struct topic *topic, struct cpu *cpu, __u32 index, __u64 start, __u32 n)
{
	__u64 end = start + n;

	if (end > READ_ONCE(topic->stable) && end > stable_end(topic, cpu, index)) {
		if (!behind_xdp)
			cpu->misses++;
		return 0;
	}
	if (is_overwritten(topic, start)) {
		if (!behind_xdp)
			cpu->overwritten++;
		return 0;
	}
	return 1;
}

/* The ones' complement sum of n bytes of map memory. */
static __always_inline __u64 sum_memory(__u8 *from, __u32 n)
{
	__u64 sum = 0;
	__u32 whole, rest = n & 3;

	/* Older kernels sum at most 512 bytes a call. */
	for (int i = 0; i < 4; i++) {
		if (n < 512)
			break;
		sum += (__u32)bpf_csum_diff(0, 0, (__be32 *)from, 512, 0);
		from += 512;
		n -= 512;
	}
	whole = n & 508;
	if (whole)
		sum += (__u32)bpf_csum_diff(0, 0, (__be32 *)from, whole, 0);
	from += whole;
	if (rest & 2) {
		sum += *(__u16 *)from;
		from += 2;
	}
	if (rest & 1)
		sum += bpf_htons((__u16)*from << 8);
	return sum;
}

static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

#endif
