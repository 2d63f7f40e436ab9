/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Datagrams in Ethernet frames: what is taken, and the headers of a reply.
 *
 * Taken are UDP datagrams over IPv4 without options and without a VLAN tag, whole, with right checksums. Everything else is left
 * to the network stack as it came.
 */
#ifndef PACKET_H
#define PACKET_H

#include "ring.h"

#define ETH_IPV4 0x0800
#define UDP_PROTOCOL 17
#define MORE_FRAGMENTS 0x2000
#define FRAGMENT_OFFSET 0x1fff
#define HEADERS 42

struct frame {
	__u8 to[6];
	__u8 from[6];
	__be16 type;
	__u8 version;
	__u8 tos;
	__be16 total;
	__be16 id;
	__be16 fragment;
	__u8 ttl;
	__u8 protocol;
	__sum16 ip_sum;
	__be32 source;
	__be32 destination;
	__be16 source_port;
	__be16 port;
	__be16 length;
	__sum16 sum;
} __attribute__((packed, aligned(2)));

_Static_assert(sizeof(struct frame) == HEADERS, "the frame is packed");

/* The first bytes of a pull in the plain form. Little endian. */
struct plain_pull {
	__u64 start;
	__u64 length;
};

/* The header form. Little endian. */
struct header {
	__u8 magic[2];
	__u8 version;
	__u8 kind;
	__u16 topic;
	__u16 status;
	__u32 cookie;
	__u32 sequence;
	__u64 offset;
	__u32 length;
	__u32 epoch;
};

_Static_assert(sizeof(struct header) == 32, "the header has no gaps");

enum kind { KIND_PUSH = 1, KIND_PULL = 2, KIND_REPLY = 3 };

#define MAX_OFFSET (~0ULL >> 1)

/* What a datagram is for. */
struct request {
	__u32 topic;
	/* PORT_PUSH or PORT_PULL */
	__u16 kind;
	/* Whether it has the header form. */
	__u16 headed;
	/* Bytes of the UDP payload. */
	__u32 payload;
	/* Of a push: where its message begins in the frame, and its length. */
	__u32 at;
	__u32 n;
	/* Of a pull. */
	__u64 start;
	__u64 length;
	__u32 epoch;
};

/* How a checksum is right. */
enum checksum { SUM_WRONG, SUM_FULL, SUM_PARTIAL };

static __always_inline __u64 sum_ip(struct frame *f)
{
	__u16 *words = (__u16 *)&f->version;
	__u64 sum = 0;

	for (int i = 0; i < 10; i++)
		sum += words[i];
	return sum;
}

static __always_inline __u64 sum_pseudo(struct frame *f)
{
	return (__u64)f->source + f->destination + bpf_htons(UDP_PROTOCOL) + f->length;
}

/* The sum of n bytes of a packet. Wrong, and so refused, if the packet has fewer. */
static __always_inline __u64 sum_packet(__u8 *p, void *end, __u32 n)
{
	__u64 sum = 0;

	for (int i = 0; i < 4; i++) {
		if (n < 512 || (void *)(p + 512) > end)
			break;
		sum += (__u32)bpf_csum_diff(0, 0, (__be32 *)p, 512, 0);
		p += 512;
		n -= 512;
	}
	for (int i = 0; i < 16; i++) {
		__u32 *words = (__u32 *)p;

		if (n < 32 || (void *)(p + 32) > end)
			break;
		for (int j = 0; j < 8; j++)
			sum += words[j];
		p += 32;
		n -= 32;
	}
	for (int i = 0; i < 15; i++) {
		if (n < 2 || (void *)(p + 2) > end)
			break;
		sum += *(__u16 *)p;
		p += 2;
		n -= 2;
	}
	if (n == 1 && (void *)(p + 1) <= end)
		sum += bpf_htons((__u16)*p << 8);
	return sum;
}

/*
 * A sender on this machine leaves the checksum to a network card, which a virtual device does not have: then the field has the
 * sum of the pseudo header only, and the datagram has not been on a wire.
 */
static __always_inline enum checksum check_sums(struct frame *f, void *end, __u32 payload)
{
	__u64 sum;

	if (fold(sum_ip(f)) != 0xffff)
		return SUM_WRONG;
	if (f->sum == 0)
		return SUM_FULL;
	sum = sum_pseudo(f) + f->source_port + f->port + f->length + f->sum;
	sum += sum_packet((__u8 *)(f + 1), end, payload);
	if (fold(sum) == 0xffff)
		return SUM_FULL;
	return fold(sum_pseudo(f)) == f->sum ? SUM_PARTIAL : SUM_WRONG;
}

