// Runs a script of frames and register accesses through the simulated NIC, as fast as Verilator goes, and writes all that came out.
//
//     nic_bench SCRIPT RESULT
//
// Both are binary, little endian; nic.py writes and reads them. The operations of a script are done in their order:
//
//     W u32 address, u32 value        write a register
//     R u32 address                   read a register                       -> R u32 address, u32 value
//     S u32 seed, u8 host, u8 port    outputs are ready in so many of 256 clocks, and inputs have gaps as likely
//     F u8 port, u8 flags, u32 gap, u32 length, bytes   a frame from the network, `gap` clocks after the last (flags: 1 broken,
//                                     2 follow without the wire's pause)    -> I u8 port, u64 first clock, u64 last clock
//     H u8 port, u32 length, bytes    a frame from the host
//     B u32 clocks                    until all was sent and nothing came out for so many clocks
//     D u32 clocks                    the DRAM answers after so many clocks
//
// Output: P u8 port, u64 first clock, u64 last clock, u32 length, bytes: to the network; O u8 user, u64, u64, u32, bytes: to the
// host; E u64 clocks.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <vector>

#include "model.h"
#if VM_TRACE
#include "verilated_vcd_c.h"
#endif
#if VM_COVERAGE
#include <unistd.h>

#include "verilated_cov.h"
#endif

namespace {

// Ethernet adds these bytes to a frame on the wire: preamble 8, checksum 4, pause 12.
constexpr int WIRE_BYTES = 24;
// Time on the wire is counted in parts of a byte, so that both numbers are whole: 10 GbE at 156.25 MHz, and 25 GbE at 390.625 MHz, move 8
// bytes in a clock, 100 GbE at 322.265625 MHz moves 1,280 / 33.
constexpr int64_t PARTS_OF_BYTE = PORT_BYTES == 64 ? 33 : 1;
constexpr int64_t PARTS_IN_CLOCK = PORT_BYTES == 64 ? 1280 : 8;

// The time that a frame of so many bytes takes.
constexpr int64_t wire_time(size_t bytes) { return int64_t(bytes + WIRE_BYTES) * PARTS_OF_BYTE; }

struct Frame {
    Bytes bytes;
    uint8_t flags = 0;
    uint32_t gap = 0;
};

// The script.
class Reader {
public:
    explicit Reader(const char *path) : file(fopen(path, "rb")) {
        if (!file) fail("the script cannot be opened");
    }
    bool more() {
        int c = fgetc(file);
        if (c == EOF) return false;
        ungetc(c, file);
        return true;
    }
    uint8_t u8() { uint8_t v; get(&v, 1); return v; }
    uint32_t u32() { uint32_t v; get(&v, 4); return v; }
    Bytes bytes(uint32_t n) { Bytes v(n); get(v.data(), n); return v; }

private:
    void get(void *to, size_t n) {
        if (fread(to, 1, n, file) != n) fail("the script ends in the middle");
    }
    FILE *file;
};

class Writer {
public:
    explicit Writer(const char *path) : file(fopen(path, "wb")) {
        if (!file) fail("the result cannot be written");
    }
    ~Writer() { fclose(file); }
    void u8(uint8_t v) { fwrite(&v, 1, 1, file); }
    void u32(uint32_t v) { fwrite(&v, 4, 1, file); }
    void u64(uint64_t v) { fwrite(&v, 8, 1, file); }
    void bytes(const Bytes &v) { fwrite(v.data(), 1, v.size(), file); }

private:
    FILE *file;
};

struct Random {
    uint64_t state = 1;
    // 0 to 255.
    unsigned byte() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return state >> 32 & 255;
    }
};

// A frame that is being taken from an output.
struct Collector {
    Bytes bytes;
    uint64_t first = 0;
    void add(uint64_t now, uint8_t byte) {
        if (bytes.empty()) first = now;
        bytes.push_back(byte);
    }
};

class Bench {
public:
    Bench(const char *script, const char *result) : in(script), out(result) {
        nic.rst = 1;
        nic.m_host_tready = 1;
        nic.m_port_tready = (1U << PORTS) - 1;
        // Inputs begin with random values too: an access of nobody would be in the way of the first.
        nic.s_axil_awvalid = nic.s_axil_wvalid = nic.s_axil_arvalid = 0;
        for (int i = 0; i < 10; i++) clock();
        nic.rst = 0;
        // The counters are cleared.
        for (int i = 0; i < 5000; i++) clock();
#if VM_TRACE
        // From here on, one time step for each clock.
        if (const char *path = getenv("NIC_TRACE")) {
            nic.trace(&trace, 99);
            trace.open(path);
        }
#endif
    }

