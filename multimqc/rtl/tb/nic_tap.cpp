// The simulated NIC between two TAP devices: one is the cable of its port 0, the other the host's interface.
//
//     nic_tap WIRE HOST FROM_IP TO_IP
//
// WIRE and HOST are names of TAP devices, which are made. Batches go to TO_IP, from FROM_IP, in the header form to port 19997; the
// plain ports are 19999 and 19998. Reads commands, one a line, from standard input, and answers each with a line:
//
//     open MAC TOPIC EPOCH OFFSET    opens the topic, whose log goes on at the offset; batches go to this MAC address
//     levels BITS                    1: level 1 answers, 2: level 2 answers
//     count                          the counters, as `name value` pairs
//
// Ends with its standard input.
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <string>

#include "model.h"

namespace {

int open_tap(const char *name) {
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    ifreq request = {};
    request.ifr_flags = IFF_TAP | IFF_NO_PI;
    strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    if (fd < 0 || ioctl(fd, TUNSETIFF, &request) < 0) fail("the TAP device cannot be opened");
    return fd;
}

class Joined {
public:
    Joined(const char *wire_name, const char *host_name) : wire(open_tap(wire_name)), host(open_tap(host_name)) {
        nic.rst = 1;
        // The model's inputs begin with any value.
        nic.s_axil_awvalid = nic.s_axil_wvalid = nic.s_axil_bready = nic.s_axil_arvalid = nic.s_axil_rready = 0;
        nic.s_port_tuser = 0;
        for (int i = 0; i < 10; i++) clock();
        nic.rst = 0;
        // The counters are cleared.
        for (int i = 0; i < 5000; i++) clock();
    }

    void write(uint32_t address, uint32_t value) {
        nic.s_axil_awaddr = address;
        nic.s_axil_wdata = value;
        nic.s_axil_wstrb = 15;
        nic.s_axil_awvalid = nic.s_axil_wvalid = nic.s_axil_bready = 1;
        clock();
        nic.s_axil_awvalid = nic.s_axil_wvalid = 0;
        clock();
    }

    uint32_t read(uint32_t address) {
        nic.s_axil_araddr = address;
        nic.s_axil_arvalid = 1;
        clock();
        nic.s_axil_arvalid = 0;
        nic.s_axil_rready = 1;
        for (int i = 0; i < 20 && !nic.s_axil_rvalid; i++) clock();
        uint32_t value = nic.s_axil_rdata;
        clock();
        nic.s_axil_rready = 0;
        return value;
    }

    // Clocks as long as there is something to do, then a slice of time, so that ages pass, and waits for a frame or a command.
    void run() {
        while (!ended) {
            bool got = receive(wire, to_port) | receive(host, to_nic);
            for (int i = 0; i < 2000; i++) clock();
            bool busy = got || !to_port.empty() || !to_nic.empty();
            pollfd fds[] = {{STDIN_FILENO, POLLIN, 0}, {wire, POLLIN, 0}, {host, POLLIN, 0}};
            poll(fds, 3, busy ? 0 : 1);
            if (fds[0].revents) read_commands();
        }
    }

private:
    void read_commands() {
        char got[256];
        ssize_t n = ::read(STDIN_FILENO, got, sizeof got);
        if (n <= 0) {
            ended = true;
            return;
        }
        for (ssize_t i = 0; i < n; i++) {
            if (got[i] != '\n') {
                line += got[i];
                continue;
            }
            command();
            line.clear();
            fflush(stdout);
        }
    }

    void command() {
        unsigned mac[6], topic, epoch, levels;
        unsigned long long offset;
        if (sscanf(line.c_str(), "open %x:%x:%x:%x:%x:%x %u %u %llu", mac, mac + 1, mac + 2, mac + 3, mac + 4, mac + 5, &topic, &epoch,
                   &offset) == 9) {
            write(0x40, mac[0] | mac[1] << 8 | mac[2] << 16 | mac[3] << 24);
            write(0x44, mac[4] | mac[5] << 8 | 0x02 << 16);
            write(0x48, 0x01000000);
            const uint32_t values[] = {1, topic, 19999, 19998, epoch, (uint32_t)offset, (uint32_t)(offset >> 32)};
            for (int i = 0; i < 7; i++) write(0x2000 + 4 * i, values[i]);
            puts("opened");
        } else if (sscanf(line.c_str(), "levels %u", &levels) == 1) {
            write(0x08, levels);
            puts("set");
        } else if (line == "count") {
            const char *names[] = {"stored", "hits", "misses", "overwritten", "dropped", "oversize", "corrupt", "fragments",
                                   "malformed", "refused", "passed", "busy"};
            for (int i = 0; i < 12; i++) printf("%s %u ", names[i], read(0x800000 + 16 * i));
            printf("batches %u holes %u level1 %u level2 %u\n", read(0x400010), read(0x400018), read(0x400028), read(0x400040));
        } else {
            puts("unknown command");
        }
    }

