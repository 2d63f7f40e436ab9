// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/*
 * The kernel level in XDP: pushes are stored before the network stack sees them, and pulls are answered from where they arrive.
 */
#include "serve.h"

static __always_inline int copy_in(void *context, __u32 from, void *to, __u32 n)
{
	return bpf_xdp_load_bytes(context, from, to, n);
}

static __always_inline int copy_out(void *context, __u32 to, void *from, __u32 n)
{
	return bpf_xdp_store_bytes(context, to, from, n);
}

static __always_inline int serve_pull(struct xdp_md *context, struct frame *f, void *end, struct request *r, struct cpu *cpu)
{
	__u64 length = end - (void *)f;
	struct reply reply = { .cpu = cpu };
	__u32 headers = HEADERS, payload;
	__u32 n;

	KEEP(length);
	if (verify_checksums && check_sums(f, end, r->payload) == SUM_WRONG) {
		cpu->corrupt++;
		return XDP_PASS;
	}
	if (!find_reply(f, r, &reply))
		return XDP_PASS;
	if (r->headed)
		headers += sizeof(struct header);
	payload = headers - HEADERS + reply.n;
	/* A frame that cannot grow is left to the program in tcx. */
	if (HEADERS + payload != length && bpf_xdp_adjust_tail(context, (int)(HEADERS + payload - length)))
		return XDP_PASS;
	n = bounded(reply.n);
	if (!n || copy_out(context, headers, reply.from, n))
		return XDP_DROP;
	f = (struct frame *)(long)context->data;
	end = (void *)(long)context->data_end;
	if ((void *)(f + 1) > end)
		return XDP_DROP;
	if (r->headed) {
		struct header *h = (struct header *)(f + 1);

		if ((void *)(h + 1) > end)
			return XDP_DROP;
		reply_header(h, &reply);
	}
	reply_headers(f, payload, reply.sum, SUM_FULL);
	return confirm_reply(&reply, r->start) ? XDP_TX : XDP_DROP;
}

SEC("xdp")
int multimqc_xdp(struct xdp_md *context)
{
	void *end = (void *)(long)context->data_end;
	struct frame *f = (struct frame *)(long)context->data;
	struct request r = {};
	struct port *port;
	struct cpu *cpu;
	__u64 length = end - (void *)f;

	KEEP(length);
	if ((void *)(f + 1) > end)
		return XDP_PASS;
	port = port_of(f);
	if (!port || port->kind == PORT_NONE)
		return XDP_PASS;
	cpu = this_cpu(port->topic);
	if (!cpu)
		return XDP_PASS;
	if (f->fragment & bpf_htons(MORE_FRAGMENTS)) {
		cpu->fragments++;
		return XDP_PASS;
	}
	if (!parse(f, end, length, port, &r)) {
		cpu->malformed++;
		return XDP_PASS;
	}
	if (r.headed)
		cpu = this_cpu(r.topic);
	if (!cpu)
		return XDP_PASS;
	if (r.kind == PORT_PUSH)
		return serve_push(context, f, end, &r, cpu) == TAKEN ? XDP_DROP : XDP_PASS;
	return serve_pull(context, f, end, &r, cpu);
}

char _license[] SEC("license") = "GPL";
