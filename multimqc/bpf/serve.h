/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Pushes and pulls, the same for all programs that see whole frames. A program that includes this file has defined copy_in and
 * copy_out for its kind of context.
 */
#ifndef SERVE_H
#define SERVE_H

#include "packet.h"

static __always_inline int copy_out(void *context, __u32 to, void *from, __u32 n);

enum outcome {
	/* Leave the frame to the network stack. */
	UP,
	/* The message is stored, or dropped by the input function. */
	TAKEN,
	/* Send the reply. */
	REPLY,
};

/* What a reply is made of. */
struct reply {
	struct topic *topic;
	struct cpu *cpu;
	/* The bytes, and how many. */
	__u8 *from;
	__u32 n;
	/* Their ones' complement sum. */
	__u64 sum;
};

static __always_inline struct multimqc_message *scratch_message(void)
{
	__u32 zero = 0;
	struct scratch *found = bpf_map_lookup_elem(&scratch, &zero);

	return found ? &found->message : 0;
}

/* Shows a message to the input function, and stores what the function makes of it. */
static __always_inline int store_through_function(void *context, struct request *r, struct cpu *cpu)
{
	struct multimqc_message *m = scratch_message();
	__u32 n = bounded(r->n);
	struct topic *topic = bpf_map_lookup_elem(&topics, &r->topic);

	if (!m || !topic || !n || copy_in(context, r->at, m->data, n))
		return UP;
	m->topic = topic->id;
	m->length = n;
	m->offset = 0;
	if (multimqc_input(m) != MULTIMQC_KEEP || m->length == 0 || m->length > MULTIMQC_MAX_MESSAGE) {
		cpu->dropped++;
		return TAKEN;
	}
	return ring_store(context, m->data, r->topic, 0, m->length) ? UP : TAKEN;
}

static __always_inline int serve_push(void *context, struct frame *f, void *end, struct request *r, struct cpu *cpu)
{
	if (behind_xdp || r->n == 0)
		return UP;
	if (r->n > max_message || r->n > MULTIMQC_MAX_MESSAGE) {
		cpu->oversize++;
		return UP;
	}
	if (verify_checksums && check_sums(f, end, r->payload) == SUM_WRONG) {
		cpu->corrupt++;
		return UP;
	}
	if (has_input_function)
		return store_through_function(context, r, cpu);
	return ring_store(context, 0, r->topic, r->at, r->n) ? UP : TAKEN;
}

/* The output function's turn. The bytes are copied first, so that it gets nothing that is overwritten meanwhile. */
static __always_inline int through_output_function(struct reply *reply, struct request *r, __u32 limit)
{
	struct multimqc_message *m = scratch_message();
	struct bpf_dynptr source;
	__u32 n = bounded(reply->n);

	if (!m || !n || bpf_dynptr_from_mem(reply->from, MIRROR, 0, &source) || bpf_dynptr_read(m->data, n, &source, 0, 0))
		return 0;
	COUNT_AND_FENCE(reply->cpu->pad[0]);
	if (is_overwritten(reply->topic, r->start))
		return 0;
	m->topic = reply->topic->id;
	m->length = n;
	m->offset = r->start;
	if (multimqc_output(m) != MULTIMQC_KEEP || m->length == 0 || m->length > limit)
		return 0;
	reply->from = m->data;
	reply->n = bounded(m->length);
	return 1;
}

/* Finds the bytes of a reply, without a change of the frame. */
static __always_inline int find_reply(struct frame *f, struct request *r, struct reply *reply)
{
	__u8 *ring = bpf_map_lookup_elem(&rings, &r->topic);
	__u32 n = reply_limit(f, r);

	reply->topic = bpf_map_lookup_elem(&topics, &r->topic);
	if (!ring || !reply->topic || n > MULTIMQC_MAX_MESSAGE)
		return 0;
	if (n == 0 || is_reflection(f)) {
		if (!behind_xdp)
			reply->cpu->refused++;
		return 0;
	}
	if (r->epoch && r->epoch != reply->topic->epoch)
		return 0;
	if (!holds(reply->topic, reply->cpu, r->topic, r->start, n))
		return 0;
	reply->from = ring + (r->start & ring_mask);
	reply->n = n;
	if (has_output_function && !through_output_function(reply, r, n))
		return 0;
	reply->sum = sum_memory(reply->from, bounded(reply->n));
	return 1;
}

/* Fills in the header form of a reply, and adds its sum. */
static __always_inline void reply_header(struct header *h, struct reply *reply)
{
	__u16 *words = (__u16 *)h;

	h->kind = KIND_REPLY;
	h->status = 0;
	h->length = reply->n;
	h->epoch = reply->topic->epoch;
	for (int i = 0; i < sizeof(*h) / 2; i++)
		reply->sum += words[i];
}

/* The last step: whether the reply's bytes are still those that were asked for. */
static __always_inline int confirm_reply(struct reply *reply, __u64 start)
{
	COUNT_AND_FENCE(reply->cpu->hits);
	if (!has_output_function && is_overwritten(reply->topic, start)) {
		reply->cpu->hits--;
		reply->cpu->overwritten++;
		return 0;
	}
	reply->cpu->hit_bytes += reply->n;
	return 1;
}

#endif