    static bool receive(int fd, std::deque<Bytes> &frames) {
        uint8_t frame[65536];
        bool got = false;
        while (frames.size() < 256) {
            ssize_t n = ::read(fd, frame, sizeof frame);
            if (n <= 0) break;
            // As a MAC gives them: padded.
            frames.emplace_back(frame, frame + n);
            if (n < 60) frames.back().resize(60);
            got = true;
        }
        return got;
    }

    void clock() {
        nic.s_port_tvalid = !nic.rst && !to_port.empty();
        nic.s_port_tlast = 0;
        if (nic.s_port_tvalid) {
            const Bytes &frame = to_port.front();
            size_t n = std::min<size_t>(8, frame.size() - port_at);
            nic.s_port_tkeep = (1U << n) - 1;
            for (size_t i = 0; i < n; i++) set_byte(nic.s_port_tdata, i, frame[port_at + i]);
            port_at += n;
            if (port_at == frame.size()) {
                nic.s_port_tlast = 1;
                to_port.pop_front();
                port_at = 0;
            }
        }
        nic.s_host_tvalid = !nic.rst && !to_nic.empty();
        if (nic.s_host_tvalid) {
            const Bytes &frame = to_nic.front();
            nic.s_host_tkeep = 0;
            for (size_t i = 0; i < 64 && host_at + i < frame.size(); i++) {
                set_byte(nic.s_host_tdata, i, frame[host_at + i]);
                nic.s_host_tkeep |= 1ULL << i;
            }
            nic.s_host_tlast = host_at + 64 >= frame.size();
        }
        nic.m_host_tready = 1;
        nic.m_port_tready = 15;
        dram.before(nic, now);
        nic.clk = 0;
        nic.eval();
        sample();
        nic.clk = 1;
        nic.eval();
        now++;
    }

    void sample() {
        if (nic.rst) return;
        if (nic.s_host_tvalid && nic.s_host_tready) {
            host_at += 64;
            if (nic.s_host_tlast) {
                to_nic.pop_front();
                host_at = 0;
            }
        }
        if (nic.m_port_tvalid & 1) {
            for (int i = 0; i < 8; i++) if (nic.m_port_tkeep >> i & 1) from_port.push_back(byte_of(nic.m_port_tdata, i));
            if (nic.m_port_tlast & 1) send(wire, from_port);
        }
        if (nic.m_host_tvalid) {
            for (int i = 0; i < 64; i++) if (nic.m_host_tkeep >> i & 1) from_nic.push_back(byte_of(nic.m_host_tdata, i));
            if (nic.m_host_tlast) send(host, from_nic);
        }
        dram.after(nic, now);
    }

    // A TAP device that is full loses the frame, as a cable would.
    static void send(int fd, Bytes &frame) {
        if (::write(fd, frame.data(), frame.size()) < 0 && errno != EAGAIN && errno != EIO) fail("the TAP device is gone");
        frame.clear();
    }

    int wire, host;
    Vmultimqc_nic nic;
    Dram dram;
    std::deque<Bytes> to_port, to_nic;
    Bytes from_port, from_nic;
    size_t port_at = 0, host_at = 0;
    uint64_t now = 0;
    std::string line;
    bool ended = false;
};

}  // namespace

int main(int argc, char **argv) {
    if (argc != 5) fail("usage: nic_tap WIRE HOST FROM_IP TO_IP");
    Joined nic(argv[1], argv[2]);
    // A batch at least each 40,000 clocks.
    nic.write(0x24, 40'000);
    nic.write(0x4c, inet_addr(argv[3]));
    nic.write(0x50, inet_addr(argv[4]));
    nic.write(0x54, htons(19996) | htons(19997) << 16);
    nic.write(0x58, 0x4e4943);
    puts("devices");
    fflush(stdout);
    nic.run();
    return 0;
}