/* The port that a frame goes to, if it is a datagram that may be for a topic. */
static __always_inline struct port *port_of(struct frame *f)
{
	__u32 port;

	if (f->type != bpf_htons(ETH_IPV4) || f->version != 0x45 || f->protocol != UDP_PROTOCOL)
		return 0;
	/* Only the first fragment has ports. */
	if (f->fragment & bpf_htons(FRAGMENT_OFFSET))
		return 0;
	if (only_address && f->destination != only_address)
		return 0;
	/* Nobody answers a multicast, a broadcast or a frame for a group. */
	if ((f->destination & bpf_htonl(0xe0000000)) == bpf_htonl(0xe0000000) || (f->to[0] & 1))
		return 0;
	port = bpf_ntohs(f->port);
	return bpf_map_lookup_elem(&ports, &port);
}

/* The topic that a header names. */
static __always_inline int header_topic(struct header *h, __u32 *topic)
{
	__u32 id = h->topic;
	__u32 *found;

	if (h->magic[0] != 'M' || h->magic[1] != 'Q' || h->version != 1)
		return 0;
	found = bpf_map_lookup_elem(&ids, &id);
	if (!found || !*found)
		return 0;
	*topic = *found - 1;
	return 1;
}

static __always_inline int parse_header(struct frame *f, void *end, struct request *r)
{
	struct header *h = (struct header *)(f + 1);

	if ((void *)(h + 1) > end || r->payload < sizeof(*h) || !header_topic(h, &r->topic))
		return 0;
	r->headed = 1;
	r->at = HEADERS + sizeof(*h);
	r->n = r->payload - sizeof(*h);
	if (h->kind == KIND_PUSH) {
		r->kind = PORT_PUSH;
		return r->n > 0 && h->length == r->n;
	}
	r->kind = PORT_PULL;
	r->start = h->offset;
	r->length = h->length;
	r->epoch = h->epoch;
	return h->kind == KIND_PULL && r->start <= MAX_OFFSET;
}

static __always_inline int parse_plain(struct frame *f, void *end, struct request *r)
{
	struct plain_pull *pull = (struct plain_pull *)(f + 1);

	r->headed = 0;
	r->at = HEADERS;
	r->n = r->payload;
	if (r->kind == PORT_PUSH)
		return 1;
	if ((void *)(pull + 1) > end || r->payload < sizeof(*pull))
		return 0;
	r->start = pull->start;
	r->length = pull->length;
	r->epoch = 0;
	return r->start <= MAX_OFFSET;
}

/* Reads the request in a frame to one of our ports. False: leave the frame to the network stack. */
static __always_inline int parse(struct frame *f, void *end, __u64 frame_length, struct port *port, struct request *r)
{
	__u32 length = bpf_ntohs(f->length), total = bpf_ntohs(f->total);

	if (length < 8 || total != length + 20 || total + 14 > frame_length)
		return 0;
	r->payload = length - 8;
	r->topic = port->topic;
	r->kind = port->kind;
	return port->kind == PORT_HEADER ? parse_header(f, end, r) : parse_plain(f, end, r);
}

/* The bytes that a reply to this request may have. */
static __always_inline __u32 reply_limit(struct frame *f, struct request *r)
{
	__u32 limit = max_reply;

	if ((f->source & trusted_mask) != trusted_network && limit > r->payload)
		limit = r->payload;
	if (r->headed)
		limit = limit > sizeof(struct header) ? limit - sizeof(struct header) : 0;
	return r->length < limit ? r->length : limit;
}

/* A port of ours as the source: the reply would be a request again, for ever. */
static __always_inline int is_reflection(struct frame *f)
{
	__u32 source = bpf_ntohs(f->source_port);
	struct port *port = bpf_map_lookup_elem(&ports, &source);

	return !port || port->kind != PORT_NONE || source == 0;
}

/* Turns the headers of a request into those of its reply, whose payload sums up to `sum`. */
static __always_inline void reply_headers(struct frame *f, __u32 payload, __u64 sum, enum checksum form)
{
	__u8 mac[6];
	__be32 address = f->source;
	__be16 port = f->source_port;

	__builtin_memcpy(mac, f->from, 6);
	__builtin_memcpy(f->from, f->to, 6);
	__builtin_memcpy(f->to, mac, 6);
	f->source = f->destination;
	f->destination = address;
	f->source_port = f->port;
	f->port = port;
	f->tos = 0;
	f->total = bpf_htons(payload + 28);
	f->id = 0;
	f->fragment = bpf_htons(0x4000);
	f->ttl = 64;
	f->ip_sum = 0;
	f->ip_sum = ~fold(sum_ip(f));
	f->length = bpf_htons(payload + 8);
	if (form == SUM_PARTIAL) {
		f->sum = fold(sum_pseudo(f));
		return;
	}
	sum += sum_pseudo(f) + f->source_port + f->port + f->length;
	f->sum = ~fold(sum);
	if (f->sum == 0)
		f->sum = 0xffff;
}

#endif