    void run() {
        while (in.more()) operation(in.u8());
        settle(2000);
        out.u8('E');
        out.u64(now);
    }

private:
    void operation(uint8_t code) {
        switch (code) {
        case 'W': {
            uint32_t address = in.u32(), value = in.u32();
            nic.s_axil_awaddr = address;
            nic.s_axil_wdata = value;
            nic.s_axil_wstrb = 15;
            nic.s_axil_awvalid = nic.s_axil_wvalid = 1;
            nic.s_axil_bready = 1;
            clock();
            nic.s_axil_awvalid = nic.s_axil_wvalid = 0;
            clock();
            break;
        }
        case 'R': {
            uint32_t address = in.u32();
            nic.s_axil_araddr = address;
            nic.s_axil_arvalid = 1;
            clock();
            nic.s_axil_arvalid = 0;
            nic.s_axil_rready = 1;
            for (int i = 0; i < 20 && !nic.s_axil_rvalid; i++) clock();
            out.u8('R');
            out.u32(address);
            out.u32(nic.s_axil_rdata);
            clock();
            nic.s_axil_rready = 0;
            break;
        }
        case 'S':
            random.state = uint64_t(in.u32()) * 0x9e3779b97f4a7c15 + 1;
            host_ready = in.u8();
            port_ready = in.u8();
            break;
        case 'F': {
            int port = in.u8() % PORTS;
            Frame frame;
            frame.flags = in.u8();
            frame.gap = in.u32();
            frame.bytes = in.bytes(in.u32());
            ports[port].frames.push_back(std::move(frame));
            break;
        }
        case 'H': {
            int port = in.u8();
            host.push_back({port, in.bytes(in.u32())});
            break;
        }
        case 'B':
            settle(in.u32());
            break;
        case 'D':
            dram.latency = in.u32();
            break;
        default:
            fail("an unknown operation");
        }
    }

    void settle(uint32_t idle) {
        uint64_t stop = now + 500'000'000;
        last_output = now;
        while (now < last_output + idle) {
            clock();
            if (now > stop) fail("it does not become idle");
        }
    }

    void clock() {
        drive();
        nic.clk = 0;
        nic.eval();
        sample();
#if VM_TRACE
        if (trace.isOpen()) trace.dump(now);
#endif
        nic.clk = 1;
        nic.eval();
        now++;
    }

    void drive() {
        for (int i = 0; i < PORTS; i++) drive_port(i);
        nic.m_host_tready = random.byte() <= host_ready;
        unsigned ready = 0;
        for (int i = 0; i < PORTS; i++) ready |= (random.byte() <= port_ready && pause[i] == 0) << i;
        nic.m_port_tready = ready;
        nic.s_host_tvalid = !host.empty() && (host_held || random.byte() <= host_ready);
        host_held = nic.s_host_tvalid;
        if (nic.s_host_tvalid) {
            const auto &[port, bytes] = host.front();
            nic.s_host_tdest = port;
            nic.s_host_tkeep = 0;
            for (int i = 0; i < 64; i++) {
                bool has = host_at + i < bytes.size();
                set_byte(nic.s_host_tdata, i, has ? bytes[host_at + i] : random.byte());
                if (has) nic.s_host_tkeep |= 1ULL << i;
            }
            nic.s_host_tlast = host_at + 64 >= bytes.size();
        }
        dram.before(nic, now);
    }

    void drive_port(int i) {
        Port &port = ports[i];
        unsigned mask = 1U << i;
        nic.s_port_tvalid &= ~mask;
        nic.s_port_tlast &= ~mask;
        nic.s_port_tuser &= ~mask;
        if (port.frames.empty() || nic.rst) return;
        last_output = now;
        Frame &frame = port.frames.front();
        if (port.at == 0) {
            if (!port.waiting) {
                port.waiting = true;
                port.start = now + frame.gap;
            }
            int64_t at = int64_t(now) * PARTS_IN_CLOCK;
            if (now < port.start || at < port.wire) return;
            port.first = now;
            // The wire is busy until its bytes are through; what is left of a clock counts.
            if (!(frame.flags & 2)) port.wire = (port.wire > at - PARTS_IN_CLOCK ? port.wire : at) + wire_time(frame.bytes.size());
        } else if (host_ready < 255 && random.byte() > 250) return;  // a MAC may pause within a frame
        nic.s_port_tvalid |= mask;
        size_t n = std::min<size_t>(PORT_BYTES, frame.bytes.size() - port.at);
        uint64_t all = ~0ULL >> (64 - PORT_BYTES), keep = ~0ULL >> (64 - n);
        nic.s_port_tkeep = (nic.s_port_tkeep & ~(all << (i * PORT_BYTES))) | keep << (i * PORT_BYTES);
        for (int b = 0; b < PORT_BYTES; b++) {
            set_byte(nic.s_port_tdata, i * PORT_BYTES + b, size_t(b) < n ? frame.bytes[port.at + b] : random.byte());
        }
        port.at += n;
        if (port.at == frame.bytes.size()) {
            nic.s_port_tlast |= mask;
            if (frame.flags & 1) nic.s_port_tuser |= mask;
            out.u8('I');
            out.u8(i);
            out.u64(port.first);
            out.u64(now);
            port.frames.pop_front();
            port.at = 0;
            port.waiting = false;
        }
    }

