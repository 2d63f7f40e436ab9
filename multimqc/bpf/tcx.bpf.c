// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/*
 * The kernel level in tcx, on the way in: behind the program in XDP for replies that XDP cannot make, since a packet can grow
 * here; or alone.
 */
#include <linux/pkt_cls.h>

#include "serve.h"

static __always_inline int copy_in(void *context, __u32 from, void *to, __u32 n)
{
	return bpf_skb_load_bytes(context, from, to, n);
}

static __always_inline int copy_out(void *context, __u32 to, void *from, __u32 n)
{
	return bpf_skb_store_bytes(context, to, from, n, 0);
}

static __always_inline int serve_pull(struct __sk_buff *context, struct frame *f, void *end, struct request *r, struct cpu *cpu)
{
	struct reply reply = { .cpu = cpu };
	__u32 headers = HEADERS, payload, n;
	enum checksum form = check_sums(f, end, r->payload);

	if (form == SUM_WRONG) {
		if (verify_checksums && !behind_xdp)
			cpu->corrupt++;
		if (verify_checksums)
			return TC_ACT_UNSPEC;
		form = SUM_FULL;
	}
	if (!find_reply(f, r, &reply))
		return TC_ACT_UNSPEC;
	if (r->headed)
		headers += sizeof(struct header);
	payload = headers - HEADERS + reply.n;
	if (bpf_skb_change_tail(context, HEADERS + payload, 0))
		return TC_ACT_UNSPEC;
	n = bounded(reply.n);
	if (!n || copy_out(context, headers, reply.from, n) || bpf_skb_pull_data(context, headers))
		return TC_ACT_SHOT;
	f = (struct frame *)(long)context->data;
	end = (void *)(long)context->data_end;
	if ((void *)(f + 1) > end)
		return TC_ACT_SHOT;
	if (r->headed) {
		struct header *h = (struct header *)(f + 1);

		if ((void *)(h + 1) > end)
			return TC_ACT_SHOT;
		reply_header(h, &reply);
	}
	reply_headers(f, payload, reply.sum, form);
	if (!confirm_reply(&reply, r->start))
		return TC_ACT_SHOT;
	return bpf_redirect(context->ifindex, 0);
}

/* The frame, with `bytes` of it in one piece. */
static __always_inline struct frame *linear(struct __sk_buff *context, __u32 bytes, void **end)
{
	struct frame *f;

	if (context->data_end - context->data < bytes && bpf_skb_pull_data(context, bytes))
		return 0;
	f = (struct frame *)(long)context->data;
	*end = (void *)(long)context->data_end;
	return (void *)(f + 1) > *end ? 0 : f;
}

SEC("classifier")
int multimqc_tcx(struct __sk_buff *context)
{
	struct request r = {};
	struct port *port;
	struct frame *f;
	struct cpu *cpu;
	void *end;
	__u32 length = context->len;

	/* One packet for many datagrams: their ends are not known here. */
	if (context->gso_segs > 1 || context->vlan_present || length < HEADERS)
		return TC_ACT_UNSPEC;
	f = linear(context, HEADERS, &end);
	if (!f)
		return TC_ACT_UNSPEC;
	port = port_of(f);
	if (!port || port->kind == PORT_NONE)
		return TC_ACT_UNSPEC;
	cpu = this_cpu(port->topic);
	if (!cpu)
		return TC_ACT_UNSPEC;
	if (f->fragment & bpf_htons(MORE_FRAGMENTS)) {
		if (!behind_xdp)
			cpu->fragments++;
		return TC_ACT_UNSPEC;
	}
	if (length <= HEADERS + sizeof(struct header) + MULTIMQC_MAX_MESSAGE)
		f = linear(context, length, &end);
	if (!f)
		return TC_ACT_UNSPEC;
	if (!parse(f, end, length, port, &r)) {
		if (!behind_xdp)
			cpu->malformed++;
		return TC_ACT_UNSPEC;
	}
	if (r.headed)
		cpu = this_cpu(r.topic);
	if (!cpu)
		return TC_ACT_UNSPEC;
	if (r.kind == PORT_PUSH)
		return serve_push(context, f, end, &r, cpu) == TAKEN ? TC_ACT_SHOT : TC_ACT_UNSPEC;
	return serve_pull(context, f, end, &r, cpu);
}

char _license[] SEC("license") = "GPL";
