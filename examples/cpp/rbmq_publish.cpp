// Publishes the lines of standard input to a topic of an RBMQ broker, and waits until a subscriber has consumed them.
//
// seq 10 | ./rbmq_publish TOPIC [BROKER [REPLY_TO]], with `rbmq serve` and `rbmq sub TOPIC` running. REPLY_TO is a topic for answers. RBMQ_TOKEN, or RBMQ_USER and
// RBMQ_PASSWORD, log in. ROCKETBUFS_TLS_MODE=require and ROCKETBUFS_TLS_CA=FILE encrypt.

#include "login.hpp"

#include <iostream>

int main(int argc, char **argv) try {
    using namespace std::chrono_literals;
    if (argc < 2) throw std::runtime_error("usage: rbmq_publish TOPIC [BROKER [REPLY_TO]]");
    rocketbufs::Config config = rocketbufs::Config::load();
    rbmq_login login = login_of_environment();
    rbmq_publisher_options options{};
    options.size = sizeof options;
    options.config = config.get();
    options.login = &login;
    rbmq::Publisher publisher(argc > 2 ? argv[2] : "127.0.0.1:7411", &options);
    rbmq::Topic topic = publisher.topic(argv[1]);
    if (!topic.wait_subscribers(1, 60s)) throw std::runtime_error("nobody subscribes");
    rbmq::Attributes attributes;
    if (argc > 3) attributes.reply_to(argv[3]);
    rbmq::position_t end = 0;
    int lines = 0;
    for (std::string line; std::getline(std::cin, line); lines++) topic.publish_with(attributes, line, rbmq::no_limit, &end);
    rbmq_confirmed confirmed{};
    if (!topic.confirm(end, RBMQ_LEVEL_CONSUMED, 60s, &confirmed)) throw std::runtime_error("not confirmed in time");
    std::cout << lines << " records, consumed by " << confirmed.subscribers << " subscribers\n";
    topic.close(10s);
    publisher.close(10s);
} catch (const std::exception &failed) {
    std::cerr << failed.what() << "\n";
    return 1;
}
