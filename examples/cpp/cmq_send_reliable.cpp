// Sends the lines of its input to a queue, encrypted, and waits until each is confirmed or given up.
//
// cmq keygen server.key; cmq receive 127.0.0.1:4711 --reliable --key server.key
// ./cmq_send_reliable server.key.pub [RECEIVER] < lines

#include <rocketbufs.hpp>

#include <iostream>

int main(int argc, char **argv) try {
    using namespace std::chrono_literals;
    cmq::PublicKey server = cmq::PublicKey::read(argc > 1 ? argv[1] : "server.key.pub");
    cmq::Key receiver(argc > 2 ? argv[2] : "127.0.0.1:4711");
    cmq::SecretKey own = cmq::SecretKey::generate();
    cmq_security security{};
    security.size = sizeof security;
    security.secret = own.get();
    security.default_peer = &server;
    cmq_reliable reliable{};
    reliable.size = sizeof reliable;
    cmq_options options{};
    options.size = sizeof options;
    options.security = &security;
    options.reliable = &reliable;
    cmq::Queue queue = cmq::new_rq("0.0.0.0:0", &options);
    for (std::string line; std::getline(std::cin, line);)
        while (!queue.push_reliable(receiver, line)) queue.wait_all_confirmed(100ms);
    queue.wait_all_confirmed(cmq::no_limit);
    cmq_reliable_counts counts = queue.stats().reliable;
    std::cout << counts.confirmed << " confirmed, " << counts.failed << " given up\n";
    return counts.failed ? 1 : 0;
} catch (const std::exception &failed) {
    std::cerr << failed.what() << "\n";
    return 1;
}
