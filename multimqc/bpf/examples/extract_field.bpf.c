// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/*
 * An output function: of a range of records of equal size, a reply has one field of each record. The log keeps the records
 * whole. A range that does not begin and end with a record is answered by the next level.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "multimqc.h"

/* The loader may set them. The field has 4 bytes. */
const volatile __u32 record_bytes = 32;
const volatile __u32 field_at = 8;

#define FIELD_BYTES 4
#define MAX_RECORDS 512

SEC("freplace/multimqc_output")
int extract_field(struct multimqc_message *message)
{
	__u32 records = 0, length;

	if (!message)
		return MULTIMQC_DROP;
	length = message->length;
	if (record_bytes < FIELD_BYTES || field_at > record_bytes - FIELD_BYTES || length % record_bytes != 0 ||
	    message->offset % record_bytes != 0)
		return MULTIMQC_DROP;
	for (__u32 i = 0; i < MAX_RECORDS; i++) {
		__u32 from = i * record_bytes + field_at;

		if (i * record_bytes >= length || from > MULTIMQC_MAX_MESSAGE + 1 - FIELD_BYTES)
			break;
		for (__u32 j = 0; j < FIELD_BYTES; j++)
			message->data[i * FIELD_BYTES + j] = message->data[from + j];
		records++;
	}
	message->length = records * FIELD_BYTES;
	return MULTIMQC_KEEP;
}

char _license[] SEC("license") = "GPL";
