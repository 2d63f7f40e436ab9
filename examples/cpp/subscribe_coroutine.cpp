// As subscribe.cpp, with coroutines: any number of subscribers in one thread.
//
// ./subscribe_coroutine BROKER BID...

#include <rocketbufs.hpp>

#include <iostream>
#include <thread>

using namespace rocketbufs;

static Task subscribe(EventLoop &loop, std::string broker, bid_t bid) {
    rIn in(Conn(broker, "subscriber"));
    rb_subscribe_options oldest{};
    oldest.size = sizeof oldest;
    oldest.start = RB_START_OLDEST;
    in.subscribe_with(bid, oldest);
    for (;;) {
        auto event = co_await async_recv(loop, in);
        if (event->kind == RB_IN_DATA) {
            std::cout << event->view.to_string();
            event->view.consume();
        } else if (event->kind == RB_IN_REFUSED) {
            std::this_thread::sleep_for(std::chrono::milliseconds(200));
            in.subscribe_with(bid, oldest);
        } else if (event->kind == RB_IN_CLOSED || event->kind == RB_IN_GONE || event->kind == RB_IN_CONN_DOWN) {
            co_return;
        }
    }
}

int main(int argc, char **argv) {
    if (argc < 3) {
        std::cerr << "usage: subscribe_coroutine BROKER BID...\n";
        return 2;
    }
    EventLoop loop;
    for (int i = 2; i < argc; i++) subscribe(loop, argv[1], static_cast<bid_t>(std::stoul(argv[i])));
    loop.run();
}
