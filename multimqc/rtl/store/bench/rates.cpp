// Rates and latencies of the store in clocks, as Markdown: pushes, pulls from both levels, and pushes at 99 % of the line rate of
// 4 x 10 GbE with batches to the host and level 2 beside them. Every byte of a response is compared.
#include <verilated.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <vector>

#include "Vstore_tb.h"

namespace {

constexpr double kClockHz = 156.25e6;
constexpr int kTopics = 4;
const int kSizes[] = {4, 32, 100, 512, 1472};

// The byte at an offset of a topic's log.
uint8_t byte_at(int topic, uint64_t at) { return uint8_t(at ^ (at >> 8) ^ (at >> 16) ^ (topic * 37)); }

// Clocks in which a frame with this payload arrives on four ports: 14 + 20 + 8 of headers, 4 of checksum, 20 between frames.
double frame_clocks(int payload) {
    double bytes = std::max(payload + 42, 60) + 4 + 20;
    return bytes * 8 / 40e9 * kClockHz;
}

struct Answer {
    int status, length;
    uint64_t asked, first, last;
};

class Bench {
   public:
    Bench() {
        top_.rst = 1;
        top_.cfg_levels = 3;
        top_.cfg_batch_bytes = 1440;
        top_.cfg_batch_age = 2000;
        top_.m_response_tready = 1;
        top_.m_batch_tready = 1;
        for (int i = 0; i < 8; i++) clock();
        top_.rst = 0;
    }

    void clock() {
        if (flood_bytes != 0 && !top_.s_read_valid) offer(int(now % kTopics), head[now % kTopics] - 3000, flood_bytes);
        top_.eval();
        if (top_.m_response_tvalid && top_.m_response_tready) response();
        bool taken = top_.s_read_valid && top_.s_read_ready;
        top_.clk = 1;
        top_.eval();
        top_.clk = 0;
        if (taken) {
            asked_.push_back(now);
            longest_wait = std::max(longest_wait, now - offered_);
            top_.s_read_valid = 0;
        }
        now++;
    }

    // A message of `bytes` bytes, one beat in each clock.
    void push(int topic, int bytes) {
        for (int at = 0; at < bytes; at += 64) {
            int n = std::min(64, bytes - at);
            for (int word = 0; word < 16; word++) {
                uint32_t value = 0;
                for (int i = 0; i < 4; i++) value |= uint32_t(byte_at(topic, head[topic] + at + word * 4 + i)) << (8 * i);
                top_.s_push_tdata[word] = value;
            }
            top_.s_push_tkeep = n == 64 ? ~0ull : (1ull << n) - 1;
            top_.s_push_tlast = at + 64 >= bytes;
            top_.s_push_tuser = bytes | topic << 20;
            top_.s_push_tvalid = 1;
            clock();
        }
        top_.s_push_tvalid = 0;
        head[topic] += bytes;
    }

    void ask(int topic, uint64_t offset, int length) {
        while (top_.s_read_valid) clock();
        offer(topic, offset, length);
        top_.eval();
        clock();
    }

    void offer(int topic, uint64_t offset, int length) {
        // {tag, topic, offset, length} in 96 bits
        top_.s_read_data[0] = uint32_t(length) | uint32_t(offset << 16);
        top_.s_read_data[1] = uint32_t(offset >> 16);
        top_.s_read_data[2] = uint32_t(offset >> 48) | uint32_t(topic) << 16;
        top_.s_read_valid = 1;
        topics_.push_back(topic);
        offered_ = now;
    }

    void quiet() {
        for (int i = 0; i < 100000 && !topics_.empty(); i++) clock();
    }

    void idle(int clocks) {
        for (int i = 0; i < clocks; i++) clock();
    }

    uint64_t stat(int topic, int index) {
        top_.stat_topic = topic;
        top_.stat_index = index;
        idle(4);
        return top_.stat_value;
    }

    void levels(int which) { top_.cfg_levels = which; }

    uint64_t now = 0, longest_wait = 0;
    int flood_bytes = 0;  // pulls of so many bytes near the heads, without a pause
    uint64_t head[kTopics] = {};
    std::vector<Answer> answers;

   private:
    void response() {
        uint64_t offset = uint64_t(top_.m_response_tuser[0]) >> 16 | uint64_t(top_.m_response_tuser[1]) << 16 |
                          uint64_t(top_.m_response_tuser[2]) << 48;
        int length = top_.m_response_tuser[0] & 0xffff, status = top_.m_response_tuser[2] >> 16 & 3;
        if (done_ == 0) first_ = now;
        for (int i = 0; i < 64 && done_ + i < length; i++) {
            uint8_t got = top_.m_response_tdata[i / 4] >> (8 * (i % 4));
            if (got != byte_at(topics_.front(), offset + done_ + i)) {
                std::fprintf(stderr, "wrong byte at %llu\n", (unsigned long long)(offset + done_ + i));
                std::exit(1);
            }
        }
        done_ += 64;
        if (top_.m_response_tlast) {
            answers.push_back({status, length, asked_.front(), first_, now});
            asked_.pop_front();
            topics_.pop_front();
            done_ = 0;
        }
    }

