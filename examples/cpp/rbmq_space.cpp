// Publishes to many topics of an RBMQ broker by one writer: each line of standard input is a topic of a space, a blank, and a message.
//
// printf 'devices/7/temp 21.5\ndevices/7/door open\n' | ./rbmq_space 'devices/#' [BROKER], with `rbmq sub 'devices/#'` running, and `rbmq serve` with a
// rule of this pattern and `space = true`. RBMQ_TOKEN, or RBMQ_USER and RBMQ_PASSWORD, log in. ROCKETBUFS_TLS_MODE=require and
// ROCKETBUFS_TLS_CA=FILE encrypt.

#include "login.hpp"

#include <iostream>

int main(int argc, char **argv) try {
    using namespace std::chrono_literals;
    if (argc < 2) throw std::runtime_error("usage: rbmq_space PATTERN [BROKER]");
    rocketbufs::Config config = rocketbufs::Config::load();
    rbmq_login login = login_of_environment();
    rbmq_publisher_options options{};
    options.size = sizeof options;
    options.config = config.get();
    options.login = &login;
    rbmq::Publisher publisher(argc > 2 ? argv[2] : "127.0.0.1:7411", &options);
    rbmq::Space space = publisher.space(argv[1]);
    if (!space.wait_subscribers(1, 60s)) throw std::runtime_error("nobody subscribes");
    rbmq::position_t end = 0;
    int lines = 0;
    for (std::string line; std::getline(std::cin, line); lines++) {
        const auto blank = line.find(' ');
        if (blank == line.npos) throw std::runtime_error("a line is a topic, a blank and a message, not '" + line + "'");
        space.publish_to(line.substr(0, blank), rbmq::Attributes().payload_is_utf8(), line.substr(blank + 1), rbmq::no_limit, &end);
    }
    rbmq_confirmed confirmed{};
    if (!space.confirm(end, RBMQ_LEVEL_DELIVERED, 60s, &confirmed)) throw std::runtime_error("not confirmed in time");
    std::cout << lines << " records, delivered to " << confirmed.subscribers << " subscribers\n";
    space.close(10s);
    publisher.close(10s);
} catch (const std::exception &failed) {
    std::cerr << failed.what() << "\n";
    return 1;
}
