// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/*
 * A generator for measurements. The kernel runs it on copies of a frame, in memory that it uses again: what a receiver has made of a
 * frame is overwritten with the beginning of a new one, which then leaves through the interface.
 *
 *	| headers, 42 bytes | the first 22 bytes of the payload | the rest, as it is |
 *
 * With `numbered` the payload is a message of four words that all tell its number, so that a mixture of two messages is recognised.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define WORDS 8
#define HEADERS 42

/* The beginning of each frame. */
const volatile __u64 beginning[WORDS] = {};
const volatile __u32 numbered = 0;
/* The number of the next message. A generator runs on one CPU at a time. */
__u64 number = 1;

struct message {
	__u64 words[4];
} __attribute__((packed, aligned(2)));

SEC("xdp")
int multimqc_send(struct xdp_md *context)
{
	void *end = (void *)(long)context->data_end;
	void *data = (void *)(long)context->data;
	struct message *message = data + HEADERS;
	__u64 *words = data;

	if ((void *)(words + WORDS) > end)
		return XDP_DROP;
	for (int i = 0; i < WORDS; i++)
		words[i] = beginning[i];
	if (numbered) {
		__u64 n = number;

		if ((void *)(message + 1) > end)
			return XDP_DROP;
		number = n + 1;
		message->words[0] = n;
		message->words[1] = ~n;
		message->words[2] = n * 0x9e3779b97f4a7c15;
		message->words[3] = n ^ 0x5a5a5a5a5a5a5a5a;
	}
	return XDP_TX;
}

char _license[] SEC("license") = "GPL";
