// Prints the messages of topics of an RBMQ broker, each with the topic for answers if it has one, until every publisher has closed its topic.
//
// ./rbmq_subscribe TOPICS [BROKER]; TOPICS is a name or a pattern, such as 'sensors/+/temperature' or '#'. RBMQ_TOKEN, or
// RBMQ_USER and RBMQ_PASSWORD, log in. ROCKETBUFS_TLS_MODE=require and ROCKETBUFS_TLS_CA=FILE encrypt.

#include "login.hpp"

#include <iostream>

int main(int argc, char **argv) try {
    if (argc < 2) throw std::runtime_error("usage: rbmq_subscribe TOPICS [BROKER]");
    rocketbufs::Config config = rocketbufs::Config::load();
    rbmq_login login = login_of_environment();
    rbmq_subscriber_options options{};
    options.size = sizeof options;
    options.until_ended = options.confirm_consumed = true;
    options.config = config.get();
    options.login = &login;
    rbmq::Subscriber subscriber(argc > 2 ? argv[2] : "127.0.0.1:7411", &options);
    subscriber.subscribe(argv[1]);
    while (auto message = subscriber.recv(rbmq::no_limit)) {
        std::cout << message->text();
        if (auto reply_to = message->read_attributes().reply_to()) std::cout << "\t" << *reply_to;
        std::cout << "\n";
    }
    subscriber.close(std::chrono::seconds(10));
} catch (const std::exception &failed) {
    std::cerr << failed.what() << "\n";
    return 1;
}
