// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/*
 * An input function: of messages that begin with a reading, a 32-bit number (little endian), only the readings outside of
 * [low, high] are stored. Sensors that repeat that all is well are not kept.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "multimqc.h"

/* The loader may set both. */
const volatile __u32 low = 100;
const volatile __u32 high = 200;

SEC("freplace/multimqc_input")
int drop_range(struct multimqc_message *message)
{
	__u32 reading;

	if (!message || message->length < sizeof(reading))
		return MULTIMQC_DROP;
	reading = message->data[0] | message->data[1] << 8 | message->data[2] << 16 | (__u32)message->data[3] << 24;
	return reading >= low && reading <= high ? MULTIMQC_DROP : MULTIMQC_KEEP;
}

char _license[] SEC("license") = "GPL";
