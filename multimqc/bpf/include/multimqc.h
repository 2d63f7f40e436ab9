/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * The header of input and output functions.
 *
 * A function is an object file with one program, which calls no other function, and which the loader links into its own programs
 * in the place of multimqc_input or multimqc_output before it loads them:
 *
 *	SEC("freplace/multimqc_input")
 *	int my_function(struct multimqc_message *message)
 *
 * The function gets one message (input) or the bytes of one reply (output), may change them, and says whether they go on.
 */
#ifndef MULTIMQC_H
#define MULTIMQC_H

#include <linux/types.h>

/* The longest message that the kernel level stores, and the longest range that it replies with. */
#define MULTIMQC_MAX_MESSAGE 2047

struct multimqc_message {
	__u16 topic;
	/* 0 drops what the function was called for, and so does a length above MULTIMQC_MAX_MESSAGE. */
	__u16 length;
	/* The offset in the topic's log of a reply's first byte. 0 for a message, which has none yet. */
	__u64 offset;
	__u8 data[MULTIMQC_MAX_MESSAGE + 1];
};

/* What a function returns. */
enum multimqc_verdict {
	/* Store the message, or send the reply, as it is now. */
	MULTIMQC_KEEP = 0,
	/* Do not store the message. Leave the request to the next level. */
	MULTIMQC_DROP = 1,
};

#endif
