// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/*
 * The kernel level in Netfilter's PREROUTING, where the paper has it. This level stores pushes. It cannot reply, so pulls go
 * up to the user-space level.
 */
#include "packet.h"

#define NF_DROP 0
#define NF_ACCEPT 1
#define IP_UDP_HEADERS 28

/* The only fields of these kernel types that are needed; the loader finds their offsets. */
struct sk_buff;
struct bpf_nf_ctx {
	const void *state;
	struct sk_buff *skb;
};

/*
 * The kernel function bpf_dynptr_from_skb, called by this number: the loader puts the identity of the running kernel's function
 * in its place.
 */
static long (*dynptr_from_skb)(struct sk_buff *skb, __u64 flags, struct bpf_dynptr *place) = (void *)0x6d7101;

static __always_inline int copy_in(void *context, __u32 from, void *to, __u32 n)
{
	return bpf_dynptr_read(to, n, context, from, 0);
}

/* A frame's headers from Ethernet's type on, as far as packets have them here. */
static __always_inline int read_headers(struct bpf_dynptr *packet, struct frame *f)
{
	__builtin_memset(f, 0, sizeof(*f));
	f->type = bpf_htons(ETH_IPV4);
	return bpf_dynptr_read(&f->version, IP_UDP_HEADERS, packet, 0, 0);
}

/* The ones' complement sum of a message. Programs of this kind may not call the helper that sums. */
static __always_inline __u64 sum_message(struct multimqc_message *m, __u32 n)
{
	__u64 sum = 0;
	__u32 at = 0, left = n & 7;

	for (; at < (MULTIMQC_MAX_MESSAGE + 1) / 8; at++) {
		__u64 word = ((__u64 *)m->data)[at];

		if (at * 8 + 8 > n)
			break;
		sum += (word & 0xffffffff) + (word >> 32);
	}
	for (int i = 0; i < 7 && i < left; i++) {
		__u8 byte = m->data[((n & ~7U) + i) & MULTIMQC_MAX_MESSAGE];

		sum += i & 1 ? bpf_htons(byte) : bpf_htons((__u16)byte << 8);
	}
	return sum;
}

static __always_inline int check_message(struct frame *f, struct multimqc_message *m, __u32 n, __u64 header_sum)
{
	__u64 sum;

	if (fold(sum_ip(f)) != 0xffff)
		return SUM_WRONG;
	if (f->sum == 0 || fold(sum_pseudo(f)) == f->sum)
		return SUM_FULL;
	sum = sum_pseudo(f) + f->source_port + f->port + f->length + f->sum + header_sum;
	return fold(sum + sum_message(m, n)) == 0xffff ? SUM_FULL : SUM_WRONG;
}

/* Reads where a push has its message, and the sum of the header form's bytes. False: leave the packet to the stack. */
static __always_inline int read_push(struct bpf_dynptr *packet, struct port *port, struct request *r, __u64 *header_sum)
{
	struct header h;
	__u16 *words = (__u16 *)&h;

	r->topic = port->topic;
	r->at = IP_UDP_HEADERS;
	r->n = r->payload;
	if (port->kind == PORT_PUSH)
		return 1;
	if (port->kind != PORT_HEADER || r->payload < sizeof(h) || bpf_dynptr_read(&h, sizeof(h), packet, r->at, 0))
		return 0;
	for (int i = 0; i < sizeof(h) / 2; i++)
		*header_sum += words[i];
	r->at += sizeof(h);
	r->n -= sizeof(h);
	return h.kind == KIND_PUSH && h.length == r->n && header_topic(&h, &r->topic);
}

static __always_inline int store(struct bpf_dynptr *packet, struct frame *f, struct request *r, __u64 header_sum)
{
	__u32 zero = 0, n = bounded(r->n);
	struct scratch *s = bpf_map_lookup_elem(&scratch, &zero);
	struct topic *topic = bpf_map_lookup_elem(&topics, &r->topic);
	struct cpu *cpu = this_cpu(r->topic);

	if (!s || !topic || !cpu || r->n == 0)
		return NF_ACCEPT;
	if (r->n > max_message || r->n > MULTIMQC_MAX_MESSAGE) {
		cpu->oversize++;
		return NF_ACCEPT;
	}
	if (!n || bpf_dynptr_read(s->message.data, n, packet, r->at, 0))
		return NF_ACCEPT;
	if (verify_checksums && check_message(f, &s->message, n, header_sum) == SUM_WRONG) {
		cpu->corrupt++;
		return NF_ACCEPT;
	}
	if (has_input_function) {
		s->message.topic = topic->id;
		s->message.length = n;
		s->message.offset = 0;
		n = multimqc_input(&s->message) == MULTIMQC_KEEP ? s->message.length : 0;
		if (n == 0 || n > MULTIMQC_MAX_MESSAGE) {
			cpu->dropped++;
			return NF_DROP;
		}
	}
	return ring_store(packet, s->message.data, r->topic, 0, n) ? NF_ACCEPT : NF_DROP;
}

/* The parser of objects knows no section of this kind of program. The loader gives the program its type. */
SEC("classifier")
int multimqc_netfilter(struct bpf_nf_ctx *context)
{
	struct bpf_dynptr packet;
	struct request r = {};
	struct port *port;
	struct frame f;
	struct cpu *cpu;
	__u64 header_sum = 0;
	__u32 length;

	if (dynptr_from_skb(context->skb, 0, &packet) || read_headers(&packet, &f))
		return NF_ACCEPT;
	port = port_of(&f);
	if (!port || port->kind == PORT_NONE)
		return NF_ACCEPT;
	if (f.fragment & bpf_htons(MORE_FRAGMENTS)) {
		cpu = this_cpu(port->topic);
		if (cpu)
			cpu->fragments++;
		return NF_ACCEPT;
	}
	length = bpf_ntohs(f.length);
	if (length < 8 || bpf_ntohs(f.total) != length + 20)
		return NF_ACCEPT;
	r.payload = length - 8;
	if (!read_push(&packet, port, &r, &header_sum))
		return NF_ACCEPT;
	return store(&packet, &f, &r, header_sum);
}

char _license[] SEC("license") = "GPL";
