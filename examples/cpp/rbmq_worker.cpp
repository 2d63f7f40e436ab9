// Works on the messages of a topic that an RBMQ broker keeps, together with the other workers of a group: prints each one, and acknowledges it.
//
// ./rbmq_worker TOPIC GROUP COUNT [BROKER] ends after so many messages. RBMQ_TOKEN, or RBMQ_USER and RBMQ_PASSWORD, log in.
// ROCKETBUFS_TLS_MODE=require and ROCKETBUFS_TLS_CA=FILE encrypt.

#include "login.hpp"

#include <iostream>

int main(int argc, char **argv) try {
    if (argc < 4) throw std::runtime_error("usage: rbmq_worker TOPIC GROUP COUNT [BROKER]");
    rocketbufs::Config config = rocketbufs::Config::load();
    rbmq_login login = login_of_environment();
    rbmq_group_options options{};
    options.size = sizeof options;
    // Of few messages at a time each worker has some. One that is not acknowledged within a minute goes to another worker.
    options.credit = 5;
    options.ack_time_ns = 60 * RB_S;
    options.config = config.get();
    options.login = &login;
    rbmq::GroupWorker worker(argc > 4 ? argv[4] : "127.0.0.1:7411", argv[1], argv[2], &options);
    for (long left = std::stol(argv[3]); left > 0; left--) {
        rbmq::GroupMessage message = worker.recv(rbmq::no_limit);
        std::cout << message.text() << "\n";
        // A message that is destroyed without a word comes again.
        message.ack();
    }
    if (!worker.close()) throw std::runtime_error("the broker does not answer: messages may come again");
} catch (const std::exception &failed) {
    std::cerr << failed.what() << "\n";
    return 1;
}
