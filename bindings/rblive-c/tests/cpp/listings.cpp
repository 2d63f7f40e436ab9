// Paper 3, Listings 1 and 2, in one program: a dissemination node and a delivery node.
#include "rocketstreams.hpp"

#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <mutex>

namespace {
constexpr std::size_t SIZE = 1000;
constexpr int CHUNKS = 20;
const rs::RsNode delivery_node_endpoint = 2;

std::mutex mutex;
std::condition_variable arrived;
int chunks = 0;
bool wrong = false;
rs::RsManager *delivery = nullptr;

void webserver_new_data(rs::RsId id, void *data, std::size_t size) {
    std::lock_guard<std::mutex> lock(mutex);
    const char *bytes = static_cast<const char *>(data);
    bool whole = size == SIZE && bytes[0] == static_cast<char>(chunks) && bytes[SIZE - 1] == static_cast<char>(chunks);
    wrong = wrong || !whole || !delivery->data_intact(id, data);
    ++chunks;
    arrived.notify_all();
}
std::size_t webserver_get_oldest(rs::RsId) { return SIZE; }

// Listing 2.
void on_data_cb(rs::RsId id, void *data, std::size_t size) {
    webserver_new_data(id, data, size);
    std::size_t oldest = webserver_get_oldest(id);
    delivery->data_consumed(id, oldest); // Return oldest data.
}

void producer_receive_data(rs::RsChunk &chunk, int number) { std::memset(chunk.data(), number, chunk.size()); }

bool wait_for(int number) {
    std::unique_lock<std::mutex> lock(mutex);
    return arrived.wait_for(lock, std::chrono::seconds(60), [number] { return chunks >= number; });
}
} // namespace

int main(int, char **argv) {
    try {
        rs::RsManager webserver(argv[2]);
        delivery = &webserver;
        webserver.inbound_callback(on_data_cb);

        // Listing 1.
        rs::RsManager rs(argv[1]);
        rs::RsId id = rs.create_stream("mystream");
        rs.set_outbound(delivery_node_endpoint, id);
        for (int number = 0; number < CHUNKS; ++number) {
            rs::RsChunk chunk = rs.allocate_chunk(id, SIZE);
            producer_receive_data(chunk, number);
            rs.disseminate_chunk(chunk, SIZE, nullptr);
            if (!wait_for(number + 1)) {
                std::puts("a chunk did not arrive");
                return 1;
            }
        }
        try {
            rs.set_outbound(9, id);
            return 1;
        } catch (const rs::Error &error) {
            std::puts(error.what());
        }
    } catch (const rs::Error &error) {
        std::puts(error.what());
        return 1;
    }
    return wrong ? 1 : 0;
}
