// Shared by the programs around the simulated NIC: bytes of wide signals, the DRAM.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <queue>
#include <vector>

#include "Vmultimqc_nic.h"
#include "verilated.h"

// As the model was built: scripts/nic defines them.
#ifndef NIC_PORTS
#define NIC_PORTS 4
#define NIC_PORT_BITS 64
#endif
constexpr int PORTS = NIC_PORTS;
constexpr int PORT_BYTES = NIC_PORT_BITS / 8;

using Bytes = std::vector<uint8_t>;

[[noreturn]] inline void fail(const char *why) {
    fprintf(stderr, "nic: %s\n", why);
    exit(2);
}

template <typename Wide> inline uint8_t byte_of(const Wide &wide, int at) { return wide[at / 4] >> (at % 4 * 8) & 255; }
template <typename Wide> inline void set_byte(Wide &wide, int at, uint8_t value) {
    wide[at / 4] = (wide[at / 4] & ~(255U << (at % 4 * 8))) | uint32_t(value) << (at % 4 * 8);
}

// The DRAM behind AXI4: answers after a fixed time, in order, a beat in each clock.
class Dram {
public:
    uint32_t latency = 60;

    void before(Vmultimqc_nic &nic, uint64_t now) {
        nic.m_axi_awready = 1;
        nic.m_axi_wready = 1;
        nic.m_axi_arready = 1;
        nic.m_axi_bvalid = !done.empty() && done.front() <= now;
        nic.m_axi_bresp = 0;
        nic.m_axi_rresp = 0;
        nic.m_axi_rvalid = !reads.empty() && reads.front().at <= now;
        if (nic.m_axi_rvalid) {
            const Bytes &row = rows[reads.front().row];
            for (int i = 0; i < 64; i++) set_byte(nic.m_axi_rdata, i, row.empty() ? 0 : row[i]);
            nic.m_axi_rlast = reads.front().last;
        }
    }

    void after(Vmultimqc_nic &nic, uint64_t now) {
        if (nic.m_axi_bvalid && nic.m_axi_bready) done.pop();
        if (nic.m_axi_rvalid && nic.m_axi_rready) reads.pop();
        if (nic.m_axi_awvalid) writes.push(nic.m_axi_awaddr / 64);
        if (nic.m_axi_wvalid) {
            data.emplace();
            for (int i = 0; i < 64; i++) data.back().bytes.push_back(byte_of(nic.m_axi_wdata, i));
            data.back().strobe = nic.m_axi_wstrb;
            data.back().last = nic.m_axi_wlast;
        }
        while (!writes.empty() && !data.empty()) {
            Bytes &row = rows[writes.front() + beat++];
            row.resize(64);
            for (int i = 0; i < 64; i++) if (data.front().strobe >> i & 1) row[i] = data.front().bytes[i];
            if (data.front().last) {
                writes.pop();
                beat = 0;
                done.push(now + latency);
            }
            data.pop();
        }
        if (nic.m_axi_arvalid) {
            for (int i = 0; i <= nic.m_axi_arlen; i++) {
                reads.push({nic.m_axi_araddr / 64 + i, now + latency, i == nic.m_axi_arlen});
            }
        }
    }

private:
    struct Data { Bytes bytes; uint64_t strobe; bool last; };
    struct Read { uint64_t row; uint64_t at; bool last; };
    std::map<uint64_t, Bytes> rows;
    std::queue<uint64_t> writes, done;
    std::queue<Data> data;
    std::queue<Read> reads;
    uint64_t beat = 0;
};