    Vstore_tb top_;
    std::deque<uint64_t> asked_;
    std::deque<int> topics_;
    uint64_t first_ = 0, offered_ = 0;
    int done_ = 0;
};

// Pulls as fast as they are taken: clocks for each, and how many were answered with bytes.
double pulls(Bench &bench, int count, int length, uint64_t from, uint64_t to, bool in_order, int *hits) {
    bench.answers.clear();
    uint64_t at = from, seed = 12345, begin = bench.now;
    for (int i = 0; i < count; i++) {
        bench.ask(0, at, length);
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        at = in_order ? at + length : from + (seed >> 33) % (to - from - length);
        if (at + length > to) at = from;
    }
    bench.quiet();
    *hits = 0;
    for (const Answer &answer : bench.answers) *hits += answer.status == 0;
    return double(bench.answers.back().last - begin) / count;
}

struct Holes {
    uint64_t host = 0, level2 = 0;
};

// Pushes at a part of the line rate to all topics in turn, and what was lost on the way to the host and to level 2.
Holes push_at(Bench &bench, int size, double rate) {
    double due = 0;
    int count = size > 200 ? 4000 : 12000;
    uint64_t begin = bench.now;
    for (int i = 0; i < count; i++) {
        due += frame_clocks(size) / rate;
        while (bench.now - begin < due) bench.clock();
        bench.push(i % kTopics, size);
    }
    bench.flood_bytes = 0;
    bench.quiet();
    bench.idle(4000);
    Holes holes;
    for (int topic = 0; topic < kTopics; topic++) {
        holes.host += bench.stat(topic, 3);
        holes.level2 += bench.stat(topic, 10);
    }
    return holes;
}

}  // namespace

int main() {
    std::printf("# Rates and latencies of the store alone\n\nWritten by `multimqc/rtl/store/check bench`: clocks of 6.4 ns, with the model of a "
                "DDR4-2400 channel behind level 2, rings of 16,384 and\n131,072 bytes, four topics. The first table's last columns are at "
                "99 %% of the line rate of 4 x 10 GbE.\n\n");
    std::printf("| payload | clocks a push | of the line rate of 4 x 10 GbE | holes to the host | holes in level 2 |\n");
    std::printf("|---:|---:|---:|---:|---:|\n");
    for (int size : kSizes) {
        Bench bench;
        uint64_t begin = bench.now;
        for (int i = 0; i < 2000; i++) bench.push(0, size);
        double clocks = double(bench.now - begin) / 2000;
        Bench loaded;
        Holes holes = push_at(loaded, size, 0.99);
        std::printf("| %d | %.2f | %.0f %% | %llu | %llu |\n", size, clocks, 100 * frame_clocks(size) / clocks,
                    (unsigned long long)holes.host, (unsigned long long)holes.level2);
    }
    uint64_t lost = 0;
    std::printf("\nThe same pushes, and pulls near the head asked for without a pause: more than the ring can be read.\n\n"
                "| payload | of the line rate | bytes of a pull | clocks a pull | longest wait | holes to the host | holes in level 2 |\n"
                "|---:|---:|---:|---:|---:|---:|---:|\n");
    for (int size : {32, 1472}) {
        for (double rate : {0.8, 0.99}) {
            for (int pull : {32, 1440}) {
                Bench bench;
                for (int topic = 0; topic < kTopics; topic++) bench.push(topic, 1472), bench.push(topic, 1472), bench.push(topic, 1472);
                bench.flood_bytes = pull;
                uint64_t begin = bench.now;
                Holes holes = push_at(bench, size, rate);
                lost += holes.host;
                std::printf("| %d | %.0f %% | %d | %.1f | %llu | %llu | %llu |\n", size, 100 * rate, pull,
                            double(bench.now - begin) / double(bench.answers.size()), (unsigned long long)bench.longest_wait,
                            (unsigned long long)holes.host, (unsigned long long)holes.level2);
            }
        }
    }
    std::printf("\n| payload | clocks a pull, level 1 | level 2, anywhere | level 2, in order | line rate of requests | "
                "latency level 1 | level 2 | level 2 foreseen |\n|---:|---:|---:|---:|---:|---:|---:|---:|\n");
    for (int size : kSizes) {
        Bench bench;
        for (int i = 0; i < 80; i++) {
            bench.push(0, 1472);
            bench.idle(24);
        }
        bench.idle(4000);
        uint64_t head = bench.head[0], window = 16384 - 1024;
        int hits[3];
        double level1 = pulls(bench, 400, size, head - window + 64, head, false, &hits[0]);
        bench.ask(0, head - 3001, size);
        bench.quiet();
        uint64_t latency1 = bench.answers.back().first - bench.answers.back().asked;
        bench.levels(2);
        double anywhere = pulls(bench, 400, size, head - 60000, head, false, &hits[1]);
        bench.ask(0, head - 50001, size);
        bench.quiet();
        uint64_t latency2 = bench.answers.back().first - bench.answers.back().asked;
        double in_order = pulls(bench, 400, size, head - 60000, head, true, &hits[2]);
        uint64_t foreseen = ~0ull;
        for (int i = 0; i < 6; i++) {
            bench.ask(0, head - 40000 + uint64_t(size) * i, size);
            bench.quiet();
            foreseen = bench.answers.back().first - bench.answers.back().asked;
            bench.idle(200);
        }
        if (hits[0] + hits[1] + hits[2] != 1200) {
            std::fprintf(stderr, "not all pulls were answered: %d %d %d of 400\n", hits[0], hits[1], hits[2]);
            return 1;
        }
        std::printf("| %d | %.2f | %.2f | %.2f | %.2f | %llu | %llu | %llu |\n", size, level1, anywhere, in_order,
                    frame_clocks(std::max(size, 16)), (unsigned long long)latency1, (unsigned long long)latency2,
                    (unsigned long long)foreseen);
    }
    if (lost != 0) {
        std::fprintf(stderr, "%llu holes to the host\n", (unsigned long long)lost);
        return 1;
    }
    return 0;
}