    void sample() {
        if (nic.rst) return;
        for (int i = 0; i < PORTS; i++) {
            if (pause[i] > 0) pause[i]--;
            if (!(nic.m_port_tvalid >> i & 1) || !(nic.m_port_tready >> i & 1)) {
                // A MAC has to get a beat when it asks for one inside of a frame.
                if (nic.m_port_tready >> i & 1 && !to_port[i].bytes.empty()) fail("a gap inside of a frame to the network");
                continue;
            }
            for (int b = i * PORT_BYTES; b < (i + 1) * PORT_BYTES; b++) {
                if (nic.m_port_tkeep >> b & 1) to_port[i].add(now, byte_of(nic.m_port_tdata, b));
            }
            if (nic.m_port_tlast >> i & 1) {
                // Clocks for what the wire takes longer; what is left over of one is kept for the next.
                left_over[i] += wire_time(to_port[i].bytes.size()) - int64_t(now + 1 - to_port[i].first) * PARTS_IN_CLOCK;
                pause[i] = left_over[i] > 0 && port_ready == 255 ? left_over[i] / PARTS_IN_CLOCK : 0;
                left_over[i] -= pause[i] * PARTS_IN_CLOCK;
                if (left_over[i] < 0 || left_over[i] >= PARTS_IN_CLOCK) left_over[i] = 0;
                finish('P', i, to_port[i]);
            }
        }
        if (nic.m_host_tvalid && nic.m_host_tready) {
            for (int b = 0; b < 64; b++) if (nic.m_host_tkeep >> b & 1) to_host.add(now, byte_of(nic.m_host_tdata, b));
            if (nic.m_host_tlast) finish('O', nic.m_host_tuser, to_host);
        }
        if (nic.s_host_tvalid && nic.s_host_tready) {
            last_output = now;
            host_held = false;
            host_at += 64;
            if (nic.s_host_tlast) {
                host.pop_front();
                host_at = 0;
            }
        }
        if (!host.empty()) last_output = now;
        dram.after(nic, now);
    }

    void finish(char code, uint8_t name, Collector &frame) {
        out.u8(code);
        out.u8(name);
        out.u64(frame.first);
        out.u64(now);
        out.u32(frame.bytes.size());
        out.bytes(frame.bytes);
        frame.bytes.clear();
        last_output = now;
    }

    struct Port {
        std::deque<Frame> frames;
        size_t at = 0;
        bool waiting = false;
        uint64_t start = 0, first = 0;
        int64_t wire = 0;
    };

    Reader in;
    Writer out;
    Vmultimqc_nic nic;
#if VM_TRACE
    VerilatedVcdC trace;
#endif
    Dram dram;
    Port ports[PORTS];
    std::deque<std::pair<int, Bytes>> host;
    size_t host_at = 0;
    bool host_held = false;
    Collector to_port[PORTS], to_host;
    int pause[PORTS] = {};
    int64_t left_over[PORTS] = {};
    Random random;
    unsigned host_ready = 255, port_ready = 255;
    uint64_t now = 0, last_output = 0;
};

}  // namespace

int main(int argc, char **argv) {
    Verilated::commandArgs(argc, argv);
#if VM_TRACE
    Verilated::traceEverOn(true);
#endif
    if (argc < 3) fail("usage: nic_bench SCRIPT RESULT");
    // Coverage is counted in the model, which must still be there when it is written.
    Bench bench(argv[1], argv[2]);
    bench.run();
#if VM_COVERAGE
    if (const char *folder = getenv("NIC_COVERAGE")) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%d.dat", folder, getpid());
        VerilatedCov::write(path);
    }
#endif
    return 0;
}
